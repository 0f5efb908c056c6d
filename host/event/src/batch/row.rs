//! One event of a batch, as far as 40 bytes say it.

use crate::{
    Addr, Caller, Cpu, Duration, Event, EventKind, FunctionId, InterruptId, Numbers, StreamId,
    ThreadId, Time,
};

/// What an event means, as far as a [`Row`] says it. [`EventKind`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RowKind {
    /// [`EventKind::Enter`]: function, and the call site in the word.
    Enter,
    /// [`EventKind::Exit`]: function, if the source names it.
    Exit,
    /// [`EventKind::Called`]: function, and its caller in the word.
    Called,
    /// [`EventKind::SpanBegin`]: function, and in the word whether it is of a processor.
    SpanBegin,
    /// [`EventKind::SpanEnd`]: the same.
    SpanEnd,
    /// [`EventKind::SwitchedIn`].
    SwitchedIn,
    /// [`EventKind::SwitchedOut`].
    SwitchedOut,
    /// [`EventKind::IsrEnter`]: interrupt.
    IsrEnter,
    /// [`EventKind::IsrExit`]: interrupt, if the source names it.
    IsrExit,
    /// [`EventKind::SetJmp`]: the environment in the word.
    SetJmp,
    /// [`EventKind::LongJmp`]: the environment in the word.
    LongJmp,
    /// [`EventKind::Time`].
    Time,
    /// [`EventKind::Other`]: of no meaning that is known here.
    Other,
    /// Any other [`EventKind`]: the [`Event`] beside the row tells.
    Rare,
}

impl RowKind {
    /// Whether a function is entered, left or called.
    #[inline]
    pub const fn is_of_call(self) -> bool {
        matches!(self, Self::Enter | Self::Exit | Self::Called)
    }
}

/// Stands for something that is not known.
pub(super) const NONE: u32 = u32::MAX;

/// One event of a [`Batch`](crate::Batch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub time: Time,
    /// A call site, the environment of a jump, whether a span is of its processor, the number of a caller plus one before an offset in it of 32 bits, or of an exit
    /// one more than the nanoseconds of its call's self time, or of all of its time; 0 for none.
    pub(super) word: u64,
    /// The function, or the interrupt.
    pub(super) item: u32,
    pub(super) thread: u32,
    pub(super) cpu: u32,
    /// The stream it stands in.
    pub stream: StreamId,
    /// The place of its event among those of the batch.
    pub(super) event: u32,
    /// What it means.
    pub kind: RowKind,
    /// [`Event::named`].
    pub named: bool,
    /// [`Event::record`].
    pub record: bool,
    /// Whether the word of an exit is the time of its whole call (0 if that is [not known](Row::untimed)); of an enter, whether the call was [found](Row::found); of a
    /// thread that loses its processor, whether it [may run unseen](Row::unseen); of a time, whether it is
    /// [the last one](Row::last_time).
    pub(super) is_whole: bool,
}

impl Row {
    /// An event of which nothing else is known. It is a record of the input.
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

    /// On this processor, in this thread.
    #[inline]
    #[must_use]
    pub fn at(mut self, cpu: Option<Cpu>, thread: Option<ThreadId>) -> Self {
        self.cpu = cpu.map_or(NONE, |cpu| cpu.0);
        self.thread = thread.map_or(NONE, |thread| thread.0);
        self
    }

    /// Of this function.
    #[inline]
    #[must_use]
    pub fn function(mut self, function: Option<FunctionId>) -> Self {
        self.item = function.map_or(NONE, |function| function.0);
        self
    }

    /// Of this interrupt.
    #[inline]
    #[must_use]
    pub fn interrupt(mut self, interrupt: Option<InterruptId>) -> Self {
        self.item = interrupt.map_or(NONE, |interrupt| interrupt.0);
        self
    }

    /// With this call site, or environment of a jump.
    #[inline]
    #[must_use]
    pub const fn word(mut self, word: Addr) -> Self {
        self.word = word.0;
        self
    }

    /// Of a [call](RowKind::Called): it was made here.
    #[must_use]
    pub fn called_by(mut self, caller: Option<Caller>) -> Self {
        self.word = caller.map_or(0, |caller| {
            (u64::from(caller.function.0) + 1) << 32 | u64::from(caller.offset)
        });
        self
    }

    /// Of a span: whether it is of its processor.
    #[must_use]
    pub const fn per_cpu(mut self, per_cpu: bool) -> Self {
        self.word = per_cpu as u64;
        self
    }

    /// Of an exit: its call took so long, as the source states. That is by the wall where its entry is not in the trace.
    #[must_use]
    pub const fn took(mut self, wall: Duration) -> Self {
        self.word = wall.0.saturating_add(1);
        self.is_whole = true;
        self
    }

    /// Of an exit: how long its call took is not known. The source has no times, and does not state it.
    #[must_use]
    pub const fn untimed(mut self) -> Self {
        self.word = 0;
        self.is_whole = true;
        self
    }

    /// Whether it is an exit of a call of which it is [not known](Self::untimed) how long it took.
    #[inline]
    pub const fn is_untimed(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, 0)) && self.is_whole
    }

    /// Of an enter: its call was found open at this time, and began before; when is not in the trace.
    #[inline]
    #[must_use]
    pub const fn found(mut self, found: bool) -> Self {
        self.is_whole = found;
        self
    }

    /// Of a thread that loses its processor: it may run on another one up to when it is back, of which nothing gives the order.
    #[inline]
    #[must_use]
    pub const fn unseen(mut self, unseen: bool) -> Self {
        self.is_whole = unseen;
        self
    }

    /// Whether a thread that loses its processor [may run unseen](Self::unseen).
    #[inline]
    pub const fn may_run_unseen(&self) -> bool {
        matches!(self.kind, RowKind::SwitchedOut) && self.is_whole
    }

    /// Of a time: it is the last one of its source. What follows has times that are extrapolated.
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

    /// Whether the call of an enter was [found](Self::found) open.
    #[inline]
    pub const fn is_found(&self) -> bool {
        matches!(self.kind, RowKind::Enter) && self.is_whole
    }

    /// Of a whole call (an [`EventKind::Call`] beside this row): calls of the same function were made within it.
    #[must_use]
    pub const fn recursive(mut self, recursive: bool) -> Self {
        self.is_whole = recursive;
        self
    }

    /// Whether calls of the same function were made [within](Self::recursive) the whole call beside this row.
    #[inline]
    pub const fn is_recursive(&self) -> bool {
        matches!(self.kind, RowKind::Rare) && self.is_whole
    }

    /// The processor it happened on, if known.
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

    /// Processor and thread in one: two events with the same place have the same of both.
    #[inline]
    pub const fn place(&self) -> u64 {
        (self.cpu as u64) << 32 | self.thread as u64
    }

    /// The function of an enter or exit, if it is named.
    #[inline]
    pub const fn of_function(&self) -> Option<FunctionId> {
        match self.item {
            NONE => None,
            function => Some(FunctionId(function)),
        }
    }

    /// The interrupt that is entered or left, if it is named.
    #[inline]
    pub const fn of_interrupt(&self) -> Option<InterruptId> {
        match self.item {
            NONE => None,
            interrupt => Some(InterruptId(interrupt)),
        }
    }

    /// The call site of an enter, if the source records it.
    #[inline]
    pub const fn call_site(&self) -> Option<Addr> {
        match self.word {
            0 => None,
            word => Some(Addr(word)),
        }
    }

    /// Where a [call](RowKind::Called) was made, if it is known.
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

    /// Whether a span is of its processor.
    #[inline]
    pub const fn is_per_cpu(&self) -> bool {
        self.word != 0
    }

    /// Of an exit, or a [missing one](crate::Gap::MissingExit), the time that its call took less that of all calls that it made,
    /// where the source measured that: some of these may not be in the trace.
    #[inline]
    pub const fn self_time(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit | RowKind::Rare, 1..) if !self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// Of an exit, the time that its call took, where the source states it and the times of entry and exit do not tell.
    #[inline]
    pub const fn wall(&self) -> Option<Duration> {
        match (self.kind, self.word) {
            (RowKind::Exit, 1..) if self.is_whole => Some(Duration(self.word - 1)),
            _ => None,
        }
    }

    /// Whether it is an exit that says no more than when its call ended.
    #[inline]
    pub const fn is_plain_exit(&self) -> bool {
        matches!((self.kind, self.word), (RowKind::Exit, 0)) && !self.is_whole
    }

    /// The environment of a jump.
    #[inline]
    pub const fn environment(&self) -> Addr {
        Addr(self.word)
    }

    /// The same in a table of several traces, where it has these numbers, and another time.
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

    /// Of an exit whose source states a duration: with that in another unit.
    #[must_use]
    pub fn rescaled(mut self, scale: impl Fn(Duration) -> Duration) -> Self {
        if self.kind == RowKind::Exit && self.word > 0 {
            self.word = scale(Duration(self.word - 1)).0.saturating_add(1);
        }
        self
    }

    /// Whether an event stands beside it.
    #[inline]
    pub const fn has_event(&self) -> bool {
        self.event != NONE
    }

    /// The kind of an event, where a row can say it.
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

    /// What it means, as far as it says so; [`EventKind::Other`] where the event beside it does.
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
