//! State of one processor: the track that has it, and the tracks that were charged with its time.

use kymo_event::{Cpu, SpaceId, StreamId, ThreadId, Time};

use super::output::{CallId, Callee};

/// State of a processor (or of a thread with streams of its own).
#[derive(Debug)]
pub(super) struct CpuState {
    pub key: CpuKey,
    /// The machine that it belongs to.
    pub machine: SpaceId,
    /// The thread that its streams belong to.
    pub owner: Option<ThreadId>,
    /// Where the state is a thread's: the processor that the thread's events named last.
    pub owner_on: Option<Cpu>,
    /// The stream of its last event.
    pub stream: StreamId,
    /// The time of its last event; `None` before the first, and while recording is off.
    pub last: Option<Time>,
    /// The track of the thread that has it.
    pub thread: Option<usize>,
    /// Whether `thread` dates from before a loss. Events that name no thread are then not attributed to it.
    pub unsure: bool,
    /// The track of the thread that was switched out, until another one is switched in.
    pub left: Option<usize>,
    /// The last thread that another processor took from this one.
    pub moved: Option<Moved>,
    /// The track that had it before, until any event other than an end of that track's calls arrives: code that
    /// switches threads enters on one track and returns on the other.
    pub crossed: Option<usize>,
    /// The track of code that runs without a thread.
    pub nobody: Option<usize>,
    /// The tracks whose last processor this is, in no order.
    pub tracks: Vec<usize>,
    /// The tracks of the active interrupts, innermost last.
    pub interrupts: Vec<usize>,
    /// The number of active interrupts beyond those, which are nested too deep.
    pub hidden: u64,
    /// The number of active interrupts, below all others, whose begin was lost. Which interrupts they are is unknown,
    /// so until they end, events belong to `nobody` instead of the thread.
    pub unseen: u32,
    /// The number of interrupts that ended since the last loss without having been known to be active.
    pub unforeseen: u32,
    /// Whether events were lost since its last one.
    pub lossy: bool,
    /// Whether events of it were ever lost within the trace.
    pub lost: bool,
    /// Whether a handler whose begin was lost may be active.
    pub handlers: Handlers,
    /// Whether it is a thread that is known to have exited: another thread continues in its stream.
    pub ended: bool,
    /// Whether the trace has recorded that its clock steps back before the next event.
    pub reported: bool,
    /// The latest charges of its time.
    pub charges: Charges,
}

/// Whether a processor may be in a handler whose begin was lost; the handler's events would be attributed to the
/// thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handlers {
    /// No: nothing was lost, or a thread has been seen to run since.
    #[default]
    Known,
    /// Possibly, since the last loss.
    Unknown,
    /// Possibly, and a thread was switched in since. If that thread returns from a call that was open by then, the
    /// thread itself runs.
    UnknownAtSwitch,
}

/// Number of charges remembered. Timers that run ahead do so for some hundreds of events.
const CHARGES: usize = 1024;

/// Time that passed on a processor between two events, and the track that was charged with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// The track; `None` if no track was charged.
    pub track: Option<usize>,
    /// Length in nanoseconds.
    pub passed: i64,
    /// The track's run time at the end of the charge.
    pub until: i64,
    /// The innermost call that was open on the track, and its callee.
    pub call: Option<(CallId, Callee)>,
}

/// The latest charges of a processor's time, newest last. When a clock steps back, the excess that it charged while
/// it was ahead is returned to the tracks that were charged, which may not be the one that runs then.
///
/// A ring, because a charge is written for nearly every event and hardly ever read.
#[derive(Debug, Default)]
pub(super) struct Charges {
    ring: Vec<Charge>,
    /// The slot of the next charge, once the ring is full.
    next: usize,
}

impl Charges {
    /// Records a charge.
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

    /// Rotates the oldest charge to the front, so that charges can be removed.
    fn straighten(&mut self) {
        if self.ring.len() == CHARGES {
            self.ring.rotate_left(self.next);
        }
    }

    /// Recomputes `next` after charges were removed from a rotated ring.
    fn settle(&mut self) {
        self.next = if self.ring.len() == CHARGES {
            0
        } else {
            self.ring.len()
        };
    }

    /// Takes back the excess of a clock that steps back by `step`, and passes each part to `from` as the charge that
    /// it was, with the later charges. The part beyond the remembered charges is dropped.
    ///
    /// A clock jumps ahead at once and then keeps its pace, so the latest charge at least as long as the step
    /// contains the jump. If there is none, the step is subtracted from the latest charges.
    pub fn take_back(&mut self, mut step: i64, mut from: impl FnMut(Charge, &[Charge])) {
        self.straighten();
        if let Some(ahead) = self.ring.iter().rposition(|charge| charge.passed >= step) {
            self.take(ahead, step, &mut from);
            return self.settle();
        }
        // The later charges, which name the callers, are those of before anything was taken.
        let mut sum = 0_i64;
        let parts = self.ring.iter().rev().take_while(|charge| {
            let more = sum < step;
            sum = sum.saturating_add(charge.passed);
            more
        });
        let first = self.ring.len() - parts.count();
        let before = self.ring.get(first..).unwrap_or_default().to_vec();
        while step > 0
            && let Some(last) = self.ring.len().checked_sub(1)
        {
            let passed = step.min(self.ring[last].passed);
            self.take(last, passed, &mut |charge: Charge, _: &[Charge]| {
                let later = before.get(last.saturating_sub(first)..);
                from(charge, later.unwrap_or_default());
            });
            step -= passed;
        }
        self.settle();
    }

    /// Takes back a part of one charge.
    fn take(&mut self, index: usize, part: i64, from: &mut impl FnMut(Charge, &[Charge])) {
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
        let later = self.ring.get(index..).unwrap_or_default();
        from(
            Charge {
                passed: part,
                ..charge
            },
            later,
        );
    }

    /// Forgets all charges: earlier ones do not apply to the time that follows.
    pub fn forget(&mut self) {
        self.ring.clear();
        self.next = 0;
    }
}

/// A thread's move to another processor, before this one reported that the thread left it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub track: usize,
    /// The time up to which the thread was charged here.
    pub since: Time,
    /// The time at which it appeared on the other processor.
    pub at: Time,
    /// Whether the other processor recorded a switch. Then further events of the thread here at that time are earlier.
    pub recorded: bool,
}

/// Identifies the state of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CpuKey {
    /// A processor of a machine. Numbers of processors repeat between machines.
    Cpu(SpaceId, Cpu),
    /// A thread that owns streams: one of calls, and maybe one of items. All of them share one state, because the
    /// thread runs in one place.
    Thread(ThreadId),
    /// A stream that belongs to neither.
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
            moved: None,
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

    /// The processor, or the one that a thread with streams of its own is known to run on.
    pub fn place(&self) -> Option<Cpu> {
        self.cpu().or(self.owner_on)
    }

    /// The processor, if the state is one's.
    pub const fn cpu(&self) -> Option<Cpu> {
        match self.key {
            CpuKey::Cpu(_, cpu) => Some(cpu),
            CpuKey::Thread(_) | CpuKey::Stream(_) => None,
        }
    }
}
