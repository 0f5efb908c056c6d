//! What the link can ask of a recorder.
//!
//! The link knows commands, frames and pieces; what there is to send, and what it means to turn
//! recording on, is the business of each driver (one processor, several, threads of a process).

use kymo_wire::clock_check::TickCheck;
#[cfg(feature = "duration")]
use kymo_wire::link::Text;
use kymo_wire::link::{CommandError, Identity, Mode, SetupError};

use crate::bits64::divide;
#[cfg(feature = "conditions")]
use crate::conditions::Conditions;
use crate::encode::Figures;

/// The longest piece of data that a recorder makes up for a dump (and does not have in memory).
pub const SCRATCH_BYTES: usize = 72;

/// What can be dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All packets: the metadata first, then each stream's, oldest first.
    Trace,
    /// The table of functions ([`kymo_wire::profile`]).
    Profile,
}

/// Why a recorder does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The recorder could not be set up; see `status`.
    NotSetUp,
    /// Another reader is at work, what is asked for is being cleared, or the program is filling a
    /// record that would be forgotten.
    Busy,
    /// The program has no profile table.
    NoProfile,
    /// There is no memory to add the threads' tables up in.
    NoMemory,
    /// The program cannot reboot.
    NoReboot,
    /// There is no dump to send pieces of.
    NoDump,
    /// The pieces that are asked for are not there.
    NoPiece,
    /// This recorder cannot stream.
    NoStream,
    /// That cannot be done while a stream is going on.
    Streaming,
    /// There is no stream of which anything could have arrived.
    NotStreaming,
    /// The address is wider than the target's.
    TooWide,
    /// Trigger and stopper take no conditions here.
    #[cfg(feature = "conditions")]
    NoConditions,
    /// The program has no duration mode.
    #[cfg(feature = "duration")]
    NoDuration,
    /// The program has no filter, or none that has room for the function.
    #[cfg(feature = "duration")]
    NoFilter,
    /// Duration mode on several CPUs stops at no function and freezes on nothing.
    #[cfg(feature = "duration")]
    SeveralCpus,
    /// That is said of duration mode when the program starts.
    #[cfg(all(feature = "duration", target_os = "linux"))]
    AtStart,
}

impl Refusal {
    /// What the host is told.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotSetUp => "the recorder could not be set up; see status",
            Self::Busy => "another dump or a clear is going on",
            Self::NoMemory => "out of memory",
            Self::NoProfile => "there is no profile table (kymo_config.slots)",
            Self::NoReboot => "this target cannot reboot (kymo_config.reboot)",
            Self::NoDump => "no dump is going on",
            Self::NoPiece => "there are no such pieces",
            Self::NoStream => "this target cannot stream",
            Self::Streaming => "a stream is going on (stream off ends it)",
            Self::NotStreaming => "no stream is going on",
            Self::TooWide => CommandError::TooWide.message(),
            #[cfg(feature = "conditions")]
            Self::NoConditions => "trigger and stopper of this program take no conditions",
            #[cfg(feature = "duration")]
            Self::NoDuration => "this program has no duration mode (KYMO_DURATION)",
            #[cfg(all(feature = "duration", target_os = "linux"))]
            Self::NoFilter => {
                "the function is none of the program's own image, or there is no memory for a filter"
            }
            #[cfg(all(feature = "duration", not(target_os = "linux")))]
            Self::NoFilter => "this program has no filter, or a smaller one (KYMO_DURATION_FILTER)",
            #[cfg(feature = "duration")]
            Self::SeveralCpus => {
                "on several processors duration mode has no stop function and no freeze (stop_at, freeze)"
            }
            #[cfg(all(feature = "duration", target_os = "linux"))]
            Self::AtStart => {
                "a program on Linux takes no more than a threshold, a depth and a filter while it runs"
            }
        }
    }
}

/// The state of a recorder, for `status`.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Events may be recorded.
    pub enabled: bool,
    /// They are recorded now.
    pub on: bool,
    /// What happens when the buffer is full.
    pub mode: Mode,
    /// What the stream has come to. Of several: counts are sums, `used` and `needed` are of the
    /// stream that needs most, for each has a buffer of its own of the size that `identify` tells.
    pub figures: Figures,
    /// Functions in the profile table.
    pub functions: u32,
    /// How many it has room for.
    pub slots: u32,
    /// Calls that were not counted because the table was full.
    pub no_slot: u32,
    /// Calls of hooks from inside a hook, which are not recorded: the clock function is
    /// instrumented, or a fault preempted.
    pub refused: u32,
    /// The function that the last of them was for; 0 if there was none.
    pub refused_function: usize,
    /// In a single shot, whether it is over.
    pub once: Option<bool>,
    /// Readings of the clock that came so late that a turn of the counter may have been missed:
    /// while something was recorded the trace tells where.
    pub clock_gaps: u32,
    /// Why the recorder could not be set up.
    pub setup_error: Option<SetupError>,
    /// Who did not leave a hook when a reader came, as one word.
    pub stuck: Option<&'static str>,
}

/// How duration mode is set.
#[cfg(feature = "duration")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationReport {
    /// Calls are recorded so.
    pub on: bool,
    /// Ticks from which on a call is recorded.
    pub threshold: u64,
    /// The last level of calls that is recorded; 0: all.
    pub depth: u32,
    /// The threshold compares the time that a call's thread had a processor.
    pub cpu: bool,
    /// Thread switches and interrupts are recorded, too.
    pub events: bool,
    /// The function whose entry turns recording off; 0: none.
    pub stop_at: usize,
    /// There is a filter.
    pub filters: bool,
    /// What else turns recording off.
    pub freeze: FreezeReport,
    /// Calls that could not be followed: their stack was full.
    pub too_deep: u32,
    /// Exits without an entry, and entries without an exit.
    pub unmatched: u32,
}

#[cfg(feature = "duration")]
impl DurationReport {
    /// Says it in words.
    pub(super) fn say(&self, said: &mut Text<'_>) {
        let freeze = &self.freeze;
        said.word("on", self.on.into())
            .word("threshold", self.threshold)
            .word("depth", self.depth.into())
            .word("cpu", self.cpu.into())
            .word("events", self.events.into())
            .address("stop_at", self.stop_at as u64)
            .word("filter", self.filters.into())
            .address("freeze", freeze.function as u64)
            .word("over", freeze.over)
            .word("on_event", freeze.event.into())
            .word("value", freeze.value.into())
            .address("from", freeze.from as u64)
            .word("hit", freeze.hit.into())
            .word("after", freeze.after.into())
            .word("too_deep", self.too_deep.into())
            .word("unmatched", self.unmatched.into());
    }
}

/// What turns recording off in duration mode, beside a stop function.
#[cfg(feature = "duration")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreezeReport {
    /// A call of this function; 0: none.
    pub function: usize,
    /// That takes longer than so many ticks.
    pub over: u64,
    /// An event: 0 for none, 1 for a marker, 2 for an interrupt.
    pub event: u32,
    /// Its value or number.
    pub value: u32,
    /// The function that these, and the stop function, must be called from; 0: any.
    pub from: usize,
    /// Only the so manieth time.
    pub hit: u32,
    /// So many calls are recorded after that.
    pub after: u32,
}

/// What the link can ask of a recorder. The driver implements it.
pub trait Control {
    /// The time in ticks.
    fn now(&self) -> u64;
    /// Ticks a second.
    fn hz(&self) -> u64;
    /// How the clock compares up to `now` with the program's periodic tick; `None` without one.
    fn tick_check(&self, now: u64) -> Option<TickCheck> {
        let _ = now;
        None
    }
    /// Who this is.
    fn identity(&self) -> Identity;
    /// How it is.
    fn status(&self) -> Status;
    /// Closes or opens the gate by command.
    fn enable(&self, enabled: bool);
    /// Turns recording on or off.
    fn turn(&self, on: bool);
    /// Trigger and stopper; 0 for none.
    fn sets(&self) -> (usize, usize);
    /// Sets trigger and stopper, effective at once and kept over a reboot where that is possible.
    fn set_sets(&self, trigger: usize, stopper: usize);
    /// When trigger and stopper act; `None` where there are no conditions.
    #[cfg(feature = "conditions")]
    fn conditions(&self) -> Option<&'static Conditions> {
        None
    }
    /// When trigger and stopper act was changed: keeps that over a reboot where that is possible.
    #[cfg(feature = "conditions")]
    fn keep_conditions(&self) {}
    /// Has the trigger turn recording on once, or each time; kept like trigger and stopper.
    fn set_once(&self, once: bool);
    /// Does what is asked of duration mode.
    ///
    /// # Errors
    /// Why not.
    #[cfg(feature = "duration")]
    fn ask_duration(&self, asked: kymo_wire::link::Duration) -> Result<(), Refusal> {
        let _ = asked;
        Err(Refusal::NoDuration)
    }
    /// How duration mode is set; `None` if there is none.
    #[cfg(feature = "duration")]
    fn duration_report(&self) -> Option<DurationReport> {
        None
    }
    /// Changes what happens when the buffer is full, and clears it.
    ///
    /// # Errors
    /// Why not.
    fn set_mode(&self, mode: Mode) -> Result<(), Refusal>;
    /// Forgets events and table.
    ///
    /// # Errors
    /// Why not.
    fn clear(&self) -> Result<(), Refusal>;
    /// Holds the buffers still until [`thaw`](Self::thaw).
    ///
    /// # Errors
    /// Why not.
    fn freeze(&self, subject: Subject) -> Result<(), Refusal>;
    /// Lets the buffers go.
    fn thaw(&self);
    /// The `n`th of the runs of bytes that make up the dump, while frozen; `None` behind the last.
    /// Some may be empty.
    fn chunk<'a>(
        &'a self,
        subject: Subject,
        n: u32,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]>;
    /// Whether packets can be taken away while all record. If not, nothing of the rest down to
    /// [`release`](Self::release) is called.
    fn can_stream(&self) -> bool {
        false
    }
    /// Closes packets that are open and hold something, so that they can be taken away. False if
    /// there is one that only another context can close, which it has been told to.
    fn flush(&self) -> bool {
        true
    }
    /// How many streams there are; their numbers count from 0.
    fn streams(&self) -> u16 {
        1
    }
    /// The `n`th of a stream's closed packets that were not given back; it stays as it is until it
    /// is. `None` behind the newest.
    fn waiting(&self, stream: u16, n: u32) -> Option<&[u8]> {
        let _ = (stream, n);
        None
    }
    /// When the first of a stream's closed packets began that do not wait because the program is filling a
    /// record in them, or before them; `None` if there is none.
    fn withheld(&self, stream: u16) -> Option<u64> {
        let _ = stream;
        None
    }
    /// Gives the place of a stream's oldest closed packet back.
    fn release(&self, stream: u16) {
        let _ = stream;
    }
    /// A number that is another one when there is more metadata; 0 if there is none.
    fn facts(&self) -> u32 {
        0
    }
    /// Keeps the metadata as it is, or lets it grow again.
    fn seal_facts(&self, sealed: bool) {
        let _ = sealed;
    }
    /// The metadata packet, while it is kept as it is.
    fn sealed_facts(&self) -> &[u8] {
        &[]
    }
    /// Records what time it is in the world, if anything is recorded now, and tells whether: `ns`
    /// nanoseconds since 1970 UTC when the clock showed `ticks` ([`later`] says what that makes it
    /// now), give or take `uncertainty`.
    fn wall_clock(&self, ticks: u64, ns: u64, uncertainty: u32) -> bool {
        let _ = (ticks, ns, uncertainty);
        false
    }
    /// Sends bytes to the host.
    fn send(&self, bytes: &[u8]);
    /// Reboots; returns why not.
    fn reboot(&self) -> Refusal;
}

/// What time it is in the world at `now`, if it was `ns` when the clock showed `ticks`, of which there
/// are `hz` a second. Right for some minutes' distance.
pub fn later(ns: u64, ticks: u64, now: u64, hz: u64) -> u64 {
    let (seconds, rest) = divide(now.saturating_sub(ticks), hz);
    let (rest, _) = divide(rest.saturating_mul(1_000_000_000), hz);
    ns.saturating_add(seconds.saturating_mul(1_000_000_000))
        .saturating_add(rest)
}
