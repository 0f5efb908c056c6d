//! Body of the fuzz target that reads arbitrary bytes as a recording.

use std::io::{self, Read};

use crate::Reader;

/// Reader that returns a few bytes per call.
struct Pieces<'b> {
    bytes: &'b [u8],
    size: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.size.min(room.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        room.get_mut(..count)
            .unwrap_or(&mut [])
            .copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

/// Reads arbitrary bytes as a recording. The first byte selects the number of bytes that a read returns.
///
/// Checks that nothing panics, that reading ends, that the times of a processor in a dump do not decrease, and that the
/// result does not depend on the number of bytes per read.
///
/// # Panics
/// If one of these does not hold.
pub fn fuzz(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let read = |size: usize| {
        let mut reader = Reader::new(Pieces { bytes, size });
        let mut records = Vec::new();
        // Reading from memory cannot fail.
        while let Ok(true) = reader.read(&mut records) {}
        (
            records,
            reader.take_names(),
            reader.take_faults(),
            reader.statistics(),
        )
    };
    let (records, names, faults, statistics) = read(usize::MAX);
    let mut last = std::collections::HashMap::new();
    for record in &records {
        let before = last.insert((record.dump, record.cpu), record.time);
        assert!(
            before.is_none_or(|before| before <= record.time),
            "{record:?}"
        );
    }
    let again = read(usize::from(*size) + 1);
    let sorted = |mut records: Vec<crate::Record>| {
        // The order across processors depends on the reads; the records of a processor do not.
        records.sort_by_key(|record| (record.dump, record.cpu));
        records
    };
    assert_eq!(sorted(records), sorted(again.0), "in pieces of {size}");
    assert_eq!((names, faults, statistics), (again.1, again.2, again.3));
}
