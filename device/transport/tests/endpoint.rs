//! A USB endpoint that is fast, slow, full and disconnected in turn: the bytes that arrive and the bytes counted as
//! lost must add up to all bytes sent.

use embedded_io::{ErrorKind, ErrorType, Read, ReadReady, Write, WriteReady};
use kymo_transport::{EmbeddedIo, Gone, Sender, Transport};

/// State of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Fast,
    Slow,
    Full,
    Gone,
}

/// Pseudo-random numbers.
struct Random(u32);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(self.0) * u64::from(end)) >> 32) as u32
    }
}

/// The endpoint: a packet of 64 bytes waits for the host.
struct Endpoint {
    state: State,
    random: Random,
    packet: Vec<u8>,
    got: Vec<u8>,
    input: Vec<u8>,
}

impl Endpoint {
    fn new(seed: u32) -> Self {
        Self {
            state: State::Fast,
            random: Random(seed),
            packet: Vec::new(),
            got: Vec::new(),
            input: Vec::new(),
        }
    }

    /// Simulates time passing for the host.
    fn host(&mut self) {
        if self.state == State::Fast || (self.state == State::Slow && self.random.below(5) == 0) {
            self.got.append(&mut self.packet);
        }
    }

    fn change(&mut self, random: &mut Random) {
        if random.below(40) == 0 {
            self.state =
                [State::Fast, State::Slow, State::Full, State::Gone][random.below(4) as usize];
        }
    }
}

impl Transport for Endpoint {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        self.host();
        let some = self.room()?.min(bytes.len());
        self.packet.extend(&bytes[..some]);
        Ok(some)
    }

    fn room(&mut self) -> Result<usize, Gone> {
        match (self.state, self.packet.is_empty()) {
            (State::Gone, _) => Err(Gone),
            (_, true) => Ok(64),
            (_, false) => Ok(0),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
        let some = self.input.len().min(bytes.len());
        bytes[..some].copy_from_slice(&self.input[..some]);
        self.input.drain(..some);
        Ok(some)
    }
}

impl ErrorType for Endpoint {
    type Error = ErrorKind;
}

impl WriteReady for Endpoint {
    fn write_ready(&mut self) -> Result<bool, ErrorKind> {
        self.host();
        let room = self.room().map_err(|Gone| ErrorKind::NotConnected)?;
        Ok(room > 0)
    }
}

impl Write for Endpoint {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        let some = Transport::write(self, bytes).map_err(|Gone| ErrorKind::NotConnected)?;
        assert!(some > 0, "a driver would block here");
        Ok(some)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

impl ReadReady for Endpoint {
    fn read_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(!self.input.is_empty())
    }
}

impl Read for Endpoint {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ErrorKind> {
        assert!(!self.input.is_empty(), "a driver would block here");
        Transport::read(self, bytes).map_err(|Gone| ErrorKind::NotConnected)
    }
}

/// Sends texts of any length through a transport over the endpoint.
fn texts<T: Transport>(transport: T, endpoint: fn(&mut T) -> &mut Endpoint) {
    let mut random = Random(7);
    let mut sender = Sender::new(transport, 20);
    let (mut wanted, mut total, mut failed) = (Vec::new(), 0, 0);
    for n in 0..4000_u32 {
        endpoint(sender.transport()).change(&mut random);
        let text: Vec<u8> = (0..random.below(300)).map(|at| (n + at) as u8).collect();
        let before = sender.lost().bytes;
        let whole = sender.send(&text);
        let lost = (sender.lost().bytes - before) as usize;
        assert_eq!(whole, lost == 0);
        wanted.extend(&text[..text.len() - lost]);
        total += text.len();
        failed += u32::from(!whole);
    }
    let lost = sender.lost();
    let endpoint = endpoint(sender.transport());
    endpoint.state = State::Fast;
    endpoint.host();
    assert!(endpoint.got == wanted, "other bytes arrived");
    assert_eq!(
        (wanted.len() + lost.bytes as usize, lost.writes),
        (total, failed)
    );
    assert!(failed > 100 && wanted.len() > 100_000, "{failed}");

    endpoint.input.extend(b"status\r");
    let mut bytes = [0; 4];
    assert_eq!(sender.receive(&mut bytes), 4);
    assert_eq!(&bytes, b"stat");
    assert_eq!(sender.receive(&mut bytes), 3);
    assert_eq!(sender.receive(&mut bytes), 0);
}

#[test]
fn what_does_not_arrive_is_counted() {
    texts(Endpoint::new(1), |endpoint| endpoint);
}

#[test]
fn a_driver_of_embedded_io_is_never_made_to_block() {
    texts(EmbeddedIo(Endpoint::new(2)), |wrapped| &mut wrapped.0);
}

#[test]
fn events_are_whole_and_in_the_order_of_their_times() {
    let mut random = Random(3);
    let mut sender = Sender::new(Endpoint::new(4), 0);
    let mut clock = 0;
    for n in 0..5000_u32 {
        sender.transport().change(&mut random);
        sender.transport().host();
        let mut event = [0; 12];
        event[..4].copy_from_slice(&n.to_le_bytes());
        sender.emit(event, |event| {
            clock += n % 3;
            event[4..8].copy_from_slice(&clock.to_le_bytes());
        });
    }
    let lost = sender.lost();
    let endpoint = sender.transport();
    endpoint.state = State::Fast;
    endpoint.host();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let events: Vec<_> = endpoint.got.chunks(12).collect();
    let stamps: Vec<_> = events.iter().map(|event| word(&event[4..8])).collect();
    let numbers: Vec<_> = events.iter().map(|event| word(&event[..4])).collect();
    assert!(stamps.is_sorted() && numbers.is_sorted());
    assert_eq!(endpoint.got.len() + lost.bytes as usize, 5000 * 12);
    assert_eq!(events.len() as u32 + lost.writes, 5000);
    assert!(lost.writes > 500 && events.len() > 500, "{lost:?}");
}
