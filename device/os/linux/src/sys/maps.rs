//! Memory map of the process, from `/proc/self/maps`.

use core::ffi::c_int;

use super::{c, files, open, unnoticed};

/// Minimum buffer size for a line: a path may have 4096 bytes.
pub const LINE: usize = 4096 + 128;

/// Mapping that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// Start of the mapping; of a file, the start of the mapping of its offset 0.
    pub start: usize,
    /// End of the mapping that contains the address.
    pub end: usize,
    /// Path of the file, if its offset 0 is mapped before the address.
    pub path: Option<&'a [u8]>,
}

/// Looks up an address; `text` has [`LINE`] bytes or more. Returns `None` if nothing is mapped there, or if the system
/// does not report it.
pub fn mapped<'a>(address: usize, text: &'a mut [u8]) -> Option<Mapped<'a>> {
    const READ_ONLY_CLOEXEC: c_int = 0o2_000_000;
    let file = unnoticed(|| open(b"/proc/self/maps\0", READ_ONLY_CLOEXEC)).ok()?;
    let found = search(address, text, |to| {
        // SAFETY: the pointer and length are those of a slice.
        let count = unnoticed(|| unsafe { c::read(file, to.as_mut_ptr().cast(), to.len()) });
        usize::try_from(count).unwrap_or(0)
    });
    files::close(file);
    let (found, path) = found?;
    Some(Mapped {
        path: path.and_then(|path| text.get(path)),
        ..found
    })
}

/// Reads lines until one contains the address. Also returns the range of the path in `text`.
fn search(
    address: usize,
    text: &mut [u8],
    mut read: impl FnMut(&mut [u8]) -> usize,
) -> Option<(Mapped<'static>, Option<core::ops::Range<usize>>)> {
    let (mut begin, mut end) = (0, 0);
    // Start of the last mapping of a file's offset 0.
    let mut first: Option<(u64, usize)> = None;
    loop {
        let Some(length) = text.get(begin..end)?.iter().position(|byte| *byte == b'\n') else {
            text.copy_within(begin..end, 0);
            (begin, end) = (0, end - begin);
            match read(text.get_mut(end..)?) {
                0 => return None,
                count => end += count,
            }
            continue;
        };
        let line = Line::parse(text.get(begin..begin + length)?);
        let at = begin;
        begin += length + 1;
        let Some(line) = line else { continue };
        if line.offset == 0 && line.file != 0 && line.readable {
            first = Some((line.file, line.start));
        }
        if !(line.start..line.end).contains(&address) {
            continue;
        }
        let first = first.filter(|(file, _)| *file == line.file);
        let found = Mapped {
            start: first.map_or(line.start, |(_, start)| start),
            end: line.end,
            path: None,
        };
        let path = first.map(|_| at + line.path..at + length);
        return Some((found, path));
    }
}

/// A line of the file.
struct Line {
    start: usize,
    end: usize,
    readable: bool,
    offset: u64,
    /// Device and inode as one number; 0 if the mapping is not a file.
    file: u64,
    /// Offset of the path in the line.
    path: usize,
}

impl Line {
    /// Parses `start-end perms offset device inode path`; all numbers except the inode are hexadecimal.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut range = words.next()?.split(|byte| *byte == b'-');
        let (start, end) = (number(range.next()?, 16)?, number(range.next()?, 16)?);
        let readable = words.next()?.first() == Some(&b'r');
        let offset = number(words.next()?, 16)?;
        let mut device = words.next()?.split(|byte| *byte == b':');
        let device = number(device.next()?, 16)? << 20 | number(device.next()?, 16)?;
        let inode = number(words.next()?, 10)?;
        let rest = words.next().unwrap_or(&[]);
        let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
        Some(Self {
            start: usize::try_from(start).ok()?,
            end: usize::try_from(end).ok()?,
            readable,
            offset,
            file: match inode {
                0 => 0,
                inode => inode ^ device.rotate_right(24),
            },
            path: line.len() - (rest.len() - spaces),
        })
    }
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    const MAPS: &[u8] = b"55e0-55f0 r--p 00000000 08:01 77        /usr/bin/a program\n\
        55f0-5600 r-xp 00000010 08:01 77        /usr/bin/a program\n\
        5600-5700 rw-p 00000000 00:00 0         [heap]\n\
        7000-7100 r--p 00000000 08:01 99        /lib/one.so\n\
        7100-7200 r-xp 00000100 08:01 99        /lib/one.so\n\
        7200-7300 r--p 00000000 08:01 99        /lib/one.so\n\
        7300-7400 r-xp 00000100 08:01 99        /lib/one.so\n\
        7400-7500 r-xp 00003000 08:01 98        /lib/part\n\
        7600-7700 rwxp 00000000 00:00 0 \n";

    /// Looks up an address in [`MAPS`], reading at most `piece` bytes at a time.
    fn look(address: usize, piece: usize) -> Option<(usize, usize, Option<Vec<u8>>)> {
        let (mut text, mut rest) = ([0; 128], MAPS);
        let found = search(address, &mut text, |to| {
            let count = piece.min(to.len()).min(rest.len());
            let (front, behind) = rest.split_at(count);
            to[..count].copy_from_slice(front);
            rest = behind;
            count
        });
        let (found, path) = found?;
        Some((found.start, found.end, path.map(|path| text[path].to_vec())))
    }

    #[test]
    fn an_image_begins_where_the_beginning_of_its_file_is_mapped() {
        for piece in [1, 7, 50, 1000] {
            let path = |path: &str| Some(path.as_bytes().to_vec());
            let program = Some((0x55e0, 0x5600, path("/usr/bin/a program")));
            assert_eq!(look(0x55f8, piece), program);
            assert_eq!(
                look(0x7100, piece),
                Some((0x7000, 0x7200, path("/lib/one.so")))
            );
            assert_eq!(
                look(0x73ff, piece),
                Some((0x7200, 0x7400, path("/lib/one.so")))
            );
            assert_eq!(look(0x5650, piece), Some((0x5600, 0x5700, None)));
            assert_eq!(look(0x7450, piece), Some((0x7400, 0x7500, None)));
            assert_eq!(look(0x7650, piece), Some((0x7600, 0x7700, None)));
            assert_eq!(look(0x7550, piece), None);
        }
    }

    #[test]
    fn this_very_function_is_found() {
        let mut text = [0; 2 * LINE];
        let own = this_very_function_is_found as *const () as usize;
        let found = mapped(own, &mut text).expect("it is mapped");
        let path = std::env::current_exe().unwrap();
        assert_eq!(found.path, path.to_str().map(str::as_bytes));
        assert!(found.start < own && own < found.end);
    }
}
