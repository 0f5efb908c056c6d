//! Event names as users write them: `SYSTEM:NAME`, with `*` and `?`.

use std::str::FromStr;

use crate::Tracefs;

/// Name of one event, of all events of a system, or of all that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventName {
    system: String,
    name: String,
}

impl EventName {
    /// Whether its system is this one, or all.
    pub fn is_of(&self, system: &str) -> bool {
        self.system == system || self.system == "*"
    }
}

impl FromStr for EventName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (system, name) = text.split_once(':').unwrap_or((text, "*"));
        let is_word = |part: &str| {
            let part = part.bytes();
            part.len() > 0
                && part
                    .into_iter()
                    .all(|it| it.is_ascii_graphic() && !b"/:".contains(&it))
        };
        match is_word(system) && is_word(name) {
            true => Ok(Self {
                system: system.to_owned(),
                name: name.to_owned(),
            }),
            false => Err(format!("expected SYSTEM:NAME or SYSTEM, found {text:?}")),
        }
    }
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.system, self.name)
    }
}

impl EventName {
    /// The matching events of this kernel: system and name of each. Those of the tracers themselves cannot be switched
    /// on and off, and are excluded.
    pub(crate) fn of(&self, tracefs: &Tracefs) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for system in tracefs.names("events") {
            if !matches(&self.system, &system) {
                continue;
            }
            for name in tracefs.names(&format!("events/{system}")) {
                if matches(&self.name, &name)
                    && tracefs.has(&format!("events/{system}/{name}/enable"))
                {
                    found.push((system.clone(), name));
                }
            }
        }
        found
    }
}

/// Whether a pattern with `*` and `?` matches the whole text.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Position after the last star, and the end of the text that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(it) if *it == b'?' || Some(it) == text.get(t) => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((behind, taken)) => {
                    star = Some((behind, taken + 1));
                    (p, t) = (behind, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .is_none_or(|rest| rest.iter().all(|it| *it == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text) in [
            ("sched_*", "sched_switch"),
            ("*", ""),
            ("*_switch", "sched_switch_switch"),
            ("s?hed*w*h", "sched_switch"),
            ("exact", "exact"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("sched", "sched_switch"),
            ("?", ""),
            ("*x", "sched"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn names_are_of_events_or_systems() {
        let name: EventName = "sched".parse().unwrap();
        assert_eq!(name.to_string(), "sched:*");
        assert_eq!(
            "sched:sched_*".parse::<EventName>().unwrap().to_string(),
            "sched:sched_*"
        );
        for wrong in ["", ":", "sched:", ":x", "a:b:c", "../x:y", "a b"] {
            assert!(wrong.parse::<EventName>().is_err(), "{wrong}");
        }
    }
}
