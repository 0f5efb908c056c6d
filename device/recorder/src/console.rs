//! Writes a recording as lines of text to a console ([`kymo_wire::link::console`]): for fault handlers, and for
//! programs without a link.

use kymo_wire::link::console::{
    BEGIN, END_TEXT, LINE_BYTES, LINE_TEXT, MAX_LINES, Survived, write_end, write_line,
};
use kymo_wire::link::crc::Crc32;
use kymo_wire::link::identity::MAX_LINE;
use kymo_wire::link::{Identity, Text};

use crate::link::{Control, SCRATCH_BYTES, Subject};

/// Encoder for lines.
pub(crate) struct Lines<'a> {
    put: &'a mut dyn FnMut(&[u8]),
    bytes: [u8; LINE_BYTES],
    length: usize,
    number: u32,
    total: u32,
    crc: Crc32,
}

impl<'a> Lines<'a> {
    /// Begins a dump, with the identity of the recorder.
    pub(crate) fn begin(identity: &Identity, put: &'a mut dyn FnMut(&[u8])) -> Self {
        put(b"\r\n");
        put(BEGIN.as_bytes());
        put(b": keep this text, and give it to kymo ***\r\n");
        let mut lines = Self {
            put,
            bytes: [0; LINE_BYTES],
            length: 0,
            number: 0,
            total: 0,
            crc: Crc32::new(),
        };
        let mut room = [0; MAX_LINE];
        let mut text = Text::new(&mut room);
        identity.write(&mut text);
        lines.add(text.bytes());
        lines.add(b"\n");
        lines
    }

    /// Ends the dump.
    pub(crate) fn finish(self) {
        self.end(None);
    }

    /// Ends a dump of what survived a reset.
    pub(crate) fn finish_survivors(self, survived: Survived) {
        self.end(Some(survived));
    }

    #[inline(always)]
    fn end(mut self, survived: Option<Survived>) {
        self.flush();
        let mut room = [0; END_TEXT];
        let mut text = Text::new(&mut room);
        let dump = (self.number, self.total, self.crc.value());
        write_end(dump, survived, &mut text);
        (self.put)(text.bytes());
    }

    /// Appends these bytes.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        self.crc.update(bytes);
        self.total = self.total.saturating_add(bytes.len() as u32);
        while !bytes.is_empty() {
            let room = self.bytes.get_mut(self.length..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            for (to, from) in room.iter_mut().zip(now) {
                *to = *from;
            }
            self.length += count;
            bytes = later;
            if self.length == LINE_BYTES {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        // (Lines beyond the last number are not sent, and the end reports that they are missing.)
        if self.length > 0 && self.number < MAX_LINES {
            let mut room = [0; LINE_TEXT];
            let mut text = Text::new(&mut room);
            let bytes = self.bytes.get(..self.length).unwrap_or_default();
            write_line(self.number, bytes, &mut text);
            (self.put)(text.bytes());
            self.number += 1;
        }
        self.length = 0;
    }
}

/// Passes the whole recording, line by line, to `put`. The buffers are frozen.
pub(crate) fn write(control: &impl Control, put: &mut dyn FnMut(&[u8])) {
    let mut lines = Lines::begin(&control.identity(), put);
    let mut scratch = [0; SCRATCH_BYTES];
    let mut n = 0;
    while let Some(chunk) = control.chunk(Subject::Trace, n, &mut scratch) {
        lines.add(chunk);
        n += 1;
    }
    lines.finish();
}
