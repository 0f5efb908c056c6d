//! Memory that one trace source saw: the shared history, and the data that selects the view of the source.

mod replaced;

pub(crate) use replaced::Replaced;

use std::sync::{Arc, OnceLock};

use super::super::{Code, Image, Images, MemorySpace, Moment};
use super::{History, Placed, Program, Ran, Running, Schedule, Switches, View};
use crate::frames::Stream;
use crate::perf::TimeConversion;
use crate::source::Protocol;

/// Session of a trace unit, between a time before its start and a time after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Time before the first instruction.
    pub begin: u64,
    /// Time after the last instruction.
    pub end: u64,
}

/// Data of a recording about a trace source, besides the trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Protocol, which defines how contexts name the running thread.
    pub protocol: Protocol,
    /// The only thread traced, if the recording is of one thread.
    pub thread: Option<u32>,
    /// CPU that the source traces.
    pub cpu: Option<u32>,
    /// Sessions of the trace buffer.
    pub sessions: Arc<Vec<Session>>,
    /// Conversion of timestamps to the clock of changes and sessions, if known.
    pub conversion: Option<TimeConversion>,
}

/// Memory as the core of a trace source saw it. Clones share the history.
#[derive(Clone, Debug)]
pub struct Memory {
    history: Arc<History>,
    recorded: Option<Recorded>,
    /// Threads of the source's stream, if the trace does not name them.
    schedule: Option<Arc<Schedule>>,
}

impl Default for Memory {
    fn default() -> Self {
        Images::default().into()
    }
}

impl From<Images> for Memory {
    /// Builds memory that never changes.
    fn from(images: Images) -> Self {
        let placed = images.iter().map(|image| Placed {
            length: image.bytes.len() as u64,
            image: image.clone(),
            since: 0,
        });
        let mut program = Program {
            placed: placed.collect(),
            ..Program::default()
        };
        program.sort();
        Memory {
            history: Arc::new(History {
                programs: vec![program],
                ..History::default()
            }),
            recorded: None,
            schedule: None,
        }
    }
}

/// Memory at one view.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'m> {
    memory: &'m Memory,
    view: View,
}

impl<'m> Scene<'m> {
    /// The image that has an address.
    pub fn find(self, space: MemorySpace, address: u64) -> Option<&'m Image> {
        self.memory.find(self.view, space, address)
    }

    /// Bytes from an address to the end of its image.
    pub fn at(self, space: MemorySpace, address: u64) -> Option<&'m [u8]> {
        self.memory.at(self.view, space, address)
    }

    /// Name of the process at the view, if known.
    pub fn process_name(self) -> Option<&'m str> {
        self.memory.process_name(self.view)
    }

    /// Name of the mapping at an address, even if its file is missing.
    pub fn name_at(self, address: u64) -> Option<&'m str> {
        self.memory.name_at(self.view, address)
    }
}

impl Memory {
    /// Memory at a view.
    pub fn seen(&self, view: View) -> Scene<'_> {
        Scene { memory: self, view }
    }

    /// Whether both memories share one history, so that a view means the same in both.
    pub fn is_of(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.history, &other.history)
    }

    /// Creates the memory of a recording's source, with the schedule of its stream.
    pub(crate) fn new(
        history: Arc<History>,
        recorded: Recorded,
        stream: Option<&Stream<'_>>,
    ) -> Self {
        let schedule = stream.and_then(|stream| Schedule::of(&history, &recorded, stream));
        Memory {
            history,
            recorded: Some(recorded),
            schedule: schedule.map(Arc::new),
        }
    }

    /// Threads of the source's stream, if the recording names them and the trace does not.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_deref()
    }

    /// Context switches of the source's CPU in nanoseconds of perf's clock, in order: from each time on, what the CPU
    /// runs. Empty if the kernel recorded none, if the recording is of a single thread, or if the trace's timestamps do
    /// not convert to that clock.
    pub fn switches(&self) -> &[(u64, Running)] {
        let recorded = self.recorded.as_ref();
        let recorded = recorded.filter(|it| it.thread.is_none() && it.conversion.is_some());
        let cpu = recorded.and_then(|it| it.cpu);
        let switches = cpu.and_then(|cpu| self.history.switches.get(&cpu));
        switches.map_or(&[], Switches::all)
    }

    /// Time after the last instruction of the source's trace, in nanoseconds of perf's clock, if known.
    pub fn end(&self) -> Option<u64> {
        let sessions = self.recorded.as_ref()?.sessions.iter();
        sessions.map(|session| session.end).max()
    }

    /// Adds an image to all programs. At an address in several images, the one added first wins.
    pub fn add(&mut self, image: Image) {
        let history = Arc::make_mut(&mut self.history);
        history.any = OnceLock::new();
        if let Some(program) = history.programs.first_mut() {
            let placed = &mut program.placed;
            let at = placed.partition_point(|other| other.image.address < image.address);
            placed.insert(
                at,
                Placed {
                    length: image.bytes.len() as u64,
                    image,
                    since: 0,
                },
            );
            program.sort();
        }
    }

    /// Pairs of overlapping images with different bytes, in memory that never changes: the image in use, the other one,
    /// and the first address at which they differ. Both are of one memory space.
    pub(crate) fn conflicts(&self) -> Vec<(&Image, &Image, u64)> {
        const PAIRS: usize = 4096;
        let program = self.history.programs.first();
        let Some(program) = program.filter(|_| self.recorded.is_none()) else {
            return Vec::new();
        };
        let pairs = program.placed.iter().enumerate().flat_map(|(at, used)| {
            let before = program.placed.get(..at).unwrap_or_default().iter().rev();
            let reach = program.reach.get(..at).unwrap_or_default().iter().rev();
            let start = used.image.address;
            let reaching = before
                .zip(reach)
                .take_while(move |(_, reach)| **reach >= start);
            reaching.map(move |(other, _)| (&used.image, &other.image))
        });
        let differing = pairs.take(PAIRS).filter_map(|(used, other)| {
            let within = usize::try_from(used.address - other.address).ok()?;
            let theirs = other.bytes.get(within..)?;
            let mut both = (used.address..).zip(used.bytes.iter().zip(theirs));
            let is_one_space = used.space.overlaps(other.space);
            let differs = both.find(|(_, (a, b))| a != b).filter(|_| is_one_space);
            Some((used, other, differs?.0))
        });
        differing.collect()
    }

    /// The image that has an address.
    pub fn find(&self, view: View, space: MemorySpace, address: u64) -> Option<&Image> {
        let image = &self.history.find(view, space, address)?.image;
        let offset = usize::try_from(address - image.address).ok()?;
        (offset < image.bytes.len()).then_some(image)
    }

    /// Name of the mapping at an address, even if its file is missing.
    pub fn name_at(&self, view: View, address: u64) -> Option<&str> {
        let placed = self.history.find(view, MemorySpace::ANY, address)?;
        Some(&placed.image.name)
    }

    /// Mapping at an address, even if its file is missing: its first address, its length in bytes, and its offset in
    /// the file.
    pub fn mapped(&self, view: View, address: u64) -> Option<(u64, u64, u64)> {
        let placed = self.history.find(view, MemorySpace::ANY, address)?;
        let Image {
            address,
            file_offset,
            ..
        } = placed.image;
        Some((address, placed.length, file_offset))
    }

    /// All images of all times, program by program, sorted by address in each.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        let programs = self.history.programs.iter();
        let placed = programs.flat_map(|program| &program.placed);
        placed.map(|placed| &placed.image)
    }

    /// Process of a view's program.
    pub fn process(&self, view: View) -> Option<u32> {
        self.history.program(view.program).process
    }

    /// Name of the process while it ran a view's program, if known.
    pub fn process_name(&self, view: View) -> Option<&str> {
        self.history.program(view.program).name.as_deref()
    }

    /// All known names of a process, one for each of its programs.
    pub fn names_of(&self, process: u32) -> impl Iterator<Item = &str> {
        let programs = self.history.processes.get(&process);
        let programs = programs.map(Vec::as_slice).unwrap_or_default();
        let programs = programs.iter().map(|(_, program)| *program);
        programs.filter_map(|program| self.history.program(program).name.as_deref())
    }

    /// Process of a thread at a view.
    pub fn process_of(&self, view: View, thread: u32) -> Option<u32> {
        self.history.process_of(thread, view.change)
    }

    /// Number of processes that have a program.
    pub fn processes(&self) -> usize {
        self.history.processes.len()
    }

    /// Thread at a moment, and the earliest and latest time that the moment can be.
    fn place(recorded: &Recorded, history: &History, moment: &Moment) -> (Option<u32>, u64, u64) {
        let session = moment
            .session
            .and_then(|index| recorded.sessions.get(index as usize));
        let (begin, end) = session.map_or((0, u64::MAX), |session| {
            (session.begin, session.end.max(session.begin))
        });
        let time = recorded.conversion.zip(moment.ticks);
        let time = time.map(|(conversion, ticks)| conversion.nanoseconds(ticks));
        // A time outside of the session is of another clock, or damaged, and is ignored.
        let time = time.filter(|time| (begin..=end).contains(time));
        let begin = time.unwrap_or(begin);
        let thread = recorded
            .thread
            .or(moment.thread)
            .or_else(|| recorded.protocol.thread_of(&moment.context));
        // The idle task runs no user code: the kernel writes no context IDs.
        let thread = thread.filter(|it| *it != 0 || moment.context.level != Some(0));
        let thread = thread.or_else(|| {
            let until = if time.is_some() { begin } else { end };
            let thread = history.running(recorded.cpu?, begin, until, Ran::Any)?;
            // The idle task runs no user code, so thread 0 in user code is a thread of another PID namespace.
            (thread != 0 || moment.context.level != Some(0)).then_some(thread)
        });
        (thread, begin, end)
    }
}

impl Code for Memory {
    fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_deref()
    }

    fn at(&self, view: View, space: MemorySpace, address: u64) -> Option<&[u8]> {
        let image = self.find(view, space, address)?;
        let offset = usize::try_from(address - image.address).ok()?;
        image.bytes.get(offset..)
    }

    fn view(&self, moment: &Moment) -> View {
        let Some(recorded) = &self.recorded else {
            return View::default();
        };
        let (thread, time, _) = Self::place(recorded, &self.history, moment);
        let change = self.history.changes_at(time).max(moment.change);
        self.history.view(thread, change)
    }

    fn later(&self, moment: &Moment, view: View, space: MemorySpace, address: u64) -> Option<View> {
        let recorded = self.recorded.as_ref()?;
        let (_, _, end) = Self::place(recorded, &self.history, moment);
        let last = self.history.changes_at(end);
        // Mappings that a program made just before an exec stay with the replaced program.
        self.history.later(view, last, space, address)
    }
}
