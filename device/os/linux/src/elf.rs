//! ELF images in memory: the start of the running program, the size of an image, its build id.
//!
//! The linker defines `__ehdr_start` and `__executable_start` if the headers are loaded, as they are in every program
//! for Linux. Both are weak references, so that no program fails to link.

use core::ffi::{c_int, c_void};

use kymo_wire::note::NOTE_NAME;

use crate::address_of;

core::arch::global_asm!(
    ".weak __ehdr_start",
    ".hidden __ehdr_start",
    ".weak __executable_start",
    ".hidden __executable_start",
    ".weak _dl_find_object",
    ".pushsection .data.rel.ro.kymo_image,\"aw\"",
    ".globl kymo_image",
    ".hidden kymo_image",
    ".balign 8",
    "kymo_image:",
    address_of!("__ehdr_start"),
    address_of!("__executable_start"),
    address_of!("_dl_find_object"),
    ".popsection",
);

// SAFETY: the assembly above defines it, with this size, and it never changes once loaded.
unsafe extern "C" {
    static kymo_image: [*const c_void; 3];
}

/// Image that contains an address, according to the dynamic linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the image that begins at this address.
    Image(usize),
    /// In no image.
    Elsewhere,
    /// The C library cannot tell (glibc before 2.35, musl).
    Unknown,
}

/// Returns the image that contains an address. Takes no lock, and may be called in signal handlers, as glibc
/// guarantees.
pub(crate) fn place(address: usize) -> Place {
    /// `struct dl_find_object`: 64 bits of flags, the start and the end of the image, and more, less than 128 bytes in
    /// all.
    #[repr(C, align(16))]
    struct Found {
        flags: u64,
        start: usize,
        others: [usize; 30],
    }
    // SAFETY: `kymo_image` is defined above, and constant once the program is loaded.
    let find = unsafe { kymo_image[2] };
    if find.is_null() {
        return Place::Unknown;
    }
    // SAFETY: this is how glibc declares it.
    let find: unsafe extern "C" fn(usize, *mut Found) -> c_int =
        unsafe { core::mem::transmute(find) };
    let mut found = Found {
        flags: 0,
        start: 0,
        others: [0; 30],
    };
    // SAFETY: there is room for what it writes.
    match unsafe { find(address, &mut found) } {
        0 => Place::Image(found.start),
        _ => Place::Elsewhere,
    }
}

/// Owner of the hook function to which the dynamic linker resolves the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This recorder, as far as can be determined.
    Own,
    /// Another copy of the recorder in this process.
    Copy,
    /// A function that records nothing, or not for Kymo: the C library's, which precedes that of a plug-in.
    Other,
}

/// Determines the owner of the hook function, which the dynamic linker resolved to `found`.
pub(crate) fn answer(found: usize) -> Answer {
    // SAFETY: `kymo_image` is defined above, and constant once the program is loaded.
    let own = unsafe { kymo_image[0] };
    if own.is_null() {
        return Answer::Own;
    }
    // SAFETY: the linker placed there the file header of the image that contains this recorder.
    let bytes = unsafe { Image::at(own.cast()) }.bytes();
    if found.wrapping_sub(own as usize) < bytes {
        return Answer::Own;
    }
    let Place::Image(start) = place(found) else {
        return Answer::Own;
    };
    // SAFETY: the dynamic linker reports that an image begins there, and has just returned a function in it.
    let mut notes = unsafe { Image::at(start as *const u8) }.notes();
    let is_ours = |note: &[u8]| note.get(12..).is_some_and(|it| it.starts_with(&NOTE_NAME));
    match notes.any(is_ours) {
        true => Answer::Copy,
        false => Answer::Other,
    }
}

/// Returns the start of the program in memory; null if the linker did not define it.
pub fn text_base() -> *const c_void {
    // SAFETY: `kymo_image` is defined above, and constant once the program is loaded.
    unsafe { kymo_image[1] }
}

/// An ELF file header; the 32-bit one has the same fields, with other sizes.
#[repr(C)]
struct FileHeader {
    identification: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: usize,
    program_headers: usize,
    section_headers: usize,
    flags: u32,
    header_size: u16,
    program_header_size: u16,
    program_header_count: u16,
}

/// An ELF program header.
#[cfg(target_pointer_width = "64")]
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    memory_size: usize,
    align: usize,
}

/// An ELF program header.
#[cfg(target_pointer_width = "32")]
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    memory_size: usize,
    flags: u32,
    align: usize,
}

/// Returns the program's notes, each with its header. Empty if there are none.
pub fn notes() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: as above.
    let image = unsafe { kymo_image[0] };
    // SAFETY: the linker placed the program's file header there.
    let image = (!image.is_null()).then(|| unsafe { Image::at(image.cast()) });
    image.into_iter().flat_map(|image| image.notes())
}

/// An ELF file in memory whose headers are loaded with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image(*const u8);

impl Image {
    /// Creates the image whose file header is at this address.
    ///
    /// # Safety
    /// An ELF image of this machine's kind begins there, all of its segments are mapped, and it stays as long as this
    /// value and the slices that it returns are used.
    pub(crate) const unsafe fn at(header: *const u8) -> Self {
        Self(header)
    }

    /// Returns the file header, at the start of the image.
    pub(crate) fn header(self) -> &'static [u8] {
        // SAFETY: by the contract of `at`.
        unsafe { core::slice::from_raw_parts(self.0, size_of::<FileHeader>()) }
    }

    /// Returns the bytes of the program headers.
    pub(crate) fn segments(self) -> &'static [u8] {
        // SAFETY: by the contract of `at`; the file header holds their offset and number, and they are loaded with it.
        unsafe {
            let header = &*self.0.cast::<FileHeader>();
            let bytes =
                usize::from(header.program_header_size) * usize::from(header.program_header_count);
            core::slice::from_raw_parts(self.0.add(header.program_headers), bytes)
        }
    }

    fn program_headers(self) -> impl Iterator<Item = &'static ProgramHeader> {
        // SAFETY: as above.
        let size = usize::from(unsafe { (*self.0.cast::<FileHeader>()).program_header_size });
        let segments = self.segments().chunks_exact(size.max(1));
        let whole = segments.filter(|header| header.len() >= size_of::<ProgramHeader>());
        // SAFETY: each has the size that the file header gives, and the linker aligns them.
        whole.map(|header| unsafe { &*header.as_ptr().cast::<ProgramHeader>() })
    }

    /// Returns the number of bytes from the start of the lowest segment to the end of the highest.
    pub(crate) fn bytes(self) -> usize {
        let loaded = || self.program_headers().filter(|it| it.kind == LOADED);
        let first = loaded().map(|it| it.address).min().unwrap_or(0);
        let ends = loaded().map(|it| it.address.wrapping_add(it.memory_size));
        ends.max().unwrap_or(0).wrapping_sub(first)
    }

    /// Returns the image's notes, each with its header.
    pub(crate) fn notes(self) -> impl Iterator<Item = &'static [u8]> {
        let first = self.program_headers().filter(|it| it.kind == LOADED);
        let first = first.map(|it| it.address).min().unwrap_or(0);
        let notes = self.program_headers().filter(|it| it.kind == NOTES);
        notes.flat_map(move |it| {
            // SAFETY: by the contract of `at`, and the program header holds their address and size.
            Notes(unsafe {
                core::slice::from_raw_parts(
                    self.0.add(it.address.wrapping_sub(first)),
                    it.file_size,
                )
            })
        })
    }

    /// Returns the image's build id; empty if it has none.
    pub(crate) fn build_id(self) -> &'static [u8] {
        let mut ids = self.notes().map(kymo_recorder::identity::build_id);
        ids.find(|id| !id.is_empty()).unwrap_or(&[])
    }
}

/// `PT_LOAD`.
const LOADED: u32 = 1;
/// `PT_NOTE`.
const NOTES: u32 = 4;

/// Iterates over the notes of a segment.
struct Notes(&'static [u8]);

impl Iterator for Notes {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        let word = |at: usize| {
            let bytes = self.0.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
        };
        let name = word(0)?.checked_next_multiple_of(4)?;
        let body = word(4)?.checked_next_multiple_of(4)?;
        let size = name.checked_add(body)?.checked_add(12)?.min(self.0.len());
        let (note, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(note)
    }
}
