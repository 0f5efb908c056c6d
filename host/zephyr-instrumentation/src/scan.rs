//! Where does a dump end, and what in it are records?
//!
//! The mark that ends a dump may as well occur inside a record: in an address, in the name of a thread.
//! But all records are of one size, none begins as the mark does, and so at a place where a record ends
//! the next byte tells. Inside of a record nothing is the end. Bytes that were lost on the way (there is
//! no check sum) put all that follows out of step; then of the next places from which on two records follow one another
//! the likeliest is taken (`place.rs`), and what lies between is damage, with its place and length.

use memchr::memmem;

use crate::place::{Known, MARGIN, Position, WINDOW};
use crate::{Kind, Layout};

/// What stands before the records of a dump.
pub const BEGIN: &[u8; 4] = b"-*-#";

/// What stands behind them; the target's console puts a line end (CR LF) behind it.
pub const END: &[u8; 4] = b"-*-!";

/// The end of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Where its mark begins: the length of the records (and of what is damaged between them).
    pub at: usize,
    /// The offset of the first byte behind the mark and its line end, as far as that has come: where
    /// only a part of it has, the rest of it comes next.
    pub behind: usize,
}

impl End {
    /// The end whose mark begins here.
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

/// Where the next dump begins: the offset just behind its mark, in or behind `from`.
///
/// The mark counts only before a record, the end of an empty dump, or the end of the bytes: a console can
/// print it too.
pub fn find_begin(bytes: &[u8], from: usize) -> Option<usize> {
    let mut marks = memmem::find_iter(bytes.get(from..)?, BEGIN).map(|at| from + at);
    let mark = marks.find(|at| is_begin(bytes.get(*at..).unwrap_or_default()))?;
    Some(mark + BEGIN.len())
}

/// Whether a dump begins here, with its mark: what [`find_begin`] looks for.
pub fn is_begin(bytes: &[u8]) -> bool {
    bytes.strip_prefix(BEGIN).is_some_and(|body| {
        let empty = body.get(..END.len()).unwrap_or(body);
        END.starts_with(empty) || body.first().is_some_and(|first| Kind::of(*first).is_some())
    })
}

/// Whether the mark stands here with a line end, as it leaves the target.
fn is_end(bytes: &[u8]) -> bool {
    bytes.starts_with(END) && matches!(bytes.get(END.len()), Some(b'\r' | b'\n'))
}

/// Where the first mark with its line end stands that ends a dump, or may do so.
pub fn find_end(body: &[u8]) -> Option<usize> {
    memmem::find_iter(body, END).find(|at| body.get(*at..).is_some_and(is_end))
}

/// A part of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A record.
    Record {
        /// Where it begins.
        offset: usize,
        /// Its bytes, [`Layout::size`] of them.
        bytes: &'a [u8],
    },
    /// Bytes that are no records, with records or the end behind them, or the mark that begins another
    /// dump: this one may have broken off.
    Damage {
        /// Where they begin.
        offset: usize,
        /// How many they are.
        bytes: usize,
    },
    /// The bytes stop before the mark that ends the dump, inside of a record or of damage.
    Cut {
        /// Where what is incomplete begins.
        offset: usize,
        /// How many bytes of it are there.
        bytes: usize,
    },
    /// The dump is complete.
    End(End),
}

/// What has come so far doesn't tell; what comes next will.
struct NotYet;

/// The parts of a dump, one by one.
///
/// It ends after [`Piece::End`] or [`Piece::Cut`], or, if the bytes stop between two records, without
/// either.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    pub(crate) body: &'a [u8],
    layout: Layout,
    pub(crate) position: Position,
    /// How many bytes from there on are damage for certain.
    pub(crate) damaged: usize,
    /// Whether more bytes may come.
    pub(crate) more: bool,
    over: bool,
}

impl<'a> Walk<'a> {
    /// The parts of a dump of this layout; `body` begins behind [`BEGIN`].
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

    /// The same from a place on where a walk was: what [`position`](Self::position) gave.
    pub fn resume(body: &'a [u8], layout: Layout, position: Position) -> Self {
        Self {
            position,
            ..Self::new(body, layout)
        }
    }

    /// Up to where the parts were given, those that end the walk not counted.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The next part, if the bytes that are there tell what it is.
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

    /// The bytes that a decision is made by: so many, but not beyond the first end at or behind `from`.
    ///
    /// Were it made by all that are there, it would be another one while they still come.
    fn sight(&self, rest: &'a [u8], from: usize, length: usize) -> Result<&'a [u8], NotYet> {
        let near = rest.get(..length).unwrap_or(rest);
        let end = find_end(near.get(from..).unwrap_or_default());
        match end.and_then(|at| near.get(..from + at + END.len() + 1)) {
            Some(until_end) => Ok(until_end),
            None if self.more && near.len() < length => Err(NotYet),
            None => Ok(near),
        }
    }

    /// How many bytes it takes to choose between places no further than two records from here.
    const fn sight_of_places(&self) -> usize {
        (WINDOW + 2) * self.layout.size() + END.len()
    }

    /// How many bytes there are before records, the end, or another dump begin.
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
        // One record may be made of what is left of two, so that the right place is up to two later.
        let known = Known::before(self.body, self.layout, &self.position);
        let best = self.best_place(seen, first..first + 2 * size, &known, WINDOW);
        Ok(best.map(|(skip, _)| skip))
    }

    /// Whether records begin here out of step, or the end does, or another dump.
    fn begins(&self, bytes: &'a [u8]) -> Result<bool, NotYet> {
        // Out of step, a mark is the end only with its line end.
        if is_end(bytes) {
            return Ok(true);
        }
        if bytes.starts_with(BEGIN) {
            let told = !self.more || bytes.len() >= BEGIN.len() + END.len();
            return if told {
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

    /// The likeliest of these places at which records go on, with its score.
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
        // In step with it there may be a record before.
        let earlier = skip.checked_sub(size).filter(|skip| places.contains(skip));
        let earlier = earlier.and_then(place);
        let earlier = earlier.filter(|(_, other)| other + MARGIN >= score);
        Some(earlier.unwrap_or((skip, score)))
    }

    /// How many bytes there are before a place at which records begin for better reasons than here, where
    /// they would fit, too: whole records' lengths but a few bytes were lost.
    fn better_place(&self, rest: &'a [u8]) -> Result<Option<usize>, NotYet> {
        let size = self.layout.size();
        // The thread is nearly always that of the record before; a loss changes it.
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
        // Inside of a record that is in step nothing is the end.
        let seen = self.sight(rest, size, self.sight_of_places())?;
        // A place from which on records also fit across the next damage is no better for that.
        let (here, records) = known.score(&self.layout, seen, WINDOW);
        let records = (records + 1).min(WINDOW);
        let best = self.best_place(seen, 1..2 * size, &known, records);
        let better = best.filter(|(skip, score)| skip % size != 0 && *score > here + MARGIN);
        Ok(better.map(|(skip, _)| skip))
    }

    /// Whether what fits here is the beginning of a record with the end of damage behind it: a name that
    /// fills its field with whatever came, or with zeros, of a thread that was not heard of before and that
    /// does not look like one, and behind it there is neither a record nor a mark.
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
        // Where the bytes stop nothing speaks against it.
        let behind = self.sight(rest, size, 2 * size)?.get(size..);
        let behind = behind.unwrap_or_default();
        let mark = |mark: &[u8]| behind.starts_with(mark) || mark.starts_with(behind);
        Ok(!(mark(END) || mark(BEGIN) || behind.len() < size || self.layout.fits(behind)))
    }

    /// Whether records go on here: one, and behind it another one or the end. A mark with its line end
    /// inside of them is the end nevertheless; while bytes still come it is seen before they are whole.
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
