//! The memory that one trace source saw: the history, and what says where in it the source is.

mod replaced;

pub(crate) use replaced::Replaced;

use std::sync::{Arc, OnceLock};

use super::super::{Code, Image, Images, MemorySpace, Moment};
use super::{History, Placed, Program, Ran, Schedule, View};
use crate::frames::Stream;
use crate::perf::TimeConversion;
use crate::source::Protocol;

/// A session of a trace unit: it began recording behind one time, and had ended at the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// A time before the first instruction.
    pub begin: u64,
    /// A time behind the last one.
    pub end: u64,
}

/// What a recording says of a trace source besides the trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How the source tells which thread runs.
    pub protocol: Protocol,
    /// The thread whose trace it is alone.
    pub thread: Option<u32>,
    /// The CPU that the source watches.
    pub cpu: Option<u32>,
    /// The sessions of the buffer.
    pub sessions: Arc<Vec<Session>>,
    /// How timestamps become times of changes and sessions.
    pub conversion: Option<TimeConversion>,
}

/// The memory that a trace source's core saw. Copies share it.
#[derive(Clone, Debug)]
pub struct Memory {
    history: Arc<History>,
    recorded: Option<Recorded>,
    /// The threads of the source's stream, where the trace does not say them.
    schedule: Option<Arc<Schedule>>,
}

impl Default for Memory {
    fn default() -> Self {
        Images::default().into()
    }
}

impl From<Images> for Memory {
    /// Memory that never changes.
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

/// Memory as it was.
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

    /// The bytes from an address on, as far as one image has them.
    pub fn at(self, space: MemorySpace, address: u64) -> Option<&'m [u8]> {
        self.memory.at(self.view, space, address)
    }

    /// What the process was called then, if it is known.
    pub fn process_name(self) -> Option<&'m str> {
        self.memory.process_name(self.view)
    }

    /// The name of what is mapped at an address, whether its file is there or not.
    pub fn name_at(self, address: u64) -> Option<&'m str> {
        self.memory.name_at(self.view, address)
    }
}

impl Memory {
    /// Memory as a view says.
    pub fn seen(&self, view: View) -> Scene<'_> {
        Scene { memory: self, view }
    }

    /// Whether a view of the other memory is the same of this one.
    pub fn is_of(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.history, &other.history)
    }

    /// The memory of a source of a recording, whose trace is this stream.
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

    /// The threads of the source's stream, where the trace does not say them and the recording does.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_deref()
    }

    /// Adds an image that all programs have. Where several have an address, the one added first does.
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

    /// Images of memory that never changes which differ at addresses that both have, in one space: the one that is used, the
    /// other one, and the first such address.
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

    /// The name of what is mapped at an address, whether its file is there or not.
    pub fn name_at(&self, view: View, address: u64) -> Option<&str> {
        let placed = self.history.find(view, MemorySpace::ANY, address)?;
        Some(&placed.image.name)
    }

    /// What is mapped at an address, whether its file is there or not: its first address, bytes, and offset in the file.
    pub fn mapped(&self, view: View, address: u64) -> Option<(u64, u64, u64)> {
        let placed = self.history.find(view, MemorySpace::ANY, address)?;
        let Image {
            address,
            file_offset,
            ..
        } = placed.image;
        Some((address, placed.length, file_offset))
    }

    /// All images of all times, those of a program by address.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        let programs = self.history.programs.iter();
        let placed = programs.flat_map(|program| &program.placed);
        placed.map(|placed| &placed.image)
    }

    /// The process of a view's program.
    pub fn process(&self, view: View) -> Option<u32> {
        self.history.program(view.program).process
    }

    /// What the process of a view's program was called while it ran that, if it is known.
    pub fn process_name(&self, view: View) -> Option<&str> {
        self.history.program(view.program).name.as_deref()
    }

    /// What a process was called at any time, as far as that is known.
    pub fn names_of(&self, process: u32) -> impl Iterator<Item = &str> {
        let programs = self.history.processes.get(&process);
        let programs = programs.map(Vec::as_slice).unwrap_or_default();
        let programs = programs.iter().map(|(_, program)| *program);
        programs.filter_map(|program| self.history.program(program).name.as_deref())
    }

    /// The process of a thread, at the time of a view.
    pub fn process_of(&self, view: View, thread: u32) -> Option<u32> {
        self.history.process_of(thread, view.change)
    }

    /// How many processes have something in memory.
    pub fn processes(&self) -> usize {
        self.history.processes.len()
    }

    /// The thread and the time at a moment; the last time that it can be.
    fn place(recorded: &Recorded, history: &History, moment: &Moment) -> (Option<u32>, u64, u64) {
        let session = moment
            .session
            .and_then(|index| recorded.sessions.get(index as usize));
        let (begin, end) = session.map_or((0, u64::MAX), |session| {
            (session.begin, session.end.max(session.begin))
        });
        let time = recorded.conversion.zip(moment.ticks);
        let time = time.map(|(conversion, ticks)| conversion.nanoseconds(ticks));
        // One outside of the session is of another clock, or damaged: it says nothing.
        let time = time.filter(|time| (begin..=end).contains(time));
        let begin = time.unwrap_or(begin);
        let thread = recorded
            .thread
            .or(moment.thread)
            .or_else(|| recorded.protocol.thread_of(&moment.context));
        let thread = thread.or_else(|| {
            let until = if time.is_some() { begin } else { end };
            let thread = history.running(recorded.cpu?, begin, until, Ran::Any)?;
            // The idle task has no program of a user's: it is a thread of another namespace.
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
        // What one program mapped just before it was replaced by another one stays behind it.
        self.history.later(view, last, space, address)
    }
}
