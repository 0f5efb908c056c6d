//! Targets that use the transports of `kymo_transport.h`, with hosts that connect, disconnect in the middle, and
//! reconnect.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use serde_json::{Value, json};

use crate::memory::Monitor;

const PATIENCE: Duration = Duration::from_secs(600);

fn build(folder: &Path) -> PathBuf {
    tools::require(&[Need::Native]).unwrap();
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let program = folder.join("piped");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-pthread", "-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg(run::root().join("device/tests/programs/piped.c"))
        .arg(library::for_this_machine().unwrap())
        .arg("-o")
        .arg(&program);
    run::run(&mut compiler).unwrap();
    program
}

/// Starts the program with this transport, and returns the port to connect to.
fn start(program: &Path, transport: &str) -> (Background, u16) {
    let mut process = Command::new(program);
    process.arg(transport).stdout(Stdio::piped());
    let mut process = Background::start(&mut process).unwrap();
    let mut port = String::new();
    let mut printed = BufReader::new(process.take_stdout().unwrap());
    printed.read_line(&mut port).unwrap();
    (process, port.trim().parse().unwrap())
}

fn connect(port: u16) -> TcpStream {
    let host = TcpStream::connect(("127.0.0.1", port)).unwrap();
    host.set_read_timeout(Some(PATIENCE)).unwrap();
    host
}

fn calls(program: &Path, trace: &Path, function: &str) -> Option<(u64, u64)> {
    let mut report = Command::new(kymo::build(Profile::Debug).unwrap());
    report.args(["report", "--format", "json", "--elf"]);
    let report = run::output(report.arg(program).arg(trace)).unwrap();
    let mut rows = report
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let row = rows.find(|row| row["function"] == function)?;
    Some((row["count"].as_u64()?, row["count_max"].as_u64()?))
}

#[test]
fn dumps_are_whole_whatever_carries_them() {
    let folder = run::target_dir().join("transports-test");
    let program = build(&folder);
    let kymo = kymo::build(Profile::Debug).unwrap();
    for transport in ["tcp", "fifo", "dma", "usb"] {
        let (_process, port) = start(&program, transport);
        // The link is interrupted in the middle of a dump, each time at another position.
        for bytes in [10, 3000, 20_000] {
            let mut host = connect(port);
            host.write_all(b"identify\rdump_trace\r").unwrap();
            host.read_exact(&mut vec![0; bytes]).unwrap();
        }
        for name in ["first", "second"] {
            let trace = folder.join(format!("{transport}-{name}"));
            let mut fetch = Command::new(&kymo);
            fetch.env("KYMO_PATIENCE", "20");
            fetch.args([
                "trace",
                "--target",
                &format!("tcp:127.0.0.1:{port}"),
                "--elf",
            ]);
            run::run(fetch.arg(&program).arg("-o").arg(&trace)).unwrap();
            for (function, times) in [("leaf", 5000), ("work", 1)] {
                let calls = calls(&program, &trace, function);
                assert_eq!(calls, Some((times, times)), "{transport} {name} {function}");
            }
        }
    }
}

/// Each command in the documentation's table takes the address that stands behind it.
#[test]
fn the_books_commands_take_their_addresses() {
    let kymo = kymo::build(Profile::Debug).unwrap();
    let book = fs::read_to_string(run::root().join("book/transports.md")).unwrap();
    let rows = book.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split('`'));
    let mut commands = 0;
    for command in words.filter(|word| word.starts_with("kymo ")) {
        let arguments = command
            .replace("HOST:PORT", "127.0.0.1:1")
            .replace("FILE", "/nowhere/file")
            .replace("PATH", "/nowhere/socket")
            .replace("/dev/tty", "/nowhere/tty")
            .replace("ADDRESS", "0x20000000")
            .replace("CHANNEL", "0");
        let output = Command::new(&kymo)
            .args(arguments.split(' ').skip(1))
            .output()
            .unwrap();
        // A file's name is looked for as a file, any other address as what it says.
        let message = String::from_utf8_lossy(&output.stderr);
        let expected = match command.contains("HOST:PORT") && !command.contains("--elf") {
            true => "nothing listens at",
            false => "/nowhere/",
        };
        let first = message.lines().find(|line| line.starts_with("error: "));
        let first = first.unwrap_or_else(|| panic!("{command}: {message}"));
        assert!(first.contains(expected), "{command}: {message}");
        assert!(!output.status.success(), "{command}");
        assert!(!message.contains("Usage:"), "{command}: {message}");
        commands += 1;
    }
    assert!(commands >= 15, "{commands}");
}

/// A second client is answered after the first one has disconnected, and receives nothing meant for that one.
#[test]
fn two_clients_of_one_server() {
    let folder = run::target_dir().join("transports-clients-test");
    let program = build(&folder);
    let (_process, port) = start(&program, "tcp");
    let answered = |host: &TcpStream| {
        let mut line = String::new();
        BufReader::new(host).read_line(&mut line).unwrap();
        assert!(line.starts_with("kymo identify: "), "{line}");
    };
    let mut first = connect(port);
    first.write_all(b"identify\r").unwrap();
    answered(&first);

    let mut second = connect(port);
    second.write_all(b"identify\r").unwrap();
    // The first client's commands are answered, to that client only.
    first.write_all(b"identify\r").unwrap();
    answered(&first);
    second
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let early = second.read(&mut [0; 1]);
    assert!(early.is_err(), "{early:?}");
    first.write_all(b"dump_trace\r").unwrap();
    drop(first);
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    answered(&second);
}

/// A board whose link is in memory shared by QEMU.
#[test]
fn a_guest_is_read_through_memory_that_it_shares() {
    tools::require(&[Need::Firmware]).unwrap();
    let folder = run::target_dir().join("firmware-test/shared");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let elf = folder.join("shared.elf");
    let programs = run::root().join("device/tests/programs");
    let mut compiler = Command::new("arm-none-eabi-gcc");
    compiler
        .args(FIRMWARE_CPU)
        .args(["-Os", "-g", "-Wall", "-Wextra", "-Werror", "-nostdlib"])
        .args([
            "-Wl,--gc-sections",
            "-Wl,-z,noexecstack",
            "-ffunction-sections",
        ])
        .args(["-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg("-T")
        .arg(programs.join("board.ld"))
        .arg(programs.join("shared.c"))
        .arg(library::for_bare_metal(&BareRust::find().unwrap()).unwrap())
        .args(["-lc", "-lgcc", "-o"])
        .arg(&elf);
    run::run(&mut compiler).unwrap();
    let ram = folder.join("ram");
    let mut monitor = Monitor::new();
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an385,memory-backend=ram", "-object"])
        .arg(format!(
            "memory-backend-file,id=ram,size=16M,share=on,mem-path={}",
            ram.display()
        ))
        .args(["-display", "none", "-monitor", "none", "-serial", "null"])
        .args(monitor.options())
        .arg("-kernel")
        .arg(&elf)
        .stdin(Stdio::null());
    let _qemu = Background::start(&mut qemu).unwrap();
    // QEMU answers when the file exists.
    monitor.command(&json!({"execute": "query-status"}));

    let kymo = kymo::build(Profile::Debug).unwrap();
    let target = format!("memory:{}@0x21000000/1", ram.display());
    let command = |subcommand: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([subcommand, "--target", &target]);
        command
    };
    let fetch = |name: &str| {
        let trace = folder.join(name);
        let mut fetch = command("trace");
        fetch.arg("--elf").arg(&elf).arg("-o").arg(&trace);
        (fetch, trace)
    };
    let is_whole = |name: &str| {
        let (mut fetch, trace) = fetch(name);
        run::run(&mut fetch).unwrap();
        assert_eq!(calls(&elf, &trace, "leaf"), Some((3000, 3000)), "{name}");
    };
    is_whole("first");
    is_whole("second");

    // A host requests a dump and disconnects, and the target is reset while the guest waits for room for the rest.
    let mut rings = Rings::open(&ram);
    rings.say(b"dump_trace\r");
    rings.fill();
    monitor.command(&json!({"execute": "system_reset"}));
    is_whole("reset");

    // A reset before, during or after a host's dump: the host receives everything, or reports missing data.
    for look in 0..4 {
        let (mut fetch, trace) = fetch(&format!("cut-{look}"));
        let mut host = Background::start(&mut fetch).unwrap();
        let begun = rings.up();
        while rings.up() == begun && host.ended().unwrap().is_none() {}
        for _ in 0..look {
            let (now, begun) = (rings.up(), std::time::Instant::now());
            while rings.up() == now && begun.elapsed() < Duration::from_millis(20) {}
        }
        monitor.command(&json!({"execute": "system_reset"}));
        if host.wait(PATIENCE).unwrap().success() {
            assert_eq!(calls(&elf, &trace, "leaf"), Some((3000, 3000)), "{look}");
        }
        is_whole("behind");
    }
}

/// Rings of the second channel of RTT's control block, at the beginning of a 32-bit guest's shared memory.
struct Rings {
    file: fs::File,
}

impl Rings {
    /// Offset of the channels' structures: after the text and two counts.
    const CHANNELS: u64 = 24;
    /// Size of one structure in bytes.
    const BYTES: u64 = 24;

    fn open(ram: &Path) -> Self {
        let file = fs::OpenOptions::new().read(true).write(true).open(ram);
        Self {
            file: file.unwrap(),
        }
    }

    fn number(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Writer and reader index of the ring to the host.
    fn up(&self) -> (u32, u32) {
        let channel = Self::CHANNELS + Self::BYTES;
        (self.number(channel + 12), self.number(channel + 16))
    }

    /// Sends to the guest, which has read everything sent before.
    fn say(&mut self, bytes: &[u8]) {
        let channel = Self::CHANNELS + Self::BYTES * u64::from(self.number(16) + 1);
        let memory = u64::from(self.number(channel + 4)) - 0x2100_0000;
        let size = self.number(channel + 8);
        let mut at = self.number(channel + 12);
        for byte in bytes {
            self.file
                .write_all_at(&[*byte], memory + u64::from(at))
                .unwrap();
            at = (at + 1) % size;
        }
        self.file
            .write_all_at(&at.to_le_bytes(), channel + 12)
            .unwrap();
    }

    /// Waits until the guest has no room left for its output.
    fn fill(&self) {
        let size = self.number(Self::CHANNELS + Self::BYTES + 8);
        let begun = std::time::Instant::now();
        loop {
            let (write, read) = self.up();
            if (write + 1) % size == read {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{write} {read}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
