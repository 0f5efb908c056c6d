//! Comparison of a program's file with the code of a recording, before its symbols name that code.
//!
//! A file fits an image of a file with the same build ID. Where one of them has none, and for dumps of memory, which
//! never have one, the code itself is compared. Some words may differ in the code that ran: debuggers set breakpoints in
//! it, and kernels patch themselves.

use std::collections::BTreeMap;
use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use crate::input::Buffer;
use crate::memory::{Image, Layout, Memory, build_id};
use crate::perf::hex;
use crate::remarks::Remark;

/// Size of the words that are compared, in bytes.
const WORD: usize = 4;

/// The file fits if at most one in so many words of code differs.
const TOLERANCE: u64 = 8;

/// Identifies an image of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageId {
    /// Memory address of the file's contents.
    contents: usize,
    /// Address of the image's first byte.
    address: u64,
}

impl From<&Image> for ImageId {
    fn from(image: &Image) -> Self {
        ImageId {
            contents: image.bytes.file().as_ptr().addr(),
            address: image.address,
        }
    }
}

/// How the addresses of a file apply to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// The image is of this file: its link addresses are those of the image's file.
    Linked,
    /// The image is memory that contains the program where it is linked.
    AtAddresses,
}

/// Result of the comparison of a file with all images of a recording.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    /// Images that have code at the file's addresses, or a build ID.
    images: BTreeMap<ImageId, Option<Applies>>,
    /// Whether the file has the build ID of an image.
    is_same_build: bool,
    /// The build IDs of the file and of the first image that has another one, with the image's name.
    other_build: Option<(Vec<u8>, Vec<u8>, String)>,
    /// Comparison with the images that the file fits.
    fitting: Difference,
    /// Comparison with the other images.
    others: Difference,
}

/// Differences between the code of a file and of images.
#[derive(Clone, Debug, Default)]
struct Difference {
    /// Number of words of which both have the code.
    words: u64,
    /// Number of those that differ.
    differing: u64,
    /// Address of the first one that differs, with the name of the image.
    first: Option<(u64, String)>,
}

impl Difference {
    /// Compares `ours` with `theirs`, which may be at other addresses.
    fn add(&mut self, ours: (u64, &[u8]), theirs: (u64, &[u8]), name: &str) {
        let start = ours.0.max(theirs.0);
        let from = |(address, bytes): (u64, &'_ [u8])| -> Option<(usize, usize)> {
            let skipped = usize::try_from(start - address).ok()?;
            Some((skipped, bytes.len().checked_sub(skipped)?))
        };
        let (Some((ours_from, ours_left)), Some((theirs_from, theirs_left))) =
            (from(ours), from(theirs))
        else {
            return;
        };
        let length = ours_left.min(theirs_left);
        let ours = ours.1[ours_from..ours_from + length].chunks(WORD);
        let theirs = theirs.1[theirs_from..theirs_from + length].chunks(WORD);
        for (index, (one, other)) in (0u64..).zip(ours.zip(theirs)) {
            self.words += 1;
            if one != other {
                self.differing += 1;
                if self.first.is_none() {
                    self.first = Some((start + index * WORD as u64, name.to_owned()));
                }
            }
        }
    }

    fn is_small(&self) -> bool {
        self.differing * TOLERANCE <= self.words
    }

    fn merge(&mut self, other: Difference) {
        self.words += other.words;
        self.differing += other.differing;
        self.first = self.first.take().or(other.first);
    }
}

/// Returns the code of an ELF file: its sections of code or, without sections, its executable segments, each with its
/// link address.
fn code<'a>(file: &object::File<'a>) -> Vec<(u64, &'a [u8])> {
    let sections = file.sections();
    let sections = sections.filter(|section| section.kind() == object::SectionKind::Text);
    let sections = sections.filter_map(|section| Some((section.address(), section.data().ok()?)));
    let mut code: Vec<_> = sections.filter(|(_, bytes)| !bytes.is_empty()).collect();
    if code.is_empty() && file.sections().next().is_none() {
        let segments = file.segments().filter(|segment| match segment.flags() {
            object::SegmentFlags::Elf { p_flags, .. } => p_flags.0 & object::elf::PF_X.0 != 0,
            _ => false,
        });
        code.extend(segments.filter_map(|it| Some((it.address(), it.data().ok()?))));
    }
    code
}

/// Returns whether an ELF file has code, and not only the description of it, as a file of debug information.
pub fn has_code(elf: &[u8]) -> bool {
    object::File::parse(elf).is_ok_and(|file| !code(&file).is_empty())
}

impl Fit {
    /// Compares an ELF file with the images of all buffers. `None` if it is not an ELF file.
    pub fn of(elf: &[u8], buffers: &[Buffer]) -> Option<Self> {
        let file = object::File::parse(elf).ok()?;
        let (code, id) = (code(&file), build_id(elf));
        // Sources share images, and mappings share files.
        let images = buffers.iter().flat_map(|buffer| &buffer.code);
        let images = images.flat_map(Memory::images);
        let images: BTreeMap<ImageId, &Image> = images.map(|it| (it.into(), it)).collect();
        let mut of_files: BTreeMap<usize, Option<Option<Applies>>> = BTreeMap::new();
        let mut fit = Fit::default();
        for (key, image) in images {
            let contents = image.bytes.file();
            let result = match of_files.get(&key.contents) {
                Some(known) => *known,
                None => {
                    let layout = Layout::of_elf(contents);
                    let result = layout
                        .map(|layout| fit.file(&code, id.as_deref(), (&layout, contents), image));
                    of_files.insert(key.contents, result);
                    result
                }
            };
            let applies = result.unwrap_or_else(|| fit.memory(&code, image));
            fit.images.insert(key, applies);
        }
        Some(fit)
    }

    /// Compares with an image's file, at its link addresses.
    fn file(
        &mut self,
        code: &[(u64, &[u8])],
        id: Option<&[u8]>,
        (layout, contents): (&Layout, &[u8]),
        image: &Image,
    ) -> Option<Applies> {
        if let (Some(ours), Some(theirs)) = (id, build_id(contents)) {
            if ours == theirs {
                self.is_same_build = true;
                return Some(Applies::Linked);
            }
            let other = || (ours.to_vec(), theirs, image.name.clone());
            self.other_build.get_or_insert_with(other);
            return None;
        }
        let mut difference = Difference::default();
        for (offset, size, address) in layout.segments() {
            let end = offset.saturating_add(size).min(contents.len() as u64);
            let bytes = contents.get(offset as usize..end as usize);
            for ours in code {
                difference.add(*ours, (address, bytes.unwrap_or_default()), &image.name);
            }
        }
        self.decide(difference, Applies::Linked)
    }

    /// Compares with memory, at run-time addresses.
    fn memory(&mut self, code: &[(u64, &[u8])], image: &Image) -> Option<Applies> {
        let mut difference = Difference::default();
        for ours in code {
            difference.add(*ours, (image.address, &image.bytes), &image.name);
        }
        self.decide(difference, Applies::AtAddresses)
    }

    fn decide(&mut self, difference: Difference, applies: Applies) -> Option<Applies> {
        if difference.words == 0 {
            return None;
        }
        let fits = difference.is_small();
        match fits {
            true => self.fitting.merge(difference),
            false => self.others.merge(difference),
        }
        fits.then_some(applies)
    }

    /// Returns how the file's addresses apply to an image; `None` if it is of other code.
    pub fn applies(&self, image: ImageId) -> Option<Applies> {
        self.images.get(&image).copied().flatten()
    }

    /// Returns whether the file names any image.
    pub fn is_used(&self) -> bool {
        self.images.values().any(Option::is_some)
    }

    /// Returns whether an image contradicts the file. If not, and it names none, there was nothing to compare.
    pub fn is_other(&self) -> bool {
        !self.is_used() && (self.other_build.is_some() || self.others.words > 0)
    }

    /// Returns the warning if the file is of another program than the recording, or was changed. `path` is that of the
    /// file.
    pub fn remark(&self, path: &Path) -> Option<Remark> {
        let path = path.display();
        let differing = |difference: &Difference| {
            let (address, name) = difference.first.as_ref()?;
            let (count, words) = (difference.differing, difference.words);
            Some((
                format!("{count} of {words}"),
                format!("{address:#x}"),
                name.clone(),
            ))
        };
        let text = if self.is_used() {
            let (count, address, name) = differing(&self.fitting)?;
            format!(
                "{count} words of the code of {path} differ from {name}, the first at {address}: names may be wrong"
            )
        } else if let Some((ours, theirs, name)) = &self.other_build {
            format!(
                "{path} is not used for names: its build ID {} is not that of the traced code ({name} has {})",
                hex(ours),
                hex(theirs)
            )
        } else {
            let (count, address, name) = differing(&self.others)?;
            format!(
                "{path} is not used for names: its code is not that of the recording: {count} words differ, the first \
                 at {address} in {name}"
            )
        };
        Some(Remark::warning("", text))
    }
}
