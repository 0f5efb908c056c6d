//! Where does a dump end of which the bytes still come?
//!
//! The same [`Walk`] as over all of it, which goes on where it was with every piece that comes. It decides
//! nothing before the bytes are there that it decides by, so whatever the pieces are, the end is the same.

use crate::detect::SAMPLE;
use crate::place::Position;
use crate::scan::find_end;
use crate::{END, End, Hints, Layout, Piece, Walk, detect, detect_undamaged};

/// So often the records of a short dump are searched for that is damaged at its start: that is a lot of work.
const SEARCHES: u32 = 16;

/// Finds the end of a dump while its bytes come.
///
/// It is given all bytes behind [`BEGIN`](crate::BEGIN) again and again, with more at their end each time, and goes on
/// where it was: the work is linear in the bytes.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    hints: Hints,
    layout: Option<Layout>,
    /// Up to where the bytes are records or damage.
    at: Position,
    /// How many bytes from there on are damage for certain.
    beyond: usize,
    /// Up to where the marks were tried as the end while the layout wasn't known.
    tried: usize,
    /// How many searches were made for records behind damage.
    searches: u32,
    /// Whether the bytes have no layout that is known.
    unknown: bool,
    records: u64,
    damaged: u64,
}

impl Scanner {
    /// For a dump of which nothing has come yet.
    pub fn new(hints: Hints) -> Self {
        Self {
            hints,
            ..Self::default()
        }
    }

    /// The layout of the records, once enough of them have come to be sure.
    pub const fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// How many whole records have come.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// How many bytes between them were none.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Looks at what has come since; `Some` when the end of the dump is among it.
    ///
    /// A dump that breaks off never ends here: the caller has to stop waiting at some time, and then asks
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
                // It may become a record; what looks like the mark in it is none then. (If it is one,
                // and bytes before it were lost, only the silence behind it can tell.)
                return None;
            }
            match walk.step() {
                Some(Piece::Record { .. }) => self.records += 1,
                Some(Piece::Damage { bytes, .. }) => self.damaged += bytes as u64,
                Some(Piece::End(end)) => return Some(end),
                // What has not come whole yet, or damage that goes on.
                Some(Piece::Cut { .. }) | None => return None,
            }
        }
    }

    /// The end where there is nothing that is known: only the mark with its line end can tell.
    fn mark_alone(&mut self, body: &[u8]) -> Option<End> {
        if !self.unknown {
            return None;
        }
        let at = find_end(body.get(self.tried..)?).map(|at| self.tried + at);
        self.tried = body.len().saturating_sub(END.len()).max(self.tried);
        at.map(|at| End::new(body, at))
    }

    /// The end of a dump behind which there was silence: nothing more comes, so what might have become
    /// a record is damage, and a mark with its line end in it is the end. `None` if the dump broke off.
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

    /// Settles on a layout when there are enough bytes, or the dump is shorter than that.
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
            // The last bytes may be a mark's first.
            self.tried = at.map_or(body.len().saturating_sub(END.len()), |at| at + 1);
            let short = body.get(..at? + END.len() + 1)?;
            // The mark may stand in a record's bytes as well, in the name of a thread: only right behind a
            // record it is the end. (Where bytes were lost before it, the next mark or the silence tells.)
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

/// Whether these bytes are a dump that ends right behind a record, with whatever damage further up.
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
