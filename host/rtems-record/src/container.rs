//! What a stream comes in: plain, compressed with zlib, as base64 text, or between marks in the log of a console.
//!
//! A log can hold several dumps, and each of its lines may begin with whatever a terminal program put there. Memory
//! is bounded: what zlib makes of a few bytes is taken a piece at a time.

mod log;
mod zlib;

use std::io::Read;

use memchr::memmem;

use crate::base64;
use crate::error::{Error, Fault};
use crate::input::Input;
use crate::stream::{Format, MAGIC};
use zlib::Layer;

/// What the log of a console has in front of a dump (`record-dump-fatal.c`, `record-dump-zfatal.c`).
pub const BEGIN: &[u8] = b"*** BEGIN OF RECORDS BASE64";

/// What it has behind.
pub(crate) const END: &[u8] = b"*** END OF RECORDS BASE64";

/// What an input comes as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The bytes of the stream.
    Raw,
    /// The same, compressed.
    Zlib,
    /// Either as text.
    Base64,
    /// Text with dumps between marks.
    Log,
}

/// What an input is by its beginning, and whether that is certain. Half of the magic words is not.
pub fn probe(head: &[u8]) -> Option<(Kind, bool)> {
    if let Some(certain) = is_stream(head) {
        return Some((Kind::Raw, certain));
    }
    if memmem::find(head, BEGIN).is_some() {
        return Some((Kind::Log, true));
    }
    if let Some(certain) = is_compressed(head) {
        return Some((Kind::Zlib, certain));
    }
    /// Characters that are enough for the magic words, compressed or not.
    const CHARACTERS: usize = 256;
    let text = head.trim_ascii_start();
    let text = text.get(..CHARACTERS).unwrap_or(text);
    let mut bytes = Vec::new();
    // As far as it is base64.
    let _ = base64::Decoder::default().push(text, &mut bytes);
    let certain = is_stream(&bytes).or_else(|| is_compressed(&bytes))?;
    Some((Kind::Base64, certain))
}

/// Whether bytes begin like a stream, and if so, whether with both magic words.
fn is_stream(head: &[u8]) -> Option<bool> {
    let (first, rest) = head.split_first_chunk::<4>()?;
    let format = Format::of_word(*first);
    let magic = rest.first_chunk::<4>();
    let has_magic = magic.is_some_and(|magic| {
        let swapped = MAGIC.swap_bytes();
        let word = u32::from_le_bytes(*magic);
        word == MAGIC || word == swapped
    });
    match (format, has_magic) {
        (Some(_), certain) => Some(certain),
        (None, true) => Some(false),
        (None, false) => None,
    }
}

/// Whether bytes begin like a compressed stream.
fn is_compressed(head: &[u8]) -> Option<bool> {
    if !zlib::is_zlib(head) {
        return None;
    }
    is_stream(&zlib::first_bytes(head))
}

/// What was done by [`Container::advance`].
#[derive(Debug)]
pub(crate) enum Step {
    /// A dump begins.
    Begin,
    /// There may be bytes of it.
    Bytes,
    /// The rest of it cannot be read.
    Fault(Fault),
    /// It has ended.
    EndOfDump,
    /// So has the input.
    End,
}

/// An input, layer by layer.
pub(crate) struct Container<R> {
    input: Input<R>,
    kind: Option<Kind>,
    text: base64::Decoder,
    layer: Layer,
    log: log::Lines,
    /// Whether a dump has begun that has not ended.
    open: bool,
    /// Lines of a log that stood among those of a dump, and are none of it.
    pub foreign_lines: u64,
}

/// So far into an input the mark of a log is looked for.
pub(crate) const MARK_WITHIN: usize = 1 << 20;

impl<R: Read> Container<R> {
    pub fn new(source: R) -> Self {
        Self {
            input: Input::new(source),
            kind: None,
            text: base64::Decoder::default(),
            layer: Layer::default(),
            log: log::Lines::default(),
            open: false,
            foreign_lines: 0,
        }
    }

    /// Where bytes come from.
    pub const fn source(&self) -> &R {
        self.input.source()
    }

    /// The same, to change it.
    pub const fn source_mut(&mut self) -> &mut R {
        self.input.source_mut()
    }

    /// The same, given back.
    pub fn into_source(self) -> R {
        self.input.into_source()
    }

    /// What the input comes as, once anything was read.
    pub const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Goes on: adds what comes next of a dump to `out`, a bounded piece.
    pub fn advance(&mut self, out: &mut Vec<u8>) -> Result<Step, Error> {
        if self.layer.has_more() {
            return Ok(self.inflate(out));
        }
        match self.recognized()? {
            Kind::Log => self.advance_log(out),
            kind => self.advance_plain(kind, out),
        }
    }

    /// Leaves the dump that is open.
    pub fn skip_dump(&mut self) {
        self.open = false;
        self.layer = Layer::default();
        self.text = base64::Decoder::default();
        if self.kind != Some(Kind::Log) {
            let rest = self.input.window().len();
            self.input.consume(rest);
        }
    }

    /// The kind of the input, from its first bytes.
    fn recognized(&mut self) -> Result<Kind, Error> {
        if let Some(kind) = self.kind {
            return Ok(kind);
        }
        let mut found = None;
        // As few as tell: a pipe waits for them.
        for count in [8, 256, MARK_WITHIN] {
            let head = self.input.wait_for(count)?;
            found = probe(head.get(..count).unwrap_or(head));
            if found.is_some() {
                break;
            }
        }
        let kind = found.map_or(Kind::Raw, |(kind, _)| kind);
        self.kind = Some(kind);
        Ok(kind)
    }

    /// Of an input that is one stream.
    fn advance_plain(&mut self, kind: Kind, out: &mut Vec<u8>) -> Result<Step, Error> {
        if !self.open {
            if self.log.dumps > 0 {
                return Ok(Step::End);
            }
            self.log.dumps = 1;
            self.open = true;
            return Ok(Step::Begin);
        }
        if self.input.window().is_empty() {
            self.input.read_more()?;
        }
        let length = self.input.window().len();
        if length == 0 {
            return Ok(self.end_dump(out));
        }
        let before = self.input.offset;
        let pushed = match kind {
            Kind::Base64 => {
                let mut bytes = Vec::new();
                let pushed = self.text.push(self.input.window(), &mut bytes);
                self.layer.push(&bytes, out);
                pushed
            }
            _ => {
                self.layer.push(self.input.window(), out);
                Ok(())
            }
        };
        let wrong = pushed.err().map(|place| {
            let found = self.input.window().get(place).copied().unwrap_or(0);
            Fault {
                offset: before + place as u64,
                decoded: false,
                message: format!("expected base64, found {:?}", char::from(found).to_string()),
            }
        });
        self.input.consume(length);
        let step = self.inflate(out);
        Ok(match (step, wrong) {
            (Step::Bytes, Some(fault)) => self.finish_before(fault, out),
            (step, _) => step,
        })
    }

    /// Takes all that stands before a fault of the layer below.
    fn finish_before(&mut self, fault: Fault, out: &mut Vec<u8>) -> Step {
        while self.layer.has_more() {
            match self.inflate(out) {
                Step::Bytes if out.len() < zlib::PIECE * 256 => {}
                _ => break,
            }
        }
        self.skip_dump();
        Step::Fault(fault)
    }

    /// Inflates a piece of what waits.
    fn inflate(&mut self, out: &mut Vec<u8>) -> Step {
        match self.layer.advance(out) {
            Ok(()) => Step::Bytes,
            Err(problem) => {
                let is_text = matches!(self.kind, Some(Kind::Base64 | Kind::Log));
                let fault = Fault {
                    offset: self.layer.taken(),
                    decoded: is_text,
                    message: problem,
                };
                self.skip_dump();
                Step::Fault(fault)
            }
        }
    }

    /// The input has no more of the dump.
    fn end_dump(&mut self, out: &mut Vec<u8>) -> Step {
        let mut bytes = Vec::new();
        let is_text = matches!(self.kind, Some(Kind::Base64 | Kind::Log));
        if is_text && self.text.finish(&mut bytes) {
            let fault = Fault {
                offset: self.input.offset,
                decoded: false,
                message: "expected groups of four characters of base64, found one character more"
                    .to_owned(),
            };
            return self.finish_before(fault, out);
        }
        self.layer.push(&bytes, out);
        if self.layer.has_more() {
            return self.inflate(out);
        }
        if let Some(message) = self.layer.unfinished() {
            let fault = Fault {
                offset: self.layer.taken(),
                decoded: is_text,
                message,
            };
            self.skip_dump();
            return Step::Fault(fault);
        }
        self.skip_dump();
        Step::EndOfDump
    }
}
