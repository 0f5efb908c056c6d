//! Targets that send SystemView's stream with `libkymo_sysview.a`: on a serial line, as a recorder over TCP, and into
//! an RTT ring in memory. Both an independent decoder and `kymo` read every event.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use kymo_targets::{library, port};
use serde_json::Value;

use crate::memory::Monitor;

mod decode;

use decode::Field::{Number, Text};
use decode::{Decoded, Field};

/// Time-out on a slow machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Beginning of the board's RAM, and the size that the program uses.
const RAM: (u64, u64) = (0x2000_0000, 0x4000);

/// An empty folder, the command line, and the program compiled with these options.
fn build(name: &str, options: &[&str]) -> (PathBuf, PathBuf, PathBuf) {
    tools::require(&[Need::Firmware]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let folder = run::target_dir().join("firmware-test/sysview").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let library = library::sysview(Some(&BareRust::find().unwrap())).unwrap();
    let elf = folder.join("sysview.elf");
    let programs = run::root().join("device/tests/programs");
    let mut compiler = Command::new("arm-none-eabi-gcc");
    compiler
        .args(FIRMWARE_CPU)
        .args(["-Os", "-g", "-Wall", "-Wextra", "-Werror", "-nostdlib"])
        .args(["-Wl,--gc-sections", "-Wl,-z,noexecstack"])
        .args(["-ffunction-sections", "-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg("-T")
        .arg(programs.join("board.ld"))
        .args(options)
        .arg(programs.join("sysview.c"))
        .arg(library)
        .arg("-o")
        .arg(&elf);
    run::run(&mut compiler).unwrap();
    (kymo, folder, elf)
}

/// A board with this serial line.
fn board(elf: &Path, serial: &str, options: &[String]) -> Command {
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an385", "-display", "none", "-monitor", "none"])
        .args(["-serial", serial])
        .args(options)
        .arg("-kernel")
        .arg(elf)
        .stdin(Stdio::null());
    qemu
}

/// The address range of a symbol.
fn symbol(elf: &Path, name: &str) -> Range<u64> {
    let listing = run::output(Command::new("arm-none-eabi-nm").arg("-S").arg(elf)).unwrap();
    let found = listing.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        match words[..] {
            [at, size, _, symbol] if symbol == name => Some((number(at)? & !1, number(size)?)),
            _ => None,
        }
    });
    let (at, size) = found.unwrap_or_else(|| panic!("no {name}"));
    at..at + size
}

/// The stream in a file that `kymo record` wrote: after its lines of text.
fn stream_of(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let mut rest = &bytes[..];
    let mut bare = 0;
    while bare < 2 {
        let line = rest.split(|byte| *byte == b'\n').next().unwrap();
        assert!(line.starts_with(b";"), "{line:?}");
        bare += usize::from(line.trim_ascii_end() == b";");
        rest = &rest[line.len() + 1..];
    }
    rest.to_vec()
}

/// The program's expected packets, in order: id, fields, ticks since the packet before.
fn expected(elf: &Path) -> Vec<Decoded> {
    let id = |address: u64| Number(((address - RAM.0) >> 2) as u32);
    let object = |name: &str| symbol(elf, name).start;
    let (worker, logger) = (id(object("worker")), id(object("logger")));
    let heap = |n: u64| id(object("heap") + 8 * n);
    let text = |text: &str| Text(text.to_owned());
    let n = Number;
    let mut all = Vec::new();
    let mut then = |id: u32, fields: Vec<Field>, delta: u32| {
        all.push(Decoded { id, fields, delta });
    };
    then(10, vec![], 0);
    then(
        24,
        vec![n(1_000_000), n(25_000_000), n(0x2000_0000), n(2)],
        7,
    );
    then(
        14,
        vec![text("N=sysview.c,D=mps2-an385,C=Cortex-M3,O=none")],
        7,
    );
    then(14, vec![text("I#15=SysTick,I#18=UART")], 7);
    // Time passed before the start, and the clock has been read five times since then.
    then(12, vec![n(1_000_000 + 0x8000_0000 + 5 * 7)], 14);
    then(9, vec![worker.clone(), n(3), text("worker")], 7);
    then(21, vec![worker.clone(), n(0x2000_1000), n(512), n(96)], 7);
    then(
        9,
        vec![
            logger.clone(),
            n(1),
            text("a name that is much longer than "),
        ],
        7,
    );
    then(25, vec![heap(0), text("heap")], 7);
    then(31, vec![n(1), n(5), text("parse")], 7);
    then(31, vec![n(2), heap(0), heap(0), n(32), n(8)], 7);
    then(27, vec![n(2)], 7);
    let functions = "M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p call_site=%p";
    then(22, vec![n(0), n(512), text(functions)], 7);
    let parser = "M=Parser, 0 token kind=%u at=%x, 1 error";
    then(22, vec![n(1), n(576), text(parser)], 7);
    then(22, vec![n(1), n(576), text("2 end count=%u")], 7);

    then(8, vec![logger.clone()], 7);
    then(6, vec![worker.clone()], 7);
    then(4, vec![worker.clone()], 7);
    let (outer, leaf) = (object("outer") as u32, object("leaf") as u32);
    for (id, function) in [
        (512, outer),
        (512, leaf),
        (513, leaf),
        (512, leaf),
        (513, leaf),
        (513, outer),
    ] {
        // Call sites are compared separately.
        then(id, vec![n(function), n(0)], 7);
    }
    then(2, vec![n(15)], 7);
    then(6, vec![logger.clone()], 7);
    then(3, vec![], 7);
    then(2, vec![n(300)], 7);
    then(18, vec![], 7);
    then(4, vec![logger.clone()], 7);
    then(15, vec![n(5)], 1_000_007);
    then(31, vec![n(0), n(5)], 7);
    then(16, vec![n(5)], 7);
    then(31, vec![n(3), heap(0), heap(2), n(6)], 0x8000_0007);
    then(31, vec![n(5), heap(0), heap(2)], 7);
    then(19, vec![heap(1)], 7);
    then(20, vec![], 7);
    then(26, vec![text("%u of %u"), n(1), n(2), n(3), n(40_000)], 7);
    then(26, vec![text("plain"), n(0), n(0)], 7);
    then(576, vec![n(2), n(u32::MAX)], 7);
    then(577, vec![], 7);
    then(28, vec![n(577)], 7);
    then(28, vec![n(576), n(9)], 7);
    // Three packets found no room; each had read the clock.
    then(1, vec![n(3)], 4 * 7);
    then(31, vec![n(0), n(103)], 7);
    then(7, vec![logger.clone(), n(4)], 7);
    then(5, vec![], 7);
    then(29, vec![logger], 7);
    then(17, vec![], 7);
    all
}

/// Compares a stream with the expected packets; call sites are replaced by 0 if they are in the calling functions.
fn compare(elf: &Path, stream: &[u8]) -> Vec<Decoded> {
    let mut packets = decode::all(stream);
    let expected = expected(elf);
    let callers = ["reset", "outer", "outer", "outer", "outer", "reset"];
    let calls = packets
        .iter_mut()
        .filter(|packet| matches!(packet.id, 512 | 513));
    for (packet, caller) in calls.zip(callers) {
        let caller = match caller {
            // Any address, because the compiler may have inlined the function.
            "reset" => 0..u64::from(u32::MAX),
            caller => symbol(elf, caller),
        };
        let Some(Number(site)) = packet.fields.get_mut(1) else {
            panic!("{packet:?}");
        };
        assert!(caller.contains(&u64::from(*site)), "{site:#x} {caller:x?}");
        *site = 0;
    }
    for (n, (read, expected)) in packets.iter().zip(&expected).enumerate() {
        assert_eq!(read, expected, "packet {n}");
    }
    assert!(packets.len() >= expected.len(), "{packets:?}");
    // The remaining packets are modules that the host requests again. A packet that had to wait starts again, after a
    // synchronization.
    let rest = packets.drain(expected.len()..);
    for packet in rest.take_while(|packet| packet.id != 0) {
        assert!(matches!(packet.id, 11 | 22 | 27), "{packet:?}");
    }
    packets
}

/// The output of `kymo` for an input.
fn lines(kymo: &Path, words: &[&str], input: &Path) -> Vec<Value> {
    let mut command = Command::new(kymo);
    let text = run::output(command.args(words).arg(input)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Reads the input with `kymo`, and compares the result with the program's packets.
fn read(kymo: &Path, elf: &Path, input: &Path, packets: &[Decoded]) {
    let elf_option = elf.to_str().unwrap();
    let shown = lines(
        kymo,
        &["show", "--events", "--format", "json", "--elf", elf_option],
        input,
    );
    let events: Vec<&Value> = shown
        .iter()
        .filter(|line| line["type"] == "event")
        .collect();
    assert!(
        events.len() >= packets.len(),
        "{} {}",
        events.len(),
        packets.len()
    );
    let mut time = 0u64;
    let first = events[0]["time_ns"].as_u64().unwrap();
    for (event, packet) in events.iter().zip(packets) {
        // One microsecond per tick.
        time += u64::from(packet.delta) * 1000;
        assert_eq!(event["time_ns"], first + time, "{event} {packet:?}");
        let name = decode::name(packet);
        assert!(
            name.is_empty() || event["name"] == name,
            "{event} {packet:?}"
        );
    }
    let named = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    assert_eq!(named("token")["fields"]["kind"], 2);
    assert_eq!(named("end_call")["name"], "end_call");

    let info = lines(kymo, &["info", "--format", "json"], input);
    assert_eq!(info[0]["format"], "systemview");
    assert_eq!(info[0]["lost"], 3, "{}", info[0]);

    let report = lines(
        kymo,
        &["report", "--format", "json", "--elf", elf_option],
        input,
    );
    let count = |name: &str| {
        let row = report.iter().find(|row| row["function"] == name);
        row.map(|row| row["count"].clone())
    };
    assert_eq!(count("leaf"), Some(2.into()), "{report:?}");
    assert_eq!(count("outer"), Some(1.into()), "{report:?}");
    let threads = lines(
        kymo,
        &["report", "--by", "thread", "--format", "json"],
        input,
    );
    assert!(
        threads.iter().any(|row| row["thread"] == "worker"),
        "{threads:?}"
    );
}

/// Records from this address for a short time, and compares the result.
fn record(kymo: &Path, elf: &Path, folder: &Path, address: &str) {
    let file = folder.join("it.SVDat");
    let mut record = Command::new(kymo);
    record.env("KYMO_PATIENCE", "20");
    record.args(["record", address, "--duration", "4s", "-o"]);
    run::run(record.arg(&file)).unwrap();
    let packets = compare(elf, &stream_of(&file));
    read(kymo, elf, &file, &packets);
}

#[test]
fn a_board_is_recorded_as_a_recorder_over_tcp() {
    let (kymo, folder, elf) = build("tcp", &["-DGREETING=KYMO_SYSVIEW_TCP"]);
    let port = port::free().unwrap();
    let serial = format!("tcp:127.0.0.1:{port},server=on,wait=on,nodelay=on");
    let mut qemu = Background::start(&mut board(&elf, &serial, &[])).unwrap();
    // QEMU waits for a first connection.
    drop(port::connect(&mut qemu, port, PATIENCE).unwrap());
    let address = format!("systemview:127.0.0.1:{port}");
    record(&kymo, &elf, &folder, &address);
}

#[test]
fn a_board_is_recorded_over_a_serial_line() {
    let (kymo, folder, elf) = build("serial", &["-DGREETING=KYMO_SYSVIEW_SERIAL"]);
    let mut qemu = board(&elf, "pty", &[]);
    let mut qemu = Background::start(qemu.stdout(Stdio::piped())).unwrap();
    let mut printed = BufReader::new(qemu.take_stdout().unwrap()).lines();
    let path = printed.find_map(|line| {
        let line = line.unwrap();
        line.split_whitespace()
            .find(|word| word.starts_with("/dev/"))
            .map(str::to_owned)
    });
    record(
        &kymo,
        &elf,
        &folder,
        &format!("systemview:{}", path.unwrap()),
    );
}

#[test]
fn a_debugger_finds_the_stream_in_memory() {
    let (kymo, folder, elf) = build("rtt", &["-DRTT"]);
    let mut monitor = Monitor::new();
    let mut qemu = board(&elf, "stdio", &monitor.options());
    let mut qemu = Background::start(qemu.stdout(Stdio::piped())).unwrap();
    let mut printed = BufReader::new(qemu.take_stdout().unwrap()).lines();
    assert_eq!(printed.next().unwrap().unwrap(), "done");
    let image = folder.join("ram.bin");
    monitor.save(RAM.0, RAM.1, &image);
    drop(qemu);

    // Read as a debugger does: find the control block by its text, then channel 1.
    let ram = fs::read(&image).unwrap();
    let block = ram
        .windows(16)
        .position(|it| it == b"SEGGER RTT\0\0\0\0\0\0")
        .unwrap();
    assert_eq!(RAM.0 + block as u64, symbol(&elf, "_SEGGER_RTT").start);
    let flash = fs::read(&elf).unwrap();
    assert!(
        !flash.windows(11).any(|it| it == b"SEGGER RTT\0"),
        "a block in flash"
    );
    let word = |at: usize| u32::from_le_bytes(ram[at..at + 4].try_into().unwrap());
    assert_eq!((word(block + 16), word(block + 20)), (3, 3));
    let up = block + 24 + 24;
    let (memory, size, write, taken) = (word(up + 4), word(up + 8), word(up + 12), word(up + 16));
    assert_eq!((size, taken), (4096, 0));
    let at = (u64::from(memory) - RAM.0) as usize;
    let packets = compare(&elf, &ram[at..at + write as usize]);
    read(&kymo, &elf, &image, &packets);
}
