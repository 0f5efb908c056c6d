//! Texts that programs write into the trace.

use kymo_event::{Batch, RowKind, TraceInfo};

use super::{At, Reader, event_id};
use crate::formats::ftrace::marks::{self, BESIDE_CALLS, Mark};

impl Reader {
    /// Handles a text: a mark of a span or counter, or any other text.
    pub(super) fn print(&mut self, at: &At<'_>, info: &mut TraceInfo, batch: &mut Batch) {
        let text = self.text(at);
        let mark = text.as_deref().and_then(marks::mark);
        let (Some(mark), Some(thread)) = (mark, at.thread) else {
            return self.other(at, batch);
        };
        match mark {
            Mark::Begin(span) => {
                let space = self.output.space;
                let function = info.identities.function_named(space, span);
                if self.marks.begin(thread, function) {
                    let row = at.row(RowKind::Enter).function(Some(function));
                    return self.row(row, at, batch);
                }
                if !info.remarks.iter().any(|known| known == BESIDE_CALLS) {
                    info.remarks.push(BESIDE_CALLS.to_owned());
                }
                self.other(at, batch);
            }
            Mark::End => match self.marks.end(thread) {
                Some(function) => {
                    let row = at.row(RowKind::Exit).function(Some(function));
                    self.row(row, at, batch);
                }
                None => self.other(at, batch),
            },
            Mark::Counter(counter) => self.event(counter.into(), at, batch),
        }
    }

    /// Returns the text of a `print`, `bprint` or `bputs` record.
    fn text(&self, at: &At<'_>) -> Option<String> {
        let id = u16::try_from(event_id(&self.trace, at.data)?).ok()?;
        let event = self.trace.formats.get(id)?;
        let scope = self.trace.scope();
        scope.printed(event, at.data).or_else(|| {
            let field = event.field("buf").filter(|field| field.is_text())?;
            Some(scope.text(field, at.data).into_owned())
        })
    }
}
