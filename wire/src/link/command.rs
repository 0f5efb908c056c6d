//! Commands of a host to a target.
//!
//! A command is one word, some with arguments, separated by spaces. It has the same form in a line typed at a terminal
//! and in a frame. Words are matched whole: no prefixes, no case folding.

use core::fmt;

use super::FLUSH_MS;
#[cfg(feature = "conditions")]
use super::condition::Conditions;
#[cfg(feature = "duration")]
use super::duration::Duration;

/// A parsed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `identify`: requests the [`Identity`](super::Identity).
    Identify,
    /// `ping`: requests the reply `pong`.
    Ping,
    /// `status`: requests the state of gate and buffer, as `key=value` words.
    Status,
    /// `reboot`: resets the target; no reply.
    Reboot,
    /// `enable`: enables recording.
    Enable,
    /// `disable`: disables recording until `enable`.
    Disable,
    /// `on`: turns recording on, without the trigger.
    On,
    /// `off`: turns recording off, until the trigger.
    Off,
    /// `listsets`: requests trigger and stopper.
    ListSets,
    /// `trigger ADDRESS`: sets the function whose entry turns recording on; 0 for none.
    Trigger(u64),
    /// `stopper ADDRESS`: sets the function whose exit turns recording off; 0 for none.
    Stopper(u64),
    /// `once on|off`: sets whether the trigger turns recording on only once, until `clear` or `trigger`.
    Once(bool),
    /// `mode overwrite|fixed|stream`: sets what happens when the buffer is full. Clears the buffer.
    Mode(Mode),
    /// `condition ...`: sets or queries the [`Conditions`] of trigger and stopper.
    #[cfg(feature = "conditions")]
    Condition(Conditions),
    /// `duration ...`: sets or queries [`Duration`] mode.
    #[cfg(feature = "duration")]
    Duration(Duration),
    /// `clear`: discards the recorded events and the profile table.
    Clear,
    /// `dump_trace`: requests all packets.
    DumpTrace,
    /// `dump_profile` or `dump_profiler`: requests the profile table.
    DumpProfile,
    /// `resend FIRST LAST`: requests these pieces of the current dump again.
    Resend {
        /// The number of the first piece.
        first: u32,
        /// The number of the last piece.
        last: u32,
    },
    /// `done`: ends the current dump, which has arrived.
    Done,
    /// `stream on [MS]`: requests packets when they are full, from now on, and every `MS` milliseconds the records in
    /// the newest packet ([`FLUSH_MS`] by default).
    StreamOn {
        /// The interval in milliseconds; 0: full packets only.
        flush_ms: u32,
    },
    /// `stream off`: requests everything recorded up to now, then ends the stream. Repeated until the reply says that
    /// it is over.
    StreamOff,
    /// `ack NUMBER`: acknowledges every piece of the current stream before this one. A reply is sent only if there is
    /// no stream.
    Ack(u32),
    /// `time`: requests the value of the clock. The reply is `ticks=N`.
    Time,
    /// `wall_clock TICKS NS UNCERTAINTY`: sends the wall-clock time `NS` at which the target's clock was `TICKS`. The
    /// target records the wall-clock time that results for the present.
    WallClock {
        /// The value of the target's clock.
        ticks: u64,
        /// Nanoseconds since 1970 UTC at that time.
        ns: u64,
        /// Uncertainty in nanoseconds, in either direction.
        uncertainty: u32,
    },
}

/// What happens when the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The oldest packet is overwritten.
    Overwrite,
    /// New events are counted, not kept.
    Fixed,
    /// As fixed, but a reader takes packets out while recording continues, and makes room for new ones.
    Stream,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Overwrite, Self::Fixed, Self::Stream];

    /// Returns `overwrite`, `fixed` or `stream`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Fixed => "fixed",
            Self::Stream => "stream",
        }
    }

    /// Parses a [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Error of a line that is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandError {
    /// The first word is not a command.
    Unknown,
    /// The command needs an argument, or another one.
    MissingArgument,
    /// The command has more arguments than it takes.
    ExtraArgument,
    /// The argument is not an address: hexadecimal digits, optionally after `0x`, of at most 64 bits.
    NotAnAddress,
    /// The argument is not a decimal number, or too large for its use (most have 32 bits).
    NotANumber,
    /// The argument is not a mode.
    NotAMode,
    /// The argument is neither `on` nor `off`.
    NotASwitch,
    /// The argument is not an action of a filter.
    #[cfg(feature = "duration")]
    NotAnAction,
    /// The address is wider than the target's.
    TooWide,
}

impl CommandError {
    /// Returns the target's reply.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unknown => "unknown command",
            Self::MissingArgument => "an argument is missing",
            Self::ExtraArgument => "too many arguments",
            Self::NotAnAddress => "expected an address in hexadecimal",
            Self::NotANumber => "expected a decimal number",
            Self::NotAMode => "expected overwrite, fixed or stream",
            Self::NotASwitch => "expected on or off",
            #[cfg(feature = "duration")]
            Self::NotAnAction => "expected record, skip or below",
            Self::TooWide => "the address does not fit this target",
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for CommandError {}

impl Command {
    /// Parses a line without its end. Returns `Ok(None)` for an empty line, or one of spaces.
    ///
    /// # Errors
    /// The error in the line.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, CommandError> {
        let mut words = line
            .split(|byte| *byte == b' ' || *byte == b'\t')
            .filter(|word| !word.is_empty());
        let Some(word) = words.next() else {
            return Ok(None);
        };
        let mut argument = || words.next().ok_or(CommandError::MissingArgument);
        let mut known = WORDS.iter();
        let (_, word) = known
            .find(|(known, _)| same(known, word))
            .ok_or(CommandError::Unknown)?;
        let command = match word {
            Word::Identify => Self::Identify,
            Word::Ping => Self::Ping,
            Word::Status => Self::Status,
            Word::Reboot => Self::Reboot,
            Word::Enable => Self::Enable,
            Word::Disable => Self::Disable,
            Word::On => Self::On,
            Word::Off => Self::Off,
            Word::ListSets => Self::ListSets,
            Word::Clear => Self::Clear,
            Word::DumpTrace => Self::DumpTrace,
            Word::DumpProfile => Self::DumpProfile,
            Word::Done => Self::Done,
            Word::Time => Self::Time,
            Word::Trigger => Self::Trigger(address(argument()?)?),
            Word::Stopper => Self::Stopper(address(argument()?)?),
            Word::Mode => {
                let name = argument()?;
                let mut modes = Mode::ALL.into_iter();
                let mode = modes.find(|mode| same(mode.name(), name));
                Self::Mode(mode.ok_or(CommandError::NotAMode)?)
            }
            #[cfg(feature = "conditions")]
            Word::Condition => Self::Condition(Conditions::parse(&mut words)?),
            #[cfg(feature = "duration")]
            Word::Duration => Self::Duration(Duration::parse(&mut words)?),
            Word::Once => {
                let word = argument()?;
                match same("on", word) {
                    false if !same("off", word) => return Err(CommandError::NotASwitch),
                    on => Self::Once(on),
                }
            }
            Word::Resend => Self::Resend {
                first: short(argument()?)?,
                last: short(argument()?)?,
            },
            Word::Stream => {
                let word = argument()?;
                if same("off", word) {
                    Self::StreamOff
                } else if same("on", word) {
                    let flush_ms = match argument() {
                        Ok(word) => short(word)?,
                        Err(_) => FLUSH_MS,
                    };
                    Self::StreamOn { flush_ms }
                } else {
                    return Err(CommandError::NotASwitch);
                }
            }
            Word::Ack => Self::Ack(short(argument()?)?),
            Word::WallClock => Self::WallClock {
                ticks: number(argument()?)?,
                ns: number(argument()?)?,
                uncertainty: short(argument()?)?,
            },
        };
        match words.next() {
            None => Ok(Some(command)),
            Some(_) => Err(CommandError::ExtraArgument),
        }
    }
}

/// The command as a line without its end, as [`Command::parse`] reads it.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identify => "identify",
            Self::Ping => "ping",
            Self::Status => "status",
            Self::Reboot => "reboot",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::On => "on",
            Self::Off => "off",
            Self::ListSets => "listsets",
            Self::Trigger(address) => return write!(f, "trigger {address:#x}"),
            Self::Stopper(address) => return write!(f, "stopper {address:#x}"),
            Self::Once(true) => "once on",
            Self::Once(false) => "once off",
            Self::Mode(mode) => return write!(f, "mode {}", mode.name()),
            #[cfg(feature = "conditions")]
            Self::Condition(conditions) => return write!(f, "condition{conditions}"),
            #[cfg(feature = "duration")]
            Self::Duration(duration) => return write!(f, "duration{duration}"),
            Self::Clear => "clear",
            Self::DumpTrace => "dump_trace",
            Self::DumpProfile => "dump_profile",
            Self::Resend { first, last } => return write!(f, "resend {first} {last}"),
            Self::Done => "done",
            Self::StreamOn { flush_ms } => return write!(f, "stream on {flush_ms}"),
            Self::StreamOff => "stream off",
            Self::Ack(number) => return write!(f, "ack {number}"),
            Self::Time => "time",
            Self::WallClock {
                ticks,
                ns,
                uncertainty,
            } => return write!(f, "wall_clock {ticks} {ns} {uncertainty}"),
        })
    }
}

pub(super) fn address(word: &[u8]) -> Result<u64, CommandError> {
    let digits = word
        .strip_prefix(b"0x")
        .or_else(|| word.strip_prefix(b"0X"))
        .unwrap_or(word);
    let mut value = 0u64;
    if digits.is_empty() {
        return Err(CommandError::NotAnAddress);
    }
    for &digit in digits {
        let digit = (digit as char)
            .to_digit(16)
            .ok_or(CommandError::NotAnAddress)?;
        if value >> 60 != 0 {
            return Err(CommandError::NotAnAddress);
        }
        value = value << 4 | u64::from(digit);
    }
    Ok(value)
}

/// Parses a decimal number.
#[inline(never)]
pub(super) fn number(word: &[u8]) -> Result<u64, CommandError> {
    let mut value = 0u64;
    for &digit in word {
        let digit = digit.wrapping_sub(b'0');
        // Ten times a larger value would overflow.
        if digit > 9 || value > u64::MAX / 10 {
            return Err(CommandError::NotANumber);
        }
        value = (value * 10)
            .checked_add(digit.into())
            .ok_or(CommandError::NotANumber)?;
    }
    Ok(value)
}

/// Parses a decimal number of 32 bits.
#[inline(never)]
pub(super) fn short(word: &[u8]) -> Result<u32, CommandError> {
    u32::try_from(number(word)?).map_err(|_| CommandError::NotANumber)
}

/// Returns whether these are equal. (The comparison of slices would link another function.)
#[inline(never)]
pub(super) fn same(one: &str, other: &[u8]) -> bool {
    let one = one.as_bytes();
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one == other)
}

/// First word of a command. (A table of commands with their arguments would take three times as much of a
/// microcontroller's flash.)
#[derive(Clone, Copy)]
enum Word {
    Identify,
    Ping,
    Status,
    Reboot,
    Enable,
    Disable,
    On,
    Off,
    ListSets,
    Clear,
    DumpTrace,
    DumpProfile,
    Done,
    Time,
    Trigger,
    Stopper,
    Once,
    Mode,
    Resend,
    Stream,
    Ack,
    WallClock,
    #[cfg(feature = "conditions")]
    Condition,
    #[cfg(feature = "duration")]
    Duration,
}

/// Number of first words.
const COUNT: usize =
    23 + cfg!(feature = "conditions") as usize + cfg!(feature = "duration") as usize;

/// All first words.
const WORDS: [(&str, Word); COUNT] = [
    ("identify", Word::Identify),
    ("ping", Word::Ping),
    ("status", Word::Status),
    ("reboot", Word::Reboot),
    ("enable", Word::Enable),
    ("disable", Word::Disable),
    ("on", Word::On),
    ("off", Word::Off),
    ("listsets", Word::ListSets),
    ("trigger", Word::Trigger),
    ("stopper", Word::Stopper),
    ("once", Word::Once),
    ("mode", Word::Mode),
    ("clear", Word::Clear),
    ("dump_trace", Word::DumpTrace),
    ("dump_profile", Word::DumpProfile),
    ("dump_profiler", Word::DumpProfile),
    ("resend", Word::Resend),
    ("done", Word::Done),
    ("stream", Word::Stream),
    ("ack", Word::Ack),
    ("time", Word::Time),
    ("wall_clock", Word::WallClock),
    #[cfg(feature = "conditions")]
    ("condition", Word::Condition),
    #[cfg(feature = "duration")]
    ("duration", Word::Duration),
];

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::super::duration::Action;
    use super::*;
    use crate::link::{Condition, FreezeOn};

    #[test]
    fn every_command_reads_back() {
        for command in [
            Command::Identify,
            Command::Ping,
            Command::Status,
            Command::Reboot,
            Command::Enable,
            Command::Disable,
            Command::On,
            Command::Off,
            Command::Once(true),
            Command::Once(false),
            Command::ListSets,
            Command::Trigger(0x2000_0001),
            Command::Stopper(u64::MAX),
            Command::Mode(Mode::Overwrite),
            Command::Mode(Mode::Fixed),
            Command::Mode(Mode::Stream),
            Command::Clear,
            Command::DumpTrace,
            Command::DumpProfile,
            Command::Resend {
                first: 0,
                last: u32::MAX,
            },
            Command::Done,
            Command::StreamOn { flush_ms: 250 },
            Command::StreamOff,
            Command::Ack(u32::MAX),
            Command::Condition(Conditions::Ask),
            Command::Condition(Conditions::Trigger(Condition {
                from: 0x800_0100,
                end: 0x800_0180,
                hit: 3,
                times: 1,
                cold: 0x800_0020,
                cold_end: 0x800_0030,
            })),
            Command::Condition(Conditions::Stopper(Condition {
                from: 0,
                end: 0,
                hit: u32::MAX,
                times: 0,
                cold: 0,
                cold_end: 0,
            })),
            Command::Duration(Duration::Ask),
            Command::Duration(Duration::On(true)),
            Command::Duration(Duration::On(false)),
            Command::Duration(Duration::Threshold(u64::MAX)),
            Command::Duration(Duration::Depth(8)),
            Command::Duration(Duration::Cpu(true)),
            Command::Duration(Duration::Events(false)),
            Command::Duration(Duration::Freeze {
                function: 0x800_0100,
                over: 1250,
            }),
            Command::Duration(Duration::Condition {
                from: 0,
                hit: 3,
                after: 200,
                times: 0,
            }),
            Command::Duration(Duration::Condition {
                from: 0x800_0100,
                hit: 0,
                after: 0,
                times: u16::MAX,
            }),
            Command::Duration(Duration::StopAt(0x800_0101)),
            Command::Duration(Duration::FreezeOn(FreezeOn::Nothing)),
            Command::Duration(Duration::FreezeOn(FreezeOn::Marker(u32::MAX))),
            Command::Duration(Duration::FreezeOn(FreezeOn::Irq(3))),
            Command::Duration(Duration::Filter(None, Action::Skip)),
            Command::Duration(Duration::Filter(Some(0x800_0100), Action::Below)),
            Command::Time,
            Command::WallClock {
                ticks: u64::MAX,
                ns: 1_792_600_000_000_000_000,
                uncertainty: 150_000,
            },
        ] {
            let line = command.to_string();
            assert_eq!(Command::parse(line.as_bytes()), Ok(Some(command)));
            let longer = std::format!(" {line}  x");
            // These take some.
            let error = match command {
                Command::Duration(Duration::Ask) => CommandError::Unknown,
                Command::Duration(Duration::Condition { times: 0, .. }) => CommandError::NotANumber,
                Command::Condition(Conditions::Ask | Conditions::Stopper(_)) => {
                    CommandError::MissingArgument
                }
                _ => CommandError::ExtraArgument,
            };
            assert_eq!(Command::parse(longer.as_bytes()), Err(error));
        }
        assert_eq!(
            Command::parse(b"stream on"),
            Ok(Some(Command::StreamOn { flush_ms: FLUSH_MS }))
        );
        assert_eq!(
            Command::parse(b"dump_profiler"),
            Ok(Some(Command::DumpProfile))
        );
    }

    #[test]
    fn nothing_happens_by_accident() {
        assert_eq!(Command::parse(b""), Ok(None));
        assert_eq!(Command::parse(b"  \t"), Ok(None));
        for (line, error) in [
            (&b"r"[..], CommandError::Unknown),
            (b"reboo", CommandError::Unknown),
            (b"REBOOT", CommandError::Unknown),
            (b"trigger", CommandError::MissingArgument),
            (b"trigger x", CommandError::NotAnAddress),
            (b"trigger 0x", CommandError::NotAnAddress),
            (b"trigger -1", CommandError::NotAnAddress),
            (b"trigger 10000000000000000", CommandError::NotAnAddress),
            (b"condition trigger 0 0 1", CommandError::MissingArgument),
            (b"condition tracer 0 0 1 1", CommandError::Unknown),
            (b"mode ring", CommandError::NotAMode),
            (b"resend 1", CommandError::MissingArgument),
            (b"resend 1 4294967296", CommandError::NotANumber),
            (b"stream", CommandError::MissingArgument),
            (b"stream of", CommandError::NotASwitch),
            (b"stream on soon", CommandError::NotANumber),
            (
                b"wall_clock 1 18446744073709551616 0",
                CommandError::NotANumber,
            ),
            (b"wall_clock 1 2 4294967296", CommandError::NotANumber),
        ] {
            assert_eq!(Command::parse(line), Err(error), "{line:?}");
        }
    }
}
