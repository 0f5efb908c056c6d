//! Sessions on a directory that looks like tracefs of a kernel without instances.

use std::fs;
use std::path::PathBuf;

use super::*;

const PAGE: usize = 256;

/// A directory with the files of a tracefs, and one for state files.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let header = format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
             \tfield: char data;\toffset:16;\tsize:{};\tsigned:1;\n",
            PAGE - 16
        );
        for (name, text) in [
            ("available_tracers", "function_graph function nop\n"),
            ("current_tracer", "nop\n"),
            ("tracing_on", "1\n"),
            ("tracing_thresh", "0\n"),
            ("trace", "old\n"),
            ("trace_clock", "[local] global mono\n"),
            ("buffer_size_kb", "7 (expanded: 1408)\n"),
            ("saved_cmdlines_size", "128\n"),
            ("saved_cmdlines", "5 five\n"),
            ("set_ftrace_filter", "#### all functions enabled ####\n"),
            ("set_ftrace_pid", "no pid\n"),
            ("set_event_pid", ""),
            ("set_event_notrace_pid", ""),
            ("set_ftrace_notrace_pid", "no pid\n"),
            ("options/function-fork", "0\n"),
            ("options/event-fork", "0\n"),
            ("events/enable", "0\n"),
            ("events/header_page", &header),
            ("events/header_event", "\n"),
            (
                "events/ftrace/function/format",
                "name: function\nID: 1\nformat:\n",
            ),
            ("events/sched/sched_switch/enable", "0\n"),
            (
                "events/sched/sched_switch/format",
                "name: sched_switch\nID: 300\nformat:\n",
            ),
            ("events/sched/sched_waking/enable", "0*\n"),
            ("events/task/task_newtask/enable", "0\n"),
            ("events/task/task_rename/enable", "0\n"),
            (
                "events/task/task_rename/format",
                "name: task_rename\nID: 301\nformat:\n",
            ),
            ("per_cpu/cpu0/stats", "entries: 0\noverrun: 0\n"),
            (
                "per_cpu/cpu3/stats",
                "entries: 4\noverrun: 7\ndropped events: 2\nread events: 5\n",
            ),
        ] {
            fake.put(name, text.as_bytes());
        }
        fake.put("per_cpu/cpu0/trace_pipe_raw", &[1; 3 * PAGE]);
        fake.put("per_cpu/cpu3/trace_pipe_raw", b"");
        fake
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("tracing")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.dat")
    }

    fn pages(&self) -> PathBuf {
        self.folder.path().join("out.dat.pages")
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.root().join(name)).unwrap();
    }

    fn get(&self, name: &str) -> String {
        let text = fs::read_to_string(self.root().join(name)).unwrap();
        text.trim_end().to_owned()
    }

    fn prepare(&self, request: &Request) -> Result<Session> {
        Session::prepare(Tracefs::at(self.root()), request, &self.state())
    }

    /// Fails unless all settings are as they were.
    fn check_restored(&self) {
        for (name, value) in [
            ("current_tracer", "nop"),
            ("tracing_on", "1"),
            ("tracing_thresh", "0"),
            ("trace_clock", "local"),
            ("buffer_size_kb", "7"),
            ("saved_cmdlines_size", "128"),
            ("set_ftrace_pid", ""),
            ("set_event_pid", ""),
            ("set_event_notrace_pid", ""),
            ("set_ftrace_notrace_pid", ""),
            ("options/function-fork", "0"),
            ("options/event-fork", "0"),
            ("events/sched/sched_switch/enable", "0"),
            ("events/task/task_newtask/enable", "0"),
            ("events/task/task_rename/enable", "0"),
        ] {
            // Some tests are about files that are not there.
            if !self.root().join(name).exists() {
                continue;
            }
            let found = self.get(name);
            // What was never changed still has the kernel's own words.
            let untouched = ["[local] global mono", "7 (expanded: 1408)", "no pid"];
            assert!(
                found == value || untouched.contains(&&*found),
                "{name}: {found}"
            );
        }
        let left = fs::read_dir(self.state()).into_iter().flatten();
        assert_eq!(left.count(), 0);
    }
}

fn everything() -> Request {
    Request {
        threshold_us: Some(100),
        stop_at: Some("panic".into()),
        functions: vec!["vfs_*".into(), "do_*".into()],
        events: vec!["sched:*_switch".parse().unwrap()],
        tasks: vec![12, 13],
        buffer_kb: 2048,
        clock: Some("mono".into()),
        ..Request::default()
    }
}

#[test]
fn what_is_asked_for_is_set_and_restored() {
    let fake = Fake::new();
    let mut session = fake.prepare(&everything()).unwrap();
    assert_eq!(session.place(), &Place::Top);
    assert_eq!(session.tracer(), Some("function_graph"));
    assert_eq!(session.cleared, 4);
    for (name, value) in [
        ("current_tracer", "function_graph"),
        ("tracing_on", "0"),
        ("tracing_thresh", "100"),
        ("trace", ""),
        ("trace_clock", "mono"),
        ("buffer_size_kb", "2048"),
        ("saved_cmdlines_size", "16384"),
        ("set_ftrace_filter", "vfs_*\ndo_*\npanic:traceoff"),
        ("set_ftrace_pid", "12 13"),
        ("set_event_pid", "12 13"),
        ("options/function-fork", "1"),
        ("options/event-fork", "1"),
        ("events/sched/sched_switch/enable", "1"),
        ("events/task/task_newtask/enable", "1"),
        ("events/task/task_rename/enable", "1"),
        ("events/sched/sched_waking/enable", "0*"),
    ] {
        assert_eq!(fake.get(name), value, "{name}");
    }
    session.start(&fake.output()).unwrap();
    assert_eq!(fake.get("tracing_on"), "1");
    assert!(!session.figures().has_stopped);
    // The kernel has met the function.
    fake.put("tracing_on", b"0\n");
    let figures = session.figures();
    assert!(figures.has_stopped);
    assert_eq!((figures.events, figures.lost), (9, 9));
    let (recording, failed) = session.finish();
    assert!(failed.is_empty(), "{failed:?}");
    fake.check_restored();
    // The filter is empty again, and the command is taken back.
    assert_eq!(fake.get("set_ftrace_filter"), "");

    let recording = recording.unwrap();
    assert_eq!(recording.bytes(), 3 * PAGE as u64);
    assert_eq!(recording.losses, [crate::Loss { cpu: 3, events: 9 }]);
    let mut file = Vec::new();
    recording.write(&mut file).unwrap();
    let trace = kymo_ftrace::Trace::parse(&file).unwrap();
    assert_eq!(trace.damage, []);
    assert_eq!(trace.formats.get(300).unwrap().name, "sched_switch");
    assert_eq!(trace.formats.get(301).unwrap().name, "task_rename");
    assert_eq!(trace.formats.get(1).unwrap().system, "ftrace");
    assert_eq!(trace.comms.get(5), Some("five"));
    let cpu = trace.buffers[0].cpus[0];
    let pages = &file[cpu.offset as usize..][..cpu.size as usize];
    assert_eq!(pages, [1; 3 * PAGE]);
    assert!(recording.pages().is_dir());
    recording.remove_pages().unwrap();
    assert!(!fake.pages().exists());
}

#[test]
fn a_session_that_is_dropped_restores_all() {
    let fake = Fake::new();
    let mut session = fake.prepare(&everything()).unwrap();
    session.start(&fake.output()).unwrap();
    drop(session);
    fake.check_restored();
    // What it had recorded stays, with what explains it, and the next recording has a directory of its own.
    let pages = fs::read(fake.pages().join("cpu0.raw")).unwrap();
    assert_eq!(pages, [1; 3 * PAGE]);
    let text = |name: &str| fs::read_to_string(fake.pages().join(name)).unwrap();
    assert!(text("header_page").contains("commit"));
    assert_eq!(text("trace_clock").trim(), "mono");
    assert!(text("events/sched/sched_switch/format").contains("ID: 300"));
    assert!(text("saved_cmdlines").contains("5 five"));
    fake.put("per_cpu/cpu0/trace_pipe_raw", b"");
    let mut session = fake.prepare(&everything()).unwrap();
    session.start(&fake.output()).unwrap();
    let second = fake.folder.path().join("out.dat.pages.2");
    assert!(second.is_dir());
    // Nothing came.
    drop(session);
    assert!(!second.exists());
}

#[test]
fn a_signal_restores_from_another_thread() {
    let fake = Fake::new();
    let mut session = fake.prepare(&everything()).unwrap();
    session.start(&fake.output()).unwrap();
    let restorer = session.restorer();
    let done = std::thread::spawn(move || restorer.restore().len());
    assert_eq!(done.join().unwrap(), 0);
    fake.check_restored();
    drop(session);
    fake.check_restored();
}

#[test]
fn events_alone_need_no_tracer_and_no_filter() {
    let fake = Fake::new();
    let request = Request {
        events: vec!["sched".parse().unwrap()],
        buffer_kb: 4096,
        ..Request::default()
    };
    let session = fake.prepare(&request).unwrap();
    assert_eq!(session.tracer(), None);
    assert_eq!(fake.get("current_tracer"), "nop");
    assert_eq!(fake.get("events/sched/sched_waking/enable"), "1");
    // Of the whole system what this process does is left out, with its threads.
    assert_eq!(
        fake.get("set_event_notrace_pid"),
        std::process::id().to_string()
    );
    assert_eq!(fake.get("options/event-fork"), "1");
    assert_eq!(fake.get("set_event_pid"), "");
    drop(session);
    fake.check_restored();
    assert_eq!(fake.get("events/sched/sched_waking/enable"), "0");
}

/// The kernel's list of names lags behind; without a filter of events, those of all tasks would be recorded.
#[test]
fn names_of_tasks_are_recorded_where_the_kernel_can_record_those_of_some() {
    let fake = Fake::new();
    let request = Request {
        tasks: vec![12],
        buffer_kb: 1,
        ..Request::default()
    };
    let session = fake.prepare(&request).unwrap();
    assert_eq!(fake.get("events/task/task_newtask/enable"), "1");
    assert_eq!(fake.get("set_event_pid"), "12");
    drop(session);
    fake.check_restored();

    fake.remove("options/event-fork");
    let session = fake.prepare(&request).unwrap();
    assert_eq!(fake.get("events/task/task_newtask/enable"), "0");
    assert_eq!(fake.get("set_event_pid"), "");
    drop(session);
    fake.check_restored();
}

/// Why a request fails, and the next step. All settings are as before.
fn fails(fake: &Fake, request: &Request) -> (String, String) {
    let error = fake.prepare(request).unwrap_err();
    fake.check_restored();
    (error.to_string(), error.help().unwrap_or_default())
}

#[test]
fn what_the_kernel_lacks_is_told_with_the_next_step() {
    let fake = Fake::new();
    let (error, help) = fails(
        &fake,
        &Request {
            events: vec!["sched:no_such".parse().unwrap()],
            ..everything()
        },
    );
    assert_eq!(error, "this kernel has no event sched:no_such");
    assert!(help.contains("available_events"), "{help}");

    fake.remove("tracing_thresh");
    let (error, help) = fails(&fake, &everything());
    assert!(
        error.starts_with("this kernel cannot leave out short calls"),
        "{error}"
    );
    assert!(help.contains("do without"), "{help}");

    fake.put("tracing_thresh", b"0\n");
    fake.remove("options/event-fork");
    let (error, _) = fails(&fake, &everything());
    assert!(
        error.starts_with("this kernel cannot follow the processes"),
        "{error}"
    );

    fake.put("options/event-fork", b"0\n");
    fake.put("available_tracers", b"function nop\n");
    let (error, help) = fails(&fake, &everything());
    assert_eq!(
        error,
        "this kernel has no tracer function_graph; it has: function nop"
    );
    assert!(help.contains("--tracer function"), "{help}");
    fake.put("available_tracers", b"nop\n");
    let (_, help) = fails(&fake, &everything());
    assert!(help.contains("--event"), "{help}");
}

#[test]
fn functions_that_cannot_be_traced_are_told_from_unknown_ones() {
    let symbols = b"ffffffff81000000 T vfs_read\nffffffff81000010 t notrace_me\t[module]\nffffffff81000020 D jiffies\n";
    let known = |name| plan::has_symbol(symbols, name);
    assert!(known("vfs_read") && known("notrace_me"));
    assert!(!known("jiffies"), "it is no function");
    assert!(!known("vfs_") && !known("vfs_*"));
    let error = TracefsError::NotTraceable {
        name: "notrace_me".to_owned(),
    };
    assert!(error.help().unwrap().contains("notrace"));
}

#[test]
fn what_the_top_buffer_excludes_is_told() {
    let fake = Fake::new();
    fake.put("set_ftrace_notrace", b"schedule\nvfs_write\n");
    fake.put("set_graph_notrace", b"#### no functions disabled ####\n");
    let session = fake.prepare(&everything()).unwrap();
    let expected: &[&str] = match session.place() {
        Place::Top => &["schedule", "vfs_write"],
        Place::Instance(_) => &[],
    };
    assert_eq!(session.excluded, expected);
}

#[test]
fn hidden_functions_are_excluded_besides_others_and_depth_is_limited() {
    let fake = Fake::new();
    fake.put("set_ftrace_notrace", b"schedule\nvfs_write [module]\n");
    fake.put("max_graph_depth", b"0\n");
    let request = Request {
        hidden: vec!["memcpy".into(), "__fdget*".into()],
        depth: Some(8),
        ..Request::default()
    };
    let session = fake.prepare(&request).unwrap();
    let prefix = match session.place() {
        Place::Top => String::new(),
        Place::Instance(name) => format!("instances/{name}/"),
    };
    let found = fake.get(&format!("{prefix}set_ftrace_notrace"));
    match session.place() {
        Place::Top => assert_eq!(
            found.replace('\n', " "),
            "schedule vfs_write memcpy __fdget*"
        ),
        Place::Instance(_) => assert_eq!(found, "memcpy __fdget*"),
    }
    assert_eq!(fake.get("max_graph_depth"), "8");
    assert_eq!(session.tracer(), Some("function_graph"));
    drop(session);
    assert_eq!(fake.get("max_graph_depth"), "0");
    let left = fake.get("set_ftrace_notrace");
    assert_eq!(left, "schedule\nvfs_write");
    fake.check_restored();

    // A kernel without these files.
    for (name, what) in [
        ("set_ftrace_notrace", "leave functions out"),
        ("max_graph_depth", "levels"),
    ] {
        fake.remove(name);
        let error = fake.prepare(&request).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        fake.put(name, b"0\n");
    }
}

#[test]
fn a_full_disk_is_told_as_that() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let error = TracefsError::io("write into", "/data", full);
    assert!(error.help().unwrap().starts_with("the disk is full"));
    let other = io::Error::from(io::ErrorKind::NotFound);
    assert_eq!(TracefsError::io("write into", "/data", other).help(), None);
}

#[test]
fn a_buffer_that_others_use_is_left_alone() {
    let fake = Fake::new();
    fake.put("current_tracer", b"function\n");
    let error = fake.prepare(&everything()).unwrap_err();
    assert!(
        error.to_string().ends_with("is in use: tracer function"),
        "{error}"
    );
    assert!(error.help().unwrap().contains("--boot"));
    assert_eq!(fake.get("current_tracer"), "function");
    fake.put("current_tracer", b"nop\n");
    fake.put("events/enable", b"X\n");
    let error = fake.prepare(&everything()).unwrap_err();
    assert!(error.to_string().ends_with("events are on"), "{error}");
    fake.check_restored();
}

#[test]
fn the_tracer_of_durations_is_used_where_it_is() {
    let fake = Fake::new();
    fake.put(
        "available_tracers",
        b"function_duration function_graph nop\n",
    );
    fake.put("trace_stop_fn", b"\n");
    fake.remove("set_ftrace_filter");
    let request = Request {
        functions: Vec::new(),
        ..everything()
    };
    let session = fake.prepare(&request).unwrap();
    assert_eq!(session.tracer(), Some("function_duration"));
    assert_eq!(fake.get("current_tracer"), "function_duration");
    assert_eq!(fake.get("trace_stop_fn"), "panic");
    drop(session);
    assert_eq!(fake.get("trace_stop_fn"), "");
    fake.check_restored();
}

#[test]
fn the_buffer_of_the_boot_is_saved_once() {
    let fake = Fake::new();
    fake.put("current_tracer", b"function_graph\n");
    let tracefs = Tracefs::at(fake.root());
    let (recording, failed) = crate::boot::save(&tracefs, fake.folder.path(), &fake.state());
    assert!(failed.is_empty());
    let recording = recording.unwrap();
    assert_eq!(recording.bytes(), 3 * PAGE as u64);
    // Five have been read before.
    assert_eq!(recording.events, 4);
    let mut file = Vec::new();
    recording.write(&mut file).unwrap();
    // All formats: nobody knows which events the boot has recorded.
    assert!(
        kymo_ftrace::Trace::parse(&file)
            .unwrap()
            .formats
            .get(300)
            .is_some()
    );
    assert_eq!(fake.get("tracing_on"), "1");
    assert_eq!(fake.get("current_tracer"), "function_graph");
    assert_eq!(
        crate::boot::tracer_left(&tracefs).unwrap().as_deref(),
        Some("function_graph")
    );
    fake.put("per_cpu/cpu3/stats", b"entries: 0\n");
    let (recording, _) = crate::boot::save(&tracefs, fake.folder.path(), &fake.state());
    let error = recording.unwrap_err();
    assert_eq!(error.to_string(), "the kernel's top buffer holds no event");
    assert!(error.help().unwrap().contains("--boot"));
}
