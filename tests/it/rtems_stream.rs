//! A board that sends its items as RTEMS's record stream, as read by `kymo` and RTEMS's own client.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, FIRMWARE_CPU, Need};
use kymo_targets::{library, port};
use serde_json::Value;

/// Time-out on a slow machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Number of bytes examined of an endless stream.
const BYTES: usize = 100_000;

/// RTEMS's client, by the name in its documentation.
const CLIENT: &str = "rtems-record-lttng";

fn build(folder: &Path, options: &[&str]) -> PathBuf {
    tools::require(&[Need::Firmware]).unwrap();
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let elf = folder.join("stream.elf");
    let programs = run::root().join("device/tests/programs");
    let mut compiler = Command::new("arm-none-eabi-gcc");
    compiler
        .args(FIRMWARE_CPU)
        .args(["-Os", "-g", "-Wall", "-Wextra", "-Werror", "-nostdlib"])
        .args(["-ffreestanding", "-Wl,--gc-sections", "-Wl,-z,noexecstack"])
        .args(["-ffunction-sections", "-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .args(options)
        .arg("-T")
        .arg(programs.join("board.ld"))
        .arg(programs.join("rtems_stream.c"))
        .arg(library::for_bare_metal(&BareRust::find().unwrap()).unwrap())
        .args(["-lc", "-lgcc", "-o"])
        .arg(&elf);
    run::run(&mut compiler).unwrap();
    elf
}

fn board(elf: &Path, serial: &str) -> Command {
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an385", "-display", "none", "-monitor", "none"])
        .args(["-serial", serial, "-kernel"])
        .arg(elf)
        .stdin(Stdio::null());
    qemu
}

/// The data of USER_3, which counts up, and the number of switches to the thread.
fn counted(input: &Path) -> (Vec<u64>, usize) {
    let mut show = Command::new(kymo::build(Profile::Debug).unwrap());
    show.args(["show", "--events", "--format", "json"]);
    let output = run::output(show.arg(input)).unwrap();
    let lines: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut last = 0;
    for line in lines.iter().filter(|line| line["type"] == "event") {
        let time = line["time_ns"].as_u64().unwrap();
        assert!(time >= last, "{line}");
        last = time;
    }
    let users = lines.iter().filter(|line| line["name"] == "USER_3");
    let data = users.map(|line| line["fields"]["data"].as_u64().unwrap());
    let switches = lines
        .iter()
        .filter(|line| line["name"] == "THREAD_SWITCH_IN" && line["thread"] == 0x0a01_0001);
    (data.collect(), switches.count())
}

/// The data of USER_3 in a stream of 32-bit, little-endian items, by RTEMS's documentation alone: `u32 format, u32 magic`,
/// then items of `u32 event, u32 data`, of whose event the lowest ten bits are the number.
fn by_the_documentation(stream: &[u8]) -> Vec<u64> {
    /// `0x11111111` means this format.
    const LITTLE_32: u32 = 0x1111_1111;
    const MAGIC: u32 = 0x82e1_4ec1;
    /// `RTEMS_RECORD_VERSION`, and the version that it must say.
    const VERSION: u32 = 1;
    const TEN: u32 = 10;
    /// `RTEMS_RECORD_USER_3`.
    const USER_3: u32 = 515;
    let words = stream.chunks_exact(4);
    let words = words.map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let words: Vec<u32> = words.collect();
    assert_eq!(words[..2], [LITTLE_32, MAGIC]);
    assert_eq!([words[2] & 1023, words[3]], [VERSION, TEN]);
    let items = words[2..].chunks_exact(2);
    let users = items.filter(|item| item[0] & 1023 == USER_3);
    users.map(|item| item[1].into()).collect()
}

/// The data of USER_3 according to RTEMS's client. Without it this says that nothing was compared.
fn by_the_client(folder: &Path, options: &[&str]) -> Option<Vec<u64>> {
    let named = std::env::var_os("KYMO_RTEMS_CLIENT");
    let client = named.clone().unwrap_or_else(|| CLIENT.into());
    if !run::succeeds(Command::new(&client).arg("-h").stdout(Stdio::null())) {
        let why = format!(
            "{CLIENT} of RTEMS's tools is not installed, and no package has it: that it reads this was not tested"
        );
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        // Where it is said to be there, its lack is a failure.
        assert!(named.is_none(), "{why}");
        return None;
    }
    let trace = folder.join("ctf");
    fs::create_dir_all(&trace).unwrap();
    run::run(Command::new(client).args(options).arg("-o").arg(&trace)).unwrap();
    let output = run::output(Command::new("babeltrace2").arg(&trace)).unwrap();
    let users = output.lines().filter(|line| line.contains(" USER_3: "));
    let data = users.filter_map(|line| line.rsplit_once("{ data = 0x")?.1.strip_suffix(" }"));
    Some(
        data.map(|digits| u64::from_str_radix(digits, 16).unwrap())
            .collect(),
    )
}

fn assert_in_a_row(data: &[u64]) {
    assert!(
        data.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{data:?}"
    );
}

#[test]
fn a_board_serves_the_records_of_rtems() {
    let folder = run::target_dir().join("firmware-test/rtems-stream");
    let elf = build(&folder, &[]);
    let port = port::free().unwrap();
    let serial = format!("tcp:127.0.0.1:{port},server=on,wait=on,nodelay=on");
    let mut board = Background::start(&mut board(&elf, &serial)).unwrap();
    let mut stream = port::connect(&mut board, port, PATIENCE).unwrap();
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes).unwrap();
    let file = folder.join("stream.bin");
    fs::write(&file, &bytes).unwrap();
    let (data, switches) = counted(&file);
    assert!(data.len() > 5000, "{}", data.len());
    assert_eq!(by_the_documentation(&bytes), data);
    assert_eq!(data[0], 0);
    assert_in_a_row(&data);
    assert_eq!(switches, data.len() / 100);
    let mut info = Command::new(kymo::build(Profile::Debug).unwrap());
    let info = run::output(info.arg("info").arg(&file)).unwrap();
    assert!(info.contains(" a thread of work"), "{info}");
    drop(stream);

    // RTEMS's client connects, and receives the same.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let sender = thread::spawn(move || {
        if let Ok((mut client, _)) = server.accept() {
            client.write_all(&bytes).unwrap();
        }
    });
    let options = ["-H", "127.0.0.1", "-p", &port];
    if let Some(read) = by_the_client(&folder, &options) {
        sender.join().unwrap();
        assert_eq!(read, data);
    }
}

#[test]
fn a_board_writes_its_last_records_on_the_console() {
    let folder = run::target_dir().join("firmware-test/rtems-dump");
    let elf = build(&folder, &["-DDUMP"]);
    let mut board = board(&elf, "stdio");
    let mut board = Background::start(board.stdout(Stdio::piped())).unwrap();
    let mut log = String::new();
    for line in BufReader::new(board.take_stdout().unwrap()).lines() {
        log += &(line.unwrap() + "\n");
        if log.ends_with("halted\n") {
            break;
        }
    }
    let file = folder.join("console.log");
    fs::write(&file, &log).unwrap();
    let (data, _) = counted(&file);
    assert_eq!(data, (0..700).collect::<Vec<u64>>());
    let options = ["-t", file.to_str().unwrap()];
    if let Some(data) = by_the_client(&folder, &options) {
        assert_eq!(data, (0..700).collect::<Vec<u64>>());
    }
}
