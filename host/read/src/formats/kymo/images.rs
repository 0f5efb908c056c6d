//! Load map of a process: the files that its functions were in, and since when ([`MetadataType::Image`]).
//!
//! A library can be loaded where another one had been, so that one address means two functions. The addresses
//! of the later library are then moved by a multiple of 2^48, to a range where no process has memory. The
//! library's symbols are moved by the same amount ([`Mapping::start`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kymo_event::{Addr, Mapping, Time};
use kymo_wire::event::{Layout, MetadataType};

use super::number;

/// Maximum number of images; a recording has room for some hundreds.
const MOST: usize = 4096;

/// Maximum length of a path, in bytes.
const LONGEST_PATH: usize = 4096;

/// Collects the metadata records that describe a recording's images.
#[derive(Debug, Default)]
pub(super) struct ImageFacts {
    paths: HashMap<u64, Vec<u8>>,
    /// The numbers of the known images: a record may be repeated.
    numbers: HashSet<u64>,
    /// The files, in the order of their records.
    mappings: Vec<Mapping>,
    moved: Vec<Moved>,
    /// Whether images were added since the last call of [`changed`](Self::changed).
    has_changed: bool,
}

/// An image as described by one record.
#[derive(Clone, Copy)]
struct Image<'a> {
    number: u64,
    start: u64,
    bytes: u64,
    build_id: &'a [u8],
    since: Time,
}

/// An image that shares addresses with another one, and the offset that its own are moved by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moved {
    start: u64,
    bytes: u64,
    since: Time,
    by: u64,
}

/// Address ranges that mean different functions at different times; usually empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedImages(Arc<[Moved]>);

impl MovedImages {
    /// Maps a run-time address at a time to its moved, unambiguous address.
    #[inline]
    pub(crate) fn address(&self, address: u64, time: Time) -> u64 {
        if self.0.is_empty() {
            return address;
        }
        let holds = |it: &&Moved| address.wrapping_sub(it.start) < it.bytes;
        let newest = self.0.iter().rev().filter(holds);
        let newest = newest.filter(|it| it.since <= time).map(|it| it.by).next();
        address.wrapping_add(newest.unwrap_or(0))
    }
}

impl ImageFacts {
    /// Adds a metadata record of this type and value.
    pub(super) fn add(&mut self, layout: Layout, kind: u64, value: &[u8], time: Time) {
        let word = layout.word.bytes();
        let word_at = |at: usize| {
            let bytes = value.get(at * word..(at + 1) * word)?;
            Some(number(layout.order, bytes))
        };
        let Some(image) = word_at(0) else { return };
        if kind == MetadataType::ImagePath as u64 {
            let known = self.paths.len();
            if known >= MOST && !self.paths.contains_key(&image) {
                return;
            }
            let path = self.paths.entry(image).or_default();
            if value.get(word) == Some(&0) {
                path.clear();
            }
            let part = value.get(word + 1..).unwrap_or(&[]);
            if path.len() + part.len() <= LONGEST_PATH {
                path.extend_from_slice(part);
            }
        } else if kind == MetadataType::Image as u64
            && self.numbers.len() < MOST
            && let (Some(start), Some(bytes)) = (word_at(1), word_at(2))
            && self.numbers.insert(image)
        {
            self.add_image(Image {
                number: image,
                start,
                bytes,
                build_id: value.get(3 * word..).unwrap_or(&[]),
                since: time,
            });
        }
    }

    /// Adds an image. The record of its path precedes it.
    fn add_image(&mut self, image: Image<'_>) {
        let path = self.paths.get(&image.number).map_or(&[][..], Vec::as_slice);
        let path = String::from_utf8_lossy(path).into_owned();
        let build_id = (!image.build_id.is_empty()).then(|| image.build_id.to_vec());
        // Among the images at this address so far: the same file, or else an offset that none of the others has. (Of two
        // that do not overlap each other, one may have been moved, and the other not.)
        let known = self.mappings.iter().find(|it| {
            run_time(it.start) == image.start
                && (&it.path, &it.build_id, it.bytes) == (&path, &build_id, image.bytes)
        });
        let others = self.mappings.iter().filter(|it| {
            let start = run_time(it.start);
            start < image.start.saturating_add(image.bytes)
                && image.start < start.saturating_add(it.bytes)
        });
        let by = match known {
            Some(known) => known.start.0.wrapping_sub(image.start),
            None => {
                let moves = others.map(|it| it.start.0 >> MOVE_BITS);
                moves.max().map_or(0, |most| most + 1) << MOVE_BITS
            }
        };
        let is_known = known.is_some();
        let is_first = self.moved.is_empty();
        self.moved.push(Moved {
            start: image.start,
            bytes: image.bytes,
            since: image.since,
            by,
        });
        if !is_known {
            self.mappings.push(Mapping {
                start: Addr(image.start.wrapping_add(by)),
                bytes: image.bytes,
                offset: 0,
                path,
                build_id,
                since: (!is_first).then_some(image.since),
            });
        }
        self.has_changed = true;
    }

    /// The files in the order of their records, and the moved images; `None` if unchanged since the last call.
    pub(super) fn changed(&mut self) -> Option<(Vec<Mapping>, MovedImages)> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let moved = match self.moved.iter().all(|it| it.by == 0) {
            true => MovedImages::default(),
            false => MovedImages(self.moved.as_slice().into()),
        };
        Some((self.mappings.clone(), moved))
    }
}

/// Bits of a moved address that hold the run-time address; the addresses of processes are smaller.
const MOVE_BITS: u32 = 48;

/// The run-time address of a possibly moved address.
fn run_time(address: Addr) -> u64 {
    address.0 & ((1 << MOVE_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use kymo_wire::event::{ByteOrder, Shape, WordSize};

    use super::*;

    const LAYOUT: Layout = Layout {
        shape: Shape::Wide,
        word: WordSize::Bits64,
        order: ByteOrder::Little,
        function_shift: 0,
    };

    impl ImageFacts {
        fn load(&mut self, number: u64, (start, bytes): (u64, u64), path: &str, time: i64) {
            for (part, text) in (0u8..).zip(path.as_bytes().chunks(5)) {
                let value = [&number.to_le_bytes()[..], &[part], text].concat();
                self.add(LAYOUT, MetadataType::ImagePath as u64, &value, Time(time));
            }
            let words = [number, start, bytes].map(u64::to_le_bytes);
            let value = [words.as_flattened(), &[0xAB, path.len() as u8]].concat();
            self.add(LAYOUT, MetadataType::Image as u64, &value, Time(time));
        }
    }

    #[test]
    fn a_library_at_the_place_of_another_is_told_from_it() {
        let mut facts = ImageFacts::default();
        facts.load(1, (0x5000, 0x1000), "/bin/program", 1);
        facts.load(2, (0x9000, 0x1000), "/lib/first.so", 10);
        facts.load(3, (0x8800, 0x1000), "/lib/another.so", 20);
        facts.load(4, (0x9000, 0x1000), "/lib/first.so", 30);
        let (mappings, moved) = facts.changed().unwrap();
        let found: Vec<_> = mappings
            .iter()
            .map(|it| (it.start.0, it.path.as_str(), it.since.map(|time| time.0)))
            .collect();
        const AWAY: u64 = 1 << 48;
        assert_eq!(
            found,
            [
                (0x5000, "/bin/program", None),
                (0x9000, "/lib/first.so", Some(10)),
                (AWAY + 0x8800, "/lib/another.so", Some(20)),
            ]
        );
        assert_eq!(mappings[1].build_id.as_deref(), Some(&[0xAB, 13][..]));
        let at = |address, time| moved.address(address, Time(time));
        assert_eq!(
            [at(0x9010, 15), at(0x9010, 25), at(0x9010, 35)],
            [0x9010, AWAY + 0x9010, 0x9010]
        );
        // An address before the first image's record belongs to that image, but not one after its end.
        assert_eq!([at(0x9010, 5), at(0x9FFF, 25)], [0x9010, 0x9FFF]);
        assert_eq!(at(0x5010, 99), 0x5010);
    }

    #[test]
    fn a_library_over_one_that_was_moved_is_moved_further() {
        let mut facts = ImageFacts::default();
        facts.load(1, (0x9000, 0x2000), "first", 1);
        facts.load(2, (0x8000, 0x2000), "second", 20);
        // It overlaps the second alone.
        facts.load(3, (0x7000, 0x2000), "third", 30);
        let (mappings, moved) = facts.changed().unwrap();
        let found: Vec<_> = mappings.iter().map(|it| it.start.0).collect();
        const AWAY: u64 = 1 << 48;
        assert_eq!(found, [0x9000, AWAY + 0x8000, 2 * AWAY + 0x7000]);
        let at = |time| moved.address(0x8010, Time(time));
        assert_eq!([at(25), at(35)], [AWAY + 0x8010, 2 * AWAY + 0x8010]);
    }

    #[test]
    fn libraries_side_by_side_stay_where_they_are() {
        let mut facts = ImageFacts::default();
        facts.load(1, (0x5000, 0x1000), "a", 1);
        facts.load(2, (0x6000, 0x1000), "b", 2);
        facts.load(3, (0x5000, 0x1000), "a", 3);
        let (mappings, moved) = facts.changed().unwrap();
        assert_eq!((mappings.len(), moved), (2, MovedImages::default()));
    }

    #[test]
    fn damaged_facts_are_no_images() {
        let mut facts = ImageFacts::default();
        for kind in [7, 8, 9, 10] {
            for length in 0..24 {
                facts.add(LAYOUT, kind, &vec![0xFF; length], Time(0));
            }
        }
        facts.load(1, (u64::MAX - 5, u64::MAX), "", 1);
        facts.load(2, (u64::MAX, u64::MAX), "", 1);
        assert_eq!(facts.changed().unwrap().0.len(), 2);
    }
}
