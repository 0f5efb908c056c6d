//! Header of a perf.data file: position of the records, their `sample_id` layouts, and the feature sections with build
//! IDs.

use std::collections::HashMap;

use super::MAGIC;
use super::fields::{number, text, word};
use super::sample_id::Layouts;
use crate::Error;
use crate::memory::elf_kind;

/// Feature sections of a file that are used here.
#[derive(Debug, Default)]
pub(super) struct Features {
    /// Build IDs, by path.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Release of the kernel.
    pub release: Option<String>,
}

const BUILD_ID: u32 = 2;
pub(super) const RELEASE: u32 = 4;
pub(super) const COMPRESSED: u32 = 27;

impl Features {
    pub fn read(bytes: &[u8], header: &Header) -> Self {
        let section = |bit| header.feature(bytes, bit);
        // A string follows its length.
        let release = section(RELEASE).map(|section| text(section, 4));
        Features {
            build_ids: section(BUILD_ID).map_or_else(HashMap::new, build_ids),
            release: release.filter(|release| !release.is_empty()),
        }
    }
}

/// Reads the build IDs of a section: records with a header of 8 bytes.
fn build_ids(section: &[u8]) -> HashMap<String, Vec<u8>> {
    let mut ids = HashMap::new();
    let mut at = 0;
    while let Some(sizes) = word(section, at + 4) {
        let (misc, size) = (sizes & 0xffff, (sizes >> 16) as usize);
        let record = section.get(at..at.saturating_add(size));
        let Some((path, id)) = record.and_then(|record| build_id(record.get(8..)?, misc)) else {
            break;
        };
        ids.insert(path, id);
        at += size;
    }
    ids
}

/// Reads file and build ID of a HEADER_BUILD_ID record: process, 20 bytes of ID, the number of valid ones, the path.
pub(super) fn build_id(record: &[u8], misc: u32) -> Option<(String, Vec<u8>)> {
    const MISC_SIZE: u32 = 1 << 15;
    record.get(28)?;
    let length = match misc & MISC_SIZE {
        0 => 20,
        _ => usize::from(*record.get(24)?).min(20),
    };
    Some((text(record, 28), record.get(4..4 + length)?.to_vec()))
}

/// Position of the records, and their `sample_id` layouts.
pub(super) struct Header {
    pub data: std::ops::Range<usize>,
    pub layouts: Layouts,
    is_piped: bool,
    /// Whether the file ends before the data.
    pub is_cut: bool,
}

impl Header {
    /// Section of a feature, if the file has it.
    pub(super) fn feature<'a>(&self, bytes: &'a [u8], bit: u32) -> Option<&'a [u8]> {
        self.section(bytes, bit)?
    }

    /// Whether the file ends before the end of a section that is needed here and announced by the header.
    pub(super) fn lacks_features(&self, bytes: &[u8]) -> bool {
        let mut read = [BUILD_ID, RELEASE, COMPRESSED].into_iter();
        read.any(|bit| matches!(self.section(bytes, bit), Some(None)))
    }

    /// Section of a feature, if the header announces one; `Some(None)` if the file ends before the section.
    fn section<'a>(&self, bytes: &'a [u8], bit: u32) -> Option<Option<&'a [u8]>> {
        const FEATURES: usize = 72;
        let features = number(bytes, FEATURES).filter(|_| !self.is_piped)?;
        if features >> bit & 1 == 0 {
            return None;
        }
        // The sections are in the order of their bits.
        let before = (features & ((1 << bit) - 1)).count_ones() as usize;
        let place = |at| usize::try_from(number(bytes, at)?).ok();
        let section = || {
            let entry = self.data.end.checked_add(16 * before)?;
            let (start, size) = (place(entry)?, place(entry + 8)?);
            bytes.get(start..start.checked_add(size)?)
        };
        Some(section())
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |offset: u64, expected, found: String| Error::Format {
            offset,
            expected,
            found,
        };
        if let Some(what) = elf_kind(bytes) {
            return Err(Error::Program { what });
        }
        if bytes.get(..8) != Some(MAGIC) {
            let found = format!("{:02x?}", bytes.get(..8).unwrap_or(bytes));
            return Err(wrong(0, "PERFILE2", found));
        }
        let size = number(bytes, 8).unwrap_or_default();
        if size == 16 {
            // Piped: records follow, including the attributes.
            return Ok(Header {
                data: 16..bytes.len(),
                layouts: Layouts::default(),
                is_piped: true,
                is_cut: false,
            });
        }
        let field = |at| {
            number(bytes, at).ok_or_else(|| {
                wrong(
                    bytes.len() as u64,
                    "a header of 104 bytes",
                    "the end".into(),
                )
            })
        };
        let (attrs, data, data_size) = (field(24)?, field(40)?, field(48)?);
        let place = |value: u64| {
            usize::try_from(value)
                .unwrap_or(usize::MAX)
                .min(bytes.len())
        };
        let mut layouts = Layouts::default();
        let (size, attrs_size) = (place(field(16)?), place(field(32)?));
        let attrs_start = place(attrs);
        let all = bytes
            .get(attrs_start..attrs_start.saturating_add(attrs_size).min(bytes.len()))
            .unwrap_or_default();
        // The position of the identifiers follows each.
        for attr in all.chunks_exact(size.max(16)) {
            let ids = (number(attr, attr.len() - 16), number(attr, attr.len() - 8));
            let ids = match ids {
                (Some(start), Some(size)) => {
                    bytes.get(place(start)..place(start.saturating_add(size)))
                }
                _ => None,
            };
            layouts.add(attr, ids.unwrap_or_default());
        }
        let data_end = data.saturating_add(data_size);
        let end = if data_size == 0 {
            bytes.len()
        } else {
            place(data_end)
        };
        Ok(Header {
            data: place(data)..end.max(place(data)),
            layouts,
            is_piped: false,
            is_cut: data_end > bytes.len() as u64,
        })
    }
}
