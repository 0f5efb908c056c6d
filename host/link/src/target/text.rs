//! The text among what a target sends: for the console, and the lines that are meant for us.

use kymo_wire::link::Identity;
use kymo_wire::link::identity::PREFIX;

use crate::zephyr::COMPLAINT;

/// How much of what an unknown target says is kept for the error message.
const HEARD_BYTES: usize = 200;

/// What a target of ours says to a line that it could not understand.
const ERROR_PREFIX: &[u8] = b"kymo error:";

/// The longest line that is waited for.
const LINE_BYTES: usize = 64 * 1024;

/// Takes the text that the traced program writes to the line.
pub(crate) type Console = Box<dyn FnMut(&[u8]) + Send>;

/// Where text goes: to the console, except the lines in which a target says who it is.
#[derive(Default)]
pub(super) struct TextSink {
    /// Who shows the text; without it, nobody does.
    pub(super) console: Option<Console>,
    /// The line that is being put together, while an identity is expected.
    line: Option<Vec<u8>>,
    /// The identity that was heard.
    pub(super) identity: Option<Identity>,
    /// Whether a line was heard that a target of ours must have sent, though it is no identity.
    torn: bool,
    /// Whether the line was answered as Zephyr's own instrumentation answers what it does not know.
    zephyr: bool,
    /// The last text that was heard while an identity was expected.
    heard: Vec<u8>,
}

impl TextSink {
    /// From here on lines are put together and looked at.
    pub(super) fn expect_identity(&mut self) {
        self.line = Some(Vec::new());
        self.torn = false;
        self.zephyr = false;
        self.heard.clear();
    }

    /// From here on text goes to the console as it comes.
    pub(super) fn expect_text(&mut self) {
        if let Some(line) = self.line.take().filter(|line| !line.is_empty()) {
            self.take_line(&line);
        }
    }

    /// Whether what was heard is a damaged identity, or the answer to a damaged question: then
    /// there is a Kymo target that can be asked again.
    pub(super) fn torn(&self) -> bool {
        self.torn || self.line.as_deref().is_some_and(is_ours)
    }

    /// Whether Zephyr's own instrumentation seems to be there.
    pub(super) fn zephyr(&self) -> bool {
        self.zephyr
    }

    /// What was heard instead of an identity.
    pub(super) fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    /// Takes the next text.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let Some(mut line) = self.line.take() else {
            return self.take_line(bytes);
        };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            // A line without an end does not keep the memory.
            if part.ends_with(b"\n") || line.len() > LINE_BYTES {
                self.take_line(&line);
                line.clear();
            }
        }
        self.line = Some(line);
    }

    /// A line, or what is known of it.
    fn take_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if let Some(identity) = Identity::parse(&text) {
            self.identity = Some(identity);
            // The console may have begun a line before.
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

    /// Gives text to the console.
    pub(super) fn print(&mut self, text: &[u8]) {
        if let Some(console) = self.console.as_mut().filter(|_| !text.is_empty()) {
            console(text);
        }
    }
}

/// Whether only a Kymo target says this.
fn is_ours(line: &[u8]) -> bool {
    [PREFIX.as_bytes(), ERROR_PREFIX]
        .iter()
        .any(|prefix| find_last(line, prefix).is_some())
}

/// Whether this is what Zephyr's instrumentation says to our question, which it does not know.
fn is_complaint(line: &[u8]) -> bool {
    find_last(line, COMPLAINT).is_some() && line.trim_ascii_end().ends_with(b"identify")
}

/// Where `pattern` stands last in `bytes`.
fn find_last(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .rposition(|window| window == pattern)
}
