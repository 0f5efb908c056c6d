//! Open calls of a track, and the number of open calls of each function.

use kymo_event::{Addr, Duration, FunctionId, InterruptId, Time};

use super::output::{Begin, CallId, Callee, Doubt, End, How, TrackId};

/// An open call. State that only losses need is kept in [`Lost`], so that a call which simply returns costs a few
/// stores and loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub call: CallId,
    /// The number of the function or interrupt.
    what: u32,
    pub marks: Marks,
    pub begin: Time,
    /// The run time of the track when the call began.
    pub ran: i64,
    /// The durations of its callees that have ended.
    pub callees: Duration,
    /// The address after the call in the caller; 0 if unknown.
    site: Addr,
}

/// Bit set of an open call: the kind of its callee, and the conditions that affect its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u32);

impl Marks {
    /// Another call of the same function is open below it.
    pub const RECURSIVE: Self = Self(1);
    /// Events were lost since it began: it has a [`Lost`].
    pub const LOSS: Self = Self(2);
    /// The clock was in doubt.
    pub const CLOCK: Self = Self(4);
    /// An interrupt ended whose begin is not in the trace.
    pub const INTERRUPT: Self = Self(8);
    /// It began before the window; its times count from the window's begin.
    pub const CLIPPED: Self = Self(16);
    /// Its callee is an interrupt, not a function.
    const HANDLER: Self = Self(32);
    /// Its function is unknown.
    const UNKNOWN: Self = Self(64);
    /// It may have ended before the window, because events were lost there.
    pub const MAY_HAVE_ENDED: Self = Self(128);
    /// It was [found](kymo_event::Row::found) open: the time of its begin is not in the trace.
    pub const FOUND: Self = Self(256);
    /// Its end was not seen: its duration is a lower bound.
    pub const UNSEEN_END: Self = Self(512);
    /// The innermost call at its begin was open when events were lost, and may not be its caller. Only for times in
    /// instructions.
    pub const UNSURE_CALLER: Self = Self(1024);

    #[inline(always)]
    pub const fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }

    pub const fn set(&mut self, mark: Self) {
        self.0 |= mark.0;
    }

    pub const fn unset(&mut self, mark: Self) {
        self.0 &= !mark.0;
    }

    /// Whether the callee is a function and the times are exactly as measured: no mark is set except recursion.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        self.0 & !Self::RECURSIVE.0 == 0
    }
}

impl Frame {
    #[inline(always)]
    pub fn new(
        call: CallId,
        callee: Callee,
        (begin, ran): (Time, i64),
        site: Option<Addr>,
    ) -> Self {
        let (what, marks) = match callee {
            Callee::Function(function) => (function.0, Marks::default()),
            Callee::Interrupt(interrupt) => (interrupt.0, Marks::HANDLER),
            Callee::Unknown => (0, Marks::UNKNOWN),
        };
        Self {
            call,
            what,
            marks,
            begin,
            ran,
            callees: Duration(0),
            site: site.unwrap_or_default(),
        }
    }

    /// The function or interrupt that was called.
    #[inline(always)]
    pub const fn callee(&self) -> Callee {
        if self.marks.has(Marks::HANDLER) {
            Callee::Interrupt(InterruptId(self.what))
        } else if self.marks.has(Marks::UNKNOWN) {
            Callee::Unknown
        } else {
            Callee::Function(FunctionId(self.what))
        }
    }

    /// The address after the call in the caller, where the source records it.
    pub const fn call_site(&self) -> Option<Addr> {
        match self.site.0 {
            0 => None,
            _ => Some(self.site),
        }
    }
}

/// The open calls of a track on the straight path. They are moved out of the track, so that the compiler knows that
/// nothing else changes them; [`end`](Self::end) moves them back.
pub(super) struct Stack<'t> {
    pub id: TrackId,
    pub frames: Vec<Frame>,
    pub open: &'t mut OpenCounts,
    /// The time of calls that have ended with no open caller.
    pub outer: Outer,
    pub home: &'t mut Vec<Frame>,
    pub outer_home: &'t mut Outer,
}

/// The calls that have ended with no open caller, since the last loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outer {
    /// Begin of the first one.
    pub begin: Option<Time>,
    /// Their total time.
    pub time: Duration,
    /// The part of `time` that is not certain.
    pub unsure: Duration,
}

impl Outer {
    /// Adds a call that has ended.
    #[inline(always)]
    pub fn add(&mut self, begin: Time, time: Duration, unsure: Duration) {
        self.begin.get_or_insert(begin);
        self.time += time;
        self.unsure += unsure;
    }
}

impl Stack<'_> {
    /// The number of open calls.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The innermost call.
    #[inline(always)]
    pub fn at_work(&self) -> Option<(CallId, Callee)> {
        let innermost = self.frames.last();
        innermost.map(|frame| (frame.call, frame.callee()))
    }

    /// Opens a call at `time`, when the track's run time was `ran`.
    #[inline(always)]
    pub fn enter(
        &mut self,
        call: CallId,
        function: FunctionId,
        (time, ran): (Time, i64),
        site: Option<Addr>,
    ) -> Begin {
        let callee = Callee::Function(function);
        let begin = Begin {
            track: self.id,
            call,
            callee,
            time,
            depth: self.frames.len() as u32,
            call_site: site,
            caller: None,
            clipped: false,
            cpu: None,
            thread: None,
        };
        let mut frame = Frame::new(call, callee, (time, ran), site);
        if self.open.add(function) > 0 {
            frame.marks.set(Marks::RECURSIVE);
        }
        self.frames.push(frame);
        begin
    }

    /// Closes the innermost call by its own exit, if the exit names no other function and the times are as measured.
    /// Otherwise returns `None` and changes nothing. Must not be called while calls are hidden.
    #[inline(always)]
    pub fn leave(&mut self, named: Option<FunctionId>, (time, ran): (Time, i64)) -> Option<End> {
        let frame = self.frames.last()?;
        let duration = ran.checked_sub(frame.ran)?;
        let wall = time.0.checked_sub(frame.begin.0)?;
        let function = FunctionId(frame.what);
        // Only this comparison detects that the clocks of two processors disagree.
        let is_plain = frame.marks.is_plain() && duration >= 0 && wall >= duration;
        if !is_plain || named.is_some_and(|named| named != function) {
            return None;
        }
        let recursive = frame.marks.has(Marks::RECURSIVE);
        let (call, begin) = (frame.call, frame.begin);
        let duration = Duration(duration as u64);
        let self_time = duration - frame.callees;
        let depth = self.frames.len() - 1;
        self.frames.truncate(depth);
        match self.frames.last_mut() {
            Some(caller) => caller.callees += duration,
            None => self.outer.add(begin, duration, Duration(0)),
        }
        self.open.release(function);
        Some(End {
            track: self.id,
            call,
            callee: Callee::Function(function),
            time,
            depth: depth as u32,
            begin: Some(begin),
            wall: Some(Duration(wall as u64)),
            duration: Some(duration),
            self_time: Some(self_time),
            sure: Some(duration),
            sure_self: Some(self_time),
            how: How::Returned,
            doubt: Doubt::default(),
            recursive,
            clipped: false,
            uncounted: false,
            wall_is_stated: false,
        })
    }

    /// Moves the calls back into their track.
    #[inline(always)]
    pub fn end(self) {
        *self.home = self.frames;
        if let Some(begin) = self.outer.begin {
            self.outer_home.add(begin, self.outer.time, Duration(0));
        }
    }
}

/// State of a call that was open when events were lost. These are the outermost calls of a track.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// Its time at the first loss, with and without its callees.
    pub sure: Duration,
    pub sure_self: Duration,
    /// The number of losses when it was last known to be open.
    pub alive: u32,
    /// Its self time when it was seen to run after the last loss, if it was. Only for times in instructions, which
    /// pass only when recorded.
    pub seen: Option<Duration>,
    /// The time of callees that it may not have called itself. Only for times in instructions.
    pub unsure: Duration,
}

/// Number of open calls of each function on a track.
///
/// A table in pages, indexed by function: ids are dense, and a thread calls functions that were first seen together,
/// so it has few pages.
#[derive(Debug, Default)]
pub(super) struct OpenCounts(Vec<Option<Box<[u32; PAGE]>>>);

/// Number of functions in a page of [`OpenCounts`].
const PAGE: usize = 64;

impl OpenCounts {
    fn count(&self, function: FunctionId) -> u32 {
        let page = self.0.get(function.0 as usize / PAGE);
        page.and_then(Option::as_ref)
            .map_or(0, |page| page[function.0 as usize % PAGE])
    }

    /// Counts an opened call; returns the number of calls open before it.
    #[inline(always)]
    pub fn add(&mut self, function: FunctionId) -> u32 {
        let number = function.0 as usize / PAGE;
        let page = match self.0.get_mut(number) {
            Some(Some(page)) => page,
            _ => self.add_page(number),
        };
        let count = &mut page[function.0 as usize % PAGE];
        *count += 1;
        *count - 1
    }

    #[cold]
    fn add_page(&mut self, number: usize) -> &mut [u32; PAGE] {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    #[inline]
    pub fn has(&self, function: FunctionId) -> bool {
        self.count(function) > 0
    }

    /// Counts a closed call of a function that is open.
    #[inline(always)]
    pub fn release(&mut self, function: FunctionId) {
        let page = self.0.get_mut(function.0 as usize / PAGE);
        if let Some(page) = page.and_then(Option::as_mut) {
            let count = &mut page[function.0 as usize % PAGE];
            *count = count.wrapping_sub(1);
        }
    }
}
