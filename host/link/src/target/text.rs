//! Text from a target: console text and the lines meant for the host.

use kymo_wire::link::Identity;
use kymo_wire::link::identity::PREFIX;

use crate::zephyr::COMPLAINT;

/// How much text of an unidentified target is kept for the error message.
const HEARD_BYTES: usize = 200;

/// Beginning of a Kymo target's answer to a line that it could not parse.
const ERROR_PREFIX: &[u8] = b"kymo error:";

/// Longest line that is assembled.
const LINE_BYTES: usize = 64 * 1024;

/// Sink for the text that the traced program writes to the line.
pub(crate) type Console = Box<dyn FnMut(&[u8]) + Send>;

/// Passes text to the console, except the lines that identify a target.
#[derive(Default)]
pub(super) struct TextSink {
    /// The console, if one is set.
    pub(super) console: Option<Console>,
    /// The line that is being assembled while an identity is expected.
    line: Option<Vec<u8>>,
    /// The received identity.
    pub(super) identity: Option<Identity>,
    /// Whether a line arrived that only a Kymo target can have sent, though it is not an identity.
    torn: bool,
    /// Whether the question was answered as Zephyr's own instrumentation answers unknown commands.
    zephyr: bool,
    /// The last text received while an identity was expected.
    heard: Vec<u8>,
}

impl TextSink {
    /// Starts assembling and parsing lines.
    pub(super) fn expect_identity(&mut self) {
        self.line = Some(Vec::new());
        self.torn = false;
        self.zephyr = false;
        self.heard.clear();
    }

    /// Stops parsing lines: text goes to the console as it arrives.
    pub(super) fn expect_text(&mut self) {
        if let Some(line) = self.line.take().filter(|line| !line.is_empty()) {
            self.take_line(&line);
        }
    }

    /// Whether a damaged identity arrived, or the answer to a damaged question: then there is a Kymo target, which can
    /// be asked again.
    pub(super) fn torn(&self) -> bool {
        self.torn || self.line.as_deref().is_some_and(is_ours)
    }

    /// Whether the target seems to run Zephyr's own instrumentation.
    pub(super) fn zephyr(&self) -> bool {
        self.zephyr
    }

    /// The text received instead of an identity.
    pub(super) fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    /// Processes the next text.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let Some(mut line) = self.line.take() else {
            return self.take_line(bytes);
        };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            // A line without an end must not fill the memory.
            if part.ends_with(b"\n") || line.len() > LINE_BYTES {
                self.take_line(&line);
                line.clear();
            }
        }
        self.line = Some(line);
    }

    /// Processes a line, possibly incomplete.
    fn take_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if let Some(identity) = Identity::parse(&text) {
            self.identity = Some(identity);
            // The console may have begun a line before it.
            let before = find_last(line, PREFIX.as_bytes()).unwrap_or(0);
            return self.print(line.get(..before).unwrap_or(&[]));
        }
        self.torn |= is_ours(line);
        self.zephyr |= is_complaint(line);
        self.heard.extend_from_slice(line);
        let surplus = self.heard.len().saturating_sub(HEARD_BYTES);
        self.heard.drain(..surplus);
        self.print(line);
    }

    /// Passes text to the console.
    pub(super) fn print(&mut self, text: &[u8]) {
        if let Some(console) = self.console.as_mut().filter(|_| !text.is_empty()) {
            console(text);
        }
    }
}

/// Whether only a Kymo target sends this.
fn is_ours(line: &[u8]) -> bool {
    [PREFIX.as_bytes(), ERROR_PREFIX]
        .iter()
        .any(|prefix| find_last(line, prefix).is_some())
}

/// Whether this is the answer of Zephyr's instrumentation to the unknown command `identify`.
fn is_complaint(line: &[u8]) -> bool {
    find_last(line, COMPLAINT).is_some() && line.trim_ascii_end().ends_with(b"identify")
}

/// Position of the last `pattern` in `bytes`.
fn find_last(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .rposition(|window| window == pattern)
}
