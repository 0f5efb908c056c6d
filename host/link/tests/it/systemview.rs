//! Start of sessions with targets of SystemView and servers of RTT channels.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use kymo_link::systemview::{Session, SystemViewAddress};
use kymo_link::{Address, Cancel, LinkError};
use kymo_systemview::{SYNC, TCP_HELLO};

const LONG: Duration = Duration::from_secs(20);

/// A server that runs this function with its first client.
fn server(
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (SystemViewAddress, JoinHandle<()>) {
    server_at("127.0.0.1:0", serve)
}

/// As [`server`], at an address of this machine.
fn server_at(
    at: &str,
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> (SystemViewAddress, JoinHandle<()>) {
    let listener = TcpListener::bind(at).unwrap();
    let local = listener.local_addr().unwrap();
    let address = SystemViewAddress {
        address: Address::Tcp {
            host: local.ip().to_string(),
            port: local.port(),
        },
        listen: false,
    };
    let thread = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        serve(&mut client);
        // Reads the client's remaining bytes, because unread ones would reset the connection before the client has read
        // everything.
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    });
    (address, thread)
}

/// Reads up to the start command, like a server of an RTT channel: the target ignores the bytes before it.
fn wait_for_start(client: &mut TcpStream) {
    let mut byte = [0];
    while byte != [1] {
        client.read_exact(&mut byte).unwrap();
    }
}

/// Acts as a SEGGER recorder: reads the greeting in one segment, and answers it.
fn greet(client: &mut TcpStream) {
    let mut hello = [0; 64];
    let size = client.read(&mut hello).unwrap();
    assert_eq!(hello[..size], TCP_HELLO);
    let mut answer = [0; 32];
    answer[..26].copy_from_slice(b"SEGGER SystemView V3.60.00");
    // In several pieces, as a small TCP stack sends it.
    client.write_all(&answer[..5]).unwrap();
    client.write_all(&answer[5..]).unwrap();
}

/// Reads a command, which follows its size.
fn command(client: &mut TcpStream) -> Vec<u8> {
    let mut size = [0];
    client.read_exact(&mut size).unwrap();
    let mut command = vec![0; size[0].into()];
    client.read_exact(&mut command).unwrap();
    command
}

fn recording() -> Vec<u8> {
    [&SYNC[..], &[10, 5], b"and so on"].concat()
}

/// All bytes of a session.
fn all(address: &SystemViewAddress) -> Vec<u8> {
    let mut session = Session::start(address, LONG, &Cancel::new()).unwrap();
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
fn a_recorder_behind_any_port_gets_commands_with_their_size() {
    let (address, thread) = server(|client| {
        greet(client);
        assert_eq!(command(client), [1]);
        client.write_all(&recording()).unwrap();
        // The host requests the descriptions of modules during the recording.
        for expected in [&[7][..], &[128, 0], &[128, 1], &[128, 2]] {
            assert_eq!(command(client), expected);
        }
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn text_of_a_server_and_an_older_recording_are_dropped() {
    for first in [
        &b"the message of an RTT server of OpenOCD's\n"[..],
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
    // Addresses at which no other program listens: on Linux all of 127.0.0.0/8 is this machine.
    let (address, thread) = server_at("127.19.1.11:19111", |client| {
        // pyOCD forwards what the target recorded before the greeting.
        client.write_all(b"\x22\x01\x01\x05").unwrap();
        greet(client);
        assert_eq!(command(client), [1]);
        client.write_all(&recording()).unwrap();
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

/// Greeting of J-Link's server.
const JLINK: &[u8] =
    b"SEGGER J-Link V7.96a - Real time terminal output\r\nSEGGER J-Link V11.0, SN=1\r\nProcess: JLinkGDBServer\r\n";

fn serve_as_j_link(client: &mut TcpStream) {
    client.write_all(JLINK).unwrap();
    let mut choice = [0; 36];
    client.read_exact(&mut choice).unwrap();
    assert_eq!(&choice, b"$$SEGGER_TELNET_ConfigStr=RTTCh;1$$\x01");
    client.write_all(&recording()).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn j_links_server_is_told_the_channel_before_anything_else() {
    let (address, thread) = server_at("127.19.0.21:19021", serve_as_j_link);
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn j_links_server_is_known_at_another_port_too() {
    let (address, thread) = server(serve_as_j_link);
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn a_target_that_was_recording_is_stopped_and_started_for_its_description() {
    let (address, thread) = server(|client| {
        wait_for_start(client);
        // The target continues an earlier recording.
        client.write_all(b"\x22\x01\x01\x05").unwrap();
        let mut byte = [0];
        while byte != [2] {
            client.read_exact(&mut byte).unwrap();
        }
        client.write_all(b"\x0b\x04").unwrap();
        wait_for_start(client);
        client.write_all(&recording()).unwrap();
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_a_client_is_waited_for() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let address: SystemViewAddress = format!("systemview:listen:127.0.0.1:{port}")
        .parse()
        .unwrap();
    let thread = std::thread::spawn(move || {
        // Connects repeatedly until it succeeds, as probe-rs does, and reads nothing.
        let mut client = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(_) => std::thread::yield_now(),
            }
        };
        client.write_all(&recording()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    });
    assert_eq!(all(&address), recording());
    thread.join().unwrap();
}

#[test]
fn waiting_for_a_server_can_be_broken_off() {
    let cancel = Cancel::new();
    cancel.cancel();
    // Port 0: the system selects one.
    let address = SystemViewAddress {
        address: Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 0,
        },
        listen: true,
    };
    let waited = Session::start(&address, LONG, &cancel).err();
    assert!(matches!(waited, Some(LinkError::Cancelled)), "{waited:?}");
}
