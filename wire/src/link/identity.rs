//! Identity of a target: its reply to `identify`.
//!
//! One line of text, so that a person can read it, and so that a host can query any device without sending harmful
//! bytes:
//!
//! ```text
//! kymo identify: protocol=3 word=32 order=le shape=compact shift=1 clock_hz=25000000 clock_bits=32
//!   buffer=65536 packet=1024 streams=1 mode=overwrite text_base=0x0 caps=trace,profile
//!   build_id=6f12... #1c291ca3
//! ```
//!
//! (on one line). After `#` comes the CRC-32 of everything before it, from the `k` to the space before `#`: if a
//! console wrote into the middle of the line, the host asks again. A host ignores words that it does not know.

use core::fmt;

use super::command::Mode;
use super::crc::crc32;
use super::text::Text;
use crate::event::{ByteOrder, Layout, Shape, WordSize};

/// Start of the line.
pub const PREFIX: &str = "kymo identify:";

/// Maximum length of the line, without its end.
pub const MAX_LINE: usize = 384;

/// Capabilities of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Records events.
    pub trace: bool,
    /// Keeps a profile table.
    pub profile: bool,
    /// Can reboot by command.
    pub reboot: bool,
    /// Trigger and stopper survive a reboot.
    pub retained: bool,
    /// A periodic tick secures the clock's extension to 64 bits, or the clock needs none.
    pub sure_clock: bool,
    /// Can stream.
    pub stream: bool,
    /// Has duration mode.
    pub duration: bool,
    /// Supports conditions of trigger and stopper.
    pub conditions: bool,
}

/// Names of the capabilities on the wire, in the order of the fields.
const NAMES: [&str; CAPABILITIES] = [
    "trace",
    "profile",
    "reboot",
    "retained",
    "sure_clock",
    "stream",
    #[cfg(feature = "duration")]
    "duration",
    #[cfg(feature = "conditions")]
    "conditions",
];

/// Number of capabilities: a target without the last two parts does not know their names.
const CAPABILITIES: usize =
    6 + cfg!(feature = "duration") as usize + cfg!(feature = "conditions") as usize;

impl Capabilities {
    fn flags(self) -> [bool; CAPABILITIES] {
        [
            self.trace,
            self.profile,
            self.reboot,
            self.retained,
            self.sure_clock,
            self.stream,
            #[cfg(feature = "duration")]
            self.duration,
            #[cfg(feature = "conditions")]
            self.conditions,
        ]
    }

    fn parse(words: &str) -> Self {
        let has = |name| words.split(',').any(|word| word == name);
        Self {
            trace: has(NAMES[0]),
            profile: has(NAMES[1]),
            reboot: has(NAMES[2]),
            retained: has(NAMES[3]),
            sure_clock: has(NAMES[4]),
            stream: has(NAMES[5]),
            duration: cfg!(feature = "duration") && has("duration"),
            conditions: cfg!(feature = "conditions") && has("conditions"),
        }
    }
}

/// A target's reply to `identify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The version of the link protocol ([`PROTOCOL`](super::PROTOCOL)).
    pub protocol: u32,
    /// The layout of its packets.
    pub layout: Layout,
    /// Frequency of its clock in ticks per second.
    pub clock_hz: u64,
    /// Width of the clock's counter in bits.
    pub clock_bits: u32,
    /// Size of one stream's buffer in bytes.
    pub buffer_bytes: u32,
    /// Size of a packet in bytes.
    pub packet_bytes: u32,
    /// Number of streams that can record (CPUs, or threads of a Linux process).
    pub streams: u32,
    /// What happens when the buffer is full.
    pub mode: Mode,
    /// The run-time address of `function` 0.
    pub text_base: u64,
    /// The target's capabilities.
    pub capabilities: Capabilities,
    /// The build id of the program, and the number of its bytes.
    pub build_id: ([u8; 32], usize),
}

impl Identity {
    /// Returns the build id of the program; empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        self.build_id.0.get(..self.build_id.1).unwrap_or(&[])
    }

    /// Finds the identity in a line, possibly after other text; `None` if it is missing, or if something wrote into it.
    pub fn parse(line: &str) -> Option<Self> {
        let line = &line[line.rfind(PREFIX)?..];
        let (body, crc) = line.rsplit_once('#')?;
        let crc = u32::from_str_radix(crc.trim_end(), 16).ok()?;
        if crc != crc32(body.trim_end_matches(' ').as_bytes()) {
            return None;
        }
        let field = |name: &str| {
            body.split(' ').find_map(|word| {
                word.split_once('=')
                    .filter(|(key, _)| *key == name)
                    .map(|(_, value)| value)
            })
        };
        let number = |name: &str| field(name)?.parse::<u32>().ok();
        let mut build_id = ([0; 32], 0);
        for pair in field("build_id").unwrap_or("").as_bytes().chunks(2) {
            let pair = core::str::from_utf8(pair).ok()?;
            *build_id.0.get_mut(build_id.1)? = u8::from_str_radix(pair, 16).ok()?;
            build_id.1 += 1;
        }
        Some(Self {
            protocol: number("protocol")?,
            layout: Layout {
                shape: Shape::from_name(field("shape")?)?,
                word: WordSize::from_bits(number("word")?)?,
                order: ByteOrder::from_name(field("order")?)?,
                function_shift: field("shift")?.parse().ok().filter(|shift| *shift < 8)?,
            },
            clock_hz: field("clock_hz")?.parse().ok()?,
            clock_bits: number("clock_bits")?,
            buffer_bytes: number("buffer")?,
            packet_bytes: number("packet")?,
            streams: number("streams")?,
            mode: Mode::from_name(field("mode")?)?,
            text_base: u64::from_str_radix(field("text_base")?.strip_prefix("0x")?, 16).ok()?,
            capabilities: Capabilities::parse(field("caps")?),
            build_id,
        })
    }

    /// Writes the whole line, without its end, to the start of a text of [`MAX_LINE`] bytes.
    pub fn write(&self, text: &mut Text<'_>) {
        let layout = self.layout;
        text.add(PREFIX)
            .word("protocol", self.protocol.into())
            .word("word", layout.word.bits().into())
            .word_of("order", layout.order.name())
            .word_of("shape", layout.shape.name())
            .word("shift", layout.function_shift.into())
            .word("clock_hz", self.clock_hz)
            .word("clock_bits", self.clock_bits.into())
            .word("buffer", self.buffer_bytes.into())
            .word("packet", self.packet_bytes.into())
            .word("streams", self.streams.into())
            .word_of("mode", self.mode.name())
            .address("text_base", self.text_base)
            .key("caps");
        let mut comma = "";
        for (name, set) in NAMES.into_iter().zip(self.capabilities.flags()) {
            if set {
                text.add(comma).add(name);
                comma = ",";
            }
        }
        text.key("build_id");
        for byte in self.build_id() {
            text.hexadecimal((*byte).into(), 2);
        }
        let sum = crc32(text.bytes());
        text.add(" #").hexadecimal(sum.into(), 8);
    }
}

/// The whole line, without its end.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; MAX_LINE];
        let mut text = Text::new(&mut room);
        self.write(&mut text);
        f.write_str(core::str::from_utf8(text.bytes()).unwrap_or(""))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn it_reads_back_behind_other_text_and_not_when_damaged() {
        let mut build_id = ([0; 32], 20);
        build_id.0[..20].copy_from_slice(&[0xA5; 20]);
        let identity = Identity {
            protocol: 1,
            layout: Layout::NATIVE,
            clock_hz: 2_600_000_000,
            clock_bits: 64,
            buffer_bytes: 1 << 20,
            packet_bytes: 4096,
            streams: 8,
            mode: Mode::Fixed,
            text_base: 0x5555_5555_0000,
            capabilities: Capabilities {
                trace: true,
                retained: true,
                ..Capabilities::default()
            },
            build_id,
        };
        let line = identity.to_string();
        assert_eq!(Identity::parse(&line), Some(identity));
        let mixed = std::format!("boot okkymo id{line}\r");
        assert_eq!(Identity::parse(&mixed), Some(identity));
        for at in 14..line.len() {
            let torn = std::format!("{}hello{}", &line[..at], &line[at..]);
            assert_eq!(Identity::parse(&torn), None, "{torn}");
        }
        let longest = Identity {
            protocol: u32::MAX,
            clock_hz: u64::MAX,
            clock_bits: u32::MAX,
            buffer_bytes: u32::MAX,
            packet_bytes: u32::MAX,
            streams: u32::MAX,
            mode: Mode::Overwrite,
            text_base: u64::MAX,
            capabilities: Capabilities::parse(&NAMES.join(",")),
            build_id: ([0xA5; 32], 32),
            ..identity
        };
        let line = longest.to_string();
        assert_eq!(Identity::parse(&line), Some(longest));
        // With the end of a line, too.
        assert!(line.len() + 2 <= MAX_LINE, "{}", line.len());
        assert_eq!(Identity::parse("kymo identify: #00000000"), None);
        assert_eq!(Identity::parse(""), None);
    }
}
