//! Layout detection: finds the layout of a dump's records, which nothing in the dump states.
//!
//! All possible layouts, some five hundred, are tried; the best is the one for which the most bytes from the start on
//! are records that [fit](Layout::fits). A wrong pointer width puts parts of addresses and times where names should be,
//! a wrong name length is out of step from the second record on, a wrong byte order yields times in the far future. The
//! facts from a build's ELF file or generated metadata only decide between layouts that explain the bytes equally well:
//! that metadata is wrong for 64-bit targets, and a file may belong to another build.

use crate::place::{MINUTE, REACH};
use crate::scan::{BEGIN, END, find_begin, find_end};
use crate::{ByteOrder, Kind, Layout, NAME_BYTES, PointerWidth};

/// Hints about a target's layout from elsewhere; `None` if unknown. They decide only where the bytes are ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Pointer width, as in the header of an ELF file.
    pub pointer: Option<PointerWidth>,
    /// Byte order, from there too.
    pub order: Option<ByteOrder>,
    /// Name length, as in the generated `ctf_metadata`.
    pub name_bytes: Option<usize>,
}

impl Hints {
    /// The number of hints that match a layout.
    fn agree(&self, layout: &Layout) -> u32 {
        u32::from(self.pointer == Some(layout.pointer))
            + u32::from(self.order == Some(layout.order))
            + u32::from(self.name_bytes.is_some() && self.name_bytes == layout.name_bytes)
    }
}

/// Number of bytes examined: dozens of the longest records.
pub(crate) const SAMPLE: usize = 1 << 13;

/// Number of bytes examined to detect records at a later offset: a dozen of the longest.
const LATER: usize = 1 << 11;

/// Maximum number of records scored in a search; ordinary damage takes a tenth. A dump without records can look like
/// records of many layouts everywhere.
const WORK: usize = 1 << 17;

/// Number of later offsets of a dump that are searched if there are no records at its beginning.
const PLACES: usize = 64;

/// Number of consecutive records that cannot be a coincidence.
const SEVERAL: usize = 4;

/// Detects the layout of a dump from its first records.
///
/// `body` is the content after the begin mark, as far as it has arrived; it may include the end mark and bytes after
/// it. `None` if there is no record, of any layout.
pub fn detect(body: &[u8], hints: &Hints) -> Option<Layout> {
    let mut work = 0;
    let (found, sure) = search(body, hints, &mut work);
    let layout = found.map(|(_, layout)| layout);
    if sure || body.len() <= SAMPLE {
        return layout;
    }
    // The whole sample may be damaged. Further on, within this dump, only a run of records is evidence.
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

/// As [`detect`], if the records begin near the start of the bytes or there are none.
pub fn detect_near(body: &[u8], hints: &Hints) -> Option<Layout> {
    let (found, _) = search(body, hints, &mut 0);
    found.map(|(_, layout)| layout)
}

/// The layout of the records that begin near the start of `body`, its score, and whether they are most of the sample.
/// `work` is increased by the number of records scored.
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
    // Bytes lost near the start shift everything after them: records begin again at a later offset. A few records prove
    // nothing there.
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
            // The right offset is less than one record's length away, and has been tried.
            until = until.min(skip + found.1.size());
            sure = true;
        }
    }
    (best_so_far, sure)
}

/// As [`detect`], if a record begins at the first byte; damage at the start hides the layout. The cost is a hundredth.
pub fn detect_undamaged(body: &[u8], hints: &Hints) -> Option<Layout> {
    let sample = body.get(..SAMPLE).unwrap_or(body);
    best(sample, hints, &mut 0).map(|(_, layout)| layout)
}

/// Whether bytes are certainly records of a layout: all complete ones fit, and nearly all of their numbers are
/// plausible. It recognises data of unknown origin without a begin mark.
pub fn is_certain(body: &[u8], layout: Layout) -> bool {
    let sample = body.get(..SAMPLE).unwrap_or(body);
    let score = score(sample, layout, &Hints::default());
    let left = sample.len() - score.records * layout.size();
    (score.complete || left < layout.size()) && score.likely(layout)
}

/// The layout that explains the most of the start of `sample`. `work` is increased by the number of records scored.
fn best(sample: &[u8], hints: &Hints, work: &mut usize) -> Option<(Score, Layout)> {
    let kind = Kind::of(*sample.first()?)?;
    let mut best = None;
    for layout in candidates(kind).filter(|layout| layout.fits(sample)) {
        let score = score(sample, layout, hints);
        *work += score.records;
        // The first of equal layouts wins: little-endian, 32 bits, the shortest name.
        if best.is_none_or(|(other, _)| score > other) {
            best = Some((score, layout));
        }
    }
    best
}

/// Score of a layout, the most important criterion first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Whether there are several records, and nearly all of their numbers are plausible.
    certain: bool,
    /// Size in bytes of the records, from the start to the first byte that is none; bytes of records with plausible
    /// numbers count up to four times.
    weight: usize,
    /// Whether the records extend to the end mark, or to the end of the bytes.
    complete: bool,
    /// Number of matching hints.
    hints: u32,
    /// Number of records.
    records: usize,
}

impl Score {
    /// Whether nearly all numbers of the records are plausible.
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

/// Values of the previous record.
#[derive(Default)]
struct Last<'a> {
    /// The time in a trace, the function in a profile.
    number: Option<u64>,
    thread: Option<(u64, &'a [u8])>,
}

/// The number of plausible values in a record, out of three: a call's target is nearby, and the time since the previous
/// record is small, but not zero. Control characters in a name subtract one, unless the previous record
/// has the same thread and name.
fn likely<'a>(layout: &Layout, bytes: &'a [u8], last: &mut Last<'a>) -> usize {
    /// About a day.
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

/// All possible layouts of a dump of this kind.
fn candidates(kind: Kind) -> impl Iterator<Item = Layout> {
    let orders = [ByteOrder::Little, ByteOrder::Big];
    orders.into_iter().flat_map(move |order| {
        let widths = [PointerWidth::Bits32, PointerWidth::Bits64];
        widths.into_iter().flat_map(move |pointer| {
            let names = match kind {
                Kind::Trace => NAME_BYTES,
                // A single candidate, without a name.
                Kind::Profile => 0..=0,
            };
            names.map(move |name| layout(pointer, order, (kind == Kind::Trace).then_some(name)))
        })
    })
}
