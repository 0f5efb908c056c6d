//! Traces of several processes: names of functions depend on the files that each process has loaded at the time.

use std::path::Path;
use std::process::Command;

/// Runs `kymo` on a trace, and returns stdout and stderr.
fn kymo(arguments: &[&str], trace: &Path) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let output = command.args(arguments).arg(trace).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Builder of a user-space trace like those of LTTng: entries and exits of functions, and the files of processes.
struct Trace {
    stream: Vec<u8>,
    time: u64,
}

impl Trace {
    fn record(&mut self, id: u8, pid: u64, fields: &[u64], rest: &[u8]) {
        self.time += 5;
        self.stream.push(id);
        for number in [&[self.time, pid], fields].concat() {
            self.stream.extend(number.to_le_bytes());
        }
        self.stream.extend(rest);
    }

    /// Adds the record of a file that a process has loaded.
    fn loaded(&mut self, pid: u64, start: u64, path: &Path) {
        let path = format!("{}\0", path.display());
        self.record(0, pid, &[start, 0x100], path.as_bytes());
    }

    /// Adds a call of a function in a process.
    fn call(&mut self, pid: u64, address: u64, call_site: u64) {
        self.record(1, pid, &[address, call_site], b"");
        self.record(2, pid, &[address], b"");
    }

    fn write(self, folder: &Path) {
        let word = "integer { size = 64; align = 8; base = 16; }";
        let metadata = format!(
            "/* CTF 1.8 */
            trace {{ major = 1; minor = 8; byte_order = le; }};
            env {{ tracer_name = \"lttng-ust\"; domain = \"ust\"; }};
            clock {{ name = monotonic; freq = 1000000000; }};
            stream {{ event.header := struct {{ integer {{ size = 8; }} id;
                    integer {{ size = 64; align = 8; map = clock.monotonic.value; }} timestamp; }};
                event.context := struct {{ integer {{ size = 64; align = 8; }} vpid; }}; }};
            event {{ id = 0; name = \"lttng_ust_statedump:bin_info\"; fields := struct {{
                {word} baddr; {word} memsz; string path; }}; }};
            event {{ id = 1; name = \"lttng_ust_cyg_profile:func_entry\";
                fields := struct {{ {word} addr; {word} call_site; }}; }};
            event {{ id = 2; name = \"lttng_ust_cyg_profile:func_exit\";
                fields := struct {{ {word} addr; }}; }};
            event {{ id = 3; name = \"lttng_ust_dl:dlopen\"; fields := struct {{
                {word} baddr; {word} memsz; string path; }}; }};
            event {{ id = 4; name = \"lttng_ust_statedump:build_id\"; fields := struct {{
                {word} baddr; integer {{ size = 8; }} _build_id_length;
                integer {{ size = 8; }} build_id[_build_id_length]; }}; }};"
        );
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("metadata"), metadata).unwrap();
        std::fs::write(folder.join("stream"), self.stream).unwrap();
    }
}

/// Writes a list of symbols for a position-independent program.
fn program(path: &Path, functions: &[(u64, &str)]) {
    let mut list = "0000000000000000 T __executable_start\n".to_owned();
    for (address, name) in functions {
        list += &format!("{address:016x} 0000000000000010 T {name}\n");
    }
    std::fs::write(path, list).unwrap();
}

/// Returns the rows of `kymo report` (file, function, calls) and its stderr.
fn table(arguments: &[&str], trace: &Path) -> (Vec<(String, String, u64)>, String) {
    let columns = [
        "report",
        "--format",
        "csv",
        "--columns",
        "object,name,count",
    ];
    let (report, printed) = kymo(&[&columns[..], arguments].concat(), trace);
    let rows = report.lines().skip(1).map(|line| {
        let cells: Vec<_> = line.split(',').collect();
        (
            cells[0].to_owned(),
            cells[1].to_owned(),
            cells[2].parse().unwrap(),
        )
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    (rows, printed)
}

/// Converts expected rows to the same type.
fn expected(rows: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
    let rows = rows.iter();
    rows.map(|(file, name, count)| ((*file).to_owned(), (*name).to_owned(), *count))
        .collect()
}

#[test]
fn each_process_has_the_names_of_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    program(&path("one.bin"), &[(0x10, "first"), (0x20, "second")]);
    program(&path("two.bin"), &[(0x10, "third"), (0x20, "fourth")]);
    program(&path("late.bin"), &[(0x10, "fifth")]);
    let mut trace = Trace {
        stream: Vec::new(),
        time: 0,
    };
    // Both programs have the same address; a third process has the first one at another address.
    trace.loaded(1, 0x1000, &path("one.bin"));
    trace.loaded(2, 0x1000, &path("two.bin"));
    trace.call(1, 0x1010, 0x1025);
    trace.call(2, 0x1010, 0x1025);
    // More events than the reader examines before it passes on the first one.
    for _ in 0..60_000 {
        trace.call(1, 0x1020, 0x1015);
    }
    trace.call(3, 0x5010, 0x5025);
    trace.loaded(3, 0x5000, &path("one.bin"));
    // Another file replaces a program at the same address, so later calls there are of another function.
    trace.record(
        3,
        2,
        &[0x1000, 0x100],
        format!("{}\0", path("late.bin").display()).as_bytes(),
    );
    trace.call(2, 0x1010, 0x1025);
    trace.write(&path("trace"));

    let (rows, _) = table(&[], &path("trace"));
    let all = [
        ("late.bin", "fifth", 1),
        ("one.bin", "first", 1),
        ("one.bin", "first", 1),
        ("one.bin", "second", 60_000),
        ("two.bin", "third", 1),
    ];
    assert_eq!(rows, expected(&all));
    let (sites, _) = kymo(
        &["report", "--by", "call-site", "--format", "csv"],
        &path("trace"),
    );
    for site in ["second+0x5", "fourth+0x5", "first+0x5"] {
        assert!(sites.contains(site), "{site}: {sites}");
    }
    // A function of a file that is loaded late can be selected by its name.
    let (chosen, _) = table(&["--function", "fifth"], &path("trace"));
    assert_eq!(chosen, expected(&[("late.bin", "fifth", 1)]));
    let (folded, _) = kymo(&["export", "--to", "folded", "-o", "-"], &path("trace"));
    for name in ["first", "second", "third", "fifth"] {
        assert!(folded.contains(name), "{name}: {folded}");
    }
}

#[test]
fn a_file_that_is_named_stands_for_the_one_of_its_name_in_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    program(&path("one.bin"), &[(0x10, "first")]);
    let gone = Path::new("/of/another/machine");
    let mut trace = Trace {
        stream: Vec::new(),
        time: 0,
    };
    trace.loaded(1, 0x1000, &gone.join("one.bin"));
    trace.loaded(2, 0x1000, &gone.join("two.bin"));
    trace.loaded(3, 0x5000, &gone.join("one.bin"));
    for (pid, address) in [(1, 0x1010), (2, 0x1010), (3, 0x5010)] {
        trace.call(pid, address, 0);
    }
    trace.write(&path("trace"));
    let named = path("one.bin").display().to_string();
    let (rows, printed) = table(&["--elf", &named], &path("trace"));
    let all = [
        ("one.bin", "first", 1),
        ("one.bin", "first", 1),
        ("two.bin", "0x1010", 1),
    ];
    assert_eq!(rows, expected(&all));
    assert!(printed.contains("/of/another/machine/two.bin"), "{printed}");
    assert!(
        !printed.contains("/of/another/machine/one.bin"),
        "{printed}"
    );
}

#[test]
fn a_file_of_another_build_names_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    program(&path("one.bin"), &[(0x10, "first")]);
    let mut trace = Trace {
        stream: Vec::new(),
        time: 0,
    };
    trace.loaded(1, 0x1000, &path("one.bin"));
    trace.record(4, 1, &[0x1000], &[3, 0xab, 0xcd, 0xef]);
    trace.call(1, 0x1010, 0);
    trace.write(&path("trace"));
    let (report, printed) = kymo(&["report"], &path("trace"));
    assert!(
        report.contains("0x1010") && !report.contains("first"),
        "{report}"
    );
    assert!(
        printed.contains("another build") && printed.contains("abcdef"),
        "{printed}"
    );
}
