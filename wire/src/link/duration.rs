//! What a host can ask of duration mode: the command `duration`, and the words behind it.
//!
//! | words | what |
//! |---|---|
//! | (none) | how is it set? `on=N threshold=TICKS depth=N cpu=N events=N stop_at=ADDRESS filter=N too_deep=N unmatched=N` |
//! | `on`, `off` | calls are recorded as one record each, at their ends; or as entries and exits |
//! | `threshold TICKS` | what took less is not recorded |
//! | `depth N` | nor what stands below so many recorded or hidden calls; 0: no limit |
//! | `cpu on`, `cpu off` | the threshold compares the time that a call's thread had a processor; or wall time |
//! | `events on`, `events off` | thread switches and interrupts are recorded beside the calls, or not |
//! | `stop_at ADDRESS` | entering this function turns recording off; 0: none does |
//! | `freeze ADDRESS TICKS` | a call of this function that took longer turns recording off; 0: none does |
//! | `freeze_on marker VALUE`, `freeze_on irq NUMBER`, `freeze_on nothing` | a marker of this value, or the beginning of this interrupt's handler, turns recording off; or neither does |
//! | `condition FROM HIT AFTER` | all these count if called from there (0: from anywhere), the so manieth time, and turn recording off so many recorded calls later |
//! | `filter ADDRESS ACTION` | what becomes of calls of a function: `record`, `skip`, `below` (skipped with all below them) |
//! | `filter all ACTION` | the same of all functions |

use core::fmt;

use super::command::{CommandError, address, number, same, short};

/// What becomes of a function's calls in duration mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// They are recorded.
    Record = 0,
    /// They are not; what they call is.
    Skip = 1,
    /// Neither they are nor anything below them.
    Below = 2,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Record, Self::Skip, Self::Below];

    /// `record`, `skip` or `below`.
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
    /// None does.
    Nothing,
    /// A marker of this value.
    Marker(u32),
    /// The handler of this interrupt begins, as the architecture counts.
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

/// What is asked of duration mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duration {
    /// How is it set?
    Ask,
    /// Calls are recorded so, or not.
    On(bool),
    /// Ticks from which on a call is recorded.
    Threshold(u64),
    /// The last level of calls that is recorded; 0: all.
    Depth(u32),
    /// The threshold compares the time that a call's thread had a processor.
    Cpu(bool),
    /// Thread switches and interrupts are recorded, too.
    Events(bool),
    /// The function whose entry turns recording off; 0: none.
    StopAt(u64),
    /// A call of a function that took longer than so many ticks turns recording off; 0: none does.
    Freeze {
        /// The function.
        function: u64,
        /// The ticks.
        over: u64,
    },
    /// An event turns recording off.
    FreezeOn(FreezeOn),
    /// When these, and [`StopAt`](Self::StopAt), count.
    Condition {
        /// If they are called from here; 0: from anywhere.
        from: u64,
        /// The so manieth time.
        hit: u32,
        /// And turn recording off when so many calls more have been recorded.
        after: u32,
    },
    /// What becomes of calls of a function; `None`: of all.
    Filter(Option<u64>, Action),
}

impl Duration {
    /// Parses the words behind the command's first.
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

/// `on` or `off`.
fn switch(word: &[u8]) -> Result<bool, CommandError> {
    match same("on", word) {
        false if !same("off", word) => Err(CommandError::NotASwitch),
        on => Ok(on),
    }
}

/// The words behind the command's first, with the space before them.
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
            Self::Condition { from, hit, after } => {
                write!(f, " condition {from:#x} {hit} {after}")
            }
            Self::Filter(Some(function), action) => {
                write!(f, " filter {function:#x} {}", action.name())
            }
            Self::Filter(None, action) => write!(f, " filter all {}", action.name()),
        }
    }
}
