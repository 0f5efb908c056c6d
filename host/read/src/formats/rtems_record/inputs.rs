//! Dumps of an input: one after the other as they arrive, or each with a reader of its own for a file with several.
//!
//! A console log has one dump for each time that the target died. The uptime restarts each time, so each dump is
//! treated as a separate machine, and their records are merged in order of time.

use std::io::Read;

use kymo_rtems_record::{Error, Fault, Header, Reader, Record, Statistics, ThreadName};

/// Source of bytes.
pub(super) type Bytes = Box<dyn Read + Send>;

/// Readers of one input.
pub(super) struct Inputs(Vec<Input>);

struct Input {
    reader: Reader<Bytes>,
    /// Offset of its start in the input.
    offset: u64,
    /// Records that were read before they were needed.
    waiting: Vec<Record>,
    next: usize,
    ended: bool,
}

impl Input {
    fn next_time(&self) -> Option<i64> {
        self.waiting.get(self.next).map(|record| record.time)
    }
}

impl Inputs {
    /// Creates the set from readers and their offsets. Several readers have one dump each.
    pub fn new(readers: impl IntoIterator<Item = (Reader<Bytes>, u64)>) -> Self {
        let input = |(reader, offset)| Input {
            reader,
            offset,
            waiting: Vec::new(),
            next: 0,
            ended: false,
        };
        Self(readers.into_iter().map(input).collect())
    }

    /// Returns whether each dump has its own reader.
    pub fn several(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the number of dumps, as far as it is known.
    pub fn dumps(&self) -> u16 {
        match self.several() {
            true => u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            false => self.0.first().map_or(0, |input| input.reader.dumps()),
        }
    }

    /// Reads until the targets are described.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn begin(&mut self) -> Result<(), Error> {
        for input in &mut self.0 {
            while !input.reader.has_started() && !input.reader.has_faults() {
                if !input.reader.read(&mut input.waiting)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Appends the next records to `out`. Returns `false` behind the last ones.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn read(&mut self, out: &mut Vec<Record>) -> Result<bool, Error> {
        if let [input] = &mut self.0[..] {
            out.append(&mut input.waiting);
            return input.reader.read(out);
        }
        for input in &mut self.0 {
            while !input.ended && input.next_time().is_none() {
                input.waiting.clear();
                input.next = 0;
                input.ended = !input.reader.read(&mut input.waiting)?;
            }
        }
        // Merges until one of the readers needs more data.
        while let Some((place, until)) = self.first() {
            let Some(input) = self.0.get_mut(place) else {
                break;
            };
            let waiting = input.waiting.get(input.next..).unwrap_or_default();
            let run = waiting.iter().take_while(|record| record.time <= until);
            let dump = u16::try_from(place).unwrap_or(u16::MAX);
            let before = out.len();
            out.extend(run.map(|record| Record { dump, ..*record }));
            input.next += out.len() - before;
            if input.next_time().is_none() {
                return Ok(true);
            }
        }
        Ok(self.0.iter().any(|input| !input.ended))
    }

    /// Returns the reader with the next record, and the time up to which no other's is next.
    fn first(&self) -> Option<(usize, i64)> {
        let times = self.0.iter().enumerate();
        let times = times.filter_map(|(place, input)| Some((input.next_time()?, place)));
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        let (_, first) = times.first()?;
        Some((*first, times.get(1).map_or(i64::MAX, |(time, _)| *time)))
    }

    /// Returns a dump's description of its target so far.
    pub fn header(&self, dump: u16) -> Option<&Header> {
        let place = if self.several() { usize::from(dump) } else { 0 };
        Some(self.0.get(place)?.reader.header())
    }

    /// Returns whether any dump has what its times need.
    pub fn is_described(&self) -> bool {
        self.0.iter().any(|input| input.reader.is_described())
    }

    /// Returns the number of the dump that a reader is in.
    fn number(several: bool, place: usize, reader: &Reader<Bytes>) -> u16 {
        match several {
            true => u16::try_from(place).unwrap_or(u16::MAX),
            false => reader.dumps().saturating_sub(1),
        }
    }

    /// Takes the thread names found since the last call, with their dumps.
    pub fn take_names(&mut self) -> Vec<(u16, ThreadName)> {
        let several = self.several();
        let mut all = Vec::new();
        for (place, input) in self.0.iter_mut().enumerate() {
            let dump = Self::number(several, place, &input.reader);
            let names = input.reader.take_names();
            all.extend(names.into_iter().map(|name| (dump, name)));
        }
        all
    }

    /// Returns whether any reader is in live mode.
    pub fn is_live(&self) -> bool {
        self.0.iter().any(|input| input.reader.is_live())
    }

    /// Returns whether there are faults that were not taken.
    pub fn has_faults(&self) -> bool {
        self.0.iter().any(|input| input.reader.has_faults())
    }

    /// Takes the faults, with the dump and the offset in the whole input.
    pub fn take_faults(&mut self) -> Vec<(u16, Fault)> {
        let several = self.several();
        let mut all = Vec::new();
        for (place, input) in self.0.iter_mut().enumerate() {
            let dump = Self::number(several, place, &input.reader);
            for mut fault in input.reader.take_faults() {
                if !fault.decoded {
                    fault.offset += input.offset;
                }
                all.push((dump, fault));
            }
        }
        all
    }

    /// Returns the counts so far.
    pub fn statistics(&self) -> Statistics {
        let mut all = Statistics::default();
        for input in &self.0 {
            all.add(&input.reader.statistics());
        }
        all
    }

    /// Returns the number of log lines between those of dumps that do not belong to them.
    pub fn foreign_lines(&self) -> u64 {
        self.0
            .iter()
            .map(|input| input.reader.foreign_lines())
            .sum()
    }
}
