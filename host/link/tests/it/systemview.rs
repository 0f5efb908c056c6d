//! Targets of SystemView and servers of RTT channels, as they greet and begin.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use kymo_link::Address;
use kymo_link::systemview::{Session, SystemViewAddress};
use kymo_systemview::{SYNC, TCP_HELLO};

const LONG: Duration = Duration::from_secs(20);

/// A server that does so with its first client.
fn server(
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (SystemViewAddress, JoinHandle<()>) {
    server_at("127.0.0.1:0", serve)
}

/// The same at an address of this machine.
fn server_at(
    at: &str,
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (SystemViewAddress, JoinHandle<()>) {
    let listener = TcpListener::bind(at).unwrap();
    let local = listener.local_addr().unwrap();
    let address = SystemViewAddress(Address::Tcp {
        host: local.ip().to_string(),
        port: local.port(),
    });
    let thread = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        serve(&mut client);
        // What the client still sends must not reset the connection before it has read all.
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    });
    (address, thread)
}

/// Reads up to the command to start.
fn wait_for_start(client: &mut TcpStream) {
    let mut byte = [0];
    while byte != [1] {
        client.read_exact(&mut byte).unwrap();
    }
}

fn recording() -> Vec<u8> {
    [&SYNC[..], &[10, 5], b"and so on"].concat()
}

/// All that comes until the end.
fn all(address: &SystemViewAddress) -> Vec<u8> {
    let mut session = Session::start(address, LONG).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 7]);
    loop {
        match session.read(&mut buffer, Duration::from_millis(20)) {
            Ok(read) => all.extend(&buffer[..read]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                return all;
            }
        }
    }
}

#[test]
fn a_recorder_greets_and_is_greeted() {
    let (address, thread) = server(|client| {
        let mut hello = [0; 32];
        client.read_exact(&mut hello).unwrap();
        assert_eq!(hello, TCP_HELLO);
        client
            .write_all(b"SEGGER SystemView V3.60.00\0\0\0\0\0\0")
            .unwrap();
        wait_for_start(client);
        client.write_all(&recording()).unwrap();
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn text_of_a_server_and_an_older_recording_are_dropped() {
    for first in [
        &b"SEGGER J-Link V7.96a - Real time terminal output\r\nProcess: JLinkExe\r\n"[..],
        b"\x22\x01\x01\x05\x04",
    ] {
        let (address, thread) = server(move |client| {
            client.write_all(first).unwrap();
            wait_for_start(client);
            client.write_all(&recording()).unwrap();
        });
        assert_eq!(all(&address), recording());
        thread.join().unwrap();
    }
}

#[test]
fn a_target_that_does_not_listen_is_read_from_where_it_is() {
    let packets = b"\x22\x01\x01\x05\x04\x40\x01";
    let (address, thread) = server(move |client| client.write_all(packets).unwrap());
    assert_eq!(all(&address), packets);
    thread.join().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn the_recorder_at_its_own_port_waits_for_the_host() {
    // Addresses that nothing else listens at: on Linux all of 127.0.0.0/8 is this machine.
    let (address, thread) = server_at("127.19.1.11:19111", |client| {
        let mut hello = [0; 32];
        client.read_exact(&mut hello).unwrap();
        assert_eq!(hello, TCP_HELLO);
        let mut answer = [0; 32];
        answer[..26].copy_from_slice(b"SEGGER SystemView V3.60.00");
        client.write_all(&answer).unwrap();
        wait_for_start(client);
        client.write_all(&recording()).unwrap();
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn j_links_server_is_told_the_channel_before_anything_else() {
    let (address, thread) = server_at("127.19.0.21:19021", |client| {
        let banner =
            b"SEGGER J-Link V7.96a - Real time terminal output\r\nSEGGER J-Link V11.0, SN=1\r\n";
        client.write_all(banner).unwrap();
        let mut choice = [0; 36];
        client.read_exact(&mut choice).unwrap();
        assert_eq!(&choice, b"$$SEGGER_TELNET_ConfigStr=RTTCh;1$$\x01");
        client.write_all(&recording()).unwrap();
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}
