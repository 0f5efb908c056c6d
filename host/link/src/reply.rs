//! Parser for replies: `key=value` words.
//!
//! Unknown words are ignored, so that an older host understands a newer target. A missing required word is an error.

use std::fmt;
use std::str::FromStr;

use kymo_event::Addr;
use kymo_wire::link::{Fault, Mode};

/// Error for a reply that lacks required content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct ReplyError {
    /// What the reply should hold.
    pub expected: String,
    /// The reply.
    pub found: String,
}

/// The words of a reply.
pub(crate) struct Words<'a>(pub(crate) &'a str);

impl<'a> Words<'a> {
    /// The value of `key`, if it is there.
    fn find(&self, key: &str) -> Option<&'a str> {
        self.0
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The value of `key`, which must be present and accepted by `parse`.
    fn get<T>(
        &self,
        key: &str,
        kind: &str,
        parse: impl Fn(&'a str) -> Option<T>,
    ) -> Result<T, ReplyError> {
        self.find(key).and_then(parse).ok_or_else(|| ReplyError {
            expected: format!("{key}=<{kind}>"),
            found: self.0.to_owned(),
        })
    }

    /// The value of `key` as a number.
    pub(crate) fn number(&self, key: &str) -> Result<u64, ReplyError> {
        self.get(key, "number", |value| value.parse().ok())
    }

    /// The value of `key` as a truth value.
    fn flag(&self, key: &str) -> Result<bool, ReplyError> {
        self.get(key, "0 or 1", |value| match value {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
    }

    /// The value of `key` as an address; 0 is none.
    fn address(&self, key: &str) -> Result<Option<Addr>, ReplyError> {
        self.get(key, "hexadecimal address", |value| {
            let digits = value.strip_prefix("0x")?;
            let address = u64::from_str_radix(digits, 16).ok()?;
            Some((address != 0).then_some(Addr(address)))
        })
    }
}

/// State of a target's gate and buffer: the reply to `status`.
///
/// Bytes and counts are since the last `clear` (or start). With several streams, counts are sums, and byte counts are
/// those of the stream that needs most: each has its own buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether events may be recorded at all.
    pub enabled: bool,
    /// Whether they are recorded now (between trigger and stopper, or by command).
    pub on: bool,
    /// What happens when the buffer is full.
    pub mode: Mode,
    /// Bytes of the buffer that contain events.
    pub used: u64,
    /// Bytes that everything recorded so far would need: more than the buffer's size if not everything could be kept.
    pub needed: u64,
    /// Bytes of packets recorded.
    pub bytes: u64,
    /// Events that could not be recorded.
    pub discarded: u64,
    /// Packets in the buffer.
    pub packets: u64,
    /// Functions in the profile table, if there is one.
    pub functions: Option<u64>,
    /// Capacity of the profile table in functions, if there is one.
    pub slots: Option<u64>,
    /// Calls for which the profile table had no slot, if there is one.
    pub no_slot: Option<u64>,
    /// Frames and lines that arrived at the target damaged.
    pub damaged: u64,
    /// Bytes from the host that the target had no room for, if reported.
    pub lost_bytes: Option<u64>,
    /// Hooks that were called from inside a hook and therefore not recorded, if reported.
    pub refused: Option<u64>,
    /// The function of the last of these, if reported.
    pub refused_function: Option<Addr>,
    /// Threads whose open calls of the stopper are not followed any more because more called it than can be followed, if
    /// reported.
    pub stopper_displaced: Option<u64>,
    /// The thread that recording waits for to leave the stopper (0: the program reports no threads), and for how many
    /// ticks of the clock it has been seen there; if reported, and there is one.
    pub within_stopper: Option<(u64, u64)>,
    /// In a single shot, whether it has ended.
    pub spent: Option<bool>,
    /// How often the target's clock went back, if reported.
    pub backward: Option<u64>,
    /// Why the recorder could not be set up, as the target reports it: one word ([`Fault::name`]); older targets may
    /// use another.
    pub error: Option<String>,
    /// The configuration value that is wrong in this case, if reported.
    pub error_value: Option<u64>,
}

impl Status {
    /// Why the recorder could not be set up, with the rule that its configuration breaks if the word is known.
    pub fn set_up_error(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        let rule =
            Fault::from_name(error).map_or(String::new(), |fault| format!(": {}", fault.rule()));
        Some(match self.error_value {
            // An address is larger than any number here.
            Some(value) if value > 1 << 24 => format!("{error} is {value:#x}{rule}"),
            // These faults have no value.
            Some(0) if matches!(error, "no_clock" | "unprivileged") => format!("{error}{rule}"),
            Some(value) => format!("{error} is {value}{rule}"),
            None => format!("{error}{rule}"),
        })
    }
}

impl FromStr for Status {
    type Err = ReplyError;

    /// Parses the text of a reply to `status`.
    fn from_str(text: &str) -> Result<Self, ReplyError> {
        // The reason may be a sentence, and is last.
        let (text, error) = match text.split_once(" error=") {
            Some((text, error)) => (text, Some(error)),
            None => (text, None),
        };
        let (error, error_value) = match error.and_then(|error| error.split_once(" value=")) {
            Some((error, value)) => (Some(error), value.trim_end().parse().ok()),
            None => (error, None),
        };
        let error = error.map(str::to_owned);
        let words = Words(text);
        let optional = |key| words.find(key).map(|_| words.number(key)).transpose();
        Ok(Self {
            enabled: words.flag("enabled")?,
            on: words.flag("on")?,
            mode: words.get("mode", "overwrite, fixed or stream", Mode::from_name)?,
            used: words.number("used")?,
            needed: words.number("needed")?,
            bytes: words.number("bytes")?,
            discarded: words.number("discarded")?,
            packets: words.number("packets")?,
            functions: optional("functions")?,
            slots: optional("slots")?,
            no_slot: optional("no_slot")?,
            damaged: words.number("damaged")?,
            lost_bytes: optional("lost_bytes")?,
            refused: optional("refused")?,
            refused_function: words
                .find("refused_function")
                .and_then(|_| words.address("refused_function").transpose())
                .transpose()?,
            stopper_displaced: optional("stopper_displaced")?,
            within_stopper: optional("stopper_ticks")?
                .map(|ticks| {
                    Ok((
                        words.address("stopper_thread")?.unwrap_or_default().0,
                        ticks,
                    ))
                })
                .transpose()?,
            spent: words
                .find("spent")
                .map(|_| words.flag("spent"))
                .transpose()?,
            backward: optional("backward")?,
            error,
            error_value,
        })
    }
}

/// Trigger and stopper: the reply to `listsets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sets {
    /// The function whose entry turns recording on.
    pub trigger: Option<Addr>,
    /// The function whose exit turns recording off.
    pub stopper: Option<Addr>,
    /// Single shot: after the stopper has returned, the trigger has no effect.
    pub once: bool,
}

impl FromStr for Sets {
    type Err = ReplyError;

    /// Parses the text of a reply to `listsets`.
    fn from_str(text: &str) -> Result<Self, ReplyError> {
        let words = Words(text);
        Ok(Self {
            trigger: words.address("trigger")?,
            stopper: words.address("stopper")?,
            once: words.find("once") == Some("1"),
        })
    }
}

/// Writes the target's format.
impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |address: Option<Addr>| address.unwrap_or_default();
        write!(
            f,
            "trigger={} stopper={}",
            or_none(self.trigger),
            or_none(self.stopper)
        )?;
        f.write_str(if self.once { " once=1" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "enabled=1 on=0 mode=fixed used=10 needed=20 bytes=93 discarded=4 \
                          packets=5 functions=6 slots=7 no_slot=8 damaged=9 future=x";

    #[test]
    fn a_status_is_read_and_what_lacks_is_named() {
        let status: Status = STATUS.parse().unwrap();
        assert!(status.enabled && !status.on);
        assert_eq!(status.mode, Mode::Fixed);
        assert_eq!((status.used, status.needed), (10, 20));
        assert_eq!(status.slots, Some(7));
        assert_eq!((status.refused, status.error), (None, None));
        let failed = format!("{STATUS} refused=3 error=the buffer is too small");
        let status: Status = failed.parse().unwrap();
        assert_eq!(status.refused, Some(3));
        assert_eq!(status.error.as_deref(), Some("the buffer is too small"));
        let failed = format!("{STATUS} refused=3 error=packet_size value=500");
        let status: Status = failed.parse().unwrap();
        assert_eq!(status.error.as_deref(), Some("packet_size"));
        assert_eq!(status.error_value, Some(500));
        assert_eq!(
            status.set_up_error().as_deref(),
            Some("packet_size is 500: must be a multiple of 8, from 128 to 524288")
        );
        let inner = format!("{STATUS} refused=3 refused_function=0x100 once=1 spent=1");
        let status: Status = inner.parse().unwrap();
        assert_eq!(status.refused_function, Some(Addr(0x100)));
        assert_eq!(status.spent, Some(true));
        let within = format!("{STATUS} stopper_thread=0x5000 stopper_ticks=77");
        let status: Status = within.parse().unwrap();
        assert_eq!(status.within_stopper, Some((0x5000, 77)));
        let without = STATUS.replace("slots=7 ", "");
        assert_eq!(without.parse::<Status>().unwrap().slots, None);
        for (from, to, expected) in [
            ("on=0", "on=2", "on=<0 or 1>"),
            ("used=10 ", "", "used=<number>"),
            ("slots=7", "slots=-7", "slots=<number>"),
        ] {
            let error = STATUS.replace(from, to).parse::<Status>().unwrap_err();
            assert_eq!(error.expected, expected);
        }
    }

    #[test]
    fn sets_read_back() {
        let sets: Sets = "trigger=0x8000100 stopper=0x0".parse().unwrap();
        assert_eq!(sets.trigger, Some(Addr(0x0800_0100)));
        assert_eq!(sets.stopper, None);
        assert_eq!(sets.to_string(), "trigger=0x8000100 stopper=0x0");
        let text = "trigger=0x8000100 stopper=0x8000100 once=1";
        let once: Sets = text.parse().unwrap();
        assert!(once.once && !sets.once);
        assert_eq!(once.to_string(), text);
        assert!("trigger=8000100 stopper=0x0".parse::<Sets>().is_err());
    }
}
