//! Compressed parts of trace.dat files.

use std::io::Read;

use crate::Error;

/// How the parts of a file are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Zstandard.
    Zstd,
    /// zlib (DEFLATE with a header and a checksum).
    Zlib,
}

/// So many bytes one part may have when it is decompressed. trace-cmd writes data in chunks of some pages, and a
/// table of all symbols of a kernel has 20 MB.
const LARGEST: u32 = 1 << 28;

/// What decompressing needs and keeps from one part to the next.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Clone for Unpacker {
    /// Parts have nothing in common: the clone has its own memory.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Compression {
    /// The compression of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "none" | "" => Some(Self::None),
            "zstd" => Some(Self::Zstd),
            "zlib" => Some(Self::Zlib),
            _ => None,
        }
    }

    /// Appends what `packed` holds, which the file says to be `plain` bytes. Takes no more memory than that.
    ///
    /// # Errors
    /// [`Error`] at `offset` if the bytes are damaged, or are more or fewer than said.
    pub(crate) fn decompress(
        self,
        (packed, plain): (&[u8], u32),
        offset: u64,
        unpacker: &mut Unpacker,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if plain > LARGEST {
            let expected = format!("at most {LARGEST} bytes in a compressed part");
            return Err(Error::new(offset, expected, format!("{plain}")));
        }
        /// Room that is made before anything was decompressed.
        const AT_ONCE: usize = 1 << 20;
        let before = out.len();
        out.reserve((plain as usize + 1).min(AT_ONCE));
        // In one step where all of it is there and undamaged, as nearly always; else piece by piece, for what can be had.
        if self == Self::Zstd && before == 0 && plain as usize <= AT_ONCE {
            let count = unpacker.zstd.decompress_to_buffer(packed, out);
            if matches!(count, Ok(count) if count == plain as usize) {
                return Ok(());
            }
            out.clear();
        }
        // One more than expected, to notice it.
        let most = u64::from(plain) + 1;
        let read = match self {
            Self::None => {
                out.extend_from_slice(packed);
                Ok(packed.len())
            }
            Self::Zlib => flate2::read::ZlibDecoder::new(packed)
                .take(most)
                .read_to_end(out),
            Self::Zstd => match zstd::stream::read::Decoder::with_buffer(packed) {
                Ok(decoder) => decoder.single_frame().take(most).read_to_end(out),
                Err(error) => Err(error),
            },
        };
        match read {
            Ok(_) if out.len() - before == plain as usize => Ok(()),
            Ok(count) => {
                out.truncate(before + (plain as usize).min(count));
                let expected = format!("compressed data of {plain} bytes");
                Err(Error::new(offset, expected, format!("{count} bytes")))
            }
            Err(error) => Err(Error::new(
                offset,
                format!("{self:?} data of {plain} bytes"),
                format!("damage after {} bytes ({error})", out.len() - before),
            )),
        }
    }
}
