//! Writes the CTF 1.8 metadata that describes a target's packets.
//!
//! There is one text for every consumer. The host writes it next to the packets that it saves, so that a recording is a
//! CTF trace directory for any CTF reader, and the host's own reader uses it, too. The text is CTF 1.8 (TSDL) as
//! `babeltrace2` 2.0 and Trace Compass read it.

use core::fmt::{self, Write};

use crate::event::{EventId, Form, Layout};
use crate::items;
use crate::link::PROTOCOL;
use crate::packet::EVENT_STREAM;

/// Content of the metadata besides the layout of packets.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The layout of packets.
    pub layout: Layout,
    /// Frequency of the clock in ticks per second.
    pub clock_hz: u64,
    /// Width in bits of the counter that the target extends to 64 bits.
    pub clock_bits: u32,
    /// The time of tick 0 in nanoseconds since 1970 UTC, if it is known.
    pub origin_ns: Option<i64>,
    /// The run-time address of `function` 0.
    pub text_base: u64,
    /// The build id of the program; empty if it has none.
    pub build_id: &'a [u8],
    /// The source of the trace, for people (a link's name, a program's name).
    pub target: &'a str,
    /// Declarations of the program's own events, as in the section `.kymo.events` of its ELF file: texts, each followed
    /// by a zero byte.
    pub events: &'a [u8],
    /// Whether to describe streams of items, too: 80 KB of text.
    pub items: bool,
}

/// Writes the metadata of a trace, except its named markers ([`write_markers`]), which come after it.
///
/// `functions` yields the names of functions, each with its `function` number ([`Layout::function`]); the numbers must
/// be in ascending order. Readers show the names if a function has a number that fits the field. The iterator is run
/// several times.
///
/// # Errors
/// Only those of `out`.
pub fn write<'n>(
    out: &mut impl Write,
    description: &Description<'_>,
    functions: impl Iterator<Item = (u32, &'n str)> + Clone,
) -> fmt::Result {
    let Description { layout, .. } = *description;
    let shape = layout.shape;
    let word = layout.word.bits();
    write!(
        out,
        "/* CTF 1.8 */\n\
         \n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;\n\
         typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;\n\
         typealias integer {{ size = 16; align = 8; signed = true; }} := int16_t;\n\
         typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;\n\
         typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;\n\
         typealias integer {{ size = {word}; align = 8; signed = false; base = x; }} := word_t;\n\
         \n\
         trace {{\n\
         \tmajor = 1;\n\
         \tminor = 8;\n\
         \tbyte_order = {};\n\
         \tpacket.header := struct {{\n\
         \t\tuint32_t magic;\n\
         \t\tuint8_t stream_id;\n\
         \t}};\n\
         }};\n\
         \n\
         env {{\n\
         \tdomain = \"kymo\";\n\
         \ttracer_name = \"kymo\";\n\
         \ttracer_major = 0;\n\
         \ttracer_minor = {PROTOCOL};\n\
         \tkymo_shape = \"{}\";\n\
         \tkymo_word = {word};\n\
         \tkymo_function_shift = {};\n\
         \tkymo_text_base = \"0x{:x}\";\n\
         \tkymo_clock_bits = {};\n\
         \tkymo_build_id = \"",
        layout.order.name(),
        shape.name(),
        layout.function_shift,
        description.text_base,
        description.clock_bits,
    )?;
    for byte in description.build_id {
        write!(out, "{byte:02x}")?;
    }
    out.write_str("\";\n\tkymo_target = \"")?;
    escape(out, description.target)?;
    out.write_str("\";\n")?;
    let texts = description.events.split(|byte| *byte == 0);
    let texts = texts.filter_map(|text| core::str::from_utf8(text).ok());
    for (number, text) in texts.filter(|text| !text.is_empty()).enumerate() {
        write!(out, "\tkymo_event_{number} = \"")?;
        escape(out, text)?;
        out.write_str("\";\n")?;
    }
    write!(
        out,
        "\
         }};\n\
         \n\
         clock {{\n\
         \tname = monotonic;\n\
         \tdescription = \"The target's clock, from its start\";\n\
         \tfreq = {};\n\
         {}\
         }};\n\
         \n\
         typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := clock_t;\n",
        description.clock_hz,
        Origin(description),
    )?;
    for (form, name) in TIMES {
        let bits = shape.time_bits(form);
        writeln!(
            out,
            "typealias integer {{ size = {bits}; align = 1; signed = false; map = clock.monotonic.value; }} := {name}_time_t;"
        )?;
    }
    let short = shape.function_bits(Form::EnterShort);
    let long = shape.function_bits(Form::EnterLong);
    function_type(out, "function_short_t", short, 1, functions.clone())?;
    function_type(out, "function_long_t", long, 1, functions.clone())?;
    function_type(out, "function_t", shape.named_bits(), 8, functions)?;
    write!(
        out,
        "\n\
         stream {{\n\
         \tid = {EVENT_STREAM};\n\
         \tpacket.context := struct {{\n\
         {CONTEXT}\
         \t}};\n\
         \tevent.header := struct {{\n\
         \t\tenum : integer {{ size = 1; align = 1; signed = false; }} {{ longer = 0, exit = 1 }} id;\n\
         \t\tvariant <id> {{\n\
         \t\t\tstruct {{\n\
         \t\t\t\tenum : integer {{ size = 2; align = 1; signed = false; }} {{ enter = 0, exit = 1, enter_later = 2, other = 3 }} id;\n\
         \t\t\t\tvariant <id> {{\n\
         \t\t\t\t\tstruct {{ enter_short_time_t timestamp; }} enter;\n\
         \t\t\t\t\tstruct {{ exit_long_time_t timestamp; }} exit;\n\
         \t\t\t\t\tstruct {{ enter_long_time_t timestamp; }} enter_later;\n\
         \t\t\t\t\tstruct {{\n\
         \t\t\t\t\t\tenum : integer {{ size = 5; align = 1; signed = false; }} {{ near = {first} ... {last}, time = {time} }} id;\n\
         \t\t\t\t\t\tvariant <id> {{\n\
         \t\t\t\t\t\t\tstruct {{ other_time_t timestamp; }} near;\n\
         \t\t\t\t\t\t\tstruct {{ whole_time_t timestamp; }} time;\n\
         \t\t\t\t\t\t}} v;\n\
         \t\t\t\t\t}} other;\n\
         \t\t\t\t}} v;\n\
         \t\t\t}} longer;\n\
         \t\t\tstruct {{ exit_short_time_t timestamp; }} exit;\n\
         \t\t}} v;\n\
         \t}} align(8);\n\
         }};\n",
        first = EventId::ExitNamed as u8,
        last = EventId::Time as u8 - 1,
        time = EventId::Time as u8,
    )?;
    let others = EventId::ALL.into_iter();
    for id in others.filter(|id| *id != EventId::NamedMarker) {
        event(out, id, fields(id))?;
    }
    if description.items {
        write_items(out, layout)?;
    }
    Ok(())
}

/// Writes the part of the metadata that describes named markers.
///
/// `names` yields the known names, each with the address that represents it in the events, in any order and each
/// address once. Readers show a name if a marker has its address.
///
/// # Errors
/// Only those of `out`.
pub fn write_markers<'n>(
    out: &mut impl Write,
    names: impl Iterator<Item = (u64, &'n str)>,
) -> fmt::Result {
    let mut names = names.peekable();
    if names.peek().is_none() {
        return event(out, EventId::NamedMarker, fields(EventId::NamedMarker));
    }
    out.write_str("\ntypealias enum : word_t {\n")?;
    for (address, name) in names {
        out.write_str("\t\"")?;
        escape(out, name)?;
        writeln!(out, "\" = {address},")?;
    }
    out.write_str("} := marker_name_t;\n")?;
    let fields = " marker_name_t name; uint32_t value; ";
    event(out, EventId::NamedMarker, fields)
}

/// Writes the description of an event with these fields.
fn event(out: &mut impl Write, id: EventId, fields: &str) -> fmt::Result {
    write!(
        out,
        "\nevent {{\n\tname = \"{}\";\n\tid = {};\n\tstream_id = {EVENT_STREAM};\n\tfields := struct {{{fields}}};\n}};\n",
        id.name(),
        id as u8,
    )
}

/// Writes the description of items, which [`write()`] adds at the end if there are any. Append it to a text without it
/// when the first items arrive.
///
/// # Errors
/// Only those of `out`.
pub fn write_items(out: &mut impl Write, layout: Layout) -> fmt::Result {
    items::describe(out, layout.word, CONTEXT)
}

/// Context of a packet of any stream, as the inside of a TSDL `struct`.
const CONTEXT: &str = "\
    \t\tinteger { size = 4; align = 1; signed = false; } flags;\n\
    \t\tinteger { size = 4; align = 1; signed = false; } isr_depth;\n\
    \t\tuint16_t cpu_id;\n\
    \t\tuint32_t packet_seq_num;\n\
    \t\tuint32_t events_discarded;\n\
    \t\tclock_t timestamp_begin;\n\
    \t\tclock_t timestamp_end;\n\
    \t\tuint32_t content_size;\n\
    \t\tuint32_t packet_size;\n\
    \t\tword_t thread;\n";
/// Origin of the clock. Timestamps have a date only if it is known.
struct Origin<'a>(&'a Description<'a>);

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ns) = self.0.origin_ns else {
            return f.write_str("\toffset = 0;\n");
        };
        let (seconds, ns) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
        let ticks = i128::from(ns) * i128::from(self.0.clock_hz) / 1_000_000_000;
        write!(
            f,
            "\toffset_s = {seconds};\n\toffset = {ticks};\n\tabsolute = true;\n"
        )
    }
}

/// The forms of headers, and the names of their timestamps' types.
const TIMES: [(Form, &str); 6] = [
    (Form::ExitShort, "exit_short"),
    (Form::EnterShort, "enter_short"),
    (Form::ExitLong, "exit_long"),
    (Form::EnterLong, "enter_long"),
    (Form::Other, "other"),
    (Form::Time, "whole"),
];

/// Writes the type of a function number of `bits` bits, with the known names.
fn function_type<'n>(
    out: &mut impl Write,
    name: &str,
    bits: u32,
    align: u32,
    functions: impl Iterator<Item = (u32, &'n str)>,
) -> fmt::Result {
    let integer = format_args!("integer {{ size = {bits}; align = {align}; signed = false;");
    let mut functions = functions
        .take_while(|(number, _)| u64::from(*number) >> bits == 0)
        .peekable();
    if functions.peek().is_none() {
        return writeln!(out, "typealias {integer} base = x; }} := {name};");
    }
    writeln!(out, "typealias enum : {integer} }} {{")?;
    for (number, function) in functions {
        out.write_str("\t\"")?;
        escape(out, function)?;
        writeln!(out, "\" = {number},")?;
    }
    writeln!(out, "}} := {name};")
}

/// Returns the payload of an event as the inside of a TSDL `struct`.
fn fields(id: EventId) -> &'static str {
    match id {
        EventId::Enter => " function_short_t function; ",
        EventId::EnterLong => " function_long_t function; ",
        EventId::ExitNamed => " function_t function; ",
        EventId::Exit | EventId::SwitchedOut | EventId::IsrExit | EventId::Time => "",
        EventId::EnterFar | EventId::ExitFar => " word_t address; ",
        EventId::EnterFrom => " function_t function; word_t caller; ",
        EventId::EnterFarFrom => " word_t address; word_t caller; ",
        EventId::Context => " word_t thread; int16_t priority; uint16_t mode; ",
        EventId::SwitchedIn | EventId::SwitchedOutNamed => " word_t thread; ",
        EventId::SwitchedInNear => " int16_t thread_offset; ",
        EventId::IsrEnter => " uint8_t irq; ",
        EventId::IsrEnterWide | EventId::IsrExitNamed => " uint16_t irq; ",
        EventId::Marker => " uint32_t value; ",
        EventId::NamedMarker => " word_t name; uint32_t value; ",
        EventId::Metadata => " uint16_t type; uint16_t length; uint8_t value[length]; ",
        EventId::ClockGap => " uint64_t ticks; ",
        EventId::Recording => " uint8_t on; uint8_t cause; ",
        EventId::Setjmp | EventId::Longjmp => " word_t jmp_buf; ",
        EventId::WallClock => " uint64_t ns; uint32_t uncertainty; ",
        EventId::Block => {
            " integer { size = 16; align = 32; signed = false; } type; uint16_t length; uint8_t data[length]; "
        }
        EventId::Call => {
            " function_t function; uint32_t duration; uint32_t self_time; word_t thread; "
        }
        EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
            " word_t address; uint64_t duration; uint64_t self_time; word_t thread; "
        }
    }
}

/// Writes `text` as the inside of a TSDL string literal.
fn escape(out: &mut impl Write, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            '\n' => out.write_str("\\n")?,
            c if c.is_control() => out.write_char('?')?,
            c => out.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;

    #[test]
    fn names_and_odd_characters_stand_in_the_text() {
        let description = Description {
            layout: Layout::NATIVE,
            clock_hz: 25_000_000,
            clock_bits: 32,
            origin_ns: None,
            text_base: 0x0800_0000,
            build_id: &[0xAB, 0x01],
            target: "a \"board\"\n",
            events: b"7 sensor u8 channel\0\0sensor.channel 0=left\0",
            items: false,
        };
        let mut text = String::new();
        write(
            &mut text,
            &description,
            [(3, "main"), (9, "a\\b")].into_iter(),
        )
        .unwrap();
        assert!(text.starts_with("/* CTF 1.8"));
        assert!(text.contains("\t\"main\" = 3,\n\t\"a\\\\b\" = 9,\n"));
        assert!(text.contains("kymo_build_id = \"ab01\""));
        assert!(text.contains("kymo_target = \"a \\\"board\\\"\\n\""));
        assert!(text.contains(
            "\tkymo_event_0 = \"7 sensor u8 channel\";\n\tkymo_event_1 = \"sensor.channel 0=left\";\n};"
        ));
        assert!(text.contains("freq = 25000000;"));
    }
}
