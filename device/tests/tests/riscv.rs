//! The library on a bare RISC-V hart (in QEMU): its own cycle counter, machine timer interrupts, a reboot.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kymo_device_tests::{Board, Host, Kind, Record, device, equipped};
use kymo_wire::cost::{self, Cost, Recorded};
use kymo_wire::event::{ByteOrder, Shape, WordSize};
use kymo_wire::profile::TableHeader;

const TARGET: &str = "riscv32imac-unknown-none-elf";

/// What is needed besides Rust's library for the target.
const PROGRAMS: [&str; 2] = ["riscv64-unknown-elf-gcc", "qemu-system-riscv32"];

/// Library and program, built once for all tests: they run in parallel.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

/// Builds library and program.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("riscv");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "small", "-p", "kymo-c"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        .current_dir(device())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the library builds");
    let program = target.join("riscv.elf");
    let programs = device().join("tests/programs");
    let output = Command::new("riscv64-unknown-elf-gcc")
        .args(["-march=rv32imac_zicsr", "-mabi=ilp32", "-Os", "-g"])
        .args(["-nostdlib", "-ffreestanding", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffunction-sections", "-Wl,--gc-sections"])
        .args(["-finstrument-functions", "-I"])
        .arg(device().join("c/include"))
        .arg("-Wl,--wrap=setjmp,-u,setjmp,--wrap=longjmp,-u,longjmp")
        .arg("-T")
        .arg(programs.join("riscv.ld"))
        .arg(programs.join("riscv.c"))
        .arg(programs.join("riscv_jumps.S"))
        .arg(target.join(TARGET).join("small/libkymo.a"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// The overhead values in a metadata record.
fn costs(record: &Record) -> Vec<Cost> {
    match &record.kind {
        Kind::Metadata { kind: 6, value } => cost::costs(ByteOrder::Little, value).collect(),
        _ => Vec::new(),
    }
}

/// Starts the program on a hart with this value of `-icount`, which sets the speed of its clock.
fn start(instructions: &str) -> Board {
    let mut qemu = Command::new("qemu-system-riscv32");
    qemu.args(["-M", "virt", "-bios", "none", "-nic", "none"]);
    qemu.args(["-icount", instructions, "-kernel"])
        .arg(program());
    Board::start(&mut qemu)
}

/// Overhead is measured in separate memory, however many ticks a hook takes.
#[test]
fn a_clock_much_quicker_than_hooks_loses_no_packet() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    // 32 ticks for every instruction.
    let mut board = start("shift=5");
    let identity = board.identify();
    board.talk(b"!ping\r", |host| host.text.ends_with('\n'));
    let trace = board.trace(&identity);
    let status = board.command("status");
    let figure = |name: &str| -> u32 {
        let word = status
            .split(' ')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("{name} in {status}"))
    };
    assert!(figure("bytes") <= figure("needed"), "{status}");
    assert_eq!(figure("discarded"), 0);
    let (_, calls) = trace.split_first().expect("packets");
    let first = calls.first().expect("packets of calls").sequence;
    let numbers = calls.iter().map(|packet| packet.sequence);
    assert!(numbers.eq(first..first + calls.len() as u32));
    assert!(calls.iter().all(|packet| packet.discarded == 0));
    let records: Vec<_> = calls.iter().flat_map(|p| &p.records).collect();
    assert!(records.is_sorted_by_key(|record| record.time));
}

#[test]
fn a_riscv_hart_from_reset_to_reboot() {
    if !equipped(&PROGRAMS, &[TARGET]) {
        return;
    }
    // `mcycle` counts nanoseconds then, eight for every instruction.
    let mut board = start("shift=3");
    let identity = board.identify();
    assert_eq!(identity.layout.shape, Shape::Compact);
    assert_eq!(identity.layout.word, WordSize::Bits32);
    assert_eq!(identity.clock_bits, 32);
    assert!(identity.capabilities.sure_clock && identity.capabilities.reboot);

    // The trigger and stopper of the build.
    board.talk(b"!ping\r", |host| host.text.ends_with('\n'));
    let trace = board.trace(&identity);
    let (names, calls) = trace.split_first().expect("packets");
    let timer = |r: &Record| matches!(&r.kind, Kind::Metadata { kind: 4, value } if value.ends_with(b"timer"));
    assert!(names.records.iter().any(timer), "{names:?}");
    // Before it recorded anything it measured what that costs, in nanoseconds of 8 an instruction.
    let costs = names.records.iter().flat_map(costs).collect::<Vec<_>>();
    for recorded in [Recorded::Enter, Recorded::Exit, Recorded::IsrEnter] {
        let cost = costs.iter().find(|cost| cost.recorded == recorded);
        let cost = cost.unwrap_or_else(|| panic!("{recorded:?} in {costs:?}"));
        let instructions = (cost.before + cost.after) / Cost::UNIT / 8;
        assert!((20..2000).contains(&instructions), "{cost:?}");
        assert!(cost.before > 0 && cost.after > 0, "{cost:?}");
        assert!(
            u32::from(cost.uncertainty) < (cost.before + cost.after) / 8,
            "{cost:?}"
        );
    }
    let records: Vec<_> = calls.iter().flat_map(|p| &p.records).collect();
    let on = Kind::Recording { on: true, cause: 1 };
    assert_eq!(records.first().expect("records").kind, on);
    let count = |is: fn(&Kind) -> bool| records.iter().filter(|r| is(&r.kind)).count();
    let interrupts = count(|kind| *kind == Kind::IsrEnter(7));
    // The handler is a function too, entered before it says that it is an interrupt, and calls one.
    let enters = count(|kind| matches!(kind, Kind::Enter(_)));
    assert_eq!(enters, 101 + 2 * interrupts);
    assert_eq!(count(|kind| matches!(kind, Kind::Exit(_))), enters);
    // A hundred calls take some ten thousand instructions of 8 ns, and no more than a second.
    let span = records.last().expect("records").time - records[0].time;
    assert!((50_000..1_000_000_000).contains(&span), "{span} ns");
    let table = TableHeader::read(&board.dump("dump_profile")).expect("a table");
    assert!(table.entries >= 2 && table.recorded > 0, "{table:?}");

    let Kind::Enter(leaf) = records[2].kind else {
        panic!("work calls leaf first: {:?}", records[2]);
    };
    // A jump out of three calls is marked where it begins and where it goes.
    board.command("clear");
    board.command("on");
    board.talk(b"^ping\r", |host| host.text.ends_with('\n'));
    board.command("off");
    let trace = board.trace(&identity);
    // Without what interrupts do in between.
    let mut kinds = Vec::new();
    let mut serving = false;
    for record in trace.iter().flat_map(|packet| &packet.records) {
        match &record.kind {
            Kind::IsrEnter(_) => serving = true,
            Kind::IsrExit(_) => serving = false,
            Kind::Setjmp(_) | Kind::Longjmp(_) => kinds.push(record.kind.clone()),
            Kind::Enter(_) if !serving => kinds.push(record.kind.clone()),
            _ => {}
        }
    }
    let at = kinds
        .iter()
        .position(|kind| matches!(kind, Kind::Setjmp(_)));
    let at = at.unwrap_or_else(|| panic!("a mark: {kinds:?}"));
    let Kind::Setjmp(buffer) = kinds[at] else {
        unreachable!("it was found there");
    };
    let Kind::Enter(down) = kinds[at + 1] else {
        panic!("a call behind it: {kinds:?}");
    };
    let expected = [
        Kind::Enter(down),
        Kind::Enter(down),
        Kind::Enter(down),
        Kind::Longjmp(buffer),
        Kind::Enter(leaf),
    ];
    assert_eq!(kinds[at + 1..at + 6], expected);

    // Another trigger over a reboot: the timer's handler calls it, so recording goes on soon.
    board.command(&format!("trigger {leaf:#x}"));
    board.command("stopper 0");
    let sets = format!("trigger={leaf:#x} stopper=0x0");
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
}
