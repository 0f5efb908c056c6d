//! Recorder that sends SEGGER SystemView's stream, for SystemView's application and other readers of that stream.
//!
//! It replaces SEGGER's own target sources in programs that have Kymo's hooks. It sends threads, interrupts, software
//! timers, heaps, markers, prints, the program's own events, and functions as the events of a module ([`FUNCTIONS`]).
//! [`kymo_systemview`] encodes the packets; its decoder reads recordings on the host.
//!
//! It neither allocates nor waits. An event is encoded on the caller's stack. Then the [`Port`] excludes other contexts
//! while the clock is read and the bytes are passed on, in whole packets or not at all. Packets for which the port has
//! no room are counted, and an overflow packet with their count precedes the next packet that it takes.
//!
//! One [`Recorder`] has one stream, for one processor or for several that share the port's lock.
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

/// Id of the first of two events of [`FUNCTIONS`].
pub const FUNCTION_EVENTS: u32 = kymo_systemview::packet::FIRST_OF_MODULES;

/// Description of the module whose events are the entries and exits of functions. It has the name of ESP-IDF's module,
/// which hosts know: function and call site are 32-bit addresses.
pub const FUNCTIONS: &str = "M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p call_site=%p";

/// Id of the first event of the module that [`Recorder::kernel_module`] describes.
pub const KERNEL_EVENTS: u32 = FUNCTION_EVENTS + 2;

/// First id for events of the program's own modules. (The ids in between belong to Kymo's modules.)
pub const FIRST_EVENT: u32 = FUNCTION_EVENTS + 64;

/// Maximum number of bytes of a task's name that are sent.
pub const MAX_NAME: usize = 32;

/// Maximum number of bytes of any other text that are sent, as in SEGGER's sources (`SEGGER_SYSVIEW_MAX_STRING_LEN`).
pub const MAX_TEXT: usize = 128;

/// Maximum number of arguments of an event or a print.
pub const MAX_ARGUMENTS: usize = 10;

/// Properties of a target that hosts need to interpret its timestamps and ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Frequency of [`Port::now`] in ticks per second.
    pub frequency: u32,
    /// Frequency of the processor in cycles per second.
    pub cpu_frequency: u32,
    /// How addresses of tasks, timers, resources and heap blocks are shortened: the start of RAM, and the number of low
    /// bits that are 0 in all of them. All zero: not at all.
    pub ids: Ids,
    /// Greeting that begins a connection.
    pub greeting: Greeting,
}

/// Greeting that begins a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Greeting {
    /// None, the connection begins with the stream: RTT.
    #[default]
    None,
    /// Four bytes each way: a serial line.
    Serial,
    /// 32 bytes each way, and each command is preceded by its length in bytes: TCP.
    Tcp,
}

/// Description that a host can request, and receives when recording starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The system: [`Recorder::system_description`].
    System,
    /// Tasks and their stacks, names of resources and markers, heaps.
    Tasks,
    /// The program's own modules: [`Recorder::module`] for each.
    Modules,
}

/// Clock, lock and output of the recorder.
pub trait Port: Sized {
    /// Reads the clock, which counts up and wraps at 2^32 ticks. (It must not wrap around between two packets.)
    fn now(&self) -> u32;

    /// Runs `run` with other contexts excluded: with interrupts masked, or a mutex held. Not instrumented.
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R;

    /// Takes all of these bytes, or none and returns false. Called under the lock. While it waits, all other contexts
    /// wait.
    fn write(&self, bytes: &[u8]) -> bool;

    /// Returns the properties of the target.
    fn system(&self) -> System;

    /// Returns the number of modules that [`Part::Modules`] describes.
    fn modules(&self) -> u32 {
        0
    }

    /// Describes the system to the host, by calls of the recorder.
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
    /// Creates a recorder that is off.
    pub const fn new(port: P) -> Self {
        Self {
            port,
            state: State::new(),
        }
    }

    /// Returns the port.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// Returns whether events are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.on.get() != 0
    }

    /// Returns the number of packets lost since the start: the port had no room for them, or they occurred while it was
    /// writing.
    pub fn dropped(&self) -> u32 {
        let (dropped, refused) = (&self.state.dropped, &self.state.refused);
        dropped.get().saturating_add(refused.get())
    }

    /// Begins a recording: sends synchronization, clock and system. A recording in progress ends without a stop packet.
    /// Returns false if the port has no room for the start.
    pub fn start(&self) -> bool {
        // Synchronization, TRACE_START, and zero ticks.
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

    /// Ends the recording.
    pub fn stop(&self) {
        self.send::<8>(&Packet::TraceStop);
        self.state.on.set(0);
    }

    /// Sends everything that a host needs to know.
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

    /// Encodes a packet of at most `N` bytes, and stores it.
    fn send<const N: usize>(&self, packet: &Packet<'_>) {
        if self.is_on() {
            let mut bytes = [0; N];
            let body = encode_body(packet, Form::default(), &mut bytes);
            self.hand_over(&mut bytes, body);
        }
    }

    /// Encodes and stores a packet that consists of these numbers.
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

    /// For at most two numbers. (A small buffer takes less time to clear.)
    #[inline(never)]
    fn send_few(&self, id: u32, numbers: &[u32]) {
        self.send_encoded::<{ events::room(2) }>(id, numbers);
    }

    /// For at most [`MAX_ARGUMENTS`] numbers.
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

    /// Stores a packet with this body, under the lock. (A body that did not fit would count as lost; all fit.)
    fn hand_over(&self, bytes: &mut [u8], body: Result<usize, NoRoom>) {
        let body = body.unwrap_or(0);
        self.port.locked(|| {
            if self.is_on() {
                self.store(bytes, body);
            }
        });
    }

    /// Writes bytes that are not a packet of a recording. Under the lock. Returns false if there is no room, or if the
    /// port is already writing.
    fn write(&self, bytes: &[u8]) -> bool {
        if self.state.busy.get() != 0 {
            return false;
        }
        self.state.busy.set(1);
        let written = self.port.write(bytes);
        self.state.busy.set(0);
        written
    }

    /// Stores a packet, or counts it as lost. Under the lock.
    fn store(&self, bytes: &mut [u8], body: usize) {
        let state = &self.state;
        // The caller is a handler that cannot be masked, or the port itself, if it is instrumented.
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

    /// Reports the number of lost packets, if that was not reported yet. Returns false if there is no room.
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

    /// Appends the ticks to a packet's body, and writes the packet.
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
            // Timestamps are distances between packets that were stored.
            self.state.last.set(now);
        }
        written
    }
}

/// Returns the start of a text, without a partial character at its end.
fn cut(text: &[u8], max: usize) -> &[u8] {
    let mut end = text.len().min(max);
    let is_middle = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    while end > 0 && is_middle(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
