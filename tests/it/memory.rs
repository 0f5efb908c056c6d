//! A board is stopped while it records; its memory is saved, and decoded with only the ELF file. The result must equal
//! the data that the board itself sends after it continues.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kymo_targets::cpus::{self, Machine, Wish};
use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::Background;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use kymo_targets::{library, port, run};
use serde_json::{Value, json};

mod tables;

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1800);

/// QEMU's monitor (QMP): one JSON value per line.
pub(crate) struct Monitor {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Monitor {
    /// Creates a monitor for a QEMU that has not been started yet, on its own port.
    pub(crate) fn new() -> Self {
        Self {
            port: port::free().unwrap(),
            stream: None,
        }
    }

    /// The options for QEMU that enable it.
    pub(crate) fn options(&self) -> [String; 2] {
        let place = format!("tcp:127.0.0.1:{},server=on,wait=off", self.port);
        ["-qmp".to_owned(), place]
    }

    /// Executes a command.
    pub(crate) fn command(&mut self, command: &Value) {
        let stream = self.stream.get_or_insert_with(|| {
            let mut stream = connect(self.port);
            say(&mut stream, &json!({"execute": "qmp_capabilities"}));
            stream
        });
        say(stream, command);
    }

    /// Saves this much memory from this address on.
    pub(crate) fn save(&mut self, address: u64, size: u64, file: &Path) {
        let arguments = json!({"val": address, "size": size, "filename": file});
        self.command(&json!({"execute": "pmemsave", "arguments": arguments}));
    }
}

fn connect(port: u16) -> BufReader<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return BufReader::new(stream);
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a command, and waits for its answer among other messages.
fn say(stream: &mut BufReader<TcpStream>, command: &Value) {
    writeln!(stream.get_mut(), "{command}").unwrap();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "QEMU is gone");
        let printed: Value = serde_json::from_str(&line).unwrap();
        assert!(printed.get("error").is_none(), "{command}: {printed}");
        if printed.get("return").is_some() {
            return;
        }
    }
}

/// One JSON value a line.
fn lines(command: &mut Command) -> Vec<Value> {
    let text = run::output(command).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = run::target_dir().join("memory-test").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A command that reads a file.
fn look(kymo: &Path, verb: &str, elf: &Path, input: &Path) -> Command {
    let mut command = Command::new(kymo);
    command.args([verb, "--format", "json", "--elf"]);
    command.arg(elf).arg(input);
    command
}

/// The events of a listing by CPU: times, and all fields.
fn events(show: &[Value], cpu: u64) -> Vec<(u64, &Value)> {
    let of_cpu = |line: &&Value| line["type"] == "event" && line["cpu"] == cpu;
    show.iter()
        .filter(of_cpu)
        .map(|line| (line["time_ns"].as_u64().unwrap(), line))
        .collect()
}

/// Checks that the events found in memory, up to the time of saving, equal those that the target sent later for the
/// same time. Returns their number.
fn same(memory: &[Value], sent: &[Value], cpu: u64) -> usize {
    let (memory, sent) = (events(memory, cpu), events(sent, cpu));
    let (Some(first), Some(last)) = (sent.first(), memory.last()) else {
        panic!("nothing of cpu {cpu}: {} and {}", memory.len(), sent.len());
    };
    // Several events may have the first one's time, and some of them may be overwritten.
    let both = |events: &[(u64, &Value)]| -> Vec<Value> {
        let range = |time: &u64| *time > first.0 && *time <= last.0;
        let events = events.iter().filter(|(time, _)| range(time));
        events.map(|(_, line)| (*line).clone()).collect()
    };
    let (memory, sent) = (both(&memory), both(&sent));
    assert!(
        memory.len() <= sent.len(),
        "{} {}",
        memory.len(),
        sent.len()
    );
    for (memory, sent) in memory.iter().zip(&sent) {
        assert_eq!(memory, sent);
    }
    // Events of the very last tick may be later than the saved memory.
    let at_last = |line: &Value| line["time_ns"].as_u64() == Some(last.0);
    assert!(sent[memory.len()..].iter().all(at_last), "{last:?}");
    memory.len()
}

#[test]
fn a_board_that_was_stopped_is_read_from_its_memory() {
    tools::require(&[Need::Firmware, Need::Checks]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = firmware::build(Hooks::Kymo, &BareRust::find().unwrap()).unwrap();
    let folder = folder("board");
    let mut monitor = Monitor::new();
    let [monitor_option, place] = monitor.options();
    let debug_port = port::free().unwrap();
    let debug_place = format!("tcp:127.0.0.1:{debug_port}");
    let options = [&*monitor_option, &place, "-gdb", &debug_place];
    let qemu = Qemu::boot_with(&elf, &folder, &options).unwrap();
    let ask = |verb: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([verb, "--target", &qemu.target(), "--elf"]);
        command.arg(&elf);
        command
    };
    // In small steps, so that the buffer is not filled while this machine is busy.
    let limits = ["--trigger", "luaH_resize", "--stopper", "luaH_resize"];
    run::run(ask("trace").args(limits).arg("--list")).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = lines(ask("status").args(["--format", "json"])).remove(0);
        if status["recorded_bytes"].as_u64() > Some(50_000) {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        thread::sleep(Duration::from_millis(100));
    }

    monitor.command(&json!({"execute": "stop"}));
    let ram = folder.join("ram.bin");
    monitor.save(0x2000_0000, 4 << 20, &ram);
    // The debug server reads the same memory. Then the memory is read into a file, and the target continues.
    let server = format!("gdb:127.0.0.1:{debug_port}");
    let mut halted = look(&kymo, "show", &elf, Path::new(&server));
    let halted = lines(halted.arg("--stay-halted"));
    let core = folder.join("crash.core");
    let mut record = Command::new(&kymo);
    record.args(["record", &server, "--elf"]).arg(&elf);
    run::run(record.arg("--output").arg(&core)).unwrap();
    monitor.command(&json!({"execute": "cont"}));
    let later = folder.join("later.kymo");
    run::run(ask("trace").arg("--output").arg(&later)).unwrap();
    drop(qemu);

    let info = lines(&mut look(&kymo, "info", &elf, &ram)).remove(0);
    assert_eq!(info["errors"], json!([]), "{info}");
    assert_eq!(info["warnings"], json!([]), "{info}");
    assert_eq!(info["lost"], 0, "{info}");
    let memory = lines(&mut look(&kymo, "show", &elf, &ram));
    let sent = lines(&mut look(&kymo, "show", &elf, &later));
    let found = same(&memory, &sent, 0);
    assert!(found > 10_000, "{found} events");
    let mut named = Command::new(&kymo);
    named
        .args(["info", "--elf"])
        .arg(&elf)
        .arg("--core")
        .arg(&core);
    let mut unnamed = Command::new(&kymo);
    unnamed.args(["info", "--elf"]).arg(&elf).arg(&core);
    assert_eq!(
        run::output(&mut named).unwrap(),
        run::output(&mut unnamed).unwrap()
    );
    let core = lines(&mut look(&kymo, "show", &elf, &core));
    assert!(
        events(&halted, 0) == events(&memory, 0),
        "by a debug server"
    );
    assert!(events(&core, 0) == events(&memory, 0), "in a core dump");

    // Saved as a trace, it can be read by other tools.
    let kept = folder.join("kept");
    let mut keep = Command::new(&kymo);
    keep.args(["trace", "--elf"]).arg(&elf).arg(&ram);
    run::run(keep.arg("--output").arg(&kept)).unwrap();
    let other = Command::new("babeltrace2").arg(&kept).output().unwrap();
    let complaints = String::from_utf8_lossy(&other.stderr);
    assert!(
        other.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    let count = other.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(info["events"], count as u64);

    // A part of the memory with the packets but without the end of the last one: its events are missing, and that is
    // reported.
    let bytes = fs::read(&ram).unwrap();
    let (front, back) = bytes.split_at(bytes.len() - 4096);
    let (front_file, back_file) = (folder.join("front.bin"), folder.join("back.bin"));
    fs::write(&front_file, front).unwrap();
    fs::write(&back_file, back).unwrap();
    let mut whole = look(&kymo, "show", &elf, &front_file);
    let at = 0x2000_0000 + front.len();
    whole.args(["--memory", &format!("{}@{at:#x}", back_file.display())]);
    assert_eq!(lines(&mut whole), memory);
    let mut wrong = look(&kymo, "info", &elf, &front_file);
    let wrong = wrong
        .args(["--memory-address", "0x10000000"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "another address");
}

/// The calls of a recording: their functions and beginnings, and whether they are open.
fn calls(kymo: &Path, elf: &Path, input: &Path) -> Vec<(String, u64, bool)> {
    let mut command = look(kymo, "calls", elf, input);
    let calls = lines(command.args(["--number", "100000"]));
    let one = |call: &Value| {
        let function = call["function"].as_str().unwrap().to_owned();
        let begin = call["begin_ns"].as_u64().unwrap();
        (function, begin, call["ended"] == "open")
    };
    calls.iter().map(one).collect()
}

#[test]
fn calls_that_are_open_in_duration_mode_are_read_from_memory() {
    tools::require(&[Need::Firmware]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = firmware::build(Hooks::Duration, &BareRust::find().unwrap()).unwrap();
    let folder = folder("duration");
    let mut monitor = Monitor::new();
    let [monitor_option, place] = monitor.options();
    let qemu = Qemu::boot_with(&elf, &folder, &[&*monitor_option, &place]).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args(["trace", "--target", &qemu.target(), "--elf"]);
        command.arg(&elf).args(arguments);
        run::run(&mut command).unwrap();
    };
    ask(&["--threshold", "1us", "--wait", "0.2"]);
    let ram = folder.join("ram.bin");
    // Repeats until the program is stopped within its work, not between two rounds.
    let open = (0..200).find_map(|_| {
        monitor.command(&json!({"execute": "stop"}));
        monitor.save(0x2000_0000, 4 << 20, &ram);
        let mut open = calls(&kymo, &elf, &ram);
        monitor.command(&json!({"execute": "cont"}));
        open.retain(|(.., open)| *open);
        (open.len() > 3).then_some(open)
    });
    let open = open.unwrap();
    let later = folder.join("later.kymo");
    ask(&["--output", later.to_str().unwrap()]);
    drop(qemu);

    let output = look(&kymo, "info", &elf, &ram).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("are missing"), "{printed}");
    let later = calls(&kymo, &elf, &later);
    // Calls that have ended since then are records now; the others are still open.
    let known = |function: &str, begin: u64| {
        let mut same = later.iter().filter(|(other, ..)| other == function);
        same.any(|(_, other, _)| other.abs_diff(begin) <= 1)
    };
    for (function, begin, _) in &open {
        // A call that had just begun may have been too short for a record.
        let is_last = open.iter().all(|(_, other, _)| other <= begin);
        assert!(
            is_last || known(function, *begin),
            "{function} {begin} {open:?}"
        );
    }
}

/// A board's profile table, from its memory and from the board itself, while nothing is recorded.
#[test]
fn the_table_in_memory_is_the_one_that_the_board_sends() {
    tools::require(&[Need::Firmware]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = firmware::build(Hooks::Kymo, &BareRust::find().unwrap()).unwrap();
    let folder = folder("table");
    let mut monitor = Monitor::new();
    let options = monitor.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let qemu = Qemu::boot_with(&elf, &folder, &options).unwrap();
    let ask = |verb: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([verb, "--target", &qemu.target(), "--elf"]);
        command.arg(&elf);
        command
    };
    let limits = ["--trigger", "luaH_resize", "--stopper", "luaH_resize"];
    run::run(ask("trace").args(limits).arg("--list")).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = lines(ask("status").args(["--format", "json"])).remove(0);
        if status["recorded_bytes"].as_u64() > Some(20_000) {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        thread::sleep(Duration::from_millis(100));
    }
    // From now on the table does not change.
    let mut disable = Command::new(&kymo);
    disable.args(["command", "disable", "--target", &qemu.target()]);
    run::run(&mut disable).unwrap();
    let all = ["--format", "json", "-n", "0"];
    let sent = lines(ask("profile").args(all));
    monitor.command(&json!({"execute": "stop"}));
    let ram = folder.join("ram.bin");
    monitor.save(RAM.0, 4 << 20, &ram);
    drop(qemu);

    let of = |input: &Path| {
        let mut command = look(&kymo, "profile", &elf, input);
        command.args(["-n", "0"]);
        command
    };
    assert!(sent.len() > 3, "{} functions", sent.len());
    let kept = folder.join("kept.profile");
    assert_eq!(lines(of(&ram).arg("-o").arg(&kept)), sent);
    assert_eq!(lines(&mut of(&kept)), sent);

    // An overwritten slot is omitted, and reported.
    let symbols = run::output(Command::new("arm-none-eabi-nm").arg(&elf)).unwrap();
    let slots = symbols
        .lines()
        .find(|line| line.ends_with(" slots"))
        .unwrap();
    let slots = slots.split_whitespace().next().unwrap();
    let slots = (u64::from_str_radix(slots, 16).unwrap() - RAM.0) as usize;
    let mut bytes = fs::read(&ram).unwrap();
    let taken = (slots..)
        .step_by(48)
        .find(|at| bytes[*at..*at + 4] != [0; 4])
        .unwrap();
    bytes[taken..taken + 48].fill(0xA5);
    let damaged = folder.join("damaged.bin");
    fs::write(&damaged, &bytes).unwrap();
    let output = of(&damaged).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).lines().count();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(shown, sent.len() - 1, "{printed}");
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("expected a function of the program, found 0xa5a5a5a5"),
        "{printed}"
    );
    // Another program's table, or a missing one, is rejected.
    bytes[slots..slots + 1024 * 48].fill(0xA5);
    fs::write(&damaged, &bytes).unwrap();
    let output = of(&damaged).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(2), 0),
        "{printed}"
    );
    assert!(
        printed.contains("damaged, or another program's"),
        "{printed}"
    );
}

#[test]
fn eight_cpus_that_were_stopped_are_read_from_their_memory() {
    tools::require(&[Need::Cpus]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = cpus::build(&BareRust::find_for(cpus::TARGET).unwrap(), &[]).unwrap();
    let folder = folder("cpus");
    let mut monitor = Monitor::new();
    let options = monitor.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let machine = Machine::boot_with(&elf, Wish::Demonstration, &options).unwrap();
    monitor.command(&json!({"execute": "stop"}));
    let ram = folder.join("ram.bin");
    monitor.save(0x4000_0000, 64 << 20, &ram);
    monitor.command(&json!({"execute": "cont"}));
    let later = folder.join("later.kymo");
    let mut trace = Command::new(&kymo);
    trace.env("KYMO_PATIENCE", "20");
    trace.args(["trace", "--target", &machine.target(), "--elf"]);
    let done = (0..10).any(|_| {
        let _ = fs::remove_file(&later);
        run::run(trace.arg(&elf).arg("--output").arg(&later)).is_ok()
    });
    assert!(done, "the machine answers once in ten times");
    drop(machine);

    let info = lines(&mut look(&kymo, "info", &elf, &ram)).remove(0);
    assert_eq!(info["errors"], json!([]), "{info}");
    assert_eq!(info["lost"], 0, "{info}");
    let memory = lines(&mut look(&kymo, "show", &elf, &ram));
    let sent = lines(&mut look(&kymo, "show", &elf, &later));
    for cpu in 0..8 {
        let found = same(&memory, &sent, cpu);
        assert!(found > 1000, "{found} events of cpu {cpu}");
    }
}

/// A board that records consecutive markers, and stores the value of each after it is recorded.
struct Marking {
    kymo: PathBuf,
    elf: PathBuf,
    image: PathBuf,
    monitor: Monitor,
    _qemu: Background,
    /// Addresses of the last marker of its main loop, and of its timer's handler.
    marked: [u64; 2],
}

/// Beginning of the board's RAM, and the size that the program uses.
const RAM: (u64, u64) = (0x2000_0000, 16 << 10);

impl Marking {
    fn boot() -> Self {
        tools::require(&[Need::Firmware]).unwrap();
        let folder = folder("images");
        let elf = folder.join("images.elf");
        let programs = run::root().join("device/tests/programs");
        let mut compiler = Command::new("arm-none-eabi-gcc");
        compiler
            .args(FIRMWARE_CPU)
            .args(["-Os", "-g", "-Wall", "-Wextra", "-Werror", "-nostdlib"])
            .args(["-ffreestanding", "-Wl,--gc-sections", "-Wl,-z,noexecstack"])
            .args(["-ffunction-sections", "-finstrument-functions", "-I"])
            .arg(run::root().join("device/c/include"))
            .arg("-T")
            .arg(programs.join("board.ld"))
            .arg(programs.join("images.c"))
            .arg(library::for_bare_metal(&BareRust::find().unwrap()).unwrap())
            .args(["-lgcc", "-o"])
            .arg(&elf);
        run::run(&mut compiler).unwrap();
        let symbols = run::output(Command::new("arm-none-eabi-nm").arg(&elf)).unwrap();
        let address = |symbol: &str| {
            let mut lines = symbols.lines().map(str::split_whitespace);
            let line = lines.find(|line| line.clone().next_back() == Some(symbol));
            u64::from_str_radix(line.unwrap().next().unwrap(), 16).unwrap()
        };
        let end = address("bss_end");
        assert!(end < RAM.0 + RAM.1, "{end:#x}");
        let mut monitor = Monitor::new();
        let mut qemu = Command::new("qemu-system-arm");
        // Single-stepped: it can be stopped between any two instructions.
        qemu.args(["-M", "mps2-an385", "-icount", "shift=6", "-singlestep"])
            .args(["-display", "none", "-monitor", "none", "-serial", "null"])
            .args(monitor.options())
            .arg("-kernel")
            .arg(&elf);
        let qemu = Background::start(&mut qemu).unwrap();
        monitor.command(&json!({"execute": "stop"}));
        Self {
            kymo: kymo::build(Profile::Debug).unwrap(),
            image: folder.join("ram.bin"),
            elf,
            monitor,
            _qemu: qemu,
            marked: ["marked", "marked_by_timer"].map(address),
        }
    }

    /// Runs it for this many microseconds, and reads its memory. Returns the number of markers found.
    fn look(&mut self, microseconds: u64) -> usize {
        self.monitor.command(&json!({"execute": "cont"}));
        thread::sleep(Duration::from_micros(microseconds));
        self.monitor.command(&json!({"execute": "stop"}));
        self.monitor.save(RAM.0, RAM.1, &self.image);
        let bytes = fs::read(&self.image).unwrap();
        let show = lines(look(&self.kymo, "show", &self.elf, &self.image).arg("--events"));
        let markers = show.iter().filter(|line| line["name"] == "marker");
        let values: Vec<u64> = markers
            .map(|line| line["fields"]["value"].as_u64().unwrap())
            .collect();
        let noted = self.marked.map(|at| {
            let at = (at - RAM.0) as usize;
            u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
        });
        for (high, noted) in [(0, noted[0]), (1 << 31, noted[1])] {
            let of_it = values.iter().filter(|value| *value & (1 << 31) == high);
            let numbers: Vec<u64> = of_it.map(|value| value - high).collect();
            let in_a_row = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
            assert!(in_a_row, "{numbers:?}, {noted} of {high:#x} were recorded");
            // The next one may have been recorded, but its value not stored yet.
            let last = numbers.last().copied().unwrap_or(0);
            assert!(
                last == noted || last == noted + 1,
                "{last} is the last of {high:#x}, {noted} were recorded"
            );
        }
        let gaps = show.iter().filter(|line| line["type"] == "gap");
        // The oldest remaining event may be in a handler.
        let known = ["overwritten", "in_interrupt"];
        let is_known = |gap: &&Value| known.iter().any(|kind| gap["gap"] == *kind);
        let lost: Vec<_> = gaps.filter(|gap| !is_known(gap)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        values.len()
    }

    /// Takes this many images at arbitrary times.
    fn images(count: u32) {
        let mut board = Self::boot();
        let mut random = 2026u32;
        let mut markers = 0;
        for _ in 0..count {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            markers += board.look(u64::from(random >> 19));
        }
        assert!(
            markers > count as usize * 100,
            "{markers} in {count} images"
        );
    }
}

#[test]
fn fifty_images_at_any_instant() {
    Marking::images(50);
}

#[test]
#[ignore = "takes five minutes: a thousand images"]
fn a_thousand_images_at_any_instant() {
    Marking::images(1000);
}
