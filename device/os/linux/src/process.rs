//! Recorder of a Linux process: its thread buffers, its clock, and saving to a file.

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
use crate::lock::{Claim, Lock};
use crate::port::Linux;
use crate::recording::Recording;
use crate::sys;
use crate::text::Text;
use crate::wide::Wide;

mod buffers;
#[cfg(feature = "cost")]
mod cost;
#[cfg(feature = "duration")]
mod duration;
mod ended;
mod followers;
mod fork;
mod images;
mod items;
mod numbers;
mod reader;
mod regions;
mod save;
mod server;
mod set_up;
mod talk;
mod wiped;

use ended::Ended;
pub use followers::Follower;
use followers::Followers;
pub(crate) use fork::recorder;
use images::Images;
use numbers::Numbers;
use reader::Reader;
pub(crate) use regions::belong;
use server::Server;
pub use wiped::GatePage;

/// Default size of a thread's buffer in bytes, for a program without a `kymo_config`.
pub const DEFAULT_BUFFER: u32 = 4 << 20;
/// Default size of a packet in bytes.
pub const DEFAULT_PACKET: u32 = 4096;
/// Default size of the memory for names in bytes.
const DEFAULT_METADATA: u32 = 64 << 10;

/// The recorder of the process.
#[derive(Debug)]
pub struct Process {
    pub(crate) port: Linux,
    pub(crate) thread_buffers: ThreadBuffers<Linux>,
    pub(crate) numbers: Numbers,
    pub(crate) metadata: Metadata<Linux>,
    /// Held while metadata is written.
    metadata_lock: Lock,
    /// The images that contain the functions.
    images: Images,
    /// The file that contains all buffers.
    pub(crate) recording: Recording,
    /// Held by the reader of the thread buffers.
    pub(crate) reading: Claim,
    /// Buffers of exited threads.
    pub(crate) ended: Ended,
    /// Lost events of threads without a thread buffer: no memory, or the buffer was being created.
    pub(crate) unbuffered: AtomicU32,
    /// Whether a thread failed to leave its hook for a reader.
    pub(crate) stuck: AtomicBool,
    /// A [`Mode`] as a number.
    mode: AtomicU32,
    /// Packets of items per thread; 0: the default.
    pub(crate) item_packets: AtomicU32,
    /// Time at which recording was last turned on.
    pub(crate) on_since: Wide,
    /// Total time for which recording was on before that.
    pub(crate) recorded: Wide,
    link: Link,
    /// Held while the link is polled.
    polling: Claim,
    /// Whether the polling code is a hook that will not send ([`Self::end_forgotten`]).
    ending: AtomicBool,
    /// Time at which the host of a dump counts as disconnected if it stays silent; 0 while there is no dump.
    patience: Wide,
    /// State of the current reader.
    pub(crate) reader: Reader,
    /// Duration mode.
    #[cfg(feature = "duration")]
    duration: duration::Duration,
    pub(crate) config: Cell<Option<&'static Config>>,
    /// The error in the configuration.
    pub(crate) fault: Cell<Option<SetupError>>,
    sizes: Cell<Sizes>,
    /// Bytes that the recorder itself had recorded when it was set up.
    pub(crate) bytes_at_start: AtomicU32,
    /// Number of streams at that time.
    pub(crate) buffers_at_start: AtomicU32,
    /// Whether this process is a fork that has recorded nothing so far.
    forked: AtomicBool,
    /// Whether the trigger turns recording on only once.
    pub(crate) once: AtomicBool,
    /// Whether each exit names its function.
    names_exits: AtomicBool,
    /// The hooks that the program's functions call: an [`Answer`] as a number.
    answer: AtomicU32,
    /// Code that calls hooks only while they are needed.
    followers: Followers,
    /// The state of the gate, for children.
    copy: wiped::Copy,
    /// The socket to which hosts connect.
    pub(crate) server: Server,
}

/// Sizes of a thread's buffer and its packets.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    buffer: u32,
    packet: u32,
}

// SAFETY: `config`, `fault` and `sizes` are set once, by the thread that `Gate` lets set up, before the gate opens;
// `metadata` is guarded by `metadata_lock`, `reader` by `reading`, and `ended` by its lock and `reading`.
unsafe impl Sync for Process {}

impl Process {
    /// Creates a recorder that is not set up.
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
            unbuffered: AtomicU32::new(0),
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
            buffers_at_start: AtomicU32::new(0),
            forked: AtomicBool::new(false),
            once: AtomicBool::new(false),
            names_exits: AtomicBool::new(false),
            answer: AtomicU32::new(Answer::Own as u32),
            followers: Followers::new(),
            copy: wiped::Copy::new(),
            server: Server::new(),
        }
    }

    /// Records that the calling thread enters or leaves a function, after the gate was seen open.
    #[inline(always)]
    pub fn call(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        match edge {
            Edge::Enter => self.open_call::<false>(gate, function, caller),
            Edge::Exit => self.open_call::<true>(gate, function, caller),
        }
    }

    /// Separate from the hook, so that a closed hook saves no registers; compiled once for each kind of edge.
    #[inline(never)]
    fn open_call<const EXIT: bool>(&self, gate: &Gate, function: usize, caller: usize) {
        if let Some(thread_buffer) = self.thread_buffer() {
            let edge = if EXIT { Edge::Exit } else { Edge::Enter };
            self.follow_image(function);
            thread_buffer.call(&self.port, gate, edge, function, caller);
            self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        }
    }

    /// Records a call for which the fast path in assembly found the calling thread inside a hook. `stack` is the stack
    /// pointer at the entry of this hook.
    #[cold]
    pub fn call_nested(
        &self,
        gate: &Gate,
        edge: Edge,
        (function, caller): (usize, usize),
        stack: *mut u8,
    ) {
        if let Some(thread_buffer) = self.existing_buffer() {
            self.follow_image(function);
            thread_buffer.call_nested(&self.port, gate, edge, (function, caller), stack);
            self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        }
    }

    /// Records a call for which the fast path in assembly gave up: the calling thread has a thread buffer and is marked
    /// as inside.
    #[cold]
    pub fn call_inside(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if let Some(thread_buffer) = self.existing_buffer() {
            self.follow_image(function);
            thread_buffer.call_inside(&self.port, gate, edge, function, caller);
            self.follow_stopper(thread_buffer, gate, edge, (function, caller));
        }
    }

    /// Turns recording off if the thread has left the outermost call of the stopper. Called after the record.
    #[inline(always)]
    fn follow_stopper(
        &self,
        thread_buffer: &ThreadBuffer<Linux>,
        gate: &Gate,
        edge: Edge,
        (function, caller): (usize, usize),
    ) {
        if function == gate.stopper() && function != 0 {
            self.stopper_called(thread_buffer, gate, edge, (function, caller));
        }
    }

    #[cold]
    #[inline(never)]
    fn stopper_called(
        &self,
        thread_buffer: &ThreadBuffer<Linux>,
        gate: &Gate,
        edge: Edge,
        (function, caller): (usize, usize),
    ) {
        let site = gate.site(caller);
        if thread_buffer.follow_stopper(edge, function, site)
            && !self.set_recording(gate, false, Cause::Function)
        {
            site.take_back(true);
        }
    }

    /// Finishes a call after the fast path in assembly has recorded it and marked the calling thread as outside.
    #[cold]
    pub fn come_back(&self, gate: &Gate) {
        if let Some(thread_buffer) = self.existing_buffer() {
            thread_buffer.come_back(&self.port, gate);
        }
    }

    /// Records an event other than a call in the calling thread, after the gate was seen open.
    pub fn hook(&self, gate: &Gate, event: Event) {
        if let Some(thread_buffer) = self.thread_buffer() {
            #[cfg(feature = "duration")]
            if self.is_in_duration() {
                return self.hook_in_duration(thread_buffer, gate, event);
            }
            thread_buffer.hook(&self.port, gate, event);
        }
    }

    /// Handles an event that occurs while the gate is closed: it may be the trigger's entry, or an event that is lost
    /// because a reader has frozen the thread buffers.
    pub fn closed(&self, gate: &Gate, event: Event) {
        if gate.state().frozen() {
            self.end_forgotten(gate);
        }
        let state = gate.state();
        if !state.alive() || state.failed() {
            if self.is_spare() {
                self.unbuffered.fetch_add(1, Ordering::Relaxed);
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
                if !self.set_recording(gate, true, Cause::Function) {
                    gate.site(event.caller()).take_back(false);
                }
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

    /// Turns recording on or off, and records that in the calling thread's stream. Returns whether it was not on or off
    /// before.
    pub fn set_recording(&self, gate: &Gate, on: bool, cause: Cause) -> bool {
        let mark = Event::Recording { on, cause };
        if gate.state().on() == on {
            return false;
        }
        let now = self.port.now();
        if on {
            self.on_since.store(now);
            #[cfg(feature = "duration")]
            self.duration.recording_on();
            let changed = gate.set_recording(true, false);
            self.gate_changed(gate);
            self.hook(gate, mark);
            changed
        } else {
            self.hook(gate, mark);
            #[cfg(feature = "duration")]
            self.duration.recording_off(now);
            let over = cause == Cause::Function && self.once.load(Ordering::Relaxed);
            let changed = gate.set_recording(false, over);
            if changed {
                let span = now.saturating_sub(self.on_since.load());
                self.recorded
                    .store(self.recorded.load().saturating_add(span));
            }
            self.gate_changed(gate);
            changed
        }
    }

    /// Returns the number of bytes that all threads have recorded, modulo 2^32.
    pub(crate) fn recorded_bytes(&self) -> u32 {
        let bytes = self.thread_buffers.iter().map(|thread_buffer| {
            let stream = thread_buffer.writer().stream().figures();
            stream.bytes.wrapping_add(thread_buffer.items().produced())
        });
        bytes.fold(0, u32::wrapping_add)
    }

    /// Returns whether the process uses the hooks of another copy of the recorder. This copy, in a library, then does
    /// nothing.
    pub(crate) fn is_spare(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == Answer::Copy as u32
    }

    /// Returns whether functions call hooks that are not a recorder's.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == Answer::Other as u32
    }

    /// Returns why the recorder could not be set up.
    pub fn set_up_error(&self) -> Option<SetupError> {
        self.fault.get()
    }

    /// Returns what happens when a buffer is full.
    pub(crate) fn mode(&self) -> Mode {
        const FIXED: u32 = Mode::Fixed as u32;
        const STREAM: u32 = Mode::Stream as u32;
        match self.mode.load(Ordering::Relaxed) {
            FIXED => Mode::Fixed,
            STREAM => Mode::Stream,
            _ => Mode::Overwrite,
        }
    }

    /// Sets what happens when the buffer of a new thread is full.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// Returns whether threads keep a profile table.
    pub(crate) fn keeps_profile(&self) -> bool {
        self.config().slot_count != 0
    }

    /// Sends bytes to the host.
    pub(crate) fn send(&self, bytes: &[u8]) {
        match self.config().send {
            // SAFETY: the program supplies a function that takes bytes and their number.
            Some(send) => unsafe { send(bytes.as_ptr(), bytes.len()) },
            None => self.send_to_host(bytes),
        }
    }

    /// Restarts the program; returns the reason if that fails.
    pub(crate) fn reboot(&self) -> Refusal {
        if let Some(reboot) = self.config().reboot {
            // SAFETY: the program supplies a function that restarts it.
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

    /// Writes metadata. If the caller is a signal handler that interrupted a writer, the metadata is lost and counted.
    pub(crate) fn with_metadata(&self, write: impl FnOnce(&Metadata<Linux>)) {
        self.begin_child();
        let written = self.metadata_lock.with(|| write(&self.metadata));
        if written.is_none() {
            self.lose(1);
        }
    }

    /// Counts events of the calling thread that its caller could not record, if recording is on.
    pub fn lose_unrecorded(&self, gate: &Gate, events: u32) {
        let state = gate.state();
        if !state.on() || !state.enabled() {
            return;
        }
        match self.existing_buffer() {
            Some(thread_buffer) => thread_buffer.lose(events),
            None => self.lose(events),
        }
    }

    /// Counts lost events or metadata that belong to no stream.
    #[cold]
    pub(crate) fn lose(&self, count: u32) {
        self.unbuffered.fetch_add(count, Ordering::Relaxed);
        self.recording.lose(count);
    }

    /// Records the kernel's names of those running threads that the program has not named.
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
                        // With the timestamp of the last metadata record, not now: this is not an event of the program.
                        metadata.thread_name(0, id, name.trim_ascii_end());
                    }
                });
            }
        }
    }
}

/// Stubs for a build without duration mode.
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
