//! How are the records of a dump laid out? Nothing in it says so.
//!
//! Every layout that there can be is tried, some five hundred, and the one wins by which the most bytes
//! from the start on are records that [fit](Layout::fits). A wrong width of pointers puts parts of
//! addresses and times where names should be, a wrong length of names is out of step from the second
//! record on, a wrong byte order has times in the far future. What a build's ELF file or generated
//! metadata say only decides between layouts that explain the bytes equally well: that metadata is wrong
//! for 64-bit targets, and a file may belong to another build.

use crate::place::{MINUTE, REACH};
use crate::scan::{BEGIN, END, find_begin, find_end};
use crate::{ByteOrder, Kind, Layout, NAME_BYTES, PointerWidth};

/// What is said about a target's layout elsewhere; `None` for what is not. It is believed only where
/// the bytes leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The width of pointers, as in the header of an ELF file.
    pub pointer: Option<PointerWidth>,
    /// The byte order, from there too.
    pub order: Option<ByteOrder>,
    /// The length of names, as in the generated `ctf_metadata`.
    pub name_bytes: Option<usize>,
}

impl Hints {
    /// How many of them a layout agrees with.
    fn agree(&self, layout: &Layout) -> u32 {
        u32::from(self.pointer == Some(layout.pointer))
            + u32::from(self.order == Some(layout.order))
            + u32::from(self.name_bytes.is_some() && self.name_bytes == layout.name_bytes)
    }
}

/// How many bytes are looked at: dozens of the longest records.
pub(crate) const SAMPLE: usize = 1 << 13;

/// So much of it tells whether records begin at some later place: a dozen of the longest.
const LATER: usize = 1 << 11;

/// So many records are weighed in a search at most; ordinary damage takes a tenth. Bytes that look like
/// records of many layouts everywhere are a dump of none.
const WORK: usize = 1 << 17;

/// In so many places of a dump it is looked for records where there are none at its beginning.
const PLACES: usize = 64;

/// So many records in a row are no coincidence.
const SEVERAL: usize = 4;

/// The layout of the records that a dump consists of, found from the first of them.
///
/// `body` is what came behind the mark that begins a dump, as far as it has come; the mark that ends it,
/// and anything behind that, may be there. `None` if there is no record, of any layout.
pub fn detect(body: &[u8], hints: &Hints) -> Option<Layout> {
    let mut work = 0;
    let (found, sure) = search(body, hints, &mut work);
    let layout = found.map(|(_, layout)| layout);
    if sure || body.len() <= SAMPLE {
        return layout;
    }
    // All of the sample may be damaged. Further on, in this dump and in no other, nothing but a run of
    // records counts.
    let end = find_end(body).unwrap_or(body.len());
    let next = find_begin(body, 0).map_or(end, |behind| behind - BEGIN.len());
    let body = body.get(..end.min(next)).unwrap_or(body);
    let step = SAMPLE.max(body.len().div_ceil(PLACES));
    for from in (SAMPLE..body.len()).step_by(step) {
        let later = body.get(from..).unwrap_or_default();
        let (found, sure) = search(later, hints, &mut work);
        let found = found.filter(|(score, _)| sure && score.records >= SEVERAL);
        if let Some((_, layout)) = found {
            return Some(layout);
        }
    }
    layout
}

/// The same where records begin near the beginning of the bytes, or there are none.
pub fn detect_near(body: &[u8], hints: &Hints) -> Option<Layout> {
    let (found, _) = search(body, hints, &mut 0);
    found.map(|(_, layout)| layout)
}

/// The layout of the records that begin somewhere near the beginning of `body`, what speaks for it, and
/// whether they are most of what is there. `work` grows by the records weighed.
fn search(body: &[u8], hints: &Hints, work: &mut usize) -> (Option<(Score, Layout)>, bool) {
    let sample = body.get(..SAMPLE).unwrap_or(body);
    let first = best(sample, hints, work);
    let half = |(score, layout): &(Score, Layout), sample: &[u8]| {
        score.likely(*layout) && score.records * layout.size() >= sample.len() / 2
    };
    let whole = |(score, layout): &(Score, Layout)| score.likely(*layout) && score.complete;
    if first.is_some_and(|found| half(&found, sample) || whole(&found)) {
        return (first, true);
    }
    // Bytes that were lost near the start shift all that follows: records begin again at some later
    // place. A few prove nothing there.
    let longest = layout(
        PointerWidth::Bits64,
        ByteOrder::Big,
        Some(*NAME_BYTES.end()),
    )
    .size();
    let (mut best_so_far, mut sure) = (first, false);
    let mut until = 4 * longest;
    for skip in 1..4 * longest {
        if skip > until || *work > WORK {
            break;
        }
        let later = sample.get(skip..).unwrap_or_default();
        let later = later.get(..LATER).unwrap_or(later);
        let found = best(later, hints, work);
        let Some(found) = found.filter(|(score, _)| score.records >= SEVERAL) else {
            continue;
        };
        if best_so_far.is_none_or(|(score, _)| found.0 > score) {
            best_so_far = Some(found);
        }
        if half(&found, later) {
            // Within one record's length the right place is among those that were tried.
            until = until.min(skip + found.1.size());
            sure = true;
        }
    }
    (best_so_far, sure)
}

/// The same where the first byte is a record's: what is damaged at its start has no layout. This costs
/// a hundredth.
pub fn detect_undamaged(body: &[u8], hints: &Hints) -> Option<Layout> {
    let sample = body.get(..SAMPLE).unwrap_or(body);
    best(sample, hints, &mut 0).map(|(_, layout)| layout)
}

/// Whether bytes are records of a layout for certain: all that are whole fit, and nearly all of their
/// numbers are such as a program has. What may be anything, without a mark before it, is recognised so.
pub fn is_certain(body: &[u8], layout: Layout) -> bool {
    let sample = body.get(..SAMPLE).unwrap_or(body);
    let score = score(sample, layout, &Hints::default());
    let left = sample.len() - score.records * layout.size();
    (score.complete || left < layout.size()) && score.likely(layout)
}

/// The layout that explains the most of what `sample` begins with. `work` grows by the records weighed.
fn best(sample: &[u8], hints: &Hints, work: &mut usize) -> Option<(Score, Layout)> {
    let kind = Kind::of(*sample.first()?)?;
    let mut best = None;
    for layout in candidates(kind).filter(|layout| layout.fits(sample)) {
        let score = score(sample, layout, hints);
        *work += score.records;
        // The first of equals stays: little-endian, 32 bits, the shortest name.
        if best.is_none_or(|(other, _)| score > other) {
            best = Some((score, layout));
        }
    }
    best
}

/// What speaks for a layout, the weightiest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Whether it is several records, and of nearly all the numbers are such as a program has.
    certain: bool,
    /// How many bytes its records are, from the start to the first that is none; those of which the
    /// numbers are such as a program has count up to four times.
    weight: usize,
    /// Whether the records go on to the mark that ends a dump, or to the end of the bytes.
    complete: bool,
    /// With how many hints it agrees.
    hints: u32,
    /// How many records there are.
    records: usize,
}

impl Score {
    /// Whether nearly all numbers of the records are likely.
    const fn likely(&self, layout: Layout) -> bool {
        self.weight > self.records * layout.size() * 7 / 2
    }
}

fn score(sample: &[u8], layout: Layout, hints: &Hints) -> Score {
    let mut score = Score {
        certain: false,
        weight: 0,
        complete: false,
        hints: hints.agree(&layout),
        records: 0,
    };
    let mut rest = sample;
    let mut last = Last::default();
    while layout.fits(rest) {
        let (bytes, next) = rest.split_at(layout.size());
        score.records += 1;
        score.weight += bytes.len() * (1 + likely(&layout, bytes, &mut last));
        rest = next;
    }
    score.certain = score.records >= SEVERAL && score.likely(layout);
    score.complete = rest.is_empty() || rest.starts_with(END);
    score
}

/// What the record before says.
#[derive(Default)]
struct Last<'a> {
    /// The time of a trace's record, the function of an entry of a profile.
    number: Option<u64>,
    thread: Option<(u64, &'a [u8])>,
}

/// How many of a record's numbers are such as a program has, of three: a call reaches something nearby, and
/// from one record to the next little time passes, but some. Control characters in a name take one away, but
/// where the next record is of that thread, too.
fn likely<'a>(layout: &Layout, bytes: &'a [u8], last: &mut Last<'a>) -> usize {
    /// A day, about.
    const DAY: u64 = 1 << 46;
    let (near, soon, moves) = match layout.kind() {
        Kind::Trace => {
            let Some(record) = layout.record(bytes) else {
                return 0;
            };
            let passed = last.number.replace(record.time_ns);
            let passed = passed.map(|last| record.time_ns.abs_diff(last));
            let thread = Some((record.thread, record.name));
            let again = std::mem::replace(&mut last.thread, thread) == thread;
            (
                record.callee.abs_diff(record.caller) < REACH,
                passed.is_none_or(|passed| passed < MINUTE),
                passed != Some(0) && (again || record.has_plain_name()),
            )
        }
        Kind::Profile => {
            let Some(entry) = layout.entry(bytes) else {
                return 0;
            };
            let apart = last.number.replace(entry.function);
            let apart = apart.map(|last| entry.function.abs_diff(last));
            // Totals can be negative, modulo 2^64.
            let total = entry.total_ns.min(entry.total_ns.wrapping_neg());
            let near = apart.is_none_or(|apart| apart < REACH);
            (near, total < DAY, apart != Some(0))
        }
    };
    usize::from(near) + usize::from(soon) + usize::from(moves)
}

const fn layout(pointer: PointerWidth, order: ByteOrder, name_bytes: Option<usize>) -> Layout {
    Layout {
        pointer,
        order,
        name_bytes,
    }
}

/// Every layout that a dump of this kind can have.
fn candidates(kind: Kind) -> impl Iterator<Item = Layout> {
    let orders = [ByteOrder::Little, ByteOrder::Big];
    orders.into_iter().flat_map(move |order| {
        let widths = [PointerWidth::Bits32, PointerWidth::Bits64];
        widths.into_iter().flat_map(move |pointer| {
            let names = match kind {
                Kind::Trace => NAME_BYTES,
                // Once, without a name.
                Kind::Profile => 0..=0,
            };
            names.map(move |name| layout(pointer, order, (kind == Kind::Trace).then_some(name)))
        })
    })
}
