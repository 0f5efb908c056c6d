//! Descriptive texts: the system and its interrupts, modules, and the files `SYSVIEW_*.txt` with the names of an
//! operating system's functions.

/// Entry of a system description in [`Packet::SystemDescription`](crate::Packet::SystemDescription).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// `N=`: the name of the application.
    Application(&'a str),
    /// `D=`: the device.
    Device(&'a str),
    /// `C=`: the device's processor.
    Core(&'a str),
    /// `O=`: the operating system.
    System(&'a str),
    /// `I#15=`: the name of an interrupt.
    Interrupt(u32, &'a str),
    /// Any other entry: key and value.
    Other(&'a str, &'a str),
}

/// Parses a system description.
pub fn system(text: &str) -> impl Iterator<Item = Fact<'_>> {
    text.split(',').filter_map(|fact| {
        let (key, value) = fact.trim().split_once('=')?;
        let value = value.trim();
        Some(match key {
            "N" => Fact::Application(value),
            "D" => Fact::Device(value),
            "C" => Fact::Core(value),
            "O" => Fact::System(value),
            key => match key.strip_prefix("I#").map(str::parse) {
                Some(Ok(irq)) => Fact::Interrupt(irq, value),
                _ => Fact::Other(key, value),
            },
        })
    })
}

/// Description of an event: `xQueueSend xQueue=%I pvItemToQueue=%p | Returns %d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's name.
    pub name: &'a str,
    /// The event's parameters, as text.
    pub parameters: &'a str,
    /// The return value, as text; empty if the description has none.
    pub returns: &'a str,
}

impl<'a> Event<'a> {
    /// Parses the text after the number.
    pub fn parse(text: &'a str) -> Self {
        let text = text.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (parameters, returns) = rest.split_once('|').unwrap_or((rest, ""));
        Self {
            name,
            parameters: parameters.trim(),
            returns: returns.trim(),
        }
    }

    /// Returns the parameters one by one.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter<'a>> + use<'a> {
        parameters(self.parameters)
    }
}

/// Parameter of an event: `xQueue=%I`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Its name; may be empty.
    pub name: &'a str,
    /// Its format: a letter (`u` `d` `x` `p` `t` task, `I` resource, `s` text, ...) or the name of a type.
    pub format: &'a str,
}

/// Parses the parameters of a description.
pub fn parameters(text: &str) -> impl Iterator<Item = Parameter<'_>> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (before, behind) = rest.split_once('%')?;
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (format, tail) = behind.split_at(end.unwrap_or(behind.len()));
        rest = tail;
        let name =
            before.trim_matches(|c: char| c.is_whitespace() || matches!(c, '=' | ',' | ':' | '"'));
        let name = name.rsplit(char::is_whitespace).next().unwrap_or(name);
        Some(Parameter { name, format })
    })
}

/// Part of a module's description in [`Packet::ModuleDescription`](crate::Packet::ModuleDescription).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModulePart<'a> {
    /// `M=`, or no key: the module's name.
    Name(&'a str),
    /// An event: its number relative to the module's offset.
    Event(u32, Event<'a>),
    /// Another `key=value`, such as `S='text'` or `T=...`.
    Other(&'a str, &'a str),
}

/// Parses a module's description: `M=Name, 0 event a=%u, 1 other`.
pub fn module(text: &str) -> impl Iterator<Item = ModulePart<'_>> {
    text.split(',').enumerate().filter_map(|(place, part)| {
        let part = part.trim();
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        if let Ok(number) = number.parse() {
            return Some(ModulePart::Event(number, Event::parse(rest)));
        }
        // Some descriptions consist only of the module's name.
        let bare = (place == 0 && !part.is_empty()).then_some(("M", part));
        let (key, value) = part.split_once('=').or(bare)?;
        Some(match key.trim() {
            "M" => ModulePart::Name(value.trim()),
            key => ModulePart::Other(key, value.trim()),
        })
    })
}

/// Line of a file `SYSVIEW_*.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line<'a> {
    /// An event by its id.
    Event(u32, Event<'a>),
    /// `NamedType name 0=Zero 1=One *=Other`: names of a type's values ([`values`]).
    Type(&'a str, &'a str),
    /// `TaskState 0x1F 0=Ready, 1=Blocked`: a mask, and names of the causes for which tasks are blocked.
    TaskState(u32, &'a str),
    /// `Option name`.
    Option(&'a str),
}

/// Parses a line of a file `SYSVIEW_*.txt`; `None` for comments, empty lines and unknown lines.
pub fn line(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim();
    match word {
        "NamedType" => {
            let (name, values) = rest.split_once(char::is_whitespace)?;
            Some(Line::Type(name, values.trim()))
        }
        "TaskState" => {
            let (mask, values) = rest.split_once(char::is_whitespace)?;
            Some(Line::TaskState(number(mask)?, values.trim()))
        }
        "Option" => Some(Line::Option(rest)),
        id => Some(Line::Event(number(id)?, Event::parse(rest))),
    }
}

/// Parses values and their names: `0=Ready, 1=Blocked *=Other`; the value `None` means all others.
pub fn values(text: &str) -> impl Iterator<Item = (Option<u32>, &str)> {
    let is_between = |c: char| c == ',' || c.is_whitespace();
    let mut rest = text;
    core::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(is_between);
            let (key, behind) = rest.split_once('=')?;
            // A name extends to the next key, because it may contain blanks.
            let next = behind.char_indices().find_map(|(at, c)| {
                let behind = behind.get(at..).unwrap_or_default();
                let word = behind.trim_start_matches(is_between);
                let (key, _) = word.split_once('=')?;
                let is_key = key == "*" || number(key).is_some();
                (is_between(c) && is_key).then_some(at)
            });
            let (name, tail) = behind.split_at(next.unwrap_or(behind.len()));
            rest = tail;
            let name = name.trim_matches(is_between);
            match key.trim() {
                "*" => return Some((None, name)),
                key => {
                    if let Some(value) = number(key) {
                        return Some((Some(value), name));
                    }
                }
            }
        }
    })
}

/// Parses a number in decimal or with `0x`; negative ones as 32 bits.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => match text.strip_prefix('-') {
            Some(digits) => digits.parse().ok().map(u32::wrapping_neg),
            None => text.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn systems_and_modules_describe_themselves() {
        let facts: Vec<_> =
            system("N=An app,D=ESP32, O=FreeRTOS,I#5=SysTick,X=1,nothing").collect();
        let expected = [
            Fact::Application("An app"),
            Fact::Device("ESP32"),
            Fact::System("FreeRTOS"),
            Fact::Interrupt(5, "SysTick"),
            Fact::Other("X", "1"),
        ];
        assert_eq!(facts, expected);
        let text =
            "M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p";
        let parts: Vec<_> = module(text).collect();
        let [
            ModulePart::Name("ESP_FunctionTrace"),
            ModulePart::Event(0, enter),
            ModulePart::Event(1, exit),
        ] = parts[..]
        else {
            panic!("{parts:?}");
        };
        assert_eq!((enter.name, exit.name), ("function_enter", "function_exit"));
        let names: Vec<_> = enter.parameters().map(|it| (it.name, it.format)).collect();
        assert_eq!(names, [("func", "p"), ("call_site", "p")]);
    }

    #[test]
    fn lines_of_description_files_are_understood() {
        let event =
            line("49        xQueueGenericReceive   xQueue=%I pvBuffer=%p | Returns %Result");
        let Some(Line::Event(49, event)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(event.name, "xQueueGenericReceive");
        assert_eq!(event.parameters().count(), 2);
        let returns: Vec<_> = parameters(event.returns).collect();
        let expected = Parameter {
            name: "Returns",
            format: "Result",
        };
        assert_eq!(returns, [expected]);
        assert_eq!(line("# comment = 7"), None);
        assert_eq!(line(""), None);
        assert_eq!(
            line("Option ReversePriority"),
            Some(Line::Option("ReversePriority"))
        );
        let state = line("TaskState 0xFF 0=Ready, 1=Waits for a queue, 0x10=Suspended");
        let Some(Line::TaskState(0xFF, names)) = state else {
            panic!("{state:?}");
        };
        let names: Vec<_> = values(names).collect();
        let expected = [
            (Some(0), "Ready"),
            (Some(1), "Waits for a queue"),
            (Some(16), "Suspended"),
        ];
        assert_eq!(names, expected);
        let types: Vec<_> = values("0=Ok -1=Failed *=Code").collect();
        assert_eq!(
            types,
            [(Some(0), "Ok"), (Some(u32::MAX), "Failed"), (None, "Code")]
        );
    }
}
