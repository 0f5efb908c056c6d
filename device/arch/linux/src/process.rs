//! The recorder of a Linux process: all its lanes, its clock, and saving to a file.

use core::cell::Cell;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_recorder::config::{CONFIG_VERSION, Config, Function, ONCE, START_ON};
use kymo_recorder::encode::{Functions, check_sizes};
use kymo_recorder::gate::Gate;
use kymo_recorder::identity::{build_id, functions, identity, mode};
use kymo_recorder::link::{Link, Refusal};
use kymo_recorder::metadata::Metadata;
use kymo_recorder::profile::{Frame, Slot, check_stacks};
use kymo_recorder::threads::{Lane, Lanes, ThreadPort as _};
use kymo_recorder::{Edge, Event};
use kymo_wire::event::Cause;
use kymo_wire::link::{Fault, Identity, MAX_FUNCTION_SHIFT, Mode, SetupError};
use kymo_wire::process_file::region;

use crate::ended::Ended;
use crate::numbers::Numbers;
use crate::port::Linux;
use crate::reader::Reader;
use crate::recording::Recording;
use crate::save::Text;
use crate::sys;
use crate::wide::Wide;
use crate::{elf, settings, thread};

mod fork;
mod images;
mod lock;
mod regions;
mod talk;

use images::Images;
pub(crate) use lock::{Claim, Lock};
pub(crate) use regions::belong;
use regions::describe;

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
    pub(crate) lanes: Lanes<Linux>,
    pub(crate) numbers: Numbers,
    pub(crate) metadata: Metadata<Linux>,
    /// Held by the one who writes metadata.
    metadata_lock: Lock,
    /// Which files the functions are in.
    images: Images,
    /// The file that all of this is in.
    pub(crate) recording: Recording,
    /// Held by the one who reads the lanes.
    pub(crate) reading: Claim,
    /// Threads that have ended.
    pub(crate) ended: Ended,
    /// Events of threads that have no lane: no memory, or it was being made.
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
}

/// The sizes of a lane's buffer.
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
            lanes: Lanes::new(),
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
            config: Cell::new(None),
            fault: Cell::new(None),
            sizes: Cell::new(Sizes {
                buffer: DEFAULT_BUFFER,
                packet: DEFAULT_PACKET,
            }),
            bytes_at_start: AtomicU32::new(0),
            forked: AtomicBool::new(false),
            once: AtomicBool::new(false),
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
        if let Some(lane) = self.lane() {
            let edge = if EXIT { Edge::Exit } else { Edge::Enter };
            self.follow_image(function);
            lane.call(&self.port, gate, edge, function, caller);
            self.follow_stopper(lane, gate, edge, function);
        }
    }

    /// Goes on with a call where the fast path in assembly gave up: the calling thread has a lane and
    /// has said that it is inside.
    #[cold]
    pub fn call_inside(&self, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if let Some(lane) = self.existing_lane() {
            self.follow_image(function);
            lane.call_inside(&self.port, gate, edge, function, caller);
            self.follow_stopper(lane, gate, edge, function);
        }
    }

    /// Turns recording off where the thread left the outermost call of the stopper. Behind the record: its event may
    /// be the first that this thread sees since recording was turned on, and calls before count for nothing.
    #[inline(always)]
    fn follow_stopper(&self, lane: &Lane<Linux>, gate: &Gate, edge: Edge, function: usize) {
        if function != gate.stopper() || function == 0 {
            return;
        }
        if lane.writer().follow_stopper(edge) {
            self.turn(gate, false, Cause::Function);
        }
    }

    /// Does what is left to do when the fast path in assembly has recorded a call and said that the
    /// calling thread is outside.
    #[cold]
    pub fn come_back(&self, gate: &Gate) {
        if let Some(lane) = self.existing_lane() {
            lane.come_back(&self.port, gate);
        }
    }

    /// Something else happened in the calling thread, while the gate seemed open.
    pub fn hook(&self, gate: &Gate, event: Event) {
        if let Some(lane) = self.lane() {
            lane.hook(&self.port, gate, event);
        }
    }

    /// Takes an event that came while the gate was closed: it may be the trigger's entry, or one
    /// that is lost because a reader holds the lanes still.
    pub fn closed(&self, gate: &Gate, event: Event) {
        if gate.state().frozen() {
            self.end_forgotten(gate);
        }
        let state = gate.state();
        if !state.alive() || state.failed() {
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
            if let Some(lane) = self.existing_lane() {
                self.follow_stopper(lane, gate, edge, function);
            }
        } else if let Event::Enter(function) | Event::EnterFrom { function, .. } = event {
            if function != 0 && function == gate.trigger() && state.enabled() && !state.spent() {
                self.turn(gate, true, Cause::Function);
                self.hook(gate, event);
                if let Some(lane) = self.existing_lane() {
                    self.follow_stopper(lane, gate, Edge::Enter, function);
                }
            }
        } else if let Some(lane) = self.existing_lane() {
            lane.follow(event);
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
            self.hook(gate, mark);
        } else {
            self.hook(gate, mark);
            let over = cause == Cause::Function && self.once.load(Ordering::Relaxed);
            if gate.turn(false, over) {
                let span = now.saturating_sub(self.on_since.load());
                self.recorded
                    .store(self.recorded.load().saturating_add(span));
            }
        }
    }

    /// The calling thread's lane, if it has one.
    #[inline(always)]
    pub(crate) fn existing_lane(&self) -> Option<&'static Lane<Linux>> {
        let lane = thread::get().cast::<Lane<Linux>>();
        if lane as usize > thread::BUSY as usize {
            // SAFETY: the word is null, busy, or the lane that `attach` put there for good.
            Some(unsafe { &*lane })
        } else {
            None
        }
    }

    /// The calling thread's lane; made if it has none.
    #[inline(always)]
    pub(crate) fn lane(&self) -> Option<&'static Lane<Linux>> {
        match self.existing_lane() {
            Some(lane) => Some(lane),
            None => self.attach(),
        }
    }

    /// The calling thread's lane, made now. Signals wait for it: what their handlers call has no place before.
    #[cold]
    fn attach(&self) -> Option<&'static Lane<Linux>> {
        sys::without_signals(|| {
            // A handler has come before that, and has made it; or what makes it has called a hook.
            if let Some(lane) = self.existing_lane() {
                return Some(lane);
            }
            if thread::get() == thread::BUSY {
                self.lose(1);
                return None;
            }
            thread::set(thread::BUSY);
            self.begin_child();
            let lane = self
                .inherit(false)
                .or_else(|| self.new_lane())
                .or_else(|| self.inherit(true));
            match lane {
                Some(lane) => thread::set(core::ptr::from_ref(lane).cast()),
                None => {
                    self.lose(1);
                    thread::set(core::ptr::null());
                }
            }
            lane
        })
    }

    /// A lane in a region of its own: the region's header, the lane, its profile table, its packets.
    fn new_lane(&self) -> Option<&'static Lane<Linux>> {
        let config = self.config.get()?;
        let sizes = self.sizes.get();
        let lane_bytes = region::BYTES + size_of::<Lane<Linux>>().next_multiple_of(64);
        let slot_bytes = (config.slot_count as usize * size_of::<Slot>()).next_multiple_of(64);
        let frames = (config.shadow_stacks as usize).checked_mul(config.shadow_depth as usize)?;
        let frame_bytes = frames.checked_mul(size_of::<Frame>())?.next_multiple_of(64);
        let front = lane_bytes + slot_bytes + frame_bytes;
        let bytes = front.checked_add(sizes.buffer as usize)?;
        // Before the memory, so that none is taken in vain; a number that is not used is given again.
        let number = self.new_number()?;
        let Ok(memory) = self.recording.take(bytes) else {
            self.lanes.return_number(number);
            return None;
        };
        // SAFETY: the memory is new, large enough, aligned to a page, and never given back.
        let lane = unsafe {
            let place = memory.add(region::BYTES).cast::<Lane<Linux>>();
            place.write(Lane::new());
            &*place
        };
        let writer = lane.writer();
        // SAFETY: the part behind `front` is this stream's alone.
        let set_up = unsafe {
            writer.stream().set_up(
                lane.cursor(),
                (memory.add(front), sizes.buffer),
                sizes.packet,
                number,
                numbering(config),
            )
        };
        set_up.ok()?;
        writer.stream().clear();
        writer.stream().set_mode(self.mode());
        writer.stream().belong_to(sys::thread() as usize);
        // SAFETY: the program describes its promotions truly.
        unsafe { writer.set_up(config) };
        if config.slot_count != 0 {
            // SAFETY: these parts are this table's alone; all zero is an empty table.
            let set_up = unsafe {
                writer.give_table(
                    (memory.add(lane_bytes).cast(), config.slot_count),
                    memory.add(lane_bytes + slot_bytes).cast(),
                    config.shadow_stacks,
                    config.shadow_depth.min(u16::MAX.into()),
                )
            };
            set_up.ok()?;
        }
        writer.allow_fast(self.port.is_fast(numbering(config)));
        lane.set_owner(sys::process(), sys::thread());
        self.numbers.set(number, lane);
        describe(memory, lane, front, (sizes.buffer, sizes.packet));
        self.lanes.add(lane);
        Some(lane)
    }

    /// Sets the recorder up, once, from the first hook or constructor on; nothing if that has
    /// happened. `config` is the program's, if it has one.
    #[cold]
    pub fn set_up(&'static self, gate: &'static Gate, config: Option<&'static Config>) {
        if !gate.claim() {
            return;
        }
        let config = config.unwrap_or(&DEFAULTS);
        let packet = or_default(config.packet_size, DEFAULT_PACKET);
        let own = settings::buffer_bytes(packet);
        self.sizes.set(Sizes {
            buffer: own.unwrap_or_else(|| or_default(config.buffer_size, DEFAULT_BUFFER)),
            packet,
        });
        self.config.set(Some(config));
        if let Some(threads) = settings::ended_threads() {
            self.set_ended_threads(threads);
        }
        self.set_mode(settings::mode().unwrap_or_else(|| mode(config)));
        self.watch_forks(gate);
        self.port.clock.set_up();
        self.port
            .fenced
            .store(!sys::register_barrier(), Ordering::Relaxed);
        let metadata = or_default(config.metadata_size, DEFAULT_METADATA);
        if let Some(output) = settings::output() {
            self.recording.name(output);
            self.open_recording();
        }
        if let Some((memory, bytes)) = self.metadata_memory(metadata) {
            // SAFETY: the memory is new, aligned to 64 bytes, and never given back.
            let set_up = unsafe { self.metadata.set_up(memory, bytes, self.port.now()) };
            debug_assert!(set_up.is_ok(), "a page is enough for a header");
            self.metadata.build_id(self.port.now(), program_id(config));
            self.describe_program(numbering(config).text_base);
        }
        let address = |function: Option<Function>| function.map_or(0, |it| it as usize);
        gate.set_trigger(address(config.trigger));
        gate.set_stopper(address(config.stopper));
        self.once.store(config.flags & ONCE != 0, Ordering::Relaxed);
        let fault = self.check(config).err();
        self.fault.set(fault);
        #[cfg(feature = "cost")]
        if fault.is_none() {
            self.measure(gate);
        }
        gate.set_up(fault.is_some(), false);
        if settings::on().unwrap_or(config.flags & START_ON != 0) {
            self.turn(gate, true, Cause::Build);
        }
        self.bytes_at_start
            .store(self.recorded_bytes(), Ordering::Relaxed);
    }

    /// Makes the file that this process records into, if one is named.
    fn open_recording(&self) {
        self.recording.open(&self.port.clock, |line| {
            let _ = write!(line, "{}", self.identity_at(1));
        });
    }

    /// How many bytes all threads have recorded, modulo 2^32.
    pub(crate) fn recorded_bytes(&self) -> u32 {
        let bytes = self.lanes.iter().map(|lane| {
            let stream = lane.writer().stream().figures();
            stream.bytes.wrapping_add(lane.items().produced())
        });
        bytes.fold(0, u32::wrapping_add)
    }

    /// Tries the sizes that every lane will have.
    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let sizes = self.sizes.get();
        if config.version != CONFIG_VERSION {
            return Err(Fault::Version.of(config.version as usize));
        }
        if config.function_shift > MAX_FUNCTION_SHIFT {
            return Err(Fault::FunctionShift.of(config.function_shift as usize));
        }
        check_sizes(sizes.buffer, sizes.packet)?;
        if config.slot_count != 0 {
            check_stacks(config.shadow_stacks, config.shadow_depth)?;
        }
        Ok(())
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

    /// Who the process is: the answer to `identify`, and the first line of a saved file. May wait
    /// some 50 ms for the clock's rate.
    pub fn identity(&self) -> Identity {
        self.identity_at(self.port.clock.hz())
    }

    /// The same with this rate of the clock.
    pub(crate) fn identity_at(&self, clock_hz: u64) -> Identity {
        let config = self.config();
        let mut identity = identity::<Linux>(config, program_id(config));
        identity.clock_hz = clock_hz;
        identity.clock_bits = 64;
        identity.capabilities.sure_clock = true;
        identity.capabilities.stream = true;
        identity.capabilities.retained = false;
        identity.buffer_bytes = self.sizes.get().buffer;
        identity.packet_bytes = self.sizes.get().packet;
        identity.streams = self.lanes.count();
        identity.mode = self.mode();
        identity.text_base = numbering(config).text_base as u64;
        identity
    }

    fn config(&self) -> &'static Config {
        self.config.get().unwrap_or(&DEFAULTS)
    }

    /// Whether threads keep a profile table.
    pub(crate) fn keeps_profile(&self) -> bool {
        self.config().slot_count != 0
    }

    /// Sends bytes to the host.
    pub(crate) fn send(&self, bytes: &[u8]) {
        if let Some(send) = self.config().send {
            // SAFETY: the program gives a function that takes bytes and their number.
            unsafe { send(bytes.as_ptr(), bytes.len()) };
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
        for lane in self.lanes.iter().filter(|lane| !lane.has_ended()) {
            let id = lane.writer().stream().thread();
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

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

/// The configuration of a program that has none: everything from the first event on.
static DEFAULTS: Config = Config {
    version: CONFIG_VERSION,
    flags: START_ON,
    ..Config::EMPTY
};

/// A number that the program gives, or the default where it gives 0.
fn or_default(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// How the program's functions are numbered.
fn numbering(config: &Config) -> Functions {
    let functions = functions(config);
    if config.text_base.is_null() {
        Functions {
            text_base: elf::text_base() as usize,
            ..functions
        }
    } else {
        functions
    }
}

/// The build id of the program.
fn program_id(config: &Config) -> &'static [u8] {
    if !config.build_id_note.is_null() {
        // SAFETY: the program says that its note is there.
        let note = unsafe { core::slice::from_raw_parts(config.build_id_note.cast(), 16 + 32) };
        return build_id(note);
    }
    elf::notes()
        .map(build_id)
        .find(|id| !id.is_empty())
        .unwrap_or(&[])
}
