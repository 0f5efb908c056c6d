//! Containers of a stream: raw bytes, zlib, base64 text, or dumps between marks in a console log.
//!
//! A log can hold several dumps, and a terminal program may have put a prefix in front of each line. Memory is bounded:
//! zlib data is inflated piece by piece.

mod log;
mod zlib;

use std::io::Read;

use memchr::memmem;

use crate::base64;
use crate::error::{Error, Fault};
use crate::input::Input;
use crate::stream::{Format, MAGIC};
use zlib::Layer;

/// Start mark of a dump in a console log (`record-dump-fatal.c`, `record-dump-zfatal.c`).
pub const BEGIN: &[u8] = b"*** BEGIN OF RECORDS BASE64";

/// End mark of a dump.
pub(crate) const END: &[u8] = b"*** END OF RECORDS BASE64";

/// Container of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes of the stream.
    Raw,
    /// Bytes of the stream, compressed with zlib.
    Zlib,
    /// Base64 text of the stream, compressed or not.
    Base64,
    /// Text with dumps between marks.
    Log,
}

/// Recognizes an input by its first bytes. Also returns whether the result is certain: it is not if only one of the two
/// magic words matches.
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
    /// Number of characters that contain the magic words, compressed or not.
    const CHARACTERS: usize = 256;
    let text = head.trim_ascii_start();
    let text = text.get(..CHARACTERS).unwrap_or(text);
    let mut bytes = Vec::new();
    // Decodes up to the first character that is not base64.
    let _ = base64::Decoder::default().push(text, &mut bytes);
    let certain = is_stream(&bytes).or_else(|| is_compressed(&bytes))?;
    Some((Kind::Base64, certain))
}

/// Returns whether bytes begin like a stream: `Some(true)` with both magic words, `Some(false)` with one of them.
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

/// Returns whether bytes begin like a compressed stream.
fn is_compressed(head: &[u8]) -> Option<bool> {
    if !zlib::is_zlib(head) {
        return None;
    }
    is_stream(&zlib::first_bytes(head))
}

/// Result of [`Container::advance`].
#[derive(Debug)]
pub(crate) enum Step {
    /// A dump begins.
    Begin,
    /// Bytes of the dump, maybe none.
    Bytes,
    /// The rest of the dump cannot be read.
    Fault(Fault),
    /// The dump has ended.
    EndOfDump,
    /// The input has ended.
    End,
}

/// Decoder for an input and its layers.
pub(crate) struct Container<R> {
    input: Input<R>,
    kind: Option<Kind>,
    text: base64::Decoder,
    layer: Layer,
    log: log::Lines,
    /// Whether a dump has begun and not ended.
    open: bool,
    /// Number of log lines between those of a dump that do not belong to it.
    pub foreign_lines: u64,
}

/// Number of bytes at the start of an input in which the mark of a log is searched.
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

    /// Returns the source.
    pub const fn source(&self) -> &R {
        self.input.source()
    }

    /// Returns the source, mutable.
    pub const fn source_mut(&mut self) -> &mut R {
        self.input.source_mut()
    }

    /// Returns the source, and drops the decoder.
    pub fn into_source(self) -> R {
        self.input.into_source()
    }

    /// Returns the container of the input, once anything was read.
    pub const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Appends the next piece of a dump to `out`. The size of a piece is bounded.
    pub fn advance(&mut self, out: &mut Vec<u8>) -> Result<Step, Error> {
        if self.layer.has_more() {
            return Ok(self.inflate(out));
        }
        match self.recognized()? {
            Kind::Log => self.advance_log(out),
            kind => self.advance_plain(kind, out),
        }
    }

    /// Abandons the current dump.
    pub fn skip_dump(&mut self) {
        self.open = false;
        self.layer = Layer::default();
        self.text = base64::Decoder::default();
        if self.kind != Some(Kind::Log) {
            let rest = self.input.window().len();
            self.input.consume(rest);
        }
    }

    /// Recognizes the container from the first bytes of the input.
    fn recognized(&mut self) -> Result<Kind, Error> {
        if let Some(kind) = self.kind {
            return Ok(kind);
        }
        let mut found = None;
        // Reads as few bytes as possible, because a pipe may not have more yet.
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

    /// Advances in an input that is a single stream.
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

    /// Outputs everything in front of a fault of the layer below.
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

    /// Inflates a piece of the waiting bytes.
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

    /// Ends the dump at the end of its input.
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
