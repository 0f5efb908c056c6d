//! Search for dumps in a file.

use std::cell::Cell;

use kymo_ctf::metadata::{FieldClass, Length, Metadata};
use kymo_zephyr_instrumentation::{
    BEGIN, END, Hints, Kind, Layout, NAME_BYTES, Piece, RecordType, Walk, detect, detect_near,
    detect_undamaged, find_begin, find_end, is_begin, is_certain,
};

/// Largest number of dumps in a file that may be damaged at their start. The search for records of one is expensive,
/// and a file with more marks in front of other data is not a capture.
const SEARCHES: u32 = 8;

/// Size in bytes of the shortest record, an entry of a profile.
const SHORTEST: usize = 13;

/// Dump in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    /// Offset of its records.
    pub begin: usize,
    /// End of its records: the offset of the end mark, of the next dump, or of the end of the file.
    pub end: usize,
    /// Layout of its records; `None` if there are none: in an empty dump, or (if it is cut) in bytes that are neither
    /// records nor text.
    pub layout: Option<Layout>,
    /// Whether the end mark is missing although there are more bytes than records.
    pub cut: bool,
    /// Whether the begin mark is missing although other dumps of the file have theirs.
    pub headless: bool,
}

impl Dump {
    /// Returns whether its bytes are unknown.
    pub const fn is_unknown(&self) -> bool {
        self.layout.is_none() && self.cut
    }

    /// Returns its kind; `None` if it is unknown.
    pub fn kind(&self) -> Option<Kind> {
        self.layout.map(|layout| layout.kind())
    }
}

/// Finds the dumps of a file; `None` if there are none.
///
/// Between and in front of them, there may be a dump without its begin mark, because the capture starts inside it, or
/// because the line damaged the mark. Its records are found, too, and bytes that are neither records nor text are
/// reported.
pub(super) fn find(bytes: &[u8], hints: &Hints) -> Option<Vec<Dump>> {
    // Marks inside records do not count.
    let all = detect_undamaged(bytes, hints).filter(|layout| is_certain(bytes, *layout));
    if let Some(dump) = all.and_then(|layout| bare_of(bytes, layout))
        && dump.end == bytes.len()
    {
        return Some(vec![dump]);
    }
    let finder = Finder::new(bytes, hints);
    let mut dumps = Vec::new();
    let (mut from, mut reported) = (0, 0);
    while let Some(begin) = find_begin(bytes, from) {
        let (dump, behind) = finder.dump_at(begin);
        from = behind;
        // A mark without a dump is other data that looks like it: a firmware image contains the mark, too, with other
        // strings behind it.
        if finder.is_sure(&dump) {
            finder.unmarked(reported, begin - BEGIN.len(), &mut dumps);
            dumps.push(dump);
            reported = behind;
        }
    }
    if dumps.is_empty() {
        dumps.extend(bare(bytes, hints));
        if dumps.is_empty() && find_end(bytes).is_some() {
            // The begin mark is damaged, and so are the bytes after it.
            finder.unmarked(0, bytes.len(), &mut dumps);
            dumps.retain(|dump| !dump.is_unknown());
        }
    } else {
        finder.unmarked(reported, bytes.len(), &mut dumps);
    }
    (!dumps.is_empty()).then_some(dumps)
}

/// Finds dumps in the bytes after the last dump that are not text.
pub(super) fn rest(bytes: &[u8], hints: &Hints) -> Vec<Dump> {
    let mut dumps = Vec::new();
    Finder::new(bytes, hints).unmarked(0, bytes.len(), &mut dumps);
    dumps
}

/// Looks for the dumps of a file.
struct Finder<'a> {
    bytes: &'a [u8],
    hints: &'a Hints,
    /// Number of searches for the records of a dump that is damaged at its start.
    searches: Cell<u32>,
    /// Layouts of the last trace and the last profile. All dumps of one target have the same.
    known: Cell<[Option<Layout>; 2]>,
}

impl<'a> Finder<'a> {
    fn new(bytes: &'a [u8], hints: &'a Hints) -> Self {
        Self {
            bytes,
            hints,
            searches: Cell::new(0),
            known: Cell::default(),
        }
    }

    fn part(&self, from: usize, to: usize) -> &'a [u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Detects the layout of the dump after a mark.
    fn detect(&self, body: &[u8]) -> Option<Layout> {
        let near = up_to_mark(body);
        if near.len() < SHORTEST {
            return None;
        }
        let mut known = self.known.get().into_iter().flatten();
        let fits = |layout: &Layout| is_certain(near, *layout) || mostly(near, *layout);
        let layout = known.find(fits).or_else(|| {
            let searches = self.searches.get();
            // Several unknown dumps mean that the marks in the capture do not belong to dumps.
            let body = if searches > 1 { near } else { body };
            let undamaged = detect_undamaged(body, self.hints);
            if undamaged.is_some_and(|layout| is_certain(body, layout)) || searches == SEARCHES {
                return undamaged;
            }
            self.searches.set(searches + 1);
            detect(body, self.hints)
        });
        let mut known = self.known.get();
        match layout.map(|layout| layout.kind()) {
            Some(Kind::Trace) => known[0] = layout,
            Some(Kind::Profile) => known[1] = layout,
            None => {}
        }
        self.known.set(known);
        layout
    }

    /// Returns whether there is a dump and not just its mark: it has an end or several records, or its bytes can hardly
    /// be other data.
    fn is_sure(&self, dump: &Dump) -> bool {
        let Some(layout) = dump.layout.filter(|_| dump.cut) else {
            return !dump.cut;
        };
        let body = self.part(dump.begin, dump.end);
        let records = Walk::new(body, layout).filter(|piece| matches!(piece, Piece::Record { .. }));
        records.take(3).count() == 3 || is_certain(body, layout)
    }

    /// Returns the dump after a mark, and the offset at which the search continues.
    fn dump_at(&self, begin: usize) -> (Dump, usize) {
        let body = self.part(begin, self.bytes.len());
        let dump = |layout, length: usize, cut| Dump {
            begin,
            end: begin + length,
            layout,
            cut,
            headless: false,
        };
        if body.starts_with(END) {
            return (dump(None, 0, false), begin + END.len());
        }
        let Some(layout) = self.detect(body) else {
            return (dump(None, 0, true), begin);
        };
        let mut walk = Walk::new(body, layout);
        loop {
            // The dump may have been interrupted, and another one requested.
            let here = walk.position().offset();
            let rest = body.get(here..).unwrap_or_default();
            if is_begin(rest) && self.is_dump(rest) {
                return (dump(Some(layout), here, true), begin + here);
            }
            match walk.next() {
                Some(Piece::Record { .. } | Piece::Damage { .. }) => {}
                Some(Piece::End(end)) => {
                    return (dump(Some(layout), end.at, false), begin + end.behind);
                }
                Some(Piece::Cut { .. }) | None => {
                    return (dump(Some(layout), body.len(), true), begin + body.len());
                }
            }
        }
    }

    /// Returns whether a dump follows the mark here.
    fn is_dump(&self, bytes: &[u8]) -> bool {
        let body = bytes.get(BEGIN.len()..).unwrap_or_default();
        body.starts_with(END) || self.detect(body).is_some()
    }

    /// Handles bytes outside dumps: mostly text, sometimes records without a mark, or unreadable bytes, which are
    /// reported.
    fn unmarked(&self, mut from: usize, to: usize, dumps: &mut Vec<Dump>) {
        loop {
            let part = self.part(from, to);
            if part.iter().filter(|byte| !is_text(**byte)).count() < SHORTEST {
                return;
            }
            // Records begin with a byte that is not text.
            from += part.iter().position(|byte| !is_text(*byte)).unwrap_or(0);
            let dump = self.records_without_mark(from, to).unwrap_or(Dump {
                begin: from,
                end: to,
                layout: None,
                cut: true,
                headless: false,
            });
            dumps.push(dump);
            let end = self.part(dump.end, to);
            from = dump.end + if end.starts_with(END) { END.len() } else { 0 };
        }
    }

    fn records_without_mark(&self, from: usize, to: usize) -> Option<Dump> {
        if self.searches.get() == SEARCHES {
            return None;
        }
        self.searches.set(self.searches.get() + 1);
        let body = self.part(from, to);
        let layout = detect(body, self.hints)?;
        let (mut first, mut records, mut end) = (None, 0, None);
        let mut run = 0;
        let mut walk = Walk::new(body, layout);
        for piece in walk.by_ref() {
            match piece {
                Piece::Record { offset, .. } => {
                    if offset == *first.get_or_insert(offset) + run {
                        run += layout.size();
                    }
                    records += 1;
                }
                Piece::End(found) => end = Some(found.at),
                Piece::Damage { .. } | Piece::Cut { .. } => {}
            }
        }
        let length = end.unwrap_or(walk.position().offset());
        // The first run of records, up to the first damage, and most of all bytes.
        let certain = is_certain(body.get(first?..first? + run)?, layout);
        let most = records * layout.size() * 2 > length;
        (records >= 3 && certain && most).then_some(Dump {
            begin: from,
            end: from + length,
            layout: Some(layout),
            cut: end.is_none(),
            headless: true,
        })
    }
}

/// Returns whether bytes begin mostly with records of a layout, with damage in front of or between them.
fn mostly(body: &[u8], layout: Layout) -> bool {
    /// Size of a dozen of the longest records.
    const SAMPLE: usize = 1 << 11;
    let sample = body.get(..SAMPLE).unwrap_or(body);
    let records = Walk::new(sample, layout).filter(|piece| matches!(piece, Piece::Record { .. }));
    let records = records.count();
    records > 3 && records * layout.size() * 2 > sample.len()
}

/// Returns the bytes in front of the next begin mark.
fn up_to_mark(body: &[u8]) -> &[u8] {
    let next = find_begin(body, 0).and_then(|next| body.get(..next - BEGIN.len()));
    next.unwrap_or(body)
}

/// Returns whether a byte can be part of console text.
const fn is_text(byte: u8) -> bool {
    matches!(byte, 0x07..=0x0D | 0x1B | b' '..=b'~' | 0x80..=0xFF)
}

/// Returns the offset of the mark of a dump without one complete record; `None` if more bytes follow the first mark.
pub(super) fn begun(bytes: &[u8]) -> Option<usize> {
    /// Size of the longest record.
    const RECORD: usize = 34 + *NAME_BYTES.end();
    let body = find_begin(bytes, 0)?;
    (bytes.len() - body < RECORD).then_some(body - BEGIN.len())
}

/// Returns the name length in the metadata of a build with the instrumentation; `None` for other metadata.
///
/// The metadata also has a pointer width, but it is always 32 bits, whatever the target is.
pub(super) fn name_bytes(metadata: &Metadata) -> Option<usize> {
    let mut events = metadata.streams.iter().flat_map(|stream| &stream.events);
    let entry = events.find(|class| class.name == RecordType::Entry.name())?;
    match &entry.fields.as_ref()?.member("thread_name")?.class {
        FieldClass::Array(array) => match array.length {
            Length::Fixed(length) => usize::try_from(length).ok(),
            Length::Field(_) => None,
        },
        _ => None,
    }
}

/// Finds records without marks: they fill all of the bytes, except for parts of one record at each end. If an end mark
/// follows them, only the begin mark is missing, and the first record may have lost its beginning with it.
fn bare(bytes: &[u8], hints: &Hints) -> Option<Dump> {
    bare_of(bytes, detect_near(bytes, hints)?)
}

fn bare_of(bytes: &[u8], layout: Layout) -> Option<Dump> {
    let (mut first, mut records, mut cut, mut end) = (0, 0, 0, None);
    for piece in Walk::new(bytes, layout) {
        match piece {
            Piece::Record { .. } => records += 1,
            Piece::End(found) => end = Some(found.behind),
            Piece::Damage { offset: 0, bytes } if bytes < layout.size() => first = bytes,
            Piece::Damage { .. } => return None,
            Piece::Cut { bytes, .. } => cut = bytes,
        }
    }
    // Other data may begin like one or two records, and contain more bytes that look like records.
    let whole = cut == 0 && end.is_none_or(|behind| behind == bytes.len());
    let enough = match first {
        0 => records >= 3 || (records > 0 && whole),
        _ => records >= 3 && end.is_some(),
    };
    let certain = is_certain(bytes.get(first..)?, layout);
    (enough && certain && cut < layout.size()).then_some(Dump {
        begin: 0,
        end: first + records * layout.size() + cut,
        layout: Some(layout),
        cut: false,
        headless: false,
    })
}
