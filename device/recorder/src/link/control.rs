//! Interface between the link and a driver.
//!
//! The link handles commands, frames and pieces; the driver (one processor, several, threads of a process) provides the
//! data to send, and turns recording on and off.

use kymo_wire::clock_check::TickCheck;
use kymo_wire::link::{CommandError, Identity, Mode, SetupError, Text};
use kymo_wire::profile::TableHeader;

use crate::bits64::divide;
#[cfg(feature = "conditions")]
use crate::conditions::Conditions;
use crate::encode::Figures;
use crate::sync::ALONE;

/// Length of the longest piece of data that a recorder generates for a dump (and does not have in memory).
pub const SCRATCH_BYTES: usize = TableHeader::CPU_BYTES;

/// Subject of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All packets: the metadata first, then each stream's, oldest first.
    Trace,
    /// The profile table ([`kymo_wire::profile`]).
    Profile,
}

/// Why a recorder rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The recorder could not be set up; see `status`.
    NotSetUp,
    /// Another reader is active, the subject is being cleared, or the program is filling a record that would be
    /// dropped.
    Busy,
    /// The program has no profile table.
    NoProfile,
    /// There is no memory for merging the threads' tables.
    NoMemory,
    /// The program cannot reboot.
    NoReboot,
    /// No dump is in progress.
    NoDump,
    /// The requested pieces don't exist.
    NoPiece,
    /// This recorder cannot stream.
    NoStream,
    /// Not possible while a stream is in progress.
    Streaming,
    /// No stream is in progress that could be acknowledged.
    NotStreaming,
    /// The address is wider than the target's.
    TooWide,
    /// This recorder supports no conditions.
    #[cfg(feature = "conditions")]
    NoConditions,
    /// The program has no duration mode.
    #[cfg(feature = "duration")]
    NoDuration,
    /// The program has no filter, or none that covers the function.
    #[cfg(feature = "duration")]
    NoFilter,
    /// This setting of duration mode is available only at the start of the program.
    #[cfg(all(feature = "duration", target_os = "linux"))]
    AtStart,
}

impl Refusal {
    /// The message for the host.
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
            #[cfg(all(feature = "duration", target_os = "linux"))]
            Self::AtStart => {
                "a program on Linux compares all time that passed, records calls alone, and is in duration mode from its start on or never"
            }
        }
    }
}

/// The state of a recorder, for `status`.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Recording is enabled.
    pub enabled: bool,
    /// Recording is on.
    pub on: bool,
    /// What happens when the buffer is full.
    pub mode: Mode,
    /// Statistics of the stream. With several streams, counts are sums; `used` and `needed` are those of the stream
    /// that needs most, because each has its own buffer of the size that `identify` reports.
    pub figures: Figures,
    /// Functions in the profile table.
    pub functions: u32,
    /// Number of slots in the profile table.
    pub slots: u32,
    /// Calls that were not counted because the table was full.
    pub no_slot: u32,
    /// Number of hooks within hooks, which are not recorded: the clock function is instrumented, or a fault preempted.
    pub refused: u32,
    /// The function of the last one; 0 if there was none.
    pub refused_function: usize,
    /// With a single shot, whether it has ended.
    pub once: Option<bool>,
    /// Number of clock readings that came so late that the counter may have wrapped around unseen. The trace marks
    /// those that came while recording.
    pub clock_gaps: u32,
    /// Why the recorder could not be set up.
    pub setup_error: Option<SetupError>,
    /// What did not leave a hook when a reader came, as one word.
    pub stuck: Option<&'static str>,
    /// On several CPUs: threads whose open calls of the stopper are not followed any more, as more threads called it
    /// than can be followed at once.
    pub stopper_displaced: u32,
    /// On one processor: the thread that has entered the stopper and must leave it before recording stops, and for how
    /// many ticks it has been seen there.
    pub within_stopper: Option<(usize, u64)>,
}

impl Status {
    /// Writes who is within the stopper as words of a reply.
    #[inline(always)]
    pub(super) fn report_stopper(&self, reply: &mut Text<'_>) {
        if !ALONE && self.stopper_displaced != 0 {
            reply.word("stopper_displaced", self.stopper_displaced.into());
        }
        if let Some((thread, ticks)) = self.within_stopper {
            reply
                .address("stopper_thread", thread as u64)
                .word("stopper_ticks", ticks);
        }
    }
}

/// Settings and counts of duration mode.
#[cfg(feature = "duration")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationReport {
    /// Whether duration mode is on.
    pub on: bool,
    /// Least duration of a call that is recorded, in ticks.
    pub threshold: u64,
    /// Largest nesting depth of calls that are recorded; 0: any.
    pub depth: u32,
    /// Whether the threshold applies to the time that a call's thread was running.
    pub cpu: bool,
    /// Whether thread switches and interrupts are recorded, too.
    pub events: bool,
    /// The function whose entry turns recording off; 0: none.
    pub stop_at: usize,
    /// Whether there is a filter.
    pub filters: bool,
    /// What else turns recording off.
    pub freeze: FreezeReport,
    /// Calls that could not be tracked: their stack was full.
    pub too_deep: u32,
    /// Exits without an entry, and entries without an exit.
    pub unmatched: u32,
}

#[cfg(feature = "duration")]
impl DurationReport {
    /// The report of these settings, and of so many calls that could not be tracked.
    pub fn of(settings: &crate::duration::Settings, too_deep: u32, unmatched: u32) -> Self {
        Self {
            on: settings.is_on(),
            threshold: settings.threshold() as u64,
            depth: settings.depth(),
            cpu: settings.counts_cpu(),
            events: settings.keeps_events(),
            stop_at: settings.stop(),
            filters: settings.filters(),
            freeze: settings.freeze_report(),
            too_deep,
            unmatched,
        }
    }

    /// Writes it as words of a reply.
    pub(super) fn write(&self, reply: &mut Text<'_>) {
        let freeze = &self.freeze;
        reply
            .word("on", self.on.into())
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
            .word("times", freeze.times.into())
            .word("acted", freeze.acted.into())
            .word("too_deep", self.too_deep.into())
            .word("unmatched", self.unmatched.into());
    }
}

/// What turns recording off in duration mode, besides a stop function.
#[cfg(feature = "duration")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreezeReport {
    /// A call of this function stops recording ...
    pub function: usize,
    /// ... if it takes longer than this, in ticks. 0: no function does.
    pub over: u64,
    /// Event that stops recording: 0 for none, 1 for a marker, 2 for an interrupt.
    pub event: u32,
    /// Its value or number.
    pub value: u32,
    /// Required caller of these and of the stop function; 0: any.
    pub from: usize,
    /// Number of the first such occurrence that counts.
    pub hit: u32,
    /// Number of calls to record after that.
    pub after: u32,
    /// How often recording stops at most; 0: unlimited.
    pub times: u16,
    /// How often it has stopped since that was set.
    pub acted: u16,
}

/// Requests of the link to a recorder. The driver implements it.
pub trait Control {
    /// The time in ticks.
    fn now(&self) -> u64;
    /// Ticks per second.
    fn hz(&self) -> u64;
    /// The comparison of the clock with the program's periodic tick as of `now`; `None` without a tick.
    fn tick_check(&self, now: u64) -> Option<TickCheck> {
        let _ = now;
        None
    }
    /// The target's identity.
    fn identity(&self) -> Identity;
    /// The recorder's status.
    fn status(&self) -> Status;
    /// Enables or disables recording by command.
    fn enable(&self, enabled: bool);
    /// Turns recording on or off.
    fn set_recording(&self, on: bool);
    /// Trigger and stopper; 0 for none.
    fn sets(&self) -> (usize, usize);
    /// Sets trigger and stopper, effective at once and saved for the next boot where that is possible.
    fn set_sets(&self, trigger: usize, stopper: usize);
    /// Conditions of trigger and stopper; `None` where conditions are not supported.
    #[cfg(feature = "conditions")]
    fn conditions(&self) -> Option<&'static Conditions> {
        None
    }
    /// Saves the changed conditions of trigger and stopper for the next boot, where that is possible.
    #[cfg(feature = "conditions")]
    fn keep_conditions(&self) {}
    /// Sets whether the trigger turns recording on only once; saved like trigger and stopper.
    fn set_once(&self, once: bool);
    /// Executes a request to duration mode.
    ///
    /// # Errors
    /// The reason why it can't be done.
    #[cfg(feature = "duration")]
    fn change_duration(&self, requested: kymo_wire::link::Duration) -> Result<(), Refusal> {
        let _ = requested;
        Err(Refusal::NoDuration)
    }
    /// Settings and counts of duration mode; `None` if there is none.
    #[cfg(feature = "duration")]
    fn duration_report(&self) -> Option<DurationReport> {
        None
    }
    /// Sets what happens when the buffer is full, and clears it.
    ///
    /// # Errors
    /// The reason why it can't be done.
    fn set_mode(&self, mode: Mode) -> Result<(), Refusal>;
    /// Drops events and table.
    ///
    /// # Errors
    /// The reason why it can't be done.
    fn clear(&self) -> Result<(), Refusal>;
    /// Freezes the buffers until [`thaw`](Self::thaw).
    ///
    /// # Errors
    /// The reason why it can't be done.
    fn freeze(&self, subject: Subject) -> Result<(), Refusal>;
    /// Unfreezes the buffers.
    fn thaw(&self);
    /// The `n`th chunk of the dump, while frozen; `None` behind the last. Chunks may be empty.
    fn chunk<'a>(
        &'a self,
        subject: Subject,
        n: u32,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]>;
    /// Whether packets can be consumed while recording continues. If not, the functions from here down to
    /// [`release`](Self::release) are not called.
    fn can_stream(&self) -> bool {
        false
    }
    /// Closes open packets with content, so that they can be consumed. Returns false if one of them can only be closed
    /// by another context, which has been requested to do so.
    fn flush(&self) -> bool {
        true
    }
    /// Number of streams; they are numbered from 0.
    fn streams(&self) -> u16 {
        1
    }
    /// The `n`th of a stream's closed packets that have not been released; it does not change until then. `None` behind
    /// the newest.
    fn waiting(&self, stream: u16, n: u32) -> Option<&[u8]> {
        let _ = (stream, n);
        None
    }
    /// Begin of the first of a stream's closed packets that are withheld because the program is filling a record in
    /// them or before them; `None` if there is none.
    fn blocked(&self, stream: u16) -> Option<u64> {
        let _ = stream;
        None
    }
    /// Releases the slot of a stream's oldest closed packet.
    fn release(&self, stream: u16) {
        let _ = stream;
    }
    /// A number that changes when metadata is added; 0 if there is none.
    fn facts(&self) -> u32 {
        0
    }
    /// Seals the metadata, or unseals it.
    fn seal_facts(&self, sealed: bool) {
        let _ = sealed;
    }
    /// The metadata packet, while it is sealed.
    fn sealed_facts(&self) -> &[u8] {
        &[]
    }
    /// Records the wall-clock time, if anything is recorded now, and returns whether it did: `ns` nanoseconds since
    /// 1970 UTC when the clock read `ticks`, plus or minus `uncertainty`. [`later`] computes the present value from
    /// these.
    fn wall_clock(&self, ticks: u64, ns: u64, uncertainty: u32) -> bool {
        let _ = (ticks, ns, uncertainty);
        false
    }
    /// Sends bytes to the host.
    fn send(&self, bytes: &[u8]);
    /// Reboots; returns the reason if it can't.
    fn reboot(&self) -> Refusal;
}

/// The wall-clock time at `now`, if it was `ns` at `ticks`, with `hz` ticks per second. Exact for distances of some
/// minutes.
pub fn later(ns: u64, ticks: u64, now: u64, hz: u64) -> u64 {
    let (seconds, rest) = divide(now.saturating_sub(ticks), hz);
    let (rest, _) = divide(rest.saturating_mul(1_000_000_000), hz);
    ns.saturating_add(seconds.saturating_mul(1_000_000_000))
        .saturating_add(rest)
}
