//! The command `condition`, which sets and queries the conditions of trigger and stopper, and its arguments.
//!
//! | arguments | meaning |
//! |---|---|
//! | (none) | query: `trigger_from=ADDRESS trigger_end=ADDRESS trigger_hit=N trigger_times=N trigger_hits=N trigger_acted=N`, and the same for the stopper; `trigger_cold=ADDRESS` after the end if there is such a part |
//! | `trigger FROM END HIT TIMES` | the trigger acts if it is called from `FROM` up to `END` (0: from anywhere), from the `HIT`th such call on, at most `TIMES` times (0: without limit) |
//! | `trigger FROM END HIT TIMES COLD COLD_END` | likewise, with the code from `COLD` up to `COLD_END` as part of that at `FROM` |
//! | `stopper FROM END HIT TIMES` | likewise for the stopper |
//!
//! Calls are counted from the last command `trigger`, `stopper`, `once`, `condition` or `clear` on. The commands
//! `trigger` and `stopper` remove the conditions of their function.

use core::fmt;

use super::command::{CommandError, address, same, short};

/// Condition under which a trigger or stopper acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Start of the code that must contain the call; 0: any.
    pub from: u64,
    /// First address after that code.
    pub end: u64,
    /// First such call at which it acts, counted from 1; 0: the first, too.
    pub hit: u32,
    /// Maximum number of times it acts; 0: without limit.
    pub times: u32,
    /// The first address of another part of that code, which the compiler put elsewhere (GCC's `.cold`); 0: there is none.
    pub cold: u64,
    /// The first address behind that part.
    pub cold_end: u64,
}

/// Request of the command `condition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conditions {
    /// Queries the conditions.
    Ask,
    /// Sets the trigger's condition.
    Trigger(Condition),
    /// Sets the stopper's condition.
    Stopper(Condition),
}

impl Conditions {
    /// Parses the arguments of the command.
    pub(super) fn parse<'a>(
        mut words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, CommandError> {
        let Some(word) = words.next() else {
            return Ok(Self::Ask);
        };
        let mut argument = || words.next().ok_or(CommandError::MissingArgument);
        let mut condition = Condition {
            from: address(argument()?)?,
            end: address(argument()?)?,
            hit: short(argument()?)?,
            times: short(argument()?)?,
            ..Condition::default()
        };
        if let Some(cold) = words.next() {
            let end = words.next().ok_or(CommandError::MissingArgument)?;
            (condition.cold, condition.cold_end) = (address(cold)?, address(end)?);
        }
        if same("trigger", word) {
            Ok(Self::Trigger(condition))
        } else if same("stopper", word) {
            Ok(Self::Stopper(condition))
        } else {
            Err(CommandError::Unknown)
        }
    }
}

/// The arguments of the command, with the space before them.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, condition) = match self {
            Self::Ask => return Ok(()),
            Self::Trigger(condition) => ("trigger", condition),
            Self::Stopper(condition) => ("stopper", condition),
        };
        let Condition {
            from,
            end,
            hit,
            times,
            cold,
            cold_end,
        } = condition;
        write!(f, " {name} {from:#x} {end:#x} {hit} {times}")?;
        match cold {
            0 => Ok(()),
            _ => write!(f, " {cold:#x} {cold_end:#x}"),
        }
    }
}
