//! Files that [`DatFile`] writes, read back by this crate and by trace-cmd.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;
use kymo_ftrace::{DatFile, Order, PageLayout, Records, Report, Step, Style, Trace};

use super::made::{self, NOTE, PAGE};

/// Writes a file with these pages for each CPU.
fn write(file: &DatFile, pages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let copy = |out: &mut Vec<u8>, place: usize| out.write_all(&pages[place]);
    file.write(&mut out, copy).unwrap();
    out
}

#[test]
fn what_is_written_is_read_on_every_machine() {
    for machine in made::machines() {
        let file = DatFile {
            order: if machine.big {
                Order::Big
            } else {
                Order::Little
            },
            long_size: machine.long as u8,
            page_size: PAGE as u32,
            header_page: machine.header_page().into_bytes(),
            systems: vec![
                ("made".to_owned(), vec![NOTE.as_bytes().to_vec()]),
                ("ftrace".to_owned(), Vec::new()),
            ],
            kallsyms: b"0000000000001000 T start\n".to_vec(),
            printk_formats: b"0x10 : \"text\"\n".to_vec(),
            comms: b"5 five\n".to_vec(),
            clocks: "local [mono] boot".to_owned(),
            uname: "Linux made 6.1 none".to_owned(),
            version: "kymo".to_owned(),
            cpus: 4,
            stats: vec![(3, "entries: 2\noverrun: 9\n".to_owned())],
            pages: vec![(1, PAGE as u64), (3, 2 * PAGE as u64), (2, 0)],
            ..DatFile::default()
        };
        let pages = [
            machine.page(1000, &[machine.note(5, 5, 1, "one")], None),
            [
                machine.page(1002, &[machine.note(0, 5, 10, "two")], None),
                machine.page(2000, &[machine.note(0, 5, 3, "three")], Some(9)),
            ]
            .concat(),
            Vec::new(),
        ];
        let bytes = write(&file, &pages);
        assert_eq!(
            made::report(&bytes),
            "            five-5     [003] dNh12     0.000001002: note:                 10 two many\n\
             \x20           five-5     [001] dNh12     0.000001005: note:                 1 one\n\
             CPU:3 [9 EVENTS DROPPED]\n\
             \x20           five-5     [003] dNh12     0.000002000: note:                 3 three\n",
            "{machine:?}"
        );
        let trace = Trace::parse(&bytes).unwrap();
        assert_eq!(trace.symbols.find(0x1000).unwrap().name, "start");
        assert_eq!(trace.options.clock(), Some("mono"));
        assert_eq!(trace.options.uname, file.uname);
        assert_eq!(trace.options.cpus, Some(4));
        assert_eq!(
            trace.options.cpu_stats,
            ["CPU: 3\nentries: 2\noverrun: 9\n"]
        );
        let [buffer] = &trace.buffers[..] else {
            panic!("{:?}", trace.buffers)
        };
        assert_eq!((&*buffer.name, &*buffer.clock), ("", "mono"));
        let cpus = buffer.cpus.iter().map(|cpu| (cpu.cpu, cpu.size));
        assert_eq!(cpus.collect::<Vec<_>>(), file.pages);
        for cpu in &buffer.cpus {
            assert_eq!(cpu.offset % PAGE as u64, 0, "readers map pages");
        }
    }
}

/// Returns the format files below a directory.
fn formats(system: &Path) -> Vec<Vec<u8>> {
    let events = fs::read_dir(system).unwrap();
    let mut paths: Vec<_> = events.map(|event| event.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| match path.is_dir() {
        true => fs::read(path.join("format")),
        false => fs::read(path),
    };
    paths.iter().map(|path| read(path).unwrap()).collect()
}

#[test]
fn trace_cmd_reads_what_is_written() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let raw = folder.join("amd64/raw");
    let unpacked = |name: &str| captures::unpacked(&raw.join(name));
    let pages = [unpacked("cpu0.raw"), unpacked("cpu1.raw")];
    let [Some(first), Some(second)] = pages else {
        return;
    };
    let header_page = unpacked("header_page").unwrap();
    let text = String::from_utf8_lossy(&header_page).into_owned();
    let page_size = PageLayout::page_size(&text).unwrap() as u32;
    let system = |name: &str| (name.to_owned(), formats(&raw.join("events").join(name)));
    let stats = |cpu: u32| {
        let text = unpacked(&format!("cpu{cpu}.stats")).unwrap();
        (cpu, String::from_utf8(text).unwrap())
    };
    let file = DatFile {
        long_size: 8,
        page_size,
        header_page,
        header_event: unpacked("header_event").unwrap(),
        systems: vec![system("ftrace"), system("sched")],
        kallsyms: unpacked("kallsyms").unwrap(),
        printk_formats: unpacked("printk_formats").unwrap(),
        comms: unpacked("saved_cmdlines").unwrap(),
        clocks: "[local] global".to_owned(),
        uname: "Linux".to_owned(),
        version: "kymo".to_owned(),
        cpus: 2,
        stats: vec![stats(0), stats(1)],
        pages: vec![(0, first.len() as u64), (1, second.len() as u64)],
        ..DatFile::default()
    };
    let bytes = write(&file, &[first, second]);
    let trace = Trace::parse(&bytes).unwrap();
    assert_eq!(trace.damage, []);
    let style = Style {
        nanoseconds: true,
        leaves_over_losses: true,
        ..Style::default()
    };
    let mut records = Records::new(&trace, &bytes);
    let (mut report, mut ours) = (Report::new(&trace, style), "cpus=2\n".to_owned());
    let mut count = 0;
    while let Some((place, step)) = records.next(&trace, &bytes) {
        report.push(place, &step, &mut ours);
        count += usize::from(matches!(step, Step::Record(_)));
    }
    report.finish(&mut ours);
    // Counts of the kernel for these buffers: see the README next to them.
    assert_eq!(count, 15_398 + 15_345);

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written.dat");
    fs::write(&path, &bytes).unwrap();
    let theirs = Command::new("trace-cmd")
        .args(["report", "-t"])
        .arg(&path)
        .output();
    let Ok(theirs) = theirs else {
        return captures::missing("no trace-cmd");
    };
    assert!(theirs.status.success(), "{theirs:?}");
    let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
    let theirs = theirs.as_str();
    let ours = super::golden::older_states(&ours);
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}
