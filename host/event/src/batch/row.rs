//! Compact 40-byte form of one event of a batch.

use crate::{
    Addr, Caller, Cpu, Duration, Event, EventKind, FunctionId, InterruptId, Numbers, StreamId,
    ThreadId, Time,
};

/// Meaning of an event, reduced to what fits in a [`Row`]. [`EventKind`] has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RowKind {
    /// [`EventKind::Enter`]: the function, with the call site in the word.
    Enter,
    /// [`EventKind::Exit`]: the function, if the source names it.
    Exit,
    /// [`EventKind::Called`]: the function, with its caller in the word.
    Called,
    /// [`EventKind::SpanBegin`]: the function; the word states whether the span is per CPU.
    SpanBegin,
    /// [`EventKind::SpanEnd`]: as `SpanBegin`.
    SpanEnd,
    /// [`EventKind::SwitchedIn`].
    SwitchedIn,
    /// [`EventKind::SwitchedOut`].
    SwitchedOut,
    /// [`EventKind::IsrEnter`]: the interrupt.
    IsrEnter,
    /// [`EventKind::IsrExit`]: the interrupt, if the source names it.
    IsrExit,
    /// [`EventKind::SetJmp`], with the environment in the word.
    SetJmp,
    /// [`EventKind::LongJmp`], with the environment in the word.
    LongJmp,
    /// [`EventKind::Time`].
    Time,
    /// [`EventKind::Other`]: no meaning known to the event model.
    Other,
    /// Any other [`EventKind`], which the [`Event`] beside the row holds.
    Rare,
}

impl RowKind {
    /// Whether a function is entered, exits or is called.
    #[inline]
    pub const fn is_of_call(self) -> bool {
        matches!(self, Self::Enter | Self::Exit | Self::Called)
    }
}

/// Marks an unknown number.
pub(super) const NONE: u32 = u32::MAX;

/// The word of an exit whose call was [left](Row::left).
const LEFT: u64 = u64::MAX;

/// One event of a [`Batch`](crate::Batch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Timestamp.
    pub time: Time,
    /// Depends on the kind, 0 for none: the call site; the environment of a jump; whether a span is per CPU; for a
    /// caller, its number plus one in the upper 32 bits and the offset within it in the lower ones; for an exit, one
    /// more than the nanoseconds of its call's self time or of the whole call.
    pub(super) word: u64,
    /// The function or the interrupt.
    pub(super) item: u32,
    pub(super) thread: u32,
    pub(super) cpu: u32,
    /// The stream that contains it.
    pub stream: StreamId,
    /// Index of its event among the events of the batch.
    pub(super) event: u32,
    /// Its meaning.
    pub kind: RowKind,
    /// [`Event::named`].
    pub named: bool,
    /// [`Event::record`].
    pub record: bool,
    /// Depends on the kind: for an exit, whether the word is the duration of the whole call (0: [not known](Row::untimed)); for an entry, whether the
    /// call was [found open](Row::found); for a thread that loses its CPU, whether it [may run unseen](Row::unseen);
    /// for a time, whether it is [the last one](Row::last_time).
    pub(super) is_whole: bool,
}

impl Row {
    /// A row without further details. It is a record of the input.
    #[inline]
    pub const fn new(kind: RowKind, time: Time, stream: StreamId) -> Self {
        Self {
            time,
            word: 0,
            item: NONE,
            thread: NONE,
            cpu: NONE,
            stream,
            event: NONE,
            kind,
            named: false,
            record: true,
            is_whole: false,
        }
    }

    /// Sets CPU and thread.
    #[inline]
    #[must_use]
    pub fn at(mut self, cpu: Option<Cpu>, thread: Option<ThreadId>) -> Self {
        self.cpu = cpu.map_or(NONE, |cpu| cpu.0);
        self.thread = thread.map_or(NONE, |thread| thread.0);
        self
    }

    /// Sets the function.
    #[inline]
    #[must_use]
    pub fn function(mut self, function: Option<FunctionId>) -> Self {
        self.item = function.map_or(NONE, |function| function.0);
        self
    }

    /// Sets the interrupt.
    #[inline]
    #[must_use]
    pub fn interrupt(mut self, interrupt: Option<InterruptId>) -> Self {
        self.item = interrupt.map_or(NONE, |interrupt| interrupt.0);
        self
    }

    /// Sets the call site, or the environment of a jump.
    #[inline]
    #[must_use]
    pub const fn word(mut self, word: Addr) -> Self {
        self.word = word.0;
        self
    }

    /// For a [call](RowKind::Called): sets its caller.
    #[must_use]
    pub fn called_by(mut self, caller: Option<Caller>) -> Self {
        self.word = caller.map_or(0, |caller| {
            (u64::from(caller.function.0) + 1) << 32 | u64::from(caller.offset)
        });
        self
    }

    /// For a span: sets whether it is per CPU.
    #[must_use]
    pub const fn per_cpu(mut self, per_cpu: bool) -> Self {
        self.word = per_cpu as u64;
        self
    }

    /// For an exit: sets the duration of its call, as the source states it. It is wall time if the trace lacks the
    /// entry.
    #[must_use]
    pub const fn took(mut self, wall: Duration) -> Self {
        self.word = wall.0.saturating_add(1);
        self.is_whole = true;
        self
    }

    /// For an exit: marks the duration of its call as not known, as the source has no times and does not state it.
    #[must_use]
    pub const fn untimed(mut self) -> Self {
        self.word = 0;
        self.is_whole = true;
        self
    }

    /// Whether it is an exit of a call whose duration is [not known](Self::untimed).
    #[inline]
    pub const fn is_untimed(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, 0)) && self.is_whole
    }

    /// For an exit: sets whether its call did not return but was left at this time, by a `longjmp` or an exception to
    /// a function further out.
    #[inline]
    #[must_use]
    pub const fn left(mut self, left: bool) -> Self {
        if left {
            (self.word, self.is_whole) = (LEFT, false);
        }
        self
    }

    /// Whether it is the exit of a call that was [left](Self::left).
    #[inline]
    pub const fn is_left(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, LEFT)) && !self.is_whole
    }

    /// For an entry: sets whether the call was already open at this time; the trace does not tell when it began.
    #[inline]
    #[must_use]
    pub const fn found(mut self, found: bool) -> Self {
        self.is_whole = found;
        self
    }

    /// For a thread that loses its CPU: sets whether it may run on another CPU until it is back, without any record of
    /// the order.
    #[inline]
    #[must_use]
    pub const fn unseen(mut self, unseen: bool) -> Self {
        self.is_whole = unseen;
        self
    }

    /// Whether a thread that loses its CPU [may run unseen](Self::unseen).
    #[inline]
    pub const fn may_run_unseen(&self) -> bool {
        matches!(self.kind, RowKind::SwitchedOut) && self.is_whole
    }

    /// For a time: marks it as the last one of its source. Later events have extrapolated times.
    #[inline]
    #[must_use]
    pub const fn last_time(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// Whether a time is [the last one](Self::last_time) of its source.
    #[inline]
    pub const fn is_last_time(&self) -> bool {
        matches!(self.kind, RowKind::Time) && self.is_whole
    }

    /// Whether the call of an entry was [found open](Self::found).
    #[inline]
    pub const fn is_found(&self) -> bool {
        matches!(self.kind, RowKind::Enter) && self.is_whole
    }

    /// For a whole call (with an [`EventKind::Call`] beside this row): sets whether it contained calls of the same
    /// function.
    #[must_use]
    pub const fn recursive(mut self, recursive: bool) -> Self {
        self.is_whole = recursive;
        self
    }

    /// Whether the whole call beside this row [contained](Self::recursive) calls of the same function.
    #[inline]
    pub const fn is_recursive(&self) -> bool {
        matches!(self.kind, RowKind::Rare) && self.is_whole
    }

    /// The CPU of the event, if known.
    #[inline]
    pub const fn cpu(&self) -> Option<Cpu> {
        match self.cpu {
            NONE => None,
            cpu => Some(Cpu(cpu)),
        }
    }

    /// The thread, as [`Event::thread`].
    #[inline]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self.thread {
            NONE => None,
            thread => Some(ThreadId(thread)),
        }
    }

    /// CPU and thread in one number: equal for two events if and only if both are equal.
    #[inline]
    pub const fn place(&self) -> u64 {
        (self.cpu as u64) << 32 | self.thread as u64
    }

    /// The function of an entry or exit, if the event names it.
    #[inline]
    pub const fn of_function(&self) -> Option<FunctionId> {
        match self.item {
            NONE => None,
            function => Some(FunctionId(function)),
        }
    }

    /// The interrupt that begins or ends, if the event names it.
    #[inline]
    pub const fn of_interrupt(&self) -> Option<InterruptId> {
        match self.item {
            NONE => None,
            interrupt => Some(InterruptId(interrupt)),
        }
    }

    /// The call site of an entry, if the source records it.
    #[inline]
    pub const fn call_site(&self) -> Option<Addr> {
        match self.word {
            0 => None,
            word => Some(Addr(word)),
        }
    }

    /// The caller of a [call](RowKind::Called), if it is known.
    #[inline]
    pub const fn caller(&self) -> Option<Caller> {
        let function = (self.word >> 32) as u32;
        match (self.kind, function) {
            (RowKind::Called, 1..) => Some(Caller {
                function: FunctionId(function - 1),
                offset: self.word as u32,
            }),
            _ => None,
        }
    }

    /// Whether a span is per CPU.
    #[inline]
    pub const fn is_per_cpu(&self) -> bool {
        self.word != 0
    }

    /// For an exit, or a [missing one](crate::Gap::MissingExit): the duration of its call without that of all its
    /// callees, if the source measured it. Some of these may be missing from the trace.
    #[inline]
    pub const fn self_time(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit, LEFT) => None,
            (RowKind::Exit | RowKind::Rare, 1..) if !self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// For an exit: the duration of its call, if the source states it because the times of entry and exit do not tell
    /// it.
    #[inline]
    pub const fn wall(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit, 1..) if self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// Whether it is an exit without a stated duration or self time.
    #[inline]
    pub const fn is_plain_exit(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, 0)) && !self.is_whole
    }

    /// The environment of a jump.
    #[inline]
    pub const fn environment(&self) -> Addr {
        Addr(self.word)
    }

    /// Translates its ids to a table that several traces share, and sets another time.
    #[inline]
    #[must_use]
    pub fn renumbered(mut self, numbers: &Numbers, time: Time) -> Self {
        self.time = time;
        self.stream = numbers.stream(self.stream);
        self.thread = match self.thread {
            NONE => NONE,
            thread => numbers.thread(ThreadId(thread)).0,
        };
        if let Some(caller) = self.caller() {
            let function = numbers.function(caller.function);
            self = self.called_by(Some(Caller { function, ..caller }));
        }
        self.item = match (self.kind, self.item) {
            (_, NONE) => NONE,
            (RowKind::IsrEnter | RowKind::IsrExit, irq) => numbers.interrupt(InterruptId(irq)).0,
            (_, function) => numbers.function(FunctionId(function)).0,
        };
        self
    }

    /// For an exit whose source states a duration: converts it to another unit.
    #[must_use]
    pub fn rescaled(mut self, scale: impl Fn(Duration) -> Duration) -> Self {
        if self.kind == RowKind::Exit && self.word > 0 && !self.is_left() {
            self.word = scale(Duration(self.word - 1)).0.saturating_add(1);
        }
        self
    }

    /// Whether an event accompanies the row.
    #[inline]
    pub const fn has_event(&self) -> bool {
        self.event != NONE
    }

    /// The row of an event, as far as a row can represent it.
    pub(super) fn of_kind(event: &Event) -> Self {
        let row = |kind| Self::new(kind, event.time, event.stream);
        match &event.kind {
            EventKind::Enter {
                function,
                call_site,
            } => row(RowKind::Enter)
                .function(Some(*function))
                .word(call_site.unwrap_or_default()),
            EventKind::Exit { function } => row(RowKind::Exit).function(*function),
            EventKind::Called { function, caller } => row(RowKind::Called)
                .function(Some(*function))
                .called_by(*caller),
            EventKind::SpanBegin { function, per_cpu } => row(RowKind::SpanBegin)
                .function(Some(*function))
                .per_cpu(*per_cpu),
            EventKind::SpanEnd { function, per_cpu } => row(RowKind::SpanEnd)
                .function(Some(*function))
                .per_cpu(*per_cpu),
            EventKind::SwitchedIn => row(RowKind::SwitchedIn),
            EventKind::SwitchedOut => row(RowKind::SwitchedOut),
            EventKind::IsrEnter { irq } => row(RowKind::IsrEnter).interrupt(Some(*irq)),
            EventKind::IsrExit { irq } => row(RowKind::IsrExit).interrupt(*irq),
            EventKind::SetJmp { env } => row(RowKind::SetJmp).word(*env),
            EventKind::LongJmp { env } => row(RowKind::LongJmp).word(*env),
            EventKind::Time => row(RowKind::Time),
            EventKind::Other => row(RowKind::Other),
            _ => row(RowKind::Rare),
        }
    }

    /// Its meaning, as far as the row represents it; [`EventKind::Other`] if the event beside it does.
    pub(super) fn meaning(&self) -> EventKind {
        match self.kind {
            RowKind::Enter => match self.of_function() {
                Some(function) => EventKind::Enter {
                    function,
                    call_site: self.call_site(),
                },
                None => EventKind::Other,
            },
            RowKind::Exit => EventKind::Exit {
                function: self.of_function(),
            },
            RowKind::Called => match self.of_function() {
                Some(function) => EventKind::Called {
                    function,
                    caller: self.caller(),
                },
                None => EventKind::Other,
            },
            RowKind::SpanBegin | RowKind::SpanEnd => {
                let (function, per_cpu) = (self.of_function(), self.is_per_cpu());
                match (self.kind, function) {
                    (RowKind::SpanBegin, Some(function)) => {
                        EventKind::SpanBegin { function, per_cpu }
                    }
                    (_, Some(function)) => EventKind::SpanEnd { function, per_cpu },
                    (_, None) => EventKind::Other,
                }
            }
            RowKind::SwitchedIn => EventKind::SwitchedIn,
            RowKind::SwitchedOut => EventKind::SwitchedOut,
            RowKind::IsrEnter => match self.of_interrupt() {
                Some(irq) => EventKind::IsrEnter { irq },
                None => EventKind::Other,
            },
            RowKind::IsrExit => EventKind::IsrExit {
                irq: self.of_interrupt(),
            },
            RowKind::SetJmp => EventKind::SetJmp {
                env: self.environment(),
            },
            RowKind::LongJmp => EventKind::LongJmp {
                env: self.environment(),
            },
            RowKind::Time => EventKind::Time,
            RowKind::Other | RowKind::Rare => EventKind::Other,
        }
    }
}
