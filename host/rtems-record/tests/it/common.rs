use kymo_rtems_record::{Fault, Header, Reader, Record, Statistics, ThreadName};

/// Everything that an input yields.
#[derive(Debug)]
pub struct Read {
    pub records: Vec<Record>,
    pub names: Vec<ThreadName>,
    pub faults: Vec<Fault>,
    pub statistics: Statistics,
    pub header: Header,
    pub foreign_lines: u64,
}

pub fn read(input: &[u8]) -> Read {
    let mut reader = Reader::new(input);
    let mut records = Vec::new();
    while reader.read(&mut records).unwrap() {}
    Read {
        records,
        names: reader.take_names(),
        faults: reader.take_faults(),
        statistics: reader.statistics(),
        header: reader.header().clone(),
        foreign_lines: reader.foreign_lines(),
    }
}

/// Returns the user events: processor, time, data.
pub fn user(read: &Read) -> Vec<(u8, i64, u64)> {
    let user = read.records.iter().filter(|record| record.event.0 >= 512);
    let user = user.filter(|record| record.event.0 < 1024);
    user.map(|record| (record.cpu, record.time, record.data))
        .collect()
}
