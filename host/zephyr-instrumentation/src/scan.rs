//! Dump scanner: finds the records of a dump, and its end.
//!
//! The mark that ends a dump may also occur inside a record: in an address, in the name of a thread. But all records
//! have one size, and none begins like the mark, so the byte after a record is unambiguous, and a mark inside a record
//! is ignored. Bytes lost in transport (there is no checksum) shift everything after them; then the best of the next
//! offsets at which two records follow one another is chosen (`place.rs`), and the bytes before it are reported as
//! damage, with position and length.

use memchr::memmem;

use crate::place::{Known, MARGIN, Position, WINDOW};
use crate::{Kind, Layout};

/// Mark before the records of a dump.
pub const BEGIN: &[u8; 4] = b"-*-#";

/// Mark after the records; the target's console adds a line end (CR LF).
pub const END: &[u8; 4] = b"-*-!";

/// The end of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Offset of its mark: the length of the records (and of the damage between them).
    pub at: usize,
    /// Offset of the first byte after the mark and its line end. If the line end has only partly arrived, the rest
    /// comes next.
    pub behind: usize,
}

impl End {
    /// The end with a mark at this offset.
    pub(crate) fn new(body: &[u8], at: usize) -> Self {
        let behind = at + END.len();
        let line_end = body.get(behind..).unwrap_or_default();
        let line_end = match line_end {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        Self {
            at,
            behind: behind + line_end,
        }
    }
}

/// Finds the begin of the next dump: the offset directly after its mark, at or after `from`.
///
/// The mark counts only before a record, the end of an empty dump, or the end of the bytes: a console can print it too.
pub fn find_begin(bytes: &[u8], from: usize) -> Option<usize> {
    let mut marks = memmem::find_iter(bytes.get(from..)?, BEGIN).map(|at| from + at);
    let mark = marks.find(|at| is_begin(bytes.get(*at..).unwrap_or_default()))?;
    Some(mark + BEGIN.len())
}

/// Whether a dump begins here, with its mark, as [`find_begin`] requires.
pub fn is_begin(bytes: &[u8]) -> bool {
    bytes.strip_prefix(BEGIN).is_some_and(|body| {
        let empty = body.get(..END.len()).unwrap_or(body);
        END.starts_with(empty) || body.first().is_some_and(|first| Kind::of(*first).is_some())
    })
}

/// Whether the bytes begin with the end mark and a line end, as the target sends it.
fn is_end(bytes: &[u8]) -> bool {
    bytes.starts_with(END) && matches!(bytes.get(END.len()), Some(b'\r' | b'\n'))
}

/// Offset of the first mark with a line end, which may be the end of a dump.
pub fn find_end(body: &[u8]) -> Option<usize> {
    memmem::find_iter(body, END).find(|at| body.get(*at..).is_some_and(is_end))
}

/// A part of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A record.
    Record {
        /// Its offset.
        offset: usize,
        /// Its bytes, [`Layout::size`] of them.
        bytes: &'a [u8],
    },
    /// Bytes that are not records, followed by records, the end, or the mark of another dump, before which this one may
    /// have been interrupted.
    Damage {
        /// Their offset.
        offset: usize,
        /// Their number.
        bytes: usize,
    },
    /// The bytes stop before the end mark, inside a record or damage.
    Cut {
        /// Offset of the incomplete part.
        offset: usize,
        /// Number of its bytes that have arrived.
        bytes: usize,
    },
    /// The dump is complete.
    End(End),
}

/// The bytes so far are ambiguous; further bytes will decide.
struct NotYet;

/// Iterator over the parts of a dump.
///
/// It ends after [`Piece::End`] or [`Piece::Cut`], or without either if the bytes stop between two records.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    pub(crate) body: &'a [u8],
    layout: Layout,
    pub(crate) position: Position,
    /// Number of bytes from there on that are certainly damaged.
    pub(crate) damaged: usize,
    /// Whether more bytes may arrive.
    pub(crate) more: bool,
    over: bool,
}

impl<'a> Walk<'a> {
    /// Creates a walk over a dump with this layout; `body` begins after [`BEGIN`].
    pub fn new(body: &'a [u8], layout: Layout) -> Self {
        Self {
            body,
            layout,
            position: Position::default(),
            damaged: 0,
            more: false,
            over: false,
        }
    }

    /// Continues a walk from a [`position`](Self::position).
    pub fn resume(body: &'a [u8], layout: Layout, position: Position) -> Self {
        Self {
            position,
            ..Self::new(body, layout)
        }
    }

    /// The position after the parts returned so far, except those that end the walk.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The next part, if the available bytes determine it.
    pub(crate) fn step(&mut self) -> Option<Piece<'a>> {
        let rest = self
            .body
            .get(self.position.at..)
            .filter(|rest| !rest.is_empty())?;
        let offset = self.position.at;
        if self.layout.fits(rest) && !self.is_doubtful(rest).ok()? {
            if let Some(bytes) = self.better_place(rest).ok()? {
                self.position.damage(bytes);
                self.damaged = 0;
                return Some(Piece::Damage { offset, bytes });
            }
            let bytes = rest.get(..self.layout.size())?;
            self.position.record(bytes.len());
            self.damaged = 0;
            return Some(Piece::Record { offset, bytes });
        }
        if rest.starts_with(END) {
            return Some(Piece::End(End::new(self.body, offset)));
        }
        if let Some(bytes) = self.damaged_bytes(rest).ok()? {
            self.position.damage(bytes);
            self.damaged = 0;
            return Some(Piece::Damage { offset, bytes });
        }
        Some(Piece::Cut {
            offset,
            bytes: rest.len(),
        })
    }

    /// The bytes on which a decision is based: `length`, but not beyond the first end at or after `from`.
    ///
    /// If it were based on all available bytes, it would change while they still arrive.
    fn sight(&self, rest: &'a [u8], from: usize, length: usize) -> Result<&'a [u8], NotYet> {
        let near = rest.get(..length).unwrap_or(rest);
        let end = find_end(near.get(from..).unwrap_or_default());
        match end.and_then(|at| near.get(..from + at + END.len() + 1)) {
            Some(until_end) => Ok(until_end),
            None if self.more && near.len() < length => Err(NotYet),
            None => Ok(near),
        }
    }

    /// Number of bytes needed to choose between offsets up to two records from here.
    const fn sight_of_places(&self) -> usize {
        (WINDOW + 2) * self.layout.size() + END.len()
    }

    /// Number of damaged bytes before records, the end, or another dump begin.
    fn damaged_bytes(&mut self, rest: &'a [u8]) -> Result<Option<usize>, NotYet> {
        let size = self.layout.size();
        let mut first = self.damaged.max(1);
        loop {
            if first >= rest.len() {
                return Ok(None);
            }
            self.damaged = first;
            if self.begins(rest.get(first..).unwrap_or_default())? {
                break;
            }
            first += 1;
        }
        let behind = rest.get(first..).unwrap_or_default();
        if is_end(behind) || is_begin(behind) {
            return Ok(Some(first));
        }
        let seen = self.sight(behind, 0, self.sight_of_places())?.len();
        let seen = rest.get(..first + seen).unwrap_or(rest);
        // The remains of two records may look like one, so the right offset is up to two records away.
        let known = Known::before(self.body, self.layout, &self.position);
        let best = self.best_place(seen, first..first + 2 * size, &known, WINDOW);
        Ok(best.map(|(skip, _)| skip))
    }

    /// Whether records, the end, or another dump begin here, out of step.
    fn begins(&self, bytes: &'a [u8]) -> Result<bool, NotYet> {
        // Out of step, the mark must have its line end.
        if is_end(bytes) {
            return Ok(true);
        }
        if bytes.starts_with(BEGIN) {
            let reported = !self.more || bytes.len() >= BEGIN.len() + END.len();
            return if reported {
                Ok(is_begin(bytes))
            } else {
                Err(NotYet)
            };
        }
        let size = self.layout.size();
        if bytes.len() >= size && !self.layout.fits(bytes) {
            return Ok(false);
        }
        let seen = self.sight(bytes, 0, 2 * size + END.len())?;
        Ok(self.goes_on(seen))
    }

    /// The best of these offsets at which records continue, with its score.
    fn best_place(
        &self,
        rest: &'a [u8],
        places: std::ops::Range<usize>,
        known: &Known<'a>,
        records: usize,
    ) -> Option<(usize, usize)> {
        let size = self.layout.size();
        let place = |skip: usize| {
            let bytes = rest.get(skip..).filter(|bytes| self.goes_on(bytes))?;
            Some((skip, known.score(&self.layout, bytes, records).0))
        };
        let best = places.clone().filter_map(place);
        let (skip, score) = best.max_by_key(|(_, score)| *score)?;
        // There may be a record before it, in step with it.
        let earlier = skip.checked_sub(size).filter(|skip| places.contains(skip));
        let earlier = earlier.and_then(place);
        let earlier = earlier.filter(|(_, other)| other + MARGIN >= score);
        Some(earlier.unwrap_or((skip, score)))
    }

    /// Number of bytes before an offset with a better score than this one, where records would fit, too: whole records
    /// minus a few bytes were lost.
    fn better_place(&self, rest: &'a [u8]) -> Result<Option<usize>, NotYet> {
        let size = self.layout.size();
        // The thread is nearly always that of the previous record; after a loss it differs.
        let kept = match self.layout.name_bytes {
            Some(name) => name + self.layout.pointer.bytes(),
            None => 0,
        };
        let thread = |end: usize| self.body.get(end.checked_sub(kept)?..end);
        let before = thread(self.position.at);
        let damage_before = self.position.at > 0 && !self.position.in_step();
        if damage_before
            || kept > 0 && before.is_some() && before == thread(self.position.at + size)
        {
            return Ok(None);
        }
        let known = Known::before(self.body, self.layout, &self.position);
        let begins = |record| known.may_begin(&record);
        if known.has_thread(&self.layout, rest) || self.layout.record(rest).is_some_and(begins) {
            return Ok(None);
        }
        // A mark inside a record that is in step is ignored.
        let seen = self.sight(rest, size, self.sight_of_places())?;
        // An offset whose records also fit across the next damage is not better for that.
        let (here, records) = known.score(&self.layout, seen, WINDOW);
        let records = (records + 1).min(WINDOW);
        let best = self.best_place(seen, 1..2 * size, &known, records);
        let better = best.filter(|(skip, score)| skip % size != 0 && *score > here + MARGIN);
        Ok(better.map(|(skip, _)| skip))
    }

    /// Whether the apparent record here is the beginning of one record joined to the end of damage: its name fills the
    /// field with arbitrary bytes or zeros, its thread is unknown and does not look like a new one, and neither a
    /// record nor a mark follows.
    fn is_doubtful(&self, rest: &'a [u8]) -> Result<bool, NotYet> {
        let size = self.layout.size();
        let (Some(record), Some(field)) = (self.layout.record(rest), self.layout.name_bytes) else {
            return Ok(false);
        };
        let odd = record.name.len() == field || (record.name.is_empty() && record.thread != 0);
        if !odd || field == 0 || !self.position.in_step() {
            return Ok(false);
        }
        let known = Known::before(self.body, self.layout, &self.position);
        if known.has_thread(&self.layout, rest) || known.may_begin(&record) {
            return Ok(false);
        }
        // At the end of the bytes there is no evidence against it.
        let behind = self.sight(rest, size, 2 * size)?.get(size..);
        let behind = behind.unwrap_or_default();
        let mark = |mark: &[u8]| behind.starts_with(mark) || mark.starts_with(behind);
        Ok(!(mark(END) || mark(BEGIN) || behind.len() < size || self.layout.fits(behind)))
    }

    /// Whether records continue here: one, followed by another one or the end. A mark with a line end inside them is
    /// the end nevertheless; while bytes still arrive it is seen before they are complete.
    fn goes_on(&self, bytes: &[u8]) -> bool {
        let size = self.layout.size();
        let Some((record, behind)) = bytes.split_at_checked(size) else {
            return false;
        };
        let next = behind.get(..size).unwrap_or_default();
        let ends = |at: usize| bytes.get(at..).is_some_and(is_end);
        self.layout.fits(record)
            && (behind.starts_with(END) || self.layout.fits(next))
            && !(0..size).any(ends)
            && (is_end(behind) || !(size..2 * size).any(ends))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let piece = if self.over { None } else { self.step() };
        self.over = matches!(piece, None | Some(Piece::End(_) | Piece::Cut { .. }));
        piece
    }
}
