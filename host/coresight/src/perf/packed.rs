//! Compressed records (`perf record -z`) of the kernel. The trace itself is never compressed.

use std::io::Read as _;

use ruzstd::decoding::StreamingDecoder;

use crate::Error;

/// Limit of unpacked bytes: 1 GiB.
const LARGEST: u64 = 1 << 30;

/// Compressed records of a file, as one stream: perf begins it once, and flushes it at the end of each record.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Offset of the first record in the file.
    pub at: u64,
    bytes: Vec<u8>,
}

impl Packed {
    /// Appends the bytes of a record at an offset.
    pub fn add(&mut self, at: u64, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.at = at;
        }
        self.bytes.extend(bytes);
    }

    /// Unpacks the records.
    ///
    /// # Errors
    /// [`Error::Format`] if the stream is damaged, or has more than 1 GiB.
    pub fn unpack(&self) -> Result<Vec<u8>, Error> {
        let mut records = Vec::new();
        if self.bytes.is_empty() {
            return Ok(records);
        }
        let error = |found: String| Error::Format {
            offset: self.at,
            expected: "records compressed with zstd",
            found,
        };
        // perf does not end its frame, so append an empty last block with room for a checksum.
        let mut rest = self
            .bytes
            .as_slice()
            .chain([1, 0, 0, 0, 0, 0, 0].as_slice());
        while !rest.get_ref().0.is_empty() {
            let decoder = StreamingDecoder::new(&mut rest);
            let decoder = decoder.map_err(|why| error(why.to_string()))?;
            let left = LARGEST - records.len() as u64;
            let read = decoder.take(left + 1).read_to_end(&mut records);
            read.map_err(|why| error(why.to_string()))?;
            if records.len() as u64 > LARGEST {
                return Err(error(format!("more than {LARGEST} bytes of them")));
            }
        }
        Ok(records)
    }
}
