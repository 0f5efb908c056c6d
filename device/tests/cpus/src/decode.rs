//! Packet decoder that runs on the recording machine, for the test that checks every record while other CPUs continue
//! to record. It implements the format from its description alone (Kymo's `wire/src/event.rs`): wide records,
//! little-endian, 64-bit words.

/// Content of a record, for the records of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Entry of a function: its distance from the text base, in multiples of 4.
    Enter(u32),
    /// Exit of a function, if the record names it.
    Exit(Option<u32>),
    /// Entry of an interrupt handler.
    IsrEnter(u16),
    /// Exit of an interrupt handler, if the record names it.
    IsrExit(Option<u16>),
    /// A marker.
    Marker(u32),
    /// Recording was turned on or off.
    Recording(bool),
}

/// A record and its time.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub time: u64,
    pub kind: Kind,
}

/// A packet's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub cpu: u16,
    pub isr_depth: u8,
    pub sequence: u32,
    pub discarded: u32,
    pub begin: u64,
    pub end: u64,
}

/// Error in a packet, and its byte offset.
#[derive(Clone, Copy, Debug)]
pub struct Wrong(pub &'static str, pub usize);

/// Size of a header in bytes.
const HEADER: usize = 48;

/// The integer of `bytes` bytes at `at`.
fn integer(packet: &[u8], at: usize, bytes: usize) -> Result<u64, Wrong> {
    let bytes = packet
        .get(at..at + bytes)
        .ok_or(Wrong("a record is cut off", at))?;
    let fold = |value, byte: &u8| value << 8 | u64::from(*byte);
    Ok(bytes.iter().rev().fold(0, fold))
}

/// Decodes a header.
pub fn header(packet: &[u8]) -> Result<Header, Wrong> {
    if integer(packet, 0, 4)? != 0xC1FC_1FC1 {
        return Err(Wrong("no magic number", 0));
    }
    if integer(packet, 4, 1)? != 0 {
        return Err(Wrong("not a packet of events", 4));
    }
    if integer(packet, 32 + 4, 4)? != packet.len() as u64 * 8 {
        return Err(Wrong("the size is another one", 36));
    }
    Ok(Header {
        isr_depth: (integer(packet, 5, 1)? >> 4) as u8,
        cpu: integer(packet, 6, 2)? as u16,
        sequence: integer(packet, 8, 4)? as u32,
        discarded: integer(packet, 12, 4)? as u32,
        begin: integer(packet, 16, 8)?,
        end: integer(packet, 24, 8)?,
    })
}

/// Iterates over the records of a packet.
pub struct Records<'a> {
    packet: &'a [u8],
    at: usize,
    time: u64,
}

impl<'a> Records<'a> {
    /// The records after this header.
    pub fn new(packet: &'a [u8], header: &Header) -> Self {
        Self {
            packet,
            at: HEADER,
            time: header.begin,
        }
    }

    /// Decodes the next one; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Record>, Wrong> {
        while self.at < self.packet.len() {
            if let Some(kind) = self.one()? {
                let time = self.time;
                return Ok(Some(Record { time, kind }));
            }
        }
        Ok(None)
    }

    /// Reads an integer of this many bytes.
    fn take(&mut self, bytes: usize) -> Result<u64, Wrong> {
        let value = integer(self.packet, self.at, bytes)?;
        self.at += bytes;
        Ok(value)
    }

    /// Advances the clock to the next time with these low bits.
    fn clock(&mut self, low: u64, bits: u32) {
        let turn = 1u64 << bits;
        let low = low & (turn - 1);
        let now = self.time & !(turn - 1) | low;
        self.time = if now < self.time { now + turn } else { now };
    }

    /// Decodes the next record; `None` for one that only carries a time.
    fn one(&mut self) -> Result<Option<Kind>, Wrong> {
        let at = self.at;
        let first = integer(self.packet, at, 1)?;
        if first & 1 != 0 {
            let record = self.take(2)?;
            self.clock(record >> 1, 15);
            return Ok(Some(Kind::Exit(None)));
        }
        match first >> 1 & 3 {
            0 => {
                let record = self.take(6)?;
                self.clock(record >> 3, 21);
                Ok(Some(Kind::Enter((record >> 24) as u32)))
            }
            1 => {
                let record = self.take(4)?;
                self.clock(record >> 3, 29);
                Ok(Some(Kind::Exit(None)))
            }
            2 => {
                let record = self.take(8)?;
                self.clock(record >> 3, 29);
                Ok(Some(Kind::Enter((record >> 32) as u32)))
            }
            _ => self.other(first >> 3, at),
        }
    }

    /// A record with an id and a payload.
    fn other(&mut self, id: u64, at: usize) -> Result<Option<Kind>, Wrong> {
        if id == 31 {
            let record = self.take(8)?;
            self.clock(record >> 8, 56);
            return Ok(None);
        }
        let record = self.take(3)?;
        self.clock(record >> 8, 16);
        Ok(Some(match id {
            4 => Kind::Exit(Some(self.take(4)? as u32)),
            14 => Kind::IsrEnter(self.take(1)? as u16),
            16 => Kind::IsrExit(None),
            17 => Kind::IsrExit(Some(self.take(2)? as u16)),
            18 => Kind::Marker(self.take(4)? as u32),
            22 => Kind::Recording(self.take(2)? & 0xFF != 0),
            _ => return Err(Wrong("a kind of record that nobody wrote", at)),
        }))
    }
}
