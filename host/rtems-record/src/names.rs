//! Event names from an INI file, as `rtems-record-lttng --config` reads them.
//!
//! ```text
//! [EventNames]
//! 512 = FrameBegin
//! 0x201 = FrameEnd
//! ```

use std::collections::HashMap;
use std::fmt;

use crate::EventId;
use crate::event::NUMBERS;

/// Section that holds the names.
const SECTION: &str = "EventNames";

/// Names that replace RTEMS's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventNames {
    names: HashMap<u16, String>,
}

/// Error in a line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesError {
    /// Line number, counted from 1.
    pub line: usize,
    /// Expected and found text.
    pub message: String,
}

impl fmt::Display for NamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for NamesError {}

impl EventNames {
    /// Parses the text of an INI file. Skips other sections, comments (`;` or `#`) and empty lines.
    ///
    /// # Errors
    /// [`NamesError`] for the first line in the section that is not `NUMBER = NAME`, with a number from 0 to 1023 in
    /// decimal or hexadecimal. Also for the first line of a text that is not empty and lacks the section.
    pub fn parse(text: &str) -> Result<Self, NamesError> {
        let mut names = HashMap::new();
        let mut inside = false;
        let (mut has_section, mut first) = (false, None);
        for (place, line) in text.lines().enumerate() {
            let line = line.trim().trim_start_matches('\u{feff}');
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            first.get_or_insert((place + 1, line));
            if let Some(section) = line.strip_prefix('[') {
                inside = section.split(']').next().map(str::trim) == Some(SECTION);
                has_section |= inside;
                continue;
            }
            if !inside {
                continue;
            }
            let error = |message| NamesError {
                line: place + 1,
                message,
            };
            let Some((number, name)) = line.split_once(['=', ':']) else {
                return Err(error(format!("expected NUMBER = NAME, found {line:?}")));
            };
            let (number, name) = (number.trim(), name.trim());
            let hexadecimal = number.strip_prefix("0x").or(number.strip_prefix("0X"));
            let parsed = match hexadecimal {
                Some(digits) => u16::from_str_radix(digits, 16),
                None => number.parse(),
            };
            let Some(parsed) = parsed.ok().filter(|number| *number < NUMBERS) else {
                return Err(error(format!(
                    "expected an event from 0 to 1023, found {number:?}"
                )));
            };
            if name.is_empty() {
                return Err(error(format!(
                    "expected a name for event {number}, found none"
                )));
            }
            names.insert(parsed, name.to_owned());
        }
        match first {
            Some((line, found)) if !has_section => Err(NamesError {
                line,
                message: format!("expected a section [{SECTION}], found none, and {found:?} here"),
            }),
            _ => Ok(Self { names }),
        }
    }

    /// Returns the name of an event in a stream of this version: the file's, or else RTEMS's.
    pub fn name(&self, event: EventId, version: u32) -> &str {
        let given = || self.names.get(&event.number(version)?);
        match self.names.is_empty() {
            true => event.name(version),
            false => given().map_or_else(|| event.name(version), String::as_str),
        }
    }

    /// Returns the file's name of an event, if it has one.
    pub fn given(&self, event: EventId, version: u32) -> Option<&str> {
        if self.names.is_empty() {
            return None;
        }
        self.names.get(&event.number(version)?).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_file_then_those_of_rtems() {
        let text = "; a comment\n[Other]\n1 = x\n\n[EventNames]\n512 = FrameBegin\r\n0x201=FrameEnd\n# more\n";
        let names = EventNames::parse(text).unwrap();
        assert_eq!(names.name(EventId(512), 10), "FrameBegin");
        assert_eq!(names.name(EventId(513), 10), "FrameEnd");
        assert_eq!(names.name(EventId(514), 10), "USER_2");
        assert_eq!(names.name(EventId::VERSION, 10), "VERSION");
        assert_eq!(names.given(EventId(514), 10), None);
    }

    #[test]
    fn a_file_without_the_section_names_nothing_and_says_so() {
        for text in ["512 = FrameBegin\n", "; names\n512 = FrameBegin\n[Other]\n"] {
            let error = EventNames::parse(text).unwrap_err();
            assert!(error.message.contains("[EventNames]"), "{error}");
            assert!(error.message.contains("512 = FrameBegin"), "{error}");
        }
        assert_eq!(EventNames::parse("; none\n"), Ok(EventNames::default()));
    }

    #[test]
    fn a_line_that_is_no_name_is_told_with_its_number() {
        for (line, part) in [
            ("1024 = x", "from 0 to 1023, found \"1024\""),
            ("name", "found \"name\""),
            ("3 =", "found none"),
            ("0xz = y", "found \"0xz\""),
        ] {
            let error = EventNames::parse(&format!("[EventNames]\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 2);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
