//! A recorder that sends SEGGER SystemView's stream, for SystemView's application and everything else that reads it.
//!
//! It takes the place of SEGGER's own target sources, for programs that have Kymo's hooks and want to be seen there: threads,
//! interrupts, software timers, heaps, markers, prints, the program's own events, and functions as the events of a module
//! ([`FUNCTIONS`]). Packets are encoded by [`kymo_systemview`], whose decoder reads recordings on the host.
//!
//! It neither allocates nor waits. An event is encoded on the caller's stack; then the [`Port`] keeps others off while the
//! clock is read and the bytes are handed over, whole packets or nothing. What the port has no room for is counted, and the
//! next packet that it takes comes behind the count (an overflow packet).
//!
//! One [`Recorder`] has one stream, for one processor or for several that take the port's lock in turn.
#![no_std]
#![forbid(unsafe_code)]

mod events;
mod hooks;
mod host;
mod state;

pub use events::Level;
pub use kymo_systemview::Ids;

use kymo_systemview::{
    Form, MAX_VARINT, NoRoom, Packet, SYNC, Text, encode_body, encode_number, encode_numbers,
};
use state::State;

/// The id of the first event of [`FUNCTIONS`], of two.
pub const FUNCTION_EVENTS: u32 = kymo_systemview::packet::FIRST_OF_MODULES;

/// The description of the module whose events are the entries and exits of functions. It is named as the one of ESP-IDF, which
/// hosts know: function and call site are addresses of 32 bits.
pub const FUNCTIONS: &str = "M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p call_site=%p";

/// The id of the first event of the module [`Recorder::kernel_module`] describes.
pub const KERNEL_EVENTS: u32 = FUNCTION_EVENTS + 2;

/// The first id for events of the program's own modules. (Those between belong to modules of Kymo's.)
pub const FIRST_EVENT: u32 = FUNCTION_EVENTS + 64;

/// Bytes of a task's name that are sent.
pub const MAX_NAME: usize = 32;

/// Bytes of any other text that are sent, as in SEGGER's sources (`SEGGER_SYSVIEW_MAX_STRING_LEN`).
pub const MAX_TEXT: usize = 128;

/// Numbers that an event or a print can have.
pub const MAX_ARGUMENTS: usize = 10;

/// What hosts must know of a target to understand its times and ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Ticks of [`Port::now`] a second.
    pub frequency: u32,
    /// Cycles of the processor a second.
    pub cpu_frequency: u32,
    /// How addresses of tasks, timers, resources and heap blocks are shortened: the start of RAM, and the bits that are 0
    /// in all of them. All zero: not at all.
    pub ids: Ids,
    /// How a connection begins.
    pub greeting: Greeting,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Greeting {
    /// With the stream: RTT.
    #[default]
    None,
    /// With four bytes each way: a serial line.
    Serial,
    /// With 32 bytes each way; each command has its number of bytes before it: TCP.
    Tcp,
}

/// What a host asks for, and is told when recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The system: [`Recorder::system_description`].
    System,
    /// Tasks and their stacks, names of resources and markers, heaps.
    Tasks,
    /// The program's own modules: [`Recorder::module`] for each.
    Modules,
}

/// The processor, the lock, and the way out.
pub trait Port: Sized {
    /// The clock: counts up, and begins again at 0 after 2^32 ticks. (Between two packets at most so many may pass.)
    fn now(&self) -> u32;

    /// Runs this while nobody else does: with interrupts masked, or a mutex taken. Not instrumented.
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R;

    /// Takes all of these bytes, or none: false. Called while locked. Waiting here keeps everybody off.
    fn write(&self, bytes: &[u8]) -> bool;

    /// Times and ids.
    fn system(&self) -> System;

    /// How many modules [`Part::Modules`] describes.
    fn modules(&self) -> u32 {
        0
    }

    /// Tells the host of the system, by calls of the recorder.
    fn describe(&self, recorder: &Recorder<Self>, part: Part) {
        let _ = (recorder, part);
    }
}

/// The recorder.
#[derive(Debug)]
pub struct Recorder<P> {
    port: P,
    state: State,
}

impl<P: Port> Recorder<P> {
    /// Off.
    pub const fn new(port: P) -> Self {
        Self {
            port,
            state: State::new(),
        }
    }

    /// The port.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// Whether events are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.on.get() != 0
    }

    /// Packets since the start that were not stored: the port had no room for them, or they came while it was writing.
    pub fn dropped(&self) -> u32 {
        let (dropped, refused) = (&self.state.dropped, &self.state.refused);
        dropped.get().saturating_add(refused.get())
    }

    /// Begins a recording: synchronization, clock and system. One that is going on ends without a word. False if the port has
    /// no room for the beginning.
    pub fn start(&self) -> bool {
        // Synchronization, TRACE_START, and no ticks since.
        let mut bytes = [0; SYNC.len() + 2];
        if let Some(id) = bytes.get_mut(SYNC.len()) {
            *id = Packet::TraceStart.id() as u8;
        }
        let begun = self.port.locked(|| {
            if !self.write(&bytes) {
                return false;
            }
            self.state.last.set(self.port.now());
            self.state.dropped.set(0);
            self.state.refused.set(0);
            self.state.reported.set(0);
            self.state.on.set(1);
            true
        });
        if begun {
            self.introduce();
        }
        begun
    }

    /// Ends it.
    pub fn stop(&self) {
        self.send::<8>(&Packet::TraceStop);
        self.state.on.set(0);
    }

    /// All that a host must know.
    fn introduce(&self) {
        let system = self.port.system();
        self.send::<32>(&Packet::Init {
            frequency: system.frequency,
            cpu_frequency: system.cpu_frequency,
            ids: system.ids,
        });
        self.port.describe(self, Part::System);
        self.send_time();
        self.port.describe(self, Part::Tasks);
        self.send_modules();
    }

    fn send_time(&self) {
        let cycles = self.port.now();
        self.send::<16>(&Packet::SystemTimeCycles { cycles });
    }

    fn send_modules(&self) {
        let own = self.port.modules();
        let count = own.saturating_add(1);
        self.send::<16>(&Packet::ModuleCount { count });
        self.send_module(0, FUNCTION_EVENTS, FUNCTIONS.as_bytes());
        self.port.describe(self, Part::Modules);
    }

    fn send_module(&self, module: u32, offset: u32, text: &[u8]) {
        let text = Text(cut(text, MAX_TEXT));
        self.send::<160>(&Packet::ModuleDescription {
            module,
            offset,
            text,
        });
    }

    /// Encodes a packet that takes at most `N` bytes, and hands it over.
    fn send<const N: usize>(&self, packet: &Packet<'_>) {
        if self.is_on() {
            let mut bytes = [0; N];
            let body = encode_body(packet, Form::default(), &mut bytes);
            self.hand_over(&mut bytes, body);
        }
    }

    /// The same of a packet that holds these numbers.
    #[inline]
    fn send_numbers<const N: usize>(&self, id: u32, numbers: [u32; N]) {
        if !self.is_on() {
            return;
        }
        match N {
            0..=2 => self.send_few(id, &numbers),
            _ => self.send_list(id, &numbers),
        }
    }

    /// The same of at most two. (A small buffer is cleared at once.)
    #[inline(never)]
    fn send_few(&self, id: u32, numbers: &[u32]) {
        self.send_encoded::<{ events::room(2) }>(id, numbers);
    }

    /// The same of at most [`MAX_ARGUMENTS`].
    #[inline(never)]
    fn send_list(&self, id: u32, numbers: &[u32]) {
        self.send_encoded::<{ events::room(MAX_ARGUMENTS) }>(id, numbers);
    }

    #[inline(always)]
    fn send_encoded<const N: usize>(&self, id: u32, numbers: &[u32]) {
        if self.is_on() {
            let mut bytes = [0; N];
            let body = encode_numbers(id, numbers, &mut bytes);
            self.hand_over(&mut bytes, body);
        }
    }

    /// Hands a packet's body over. (One that did not fit would count as lost; all fit.)
    fn hand_over(&self, bytes: &mut [u8], body: Result<usize, NoRoom>) {
        let body = body.unwrap_or(0);
        self.port.locked(|| {
            if self.is_on() {
                self.store(bytes, body);
            }
        });
    }

    /// Hands over bytes that are no packet of a recording. Locked; false if there is no room, or the port is at work.
    fn write(&self, bytes: &[u8]) -> bool {
        if self.state.busy.get() != 0 {
            return false;
        }
        self.state.busy.set(1);
        let written = self.port.write(bytes);
        self.state.busy.set(0);
        written
    }

    /// Hands a packet over, or counts it. Locked.
    fn store(&self, bytes: &mut [u8], body: usize) {
        let state = &self.state;
        // From a handler that cannot be masked, or from the port itself, if it is instrumented.
        if state.busy.get() != 0 {
            state.refused.set(state.refused.get().saturating_add(1));
            return;
        }
        state.busy.set(1);
        if body == 0 || !self.report_losses() || !self.put(bytes, body) {
            state.dropped.set(state.dropped.get().saturating_add(1));
        }
        state.busy.set(0);
    }

    /// Says how many packets were lost, if that was not said yet. False: there is no room.
    fn report_losses(&self) -> bool {
        let total = self.dropped();
        if total == self.state.reported.get() {
            return true;
        }
        let mut bytes = [0; 1 + 2 * MAX_VARINT];
        let id = Packet::Overflow { total }.id();
        let body = encode_numbers(id, &[total], &mut bytes).unwrap_or(0);
        let put = self.put(&mut bytes, body);
        if put {
            self.state.reported.set(total);
        }
        put
    }

    /// Writes the ticks behind a packet's body, and hands it over.
    fn put(&self, bytes: &mut [u8], body: usize) -> bool {
        let now = self.port.now();
        let delta = now.wrapping_sub(self.state.last.get());
        let behind = bytes.get_mut(body..).unwrap_or_default();
        let Ok(ticks) = encode_number(delta, behind) else {
            return false;
        };
        let whole = bytes.get(..body + ticks).unwrap_or_default();
        let written = self.port.write(whole);
        if written {
            // Times are distances between packets that were stored.
            self.state.last.set(now);
        }
        written
    }
}

/// The beginning of a text, without half a character at its end.
fn cut(text: &[u8], max: usize) -> &[u8] {
    let mut end = text.len().min(max);
    let is_middle = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    while end > 0 && is_middle(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
