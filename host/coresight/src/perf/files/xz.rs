//! Container of xz files (<https://tukaani.org/xz/xz-file-format.txt>) as `xz` packs kernel modules: LZMA2 blocks
//! without other filters. The reader checks the container's structure, and the checksum of each block if it is a CRC.

use std::io::Read as _;

use lzma_rust2::Lzma2Reader;

/// Magic bytes of an xz file.
pub(super) const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Memory limit of a decoder, in KiB: enough for the 64 MiB dictionary of `xz -9`.
const MEMORY: u32 = 80 << 10;

/// Size of a block's checksum in bytes, by the type in the file header.
const CHECK_SIZES: [usize; 16] = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];

/// Unpacks a file of one stream; `None` if it is damaged, or would be more than `limit` bytes.
pub(super) fn unpack(file: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut rest = file.strip_prefix(&MAGIC)?;
    let flags = take(&mut rest, 2)?;
    let check = usize::from(flags[1] & 0xf);
    (number(take(&mut rest, 4)?) == u64::from(crc32fast::hash(flags))).then_some(())?;
    let mut unpacked = Vec::new();
    loop {
        // The file's index, which follows the last block, has a 0 there.
        let words = match *rest.first()? {
            0 => return Some(unpacked),
            words => usize::from(words) + 1,
        };
        let header = take(&mut rest, 4 * words)?;
        let dictionary = dictionary(header)?;
        let start = unpacked.len();
        let (before, mut block) = (rest.len(), rest);
        let room = (limit - start) as u64 + 1;
        let reader = Lzma2Reader::new_mem_limit(&mut block, dictionary, MEMORY, None).ok()?;
        reader.take(room).read_to_end(&mut unpacked).ok()?;
        if unpacked.len() > limit {
            return None;
        }
        rest = block;
        let packed = before - rest.len();
        take(&mut rest, packed.next_multiple_of(4) - packed)?;
        let found = take(&mut rest, CHECK_SIZES[check])?;
        let is_right = match check {
            1 => number(found) == u64::from(crc32fast::hash(&unpacked[start..])),
            4 => number(found) == crc64(&unpacked[start..]),
            _ => true,
        };
        if !is_right {
            return None;
        }
    }
}

/// Returns the dictionary size from a block header; `None` if it is damaged, or has another filter than LZMA2.
fn dictionary(header: &[u8]) -> Option<u32> {
    let (fields, crc) = header.split_at_checked(header.len().checked_sub(4)?)?;
    if number(crc) != u64::from(crc32fast::hash(fields)) {
        return None;
    }
    let mut rest = fields.get(1..)?;
    let flags = take(&mut rest, 1)?[0];
    // Optional sizes of the block, packed and unpacked.
    for _ in 0..(flags >> 6).count_ones() {
        while take(&mut rest, 1)?[0] & 0x80 != 0 {}
    }
    match (flags & 3, take(&mut rest, 3)?) {
        (0, [0x21, 1, bits @ 0..=40]) => Some(match bits {
            40 => u32::MAX,
            bits => (2 | u32::from(bits & 1)) << (bits / 2 + 11),
        }),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(first)
}

/// Reads a little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The CRC of ECMA-182, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    let table: [u64; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u64, |crc, _| {
            (crc >> 1) ^ ((crc & 1) * 0xc96c_5795_d787_0f42)
        })
    });
    !bytes.iter().fold(!0, |crc, byte| {
        table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'kymo%.0s' {1..40} | xz --check=crc32` and `--check=crc64`, by XZ Utils.
    const PACKED: [&[u8]; 2] = [include_bytes!("xz/crc32.xz"), include_bytes!("xz/crc64.xz")];

    #[test]
    fn files_of_xz_are_unpacked() {
        for packed in PACKED {
            assert_eq!(unpack(packed, 1 << 20), Some(b"kymo".repeat(40)));
            assert_eq!(unpack(packed, 159), None, "more than there may be");
            for end in 0..packed.len() - 24 {
                assert_eq!(unpack(&packed[..end], 1 << 20), None, "cut at {end}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        for packed in PACKED {
            // Index and footer, after the blocks, are not needed.
            for at in 0..packed.len() - 32 {
                let mut damaged = packed.to_vec();
                damaged[at] ^= 0x10;
                if let Some(unpacked) = unpack(&damaged, 1 << 20) {
                    assert_eq!(unpacked, b"kymo".repeat(40), "byte {at}");
                }
            }
        }
    }
}
