//! Targets that never stop sending: the host gives up, keeps useful data, and its memory is limited.
//!
//! The transport is in memory and always has more data, so no test waits for it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kymo_link::zephyr::{self, Arrived};
use kymo_link::{Address, Cancel, Ended, LinkError, Target, Timeouts, Transport};
use kymo_wire::link::{Frame, Identity};
use kymo_zephyr_instrumentation::Kind;

/// Greatest number of bytes that a host reads from one target: the limit of dumps and of the output in between.
const MOST_BYTES: u64 = 200 << 20;

/// Time-outs after which the host gives up.
const SHORT: Timeouts = Timeouts {
    connect: Duration::from_millis(100),
    identify: Duration::from_millis(100),
    reply: Duration::from_millis(100),
    stall: Duration::from_millis(100),
    silence: Duration::from_millis(400),
    reboot: Duration::from_millis(400),
};

/// Transport that sends an answer to each line, and after the last answer repeats a pattern endlessly.
struct Flood {
    answers: Answers,
    pending: VecDeque<u8>,
    pattern: Option<Vec<u8>>,
    sent: Arc<AtomicU64>,
}

/// Function that answers the bytes of one write.
type Answers = Box<dyn FnMut(&[u8]) -> Answer + Send>;

/// Answer of a target.
enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The first bytes, then the second ones repeatedly.
    Endless(Vec<u8>, Vec<u8>),
}

impl Transport for Flood {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.pending.is_empty() {
            let Some(pattern) = &self.pattern else {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
                return Ok(0);
            };
            self.pending.extend(pattern);
        }
        let length = buffer.len().min(self.pending.len());
        for (to, from) in buffer.iter_mut().zip(self.pending.drain(..length)) {
            *to = from;
        }
        let sent = self.sent.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
        assert!(sent < MOST_BYTES, "the host takes {sent} bytes and more");
        Ok(length)
    }

    fn write(&mut self, bytes: &[u8], _: Duration) -> io::Result<()> {
        match (self.answers)(bytes) {
            Answer::Bytes(bytes) => self.pending.extend(bytes),
            Answer::Endless(first, pattern) => {
                self.pending.extend(first);
                self.pattern = Some(pattern);
            }
        }
        Ok(())
    }
}

fn target(answers: impl FnMut(&[u8]) -> Answer + Send + 'static) -> (Target, Arc<AtomicU64>) {
    let sent = Arc::default();
    let flood = Flood {
        answers: Box::new(answers),
        pending: VecDeque::new(),
        pattern: None,
        sent: Arc::clone(&sent),
    };
    let address: Address = "tcp:flood:1".parse().expect("an address");
    (Target::over(Box::new(flood), address, SHORT), sent)
}

/// A target with Zephyr's instrumentation that answers `ping`, and floods the host after a dump command.
fn zephyr(pattern: &[u8]) -> zephyr::Target {
    let pattern = pattern.to_vec();
    let (target, _) = target(move |line| match line {
        b"ping\r\n" => Answer::Bytes(b"pong\r\n".to_vec()),
        _ => Answer::Endless(Vec::new(), pattern.clone()),
    });
    target.into_zephyr()
}

fn dump(target: &mut zephyr::Target) -> Result<Arrived, LinkError> {
    target.dump(Kind::Trace, &mut |_| {}, &Cancel::new())
}

/// An entry record of a 32-bit target with names of 32 bytes.
fn record() -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(0x0800_0101_u32.to_le_bytes());
    bytes.extend(0x0800_0205_u32.to_le_bytes());
    bytes.extend(77_000_000_u64.to_le_bytes());
    bytes.push(0);
    bytes.extend(0x2000_0100_u32.to_le_bytes());
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"main");
    bytes.extend(name);
    bytes
}

#[test]
fn endless_dumps_end_the_wait_for_an_answer() {
    let mut target = zephyr(b"-*-#-*-!\r\n");
    let arrived = dump(&mut target).expect("dumps came");
    assert!(!arrived.dumps.is_empty());
    assert!(arrived.dumps.iter().all(|dump| dump.is_whole()));
}

#[test]
fn endless_dumps_end_a_long_wait() {
    let mut target = zephyr(b"-*-#-*-!\r\n");
    let _ = target.status();
    let hour = Duration::from_secs(3600);
    let error = target.listen(hour, &Cancel::new()).expect_err("too much");
    assert!(matches!(error, LinkError::TooMuch { .. }), "{error}");
    // Data that arrived before is not lost.
    let arrived = dump(&mut target).expect("dumps came");
    assert!(!arrived.dumps.is_empty() && arrived.missing.is_some());
}

#[test]
fn one_endless_dump_is_cut_at_the_limit() {
    let (target, _) = target(|line| match line {
        b"ping\r\n" => Answer::Bytes(b"pong\r\n".to_vec()),
        _ => Answer::Endless(b"-*-#".to_vec(), record().repeat(1000)),
    });
    let mut target = target.into_zephyr();
    let arrived = dump(&mut target).expect("a dump came");
    let bytes: usize = arrived.dumps.iter().map(|dump| dump.body.len()).sum();
    assert!((1..=MOST_BYTES / 2).contains(&(bytes as u64)), "{bytes}");
    assert_eq!(arrived.dumps[0].ended, zephyr::Ended::TooLong);
}

#[test]
fn endless_marks_are_console_text() {
    let mut target = zephyr(&b"-*-#".repeat(2000));
    let error = dump(&mut target).expect_err("no dump");
    assert!(
        matches!(error, LinkError::NotSupported { .. }),
        "it answers `ping`: {error}"
    );
}

#[test]
fn a_target_that_falls_silent_is_not_called_a_foreign_one() {
    // The target sends the error message of Zephyr's instrumentation, and nothing more.
    let (target, _) = target(|line| match line {
        b"identify\r" => Answer::Bytes(b"invalid command identify\r\n".to_vec()),
        _ => Answer::Bytes(Vec::new()),
    });
    let error = target.recognise().err().expect("nobody answers");
    let LinkError::TimedOut { command, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(command, "ping");
}

fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut wire = [0; kymo_wire::link::frame::MAX_WIRE];
    let length = frame.encode(&mut wire).expect("it fits");
    wire[..length].to_vec()
}

/// The identity of a target with a buffer of 64 KiB.
fn identity() -> String {
    let line = "kymo identify: protocol=3 word=32 order=le shape=compact shift=4 clock_hz=25000000 \
                clock_bits=32 buffer=65536 packet=4096 streams=1 mode=overwrite text_base=0x0 \
                caps=trace,profile,reboot,stream build_id=";
    let sum = kymo_wire::link::crc::crc32(line.as_bytes());
    let line = format!("{line} #{sum:08x}\r\n");
    assert!(Identity::parse(&line).is_some());
    line
}

/// The request number of a command that the host sent as a frame, and its text.
fn command(bytes: &[u8]) -> Option<(u8, String)> {
    let mut content: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    match Frame::decode(&mut content)? {
        Frame::Command { request, text } => Some((request, String::from_utf8(text.to_vec()).ok()?)),
        _ => None,
    }
}

/// Fetches a dump from a Kymo target that answers the dump command with `reply`, and then sends endless pieces.
fn endless_pieces(reply: Option<&'static str>) -> Result<kymo_link::Dump, LinkError> {
    let number = Arc::new(Mutex::new(0_u32));
    let (mut target, _) = target(move |bytes| {
        if bytes == b"identify\r" {
            return Answer::Bytes(identity().into_bytes());
        }
        let Some((request, text)) = command(bytes) else {
            return Answer::Bytes(Vec::new());
        };
        if text == "done" {
            let ok = Frame::Reply {
                request,
                ok: true,
                text: b"ok",
            };
            return Answer::Bytes(frame(&ok));
        }
        let mut answer = Vec::new();
        if let Some(reply) = reply {
            answer.extend(frame(&Frame::Reply {
                request,
                ok: true,
                text: reply.as_bytes(),
            }));
        }
        let mut number = number.lock().expect("one thread");
        for _ in 0..200_000 {
            answer.extend(frame(&Frame::Data {
                request,
                number: *number,
                bytes: &[1; 240],
            }));
            *number += 1;
        }
        Answer::Bytes(answer)
    });
    target.dump_trace(&mut |_| {}, &Cancel::new())
}

#[test]
fn pieces_without_end_are_cut_at_what_the_target_can_hold() {
    let dump = endless_pieces(None).expect("pieces came");
    let Ended::TooLong { limit } = dump.ended else {
        panic!("{:?}", dump.ended);
    };
    assert!(dump.bytes.len() as u64 <= limit && limit <= 16 << 20);
}

#[test]
fn a_dump_announced_as_larger_than_its_buffer_is_refused() {
    let error = endless_pieces(Some("bytes=1030792150800 frames=4294967295"));
    assert!(matches!(error, Err(LinkError::TooMuch { .. })));
}
