//! The recorder of a Linux process: all its thread buffers, its clock, and saving to a file.

use core::cell::Cell;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_recorder::config::Config;
use kymo_recorder::gate::Gate;
use kymo_recorder::link::{Link, Refusal};
use kymo_recorder::metadata::Metadata;
use kymo_recorder::threads::{ThreadBuffer, ThreadBuffers, ThreadPort as _};
use kymo_recorder::{Edge, Event};
use kymo_wire::event::Cause;
use kymo_wire::link::{Mode, SetupError};

use crate::elf::Answer;
use crate::ended::Ended;
use crate::numbers::Numbers;
use crate::port::Linux;
use crate::reader::Reader;
use crate::recording::Recording;
use crate::save::Text;
use crate::server::Server;
use crate::sys;
use crate::wide::Wide;

mod buffers;
#[cfg(feature = "duration")]
mod duration;
mod fork;
mod images;
mod lock;
mod regions;
mod set_up;
mod talk;
mod wiped;

pub(crate) use fork::recorder;
use images::Images;
pub(crate) use lock::{Claim, Lock};
pub(crate) use regions::belong;
pub use wiped::GatePage;

/// The defaults of a program that has no `kymo_config` of its own.
pub const DEFAULT_BUFFER: u32 = 4 << 20;
/// The size of a packet by default.
pub const DEFAULT_PACKET: u32 = 4096;
/// Room for names by default.
const DEFAULT_METADATA: u32 = 64 << 10;

/// The recorder of the process.
#[derive(Debug)]
pub struct Process {
    pub(crate) port: Linux,
    pub(crate) thread_buffers: ThreadBuffers<Linux>,
    pub(crate) numbers: Numbers,
    pub(crate) metadata: Metadata<Linux>,
    /// Held by the one who writes metadata.
    metadata_lock: Lock,
    /// Which files the functions are in.
    images: Images,
    /// The file that all of this is in.
    pub(crate) recording: Recording,
    /// Held by the one who reads the thread buffers.
    pub(crate) reading: Claim,
    /// Threads that have ended.
    pub(crate) ended: Ended,
    /// Events of threads that have no thread buffer: no memory, or it was being made.
    pub(crate) homeless: AtomicU32,
    /// A thread did not leave its hook when a reader asked for it.
    pub(crate) stuck: AtomicBool,
    /// A [`Mode`] as a number.
    mode: AtomicU32,
    /// How many packets of items a thread gets; 0: the default.
    pub(crate) item_packets: AtomicU32,
    /// Since when recording is on.
    pub(crate) on_since: Wide,
    /// For how long it was on before.
    pub(crate) recorded: Wide,
    link: Link,
    /// Held by the one who polls the link.
    polling: Claim,
    /// It is a hook, which will not send ([`Self::end_forgotten`]).
    ending: AtomicBool,
    /// When a dump's host is taken to be gone if it is not heard before; 0 while there is no dump.
    patience: Wide,
    /// What the reader of the moment remembers.
    pub(crate) reader: Reader,
    /// Duration mode.
    #[cfg(feature = "duration")]
    duration: duration::Duration,
    pub(crate) config: Cell<Option<&'static Config>>,
    /// What is wrong with the configuration.
    pub(crate) fault: Cell<Option<SetupError>>,
    sizes: Cell<Sizes>,
    /// Bytes that the recorder itself had recorded when it was set up.
    pub(crate) bytes_at_start: AtomicU32,
    /// This process is a fork, and has recorded nothing so far.
    forked: AtomicBool,
    /// The trigger turns recording on once.
    pub(crate) once: AtomicBool,
    /// Which hooks the functions of the program call: an [`Answer`] as a number.
    answer: AtomicU32,
    /// What the gate says, for children.
    copy: wiped::Copy,
    /// Where hosts connect.
    pub(crate) server: Server,
}

/// The sizes of a thread buffer's buffer.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    buffer: u32,
    packet: u32,
}

// SAFETY: `config`, `fault` and `sizes` are set once, by the thread that `Gate` let set up, before the
// gate opens; `metadata` is guarded by `metadata_lock`, `reader` by `reading`,
// and `ended` by its lock and `reading`.
unsafe impl Sync for Process {}

impl Process {
    /// Not set up.
    pub const fn new() -> Self {
        Self {
            port: Linux::new(),
            thread_buffers: ThreadBuffers::new(),
            numbers: Numbers::new(),
            metadata: Metadata::new(),
            metadata_lock: Lock::new(),
            images: Images::new(),
            recording: Recording::new(),
            reading: Claim::new(),
            ended: Ended::new(),
            homeless: AtomicU32::new(0),
            stuck: AtomicBool::new(false),
            mode: AtomicU32::new(Mode::Overwrite as u32),
            item_packets: AtomicU32::new(0),
            on_since: Wide::new(),
            recorded: Wide::new(),
            link: Link::new(),
            polling: Claim::new(),
            ending: AtomicBool::new(false),
            patience: Wide::new(),
            reader: Reader::new(),
            #[cfg(feature = "duration")]
            duration: duration::Duration::new(),
            config: Cell::new(None),
            fault: Cell::new(None),
            sizes: Cell::new(Sizes {
                buffer: DEFAULT_BUFFER,
                packet: DEFAULT_PACKET,
            }),
            bytes_at_start: AtomicU32::new(0),
            forked: AtomicBool::new(false),
            once: AtomicBool::new(false),
            answer: AtomicU32::new(Answer::Own as u32),
            copy: wiped::Copy::new(),
            server: Server::new(),
        }
    }

    /// A function was entered or left by the calling thread, while the gate seemed open.
    #[inline(always)]
    pub fn call(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        match edge {
            Edge::Enter => self.open_call::<false>(gate, function, caller),
            Edge::Exit => self.open_call::<true>(gate, function, caller),
        }
    }

    /// Apart from the hook so that one that is off does not save registers, and once for each kind.
    #[inline(never)]
    fn open_call<const EXIT: bool>(&self, gate: &Gate, function: usize, caller: usize) {
        if let Some(thread_buffer) = self.thread_buffer() {
            let edge = if EXIT { Edge::Exit } else { Edge::Enter };
            self.follow_image(function);
            thread_buffer.call(&self.port, gate, edge, function, caller);
            self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        }
    }

    /// Goes on with a call where the fast path in assembly gave up: the calling thread has a thread buffer and
    /// has said that it is inside.
    #[cold]
    pub fn call_inside(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if let Some(thread_buffer) = self.existing_buffer() {
            self.follow_image(function);
            thread_buffer.call_inside(&self.port, gate, edge, function, caller);
            self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        }
    }

    /// Turns recording off where the thread left the outermost call of the stopper. Behind the record: its event may
    /// be the first that this thread sees since recording was turned on, and calls before count for nothing.
    #[inline(always)]
    fn follow_stopper(
        &self,
        thread_buffer: &ThreadBuffer<Linux>,
        gate: &Gate,
        edge: Edge,
        (function, caller): (usize, usize),
    ) {
        if function != gate.stopper() || function == 0 {
            return;
        }
        if thread_buffer
            .writer()
            .follow_stopper(edge, gate.site(caller))
        {
            self.turn(gate, false, Cause::Function);
        }
    }

    /// Does what is left to do when the fast path in assembly has recorded a call and said that the
    /// calling thread is outside.
    #[cold]
    pub fn come_back(&self, gate: &Gate) {
        if let Some(thread_buffer) = self.existing_buffer() {
            thread_buffer.come_back(&self.port, gate);
        }
    }

    /// Something else happened in the calling thread, while the gate seemed open.
    pub fn hook(&self, gate: &Gate, event: Event) {
        if let Some(thread_buffer) = self.thread_buffer() {
            thread_buffer.hook(&self.port, gate, event);
        }
    }

    /// Takes an event that came while the gate was closed: it may be the trigger's entry, or one
    /// that is lost because a reader holds the thread buffers still.
    pub fn closed(&self, gate: &Gate, event: Event) {
        if gate.state().frozen() {
            self.end_forgotten(gate);
        }
        let state = gate.state();
        if !state.alive() || state.failed() {
            if self.is_spare() {
                self.homeless.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        if state.claimed() {
            self.lose(1);
        } else if state.enabled() && state.on() {
            self.hook(gate, event);
            let (edge, function) = match event {
                Event::Enter(function) | Event::EnterFrom { function, .. } => {
                    (Edge::Enter, function)
                }
                Event::Exit(function) => (Edge::Exit, function),
                _ => return,
            };
            if let Some(thread_buffer) = self.existing_buffer() {
                self.follow_stopper(thread_buffer, gate, edge, (function, event.caller()));
            }
        } else if let Event::Enter(function) | Event::EnterFrom { function, .. } = event {
            if function != 0
                && function == gate.trigger()
                && state.enabled()
                && !state.spent()
                && gate.site(event.caller()).triggers()
            {
                self.turn(gate, true, Cause::Function);
                self.hook(gate, event);
                if let Some(thread_buffer) = self.existing_buffer() {
                    self.follow_stopper(
                        thread_buffer,
                        gate,
                        Edge::Enter,
                        (function, event.caller()),
                    );
                }
            }
        } else if let Some(thread_buffer) = self.existing_buffer() {
            thread_buffer.follow(event);
        }
    }

    /// Turns recording on or off, with a mark in the calling thread's stream.
    pub fn turn(&self, gate: &Gate, on: bool, cause: Cause) {
        let mark = Event::Recording { on, cause };
        if gate.state().on() == on {
            return;
        }
        let now = self.port.now();
        if on {
            self.on_since.store(now);
            gate.turn(true, false);
            self.keep_gate(gate);
            self.hook(gate, mark);
        } else {
            self.hook(gate, mark);
            #[cfg(feature = "duration")]
            self.duration.turned_off(now);
            let over = cause == Cause::Function && self.once.load(Ordering::Relaxed);
            if gate.turn(false, over) {
                let span = now.saturating_sub(self.on_since.load());
                self.recorded
                    .store(self.recorded.load().saturating_add(span));
            }
            self.keep_gate(gate);
        }
    }

    /// How many bytes all threads have recorded, modulo 2^32.
    pub(crate) fn recorded_bytes(&self) -> u32 {
        let bytes = self.thread_buffers.iter().map(|thread_buffer| {
            let stream = thread_buffer.writer().stream().figures();
            stream.bytes.wrapping_add(thread_buffer.items().produced())
        });
        bytes.fold(0, u32::wrapping_add)
    }

    /// Whether the hooks of another copy of the recorder answer in this process: this one, in a library, does nothing.
    pub(crate) fn is_spare(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == Answer::Copy as u32
    }

    /// Whether functions call hooks that are not a recorder's.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == Answer::Other as u32
    }

    /// Why the recorder could not be set up.
    pub fn set_up_error(&self) -> Option<SetupError> {
        self.fault.get()
    }

    /// What happens when a buffer is full.
    pub(crate) fn mode(&self) -> Mode {
        const FIXED: u32 = Mode::Fixed as u32;
        const STREAM: u32 = Mode::Stream as u32;
        match self.mode.load(Ordering::Relaxed) {
            FIXED => Mode::Fixed,
            STREAM => Mode::Stream,
            _ => Mode::Overwrite,
        }
    }

    /// What happens from now on when the buffer of a new thread is full.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// Whether threads keep a profile table.
    pub(crate) fn keeps_profile(&self) -> bool {
        self.config().slot_count != 0
    }

    /// Sends bytes to the host.
    pub(crate) fn send(&self, bytes: &[u8]) {
        match self.config().send {
            // SAFETY: the program gives a function that takes bytes and their number.
            Some(send) => unsafe { send(bytes.as_ptr(), bytes.len()) },
            None => self.send_to_host(bytes),
        }
    }

    /// Has the program start again; returns why not.
    pub(crate) fn reboot(&self) -> Refusal {
        if let Some(reboot) = self.config().reboot {
            // SAFETY: the program gives a function that starts it again.
            unsafe { reboot() };
        }
        Refusal::NoReboot
    }

    /// Names a thread.
    pub fn thread_name(&self, id: usize, name: &[u8]) {
        self.with_metadata(|metadata| metadata.thread_name(self.port.now(), id, name));
    }

    /// Names an interrupt (a signal).
    pub fn isr_name(&self, irq: u16, name: &[u8]) {
        self.with_metadata(|metadata| metadata.isr_name(self.port.now(), irq, name));
    }

    /// Writes metadata, unless the caller is a signal handler that interrupted the one who does: then the fact is
    /// lost and counted.
    pub(crate) fn with_metadata(&self, write: impl FnOnce(&Metadata<Linux>)) {
        self.begin_child();
        let written = self.metadata_lock.with(|| write(&self.metadata));
        if written.is_none() {
            self.lose(1);
        }
    }

    /// Counts events, or facts, that have no stream.
    #[cold]
    pub(crate) fn lose(&self, count: u32) {
        self.homeless.fetch_add(count, Ordering::Relaxed);
        self.recording.lose(count);
    }

    /// Takes over the names that the kernel knows of threads that live and that the program has not
    /// named.
    pub(crate) fn name_threads(&self) {
        for thread_buffer in self
            .thread_buffers
            .iter()
            .filter(|thread_buffer| !thread_buffer.has_ended())
        {
            let id = thread_buffer.writer().stream().thread();
            let mut path = Text::<40>::new();
            let _ = write!(path, "/proc/self/task/{id}/comm\0");
            let mut name = [0; 32];
            if let Ok(name) = sys::read_front(path.bytes(), &mut name) {
                self.with_metadata(|metadata| {
                    if !metadata.names_thread(id) {
                        // Told with the last fact, not now: this is no event of the program's.
                        metadata.thread_name(0, id, name.trim_ascii_end());
                    }
                });
            }
        }
    }
}

/// Without duration mode.
#[cfg(not(feature = "duration"))]
impl Process {
    pub(crate) fn is_in_duration(&self) -> bool {
        false
    }

    fn duration_bytes(&self) -> usize {
        0
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}
