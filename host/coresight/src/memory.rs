//! Memory images of the traced code.

mod history;
mod layout;

pub use history::{
    History, HistoryBuilder, Memory, Recorded, Running, Scene, Schedule, Session, View,
};
pub(crate) use history::{Replaced, thread_in};
pub use layout::{Layout, build_id};
pub(crate) use layout::{elf_kind, other_machine};

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use crate::element::Context;
use crate::snapshot::{Device, Dump, Snapshot};

/// Memory space, selected by the processor's exception level and security state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MemorySpace(pub u8);

impl MemorySpace {
    /// Secure EL1 and EL0.
    pub const EL1S: MemorySpace = MemorySpace(0x01);
    /// Non-secure EL1 and EL0.
    pub const EL1N: MemorySpace = MemorySpace(0x02);
    /// Non-secure EL2.
    pub const EL2N: MemorySpace = MemorySpace(0x04);
    /// EL3.
    pub const EL3: MemorySpace = MemorySpace(0x08);
    /// Secure EL2.
    pub const EL2S: MemorySpace = MemorySpace(0x10);
    /// Realm EL1 and EL0.
    pub const EL1R: MemorySpace = MemorySpace(0x20);
    /// Realm EL2.
    pub const EL2R: MemorySpace = MemorySpace(0x40);
    /// Root.
    pub const ROOT: MemorySpace = MemorySpace(0x80);
    /// Secure at any level.
    pub const ANY_S: MemorySpace = MemorySpace(0x19);
    /// Non-secure at any level.
    pub const ANY_N: MemorySpace = MemorySpace(0x06);
    /// Realm at any level.
    pub const ANY_R: MemorySpace = MemorySpace(0x60);
    /// All spaces.
    pub const ANY: MemorySpace = MemorySpace(0xff);

    /// Returns the name for listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::EL1S => "EL1S",
            Self::EL1N => "EL1N",
            Self::EL2N => "EL2N",
            Self::EL3 => "EL3",
            Self::EL2S => "EL2S",
            Self::EL1R => "EL1R",
            Self::EL2R => "EL2R",
            Self::ROOT => "Root",
            Self::ANY_S => "Any S",
            Self::ANY_N => "Any N",
            Self::ANY_R => "Any R",
            Self::ANY => "Any",
            _ => "None",
        }
    }

    /// Parses the space name of a snapshot's image. `None` if no such space is known.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_uppercase().as_str() {
            "EL1S" => Self::EL1S,
            "EL1N" => Self::EL1N,
            "EL2" | "EL2N" => Self::EL2N,
            "EL3" => Self::EL3,
            "EL2S" => Self::EL2S,
            "EL1R" => Self::EL1R,
            "EL2R" => Self::EL2R,
            "ROOT" => Self::ROOT,
            "S" | "H" => Self::ANY_S,
            "N" | "P" => Self::ANY_N,
            "R" => Self::ANY_R,
            "" | "ANY" => Self::ANY,
            _ => return None,
        })
    }

    fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// State that a trace has reported so far: time, context and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// The context.
    pub context: Context,
    /// The last timestamp.
    pub ticks: Option<u64>,
    /// The thread, if another source than the trace reports it.
    pub thread: Option<u32>,
    /// The session of the trace unit, by its index.
    pub session: Option<u32>,
    /// The last memory change known to have happened, because code ran that was not present before it.
    pub change: u32,
}

/// Code in memory.
pub trait Code {
    /// Returns the bytes from `address` to the end of the image there; `None` if no image covers the address.
    fn at(&self, view: View, space: MemorySpace, address: u64) -> Option<&[u8]>;

    /// Returns the thread switches of the source's stream, for trace that does not report them.
    fn schedule(&self) -> Option<&Schedule> {
        None
    }

    /// Returns the view of memory in a given state of the trace. Memory that never changes has one view.
    fn view(&self, _: &Moment) -> View {
        View::default()
    }

    /// Returns the first later view of the same session in which an address has code.
    fn later(&self, _: &Moment, _: View, _: MemorySpace, _: u64) -> Option<View> {
        None
    }
}

impl<C: Code> Code for &C {
    fn at(&self, view: View, space: MemorySpace, address: u64) -> Option<&[u8]> {
        (**self).at(view, space, address)
    }

    fn schedule(&self) -> Option<&Schedule> {
        (**self).schedule()
    }

    fn view(&self, moment: &Moment) -> View {
        (**self).view(moment)
    }

    fn later(&self, moment: &Moment, view: View, space: MemorySpace, address: u64) -> Option<View> {
        (**self).later(moment, view, space, address)
    }
}

/// Bytes of a file, or a part of them. Clones and parts share the allocation, so many mappings of a file need it once.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    file: Arc<[u8]>,
    part: Range<usize>,
    /// Where the file was read, if it is a file as it stands.
    path: Option<Arc<Path>>,
}

impl Bytes {
    /// Returns the part from `offset` on, of at most `length` bytes; it is shorter if the bytes end earlier.
    #[must_use]
    pub fn part(&self, offset: u64, length: u64) -> Self {
        let within = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let start = self.part.start + within(offset).min(self.part.len());
        let end = start + within(length).min(self.part.end - start);
        Bytes {
            file: Arc::clone(&self.file),
            part: start..end,
            path: self.path.clone(),
        }
    }
}

impl Bytes {
    /// Returns the whole file.
    pub fn file(&self) -> &Arc<[u8]> {
        &self.file
    }

    /// Notes where the file was read.
    #[must_use]
    pub fn read_from(mut self, path: &Path) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Returns where the file was read, if it was noted.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(file: Vec<u8>) -> Self {
        let part = 0..file.len();
        Bytes {
            file: file.into(),
            part,
            path: None,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.part.clone()).unwrap_or_default()
    }
}

/// Memory images, by address and space. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Sorted>);

#[derive(Clone, Debug, Default)]
struct Sorted {
    /// Sorted by start address; of several with the same start, the one added last comes first.
    images: Vec<Image>,
    /// For each image, the highest address (inclusive) of it and all images before it. Bounds the search in
    /// [`find`](Images::find).
    reach: Vec<u64>,
}

/// One image.
#[derive(Clone, Debug)]
pub struct Image {
    /// Human-readable origin.
    pub name: String,
    /// Address of its first byte.
    pub address: u64,
    /// Offset of that byte in the file.
    pub file_offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
    /// Spaces in which it is visible.
    pub space: MemorySpace,
}

impl Image {
    /// Creates the images of a dumped file: one if the dump has an address, otherwise one for each segment of the ELF
    /// file. `place` names the file in errors.
    ///
    /// # Errors
    /// [`Error::Value`] if the file has code of another machine, or no address.
    pub(crate) fn of_dump(dump: &Dump, bytes: &Bytes, place: &str) -> Result<Vec<Image>, Error> {
        if let Some(machine) = other_machine(bytes.file()) {
            return Err(Error::Value {
                place: place.to_owned(),
                expected: "memory of an Arm core",
                found: format!("an ELF file of another machine ({machine})"),
            });
        }
        let image = |address, offset, length| Image {
            name: dump.file.display().to_string(),
            address,
            file_offset: offset,
            bytes: bytes.part(offset, length),
            space: dump.memory_space(),
        };
        if let Some(address) = dump.address {
            let length = dump.length.unwrap_or(u64::MAX);
            return Ok(vec![image(address, dump.offset, length)]);
        }
        let layout = Layout::of_elf(bytes.file()).ok_or_else(|| Error::Value {
            place: place.to_owned(),
            expected: "an address, or a linked ELF file",
            found: "another file without an address".to_owned(),
        })?;
        let segments = layout.segments();
        Ok(segments
            .map(|(offset, size, address)| image(address, offset, size))
            .collect())
    }

    /// Returns the address of the last byte, limited to the end of the address space.
    fn last(&self) -> u64 {
        let behind = (self.bytes.len() as u64).saturating_sub(1);
        self.address.saturating_add(behind)
    }
}

impl Sorted {
    /// Recomputes `reach` from the image at this index on.
    fn measure(&mut self, from: usize) {
        self.reach.truncate(from);
        let mut reach = self.reach.last().copied().unwrap_or_default();
        for image in self.images.get(from..).unwrap_or_default() {
            reach = reach.max(image.last());
            self.reach.push(reach);
        }
    }
}

impl FromIterator<Image> for Images {
    /// Collects images. See [`find`](Images::find) for images that overlap.
    fn from_iter<T: IntoIterator<Item = Image>>(images: T) -> Self {
        let mut images: Vec<_> = images.into_iter().collect();
        images.reverse();
        images.sort_by_key(|image| image.address);
        let mut sorted = Sorted {
            images,
            reach: Vec::new(),
        };
        sorted.measure(0);
        Images(Arc::new(sorted))
    }
}

impl Images {
    /// Adds an image. See [`find`](Images::find) for images that overlap.
    pub fn add(&mut self, image: Image) {
        let sorted = Arc::make_mut(&mut self.0);
        let at = sorted
            .images
            .partition_point(|other| other.address < image.address);
        sorted.images.insert(at, image);
        sorted.measure(at);
    }

    /// Returns the image that covers an address. Of several, the one with the highest start address wins; with the same
    /// start address, the one added first.
    pub fn find(&self, space: MemorySpace, address: u64) -> Option<&Image> {
        // Goes backwards from the last image that begins at or before the address, until no remaining one reaches it.
        let Sorted { images, reach } = &*self.0;
        let end = images.partition_point(|image| image.address <= address);
        let candidates = images[..end].iter().zip(&reach[..end]).rev();
        candidates
            .take_while(|(_, reach)| **reach >= address)
            .map(|(image, _)| image)
            .find(|image| {
                let offset = usize::try_from(address - image.address).unwrap_or(usize::MAX);
                image.space.overlaps(space) && offset < image.bytes.len()
            })
    }

    /// Returns the images, sorted by start address.
    pub fn iter(&self) -> impl Iterator<Item = &Image> {
        self.0.images.iter()
    }

    /// Reads the memory of a snapshot's core. Returns the images, and an error for each file that cannot be read.
    /// `files` caches the files for the other cores.
    pub fn of_core(
        snapshot: &Snapshot,
        core: &Device,
        files: &mut HashMap<PathBuf, Bytes>,
    ) -> (Self, Vec<Error>) {
        let mut images = Vec::new();
        let mut errors = Vec::new();
        for dump in &core.dumps {
            let bytes = match files.get(&dump.file) {
                Some(bytes) => bytes.clone(),
                None => match snapshot.read_at(&dump.file) {
                    Ok((bytes, path)) => {
                        let bytes = Bytes::from(bytes).read_from(&path);
                        files.insert(dump.file.clone(), bytes.clone());
                        bytes
                    }
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                },
            };
            let rest = (bytes.len() as u64).saturating_sub(dump.offset);
            if rest < dump.length.unwrap_or(1) {
                errors.push(Error::Value {
                    place: dump.file.display().to_string(),
                    expected: "as much memory as the snapshot says",
                    found: format!(
                        "{rest} bytes behind offset {:#x} in the place of {}",
                        dump.offset,
                        dump.length.unwrap_or(1)
                    ),
                });
            }
            match Image::of_dump(dump, &bytes, &dump.file.display().to_string()) {
                Ok(parts) => images.extend(parts),
                Err(error) => errors.push(error),
            }
        }
        (images.into_iter().collect(), errors)
    }
}

impl Code for Images {
    fn at(&self, _: View, space: MemorySpace, address: u64) -> Option<&[u8]> {
        let image = self.find(space, address)?;
        image
            .bytes
            .get(usize::try_from(address - image.address).ok()?..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, address: u64, bytes: &[u8], space: MemorySpace) -> Image {
        Image {
            name: name.into(),
            address,
            file_offset: 0,
            bytes: bytes.to_vec().into(),
            space,
        }
    }

    #[test]
    fn the_first_of_several_images_has_an_address() {
        let all = [
            image("first", 16, &[1; 8], MemorySpace::EL3),
            image("long", 0, &[2; 64], MemorySpace::ANY),
            image("second", 16, &[3; 8], MemorySpace::ANY),
            image("top", u64::MAX - 3, &[4; 8], MemorySpace::ANY),
        ];
        let collected: Images = all.iter().cloned().collect();
        let mut added = Images::default();
        all.into_iter().for_each(|image| added.add(image));
        for images in [collected, added] {
            let at = |space, address| {
                let bytes = images.at(View::default(), space, address);
                bytes.map(|bytes| bytes[0])
            };
            assert_eq!(at(MemorySpace::EL3, 16), Some(1));
            assert_eq!(at(MemorySpace::EL1N, 16), Some(3));
            assert_eq!(at(MemorySpace::EL1N, 40), Some(2));
            assert_eq!(at(MemorySpace::EL1N, 64), None);
            assert_eq!(at(MemorySpace::EL1N, u64::MAX), Some(4));
        }
    }

    #[test]
    fn parts_end_where_their_file_does() {
        let bytes = Bytes::from(vec![1, 2, 3, 4]);
        assert_eq!(&*bytes.part(1, 2).part(1, u64::MAX), [3]);
        assert_eq!(&*bytes.part(9, 1), [0u8; 0]);
    }
}
