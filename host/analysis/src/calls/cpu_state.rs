//! The state of one processor: which track has it, and who was charged with its time.

use kymo_event::{Cpu, SpaceId, StreamId, ThreadId, Time};

use super::output::{CallId, Callee};

/// Who is at work on a processor (or in a thread with streams of its own), and since when.
#[derive(Debug)]
pub(super) struct CpuState {
    pub key: CpuKey,
    /// The machine that it is of.
    pub machine: SpaceId,
    /// The thread that its streams belong to.
    pub owner: Option<ThreadId>,
    /// The processor that events of it named last, where it is a thread's.
    pub owner_on: Option<Cpu>,
    /// The stream that its last event stood in.
    pub stream: StreamId,
    /// The time of its last event; `None` before the first, and while recording is off.
    pub last: Option<Time>,
    /// The track of the thread that has it.
    pub thread: Option<usize>,
    /// Whether that is only what was so before a loss. Events that name no thread are not taken for
    /// its then.
    pub unsure: bool,
    /// The track of the thread that was switched out, until another one is switched in.
    pub left: Option<usize>,
    /// The track that had it before, until something else than the ends of that one's calls is heard
    /// of: who switches threads enters as one and leaves as the other.
    pub crossed: Option<usize>,
    /// The track of what runs without a thread.
    pub nobody: Option<usize>,
    /// The tracks that had it last.
    pub tracks: Vec<usize>,
    /// The tracks of the interrupts that are active, the innermost last.
    pub interrupts: Vec<usize>,
    /// How many more are active that are nested too deep.
    pub hidden: u64,
    /// How many are active, below all others, whose beginning was lost. Which they are is
    /// not known, so until they end `nobody` is at work, and not the thread.
    pub unseen: u32,
    /// How many have ended since the last loss that were not even known to be served.
    pub unforeseen: u32,
    /// Whether events were lost since its last one.
    pub lossy: bool,
    /// Whether events of it were ever lost, from within the trace.
    pub lost: bool,
    /// Whether a handler may be active whose beginning was lost.
    pub handlers: Handlers,
    /// Whether it is a thread that is known to have ended: another one goes on in its stream.
    pub ended: bool,
    /// Whether the trace has recorded that its clock steps back before the next event.
    pub reported: bool,
    /// Who was charged with its time lately.
    pub charges: Charges,
}

/// Whether a processor may be in a handler whose beginning was lost, which would be taken for its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handlers {
    /// No: nothing was lost, or a thread has been seen at work since.
    #[default]
    Known,
    /// It may be, since the last loss.
    Unknown,
    /// The same, and a thread was switched in since. If that returns from a call that it had open by then, the
    /// thread itself is at work.
    UnknownAtSwitch,
}

/// How many charges are remembered. Timers that run ahead do so for some hundreds of events.
const CHARGES: usize = 1024;

/// Time that passed on a processor between two events, and whose it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// The track; `None` if nobody's.
    pub track: Option<usize>,
    /// How long, in nanoseconds.
    pub passed: i64,
    /// How long the track had run when it had.
    pub until: i64,
    /// The innermost call that was open on it, and what it was of.
    pub call: Option<(CallId, Callee)>,
}

/// Who was charged with a processor's time, the latest last: what a clock charges too much while it is ahead
/// is given back to whom it was charged when it steps back, and that may be another one than runs then.
///
/// A ring: one is written for nearly every event, and hardly ever read.
#[derive(Debug, Default)]
pub(super) struct Charges {
    ring: Vec<Charge>,
    /// Where the next one goes, once the ring is full.
    next: usize,
}

impl Charges {
    /// Takes note of a charge.
    #[inline]
    pub fn add(&mut self, charge: Charge) {
        if let Some(place) = self.ring.get_mut(self.next) {
            *place = charge;
            self.next = (self.next + 1) % CHARGES;
        } else {
            self.grow(charge);
        }
    }

    fn grow(&mut self, charge: Charge) {
        self.ring.push(charge);
        self.next = if self.ring.len() == CHARGES {
            0
        } else {
            self.ring.len()
        };
    }

    /// Puts the oldest first, so that some can be taken out.
    fn straighten(&mut self) {
        if self.ring.len() == CHARGES {
            self.ring.rotate_left(self.next);
        }
    }

    /// After some were taken out of a straight ring.
    fn settle(&mut self) {
        self.next = if self.ring.len() == CHARGES {
            0
        } else {
            self.ring.len()
        };
    }

    /// Takes back what a clock has charged too much that now steps back by so much: each part as the
    /// charge that it was. What is more than is remembered was charged to nobody who is known.
    ///
    /// A clock goes ahead at once, and then at its pace: the latest charge that is as long as the step
    /// is when it did. If none is, it is taken off the latest ones.
    pub fn take_back(&mut self, mut step: i64, mut from: impl FnMut(Charge)) {
        self.straighten();
        if let Some(ahead) = self.ring.iter().rposition(|charge| charge.passed >= step) {
            self.take(ahead, step, &mut from);
            return self.settle();
        }
        while step > 0
            && let Some(last) = self.ring.len().checked_sub(1)
        {
            let passed = step.min(self.ring[last].passed);
            self.take(last, passed, &mut from);
            step -= passed;
        }
        self.settle();
    }

    /// Takes back a part of one charge.
    fn take(&mut self, index: usize, part: i64, from: &mut impl FnMut(Charge)) {
        let charge = self.ring[index];
        for later in self.ring.iter_mut().skip(index) {
            if later.track == charge.track {
                later.until = later.until.saturating_sub(part);
            }
        }
        if charge.passed == part {
            self.ring.remove(index);
        } else {
            self.ring[index].passed -= part;
        }
        from(Charge {
            passed: part,
            ..charge
        });
    }

    /// What was charged before says nothing of what follows.
    pub fn forget(&mut self) {
        self.ring.clear();
        self.next = 0;
    }
}

/// What tells processors' states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CpuKey {
    /// A processor of a machine: those of two have the same numbers.
    Cpu(SpaceId, Cpu),
    /// A thread to which streams belong: one of calls, and maybe one of items. It runs in one place,
    /// whichever of them an event stands in.
    Thread(ThreadId),
    /// What belongs to neither.
    Stream(StreamId),
}

impl CpuState {
    pub fn new(key: CpuKey, machine: SpaceId, owner: Option<ThreadId>, stream: StreamId) -> Self {
        Self {
            key,
            machine,
            owner,
            owner_on: None,
            stream,
            last: None,
            thread: None,
            unsure: false,
            left: None,
            crossed: None,
            nobody: None,
            tracks: Vec::new(),
            interrupts: Vec::new(),
            hidden: 0,
            unseen: 0,
            unforeseen: 0,
            lossy: false,
            lost: false,
            handlers: Handlers::default(),
            ended: false,
            reported: false,
            charges: Charges::default(),
        }
    }

    /// The track that has the processor.
    pub fn running(&self) -> Option<usize> {
        let below = if self.unseen > 0 {
            self.nobody
        } else {
            self.thread
        };
        self.interrupts.last().copied().or(below)
    }

    /// The processor, or the one that a thread with a stream of its own is known to run on.
    pub fn place(&self) -> Option<Cpu> {
        self.cpu().or(self.owner_on)
    }

    /// The processor, if it is one.
    pub const fn cpu(&self) -> Option<Cpu> {
        match self.key {
            CpuKey::Cpu(_, cpu) => Some(cpu),
            CpuKey::Thread(_) | CpuKey::Stream(_) => None,
        }
    }
}
