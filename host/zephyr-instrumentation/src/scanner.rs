//! Incremental search for the end of a dump that is still being received.
//!
//! It uses the same [`Walk`] as for a complete dump, and resumes it with every received piece. The walk decides nothing
//! before the required bytes have arrived, so the result does not depend on the division into pieces.

use crate::detect::SAMPLE;
use crate::place::Position;
use crate::scan::find_end;
use crate::{END, End, Hints, Layout, Piece, Walk, detect, detect_undamaged};

/// Maximum number of searches for the records of a short dump that is damaged at its start, because they are expensive.
const SEARCHES: u32 = 16;

/// Finds the end of a dump while it is being received.
///
/// Each call receives all bytes after [`BEGIN`](crate::BEGIN), including new ones at the end, and continues after the
/// last position: the total work is linear in the number of bytes.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    hints: Hints,
    layout: Option<Layout>,
    /// Position up to which the bytes are classified as records or damage.
    at: Position,
    /// Number of bytes from there on that are certainly damaged.
    beyond: usize,
    /// Offset up to which marks were tested while the layout was unknown.
    tried: usize,
    /// Number of searches for records after damage.
    searches: u32,
    /// Whether the bytes have no known layout.
    unknown: bool,
    records: u64,
    damaged: u64,
}

impl Scanner {
    /// Creates a scanner for a dump of which nothing has been received.
    pub fn new(hints: Hints) -> Self {
        Self {
            hints,
            ..Self::default()
        }
    }

    /// The layout of the records, once it is certain.
    pub const fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// Number of complete records received.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Number of damaged bytes between them.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Examines the new bytes; `Some` if they contain the end of the dump.
    ///
    /// A dump that is interrupted never ends here: the caller must use a timeout, and then call
    /// [`silent`](Self::silent).
    pub fn advance(&mut self, body: &[u8]) -> Option<End> {
        if body.starts_with(END) {
            return Some(End::new(body, 0));
        }
        let Some(layout) = self.layout.or_else(|| self.find_layout(body)) else {
            return self.mark_alone(body);
        };
        let mut walk = Walk::resume(body, layout, self.at);
        walk.damaged = self.beyond;
        walk.more = true;
        let end = self.walk_on(&mut walk, layout);
        self.at = walk.position;
        self.beyond = walk.damaged;
        end
    }

    fn walk_on(&mut self, walk: &mut Walk<'_>, layout: Layout) -> Option<End> {
        loop {
            let rest = walk.body.get(walk.position.at..).unwrap_or_default();
            if rest.len() < layout.size() && !rest.starts_with(END) {
                // It may become a record, which then contains the apparent mark. (If it is the mark, and bytes before
                // it were lost, only silence after it can tell.)
                return None;
            }
            match walk.step() {
                Some(Piece::Record { .. }) => self.records += 1,
                Some(Piece::Damage { bytes, .. }) => self.damaged += bytes as u64,
                Some(Piece::End(end)) => return Some(end),
                // An incomplete part, or damage that continues.
                Some(Piece::Cut { .. }) | None => return None,
            }
        }
    }

    /// The end of a dump without a known layout: it needs the mark with its line end.
    fn mark_alone(&mut self, body: &[u8]) -> Option<End> {
        if !self.unknown {
            return None;
        }
        let at = find_end(body.get(self.tried..)?).map(|at| self.tried + at);
        self.tried = body.len().saturating_sub(END.len()).max(self.tried);
        at.map(|at| End::new(body, at))
    }

    /// Finds the end of a dump after a timeout: nothing follows, so a possible beginning of a record is damage, and a
    /// mark with its line end in it is the end. `None` if the dump was interrupted.
    pub fn silent(&mut self, body: &[u8]) -> Option<End> {
        if let Some(end) = self.advance(body) {
            return Some(end);
        }
        let layout = self.layout.or_else(|| detect(body, &self.hints));
        let Some(layout) = layout else {
            return find_end(body).map(|at| End::new(body, at));
        };
        self.layout = Some(layout);
        let rest = Walk::resume(body, layout, self.at);
        rest.filter_map(|piece| match piece {
            Piece::End(end) => Some(end),
            _ => None,
        })
        .next()
    }

    /// Detects the layout once there are enough bytes, or the dump is shorter than that.
    fn find_layout(&mut self, body: &[u8]) -> Option<Layout> {
        if self.unknown {
            return None;
        }
        if let Some(sample) = body.get(..SAMPLE) {
            self.layout = detect(sample, &self.hints);
            self.unknown = self.layout.is_none();
            self.tried = 0;
            return self.layout;
        }
        while self.layout.is_none() {
            let at = find_end(body.get(self.tried..)?).map(|at| self.tried + at);
            // The last bytes may be the beginning of a mark.
            self.tried = at.map_or(body.len().saturating_sub(END.len()), |at| at + 1);
            let short = body.get(..at? + END.len() + 1)?;
            // The mark may also be part of a record, in the name of a thread: only directly after a record it is the
            // end. (If bytes before it were lost, the next mark or silence decides.)
            let ends = |layout: &Layout| ends_in_step(short, *layout);
            self.layout = detect_undamaged(short, &self.hints).filter(ends);
            if self.layout.is_none() && self.searches < SEARCHES {
                self.searches += 1;
                self.layout = detect(short, &self.hints).filter(ends);
            }
        }
        self.layout
    }
}

/// Whether these bytes are a dump that ends directly after a record, with any damage before.
fn ends_in_step(body: &[u8], layout: Layout) -> bool {
    let mut walk = Walk::new(body, layout);
    loop {
        let in_step = walk.position.in_step();
        match walk.next() {
            Some(Piece::End(_)) => return in_step,
            Some(_) => {}
            None => return false,
        }
    }
}
