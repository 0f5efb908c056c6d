//! Descriptions of event ids: from modules, and from files `SYSVIEW_*.txt`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kymo_systemview::Payload;
use kymo_systemview::describe::{self, Line, ModulePart};

/// Name and parameters of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Described {
    pub(super) name: String,
    /// Name and format of each parameter.
    pub(super) parameters: Vec<(String, String)>,
    /// Format of the return value.
    pub(super) returns: Option<String>,
}

/// Names of a type's values. `None` stands for all other values.
type Values = HashMap<Option<u32>, String>;

/// All descriptions.
#[derive(Clone, Debug, Default)]
pub(super) struct Descriptions {
    /// Operating-system calls by id.
    calls: HashMap<u32, Described>,
    /// Module events by id.
    modules: HashMap<u32, Described>,
    types: HashMap<String, Values>,
    causes: Option<(u32, Values)>,
    /// Event ids for function entries and exits, if a module traces them.
    pub(super) enter: Option<u32>,
    pub(super) exit: Option<u32>,
    /// Event ids for allocations and releases in ESP-IDF's heap.
    pub(super) heap_alloc: Option<u32>,
    pub(super) heap_free: Option<u32>,
}

/// Format of a text parameter: its length and its bytes.
pub(super) const TEXT: &str = "s";

/// Largest number of described events. It bounds memory for hostile streams.
const EVENTS: usize = 1 << 14;

/// ESP-IDF modules that do not describe their events, with descriptions.
const UNDESCRIBED: [(&str, &str); 1] = [(
    "ESP32 SystemView Heap Tracing Module",
    "0 heap_alloc block=%p size=%u caller=%p caller=%p, 1 heap_free block=%p caller=%p caller=%p",
)];

impl Descriptions {
    /// Adds a description file.
    pub(super) fn add_file(&mut self, text: &str) {
        for line in text.lines() {
            match describe::line(line) {
                Some(Line::Event(id, event)) if self.calls.len() < EVENTS => {
                    self.calls.insert(id, described(event));
                }
                Some(Line::Type(name, values)) => {
                    let values = self::values(values);
                    self.types
                        .entry(name.to_owned())
                        .or_default()
                        .extend(values);
                }
                Some(Line::TaskState(mask, values)) => {
                    self.causes = Some((mask, self::values(values).collect()));
                }
                _ => {}
            }
        }
    }

    /// Adds a module's description. Long ones are sent in several parts.
    pub(super) fn add_module(&mut self, offset: u32, text: &str) {
        let mut traces_functions = false;
        for part in describe::module(text) {
            match part {
                ModulePart::Name(name) => {
                    traces_functions = name == "ESP_FunctionTrace";
                    let known = UNDESCRIBED.iter().find(|(module, _)| *module == name);
                    if let Some((_, events)) = known {
                        self.add_module(offset, events);
                    }
                }
                ModulePart::Event(number, event) if self.modules.len() < EVENTS => {
                    let id = offset.saturating_add(number);
                    match (traces_functions, event.name) {
                        (true, "function_enter") => self.enter = Some(id),
                        (true, "function_exit") => self.exit = Some(id),
                        (false, "heap_alloc") => self.heap_alloc = Some(id),
                        (false, "heap_free") => self.heap_free = Some(id),
                        _ => {}
                    }
                    self.modules.insert(id, described(event));
                }
                _ => {}
            }
        }
    }

    /// Returns the description of an event.
    pub(super) fn event(&self, id: u32) -> Option<&Described> {
        self.modules.get(&id).or_else(|| self.calls.get(&id))
    }

    /// Returns the layout of an event's payload.
    pub(super) fn payload(&self, id: u32) -> Option<Payload> {
        let parameters = &self.event(id)?.parameters;
        let mut texts = 0u32;
        for (place, _) in parameters.iter().enumerate().filter(|(_, it)| it.1 == TEXT) {
            texts |= 1u32.checked_shl(u32::try_from(place).ok()?)?;
        }
        let count = u32::try_from(parameters.len()).ok()?;
        Some(Payload::Parameters { count, texts })
    }

    /// Returns the name of a reason why a task is blocked.
    pub(super) fn cause(&self, cause: u32) -> Option<&str> {
        let (mask, values) = self.causes.as_ref()?;
        name_of(values, cause & mask)
    }

    /// Returns the name of a type's value.
    pub(super) fn value(&self, of: &str, value: u32) -> Option<&str> {
        name_of(self.types.get(of)?, value)
    }
}

fn name_of(values: &Values, value: u32) -> Option<&str> {
    values
        .get(&Some(value))
        .or_else(|| values.get(&None))
        .map(String::as_str)
}

fn values(text: &str) -> impl Iterator<Item = (Option<u32>, String)> {
    describe::values(text).map(|(value, name)| (value, name.to_owned()))
}

fn described(event: describe::Event<'_>) -> Described {
    let parameter = |it: describe::Parameter<'_>| (it.name.to_owned(), it.format.to_owned());
    Described {
        name: event.name.to_owned(),
        parameters: event.parameters().map(parameter).collect(),
        returns: describe::parameters(event.returns)
            .map(|it| it.format.to_owned())
            .next(),
    }
}

/// Returns the description files of an operating system next to an input: those with its name in their file name.
pub(super) fn beside(input: &Path, system: &str) -> Vec<PathBuf> {
    let folder = match input.is_dir() {
        true => Some(input),
        false => input
            .parent()
            .map(|folder| match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            }),
    };
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<_> = files
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| is_for(&name.to_string_lossy(), system))
        })
        .collect();
    found.sort();
    found
}

/// Returns whether a file with this name describes an operating system.
fn is_for(name: &str, system: &str) -> bool {
    let (name, system) = (name.to_ascii_lowercase(), system.to_ascii_lowercase());
    let stem = name
        .strip_prefix("sysview_")
        .and_then(|name| name.strip_suffix(".txt"));
    let is_first = |stem: &str| {
        let behind = system.strip_prefix(stem);
        behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    stem.is_some_and(|stem| !stem.is_empty() && is_first(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_operating_system() {
        for (name, system, is) in [
            ("SYSVIEW_FreeRTOS.txt", "FreeRTOS", true),
            ("SYSVIEW_FreeRTOS.txt", "FreeRTOS V10.4", true),
            ("sysview_zephyr.TXT", "Zephyr", true),
            ("SYSVIEW_embOS.txt", "embOS-Ultra", true),
            ("SYSVIEW_FreeRTOS.txt", "Zephyr", false),
            ("SYSVIEW_Free.txt", "FreeRTOS", false),
            ("SYSVIEW_.txt", "", false),
            ("FreeRTOS.txt", "FreeRTOS", false),
        ] {
            assert_eq!(is_for(name, system), is, "{name} {system}");
        }
    }

    #[test]
    fn events_types_and_causes_are_described() {
        let mut all = Descriptions::default();
        all.add_file(
            "# nothing\nNamedType Result 0=Ok *=Failed\nTaskState 0xF 1=Queue 2=Delay\n\
             33 vTaskDelete xTask=%t | Returns %Result\n34 log text=%s\n",
        );
        all.add_module(
            512,
            "M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p",
        );
        assert_eq!((all.enter, all.exit), (Some(512), Some(513)));
        assert_eq!(all.event(33).unwrap().returns.as_deref(), Some("Result"));
        assert_eq!(
            [33, 34, 35].map(|id| all.payload(id)),
            [
                Some(Payload::numbers(1)),
                Some(Payload::Parameters { count: 1, texts: 1 }),
                None
            ]
        );
        assert_eq!(
            (all.value("Result", 0), all.value("Result", 9)),
            (Some("Ok"), Some("Failed"))
        );
        assert_eq!((all.cause(0x12), all.cause(3)), (Some("Delay"), None));
    }
}
