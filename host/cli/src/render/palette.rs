//! Colours by meaning.
//!
//! Text in the plain palette has no escape sequences, so none need to be filtered from the output of a long trace.

use std::fmt::Write;

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Effects, Style};

use super::escape::escape_from;
use crate::args::Color;

/// A style for each kind of text. `{style}` begins it and `{style:#}` ends it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Palette {
    /// `error:`, and unreadable data.
    pub error: Style,
    /// `warning:`, gaps, orphans, repairs.
    pub warning: Style,
    /// `note:` and `help:`.
    pub note: Style,
    /// Secondary text: comments, closing names, addresses.
    pub dim: Style,
    /// Column headings.
    pub heading: Style,
    /// Functions.
    pub function: Style,
    /// Threads, CPUs, interrupts.
    pub actor: Style,
    /// Markers of the program.
    pub marker: Style,
}

/// Adds text in a style, escaped.
pub fn paint(out: &mut String, style: Style, text: &str) {
    paint_with(out, style, |out| out.push_str(text));
}

/// Appends text that `write` writes, in a style, escaped.
pub fn paint_with(out: &mut String, style: Style, write: impl FnOnce(&mut String)) {
    if style.is_plain() {
        let start = out.len();
        write(out);
        return escape_from(out, start);
    }
    // Writing to a string can't fail.
    let _ = write!(out, "{style}");
    let start = out.len();
    write(out);
    escape_from(out, start);
    let _ = write!(out, "{style:#}");
}

impl Palette {
    /// No colours.
    pub const PLAIN: Self = Self {
        error: Style::new(),
        warning: Style::new(),
        note: Style::new(),
        dim: Style::new(),
        heading: Style::new(),
        function: Style::new(),
        actor: Style::new(),
        marker: Style::new(),
    };

    /// The sixteen colours of every terminal, as configured by its user.
    pub const ANSI: Self = Self {
        error: AnsiColor::Red.on_default().effects(Effects::BOLD),
        warning: AnsiColor::Yellow.on_default().effects(Effects::BOLD),
        note: AnsiColor::Cyan.on_default().effects(Effects::BOLD),
        dim: Style::new().effects(Effects::DIMMED),
        heading: Style::new().effects(Effects::BOLD),
        function: AnsiColor::Green.on_default(),
        actor: AnsiColor::Blue.on_default(),
        marker: AnsiColor::Magenta.on_default(),
    };

    /// The palette for a stream with this option.
    pub fn choose(color: Color, stream: &impl RawStream) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
        };
        if colored { Self::ANSI } else { Self::PLAIN }
    }
}
