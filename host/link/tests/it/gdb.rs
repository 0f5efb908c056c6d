//! Memory read through debug servers, correct and faulty ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use kymo_link::gdb::{Debugger, GdbError};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Function that returns a server's answer to a command, without a frame; `None` if there is no answer.
type Answers = fn(&str) -> Option<String>;

fn framed(content: &str) -> String {
    let sum = content.bytes().fold(0_u8, u8::wrapping_add);
    format!("${content}#{sum:02x}")
}

/// Reads the next command; `None` at the end. Counts the acknowledgements before it.
fn command(stream: &mut TcpStream, acknowledged: &mut (u32, u32)) -> Option<String> {
    let mut byte = [0];
    let mut next = || stream.read_exact(&mut byte).ok().map(|()| byte[0]);
    loop {
        match next()? {
            b'+' => acknowledged.0 += 1,
            b'-' => {
                acknowledged.1 += 1;
                return Some("-".to_owned());
            }
            b'$' => break,
            other => panic!("found {other:#x} between packets"),
        }
    }
    let mut content = String::new();
    loop {
        match next()? {
            b'#' => break,
            byte => content.push(char::from(byte)),
        }
    }
    let sum = [next()?, next()?].map(char::from);
    assert!(framed(&content).ends_with(&String::from_iter(sum)));
    Some(content)
}

/// A server that sends `before` in front of each answer. Returns the numbers of acknowledgements and of requests to
/// repeat.
fn serve(answers: Answers, before: &'static str) -> (u16, thread::JoinHandle<(u32, u32)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut acknowledged = (0, 0);
        let mut last = String::new();
        while let Some(command) = command(&mut stream, &mut acknowledged) {
            let text = match &*command {
                // After a request to repeat, the answer is correct.
                "-" => last.clone(),
                command => match answers(command) {
                    None => continue,
                    Some(answer) => {
                        last = framed(&answer);
                        let damaged = answer == "damaged";
                        match damaged {
                            true => {
                                last = framed("0011");
                                "$0013#c2".to_owned()
                            }
                            false => last.clone(),
                        }
                    }
                },
            };
            if stream
                .write_all(format!("+{before}{text}").as_bytes())
                .is_err()
            {
                break;
            }
        }
        acknowledged
    });
    (port, server)
}

/// 8 bytes of memory at 0x2000_0000, each with the value of its address.
fn memory(command: &str) -> Option<String> {
    let (address, length) = command.strip_prefix('m')?.split_once(',')?;
    let number = |digits| u64::from_str_radix(digits, 16).unwrap();
    let (address, length) = (number(address), number(length));
    let bytes = (address..address + length).filter(|at| (0x2000_0000..0x2000_0008).contains(at));
    let bytes: String = bytes.map(|at| format!("{:02x}", at & 0xff)).collect();
    Some(if bytes.is_empty() {
        "E14".to_owned()
    } else {
        bytes
    })
}

#[test]
fn memory_is_read_in_pieces_as_far_as_it_goes() {
    let answers: Answers = |command| match command {
        // At most three bytes in an answer.
        "qSupported" => Some("PacketSize=e;QStartNoAckMode+;qXfer:features:read+".to_owned()),
        "QStartNoAckMode" | "D" => Some("OK".to_owned()),
        "?" => Some("T05thread:01;".to_owned()),
        other => memory(other),
    };
    // Output of the target, and a notification, before each answer.
    let (port, server) = serve(answers, "$O68690a#bd%Stop:T05#33");
    let mut debugger = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap();
    assert_eq!(debugger.read(0x2000_0001, 5).unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(debugger.read(0x2000_0005, 100).unwrap(), [5, 6, 7]);
    assert!(debugger.read(0x3000_0000, 4).unwrap().is_empty());
    debugger.detach().unwrap();
    // Every packet was acknowledged until no-acknowledgement mode was agreed: answers and output.
    assert_eq!(server.join().unwrap(), (4, 0));
}

#[test]
fn a_damaged_answer_is_asked_for_again() {
    let answers: Answers = |command| match command {
        "qSupported" => Some(String::new()),
        "?" => Some("S05".to_owned()),
        "m10,2" => Some("damaged".to_owned()),
        _ => None,
    };
    let (port, server) = serve(answers, "");
    let mut debugger = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap();
    assert_eq!(debugger.read(0x10, 2).unwrap(), [0, 0x11]);
    drop(debugger);
    assert_eq!(server.join().unwrap(), (3, 1));
}

#[test]
fn what_is_no_debug_server_and_what_has_no_target_is_reported() {
    let answers: Answers = |command| match command {
        "qSupported" => Some("PacketSize=4000".to_owned()),
        "?" => Some("W00".to_owned()),
        _ => None,
    };
    let (port, _) = serve(answers, "");
    let error = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap_err();
    assert!(
        matches!(&error, GdbError::NoTarget { found } if found == "W00"),
        "{error}"
    );

    let silent: Answers = |_| None;
    let (port, _) = serve(silent, "");
    let short = Duration::from_millis(50);
    let error = Debugger::connect("127.0.0.1", port, short).unwrap_err();
    assert!(matches!(error, GdbError::NoAnswer { .. }), "{error}");

    let nonsense: Answers = |command| match command {
        "m0,8" => Some("hello".to_owned()),
        "?" => Some("S05".to_owned()),
        _ => Some(String::new()),
    };
    let (port, _) = serve(nonsense, "");
    let mut debugger = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap();
    let error = debugger.read(0, 8).unwrap_err();
    assert!(
        matches!(&error, GdbError::Unexpected { found, .. } if found == "hello"),
        "{error}"
    );
}

#[test]
fn a_server_of_several_processes_is_told_which_one_goes_on() {
    let named: Answers = |command| match command {
        "qSupported" => Some("multiprocess+".to_owned()),
        "?" => Some("T05thread:p2a.01;".to_owned()),
        "D;2a" => Some("OK".to_owned()),
        _ => Some("E22".to_owned()),
    };
    let (port, _) = serve(named, "");
    let debugger = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap();
    debugger.detach().unwrap();

    let refusing: Answers = |command| match command {
        "qSupported" => Some(String::new()),
        "?" => Some("S05".to_owned()),
        _ => Some("E22".to_owned()),
    };
    let (port, _) = serve(refusing, "");
    let debugger = Debugger::connect("127.0.0.1", port, TIMEOUT).unwrap();
    let error = debugger.detach().unwrap_err();
    assert!(
        matches!(&error, GdbError::Unexpected { command, .. } if command == "D;1"),
        "{error}"
    );
}
