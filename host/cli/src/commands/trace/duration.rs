//! Options and commands for a target's duration mode, which records one event for each call above a threshold.

use kymo_analysis::selection::FunctionChoice;
use kymo_event::{Addr, Ticks};
use kymo_symbols::Symbols;
use kymo_wire::link::{Action, Command, Duration, FreezeOn, Identity};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{self, CallChoice};
use crate::target::{Live, explain, one_function};

/// What the target is to record of each call.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(group = clap::ArgGroup::new("duration_mode").multiple(true))]
pub struct DurationArgs {
    /// Have the target record calls of at least this duration alone, in one record each: 100us, 1.5ms, 0. --function,
    /// --hide and --depth then say which calls the target records (these functions alone; all but these; so many levels). Recording
    /// begins at once, unless a trigger is set or the target reboots. Kept over a reboot. `off` has it record entries and exits again.
    #[arg(long, value_name = "TIME|off", value_parser = threshold, group = "duration_mode")]
    pub threshold: Option<Threshold>,

    /// Compare the threshold with the time in which a call's thread had the processor, not with all time that passed.
    #[arg(long, requires = "duration_mode")]
    pub on_cpu: bool,

    /// Have thread switches and interrupts recorded beside the calls; they may be many more than these.
    #[arg(long, requires = "duration_mode")]
    pub with_switches: bool,

    /// Stop recording where this function is entered: its name, or its address (0x...). Calls are recorded as with --threshold 0, unless
    /// that is given.
    #[arg(long, value_name = "FUNCTION", group = "duration_mode")]
    pub stop_at: Option<String>,

    /// Stop recording when a call of a function took longer ('uart_isr > 50us', at least the threshold), when the program records a
    /// marker of a value ('marker == 7'), or when the handler of an interrupt or exception begins ('irq == 3'). Calls are recorded as with --threshold 0, unless that is given.
    #[arg(long, value_name = "CONDITION", value_parser = freeze, group = "duration_mode", conflicts_with = "stop_at")]
    pub freeze: Option<Freeze>,

    /// --stop-at and --freeze: only when called from this function.
    #[arg(long, value_name = "FUNCTION", requires = "duration_mode")]
    pub from: Option<String>,

    /// --stop-at and --freeze: only the Nth time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "duration_mode"
    )]
    pub hit: u32,

    /// --stop-at and --freeze: record so many calls more before recording stops.
    #[arg(
        long,
        value_name = "CALLS",
        default_value_t = 0,
        requires = "duration_mode"
    )]
    pub after: u32,

    /// --stop-at and --freeze: stop recording so often at most, though it is turned on again (by `kymo command on`,
    /// or a trigger); 0: without limit. Counted until events are cleared or the target reboots.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "duration_mode"
    )]
    pub times: u16,
}

impl DurationArgs {
    /// From what on calls are recorded; `None` if the target's mode does not change. What stops recording needs duration
    /// mode.
    pub fn threshold(&self) -> Option<Threshold> {
        let stops = self.stop_at.is_some() || self.freeze.is_some();
        self.threshold.or(stops.then_some(Threshold::From(0)))
    }
}

/// Condition that stops recording (`--freeze`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// A call of the function took longer than `over_ns` nanoseconds.
    Call { function: String, over_ns: u64 },
    /// An event occurred.
    Event(FreezeOn),
}

fn freeze(text: &str) -> Result<Freeze, String> {
    let expected = "FUNCTION > TIME, marker == VALUE or irq == NUMBER";
    if let Some((event, value)) = text.split_once("==") {
        let value = value.trim();
        let event = match event.trim() {
            "marker" => number(value).map(FreezeOn::Marker),
            "irq" => number(value)
                .and_then(|number| u16::try_from(number).ok())
                .map(FreezeOn::Irq),
            _ => return Err(format!("expected {expected}, found {text:?}")),
        };
        return event
            .map(Freeze::Event)
            .ok_or_else(|| format!("expected a number behind ==, found {value:?}"));
    }
    let (function, over) = text
        .split_once('>')
        .ok_or_else(|| format!("expected {expected}, found {text:?}"))?;
    let function = function.trim();
    if function.is_empty() {
        return Err(format!("expected a function before >, found {text:?}"));
    }
    Ok(Freeze::Call {
        function: function.to_owned(),
        over_ns: filter::duration(over.trim())?.0,
    })
}

/// Parses a number, decimal or hexadecimal (0x).
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Minimum duration of recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Duration mode is off.
    Off,
    /// Records calls of at least so many nanoseconds.
    From(u64),
}

fn threshold(text: &str) -> Result<Threshold, String> {
    if text == "off" {
        return Ok(Threshold::Off);
    }
    if text == "0" {
        return Ok(Threshold::From(0));
    }
    Ok(Threshold::From(filter::duration(text)?.0))
}

/// Returns the commands that configure a target's duration mode; none without `--threshold`.
///
/// # Errors
/// When the target has no duration mode, a duration is too long for its clock, or there is no such function.
pub fn commands(
    args: &DurationArgs,
    calls: &CallChoice,
    live: &mut Live,
    symbols: &Symbols,
    context: &Context,
) -> Result<Vec<Command>, Report> {
    let Some(threshold) = args.threshold() else {
        return Ok(Vec::new());
    };
    let identity = live.identity;
    check(&identity)?;
    let Threshold::From(ns) = threshold else {
        return Ok(vec![Command::Duration(Duration::On(false))]);
    };
    let mut requested = vec![
        Duration::Threshold(ticks(ns, &identity)?),
        Duration::Depth(calls.depth.unwrap_or(0)),
        Duration::Cpu(args.on_cpu),
        Duration::Events(args.with_switches),
    ];
    let find = |function: Option<&String>| -> Result<u64, Report> {
        match function {
            Some(function) => Ok(one_function(symbols, function, &identity, context)?.0),
            None => Ok(0),
        }
    };
    requested.push(Duration::StopAt(find(args.stop_at.as_ref())?));
    let (function, over_ns, event) = match &args.freeze {
        Some(Freeze::Call { function, over_ns }) => (Some(function), *over_ns, FreezeOn::Nothing),
        Some(Freeze::Event(event)) => (None, 0, *event),
        None => (None, 0, FreezeOn::Nothing),
    };
    if function.is_some() && over_ns < ns {
        return Err(
            Report::new("--freeze looks at a shorter time than --threshold")
                .help("calls below the threshold are not looked at: give a lower --threshold"),
        );
    }
    requested.push(Duration::Freeze {
        function: find(function)?,
        over: ticks(over_ns, &identity)?,
    });
    requested.push(Duration::FreezeOn(event));
    requested.push(Duration::Condition {
        from: find(args.from.as_ref())?,
        hit: args.hit,
        after: args.after,
        times: args.times,
    });
    let others = match calls.functions.is_empty() {
        true => Action::Record,
        false => Action::Skip,
    };
    if !calls.functions.is_empty() || !calls.hide.is_empty() || has_filter(live)? {
        requested.push(Duration::Filter(None, others));
    }
    for (wanted, action) in [
        (&calls.functions, Action::Record),
        (&calls.hide, Action::Skip),
    ] {
        for text in wanted {
            for Addr(address) in functions(text, symbols)? {
                requested.push(Duration::Filter(Some(address), action));
            }
        }
    }
    requested.push(Duration::On(true));
    Ok(requested.into_iter().map(Command::Duration).collect())
}

/// Refuses a target that has no duration mode.
pub fn check(identity: &Identity) -> Result<(), Report> {
    if identity.capabilities.duration {
        return Ok(());
    }
    Err(Report::new("this target has no duration mode").help(
        "link its program with a library that has it (`cargo xtask lib TARGET --parts duration,...`), and add \
         KYMO_DURATION to it; a program on Linux takes KYMO_THRESHOLD=100us from its environment when it starts",
    ))
}

/// Converts nanoseconds to ticks of a target's clock, rounded up.
fn ticks(ns: u64, identity: &Identity) -> Result<u64, Report> {
    let ticks = (u128::from(ns) * u128::from(identity.clock_hz)).div_ceil(1_000_000_000);
    let most = match identity.layout.word {
        kymo_wire::event::WordSize::Bits32 => u128::from(u32::MAX),
        kymo_wire::event::WordSize::Bits64 => u128::from(u64::MAX),
    };
    u64::try_from(ticks)
        .ok()
        .filter(|_| ticks <= most)
        .ok_or_else(|| {
            let longest = Ticks(most as u64).to_ns(identity.clock_hz);
            Report::new("the threshold is too long for the target's clock").help(format_args!(
                "at most {}",
                kymo_event::Duration(longest).with_unit()
            ))
        })
}

/// Returns the addresses of all functions that match an address, a name or a pattern.
fn functions(text: &str, symbols: &Symbols) -> Result<Vec<Addr>, Report> {
    let choice = FunctionChoice::new(text);
    if let FunctionChoice::Address(address) = choice {
        return Ok(vec![address]);
    }
    let named = symbols
        .functions()
        .filter(|function| choice.matches(None, function.name()));
    let addresses: Vec<_> = named.map(|function| function.address()).collect();
    if addresses.is_empty() {
        let report = Report::new(format_args!("there is no function {text}"));
        return Err(match symbols.is_empty() {
            true => report.help("no symbols are known: give the program's ELF file with --elf"),
            false => report.help(format_args!(
                "similar names: {}",
                symbols.similar(text).join(", ")
            )),
        });
    }
    Ok(addresses)
}

/// Whether the target has a filter of functions.
pub fn has_filter(live: &mut Live) -> Result<bool, Report> {
    says(live, "filter=1")
}

/// Whether the target is in duration mode.
pub fn is_on(live: &mut Live) -> Result<bool, Report> {
    says(live, "on=1")
}

/// Whether the target's status of its duration mode contains the word `wanted`.
fn says(live: &mut Live, wanted: &str) -> Result<bool, Report> {
    let reply = live.target.command(Command::Duration(Duration::Ask));
    let reply = reply.map_err(explain)?;
    Ok(reply.split(' ').any(|word| word == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_times_or_off() {
        assert_eq!(threshold("100us"), Ok(Threshold::From(100_000)));
        assert_eq!(threshold("0"), Ok(Threshold::From(0)));
        assert_eq!(threshold("1.5"), Ok(Threshold::From(1_500_000_000)));
        assert_eq!(threshold("off"), Ok(Threshold::Off));
        for wrong in ["", "x", "-1us"] {
            assert!(threshold(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_freeze_is_a_call_that_takes_long_or_an_event() {
        let isr = Freeze::Call {
            function: "uart_isr".to_owned(),
            over_ns: 50_000,
        };
        assert_eq!(freeze("uart_isr > 50us"), Ok(isr.clone()));
        assert_eq!(freeze("uart_isr>50us"), Ok(isr));
        for (text, event) in [
            ("marker == 7", FreezeOn::Marker(7)),
            ("marker==0xffffffff", FreezeOn::Marker(u32::MAX)),
            ("irq == 3", FreezeOn::Irq(3)),
        ] {
            assert_eq!(freeze(text), Ok(Freeze::Event(event)));
        }
        for wrong in [
            "",
            "uart_isr",
            "> 50us",
            "uart_isr >",
            "uart_isr > fast",
            "marker == x",
            "marker ==",
            "irq == 65536",
            "other == 1",
        ] {
            assert!(freeze(wrong).is_err(), "{wrong}");
        }
    }
}
