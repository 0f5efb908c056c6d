//! Missing streams: those that the metadata or the names of the other files imply.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use super::event::PacketInfo;
use super::trace::{Source, Trace};

/// Maximum range of file numbers for which missing ones are reported.
const WIDEST: u64 = 4096;

/// A stream that is empty, or missing although something implies that it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// The metadata describes streams, but no file contains one.
    NoStreams,
    /// The file of a stream is empty, while others are not.
    Empty {
        /// Name of the stream.
        stream: String,
    },
    /// A gap in the numbers of the files.
    Missing {
        /// Name of the missing file.
        stream: String,
    },
    /// A stream with an index (LTTng's `index/NAME.idx`) is missing.
    Indexed {
        /// Name of the missing file.
        stream: String,
    },
    /// No stream begins with a packet of a class in the metadata.
    NoPackets {
        /// Id of the stream class.
        class: u64,
        /// Number of its event classes.
        events: usize,
    },
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStreams => f.write_str("the metadata has no streams beside it"),
            Self::Empty { stream } => write!(f, "stream {stream} is empty"),
            Self::Missing { stream } => {
                write!(f, "stream {stream} is missing between its neighbours")
            }
            Self::Indexed { stream } => {
                write!(f, "stream {stream} is missing: its index is there")
            }
            Self::NoPackets { class, events } => write!(
                f,
                "no stream begins with a packet of stream class {class}, which has {events} event classes"
            ),
        }
    }
}

impl Trace {
    /// Finds streams that are empty, or missing although the metadata or other streams imply them.
    ///
    /// That need not be a fault: a CPU was off, or nothing happened. But an analysis of the remaining streams may be
    /// incomplete without them. It reads the first packet of each stream.
    #[must_use]
    pub fn absences(&self) -> Vec<Absence> {
        if self.streams.is_empty() {
            let described = self
                .metadata()
                .streams
                .iter()
                .any(|it| !it.events.is_empty());
            return described
                .then_some(Absence::NoStreams)
                .into_iter()
                .collect();
        }
        let empty: Vec<bool> = self
            .streams
            .iter()
            .map(|(_, source)| is_empty(source))
            .collect();
        let mut absences = Vec::new();
        if !empty.iter().all(|empty| *empty) {
            let named = self.streams.iter().zip(&empty).filter(|(_, empty)| **empty);
            absences.extend(named.map(|((stream, _), _)| Absence::Empty {
                stream: stream.clone(),
            }));
        }
        let missing = missing_numbers(self.stream_names());
        absences.extend(
            missing
                .into_iter()
                .map(|stream| Absence::Missing { stream }),
        );
        absences.extend(
            self.indexed()
                .into_iter()
                .map(|stream| Absence::Indexed { stream }),
        );
        let classes = &self.metadata().streams;
        if classes.len() > 1 {
            let seen: BTreeSet<usize> = (0..self.streams.len())
                .filter_map(|index| self.first_class(index))
                .collect();
            let unseen = classes
                .iter()
                .enumerate()
                .filter(|(index, class)| !seen.contains(index) && !class.events.is_empty());
            absences.extend(unseen.map(|(_, class)| Absence::NoPackets {
                class: class.id,
                events: class.events.len(),
            }));
        }
        absences
    }

    /// Missing streams that have an index. A directory has one for its own streams.
    fn indexed(&self) -> Vec<String> {
        let mut folders: BTreeMap<&Path, (&str, BTreeSet<&str>)> = BTreeMap::new();
        let whole = self.streams.iter().map(|stream| match &stream.1 {
            Source::Joined(parts) => parts.as_slice(),
            _ => std::slice::from_ref(stream),
        });
        for (name, source) in whole.flatten() {
            if let Source::File(path) = source
                && let (Some(folder), Some(file)) = (path.parent(), path.file_name())
            {
                let (_, known) = folders.entry(folder).or_insert_with(|| {
                    let file = file.to_string_lossy();
                    (name.strip_suffix(&*file).unwrap_or(""), BTreeSet::new())
                });
                known.extend(file.to_str());
            }
        }
        let mut missing = Vec::new();
        for (folder, (above, known)) in folders {
            let entries = fs::read_dir(folder.join("index")).into_iter().flatten();
            missing.extend(entries.flatten().filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let name = name.strip_suffix(".idx")?;
                (!known.contains(name)).then(|| format!("{above}{name}"))
            }));
        }
        missing.sort();
        missing
    }

    /// Whether a stream has the UUID of the metadata. Then a stream with another UUID belongs to another trace; in a
    /// trace where none has it, the metadata was regenerated.
    pub(super) fn has_own_uuid(&self) -> bool {
        self.streams.len() > 1
            && self.metadata().uuid.is_some()
            && (0..self.streams.len()).any(|index| {
                self.first_packet(index)
                    .is_some_and(|packet| !packet.foreign)
            })
    }

    /// The stream class of the first packet of a stream.
    fn first_class(&self, index: usize) -> Option<usize> {
        Some(self.first_packet(index)?.stream_class)
    }

    /// The facts that the first packet of a stream states about itself.
    fn first_packet(&self, index: usize) -> Option<PacketInfo> {
        let (_, source) = self.streams.get(index)?;
        self.packet_at(source, 0)
    }
}

fn is_empty(source: &Source) -> bool {
    match source {
        Source::File(path) => {
            fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
        }
        Source::Memory(bytes) => bytes.is_empty(),
        Source::Ring(inner, _) => is_empty(inner),
        Source::Joined(parts) => parts.iter().all(|(_, part)| is_empty(part)),
    }
}

/// Missing names within a numbered sequence of the same prefix, as tracers number the files of CPUs. (Threads have
/// sparse numbers: prefixes that end with `-` are ignored.)
fn missing_numbers<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut series: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for name in names {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = name.get(prefix.len()..).unwrap_or_default();
        let plain = digits == "0" || !digits.starts_with('0');
        if let (true, false, Ok(number)) = (plain, prefix.ends_with('-'), digits.parse()) {
            series.entry(prefix).or_default().insert(number);
        }
    }
    let mut missing = Vec::new();
    for (prefix, numbers) in series {
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            continue;
        };
        if last - first < WIDEST {
            let between = (*first..*last).filter(|number| !numbers.contains(number));
            missing.extend(between.map(|number| format!("{prefix}{number}")));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_has_an_index_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("index")).unwrap();
        let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; stream {};";
        fs::write(at("metadata"), metadata).unwrap();
        for name in ["chan_0", "index/chan_0.idx", "index/chan_1.idx", "index/x"] {
            fs::write(at(name), "").unwrap();
        }
        let trace = Trace::open(folder.path()).unwrap();
        assert_eq!(trace.indexed(), ["chan_1"]);
    }

    #[test]
    fn numbers_between_others_are_missing() {
        let names = [
            "chan_0", "chan_3", "chan_1", "other", "cpu7", "thread-1", "thread-9",
        ];
        assert_eq!(missing_numbers(names.into_iter()), ["chan_2"]);
        assert!(missing_numbers(["a1", "a99999"].into_iter()).is_empty());
        assert!(missing_numbers(["a", "", "a07", "a09"].into_iter()).is_empty());
    }
}
