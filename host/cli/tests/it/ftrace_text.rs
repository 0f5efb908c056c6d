//! Text of ftrace as an input of all subcommands.

use std::fs;
use std::process::Command;

/// Calls of a shell and of an idle CPU; the last one of the shell has not ended.
const TEXT: &str = "\
# tracer: function_graph
#
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
  100.000010 |   0)    sh-7      |               |  vfs_read() {
  100.000020 |   0)    sh-7      |   5.000 us    |    leaf();
  100.000040 |   0)    sh-7      | + 30.000 us   |  }
 ------------------------------------------
 0)      sh-7      =>   <idle>-0    
 ------------------------------------------
  100.000050 |   0)   <idle>-0   |   4.000 us    |  tick_irq_exit();
  100.000060 |   0)   <idle>-0   |   3.000 us    |  tick_irq_exit();
 ------------------------------------------
 0)   <idle>-0     =>      sh-7    
 ------------------------------------------
  100.000070 |   0)    sh-7      |               |  vfs_write() {
  100.000080 |   0)    sh-7      |   5.000 us    |    leaf();
";

/// Runs `kymo` on [`TEXT`], and returns stdout and stderr.
fn kymo(arguments: &[&str]) -> (String, String) {
    kymo_of(TEXT, arguments)
}

/// Like [`kymo`], on another text.
fn kymo_of(text: &str, arguments: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let output = command.args(arguments).arg(path).output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{errors}");
    (text, errors)
}

fn rows(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn task_0_is_what_a_cpu_does_without_a_task() {
    for thread in ["0", "<idle>"] {
        let (text, _) = kymo(&["report", "--format", "json", "--thread", thread]);
        let rows = rows(&text);
        assert_eq!(rows.len(), 1, "{text}");
        assert_eq!(rows[0]["function"], "tick_irq_exit");
        assert_eq!(rows[0]["count"], 2);
    }
    let (text, _) = kymo(&["show", "--thread", "0"]);
    assert_eq!(text.matches("tick_irq_exit").count(), 2, "{text}");
    assert!(!text.contains("leaf"), "{text}");
    let (text, _) = kymo(&["show", "--thread", "7"]);
    assert!(
        text.contains("leaf") && !text.contains("tick_irq_exit"),
        "{text}"
    );
}

#[test]
fn times_of_open_calls_are_marked_in_the_tree() {
    let (text, errors) = kymo(&["graph", "--thread", "7"]);
    let line = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap();
    assert_eq!(line(" vfs_write").matches('≥').count(), 2, "{text}");
    assert!(!line(" vfs_read").contains('≥'), "{text}");
    assert!(
        errors.contains("times marked ≥ are at least that"),
        "{errors}"
    );
    let (text, _) = kymo(&["graph", "--format", "json", "--thread", "7"]);
    for row in rows(&text).iter().filter(|row| row["depth"] == 0) {
        assert_eq!(row["at_least"], row["function"] == "vfs_write", "{row}");
    }
    // Without uncertain times there is no column for marks.
    let (text, errors) = kymo(&["graph", "--thread", "0"]);
    assert!(
        !text.contains('≥') && !errors.contains('≥'),
        "{text}{errors}"
    );
    assert!(text.starts_with("     TOTAL"), "{text}");
}

#[test]
fn a_text_is_shown_while_it_comes() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    for arguments in [&["show", "-"][..], &["show", "--events", "-"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let command = command.args(arguments).stderr(Stdio::null());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(TEXT.as_bytes()).unwrap();
        input.flush().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        // The input stays open without further lines, so the events must be shown immediately.
        let wait = std::time::Duration::from_secs(60);
        let mut shown = std::iter::from_fn(|| lines.recv_timeout(wait).ok());
        assert!(shown.any(|line| line.contains("vfs_read")), "{arguments:?}");
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

/// Text that begins within three calls, of which two have exits with durations.
const BEGUN: &str = "\
# tracer: function_graph
#
  100.000010 |   0)    sh-7      |   5.000 us    |    leaf();
  100.000020 |   0)    sh-7      |               |    middle() {
  100.000026 |   0)    sh-7      |   6.000 us    |    }
  100.000040 |   0)    sh-7      | ! 150.000 us  |  } /* inner */
  100.000050 |   0)    sh-7      | ! 400.000 us  |  } /* outer */
  100.000060 |   0)    sh-7      |               |  } /* unknown */
";

#[test]
fn a_call_of_which_only_the_end_is_in_the_text_took_what_its_exit_states() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, BEGUN).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = command.args(arguments).arg(&path).output().unwrap();
        rows(&String::from_utf8(output.stdout).unwrap())
    };
    let json = ["--format", "json"];
    let table = run(&[&["report"], &json[..]].concat());
    let row = |rows: &[serde_json::Value], name: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row["function"] == name).unwrap().clone()
    };
    let inner = row(&table, "inner");
    // The wall time is 150 us; the time on the CPU is at least that of the callees.
    for (member, value) in [
        ("count", 1),
        ("orphans", 0),
        ("total_ns", 11_000),
        ("total_max_ns", 150_000),
        ("self_ns", 0),
        ("self_max_ns", 139_000),
        ("min_ns", 150_000),
        ("max_ns", 150_000),
    ] {
        assert_eq!(inner[member], value, "{member}: {inner}");
    }
    let outer = row(&table, "outer");
    assert_eq!(
        (&outer["total_ns"], &outer["self_max_ns"]),
        (&11_000.into(), &250_000.into())
    );
    assert!(row(&table, "unknown")["total_max_ns"].is_null());
    let wall = run(&[&["report", "--wall"], &json[..]].concat());
    let outer = row(&wall, "outer");
    assert_eq!(
        (&outer["total_ns"], &outer["total_max_ns"]),
        (&400_000.into(), &400_000.into())
    );
    let calls = run(&[&["calls", "--min-duration", "200us"], &json[..]].concat());
    let names: Vec<_> = calls
        .iter()
        .filter_map(|call| call["function"].as_str())
        .collect();
    // The duration of the last one is unknown.
    assert_eq!(names, ["outer", "unknown"], "{calls:?}");
    assert_eq!(calls[0]["begin_ns"], 99_999_650_000_i64);
    assert!(calls[1]["begin_ns"].is_null());
    let same = run(&[&["report", "--min-duration", "200us"], &json[..]].concat());
    assert_eq!(same.len(), 2, "{same:?}");
}

#[test]
fn a_function_that_was_not_called_is_named() {
    let (text, errors) = kymo(&["graph", "--callers-of", "kfree"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(errors.contains("there is no call of kfree"), "{errors}");
}

#[test]
fn what_is_written_as_ftraces_text_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let text = TEXT
        .replace("leaf();", "irq 48();")
        .replace("vfs_read() {", "k_sem_take (no wait)() {");
    std::fs::write(&path, &text).unwrap();
    let run = |arguments: &[&str], path: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = command.args(arguments).arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = run(&["show", "--format", "ftrace"], &path);
    assert!(shown.contains("} /* k_sem_take (no wait) */"), "{shown}");
    // The last call has no end in the trace, so it has none in the output.
    assert!(shown.contains("/* vfs_write(): still open */"), "{shown}");
    assert!(!shown.contains("} /* vfs_write"), "{shown}");
    let again = folder.path().join("again.txt");
    std::fs::write(&again, &shown).unwrap();
    let table = |path| {
        let rows = rows(&run(&["report", "--wall", "--format", "json"], path));
        let row = |row: &serde_json::Value| {
            let member = |name: &str| row[name].to_string();
            ["function", "count", "complete", "open"].map(member)
        };
        let mut rows: Vec<_> = rows.iter().map(row).collect();
        rows.sort();
        rows
    };
    assert_eq!(table(&path), table(&again));
    assert_eq!(table(&path).len(), 4);
}

/// Text of the tracer `function`, which records no exits.
const FUNCTIONS: &str = "\
# tracer: function
#
  ls-175   [001] .....   310.670951: once <-main
  ls-175   [001] .....   310.670952: twice <-main
  ls-175   [001] .....   310.670953: twice <-once
";

#[test]
fn calls_without_ends_have_counts_and_no_times() {
    let cells = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let check = |table: &str| {
        let lines: Vec<_> = table.lines().skip(1).map(cells).collect();
        let dashes = ["-"; 6];
        assert_eq!(lines[0], [&["2"][..], &dashes, &["2", "twice"]].concat());
        assert_eq!(lines[1], [&["1"][..], &dashes, &["1", "once"]].concat());
    };
    let columns = ["report", "--columns", "+callers"];
    check(&kymo_of(FUNCTIONS, &columns).0);
    let (row, _) = kymo_of(FUNCTIONS, &["report", "--format", "json", "-n", "1"]);
    let row = &rows(&row)[0];
    assert_eq!((&row["count"], &row["without_end"]), (&2.into(), &2.into()));
    for member in ["total_max_ns", "self_max_ns", "avg_ns", "max_ns"] {
        assert!(row[member].is_null(), "{member}: {row}");
    }
    // An export has the same calls.
    let folder = tempfile::tempdir().unwrap();
    let (text, ctf) = (
        folder.path().join("functions.txt"),
        folder.path().join("ctf"),
    );
    fs::write(&text, FUNCTIONS).unwrap();
    let [text, ctf] = [&text, &ctf].map(|path| path.to_str().unwrap());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["export", "--to", "ctf", "-o", ctf, text]);
    check(&run(&[&columns[..], &[ctf]].concat()));
}

/// Text of `function_graph` without durations (`nofuncgraph-duration`), without the column of times.
const WITHOUT_DURATIONS: [&str; 6] = [
    "0)     ls-113     |  vfs_read() {",
    "0)     ls-113     |    rw_verify_area() {",
    "0)     ls-113     |      security_file_permission();",
    "0)     ls-113     |    }",
    "0)     ls-113     |    new_sync_read();",
    "0)     ls-113     |  }",
];

#[test]
fn durations_that_a_text_without_times_does_not_state_are_unknown() {
    let text = format!(
        "# tracer: function_graph\n{}\n",
        WITHOUT_DURATIONS.join("\n")
    );
    for arguments in [
        &["report"][..],
        &["report", "--wall"],
        &["report", "--by", "thread"],
        &["graph"],
        &["calls"],
        &["show"],
        &["show", "--format", "ftrace"],
        &["report", "--fdd"],
    ] {
        let (table, _) = kymo_of(&text, arguments);
        assert!(!table.contains(" us"), "{arguments:?}: {table}");
    }
    let (table, errors) = kymo_of(&text, &["report"]);
    let columns: Vec<_> = table.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["1", "-", "-", "-", "-", "-", "-", "vfs_read"]);
    assert!(errors.contains("unknown where it states none"), "{errors}");
    let (calls, _) = kymo_of(&text, &["calls", "--format", "json"]);
    for call in rows(&calls) {
        assert!(call["duration_ns"].is_null(), "{call}");
        assert!(call["self_ns"].is_null(), "{call}");
        assert_eq!(call["ended"], "returned", "{call}");
    }
    let (fdd, _) = kymo_of(&text, &["report", "--fdd"]);
    assert!(!fdd.contains("vfs_read"), "{fdd}");
    let (lines, errors) = kymo_of(&text, &["show", "--format", "ftrace-duration"]);
    assert!(!lines.contains("vfs_read"), "{lines}");
    assert!(errors.contains("4 calls left out"), "{errors}");
    // With times in the text, durations are computed from these.
    let times = [480, 481, 483, 487, 490, 500];
    let lines = times.iter().zip(WITHOUT_DURATIONS);
    let text: String = lines
        .map(|(time, line)| format!("   60.702{time} |   {line}\n"))
        .collect();
    let (table, _) = kymo_of(&text, &["report", "--format", "json"]);
    let of = |name: &str| {
        let rows = rows(&table);
        let row = rows.iter().find(|row| row["function"] == name).unwrap();
        row["total_ns"].as_u64().unwrap()
    };
    assert_eq!([of("vfs_read"), of("rw_verify_area")], [20_000, 6_000]);
    assert_eq!(of("security_file_permission"), 4_000);
}

#[test]
fn switches_to_and_from_the_idle_task_are_shown() {
    let switch = |time: u32, from: &str, to: &str| {
        let of = |task: &str| match task.split_once('-') {
            Some(("<idle>", _)) => ("swapper/0".to_owned(), "0".to_owned()),
            Some((name, pid)) => (name.to_owned(), pid.to_owned()),
            None => panic!("{task}"),
        };
        let ((name, pid), (next, next_pid)) = (of(from), of(to));
        format!(
            "  {from} [000] d..2.   100.0000{time}: sched_switch: prev_comm={name} prev_pid={pid} prev_prio=120 prev_state=S \
             ==> next_comm={next} next_pid={next_pid} next_prio=120\n"
        )
    };
    let text = [
        switch(10, "sh-7", "<idle>-0"),
        switch(20, "<idle>-0", "sh-7"),
        switch(30, "sh-7", "cat-8"),
        switch(40, "cat-8", "<idle>-0"),
        switch(50, "<idle>-0", "sh-7"),
        switch(60, "sh-7", "<idle>-0"),
    ]
    .concat();
    let (shown, _) = kymo_of(&text, &["show"]);
    let found = shown.lines().filter_map(|line| {
        let (_, switch) = line.split_once("------ ")?;
        switch.strip_suffix(" ------")
    });
    let expected = [
        "sh:7 => idle",
        "idle => sh:7",
        "sh:7 => cat:8",
        "cat:8 => idle",
        "idle => sh:7",
        "sh:7 => idle",
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected, "{shown}");
    // With only one thread's switches shown, the next thread is unknown.
    let (shown, _) = kymo_of(&text, &["show", "--thread", "cat"]);
    assert!(!shown.contains("idle"), "{shown}");
    // Without records of switches, the functions of the idle task show them.
    let (shown, _) = kymo(&["show"]);
    let idle = shown.find("sh:7 => idle").unwrap();
    assert!(idle < shown.find("tick_irq_exit").unwrap(), "{shown}");
    assert!(shown.contains("idle => sh:7 (no record of it)"), "{shown}");
}

#[test]
fn there_is_a_column_of_cpus_where_the_text_has_one() {
    let line = |cpu: &str, time: u32| {
        format!("   60.70248{time} |  {cpu}    ls-113     |   1.002 us    |  idle_cpu();\n")
    };
    let (shown, _) = kymo_of(&(line(" 3)", 0) + &line(" 3)", 5)), &["show"]);
    let columns = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<_> = shown.lines().map(columns).collect();
    assert_eq!(
        lines[0],
        ["TIME", "[s]", "DURATION", "CPU", "THREAD", "CALLS"]
    );
    assert_eq!(lines[1][3..5], ["3", "ls:113"], "{shown}");
    let (shown, _) = kymo_of(&(line("", 0) + &line("", 5)), &["show"]);
    let heading = columns(shown.lines().next().unwrap());
    assert_eq!(heading, ["TIME", "[s]", "DURATION", "THREAD", "CALLS"]);
}

/// For functions without names, a note recommends kallsyms, because no ELF file has the kernel's names.
#[test]
fn functions_of_a_kernel_without_symbols_want_kallsyms() {
    let Some(captures) = kymo_fixtures::captures::ftrace() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let raw = captures.join("amd64/raw");
    let mut pending = vec![raw.clone()];
    while let Some(from) = pending.pop() {
        for entry in fs::read_dir(&from).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.strip_prefix(&raw).unwrap().with_extension("");
            let is_packed = path.extension().is_some_and(|it| it == "xz");
            let to = match is_packed {
                true => folder.path().join(name),
                false => folder.path().join(path.strip_prefix(&raw).unwrap()),
            };
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let bytes = kymo_fixtures::captures::unpacked(
                &raw.join(to.strip_prefix(folder.path()).unwrap()),
            );
            fs::write(&to, bytes.unwrap_or_else(|| fs::read(&path).unwrap())).unwrap();
        }
    }
    let note = |folder: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = command.arg("report").arg(folder).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let kallsyms = "they are in /proc/kallsyms of the machine that was traced";
    let with = note(folder.path());
    assert!(!with.contains(kallsyms), "{with}");
    fs::remove_file(folder.path().join("kallsyms")).unwrap();
    let without = note(folder.path());
    assert!(without.contains(kallsyms), "{without}");
}

#[test]
fn thread_groups_are_the_processes_of_threads() {
    let head = "# tracer: function\n#\n#           TASK-PID    TGID     CPU#  |||||  TIMESTAMP  FUNCTION\n";
    let line = |task: &str, group: &str, time: u32, what: &str| {
        format!("  {task}  ({group}) [001] .....   310.67095{time}: {what}\n")
    };
    let text = [
        head,
        // A switch names the thread before the line that has its process.
        &line(
            "<idle>-0",
            "-------",
            0,
            "sched_switch: prev_comm=swapper/1 prev_pid=0 ==> next_comm=work next_pid=171",
        ),
        &line("work-171", "    170", 1, "once <-main"),
        &line("main-170", "    170", 2, "twice <-main"),
        &line("sh-80", "     80", 3, "twice <-main"),
        &line("new-90", "-------", 4, "twice <-main"),
    ]
    .concat();
    for process in ["170", "main"] {
        let arguments = ["report", "--process", process, "--format", "json"];
        let (table, _) = kymo_of(&text, &arguments);
        let rows = rows(&table);
        let names: Vec<_> = rows.iter().map(|row| &row["function"]).collect();
        assert_eq!(names, ["once", "twice"], "{table}");
        assert_eq!(rows[1]["count"], 1, "{table}");
    }
    let (file, _) = kymo_of(&text, &["export", "--to", "trace-event", "-o", "-"]);
    for process in [170, 80] {
        let named = format!("\"pid\":{process},\"name\":\"process_name\"");
        assert!(file.contains(&named), "{file}");
    }
    // A text without the column TGID has no processes.
    let output = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        fs::write(&path, FUNCTIONS).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command
            .args(["report", "--process", "170"])
            .arg(path)
            .output()
            .unwrap()
    };
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn calls_without_ends_are_below_their_callers() {
    let (graph, _) = kymo_of(FUNCTIONS, &["graph"]);
    let lines: Vec<_> = graph
        .lines()
        .skip(1)
        .map(|line| {
            line.split_whitespace()
                .skip(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let expected = ["0 main", "1 +- once", "1 +- twice", "0 once", "1 +- twice"];
    assert_eq!(lines, expected, "{graph}");
    let (tree, _) = kymo_of(FUNCTIONS, &["show"]);
    assert!(tree.contains("| twice();  /* called by once */"), "{tree}");
    assert!(!tree.contains("us"), "{tree}");
    let (calls, _) = kymo_of(FUNCTIONS, &["calls", "--format", "json"]);
    let last = rows(&calls).pop().unwrap();
    assert_eq!(last["caller"], "once", "{last}");
    assert_eq!(last["ended"], "not-recorded", "{last}");
    assert!(last["duration_ns"].is_null(), "{last}");
}

#[test]
fn whole_calls_are_read_back_where_entries_and_exits_are_lost() {
    let text = "\
# tracer: function_graph
#
  100.000010 |   0)    sh-7      |               |  vfs_read() {
  100.000020 |   0)    sh-7      |               |    inner() {
CPU:0 [LOST 3 EVENTS]
  100.000040 |   0)    sh-7      | + 30.000 us   |  } /* vfs_read */
  100.000050 |   0)    sh-7      |   4.000 us    |  irq 48();
  100.000060 |   0)    sh-7      |   3.000 us    |  k_sem_take (no wait)();
  100.000070 |   0)    sh-7      | + 45.000 us   |  } /* before */
  100.000080 |   0)    sh-7      |               |  open_one() {
";
    let (shown, _) = kymo_of(text, &["show", "--format", "ftrace-duration"]);
    let (table, errors) = kymo_of(&shown, &["report", "--wall", "--format", "json"]);
    assert!(!errors.contains("expected a line"), "{shown}{errors}");
    let names: Vec<_> = rows(&table)
        .iter()
        .map(|row| row["function"].to_string())
        .collect();
    for name in ["vfs_read", "irq 48", "k_sem_take (no wait)", "before"] {
        assert!(
            names.contains(&format!("{name:?}")),
            "{name}: {shown}{table}"
        );
    }
}

/// Durations equal those of the text, also without times, and even if the text states longer durations for callees than
/// for their caller.
#[test]
fn durations_are_those_of_the_text_where_callees_took_longer() {
    let text = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n \
                0) + 30.000 us   |      } /* inner */\n \
                0) + 25.000 us   |      } /* other */\n \
                0) + 40.000 us   |    } /* outer */\n \
                0) + 90.000 us   |  } /* most */\n";
    let (output, printed) = kymo_of(text, &["report", "--format", "json"]);
    let mut found: Vec<_> = rows(&output)
        .iter()
        .map(|row| (row["function"].to_string(), row["max_ns"].as_u64().unwrap()))
        .collect();
    found.sort();
    let expected = [
        ("inner", 30_000),
        ("most", 90_000),
        ("other", 25_000),
        ("outer", 40_000),
    ];
    let expected = expected.map(|(name, duration)| (format!("\"{name}\""), duration));
    assert_eq!(found, expected);
    assert!(
        printed.contains("took less than the calls that they made"),
        "{printed}"
    );
}
