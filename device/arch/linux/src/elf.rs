//! What the running program's own image says: where it begins, and its build id.
//!
//! The linker defines `__ehdr_start` and `__executable_start` when the headers are loaded, which
//! they are in every program for Linux; both are taken weakly, so that nothing fails to link.

use core::ffi::c_void;

use crate::address_of;

core::arch::global_asm!(
    ".weak __ehdr_start",
    ".hidden __ehdr_start",
    ".weak __executable_start",
    ".hidden __executable_start",
    ".pushsection .data.rel.ro.kymo_image,\"aw\"",
    ".globl kymo_image",
    ".hidden kymo_image",
    ".balign 8",
    "kymo_image:",
    address_of!("__ehdr_start"),
    address_of!("__executable_start"),
    ".popsection",
);

// SAFETY: the assembly above defines it, with this size, and it never changes once loaded.
unsafe extern "C" {
    static kymo_image: [*const c_void; 2];
}

/// Where the program begins in memory; null if the linker didn't say.
pub fn text_base() -> *const c_void {
    // SAFETY: `kymo_image` is defined above, and constant once the program is loaded.
    unsafe { kymo_image[1] }
}

/// An ELF file header; the 32-bit one has the same fields, of other sizes.
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

/// The program's notes, one after the other; each begins with its header. Empty if there are none.
pub fn notes() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: as above.
    let image = unsafe { kymo_image[0] }.cast::<u8>();
    let count = if image.is_null() {
        0
    } else {
        // SAFETY: the linker put the file header there.
        unsafe { (*image.cast::<FileHeader>()).program_header_count }
    };
    (0..count).flat_map(move |i| {
        // SAFETY: the file header says that there are `count` program headers, which are loaded
        // with it, and where the notes lie.
        let segment = unsafe {
            let header = &*image.cast::<FileHeader>();
            let program = &*image
                .add(header.program_headers)
                .add(usize::from(i) * usize::from(header.program_header_size))
                .cast::<ProgramHeader>();
            if program.kind == NOTES {
                core::slice::from_raw_parts(image.add(program.offset), program.file_size)
            } else {
                &[]
            }
        };
        Notes(segment)
    })
}

/// `PT_NOTE`.
const NOTES: u32 = 4;

/// Walks through the notes of a segment.
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
