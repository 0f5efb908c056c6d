//! C programs, built with GCC and with Clang, and recorded by the library as users link it.

#[path = "common/programs.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use kymo_device_tests::{Host, Kind, Packet, packets};
use kymo_recorder::config::{Config, Promotion};
use kymo_recorder::duration::{Control, RETAINED_WORDS, Rule};
use kymo_recorder::profile::{Frame, Slot};
use kymo_recorder::retained::WORDS;
use kymo_wire::event::{Layout, METADATA_STREAM, PacketHeader};
use kymo_wire::link::Identity;
use kymo_wire::profile::{Entry, TableHeader};

#[path = "programs/conditions.rs"]
mod conditions;
#[path = "programs/crash.rs"]
mod crash;
#[path = "programs/items.rs"]
mod items;
#[path = "programs/surroundings.rs"]
mod surroundings;

use common::{build, compilers, device, raw_file};

/// Checks every stream's nesting: an exit closes an open call, with a jump over others only where the program jumps.
/// Returns how often each function was entered.
fn walk(packets: &[Packet], jumper: u64) -> BTreeMap<u64, u64> {
    let mut entered = BTreeMap::new();
    let mut stacks: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let mut last: BTreeMap<u16, (u64, u32)> = BTreeMap::new();
    for packet in packets {
        let (time, sequence) = last.entry(packet.cpu).or_insert((0, 0));
        assert_eq!(packet.sequence, *sequence, "no packet is missing");
        *sequence += 1;
        assert_eq!(packet.discarded, 0, "nothing is lost");
        let stack = stacks.entry(packet.cpu).or_default();
        for record in &packet.records {
            assert!(record.time >= *time, "time goes back");
            *time = record.time;
            match record.kind {
                Kind::Enter(function) => {
                    *entered.entry(function).or_default() += 1;
                    stack.push(function);
                }
                Kind::Exit(function) => loop {
                    let open = stack.pop().expect("an exit has an enter");
                    if open == function {
                        break;
                    }
                    assert_eq!(open, jumper, "only a jump leaves calls open");
                },
                // Marks where the interrupt's own calls begin and end.
                Kind::IsrEnter(_) => stack.push(0),
                Kind::IsrExit(_) => assert_eq!(stack.pop(), Some(0)),
                _ => {}
            }
        }
    }
    entered
}

#[test]
fn every_call_of_a_program_is_recorded() {
    for compiler in compilers() {
        let program = build(compiler, "everything", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        let printed: BTreeMap<&str, (&str, u64)> = text
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let count = words[2].parse().expect("a number of calls");
                (words[0], (words[1], count))
            })
            .collect();
        let address = |name: &str| {
            let hex = printed[name].0.trim_start_matches("0x");
            u64::from_str_radix(hex, 16).expect("an address")
        };

        let (identity, packets) = raw_file(&file);
        assert_eq!(identity.layout, Layout::NATIVE);
        assert!(identity.clock_hz >= 1_000_000);
        let jumper = address("jump");
        let entered = walk(&packets, jumper);
        for name in ["leaf", "recurse", "jump", "signalled", "early"] {
            assert_eq!(
                entered.get(&address(name)),
                Some(&printed[name].1),
                "calls of {name}, by {compiler}"
            );
        }
        let kinds = || packets.iter().flat_map(|p| &p.records).map(|r| &r.kind);
        assert!(kinds().any(|kind| *kind == Kind::IsrEnter(14)));
        assert!(kinds().any(|kind| *kind == Kind::Marker(42)));
        assert!(kinds().any(|kind| matches!(kind, Kind::NamedMarker { value: 2, .. })));
        assert!(matches!(kinds().next(), Some(Kind::Metadata { .. })));
        let streams: BTreeMap<u16, u64> = packets.iter().map(|p| (p.cpu, p.thread)).collect();
        assert_eq!(streams.len(), 4, "metadata and three threads");
        for packet in &packets {
            let of_thread = usize::from(packet.cpu != METADATA_STREAM);
            let flags = [PacketHeader::FLAG_FACTS, PacketHeader::FLAG_THREAD][of_thread];
            assert_eq!(packet.flags, flags, "stream {}", packet.cpu);
        }
        assert_eq!(identity.streams, 3);
        let alarm = kinds().any(|kind| {
            matches!(kind, Kind::Metadata { kind: 4, value } if value.starts_with(b"\x0e\0\0\0alarm"))
        });
        assert!(alarm, "the signal has its name");

        // The fork saved beside, not over it; it has its own calls alone.
        let child = printed["child"].0;
        let (_, forked) = raw_file(&PathBuf::from(format!("{}.{child}", file.display())));
        let calls_of = |name| {
            let enter = Kind::Enter(address(name));
            let records = forked.iter().flat_map(|packet| &packet.records);
            records.filter(|record| record.kind == enter).count()
        };
        assert!(calls_of("leaf") > 0);
        assert_eq!(calls_of("recurse"), 0);
    }
}

#[test]
fn a_fork_records_and_saves_whatever_its_parent_was_doing() {
    for compiler in compilers() {
        let program = build(compiler, "forked", &["-finstrument-functions"]);
        let folder = program.with_extension("files");
        std::fs::create_dir_all(&folder).expect("a folder");
        let output = Command::new(&program)
            .current_dir(&folder)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "by {compiler}: {text}");
    }
}

#[test]
fn what_signals_call_while_a_thread_gets_its_memory_is_recorded() {
    for compiler in compilers() {
        let program = build(compiler, "attached", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        assert!(output.status.success(), "by {compiler}: {text}");
        let calls: u64 = text.split(' ').next().unwrap().parse().unwrap();
        let (_, packets) = raw_file(&file);
        let entered = walk(&packets, 0);
        assert_eq!(entered.values().sum::<u64>(), calls, "by {compiler}");
    }
}

#[test]
fn a_program_short_of_memory_keeps_its_errno_and_null_is_no_name() {
    for compiler in compilers() {
        let program = build(compiler, "short", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program).arg(&file).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "by {compiler}: {text}");
        // The thread that had no memory is not there, and took no other's place.
        let (identity, packets) = raw_file(&file);
        assert_eq!(identity.streams, 2, "by {compiler}: {text}");
        let markers: Vec<u32> = packets
            .iter()
            .flat_map(|packet| &packet.records)
            .filter_map(|record| match record.kind {
                Kind::Marker(value) => Some(value),
                _ => None,
            })
            .collect();
        assert_eq!(markers, [1, 3], "by {compiler}");
        let lost: u32 = packets
            .iter()
            .filter(|packet| packet.cpu == METADATA_STREAM)
            .map(|packet| packet.discarded)
            .sum();
        assert!(lost >= 70_000, "by {compiler}: {lost}");
    }
}

#[test]
fn what_is_saved_while_threads_record_is_whole() {
    for compiler in compilers() {
        let program = build(compiler, "saving", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .arg(&file)
            .output()
            .expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let mut signals = 0;
        for i in 0..20 {
            // The decoder asserts that every packet is whole and every record in its time.
            let (_, packets) = raw_file(&PathBuf::from(format!("{}.{i}", file.display())));
            let mut streams: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
            for packet in &packets {
                if let Some((sequence, discarded)) = streams.get(&packet.cpu) {
                    assert_eq!(packet.sequence, sequence + 1, "a hole among the kept");
                    assert!(packet.discarded >= *discarded);
                }
                let now = (packet.sequence, packet.discarded);
                streams.insert(packet.cpu, now);
                signals += packet
                    .records
                    .iter()
                    .filter(|record| record.kind == Kind::IsrEnter(14))
                    .count();
            }
            assert!(streams.len() >= 2, "the metadata and somebody who records");
        }
        assert!(signals > 0, "by {compiler}");
    }
}

/// A running program of `linked.c`.
struct Linked {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    host: Host,
}

impl Linked {
    fn start(compiler: &str) -> Self {
        let program = build(compiler, "linked", &["-finstrument-functions"]);
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        Self {
            input: child.stdin.take().expect("it is piped"),
            output: child.stdout.take().expect("it is piped"),
            child,
            host: Host::default(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).expect("it reads");
    }

    /// Receives the program's output until there is `enough`.
    fn hear(&mut self, enough: impl Fn(&Host) -> bool) {
        let mut buffer = [0; 4096];
        while !enough(&self.host) {
            let count = self.output.read(&mut buffer).expect("it writes");
            assert_ne!(count, 0, "it ended early: {:?}", self.host);
            self.host.hear(&buffer[..count]);
        }
    }

    /// Returns the answer to a command line.
    fn request(&mut self, command: &str) -> String {
        self.host.text.clear();
        self.send(format!("{command}\r").as_bytes());
        self.hear(|host| host.text.ends_with('\n'));
        let answer = std::mem::take(&mut self.host.text);
        assert!(answer.starts_with("kymo "), "{command}: {answer}");
        assert!(!answer.contains("error"), "{command}: {answer}");
        answer
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn a_program_whose_host_is_gone_records_again() {
    let Some(compiler) = compilers().into_iter().next() else {
        return;
    };
    let mut linked = Linked::start(compiler);
    linked.request("dump_trace");
    linked.hear(|host| !host.ends.is_empty());
    // Nobody says `done`, and the program does not poll while it sleeps and works.
    linked.send(b"~\r");
    linked.hear(|host| host.text.ends_with("unknown command\r\n"));
    let status = linked.request("status");
    assert!(status.contains(" discarded=0 "), "{status}");
    linked.host.text.clear();
    linked.send(b"identify\r");
    linked.hear(|host| host.text.ends_with('\n'));
    let identity = Identity::parse(linked.host.text.trim_end()).expect("its name");
    linked.host = Host::default();
    linked.send(&Host::command(4, "dump_trace"));
    linked.hear(|host| !host.ends.is_empty());
    let dump = linked.host.dump();
    // Both marks, and all calls of the first run of the trigger.
    let recorded = packets(&dump, identity.layout, identity.text_base)
        .iter()
        .flat_map(|packet| &packet.records)
        .filter(|record| !matches!(record.kind, Kind::Metadata { .. } | Kind::WallClock { .. }))
        .count();
    assert_eq!(recorded, 204);
    linked.end();
}

#[test]
fn a_clear_leaves_no_losses_behind() {
    for compiler in compilers() {
        let mut linked = Linked::start(compiler);
        linked.request("on");
        linked.send(b"@\r");
        linked.hear(|host| host.text.ends_with('\n'));
        for _ in 0..100 {
            // Long enough for the thread to be at it again when the next one comes.
            std::thread::sleep(Duration::from_millis(3));
            linked.request("clear");
            let status = linked.request("status");
            assert!(status.contains(" discarded=0 "), "{compiler}: {status}");
            assert!(status.contains(" on=1 "), "{compiler}: {status}");
        }
        linked.end();
    }
}

#[test]
fn what_a_stream_cannot_have_is_counted_at_its_end() {
    let Some(compiler) = compilers().into_iter().next() else {
        return;
    };
    let mut linked = Linked::start(compiler);
    linked.request("on");
    for threads in 1..=2 {
        linked.host.pieces.clear();
        linked.request("stream on 0");
        // What a thread that ended was filling comes with the rest.
        linked.send(b"^%\r");
        linked.hear(|host| host.text.ends_with('\n'));
        let end = loop {
            let arrived = (0..).find(|piece| !linked.host.pieces.contains_key(piece));
            linked.send(format!("ack {}\r", arrived.unwrap()).as_bytes());
            let answer = linked.request("stream off");
            if !answer.contains("sending=1 ") {
                break answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let words: Vec<&str> = end.trim().split(' ').collect();
        let reserved = format!("reserved={threads}");
        assert_eq!(words.last(), Some(&reserved.as_str()), "{end}");
        assert!(words.contains(&"sending=0"), "{end}");
    }
    linked.end();
}

#[test]
fn a_program_answers_over_its_link() {
    for compiler in compilers() {
        let mut linked = Linked::start(compiler);
        let commands = [
            // The trigger's run is recorded, and what comes after the stopper is not.
            b"!\r".to_vec(),
            b"identify\r".to_vec(),
            Host::command(1, "status"),
            Host::command(2, "dump_trace"),
            Host::command(3, "done"),
        ]
        .concat();
        linked.send(&commands);
        // The rest when the dump is done: its end is the last that the program sends.
        linked.hear(|host| host.replies.len() >= 3);
        let host = std::mem::take(&mut linked.host);
        // `done` came while pieces were being sent; ask for the whole once more, and the table.
        let [trace, table] = ["dump_trace", "dump_profile"].map(|command| {
            linked.send(&Host::command(4, command));
            linked.hear(|host| !host.ends.is_empty());
            std::mem::take(&mut linked.host)
        });
        linked.end();

        let identity = Identity::parse(host.text.lines().last().unwrap_or("")).expect("its name");
        assert!(identity.capabilities.profile);
        assert!(
            host.replies[0]
                .2
                .starts_with("enabled=1 on=0 mode=overwrite ")
        );
        let packets = packets(&trace.dump(), identity.layout, identity.text_base);
        let kinds: Vec<&Kind> = packets
            .iter()
            .flat_map(|p| &p.records)
            .map(|r| &r.kind)
            .filter(|kind| !matches!(kind, Kind::Metadata { .. } | Kind::WallClock { .. }))
            .collect();
        assert_eq!(kinds.len(), 2 + 2 * 101, "by {compiler}");
        assert!(matches!(kinds[0], Kind::Recording { on: true, cause: 1 }));
        assert!(matches!(
            kinds[kinds.len() - 1],
            Kind::Recording { on: false, .. }
        ));
        let table = table.dump();
        let header = TableHeader::read(&table).expect("a table");
        assert_eq!((header.entries, header.unmatched), (2, 0), "work and leaf");
        assert!(header.recorded > 0);
        // The table and the trace saw the same times.
        let mut from_trace: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        let mut open = Vec::new();
        for record in packets.iter().flat_map(|p| &p.records) {
            match record.kind {
                Kind::Enter(_) => open.push(record.time),
                Kind::Exit(function) => {
                    let entered = open.pop().expect("an exit has an enter");
                    let (count, total) = from_trace.entry(function).or_default();
                    *count += 1;
                    *total += record.time - entered;
                }
                _ => {}
            }
        }
        let layout = identity.layout;
        let from_table: BTreeMap<u64, (u32, u64)> = table[TableHeader::BYTES..]
            .chunks(Entry::bytes(layout.word))
            .filter_map(|bytes| Entry::read(bytes, layout.word, layout.order))
            .map(|entry| (entry.address, (entry.count, entry.total)))
            .collect();
        assert_eq!(from_table, from_trace, "by {compiler}");
    }
}

#[test]
fn jumps_are_marked_and_change_nothing() {
    let wrap = |function| {
        [
            format!("-Wl,--wrap={function}"),
            format!("-Wl,-u,{function}"),
        ]
    };
    let functions = [
        "_setjmp",
        "__sigsetjmp",
        "longjmp",
        "siglongjmp",
        "__longjmp_chk",
    ];
    let wraps = functions.map(wrap).concat();
    for (compiler, more) in compilers().into_iter().flat_map(|compiler| {
        [vec![], vec!["-static"], vec!["-D_FORTIFY_SOURCE=2"]].map(|more| (compiler, more))
    }) {
        let mut flags = vec!["-finstrument-functions"];
        flags.extend(wraps.iter().map(String::as_str));
        flags.extend(&more);
        let program = build(compiler, "jumps", &flags);
        let raw = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_OUTPUT", &raw)
            .output()
            .expect("it runs");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "540\n641\n",
            "by {compiler}, {more:?}"
        );
        let (_, packets) = raw_file(&raw);
        let mut kinds: Vec<&Kind> = packets
            .iter()
            .flat_map(|packet| &packet.records)
            .map(|record| &record.kind)
            .filter(|kind| {
                !matches!(
                    kind,
                    Kind::Metadata { .. } | Kind::Recording { .. } | Kind::WallClock { .. }
                )
            })
            .collect();
        // A static C library's functions are wrapped as well, of which one calls another.
        kinds.dedup_by(|a, b| matches!(a, Kind::Setjmp(_)) && a == b);
        let mut kinds = kinds
            .into_iter()
            // And it calls setjmp before main.
            .skip_while(|kind| matches!(kind, Kind::Setjmp(_)));
        let mut next = || kinds.next().expect("there is more").clone();
        let entered = |kind| match kind {
            Kind::Enter(function) => function,
            other => panic!("{other:?}, by {compiler}, {more:?}"),
        };
        let main = entered(next());
        let mut buffers = Vec::new();
        for _ in 0..2 {
            let catches = entered(next());
            let Kind::Setjmp(buffer) = next() else {
                panic!("no mark of setjmp, by {compiler}, {more:?}");
            };
            let deep = [(); 4].map(|()| entered(next()));
            assert_eq!(deep, [deep[0]; 4]);
            assert_eq!(next(), Kind::Longjmp(buffer));
            buffers.push(buffer);
            // Not one of those that the jump left.
            assert_eq!(next(), Kind::Exit(catches));
            let after = entered(next());
            assert_eq!(next(), Kind::Exit(after));
        }
        assert_eq!(next(), Kind::Exit(main));
        assert_ne!(buffers[0], buffers[1]);
    }
}

#[test]
fn the_header_and_the_library_agree() {
    let mut here: BTreeMap<String, usize> = [
        ("kymo_config_t", size_of::<Config>()),
        ("kymo_slot_t", size_of::<Slot>()),
        ("kymo_frame_t", size_of::<Frame>()),
        ("kymo_promotion_t", size_of::<Promotion>()),
        ("kymo_retained_t", WORDS * 4),
        ("kymo_duration_t", size_of::<Control>()),
        (
            "kymo_duration_retained_t",
            RETAINED_WORDS * size_of::<usize>(),
        ),
        ("kymo_duration_rule_t", size_of::<Rule>()),
    ]
    .map(|(name, size)| (name.to_owned(), size))
    .into();
    macro_rules! fields {
        ($($field:ident)*) => {
            $(here.insert(stringify!($field).to_owned(), offset_of!(Config, $field));)*
        };
    }
    fields!(version flags buffer buffer_size packet_size metadata metadata_size slots slot_count
        frames shadow_stacks shadow_depth promotions promotion_count trigger stopper retained
        text_base function_shift counter clock clock_hz clock_bits tick_hz current_thread send reboot build_id_note
        cpu_count);
    for compiler in compilers() {
        let program = build(compiler, "layout", &[]);
        let output = Command::new(&program).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let there: BTreeMap<String, usize> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, number)| (name.to_owned(), number.parse().expect("a number")))
            .collect();
        assert_eq!(there, here, "by {compiler}");
    }
}

#[test]
fn the_header_says_the_same_on_a_32_bit_machine() {
    let compiler = "arm-none-eabi-gcc";
    let output = Command::new(compiler)
        .args(["-mcpu=cortex-m3", "-mthumb", "-fsyntax-only", "-I"])
        .arg(device().join("c/include"))
        .arg(device().join("tests/programs/layout32.c"))
        .output();
    let Ok(output) = output else {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "{compiler} is needed"
        );
        let _ = writeln!(std::io::stderr(), "SKIPPED: {compiler} is not installed");
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // Several processors would come between each other's records: to ask for them does not compile.
    let output = Command::new(compiler)
        .args(["-mcpu=cortex-m3", "-mthumb", "-fsyntax-only", "-I"])
        .arg(device().join("c/include"))
        .arg(device().join("tests/programs/two_cpus.c"))
        .output()
        .expect("it ran before");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("cpu_count"),
        "{errors}"
    );
    // An operating system on several processors is refused, unless one of them alone is recorded.
    for (options, refused) in [
        (&["-DCONFIG_SMP=1"][..], true),
        (&["-DRTEMS_SMP=1"], true),
        (&["-DconfigNUMBER_OF_CORES=2"], true),
        (&["-DconfigNUMBER_OF_CORES=1"], false),
        (&["-DCONFIG_SMP=1", "-DKYMO_ONE_CPU"], false),
    ] {
        let output = Command::new(compiler)
            .args([
                "-mcpu=cortex-m0plus",
                "-mthumb",
                "-fsyntax-only",
                "-Wall",
                "-Werror",
                "-I",
            ])
            .arg(device().join("c/include"))
            .args(options)
            .arg(device().join("tests/programs/layout32.c"))
            .output()
            .expect("it ran before");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !refused, "{options:?}: {errors}");
        assert_eq!(
            errors.contains("Kymo records one processor here"),
            refused,
            "{errors}"
        );
    }
}
