//! The call stack of one track.

use kymo_event::{Addr, Duration, FunctionId, Time};

use crate::hash::FastMap;

use super::cpu_state::Charge;
use super::output::{Begin, CallId, Callee, Doubt, End, How, TrackId, TrackInfo};

/// A track, and what is open on it.
#[derive(Debug)]
pub(super) struct Track {
    pub id: TrackId,
    pub info: TrackInfo,
    /// How long it has had a processor, in nanoseconds, as far as the trace tells: its clock may step
    /// back, and this with it.
    ran: i64,
    /// The processor (as an index of cpus) that a thread has.
    pub on: Option<usize>,
    /// The one that it had last.
    pub last_on: Option<usize>,
    /// What is open, the outermost call first.
    frames: Vec<Frame>,
    /// How often a function is open: tells recursion, and whether an exit has its call here,
    /// without a walk through the frames.
    open: OpenCounts,
    /// Calls that are deeper than the frames may go.
    hidden: u64,
    /// The functions of these calls.
    hidden_functions: FastMap<FunctionId, u64>,
    /// Where jumps lead, by the environment.
    marks: FastMap<Addr, Mark>,
    /// What has befallen the track.
    seen: Mishaps,
    /// The functions that were open when recording was turned off, the outermost first: exits that do not
    /// name theirs may still be of these.
    off: Vec<FunctionId>,
    /// Where the window begins that clipped calls last.
    window: Time,
}

/// Where a `longjmp` leads.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// How many calls were open.
    depth: usize,
    /// The innermost of them, which called `setjmp`; `None` if none was. If another call has its
    /// place now, the mark is void.
    call: Option<CallId>,
}

/// More environments than calls can be open are only there if marks are void.
const MARKS: usize = 1 << 16;

/// How many there have been since the track began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mishaps {
    losses: u32,
    clocks: u32,
    interrupts: u32,
    /// Of any kind.
    all: u32,
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Frame {
    call: CallId,
    callee: Callee,
    begin: Time,
    /// How long the track had run when it began.
    ran: i64,
    /// The durations of the calls that it made and that ended.
    callees: Duration,
    /// Its time when the first loss came, with and without its callees.
    sure: Duration,
    sure_self: Duration,
    /// What had befallen the track when it began: the difference to now is its doubt.
    before: Mishaps,
    /// How many losses there had been when it last was surely open.
    alive: u32,
    call_site: Option<Addr>,
    /// It began before the window, with which its times begin.
    clipped: bool,
}

/// How often each function is open on a track.
///
/// A table by function in pages: identities are dense, and a thread calls functions that were met together,
/// so that it has few pages.
#[derive(Debug, Default)]
struct OpenCounts(Vec<Option<Box<[u32; PAGE]>>>);

/// Functions of one page of [`OpenCounts`].
const PAGE: usize = 64;

impl OpenCounts {
    fn count(&self, function: FunctionId) -> u32 {
        let page = self.0.get(function.0 as usize / PAGE);
        page.and_then(Option::as_ref)
            .map_or(0, |page| page[function.0 as usize % PAGE])
    }

    #[inline]
    fn add(&mut self, function: FunctionId) {
        let number = function.0 as usize / PAGE;
        match self.0.get_mut(number) {
            Some(Some(page)) => page[function.0 as usize % PAGE] += 1,
            _ => self.add_page(number)[function.0 as usize % PAGE] += 1,
        }
    }

    fn add_page(&mut self, number: usize) -> &mut [u32; PAGE] {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    #[inline]
    fn has(&self, function: FunctionId) -> bool {
        self.count(function) > 0
    }

    /// One less is open; whether there are more.
    #[inline]
    fn release(&mut self, function: FunctionId) -> bool {
        let page = self.0.get_mut(function.0 as usize / PAGE);
        let Some(page) = page.and_then(Option::as_mut) else {
            return false;
        };
        let count = &mut page[function.0 as usize % PAGE];
        *count = count.saturating_sub(1);
        *count > 0
    }
}

/// What became of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// It belongs to the open call of this index; what is above it is to be closed first.
    Open(usize),
    /// It belongs to a call that is too deep to be followed.
    Hidden,
    /// Nothing of this name is open.
    Nothing,
}

impl Mark {
    /// Whether the call that set it is still open, and with it all further out.
    fn holds(&self, frames: &[Frame]) -> bool {
        match self.depth.checked_sub(1) {
            None => true,
            Some(top) => frames.get(top).map(|frame| frame.call) == self.call,
        }
    }
}

impl Track {
    pub fn new(id: TrackId, info: TrackInfo) -> Self {
        Self {
            id,
            info,
            ran: 0,
            on: None,
            last_on: None,
            frames: Vec::new(),
            open: OpenCounts::default(),
            hidden: 0,
            hidden_functions: FastMap::default(),
            marks: FastMap::default(),
            seen: Mishaps::default(),
            off: Vec::new(),
            window: Time(0),
        }
    }

    /// Lets it have had its processor for so many nanoseconds more: how long that is by now, and
    /// the innermost call that had it.
    #[inline]
    pub fn charge(&mut self, passed: i64) -> (i64, Option<(CallId, Callee)>) {
        self.ran = self.ran.saturating_add(passed);
        let innermost = self.frames.last();
        (self.ran, innermost.map(|frame| (frame.call, frame.callee)))
    }

    /// Takes a charge back: that time did not pass. Gives the call that has it if that has ended, and
    /// can't be changed any more.
    pub fn give_back(&mut self, charge: Charge) -> Option<(CallId, Callee)> {
        self.ran = self.ran.saturating_sub(charge.passed);
        let mut frames = self.frames.iter_mut().rev();
        // What began later had run that long less when it began.
        let open_then = frames.find_map(|frame| {
            if frame.ran < charge.until {
                return Some(frame);
            }
            frame.ran = frame.ran.saturating_sub(charge.passed);
            None
        });
        let (call, callee) = charge.call?;
        if let Some(frame) = open_then {
            if frame.call == call {
                return None;
            }
            let passed = charge.passed.unsigned_abs();
            frame.callees = Duration(frame.callees.0.saturating_sub(passed));
        }
        Some((call, callee))
    }

    /// How many calls are open.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Opens a call.
    #[inline(always)]
    pub fn begin(
        &mut self,
        call: CallId,
        callee: Callee,
        time: Time,
        call_site: Option<Addr>,
    ) -> Begin {
        let begin = Begin {
            track: self.id,
            call,
            callee,
            time,
            depth: self.frames.len() as u32,
            call_site,
            clipped: false,
            cpu: None,
            thread: None,
        };
        if let Callee::Function(function) = callee {
            self.open.add(function);
        }
        self.frames.push(Frame {
            call,
            callee,
            begin: time,
            ran: self.ran,
            callees: Duration(0),
            sure: Duration(0),
            sure_self: Duration(0),
            before: self.seen,
            alive: self.seen.losses,
            call_site,
            clipped: false,
        });
        begin
    }

    /// Takes note of a call that is too deep.
    pub fn hide(&mut self, function: FunctionId) {
        self.hidden += 1;
        *self.hidden_functions.entry(function).or_default() += 1;
    }

    /// Whether calls are open that are too deep to be followed.
    pub const fn hides(&self) -> bool {
        self.hidden > 0
    }

    /// Finds the call that an exit belongs to. An exit that does not name its function belongs to
    /// the innermost call.
    #[inline]
    pub fn find(&mut self, function: Option<FunctionId>) -> Match {
        if self.hidden > 0 && self.unhide(function) {
            return Match::Hidden;
        }
        let wanted = function.map(Callee::Function);
        let Some(top) = self.frames.len().checked_sub(1) else {
            return Match::Nothing;
        };
        let fits = |frame: &Frame| match wanted {
            Some(wanted) => frame.callee == wanted,
            None => !matches!(frame.callee, Callee::Interrupt(_)),
        };
        if self.frames.last().is_some_and(fits) {
            return Match::Open(top);
        }
        match function {
            Some(function) if self.open.has(function) => {
                let index = self.frames.iter().rposition(fits);
                index.map_or(Match::Nothing, Match::Open)
            }
            _ => Match::Nothing,
        }
    }

    /// The index of the innermost call that was entered at this time.
    pub fn entered(&self, time: Time) -> Option<usize> {
        let is_it =
            |frame: &Frame| frame.begin == time && matches!(frame.callee, Callee::Function(_));
        self.frames.iter().rposition(is_it)
    }

    /// Whether the exit of a function, or of one that is not named, is that of the innermost call.
    #[inline]
    pub fn is_innermost(&self, function: Option<FunctionId>) -> bool {
        match (self.frames.last().map(|frame| frame.callee), function) {
            (Some(Callee::Function(open)), Some(left)) => open == left,
            (Some(Callee::Function(_)), None) => true,
            _ => false,
        }
    }

    /// Before recording is turned off: remembers the functions that are open.
    pub fn remember_off(&mut self) {
        self.off.clear();
        self.off
            .extend(self.frames.iter().filter_map(|frame| match frame.callee {
                Callee::Function(function) => Some(function),
                _ => None,
            }));
    }

    /// Which function an exit without a call leaves, as far as it was open when recording was turned off.
    pub fn left_while_off(&mut self, function: Option<FunctionId>) -> Option<FunctionId> {
        let open = self.off.pop();
        if function.is_some() && function != open {
            self.off.clear();
        }
        function.or(open)
    }

    /// What was called last, and is open.
    pub fn innermost(&self) -> Option<Callee> {
        self.frames.last().map(|frame| frame.callee)
    }

    /// Whether a function is open.
    pub fn has_open(&self, function: FunctionId) -> bool {
        self.open.has(function)
    }

    /// Whether the exit is that of a hidden call. An exit of a function that is none of them shows
    /// that they are all gone.
    fn unhide(&mut self, function: Option<FunctionId>) -> bool {
        let Some(function) = function else {
            self.hidden -= 1;
            if self.hidden == 0 {
                self.hidden_functions.clear();
            }
            return true;
        };
        if let Some(count) = self.hidden_functions.get_mut(&function) {
            *count -= 1;
            if *count == 0 {
                self.hidden_functions.remove(&function);
            }
            self.hidden -= 1;
            return true;
        }
        self.forget_hidden();
        false
    }

    /// Remembers that a jump with `env` leads to here.
    pub fn mark(&mut self, env: Addr) {
        if self.hidden > 0 {
            // Where it leads is not followed, and where another of the same place led is over.
            self.marks.remove(&env);
            return;
        }
        if self.marks.len() >= MARKS && !self.marks.contains_key(&env) {
            let frames = &self.frames;
            self.marks.retain(|_, mark| mark.holds(frames));
            if self.marks.len() >= MARKS {
                return;
            }
        }
        let mark = Mark {
            depth: self.frames.len(),
            call: self.frames.last().map(|frame| frame.call),
        };
        self.marks.insert(env, mark);
    }

    /// How many calls a jump with `env` leaves open; `None` if that is not known.
    pub fn jump_target(&self, env: Addr) -> Option<usize> {
        let mark = self.marks.get(&env)?;
        mark.holds(&self.frames).then_some(mark.depth)
    }

    /// Gives up the calls that are too deep to be followed.
    #[inline]
    pub fn forget_hidden(&mut self) {
        if self.hidden > 0 {
            self.hidden = 0;
            self.hidden_functions.clear();
        }
    }

    /// Closes the innermost call.
    #[inline(always)]
    pub fn end(&mut self, time: Time, how: impl FnOnce(Doubt) -> How) -> Option<End> {
        let frame = self.frames.pop()?;
        self.forget_hidden();
        let begin = match frame.clipped {
            true => self.window,
            false => frame.begin,
        };
        let wall = time.since(begin);
        let ran = self.ran.saturating_sub(frame.ran);
        let duration = Duration(u64::try_from(ran).unwrap_or(0));
        // Clocks of two processors that disagree show only here.
        let clock = wall.is_none_or(|wall| wall < duration);
        let mut doubt = Doubt {
            clock,
            ..Doubt::default()
        };
        if frame.before.all != self.seen.all {
            doubt = Doubt {
                loss: frame.before.losses != self.seen.losses,
                clock: clock || frame.before.clocks != self.seen.clocks,
                interrupt: frame.before.interrupts != self.seen.interrupts,
            };
        }
        let how = how(doubt);
        let self_time = duration - frame.callees;
        let (sure, sure_self) = match doubt {
            // Some of it is an interrupt's.
            Doubt {
                interrupt: true, ..
            } => (Duration(0), Duration(0)),
            Doubt { loss: true, .. } => (frame.sure.min(duration), frame.sure_self.min(self_time)),
            _ => (duration, self_time),
        };
        if how == How::Returned && doubt.loss {
            self.confirm();
        }
        if let Some(caller) = self.frames.last_mut() {
            caller.callees += duration;
        }
        Some(End {
            track: self.id,
            call: frame.call,
            callee: frame.callee,
            time,
            depth: self.frames.len() as u32,
            begin: Some(begin),
            wall: Some(wall.unwrap_or_default()),
            duration: Some(duration),
            self_time: Some(self_time),
            sure: Some(sure),
            sure_self: Some(sure_self),
            how,
            doubt,
            recursive: self.release(frame.callee),
            clipped: frame.clipped,
        })
    }

    /// Counts a function as closed; whether it is still open further out.
    fn release(&mut self, callee: Callee) -> bool {
        let Callee::Function(function) = callee else {
            return false;
        };
        self.open.release(function)
    }

    /// The end of a call that nobody saw begin.
    pub fn orphan(&self, call: CallId, callee: Callee, time: Time) -> End {
        let recursive = match callee {
            Callee::Function(function) => self.has_open(function),
            Callee::Interrupt(_) | Callee::Unknown => false,
        };
        End {
            track: self.id,
            call,
            callee,
            time,
            depth: self.frames.len() as u32,
            begin: None,
            wall: None,
            duration: None,
            self_time: None,
            sure: None,
            sure_self: None,
            how: How::Orphan,
            doubt: Doubt::default(),
            recursive,
            clipped: false,
        }
    }

    /// Clips what is open at the beginning of a window: from here on its times count. Gives a begin for each
    /// call, the outermost first.
    pub fn clip(&mut self, time: Time, mut begun: impl FnMut(Begin)) {
        self.window = time;
        for (depth, frame) in self.frames.iter_mut().enumerate() {
            frame.clipped |= frame.begin < time;
            frame.begin = frame.begin.min(time);
            frame.ran = self.ran;
            frame.callees = Duration(0);
            // A loss before may have hidden that other calls run.
            frame.sure = Duration(0);
            frame.sure_self = Duration(0);
            // What befell its times before does not concern those that count.
            frame.before.clocks = self.seen.clocks;
            frame.before.interrupts = self.seen.interrupts;
            begun(Begin {
                track: self.id,
                call: frame.call,
                callee: frame.callee,
                time,
                depth: depth as u32,
                call_site: frame.call_site,
                clipped: frame.clipped,
                cpu: None,
                thread: None,
            });
        }
    }

    /// The index of the first call of those that were all entered since the last loss; the number
    /// of calls if there is none. An interrupt is not counted among them: it ends by itself.
    pub fn entered_since_loss(&self) -> usize {
        let since = self.frames.iter().rev().take_while(|frame| {
            frame.before.losses == self.seen.losses && !matches!(frame.callee, Callee::Interrupt(_))
        });
        self.frames.len() - since.count()
    }

    /// Puts everything that is open in doubt, and tells the index of the first call that nothing
    /// has been heard of for more than `survived` losses.
    pub fn lose(&mut self, survived: u32) -> Option<usize> {
        self.off.clear();
        let before = self.seen.losses;
        let mut until = self.ran;
        for frame in self.frames.iter_mut().rev() {
            // Those further out have been in doubt for longer.
            if frame.before.losses != before {
                break;
            }
            let time = |from: i64, until: i64| {
                Duration(u64::try_from(until.saturating_sub(from)).unwrap_or(0))
            };
            frame.sure = time(frame.ran, self.ran);
            frame.sure_self = time(frame.ran, until) - frame.callees;
            until = frame.ran;
        }
        self.seen.losses = self.seen.losses.wrapping_add(1);
        self.seen.all = self.seen.all.wrapping_add(1);
        let now = self.seen.losses;
        self.frames
            .iter()
            .position(|frame| now.wrapping_sub(frame.alive) > survived)
    }

    /// Puts the times of everything that is open in doubt.
    pub fn doubt_clock(&mut self) {
        self.seen.clocks = self.seen.clocks.wrapping_add(1);
        self.seen.all = self.seen.all.wrapping_add(1);
    }

    /// Puts them in doubt because of an interrupt.
    pub fn doubt_interrupt(&mut self) {
        self.seen.interrupts = self.seen.interrupts.wrapping_add(1);
        self.seen.all = self.seen.all.wrapping_add(1);
    }

    /// A call that was open before the last loss has been heard of, so its callers are open too.
    fn confirm(&mut self) {
        let now = self.seen.losses;
        for frame in self.frames.iter_mut().rev() {
            // Below a confirmed call everything is confirmed.
            if frame.alive == now {
                break;
            }
            frame.alive = now;
        }
    }
}
