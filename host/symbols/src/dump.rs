//! Core dumps: ELF files with the content of memory.

use object::{Object, ObjectKind, ObjectSegment};

use crate::elf::MAGIC;
use crate::error::ElfError;
use crate::program::{Loaded, Program, parse, range};

/// Reads the memory of a core dump (an ELF file of that kind): addresses, with ranges of the file. `None` if the file
/// is not a core dump.
///
/// # Errors
/// When it is an ELF file, and damaged.
pub fn core_memory(data: &[u8]) -> Result<Option<Vec<Loaded>>, ElfError> {
    if !data.starts_with(&MAGIC) {
        return Ok(None);
    }
    let file = parse(data)?;
    if file.kind() != ObjectKind::Core {
        return Ok(None);
    }
    let segments = file.segments().filter_map(|segment| {
        let (offset, size) = segment.file_range();
        Some(Loaded {
            address: segment.address(),
            file: range(data, offset, size).filter(|range| !range.is_empty())?,
        })
    });
    Ok(Some(segments.collect()))
}

/// Error: the memory does not fit into a core dump of its program's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected at most 65534 parts of memory, at addresses of the program's width")]
pub struct TooLarge;

/// Creates a core dump of `program` with these parts of its memory, each with its address, in the format of debuggers,
/// without registers.
///
/// (System V Application Binary Interface, chapters "Object Files" and "Program Loading"; a header `PT_LOAD` for each
/// part.)
///
/// # Errors
/// [`TooLarge`].
pub fn core_dump(program: &Program, memory: &[(u64, Vec<u8>)]) -> Result<Vec<u8>, TooLarge> {
    const ET_CORE: u64 = 4;
    const PT_LOAD: u64 = 1;
    const READ_WRITE: u64 = 6;
    let header = program.file().get(..24).unwrap_or_default();
    let identification = header.get(..16).unwrap_or_default();
    let wide = identification.get(4) == Some(&2);
    let big_endian = program.is_big_endian();
    let (header_bytes, entry_bytes) = if wide { (64, 56) } else { (52, 32) };
    let mut out = Writer {
        bytes: identification.to_vec(),
        word: if wide { 8 } else { 4 },
        big_endian,
    };
    let parts = u16::try_from(memory.len())
        .ok()
        .filter(|count| *count < u16::MAX);
    let parts = parts.ok_or(TooLarge)?;
    out.number(ET_CORE, 2)?;
    // Machine and version are copied from the program.
    out.bytes.extend(header.get(18..24).unwrap_or_default());
    // No entry; program headers after this one; no sections.
    for word in [0, header_bytes, 0] {
        out.word(word)?;
    }
    out.number(0, 4)?;
    for half in [header_bytes, entry_bytes, parts.into(), 0, 0, 0] {
        out.number(half, 2)?;
    }
    let mut offset = header_bytes + entry_bytes * u64::from(parts);
    for (address, bytes) in memory {
        let length = bytes.len() as u64;
        out.number(PT_LOAD, 4)?;
        if wide {
            out.number(READ_WRITE, 4)?;
        }
        for word in [offset, *address, *address, length, length] {
            out.word(word)?;
        }
        if !wide {
            out.number(READ_WRITE, 4)?;
        }
        out.word(1)?;
        offset += length;
    }
    for (_, bytes) in memory {
        out.bytes.extend_from_slice(bytes);
    }
    Ok(out.bytes)
}

/// Writes numbers in the byte order and width of a program's machine.
struct Writer {
    bytes: Vec<u8>,
    /// Size of an address in bytes.
    word: usize,
    big_endian: bool,
}

impl Writer {
    fn word(&mut self, value: u64) -> Result<(), TooLarge> {
        self.number(value, self.word)
    }

    fn number(&mut self, value: u64, size: usize) -> Result<(), TooLarge> {
        let bytes = value.to_be_bytes();
        let (above, number) = bytes.split_at(bytes.len() - size);
        if above.iter().any(|byte| *byte != 0) {
            return Err(TooLarge);
        }
        let number = number.iter().copied();
        match self.big_endian {
            true => self.bytes.extend(number),
            false => self.bytes.extend(number.rev()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file without sections, sufficient to specify a machine.
    fn program(wide: bool, big_endian: bool) -> Program {
        let mut out = Writer {
            bytes: b"\x7fELF".to_vec(),
            word: if wide { 8 } else { 4 },
            big_endian,
        };
        out.bytes
            .extend([1 + u8::from(wide), 1 + u8::from(big_endian), 1]);
        out.bytes.resize(16, 0);
        // An executable for Arm.
        for (value, size) in [(2, 2), (40, 2), (1, 4)] {
            out.number(value, size).unwrap();
        }
        for _ in 0..3 {
            out.word(0).unwrap();
        }
        out.number(0, 4).unwrap();
        for half in [if wide { 64 } else { 52 }, 0, 0, 0, 0, 0] {
            out.number(half, 2).unwrap();
        }
        Program::from_elf(out.bytes).unwrap()
    }

    #[test]
    fn what_is_dumped_is_read_again() {
        let memory = [
            (0x2000_0000, b"hello".to_vec()),
            (0x2000_1000, vec![0; 300]),
            (0, vec![7]),
        ];
        for (wide, big_endian) in [(false, false), (false, true), (true, false), (true, true)] {
            let dump = core_dump(&program(wide, big_endian), &memory).unwrap();
            let found = core_memory(&dump).unwrap().expect("a core dump");
            let found: Vec<_> = found
                .into_iter()
                .map(|part| (part.address, dump[part.file].to_vec()))
                .collect();
            assert_eq!(found, memory, "{wide} {big_endian}");
        }
    }

    #[test]
    fn an_address_beyond_the_width_is_refused() {
        let memory = [(1 << 32, vec![1])];
        assert_eq!(core_dump(&program(false, false), &memory), Err(TooLarge));
        assert!(core_dump(&program(true, false), &memory).is_ok());
    }
}
