//! A Rust program whose link uses its own transport: a USB endpoint that is slow, and unplugged in the middle of a
//! dump.

use std::sync::{Mutex, PoisonError};

use kymo::transport::{Gone, Lost, Sender, Transport};
use kymo::{Link, Packets, Recorder};
use kymo_device_tests::{Host, Kind, packets};
use kymo_wire::link::Identity;

/// Packets of 64 bytes, of which the host takes one at every third poll.
struct Endpoint {
    looks: u32,
    packet: Vec<u8>,
    got: Vec<u8>,
    input: Vec<u8>,
    /// Number of bytes that the host takes before it is unplugged.
    cable: usize,
}

impl Transport for Endpoint {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        if self.got.len() >= self.cable {
            return Err(Gone);
        }
        self.looks += 1;
        if self.looks.is_multiple_of(3) {
            self.got.append(&mut self.packet);
        }
        if !self.packet.is_empty() {
            return Ok(0);
        }
        let some = bytes.len().min(64);
        self.packet.extend(&bytes[..some]);
        Ok(some)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
        let some = self.input.len().min(bytes.len());
        bytes[..some].copy_from_slice(&self.input[..some]);
        self.input.drain(..some);
        Ok(some)
    }
}

static ENDPOINT: Mutex<Sender<Endpoint>> = Mutex::new(Sender::new(
    Endpoint {
        looks: 0,
        packet: Vec::new(),
        got: Vec::new(),
        input: Vec::new(),
        cable: usize::MAX,
    },
    100,
));

struct Usb;

impl Link for Usb {
    type Transport = Endpoint;
    fn with<R>(then: impl FnOnce(&mut Sender<Endpoint>) -> R) -> R {
        then(&mut ENDPOINT.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

static EVENTS: Packets<1024, 64> = Packets::new();

kymo::recorder!(Recorder::new(&EVENTS).link::<Usb>());

/// Sends this to the target, which receives it up to the end of `cable`.
fn talk(bytes: &[u8], cable: usize) -> (Host, Lost) {
    let before = Usb::with(|sender| {
        let endpoint = sender.transport();
        endpoint.input.extend(bytes);
        endpoint.got.clear();
        endpoint.cable = cable;
        sender.lost()
    });
    kymo::poll_link::<Usb>();
    Usb::with(|sender| {
        let after = sender.lost();
        let endpoint = sender.transport();
        let last = std::mem::take(&mut endpoint.packet);
        let mut host = Host::default();
        host.hear(&endpoint.got);
        if endpoint.got.len() < cable {
            host.hear(&last);
        }
        let lost = Lost {
            writes: after.writes - before.writes,
            bytes: after.bytes - before.bytes,
        };
        (host, lost)
    })
}

#[test]
fn a_link_through_a_transport_of_the_programs_own() {
    kymo::on();
    for n in 0..2000 {
        kymo::marker(n);
    }
    kymo::off();
    let (host, lost) = talk(b"identify\r", usize::MAX);
    assert_eq!(lost, Lost::default());
    let identity = host
        .text
        .lines()
        .find_map(Identity::parse)
        .expect("it answers");

    let (whole, lost) = talk(&Host::command(5, "dump_trace"), usize::MAX);
    assert_eq!(lost, Lost::default());
    talk(&Host::command(6, "done"), usize::MAX);
    let check = |host: &Host| {
        let packets = packets(&host.dump(), identity.layout, identity.text_base);
        let records = packets.iter().flat_map(|packet| &packet.records);
        let markers = records.filter_map(|record| match record.kind {
            Kind::Marker(value) => Some(value),
            _ => None,
        });
        assert!(markers.eq(0..2000));
    };
    check(&whole);

    // Unplugged: the bytes to be sent are lost and counted. Then the whole dump again.
    let (part, lost) = talk(&Host::command(7, "dump_trace"), 1000);
    assert!(part.ends.is_empty() && !part.pieces.is_empty());
    assert!(lost.writes > 0 && lost.bytes > 1000, "{lost:?}");
    let (again, lost) = talk(&Host::command(8, "dump_trace"), usize::MAX);
    assert_eq!(lost, Lost::default());
    check(&again);
}
