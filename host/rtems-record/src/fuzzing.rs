//! Body of the fuzz target that reads any bytes as a recording.

use std::io::{self, Read};

use crate::Reader;

/// Gives a few bytes at a time.
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

/// Reads any bytes as a recording, the first of them aside, which says in what pieces they come.
///
/// What is checked: nothing panics, everything ends, times of a processor in a dump do not go back, and the pieces in which
/// bytes come change nothing.
///
/// # Panics
/// When one of these does not hold.
pub fn fuzz(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let read = |size: usize| {
        let mut reader = Reader::new(Pieces { bytes, size });
        let mut records = Vec::new();
        // Memory cannot fail to be read.
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
        // What is given out when depends on what has come; the records of a processor are the same.
        records.sort_by_key(|record| (record.dump, record.cpu));
        records
    };
    assert_eq!(sorted(records), sorted(again.0), "in pieces of {size}");
    assert_eq!((names, faults, statistics), (again.1, again.2, again.3));
}
