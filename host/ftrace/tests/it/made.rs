//! Synthetic files for cases without a capture, written from the descriptions of the formats: both byte orders and word
//! sizes, every compression, instances, guests, other clocks.

use std::io::Write;

use kymo_ftrace::{Lost, Order, Place, Records, Report, Step, Style, Trace};

/// Traced machine, and the encoding of its files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) big: bool,
    pub(super) long: usize,
    compression: &'static str,
}

pub(super) const PAGE: usize = 256;

/// Format of the event that the machines record.
pub(super) const NOTE: &str = "name: note\nID: 7\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:s64 value;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield:__data_loc char[] text;\toffset:16;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"%lld %s%s\", REC->value, __get_str(text), REC->value > 9 ? \" many\" : \"\"\n";

impl Machine {
    fn number(self, value: u64, size: usize) -> Vec<u8> {
        match self.big {
            true => value.to_be_bytes()[8 - size..].to_vec(),
            false => value.to_le_bytes()[..size].to_vec(),
        }
    }

    fn u16(self, value: u64) -> Vec<u8> {
        self.number(value, 2)
    }

    fn u32(self, value: u64) -> Vec<u8> {
        self.number(value, 4)
    }

    fn u64(self, value: u64) -> Vec<u8> {
        self.number(value, 8)
    }

    /// Returns the word before an event.
    fn word(self, kind: u64, delta: u64) -> Vec<u8> {
        self.u32(if self.big {
            kind << 27 | delta
        } else {
            delta << 5 | kind
        })
    }

    /// Returns an event `note` with a number and a text elsewhere in the record.
    pub(super) fn note(self, delta: u64, pid: u64, value: u64, text: &str) -> Vec<u8> {
        let mut data = [
            self.u16(7),
            vec![0x0d, 0x21],
            self.u32(pid),
            self.number(value, 8),
        ]
        .concat();
        let place = 20 | (text.len() as u64 + 1) << 16;
        data.extend(self.u32(place));
        data.extend(text.as_bytes());
        data.push(0);
        data.resize(data.len().next_multiple_of(4), 0);
        [self.word(data.len() as u64 / 4, delta), data].concat()
    }

    pub(super) fn page(self, time: u64, entries: &[Vec<u8>], lost: Option<u64>) -> Vec<u8> {
        let entries = entries.concat();
        let flags = if lost.is_some() { 3 << 30 } else { 0 };
        let commit = entries.len() as u64 | flags;
        let mut page = [self.u64(time), self.number(commit, self.long), entries].concat();
        if let Some(lost) = lost {
            page.extend(self.number(lost, self.long));
        }
        assert!(page.len() <= PAGE);
        page.resize(PAGE, 0);
        page
    }

    pub(super) fn header_page(self) -> String {
        let Self { long, .. } = self;
        let data = 8 + long;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data};\tsize:{};\tsigned:1;\n",
            PAGE - data
        )
    }

    fn headers(self) -> Vec<u8> {
        let mut bytes = b"header_page\0".to_vec();
        bytes.extend(self.u64(self.header_page().len() as u64));
        bytes.extend(self.header_page().bytes());
        bytes.extend(b"header_event\0");
        bytes.extend(self.u64(0));
        bytes
    }

    fn systems(self) -> Vec<u8> {
        let system = [self.u32(1), b"made\0".to_vec(), self.u32(1)].concat();
        [
            system,
            self.u64(NOTE.len() as u64),
            NOTE.as_bytes().to_vec(),
        ]
        .concat()
    }

    fn comms(self) -> Vec<u8> {
        let text = b"5 five\n";
        [self.u64(text.len() as u64), text.to_vec()].concat()
    }

    fn head(self, version: u8) -> Vec<u8> {
        let mut head = b"\x17\x08\x44tracing".to_vec();
        head.extend([b'0' + version, 0, u8::from(self.big), self.long as u8]);
        head.extend(self.u32(PAGE as u64));
        head
    }

    /// Returns a file of version 6 with options and buffers: the main one first.
    fn v6(self, options: &[(u64, Vec<u8>)], buffers: &[(&str, Vec<Vec<u8>>)]) -> Vec<u8> {
        let mut file = [self.head(6), self.headers(), self.u32(0), self.systems()].concat();
        file.extend(self.u32(0));
        file.extend(self.u32(0));
        file.extend(self.comms());
        let cpus = buffers[0].1.len();
        file.extend(self.u32(cpus as u64));
        file.extend(b"options  \0");
        for (id, data) in options {
            file.extend([self.u16(*id), self.u32(data.len() as u64), data.clone()].concat());
        }
        // The offsets of instances are known once their data is.
        let mut places = Vec::new();
        for (name, _) in &buffers[1..] {
            file.extend([self.u16(3), self.u32(9 + name.len() as u64)].concat());
            places.push(file.len());
            file.extend([self.u64(0), name.as_bytes().to_vec(), vec![0]].concat());
        }
        file.extend(self.u16(0));
        for (number, (_, cpus)) in buffers.iter().enumerate() {
            if number > 0 {
                let here = self.u64(file.len() as u64);
                file[places[number - 1]..][..8].copy_from_slice(&here);
            }
            file.extend(b"flyrecord\0");
            let mut offset = (file.len() + 16 * cpus.len()).next_multiple_of(PAGE);
            for data in cpus {
                file.extend([self.u64(offset as u64), self.u64(data.len() as u64)].concat());
                offset += data.len();
            }
            file.resize(file.len().next_multiple_of(PAGE), 0);
            file.extend(cpus.concat());
        }
        file
    }

    fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self.compression {
            "zlib" => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            "zstd" => zstd::encode_all(bytes, 3).unwrap(),
            _ => bytes.to_vec(),
        }
    }

    fn section(self, id: u64, bytes: &[u8]) -> Vec<u8> {
        if self.compression == "none" || id == 0 {
            let head = [
                self.u16(id),
                self.u16(0),
                self.u32(0),
                self.u64(bytes.len() as u64),
            ];
            return [head.concat(), bytes.to_vec()].concat();
        }
        let packed = self.pack(bytes);
        let size = 8 + packed.len() as u64;
        let head = [self.u16(id), self.u16(1), self.u32(0), self.u64(size)].concat();
        let sizes = [self.u32(packed.len() as u64), self.u32(bytes.len() as u64)].concat();
        [head, sizes, packed].concat()
    }

    /// Returns the same as a file of version 7.
    fn v7(self, options: &[(u64, Vec<u8>)], buffers: &[(&str, Vec<Vec<u8>>)]) -> Vec<u8> {
        let mut file = self.head(7);
        file.extend(self.compression.bytes());
        file.extend(b"\x001.0\0");
        let options_at = file.len();
        file.extend(self.u64(0));
        let mut all = options.to_vec();
        for (id, bytes) in [
            (16, self.headers()),
            (18, self.systems()),
            (21, self.comms()),
        ] {
            all.push((id, self.u64(file.len() as u64)));
            file.extend(self.section(id, &bytes));
        }
        for (name, cpus) in buffers {
            let flags = u64::from(self.compression != "none");
            let section = file.len() as u64;
            file.extend([self.u16(3), self.u16(flags), self.u32(0), self.u64(0)].concat());
            let mut option = [
                self.u64(section),
                name.as_bytes().to_vec(),
                b"\0local\0".to_vec(),
            ]
            .concat();
            option.extend([self.u32(PAGE as u64), self.u32(cpus.len() as u64)].concat());
            for (cpu, data) in cpus.iter().enumerate() {
                file.resize(file.len().next_multiple_of(PAGE), 0);
                let start = file.len();
                if flags == 0 {
                    file.extend(data);
                } else {
                    // Each page is one chunk.
                    file.extend(self.u32((data.len() / PAGE) as u64));
                    for page in data.chunks(PAGE) {
                        let packed = self.pack(page);
                        file.extend(
                            [self.u32(packed.len() as u64), self.u32(PAGE as u64)].concat(),
                        );
                        file.extend(packed);
                    }
                }
                let place = [self.u32(cpu as u64), self.u64(start as u64)].concat();
                option.extend([place, self.u64((file.len() - start) as u64)].concat());
            }
            let size = self.u64(file.len() as u64 - section - 16);
            file[section as usize + 8..][..8].copy_from_slice(&size);
            all.push((3, option));
        }
        let here = self.u64(file.len() as u64);
        file[options_at..][..8].copy_from_slice(&here);
        all.push((0, self.u64(0)));
        let options = all
            .iter()
            .map(|(id, data)| [self.u16(*id), self.u32(data.len() as u64), data.clone()].concat());
        let options = options.collect::<Vec<_>>().concat();
        file.extend(self.section(0, &options));
        file
    }
}

/// Returns the machines: both byte orders and word sizes, every compression.
pub(super) fn machines() -> Vec<Machine> {
    let mut all = Vec::new();
    for big in [false, true] {
        for long in [4, 8] {
            for compression in ["none", "zlib", "zstd"] {
                all.push(Machine {
                    big,
                    long,
                    compression,
                });
            }
        }
    }
    all
}

/// Reads all records, one by one and in runs of at most `most`.
fn in_runs(trace: &Trace, file: &[u8], most: usize) -> Vec<(Place, u64, Vec<u8>)> {
    let mut records = Records::new(trace, file);
    let mut all = Vec::new();
    while let Some((place, step)) = records.next(trace, file) {
        let Step::Record(record) = step else { continue };
        all.push((place, record.ticks, record.data.to_vec()));
        if most > 0 {
            let mut left = most;
            records.run(trace, file, |place, record| {
                all.push((place, record.ticks, record.data.to_vec()));
                left -= 1;
                left > 0
            });
        }
    }
    all
}

pub(super) fn report(file: &[u8]) -> String {
    let trace = Trace::parse(file).unwrap();
    assert_eq!(trace.damage, []);
    for most in [1, 2, usize::MAX] {
        assert_eq!(in_runs(&trace, file, most), in_runs(&trace, file, 0));
    }
    let mut records = Records::new(&trace, file);
    let style = Style {
        nanoseconds: true,
        latency: true,
        ..Style::default()
    };
    let (mut report, mut out) = (Report::new(&trace, style), String::new());
    while let Some((place, step)) = records.next(&trace, file) {
        assert!(!matches!(step, Step::Damage(..)));
        report.push(place, &step, &mut out);
    }
    report.finish(&mut out);
    out
}

#[test]
fn every_machine_and_compression_is_read_alike() {
    for machine in machines() {
        let second = [
            machine.note(3, 6, u64::MAX, "second"),
            // A time stamp with all of its bits, and a time extension.
            [machine.word(31, 5), machine.u32(40)].concat(),
            [machine.word(30, 1), machine.u32(1)].concat(),
            machine.note(0, 5, 10, "late"),
        ];
        let buffers = [
            (
                "",
                vec![
                    [
                        machine.page(1000, &[machine.note(5, 5, 1, "one")], None),
                        machine.page(2000, &second, Some(9)),
                    ]
                    .concat(),
                    machine.page(1002, &[machine.note(1, 0, 2, "idle")], None),
                ],
            ),
            (
                "inside",
                vec![
                    machine.page(1004, &[machine.note(0, 5, 3, "instance")], None),
                    Vec::new(),
                ],
            ),
        ];
        let late = (41u64 << 27) + 6;
        let expected = format!(
            "                  <idle>-0     [001] dNh12     0.000001003: note:                 2 idle\n\
             inside:             five-5     [000] dNh12     0.000001004: note:                 3 instance\n\
             \x20                   five-5     [000] dNh12     0.000001005: note:                 1 one\n\
             \x20       CPU:0 [9 EVENTS DROPPED]\n\
             \x20                  <...>-6     [000] dNh12     0.000002003: note:                 -1 second many\n\
             \x20                   five-5     [000] dNh12 {:5}.{:09}: note:                 10 late many\n",
            late / 1_000_000_000,
            late % 1_000_000_000,
        );
        for file in [machine.v6(&[], &buffers), machine.v7(&[], &buffers)] {
            let found = report(&file);
            assert_eq!(found, expected, "{machine:?}");
        }
    }
}

#[test]
fn guests_counters_and_offsets_become_nanoseconds() {
    let machine = Machine {
        big: false,
        long: 8,
        compression: "none",
    };
    let page = machine.page(
        1000,
        &[machine.note(0, 5, 1, "x"), machine.note(1000, 5, 1, "y")],
        None,
    );
    let buffers = [("", vec![page])];
    let times = |options: &[(u64, Vec<u8>)]| {
        let mut all = Vec::new();
        for file in [machine.v6(options, &buffers), machine.v7(options, &buffers)] {
            let trace = Trace::parse(&file).unwrap();
            let mut records = Records::new(&trace, &file);
            let mut times = Vec::new();
            while let Some((place, _)) = records.next(&trace, &file) {
                times.push(place.time);
            }
            all.push(times);
        }
        assert_eq!(all[0], all[1]);
        all.swap_remove(0)
    };
    assert_eq!(times(&[]), [1000, 2000]);
    assert_eq!(times(&[(7, b"-100\0".to_vec())]), [900, 1900]);
    assert_eq!(times(&[(1, b"0x10\0".to_vec())]), [17_000, 18_000]);
    let tsc = [machine.u32(3), machine.u32(1), machine.u64(0)].concat();
    assert_eq!(times(&[(14, tsc)]), [1500, 3000]);
    // The host's clock is ahead by 50 at the guest's 1000, and by 250 at its 3000.
    let column = |a: u64, b: u64| [machine.u64(a), machine.u64(b)].concat();
    let shift = |flags: u64| {
        let head = [
            machine.u64(99),
            machine.u32(flags),
            machine.u32(1),
            machine.u32(2),
        ]
        .concat();
        [
            head,
            column(1000, 3000),
            column(50, 250),
            column(1, 1),
            column(0, 0),
        ]
        .concat()
    };
    assert_eq!(times(&[(12, shift(0))]), [1050, 2050]);
    assert_eq!(times(&[(12, shift(1))]), [1050, 2150]);
    let guest = [
        b"vm\0".to_vec(),
        machine.u64(99),
        machine.u32(1),
        machine.u32(0),
        machine.u32(77),
    ]
    .concat();
    let file = machine.v7(&[(13, guest)], &buffers);
    let trace = Trace::parse(&file).unwrap();
    assert_eq!(trace.options.guests[0].name, "vm");
    assert_eq!(trace.options.guests[0].cpus, [(0, 77)]);
    assert_eq!(trace.order, Order::Little);
    // An option DATE makes the times dates; OFFSET does not.
    for (id, dated) in [(1, true), (7, false)] {
        let file = machine.v7(&[(id, b"100\0".to_vec())], &buffers);
        let trace = Trace::parse(&file).unwrap();
        assert_eq!(
            (trace.options.dated, trace.options.offset_ns > 0),
            (dated, true)
        );
    }
}

#[test]
fn times_of_clocks_that_count_something_else_are_shown_as_they_are() {
    let machine = machines()[0];
    let page = machine.page(200_516_962_814, &[machine.note(0, 5, 1, "x")], None);
    let buffers = [("", vec![page])];
    for (clocks, has_nanoseconds) in [
        ("local global [x86-tsc]\0", false),
        ("[counter] local\0", false),
        ("[mono] x86-tsc\0", true),
    ] {
        let file = machine.v6(&[(4, clocks.into())], &buffers);
        let trace = Trace::parse(&file).unwrap();
        assert_eq!(trace.has_nanoseconds(), has_nanoseconds, "{clocks}");
        let time = match has_nanoseconds {
            true => "   200.516962814: note:",
            false => "200516962814: note:",
        };
        assert!(report(&file).contains(time), "{}", report(&file));
    }
}

#[test]
fn a_file_whose_options_are_missing_has_its_records_all_the_same() {
    for machine in machines() {
        let page = |time: u64| machine.page(time, &[machine.note(0, 5, 1, "one")], None);
        let cpu = |from: u64| [page(from), page(from + 500)].concat();
        let buffers = [("", vec![cpu(1000), cpu(900), cpu(1200)])];
        let file = machine.v7(&[], &buffers);
        let whole = Trace::parse(&file).unwrap();
        let end = whole.buffers[0].cpus.last().map(|it| it.offset + it.size);
        let cut = &file[..end.unwrap() as usize];
        let trace = Trace::parse(cut).unwrap();
        let found = &trace.buffers[0];
        let expected = whole.buffers[0].cpus.iter();
        let place = |it: &kymo_ftrace::CpuData| (it.cpu, it.offset);
        assert_eq!(
            found.cpus.iter().map(place).collect::<Vec<_>>(),
            expected.map(place).collect::<Vec<_>>()
        );
        assert!(!trace.damage.is_empty());
        let read = in_runs(&trace, cut, 0);
        assert_eq!(read, in_runs(&whole, &file, 0));
        assert_eq!(read.len(), 6);
    }
}

#[test]
fn a_page_of_a_wrong_time_is_put_behind_the_page_before_it() {
    for machine in machines() {
        let compressed = machine.compression != "none";
        let page = |time: u64| machine.page(time, &[machine.note(7, 5, 1, "one")], None);
        for wrong in [5, 50_000_000_000] {
            let pages = [
                page(10_001_000),
                page(wrong),
                page(10_002_000),
                page(10_002_500),
            ];
            let pages = pages.concat();
            let buffers = [("", vec![pages])];
            for file in [machine.v6(&[], &buffers), machine.v7(&[], &buffers)] {
                let trace = Trace::parse(&file).unwrap();
                let (mut records, mut damage) = (Records::new(&trace, &file), Vec::new());
                let mut times = Vec::new();
                while let Some((_, step)) = records.next(&trace, &file) {
                    match step {
                        Step::Record(record) => times.push(record.ticks),
                        Step::Damage(error, bytes) => damage.push((error.found.clone(), bytes)),
                        Step::Lost(_) => {}
                    }
                }
                // Each chunk of a compressed file has one page here, so it does not show the time of the next page.
                if trace.version == 7 && compressed {
                    assert_eq!((times[1], damage.len()), (wrong + 7, 0));
                    continue;
                }
                assert_eq!(times, [10_001_007, 10_001_014, 10_002_007, 10_002_507]);
                assert_eq!(damage, [(wrong.to_string(), 0)]);
            }
        }
    }
}

#[test]
fn what_is_cut_or_damaged_is_told_and_the_rest_is_read() {
    let machine = Machine {
        big: false,
        long: 8,
        compression: "zlib",
    };
    let page = |text: &str| machine.page(1000, &[machine.note(0, 5, 1, text)], None);
    let file = machine.v7(
        &[],
        &[("", vec![[page("one"), page("two"), page("three")].concat()])],
    );
    let whole = Trace::parse(&file).unwrap();
    // Bytes of the second chunk.
    let data = whole.buffers[0].cpus[0];
    let first = u32::from_le_bytes(file[data.offset as usize + 4..][..4].try_into().unwrap());
    let mut damaged = file.clone();
    damaged[data.offset as usize + 4 + 8 + first as usize + 8 + 4] ^= 0xff;
    let trace = Trace::parse(&damaged).unwrap();
    let mut records = Records::new(&trace, &damaged);
    let (mut read, mut damage) = (0, 0);
    while let Some((_, step)) = records.next(&trace, &damaged) {
        match step {
            Step::Record(_) => read += 1,
            Step::Damage(error, _) => {
                assert!(error.offset > data.offset, "{error}");
                damage += 1;
            }
            Step::Lost(Lost::Nothing) | Step::Lost(_) => {}
        }
    }
    assert_eq!((read, damage), (2, 1));
    // Every truncation yields a result.
    for end in 0..file.len() {
        let cut = &file[..end];
        if let Ok(trace) = Trace::parse(cut) {
            let mut records = Records::new(&trace, cut);
            while records.next(&trace, cut).is_some() {}
        }
        kymo_ftrace::fuzz(cut);
    }
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 0x81;
        kymo_ftrace::fuzz(&changed);
    }
}
