//! Decompression of parts of trace.dat files.

use std::io::Read;

use crate::Error;

/// Compression of the parts of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Zstandard.
    Zstd,
    /// zlib (DEFLATE with a header and a checksum).
    Zlib,
}

/// Largest decompressed part, in bytes. trace-cmd writes data in chunks of a few pages, and a symbol table of a whole
/// kernel has 20 MB.
const LARGEST: u32 = 1 << 28;

/// Decompression state that is reused from one part to the next.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Clone for Unpacker {
    /// Returns an empty state: parts do not depend on each other.
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
    /// Returns the compression with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "none" | "" => Some(Self::None),
            "zstd" => Some(Self::Zstd),
            "zlib" => Some(Self::Zlib),
            _ => None,
        }
    }

    /// Appends the decompressed `packed`, which the file declares to be `plain` bytes. That size bounds the output.
    ///
    /// # Errors
    /// [`Error`] at `offset` if the bytes are damaged, or if their number differs from `plain`.
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
        /// Capacity that is reserved before anything is decompressed.
        const AT_ONCE: usize = 1 << 20;
        let before = out.len();
        out.reserve((plain as usize + 1).min(AT_ONCE));
        // Decompresses in one step if the part is complete and undamaged, as nearly always. Otherwise decompresses
        // piece by piece and keeps what is readable.
        if self == Self::Zstd && before == 0 && plain as usize <= AT_ONCE {
            let count = unpacker.zstd.decompress_to_buffer(packed, out);
            if matches!(count, Ok(count) if count == plain as usize) {
                return Ok(());
            }
            out.clear();
        }
        // One byte more than expected, to detect longer data.
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
