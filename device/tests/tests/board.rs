//! The library on a bare Cortex-M3 (in QEMU): start-up, SysTick as clock, a reboot; and with newlib: items.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kymo_device_tests::{Board, Host, ItemPacket, Kind, device, equipped};
use kymo_recorder::items::Timed;
use kymo_wire::event::{ByteOrder, Shape, WordSize};
use kymo_wire::items::Name;
use kymo_wire::link::DUMP_TIMEOUT_MS;
use kymo_wire::note::{NOTE_BYTES, NOTE_NAME, Note};
use kymo_wire::profile::TableHeader;

const TARGET: &str = "thumbv7m-none-eabi";

/// What is needed besides Rust's library for the target.
const PROGRAMS: [&str; 2] = ["arm-none-eabi-gcc", "qemu-system-arm"];

/// Builds library and program, with these options.
fn build(name: &str, options: &[&str]) -> PathBuf {
    build_as(name, name, options)
}

/// The same, with another name than its source's.
fn build_as(program: &str, name: &str, options: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("board");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "small", "-p", "kymo-c"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        .current_dir(device())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the library builds");
    let program = target.join(format!("{program}.elf"));
    let programs = device().join("tests/programs");
    let output = Command::new("arm-none-eabi-gcc")
        .args(["-mcpu=cortex-m3", "-mthumb", "-Os", "-g", "-nostartfiles"])
        .args(["-ffunction-sections", "-Wl,--gc-sections", "-I"])
        .arg(device().join("c/include"))
        .arg("-T")
        .arg(programs.join("board.ld"))
        .args(options)
        .arg(programs.join(format!("{name}.c")))
        .arg(target.join(TARGET).join("small/libkymo.a"))
        .arg("-o")
        .arg(&program)
        .current_dir(device())
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// A board that runs the program.
fn start(program: &Path, options: &[&str]) -> Board {
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-machine", "mps2-an385", "-kernel"])
        .arg(program)
        .args(options);
    Board::start(&mut qemu)
}

/// A Cortex-M7 ignores what is written to its cycle counter's registers before they are unlocked. QEMU has neither, but
/// says which registers were accessed.
#[test]
fn the_cycle_counter_is_unlocked_before_it_is_started() {
    const KEY: u32 = 0xC5AC_CE55;
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let plain = ["-nostdlib", "-finstrument-functions"];
    let program = build_as("board_unlocked", "board", &plain);
    let mut list = Command::new("arm-none-eabi-objdump");
    let code = list.arg("-d").arg(&program).output().expect("it runs");
    let code = String::from_utf8_lossy(&code.stdout);
    // The key comes in halves.
    for half in [KEY >> 16, KEY & 0xFFFF] {
        assert!(code.contains(&format!("0x{half:x}")), "{half:#x}");
    }
    let log = program.with_extension("log");
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args([
        "-machine",
        "mps2-an500",
        "-d",
        "guest_errors,unimp",
        "-kernel",
    ])
    .arg(&program)
    .arg("-D")
    .arg(&log);
    let mut board = Board::start(&mut qemu);
    board.identify();
    drop(board);
    let log = std::fs::read_to_string(&log).expect("QEMU writes it");
    let registers = log.lines().filter_map(|line| line.split_once("of PPB: "));
    let registers = registers.map(|(access, offset)| (access.starts_with("Write"), offset));
    let found: Vec<_> = registers.take(4).collect();
    let (lock, control, counter) = ("offset 0x1fb0", "offset 0x1000", "offset 0x1004");
    let expected = [
        (true, lock),
        (false, control),
        (true, control),
        (false, counter),
    ];
    assert_eq!(found, expected);
}

/// A linker may keep unused code: then all symbols that the library refers to must be defined, or weak.
#[test]
fn a_program_without_items_links_with_all_of_the_library() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let whole = ["-Wl,--no-gc-sections", "-lc", "-lgcc"];
    // (Another file than that of the next test, which runs beside this one.)
    build_as(
        "board_whole",
        "board",
        &[&["-nostdlib", "-finstrument-functions"], &whole[..]].concat(),
    );
}

#[test]
fn a_cortex_m3_from_reset_to_reboot() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let program = build("board", &["-nostdlib", "-finstrument-functions"]);
    let elf = std::fs::read(&program).expect("it was built");
    let at = elf
        .windows(NOTE_NAME.len())
        .position(|bytes| bytes == NOTE_NAME)
        .expect("the note stands in the ELF");
    let note = Note::read(&elf[at - 12..][..NOTE_BYTES], ByteOrder::Little).expect("a note");
    assert_eq!((note.buffer_offset, note.packet_size_offset), (8, 16));
    assert_eq!(note.at_offset, 4, "the second word of what hooks need");

    let mut board = start(&program, &[]);
    let identity = board.identify();
    assert_eq!(identity.layout, note.layout);
    assert_eq!(identity.layout.shape, Shape::Compact);
    assert_eq!(identity.layout.word, WordSize::Bits32);
    assert!(identity.capabilities.reboot && identity.capabilities.retained);
    assert!(
        !identity.capabilities.sure_clock,
        "SysTick turns with the tick"
    );
    let status = board.command("status");
    assert!(
        status.starts_with("enabled=1 on=0 mode=overwrite used=0 "),
        "{status}"
    );

    // The trigger and stopper of the build.
    board.talk(b"!ping\r", |host| host.text.ends_with('\n'));
    let trace = board.trace(&identity);
    let (names, calls) = trace.split_first().expect("packets");
    let systick =
        |r: &Kind| matches!(r, Kind::Metadata { kind: 4, value } if value.ends_with(b"SysTick"));
    assert!(names.records.iter().any(|record| systick(&record.kind)));
    let records: Vec<_> = calls.iter().flat_map(|p| &p.records).collect();
    assert!(matches!(
        records[0].kind,
        Kind::Recording { on: true, cause: 1 }
    ));
    let enters = |records: &[&kymo_device_tests::Record]| {
        let enter = |r: &&&kymo_device_tests::Record| matches!(r.kind, Kind::Enter(_));
        records.iter().filter(enter).count()
    };
    let ticks = records
        .iter()
        .filter(|record| record.kind == Kind::IsrEnter(15))
        .count();
    // The handler is a function too, entered before it says that it is an interrupt, and calls one.
    assert_eq!(enters(&records), 101 + 2 * ticks);
    assert!(records.last().expect("records").time > records[0].time);
    let table = TableHeader::read(&board.dump("dump_profile")).expect("a table");
    assert!(table.entries >= 2 && table.recorded > 0);

    // A host that goes away in the middle of a dump: SysTick lets go of the buffers.
    board.talk(&Host::command(5, "dump_trace"), |host| {
        !host.ends.is_empty()
    });
    // It counts its own ticks, which come late where this machine is slow.
    let gone = (7, false, "no dump is going on".to_owned());
    let released = (1..20).any(|times| {
        std::thread::sleep(Duration::from_millis(
            times * u64::from(DUMP_TIMEOUT_MS) + 1000,
        ));
        let late = board.talk(&Host::command(7, "resend 0 0"), |host| {
            !host.replies.is_empty()
        });
        late.replies == [gone.clone()]
    });
    assert!(released, "the dump has ended");

    // Another trigger, and no stopper, over a reboot.
    // Whatever cut in: no function was entered more often than `leaf`.
    let mut entered = BTreeMap::<u64, usize>::new();
    for record in &records {
        if let Kind::Enter(function) = record.kind {
            *entered.entry(function).or_default() += 1;
        }
    }
    let leaf = entered.into_iter().max_by_key(|(_, times)| *times);
    let (leaf, _) = leaf.expect("functions");
    board.command(&format!("trigger {:#x}", leaf | 1));
    board.command("stopper 0");
    let sets = format!("trigger={leaf:#x} stopper=0x0");
    assert_eq!(board.command("listsets"), sets);
    // The timer's handler calls the new trigger, so recording is on soon after the start. On a
    // machine that is very slow the beginning is overwritten before it is read: then once more.
    let first = (0..30).find_map(|_| {
        // After the reboot the mode is that of the build again: so it is seen that there was one.
        board.command("mode fixed");
        let patience = Instant::now() + Duration::from_secs(1200);
        while board.identify() != identity {
            assert!(Instant::now() < patience, "it reboots");
            board.say(&Host::command(6, "reboot"));
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!(board.command("listsets"), sets);
        let patience = Instant::now() + Duration::from_secs(1200);
        while !board.command("status").starts_with("enabled=1 on=1 ") {
            assert!(Instant::now() < patience, "the timer runs");
        }
        let packet = board.trace(&identity).into_iter().nth(1).expect("packets");
        (packet.sequence == 0).then_some(packet.records)
    });
    let first = first.expect("the beginning is kept once in thirty times");
    assert!(matches!(
        first[0].kind,
        Kind::Recording { on: true, cause: 1 }
    ));
    assert_eq!(first[1].kind, Kind::IsrEnter(15), "it began before");
    assert_eq!(first[2].kind, Kind::Enter(leaf));
}

/// SysTick is both clock and tick, and only its interrupt reads it within a call.
#[test]
fn the_timer_of_the_tick_is_a_clock() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let program = build_as(
        "board_tick",
        "board",
        &["-nostdlib", "-finstrument-functions", "-DTICK_ALONE"],
    );
    let mut board = start(&program, &["-icount", "shift=6"]);
    let identity = board.identify();
    let period = identity.clock_hz / 100;
    for _ in 0..3 {
        board.command("clear");
        board.talk(b"!ping\r", |host| host.text.ends_with('\n'));
        let packets = board.trace(&identity);
        let records = packets.iter().skip(1).flat_map(|packet| &packet.records);
        let times: Vec<u64> = records.map(|record| record.time).collect();
        let (first, last) = (times[0], times[times.len() - 1]);
        // It begins somewhere within a period.
        let periods = (last - first) as f64 / period as f64;
        assert!((8.9..10.1).contains(&periods), "{periods}");
    }
}

/// SysTick's register counts down: hooks in assembly that use it as a counter do not hang, and the recording reports
/// the clock as unreliable.
#[test]
fn a_counter_that_counts_down_hangs_no_hook() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let program = build_as(
        "board_down",
        "board",
        &[
            "-nostdlib",
            "-finstrument-functions",
            "-DCOUNTER=(const uint32_t*)0xE000E018",
        ],
    );
    let mut board = start(&program, &[]);
    let identity = board.identify();
    board.talk(b"!ping\r", |host| host.text.ends_with('\n'));
    let packets = board.trace(&identity);
    let records = packets.iter().flat_map(|packet| &packet.records);
    let gaps = records.filter(|record| matches!(record.kind, Kind::ClockGap { .. }));
    assert!(gaps.count() > 0);
    let status = board.command("status");
    let doubts = status
        .split(' ')
        .find(|word| word.starts_with("clock_gaps="));
    assert!(doubts.is_some_and(|it| it != "clock_gaps=0"), "{status}");
}

#[test]
fn items_with_newlib_and_rings_of_their_own() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    let program = build(
        "board_items",
        &[
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fno-builtin",
            "-DKYMO_WRAP_NO_ALIGNED",
            "c/wrap/malloc.c",
            "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free",
        ],
    );
    // An instruction takes 64 ns, however slow this machine is.
    let mut board = start(&program, &["-icount", "shift=6"]);
    // It answers when it has produced everything.
    let identity = board.identify();
    let (packets, _) = ItemPacket::take(identity.layout, &board.dump("dump_trace"));
    assert!(packets.iter().all(|packet| packet.header.discarded == 0));
    let ring = |number| {
        let of_ring = packets.iter().filter(|packet| packet.header.cpu == number);
        let items: Vec<&Timed> = of_ring.flat_map(|packet| &packet.items).collect();
        assert!(items.is_sorted_by_key(|item| item.time), "ring {number}");
        items
    };
    let user = |n: usize| 512 + n as u16;

    // An interrupt's ring: pairs, each of one time, a hundred to the second.
    let ticks = ring(256);
    assert_eq!(ticks.len(), 40);
    for (n, pair) in ticks.chunks(2).enumerate() {
        assert_eq!((pair[0].id, pair[0].data), (user(1), n));
        assert_eq!((pair[1].id, pair[1].data), (user(2), n));
        assert_eq!(pair[0].time, pair[1].time);
    }
    let apart = ticks[38].time - ticks[0].time;
    let expected = 19 * identity.clock_hz / 100;
    assert!(apart.abs_diff(expected) < expected / 10, "{apart} ticks");

    // What was stored by hand.
    let stored = ring(512);
    assert!(
        stored
            .iter()
            .map(|item| (item.id, item.data))
            .eq((0..300).map(|n| (user(3), n)))
    );

    let mut all = ring(0).into_iter().map(|item| (item.id, item.data));
    let mut next = || {
        let (id, data) = all.next().expect("an item");
        (Name(id).to_string(), data)
    };
    for name in ["ISR_DISABLE", "ISR_DISABLE", "ISR_ENABLE", "ISR_ENABLE"] {
        assert_eq!(next().0, name);
    }
    // Not masked; masked; masked before and after the inner pair; not masked.
    for (n, level) in [0, 1, 1, 1, 0].into_iter().enumerate() {
        assert_eq!(next(), (format!("USER_{}", 10 + n), level));
    }
    // newlib's allocator: what is got is in its heap, and is what is given back.
    let mut got = 0;
    for (of, arguments) in [
        ("MALLOC", &[100][..]),
        ("REALLOC", &[0, 200]),
        ("FREE", &[0]),
        ("CALLOC", &[3, 7]),
        ("FREE", &[0]),
    ] {
        let (name, caller) = next();
        assert_eq!(name, format!("{of}_ENTRY"));
        assert!((1..0x40_0000).contains(&caller), "{caller:#x} is code");
        for (n, argument) in arguments.iter().enumerate() {
            // 0 stands for what was got last.
            let argument = if *argument == 0 { got } else { *argument };
            assert_eq!(next(), (format!("ARG_{n}"), argument), "{of}");
        }
        assert_eq!(next().0, format!("{of}_EXIT"));
        if of != "FREE" {
            let (name, pointer) = next();
            assert_eq!(name, "RETURN_0");
            assert!((0x2000_0000..0x2040_0000).contains(&pointer));
            got = pointer;
        }
    }
    assert_eq!(all.next(), None);
}
