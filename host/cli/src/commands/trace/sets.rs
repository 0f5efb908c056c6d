//! Trigger and stopper of a target, with the conditions under which they act.

use std::process::ExitCode;

use kymo_event::Addr;
use kymo_symbols::{Function, Symbols};
use kymo_wire::link::{Command, Condition, Conditions, Identity};

use super::{Args, duration};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::CallChoice;
use crate::render::escape::escaped;
use crate::target::{Live, explain, one_function, set_text};

/// A trigger or stopper as given on the command line: a function, followed by a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// The function's name, its address, or `none`.
    pub function: &'a str,
    /// The function that must call it.
    from: Option<&'a str>,
    /// Number of the first such call at which it acts, from 1.
    hit: Option<u32>,
    /// Maximum number of times that it acts; 0 for no limit.
    times: Option<u32>,
}

impl<'a> Wanted<'a> {
    /// Parses `FUNCTION [from CALLER] [hit N] [times N]`, from the end, because names may contain spaces.
    ///
    /// # Errors
    /// When a number is invalid, or a word of the condition is repeated or misplaced.
    pub(super) fn parse(text: &'a str) -> Result<Self, Report> {
        let mut wanted = Self {
            function: text.trim(),
            from: None,
            hit: None,
            times: None,
        };
        while let Some((rest, key, value)) = last_two(wanted.function) {
            let again = match key {
                "from" => wanted.from.replace(value).is_some(),
                "hit" => wanted.hit.replace(number(value)?).is_some(),
                "times" => wanted.times.replace(number(value)?).is_some(),
                _ => break,
            };
            if again {
                return Err(Report::new(format_args!("{key} is given twice: {text}")));
            }
            wanted.function = rest;
        }
        let mut words = wanted.function.split_whitespace();
        let function = words.next().unwrap_or_default();
        match words.find(|word| KEYS.contains(word)) {
            Some(_) => Err(misplaced(text, function)),
            None => Ok(wanted),
        }
    }

    /// Whether it acts at every call: it has no condition.
    pub(super) const fn is_plain(&self) -> bool {
        self.from.is_none() && self.hit.is_none() && self.times.is_none()
    }

    /// Resolves the condition's function names to addresses, as the target needs them.
    fn condition(
        &self,
        symbols: &Symbols,
        identity: &Identity,
        context: &Context,
    ) -> Result<Condition, Report> {
        let ((from, end), (cold, cold_end)) = match self.from {
            None => ((0, 0), (0, 0)),
            Some(name) => {
                let address = one_function(symbols, name, identity, context)?;
                let function = symbols.function_at(address);
                let known = function.filter(|function| function.address() == address);
                let known = known.ok_or_else(|| {
                    Report::new(format_args!("where the function {name} ends is not known"))
                        .help("give the ELF file of the program that runs there with --elf")
                })?;
                (
                    (address.0, known.end().0),
                    cold_part(symbols, known, context),
                )
            }
        };
        // `hit N` without `times` means the Nth call alone.
        let once = if self.hit.is_some() { 1 } else { 0 };
        Ok(Condition {
            from,
            end,
            hit: self.hit.unwrap_or(0),
            times: self.times.unwrap_or(once),
            cold,
            cold_end,
        })
    }
}

/// Returns the address range (first, first behind) of a function's `.cold` part: seldom executed code that GCC places
/// elsewhere. (0, 0) if there is none, or if several functions or parts have the name.
fn cold_part(symbols: &Symbols, function: Function<'_>, context: &Context) -> (u64, u64) {
    let name = function.name();
    // As a symbol, and as a demangled name of C++.
    let colds = [format!("{name}.cold"), format!("{name} [clone .cold]")];
    let is_cold = |other: &str| {
        let numbered = other.strip_prefix(&*colds[0]);
        let digits = numbered.and_then(|rest| rest.strip_prefix('.'));
        colds.iter().any(|cold| cold == other)
            || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let parts: Vec<_> = symbols
        .functions()
        .filter(|other| is_cold(other.name()))
        .collect();
    let namesakes = symbols.functions().filter(|other| other.name() == name);
    match parts.as_slice() {
        [] => (0, 0),
        [one] if namesakes.count() == 1 => (one.address().0, one.end().0),
        several => {
            context.warn(format_args!(
                "calls from a part of {name} that the compiler put elsewhere do not count: there are several functions, or parts, \
                 of that name (the first is at {})",
                several[0].address()
            ));
            (0, 0)
        }
    }
}

/// Keywords of a condition.
const KEYS: [&str; 3] = ["from", "hit", "times"];

/// Report of a condition that has the right keywords in the wrong form.
fn misplaced(text: &str, function: &str) -> Report {
    let report = Report::new(format_args!(
        "expected FUNCTION [from CALLER] [hit N] [times N], found {text:?}"
    ));
    report.help(format_args!(
        "'{function} hit 3' is the third call alone, '{function} times 3' the first three, '{function} hit 3 times 2' the third and \
         the fourth"
    ))
}

/// Splits off the last two words.
fn last_two(text: &str) -> Option<(&str, &str, &str)> {
    let (rest, value) = text.rsplit_once(char::is_whitespace)?;
    let (rest, key) = rest.trim_end().rsplit_once(char::is_whitespace)?;
    Some((rest.trim_end(), key, value))
}

fn number(text: &str) -> Result<u32, Report> {
    text.parse().map_err(|_| {
        Report::new(format_args!("expected a number of calls, found {text:?}"))
            .help("`hit 3` and `times 2` have a number behind them, without a unit")
    })
}

/// Sets trigger, stopper and duration mode of the target; returns whether anything changed.
pub(super) fn set(
    args: &Args,
    calls: &CallChoice,
    live: &mut Live,
    symbols: &Symbols,
    context: &Context,
) -> Result<bool, Report> {
    let trigger = args.trigger.as_ref().or(args.couple.as_ref());
    let stopper = args.stopper.as_ref().or(args.couple.as_ref());
    // Both names are looked up before anything is changed.
    let identity = live.identity;
    let find = |text: Option<&String>| -> Result<_, Report> {
        let Some(text) = text else { return Ok(None) };
        let wanted = Wanted::parse(text)?;
        let function = one_function(symbols, wanted.function, &identity, context)?;
        if wanted.is_plain() {
            return Ok(Some((function, None)));
        }
        check(&identity)?;
        let condition = wanted.condition(symbols, &identity, context)?;
        Ok(Some((function, Some(condition))))
    };
    let (trigger, mut stopper) = (find(trigger)?, find(stopper)?);
    if let (Some(_), Some((_, condition))) = (&args.couple, &mut stopper) {
        // The condition selects the call that begins a round. The first return ends the round.
        *condition = None;
    }
    let duration = duration::commands(&args.duration, calls, live, symbols, context)?;
    if trigger.is_none() && stopper.is_none() && !args.once && duration.is_empty() {
        return Ok(false);
    }
    // In duration mode without a trigger, no call starts recording: the host starts it.
    let at_once = !duration.is_empty() && trigger.is_none() && !args.reboot;
    let was_once = live.target.sets().map_err(explain)?.once;
    let conditions = [
        trigger.and_then(|(_, condition)| condition.map(Conditions::Trigger)),
        stopper.and_then(|(_, condition)| condition.map(Conditions::Stopper)),
    ];
    // The recorder is disabled meanwhile: if the new trigger fired now, `clear` would delete what it started.
    let commands = [
        Some(Command::Disable),
        Some(Command::Off),
        trigger.map(|(Addr(address), _)| Command::Trigger(address)),
        stopper.map(|(Addr(address), _)| Command::Stopper(address)),
        (args.once != was_once).then_some(Command::Once(args.once)),
    ];
    let conditions = conditions.into_iter().flatten().map(Command::Condition);
    let mut send = |command: Command| {
        context.detail(format_args!("sending {command}"));
        live.target.command(command).map_err(explain)
    };
    let armed = commands
        .into_iter()
        .flatten()
        .chain(conditions)
        .chain(duration)
        .chain(Some(Command::Clear))
        .chain(at_once.then_some(Command::On))
        .try_for_each(|command| send(command).map(drop));
    // Sent even if another command failed: a target that stays disabled would look dead.
    let enabled = send(Command::Enable);
    armed.map_err(|report| {
        let report =
            report.help("trigger and stopper may be half changed: see `kymo trace --list`");
        match &enabled {
            Ok(_) => report,
            Err(_) => report.help("the target may be left disabled: `kymo command enable`"),
        }
    })?;
    enabled.map(|_| true).map_err(|report| {
        report.help("trigger and stopper are set, but the target may be left disabled: `kymo command enable`")
    })
}

/// Refuses conditions on targets that do not support them.
fn check(identity: &Identity) -> Result<(), Report> {
    if !identity.capabilities.conditions {
        let report = Report::new("trigger and stopper of this target take no from, hit or times");
        return Err(report.help(
            "link its program with a library that has the part: `cargo xtask lib TARGET --parts conditions,...`",
        ));
    }
    Ok(())
}

/// Lists trigger and stopper.
pub(super) fn list(
    live: &mut Live,
    symbols: &Symbols,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let sets = live.target.sets().map_err(explain)?;
    let answer = match live.identity.capabilities.conditions {
        true => {
            let requested = Command::Condition(Conditions::Ask);
            live.target.command(requested).map_err(explain)?
        }
        false => String::new(),
    };
    let (out, _) = context.out();
    for (name, function) in [("trigger", sets.trigger), ("stopper", sets.stopper)] {
        writeln!(
            out,
            "{name}: {}{}",
            escaped(&set_text(symbols, function)),
            escaped(&condition_text(&answer, name, symbols))
        )?;
    }
    if sets.once {
        writeln!(
            out,
            "once: when the stopper has returned the trigger does nothing"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the condition of the trigger or stopper from a target's answer; empty if it has none.
fn condition_text(answer: &str, name: &str, symbols: &Symbols) -> String {
    let find = |key: &str| {
        let words = answer.split(' ').filter_map(|word| word.split_once('='));
        let named = |word: &str| {
            word.strip_prefix(name)?
                .strip_prefix('_')
                .map(str::to_owned)
        };
        words
            .filter(|(word, _)| named(word).as_deref() == Some(key))
            .map(|(_, value)| value)
            .next()
    };
    let number = |key| find(key).and_then(|value| value.parse::<u64>().ok());
    let from =
        find("from").and_then(|value| u64::from_str_radix(value.strip_prefix("0x")?, 16).ok());
    let mut text = String::new();
    if let Some(from) = from.filter(|from| *from != 0) {
        let caller = symbols.function_at(Addr(from));
        let caller = caller.map_or_else(|| Addr(from).to_string(), |it| it.name().to_owned());
        text += &format!(" from {caller}");
    }
    let (hit, times) = (number("hit").unwrap_or(0), number("times").unwrap_or(0));
    if hit > 1 {
        text += &format!(" hit {hit}");
    }
    if times != 0 || hit > 1 {
        text += &format!(" times {times}");
    }
    if !text.is_empty() {
        let (hits, acted) = (number("hits").unwrap_or(0), number("acted").unwrap_or(0));
        text += &format!(" (called {hits}, acted {acted} so far)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_may_have_spaces_and_conditions_stand_behind_it() {
        let plain = Wanted {
            function: "operator new",
            from: None,
            hit: None,
            times: None,
        };
        assert_eq!(Wanted::parse("operator new").unwrap(), plain);
        assert!(plain.is_plain());
        let all = Wanted {
            from: Some("main"),
            hit: Some(3),
            times: Some(2),
            ..plain
        };
        for text in [
            "operator new from main hit 3 times 2",
            "  operator new  times 2\thit 3  from main ",
        ] {
            assert_eq!(Wanted::parse(text).unwrap(), all);
        }
        for misplaced in ["fib hit 3 times", "fib 3 times", "fib hit", "fib from"] {
            let help = format!("{:?}", Wanted::parse(misplaced).unwrap_err());
            assert!(
                help.contains("'fib hit 3' is the third call alone"),
                "{help}"
            );
        }
        for wrong in ["f hit x", "f times -1", "f hit 1 hit 2", "f hit 4294967296"] {
            assert!(Wanted::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_of_a_function_that_lies_elsewhere_is_the_functions() {
        let context = Context::new(crate::args::Color::Never, false);
        let part = |listing: &str| {
            let symbols = Symbols::from_text(listing).unwrap();
            let parse = symbols.function_at(Addr(0x1100)).unwrap();
            cold_part(&symbols, parse, &context)
        };
        let parse = "00001100 00000040 T parse\n";
        let other = "00001200 00000040 T other\n";
        assert_eq!(part(&format!("{parse}{other}")), (0, 0));
        for cold in ["parse.cold", "parse.cold.17"] {
            let found = part(&format!("{parse}{other}00001000 00000010 t {cold}\n"));
            assert_eq!(found, (0x1000, 0x1010), "{cold}");
        }
        let of_another = "00001000 00000010 t parse_all.cold\n";
        assert_eq!(part(&format!("{parse}{other}{of_another}")), (0, 0));
        // With two static functions of one name, the owner of the part is unknown.
        let twice = "00001300 00000040 t parse\n00001000 00000010 t parse.cold\n";
        assert_eq!(part(&format!("{parse}{twice}")), (0, 0));
    }

    #[test]
    fn what_a_target_answers_is_told_if_there_is_a_condition() {
        let symbols = Symbols::default();
        let answer = "trigger_from=0x0 trigger_end=0x0 trigger_hit=3 trigger_times=1 trigger_hits=5 trigger_acted=1 \
                      stopper_from=0x1100 stopper_end=0x1180 stopper_hit=0 stopper_times=0 stopper_hits=2 stopper_acted=2";
        assert_eq!(
            condition_text(answer, "trigger", &symbols),
            " hit 3 times 1 (called 5, acted 1 so far)"
        );
        assert_eq!(
            condition_text(answer, "stopper", &symbols),
            " from 0x1100 (called 2, acted 2 so far)"
        );
        assert_eq!(condition_text("", "trigger", &symbols), "");
        let none = answer.replace(['3', '1', '5'], "0");
        assert_eq!(condition_text(&none, "trigger", &symbols), "");
    }
}
