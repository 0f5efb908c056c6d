//! The recorder driven by a debugger that writes memory: `kymo_control`, `kymo_duration`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Board, PATIENCE, address, of};
use kymo_targets::port;

/// A debugger at an emulator's stub: the target is halted from its begin to its end.
struct Debugger(BufReader<TcpStream>);

impl Debugger {
    fn attach(port: u16) -> Self {
        let begin = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Self(BufReader::new(stream));
                }
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Sends a packet of the GDB remote protocol, and returns the answer.
    fn ask(&mut self, text: &str) -> String {
        let sum = text.bytes().fold(0u8, u8::wrapping_add);
        write!(self.0.get_mut(), "${text}#{sum:02x}").unwrap();
        loop {
            let answer = self.answer();
            // It may report first that it has halted the target.
            if !answer.starts_with('T') && !answer.starts_with('S') {
                return answer;
            }
        }
    }

    fn answer(&mut self) -> String {
        self.0.read_until(b'$', &mut Vec::new()).unwrap();
        let mut answer = Vec::new();
        self.0.read_until(b'#', &mut answer).unwrap();
        self.0.read_exact(&mut [0; 2]).unwrap();
        self.0.get_mut().write_all(b"+").unwrap();
        answer.pop();
        String::from_utf8(answer).unwrap()
    }

    fn read(&mut self, address: u64) -> u32 {
        let digits = self.ask(&format!("m{address:x},4"));
        let word = u32::from_str_radix(&digits, 16);
        word.unwrap_or_else(|_| panic!("{address:x}: {digits:?}"))
            .swap_bytes()
    }

    fn write(&mut self, address: u64, value: u32) {
        let answer = self.ask(&format!("M{address:x},4:{:08x}", value.swap_bytes()));
        assert_eq!(answer, "OK");
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The target runs on.
            assert_eq!(self.ask("D"), "OK");
        }
    }
}

/// Offsets in `kymo_control_t`.
const REQUEST: u64 = 12;
const REFUSED: u64 = 16;
const APPLIED: u64 = 20;
const WANTED: u64 = 24;
const NOW: u64 = 48;
const PACKETS: u64 = 72;

/// Offsets in `kymo_control_values_t`.
const ENABLED: u64 = 0;
const RECORDING: u64 = 4;
const MODE: u64 = 8;
const TRIGGER: u64 = 16;
const STOPPER: u64 = 20;

/// The board, and the port of its debug stub.
fn board(name: &str) -> (Board, u16) {
    let port = port::free().unwrap();
    let stub = format!("tcp:127.0.0.1:{port}");
    let board = Board::spin_so(
        name,
        kymo_targets::library::WITH_DURATION,
        &["-DCONTROL"],
        &["-gdb", &stub],
    );
    (board, port)
}

/// Waits until a word has this value: start-up code has not set it at once.
fn wait_for(port: u16, address: u64, value: u32) {
    let begin = Instant::now();
    while Debugger::attach(port).read(address) != value {
        assert!(begin.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20));
    }
}

/// Writes these words, and a word that requests the change; waits until the program has taken it.
fn request(port: u16, words: &[(u64, u32)], request: (u64, u32)) {
    let mut debugger = Debugger::attach(port);
    for (address, value) in words.iter().chain([&request]) {
        debugger.write(*address, *value);
    }
    drop(debugger);
    wait_for(port, request.0, 0);
}

/// The status by the link.
fn status(board: &Board) -> String {
    kymo_targets::run::output(board.command("status").args(["--format", "json"])).unwrap()
}

#[test]
fn trigger_stopper_mode_and_recording_are_driven_by_memory_writes() {
    let (board, port) = board("by-memory");
    let control = address(&board.elf, "kymo_control");
    let read = |offset: u64| Debugger::attach(port).read(control + offset);
    let status = || status(&board);
    wait_for(port, control, 0x4B79_4374);
    assert_eq!((read(4), read(8)), (1, 96));
    board.work(1);
    assert_eq!((read(NOW + ENABLED), read(NOW + RECORDING)), (1, 1));
    assert_eq!((read(NOW + MODE), read(NOW + TRIGGER)), (0, 0));
    assert!(read(PACKETS) > 0);

    let off = [(control + WANTED + RECORDING, 0)];
    request(port, &off, (control + REQUEST, 2));
    assert!(status().contains("\"recording\":false"), "{}", status());
    assert_eq!(
        (read(NOW + RECORDING), read(REFUSED), read(APPLIED)),
        (0, 0, 1)
    );

    let (outer, many) = (address(&board.elf, "outer"), address(&board.elf, "many"));
    let words = [
        (control + WANTED + MODE, 1),
        // With and without Thumb's bit.
        (control + WANTED + TRIGGER, outer as u32 | 1),
        (control + WANTED + STOPPER, many as u32),
    ];
    request(port, &words, (control + REQUEST, 4 | 8 | 16));
    assert!(status().contains("\"mode\":\"fixed\""), "{}", status());
    let sets = board.ask("listsets");
    for function in [outer, many] {
        assert!(sets.contains(&format!("{function:x}")), "{sets}");
    }
    assert_eq!(u64::from(read(NOW + TRIGGER)), outer);
    assert_eq!(u64::from(read(NOW + STOPPER)), many);
    assert_eq!((read(NOW + MODE), read(REFUSED)), (1, 0));
    board.work(1);
    let calls = board.calls(&board.trace("triggered", &[]));
    assert_eq!(of(&calls, "many").len(), 1, "{calls:?}");
    assert!(of(&calls, "deep").is_empty(), "{calls:?}");

    // What is no mode, and what no bit stands for.
    let words = [(control + WANTED + MODE, 7)];
    request(port, &words, (control + REQUEST, 4 | 1 << 20));
    assert_eq!((read(REFUSED), read(NOW + MODE)), (4 | 1 << 20, 1));
    let words = [(control + WANTED + ENABLED, 0)];
    request(port, &words, (control + REQUEST, 1));
    assert!(status().contains("\"enabled\":false"), "{}", status());
}

/// Offsets in `kymo_duration_t`.
const THRESHOLD: u64 = 12;
const STOP_AT: u64 = 16;
const MAGIC: u64 = 24;
const DEPTH: u64 = 32;
const FILTER: u64 = 40;
const DURATION_REQUEST: u64 = 48;

#[test]
fn duration_mode_is_driven_by_memory_writes() {
    let (board, port) = board("duration-by-memory");
    let duration = address(&board.elf, "kymo_duration");
    wait_for(port, duration + MAGIC, 0x4B79_4475);
    // At once: the threshold, the depth, the filter.
    let many = address(&board.elf, "many");
    let mut debugger = Debugger::attach(port);
    // 200 us.
    debugger.write(duration + THRESHOLD, 5000);
    let filter = u64::from(debugger.read(duration + FILTER));
    let bit = many / 16 * 2;
    let word = filter + bit / 32 * 4;
    let skip = debugger.read(word) | 1 << (bit % 32);
    debugger.write(word, skip);
    drop(debugger);
    board.work(1);
    let calls = board.calls(&board.trace("threshold", &[]));
    let whole = || calls.iter().filter(|call| !call.open);
    assert!(whole().count() > 3, "{calls:?}");
    assert!(whole().all(|call| call.wall >= 200_000), "{calls:?}");
    assert!(of(&calls, "many").is_empty());
    let levels = of(&calls, "deep").len();
    assert!(levels > 2, "{calls:?}");

    let mut debugger = Debugger::attach(port);
    debugger.write(duration + THRESHOLD, 0);
    debugger.write(duration + DEPTH, 5);
    drop(debugger);
    assert!(board.ask("clear").contains("ok"));
    board.work(1);
    let calls = board.calls(&board.trace("depth", &[]));
    let levels = of(&calls, "deep").len();
    assert!((1..5).contains(&levels), "{levels}");

    // At a tick: the function that stops recording.
    let stop = address(&board.elf, "stop_here") as u32 | 1;
    let words = [(duration + STOP_AT, stop)];
    request(port, &words, (duration + DURATION_REQUEST, 1));
    assert!(status(&board).contains("\"recording\":true"));
    board.work(1);
    assert!(status(&board).contains("\"recording\":false"));
}
