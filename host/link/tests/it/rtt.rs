//! Kymo's link over servers of RTT channels.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use kymo_fixtures::target::{Fake, State, noise};
use kymo_link::{Address, Cancel, Target, Timeouts};

const LONG: Duration = Duration::from_secs(300);

fn timeouts() -> Timeouts {
    Timeouts {
        connect: LONG,
        identify: LONG,
        reply: LONG,
        stall: LONG,
        silence: LONG,
        reboot: LONG,
    }
}

/// Copies bytes until one side ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// A server like J-Link's in front of a target: sends its identification, reads the channel selection, then forwards
/// bytes. Returns its port.
fn jlink(target: String, channel: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut host, _) = listener.accept().unwrap();
        host.write_all(b"SEGGER J-Link V7.96 - Real time terminal output\r\n")
            .unwrap();
        let expected = format!("$$SEGGER_TELNET_ConfigStr=RTTCh;{channel}$$");
        let mut choice = vec![0; expected.len()];
        host.read_exact(&mut choice).unwrap();
        assert_eq!(String::from_utf8(choice).unwrap(), expected);
        // In separate segments.
        host.write_all(b"SEGGER J-Link Ultra V1.0, SN=504").unwrap();
        host.write_all(b"301234\r\nProcess: JLinkExe\r\n").unwrap();
        let target = TcpStream::connect(target).unwrap();
        pass_on(host.try_clone().unwrap(), target.try_clone().unwrap());
        pass_on(target, host);
    });
    port
}

fn fetch(address: &str, trace: &[u8]) {
    let address: Address = address.parse().unwrap();
    let mut target = Target::open(&address, timeouts()).unwrap();
    target.identify().unwrap();
    let dump = target.dump_trace(&mut |_| {}, &Cancel::new()).unwrap();
    assert!(dump.is_whole() && dump.bytes == trace);
}

#[test]
fn a_dump_comes_through_a_channel() {
    let trace = noise(5000);
    let fake = Fake::start(State::new(trace.clone(), Vec::new()));
    let at = fake.address().strip_prefix("tcp:").unwrap().to_owned();
    // The servers of OpenOCD and pyOCD send nothing but the channel's bytes.
    fetch(&format!("rtt:{at}"), &trace);
    for (address, channel) in [("", "0"), ("/2", "2")] {
        let port = jlink(at.clone(), channel);
        fetch(&format!("rtt:127.0.0.1:{port}{address}"), &trace);
    }
}
