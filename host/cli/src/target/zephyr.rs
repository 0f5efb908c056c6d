//! Live target that runs Zephyr's own instrumentation.
//!
//! Unlike a Kymo target, it does not report its build, whether it records, or the size of its recording. A dump also
//! changes it: afterwards it records nothing until it is rebooted. The messages about this are here, so that they are
//! the same in all subcommands.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kymo_event::{Addr, TraceInfo};
use kymo_link::zephyr::{Arrived, Dump, Ended, Set, Status, Target};
use kymo_link::{Cancel, Progress, Sets};
use kymo_symbols::{Function, Symbols};
use kymo_zephyr_instrumentation::Kind;

use super::explain;
use super::functions::{NO_SUCH_FUNCTION, place};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::interrupt::Interruptible;
use crate::names;

/// Default wait between a reboot and the dump, because such a target does not report the end of a recording.
pub const ZEPHYR_WAIT: Duration = Duration::from_secs(2);

/// A live target that runs Zephyr's own instrumentation.
pub struct LiveZephyr {
    target: Target,
    cancel: Interruptible,
    bar: ProgressBar,
}

/// Dumps received from a target.
pub struct Fetched {
    /// The dumps, oldest first.
    pub dumps: Vec<Dump>,
    /// Report if they are incomplete.
    pub incomplete: Option<Report>,
}

impl Fetched {
    /// Whether all dumps are empty.
    pub fn is_empty(&self) -> bool {
        self.dumps.iter().all(|dump| dump.body.is_empty())
    }

    /// The dumps in the text form in which the target sent them.
    pub fn as_sent(&self) -> Vec<u8> {
        self.dumps.iter().flat_map(Dump::as_sent).collect()
    }
}

impl LiveZephyr {
    /// Wraps a target that was detected to be of this kind.
    pub const fn new(target: Target, cancel: Interruptible, bar: ProgressBar) -> Self {
        Self {
            target,
            cancel,
            bar,
        }
    }

    /// The name of the target in messages: its address.
    pub fn name(&self) -> String {
        self.target.address().to_string()
    }

    /// The properties that all traces of such targets have.
    pub fn info() -> TraceInfo {
        TraceInfo {
            format: kymo_read::zephyr_instrumentation::FORMAT.to_owned(),
            ..TraceInfo::default()
        }
    }

    /// Checks that the target answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn ping(&mut self) -> Result<(), Report> {
        self.target.ping().map_err(explain)
    }

    /// Requests the features with which the firmware was built.
    ///
    /// # Errors
    /// When the target stops answering.
    pub fn status(&mut self) -> Result<Status, Report> {
        self.target.status().map_err(explain)
    }

    /// Requests trigger and stopper, as pointers: those to Thumb code are odd.
    ///
    /// # Errors
    /// When the target stops answering.
    pub fn sets(&mut self) -> Result<Sets, Report> {
        self.target.sets().map_err(explain)
    }

    /// Sets trigger or stopper, or disables it, and verifies it.
    ///
    /// # Errors
    /// When the target has another value, or stops answering.
    pub fn set(
        &mut self,
        set: Set,
        pointer: Option<Addr>,
        context: &Context,
    ) -> Result<(), Report> {
        let address = pointer.unwrap_or_default();
        context.detail(format_args!("setting the {} to {address}", set.name()));
        self.target.set(set, pointer).map_err(explain)
    }

    /// Reboots the target and waits until it answers.
    ///
    /// # Errors
    /// When it does not answer again.
    pub fn reboot(&mut self, context: &Context) -> Result<(), Report> {
        context.detail("rebooting the target");
        let rebooted = self.target.reboot(self.cancel.flag()).map_err(explain)?;
        if rebooted.heard {
            context.detail("it is back");
        } else {
            context.note(
                "the target answers, but it was not heard to start: that is right if it was built \
                 without a boot banner, else it may not have rebooted",
            );
        }
        Ok(())
    }

    /// Waits without sending anything, or until a ctrl-C. If the connection is lost meanwhile, the next fetch reports
    /// this, and returns the data received until then.
    pub fn wait(&mut self, waited: Duration, context: &Context) {
        context.detail(format_args!("waiting for {}", super::time(waited)));
        if let Err(error) = self.target.listen(waited, self.cancel.flag()) {
            context.detail(format_args!("the wait ends early: {error}"));
        }
    }

    /// Fetches a dump, and unsolicited ones, oldest first. Reports that the target can't send it again, and whether
    /// it is empty.
    ///
    /// # Errors
    /// When nothing arrived.
    pub fn fetch(&mut self, kind: Kind, context: &Context) -> Result<Fetched, Report> {
        if context.progress_visible() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        // The template is a valid constant; an invalid one would only change the looks.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.set_message("the target does not say of how many");
        let bar = self.bar.clone();
        let mut progress = |progress: Progress| bar.set_position(progress.bytes);
        // A ctrl-C that ended a wait must not cancel the transfer that follows.
        let cancel = match self.cancel.flag() {
            used if used.is_cancelled() => Cancel::new(),
            fresh => fresh.clone(),
        };
        let result = self.target.dump(kind, &mut progress, &cancel);
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        let Arrived { dumps, missing } = result.map_err(explain)?;
        // From here on, ctrl-C ends the program as usual.
        self.cancel.disarm();
        let (wanted, others): (Vec<Dump>, Vec<Dump>) = dumps
            .into_iter()
            .partition(|dump| !dump.unrequested || dump.kind().is_none_or(|found| found == kind));
        if !others.is_empty() {
            context.warn(format_args!(
                "{} dumps of the other kind that the target sent unasked are not kept",
                others.len()
            ));
        }
        let unrequested = wanted.iter().filter(|dump| dump.unrequested).count();
        if unrequested > 0 {
            let often = match unrequested {
                1 => "once".to_owned(),
                many => format!("{many} times"),
            };
            context.note(format_args!(
                "the target's buffer was full {often} meanwhile: what it sent then stands before the \
                 rest"
            ));
        }
        let requested = wanted.iter().find(|dump| !dump.unrequested);
        // A dump that breaks off although the target continues was cut by the target's start.
        if requested.is_some_and(|dump| dump.ended != Ended::Cut) {
            context.note(
                "the target records nothing more now until it is rebooted (`kymo reboot`): that is \
                 how Zephyr's instrumentation dumps",
            );
        }
        if kind == Kind::Trace && wanted.iter().all(is_empty) && missing.is_none() {
            context.note(
                "the dump is empty: has the target been dumped since it started? or was its trigger \
                 not entered (`kymo trace --list`)? `kymo trace --reboot` looks from a new start on",
            );
        }
        let missing = missing
            .map(|error| explain(error).help("what the target had sent unasked before is kept"));
        Ok(Fetched {
            incomplete: incomplete(&wanted).or(missing),
            dumps: wanted,
        })
    }
}

/// Whether a dump is empty.
fn is_empty(dump: &Dump) -> bool {
    dump.body.is_empty() && dump.is_whole()
}

/// Why dumps are incomplete; `None` if they are complete.
fn incomplete(dumps: &[Dump]) -> Option<Report> {
    let dump = dumps.iter().find(|dump| !dump.is_whole())?;
    let bytes = dump.body.len();
    let kept = "what arrived is kept and marked where something is missing";
    let gone = "the target has forgotten what it sent: record anew with `kymo trace --reboot`";
    Some(match &dump.ended {
        Ended::Whole => return None,
        Ended::OutOfStep => {
            Report::new("bytes of the dump were lost, or others got in between, on the way")
                .help(kept)
                .help("a console that another processor writes to does that; so does a bad line")
        }
        Ended::Cut => Report::new(format_args!(
            "the dump breaks off after {bytes} bytes, and the target goes on: did it start again?"
        ))
        .help(kept)
        .help(gone),
        Ended::Silent { waited } => Report::new(format_args!(
            "the target fell silent for {:.1} s in the middle of the dump: {bytes} bytes arrived",
            waited.as_secs_f64()
        ))
        .help(kept)
        .help(gone),
        Ended::Cancelled => {
            Report::new(format_args!("broken off: {bytes} bytes arrived")).help(kept)
        }
        Ended::Disconnected(error) => {
            Report::new(format_args!("{error}: {bytes} bytes arrived")).help(kept)
        }
        Ended::TooLong => Report::new(format_args!(
            "the dump was broken off: {bytes} bytes are more than any target holds"
        ))
        .help(kept),
    })
}

/// Resolves a function's name, an address (`0x...`) or `none` to a pointer; `None` for `none`.
///
/// The target compares whole pointers, so those to Thumb code need their lowest bit. An ELF file has this bit. If the
/// symbols lack it, a pointer that is already set on the target shows whether functions are Thumb code.
///
/// # Errors
/// When no function or several have the name, or the address is invalid.
pub fn one_pointer(
    symbols: &Symbols,
    wanted: &str,
    sets: Sets,
    context: &Context,
) -> Result<Option<Addr>, Report> {
    if wanted == "none" || wanted == "0" {
        return Ok(None);
    }
    if let Some(digits) = wanted.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).map(Addr).map_err(|_| {
            Report::new(format_args!("{wanted} is no address"))
                .help("give a function's name, its address as 0x and hexadecimal digits, or none")
        })?;
        if address == Addr(0) {
            return Ok(None);
        }
        return Ok(Some(match symbols.function_at(address) {
            Some(function) if function.address() == address => pointer_to(&function, sets, context),
            // An explicit bit from the user is kept.
            Some(function) if function.address().0 | 1 == address.0 => address,
            Some(function) => {
                context.warn(format_args!(
                    "no function begins at {address}, it is inside of {}: it may never be entered \
                     there",
                    place(&function)
                ));
                address
            }
            None => {
                if !symbols.is_empty() {
                    context.warn(format_args!(
                        "no function is known at {address}: it may never be entered"
                    ));
                }
                Addr(address.0 | u64::from(has_thumb(sets)))
            }
        }));
    }
    match names::by_name(symbols, wanted, NO_SUCH_FUNCTION)?.as_slice() {
        [one] => Ok(Some(pointer_to(one, sets, context))),
        several => {
            let report = Report::new(format_args!(
                "{wanted} is the name of {} functions: give the address of the one that you mean",
                several.len()
            ));
            Err(several
                .iter()
                .fold(report, |report, function| report.help(place(function))))
        }
    }
}

/// The pointer to a function.
fn pointer_to(function: &Function<'_>, sets: Sets, context: &Context) -> Addr {
    if let Some(pointer) = function.pointer() {
        return pointer;
    }
    let address = function.address();
    if has_thumb(sets) {
        return Addr(address.0 | 1);
    }
    if sets.trigger.or(sets.stopper).is_none() {
        context.warn(format_args!(
            "these symbols do not tell whether {} is Thumb code, as all of a Cortex-M's is: then the \
             target needs its address as {:#x}; give the ELF file, or that address",
            function.name(),
            address.0 | 1
        ));
    }
    address
}

/// Whether a pointer that is set on the target is to Thumb code.
fn has_thumb(sets: Sets) -> bool {
    let mut pointers = [sets.trigger, sets.stopper].into_iter().flatten();
    pointers.any(|pointer| pointer.0 & 1 == 1)
}

/// The name and location of the function at a pointer; `none` for none.
pub fn pointer_text(symbols: &Symbols, pointer: Option<Addr>) -> String {
    let Some(pointer) = pointer else {
        return "none".to_owned();
    };
    match symbols.function_at(pointer) {
        Some(function) if function.address().0 | 1 == pointer.0 | 1 => place(&function),
        _ if symbols.is_empty() => pointer.to_string(),
        _ => format!("{pointer} (no function of these symbols begins there)"),
    }
}
