//! Recordings of SystemView: live ones from a target, and tables of threads and interrupts.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use kymo_systemview::{Form, Ids, Length, Packet, SYNC, Text, encode};

/// Creates a recording with ticks of 1 us. Thread `main` gets the processor at 40, is interrupted from 50 to 60, and
/// runs to 80; `other` is ready at 70 and runs from 90 to 100.
fn recording() -> Vec<u8> {
    let packets = [
        Packet::TraceStart,
        Packet::Init {
            frequency: 1_000_000,
            cpu_frequency: 64_000_000,
            ids: Ids {
                base: 0x2000_0000,
                shift: 2,
            },
        },
        Packet::TaskInfo {
            task: 0x40,
            priority: 7,
            name: Text(b"main"),
        },
        Packet::TaskStartExec { task: 0x40 },
        Packet::IsrEnter { irq: 15 },
        Packet::IsrExit,
        Packet::TaskStartReady { task: 0x80 },
        Packet::Idle,
        Packet::TaskStartExec { task: 0x80 },
        Packet::Idle,
    ];
    let mut bytes = SYNC.to_vec();
    let mut scratch = [0; 100];
    for packet in &packets {
        let size = encode(packet, 10, Form::default(), &mut scratch).unwrap();
        bytes.extend(&scratch[..size]);
    }
    bytes
}

fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Starts a server that sends the recording after the command to start; returns its address.
fn server() -> String {
    server_of(recording())
}

fn server_of(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut byte = [0];
        while byte != [1] {
            client.read_exact(&mut byte).unwrap();
        }
        // The client may have exited with an error.
        let _ = client.write_all(&bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    });
    format!("systemview:127.0.0.1:{port}")
}

fn lines(output: &str) -> Vec<serde_json::Value> {
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_target_is_recorded_into_a_file_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.SVDat");
    let name = file.to_str().unwrap();
    text(&kymo(&["record", &server(), "-o", name]));
    let info = lines(&text(&kymo(&["info", "--format", "json", name])));
    assert_eq!(
        (&info[0]["format"], &info[0]["events"]),
        (&"systemview".into(), &10.into())
    );
    assert!(std::fs::read(&file).unwrap().ends_with(&recording()));
}

/// A limit on the size of files simulates a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_what_came_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.SVDat");
    let mut scratch = [0; 100];
    let mut long = recording();
    for _ in 0..3000 {
        for packet in [Packet::IsrEnter { irq: 15 }, Packet::IsrExit] {
            let size = encode(&packet, 10, Form::default(), &mut scratch).unwrap();
            long.extend(&scratch[..size]);
        }
    }
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_kymo"))
        .args(["record", &server_of(long.clone()), "-o"])
        .arg(&file)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let kept = std::fs::read(&file).unwrap();
    let header = kept.windows(SYNC.len()).position(|bytes| bytes == SYNC);
    let header = header.unwrap();
    let arrived = kept.len() - header;
    assert!(
        arrived > 3000 && long.starts_with(&kept[header..]),
        "{arrived}"
    );
    for part in [
        "File too large",
        &format!(
            "what arrived until then is in {} ({arrived} bytes)",
            file.display()
        ),
        "lost are ",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let info = kymo(&["info", "--format", "json", file.to_str().unwrap()]);
    let info = lines(&text(&info));
    assert_eq!(info[0]["errors"], serde_json::json!([]), "{}", info[0]);
    assert!(info[0]["events"].as_u64() > Some(1000), "{}", info[0]);
}

#[test]
fn a_target_is_shown_as_it_comes() {
    let shown = text(&kymo(&["show", "--events", "--follow", &server()]));
    assert!(shown.contains("isr_enter: irq = 15"), "{shown}");
    // A heading and one line for each packet.
    assert_eq!(shown.lines().count(), 11, "{shown}");
}

fn saved(folder: &Path) -> String {
    let file = folder.join("it.SVDat");
    std::fs::write(&file, recording()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Targets with `SEGGER_SYSVIEW_SUPPORT_LONG_DATA` write the id instead of a length.
#[test]
fn texts_of_modules_are_read_where_payloads_have_no_length() {
    let form = Form {
        length: Length::Id,
        ..Form::default()
    };
    let ids = Ids { base: 0, shift: 0 };
    let mut packets = vec![
        Packet::TraceStart,
        Packet::Init {
            frequency: 1_000_000,
            cpu_frequency: 1_000_000,
            ids,
        },
        Packet::ModuleDescription {
            module: 0,
            offset: 512,
            text: Text(b"M=Mod, 0 ev_a x=%u, 1 ev_b s=%s, 2 ev_c n=%u s=%s m=%u"),
        },
    ];
    for _ in 0..3 {
        for (id, payload) in [
            (512, &b"\x07"[..]),
            (513, b"\x05hello"),
            (514, b"\x80\x01\x02hi\x09"),
        ] {
            packets.push(Packet::Event { id, payload });
            packets.push(Packet::Idle);
        }
    }
    let mut bytes = SYNC.to_vec();
    let mut scratch = [0; 100];
    for packet in &packets {
        let size = encode(packet, 10, form, &mut scratch).unwrap();
        bytes.extend(&scratch[..size]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.SVDat");
    std::fs::write(&file, bytes).unwrap();
    let shown = ["show", "--events", "--format", "json"].map(str::to_owned);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let shown = lines(&text(&command.args(shown).arg(file).output().unwrap()));
    assert_eq!(shown.len(), packets.len());
    for (place, event) in shown.iter().enumerate() {
        assert_eq!(event["time_ns"], 10_000 * (place + 1), "{event}");
    }
    for round in 0..3 {
        let fields = |place: usize| &shown[3 + 6 * round + 2 * place]["fields"];
        assert_eq!(fields(0), &serde_json::json!({"x": 7}));
        assert_eq!(fields(1), &serde_json::json!({"s": "hello"}));
        let expected = serde_json::json!({"n": 128, "s": "hi", "m": 9});
        assert_eq!(fields(2), &expected);
    }
}

#[test]
fn threads_and_interrupts_have_tables() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(folder.path());
    let threads = lines(&text(&kymo(&[
        "report", "--by", "thread", "--format", "json", &file,
    ])));
    let of = |line: &serde_json::Value, member: &str| line[member].as_i64().unwrap();
    assert_eq!(threads.len(), 3);
    assert_eq!(
        (&threads[0]["thread"], of(&threads[0], "run_ns")),
        (&"main".into(), 30_000)
    );
    // In the table of threads, the handlers of both cores have one common row.
    assert_eq!(
        (&threads[1]["thread"], of(&threads[1], "run_ns")),
        (&"(interrupts)".into(), 10_000)
    );
    assert_eq!(
        (of(&threads[0], "priority"), of(&threads[0], "run_max_ns")),
        (7, 30_000)
    );
    assert_eq!(
        (of(&threads[2], "run_ns"), of(&threads[2], "ready_max_ns")),
        (10_000, 20_000)
    );
    let interrupts = lines(&text(&kymo(&[
        "report", "--by", "irq", "--format", "json", &file,
    ])));
    assert_eq!(
        (&interrupts[0]["irq"], of(&interrupts[0], "run_ns")),
        (&"irq 15".into(), 10_000)
    );
    let cpus = lines(&text(&kymo(&[
        "report", "--by", "cpu", "--format", "json", &file,
    ])));
    assert_eq!(
        (of(&cpus[0], "cpu"), of(&cpus[0], "run_ns")),
        (0, 30_000 + 10_000 + 10_000)
    );
    let table = text(&kymo(&["report", "--by", "thread", &file]));
    assert!(
        table.contains("READY MAX") && table.contains("idle "),
        "{table}"
    );
    let chosen = text(&kymo(&[
        "report", "--by", "thread", "--thread", "main", &file,
    ]));
    let rows: Vec<_> = chosen.lines().take_while(|line| !line.is_empty()).collect();
    assert!(rows.len() == 2 && rows[1].ends_with("main"), "{chosen}");
}

#[test]
fn columns_of_threads_go_with_tables_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(folder.path());
    for (options, printed) in [
        (
            &["--columns", "name,run"][..],
            "the column run is of threads",
        ),
        (
            &["--by", "thread", "--columns", "run,name", "--event", "isr*"],
            "the column run is of threads",
        ),
        (
            &["--by", "thread", "--fdd"],
            "--fdd has a row for each function",
        ),
        (&["--by", "thread,thread"], "--by has thread twice"),
        (
            &["--by", "cpu", "--compensate"],
            "--compensate takes the cost off functions",
        ),
    ] {
        let output = kymo(&[&["report"], options, &[&file]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(printed),
            "{options:?}: {error}"
        );
    }
}

/// A core from standard input is combined with another one (`--with`) like a core from a file.
#[test]
fn a_core_from_standard_input_goes_with_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (pro, app) = (
        folder.path().join("pro.svdat"),
        folder.path().join("app.svdat"),
    );
    std::fs::write(&pro, recording()).unwrap();
    std::fs::write(&app, recording()).unwrap();
    let events = |input: &str, other: &str, piped: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(["show", "--format", "json", input, "--with", other]);
        if let Some(file) = piped {
            command.stdin(std::fs::File::open(file).unwrap());
        }
        command.output().unwrap()
    };
    let [pro_name, app_name] = [&pro, &app].map(|path| path.to_str().unwrap());
    let whole = text(&events(app_name, pro_name, None));
    assert!(whole.contains("\"cpu\":1"), "{whole}");
    assert_eq!(text(&events("-", pro_name, Some(&app))), whole);
    let missing = events("-", "no/such", Some(&app));
    assert_eq!(missing.status.code(), Some(2));
}

/// A recording of another tracer can be combined with one of SystemView, in either order.
#[test]
fn another_tracers_recording_goes_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let text_of = "# tracer: nop\n a-10 [000] ...1 1.000010: tracing_mark_write: main\n";
    let other = folder.path().join("trace.txt");
    std::fs::write(&other, text_of).unwrap();
    let saved = saved(folder.path());
    let other = other.to_str().unwrap();
    for (input, beside) in [(&*saved, other), (other, &*saved)] {
        let refused = kymo(&["report", input, "--with", beside]);
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2));
        assert!(printed.contains("--align"), "{printed}");
    }
}
