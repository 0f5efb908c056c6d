//! The command `duration`, which sets and queries duration mode, and its arguments.
//!
//! | arguments | meaning |
//! |---|---|
//! | (none) | query: `on=N threshold=TICKS depth=N cpu=N events=N stop_at=ADDRESS filter=N too_deep=N unmatched=N`, and what `freeze` and `condition` set |
//! | `on`, `off` | record each call as one record, at its end; or as entry and exit |
//! | `threshold TICKS` | do not record shorter calls |
//! | `depth N` | do not record calls below this many recorded or hidden calls; 0: no limit |
//! | `cpu on`, `cpu off` | compare the threshold with the time that a call's thread had a processor; or with wall time |
//! | `events on`, `events off` | record thread switches and interrupts in addition to the calls, or not |
//! | `stop_at ADDRESS` | entering this function turns recording off; 0: none |
//! | `freeze ADDRESS TICKS` | a call of this function that took longer turns recording off; 0: none |
//! | `freeze_on marker VALUE`, `freeze_on irq NUMBER`, `freeze_on nothing` | a marker of this value, or the start of this interrupt's handler, turns recording off; or neither |
//! | `condition FROM HIT AFTER [TIMES]` | these act only if called from `FROM` (0: from anywhere), at the `HIT`th such call, and turn recording off after `AFTER` more recorded calls; at most `TIMES` times (0: without limit), though it is turned on again |
//! | `filter ADDRESS ACTION` | action for calls of a function: `record`, `skip`, `below` (skipped with all below them) |
//! | `filter all ACTION` | action for calls of all functions |

use core::fmt;

use super::command::{CommandError, address, number, same, short};

/// Action for a function's calls in duration mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// The calls are recorded.
    Record = 0,
    /// The calls are not recorded, but their callees are.
    Skip = 1,
    /// Neither the calls nor anything below them is recorded.
    Below = 2,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Record, Self::Skip, Self::Below];

    /// Returns `record`, `skip` or `below`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Skip => "skip",
            Self::Below => "below",
        }
    }
}

/// An event that turns recording off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FreezeOn {
    /// No event.
    Nothing,
    /// A marker of this value.
    Marker(u32),
    /// The start of this interrupt's handler; the architecture's number.
    Irq(u16),
}

impl fmt::Display for FreezeOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Marker(value) => write!(f, "marker {value}"),
            Self::Irq(number) => write!(f, "irq {number}"),
        }
    }
}

/// Request of the command `duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duration {
    /// Queries the settings.
    Ask,
    /// Turns duration mode on or off.
    On(bool),
    /// Sets the minimum duration of a recorded call in ticks.
    Threshold(u64),
    /// Sets the deepest level of calls that is recorded; 0: all.
    Depth(u32),
    /// Selects whether the threshold is compared with the time that a call's thread had a processor.
    Cpu(bool),
    /// Selects whether thread switches and interrupts are recorded, too.
    Events(bool),
    /// Sets the function whose entry turns recording off; 0: none.
    StopAt(u64),
    /// A call of a function that took longer than this many ticks turns recording off; 0: none.
    Freeze {
        /// The function.
        function: u64,
        /// The ticks.
        over: u64,
    },
    /// Sets the event that turns recording off.
    FreezeOn(FreezeOn),
    /// Condition under which these, and [`StopAt`](Self::StopAt), act.
    Condition {
        /// The caller; 0: any.
        from: u64,
        /// The number of the call that counts.
        hit: u32,
        /// The number of further recorded calls after which recording is turned off.
        after: u32,
        /// How often recording is turned off at most, though it is turned on again; 0: unlimited.
        times: u16,
    },
    /// Sets the action for calls of a function; `None`: of all.
    Filter(Option<u64>, Action),
}

impl Duration {
    /// Parses the arguments of the command.
    pub(super) fn parse<'a>(
        mut words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, CommandError> {
        let Some(word) = words.next() else {
            return Ok(Self::Ask);
        };
        if same("on", word) || same("off", word) {
            return Ok(Self::On(same("on", word)));
        }
        let mut argument = || words.next().ok_or(CommandError::MissingArgument);
        Ok(if same("threshold", word) {
            Self::Threshold(number(argument()?)?)
        } else if same("depth", word) {
            Self::Depth(short(argument()?)?)
        } else if same("cpu", word) {
            Self::Cpu(switch(argument()?)?)
        } else if same("events", word) {
            Self::Events(switch(argument()?)?)
        } else if same("stop_at", word) {
            Self::StopAt(address(argument()?)?)
        } else if same("freeze", word) {
            Self::Freeze {
                function: address(argument()?)?,
                over: number(argument()?)?,
            }
        } else if same("freeze_on", word) {
            let word = argument()?;
            Self::FreezeOn(if same("marker", word) {
                FreezeOn::Marker(short(argument()?)?)
            } else if same("irq", word) {
                let irq = u16::try_from(number(argument()?)?);
                FreezeOn::Irq(irq.map_err(|_| CommandError::NotANumber)?)
            } else if same("nothing", word) {
                FreezeOn::Nothing
            } else {
                return Err(CommandError::Unknown);
            })
        } else if same("condition", word) {
            Self::Condition {
                from: address(argument()?)?,
                hit: short(argument()?)?,
                after: short(argument()?)?,
                times: match words.next() {
                    Some(times) => times_of(times)?,
                    None => 0,
                },
            }
        } else if same("filter", word) {
            let word = argument()?;
            let function = match same("all", word) {
                true => None,
                false => Some(address(word)?),
            };
            let name = argument()?;
            let mut actions = Action::ALL.into_iter();
            let action = actions.find(|action| same(action.name(), name));
            Self::Filter(function, action.ok_or(CommandError::NotAnAction)?)
        } else {
            return Err(CommandError::Unknown);
        })
    }
}

/// A number of times.
fn times_of(word: &[u8]) -> Result<u16, CommandError> {
    u16::try_from(number(word)?).map_err(|_| CommandError::NotANumber)
}

/// `on` or `off`.
fn switch(word: &[u8]) -> Result<bool, CommandError> {
    match same("on", word) {
        false if !same("off", word) => Err(CommandError::NotASwitch),
        on => Ok(on),
    }
}

/// The arguments of the command, with the space before them.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on| if on { "on" } else { "off" };
        match *self {
            Self::Ask => Ok(()),
            Self::On(on) => write!(f, " {}", switch(on)),
            Self::Threshold(ticks) => write!(f, " threshold {ticks}"),
            Self::Depth(depth) => write!(f, " depth {depth}"),
            Self::Cpu(on) => write!(f, " cpu {}", switch(on)),
            Self::Events(on) => write!(f, " events {}", switch(on)),
            Self::StopAt(function) => write!(f, " stop_at {function:#x}"),
            Self::Freeze { function, over } => write!(f, " freeze {function:#x} {over}"),
            Self::FreezeOn(event) => write!(f, " freeze_on {event}"),
            Self::Condition {
                from,
                hit,
                after,
                times,
            } => {
                write!(f, " condition {from:#x} {hit} {after}")?;
                // (Earlier targets do not know it.)
                match times {
                    0 => Ok(()),
                    times => write!(f, " {times}"),
                }
            }
            Self::Filter(Some(function), action) => {
                write!(f, " filter {function:#x} {}", action.name())
            }
            Self::Filter(None, action) => write!(f, " filter all {}", action.name()),
        }
    }
}
