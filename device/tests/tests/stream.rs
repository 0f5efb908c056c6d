//! Streams: packets are sent while the target continues to record.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kymo_device_tests::layout::Small;
use kymo_device_tests::{Host, Kind, Mock, Packet, Random, config, hot, leak, packets};
use kymo_recorder::config::{Config, START_ON, STREAM};
use kymo_recorder::hot::Hot;
use kymo_recorder::link::{BURST, WINDOW};
use kymo_recorder::single::Single;
use kymo_recorder::{Edge, Target};
use kymo_wire::event::MetadataType;
use kymo_wire::link::{DUMP_TIMEOUT_MS, Identity, Mode};

thread_local! {
    /// Output of the target of this thread's test.
    static SENT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn send(bytes: *const u8, count: usize) {
    // SAFETY: the recorder gives a slice.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    SENT.with_borrow_mut(|sent| sent.push(bytes.to_vec()));
}

#[derive(Clone, Copy)]
struct Device {
    hot: &'static Hot,
    single: &'static Single<Mock<Small>>,
    config: &'static Config,
}

impl Device {
    fn new(config: Config) -> Self {
        Self {
            hot: hot(),
            single: leak(Single::new(Mock::default())),
            config: leak(Config {
                flags: START_ON | config.flags,
                send: Some(send),
                metadata: vec![0u64; 64].leak().as_mut_ptr().cast(),
                metadata_size: 512,
                ..config
            }),
        }
    }

    fn call(self, function: usize) {
        for edge in [Edge::Enter, Edge::Exit] {
            self.single.call(self.hot, self.config, edge, function, 0);
        }
    }

    fn receive(self, bytes: &[u8]) {
        for &byte in bytes {
            self.single.receive(self.hot, byte);
        }
    }

    /// Sends bytes to the target, runs it, and returns its output, write by write.
    fn talk(self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.receive(bytes);
        self.single.poll(self.hot, self.config);
        SENT.take()
    }

    fn tick(self) {
        self.single.tick(self.hot, self.config);
        assert!(SENT.with_borrow(Vec::is_empty), "a tick does not send");
    }

    fn name(self, name: &[u8]) {
        self.single
            .describe(self.hot, self.config, MetadataType::ThreadName, 5, name);
    }

    fn passes(self, milliseconds: u64) {
        let time = &self.single.port().time;
        time.set(time.get() + milliseconds * 1000);
    }

    fn pending(self) -> bool {
        self.single.pending(self.hot, self.config)
    }
}

/// Host that receives a stream, written from the description of the protocol.
#[derive(Default)]
struct Receiver {
    host: Host,
    /// The number of the first piece that has not arrived.
    next: u32,
    bytes: Vec<u8>,
}

impl Receiver {
    fn hear(&mut self, sent: Vec<Vec<u8>>) {
        self.host.hear(&sent.concat());
        while let Some(piece) = self.host.pieces.get(&self.next) {
            self.bytes.extend_from_slice(piece);
            self.next += 1;
        }
    }

    /// Sends a command, and returns the answer.
    fn request(&mut self, device: Device, command: &str) -> (bool, String) {
        self.host.replies.clear();
        self.hear(device.talk(&Host::command(9, command)));
        let (_, ok, text) = self.host.replies.pop().expect("an answer");
        (ok, text)
    }

    fn start(device: Device, flush: u32) -> Self {
        let mut receiver = Self::default();
        let (ok, text) = receiver.request(device, &format!("stream on {flush}"));
        assert!(ok, "{text}");
        assert_eq!(text, format!("window={WINDOW}"));
        receiver
    }

    fn acknowledge(&mut self, device: Device) {
        let ack = format!("ack {}", self.next);
        self.hear(device.talk(&Host::command(2, &ack)));
    }

    /// Receives until the target reports the end.
    fn finish(&mut self, device: Device) {
        for _ in 0..10_000 {
            let (ok, text) = self.request(device, "stream off");
            assert!(ok, "{text}");
            if text == format!("sending=0 pieces={}", self.next) {
                return;
            }
            assert!(text.starts_with("sending=1 "), "{text}");
            self.acknowledge(device);
        }
        panic!("it never ends");
    }

    fn packets(&self) -> Vec<Packet> {
        packets(&self.bytes, Mock::<Small>::LAYOUT, 0x1000)
    }
}

const METADATA: u16 = 0xFFFF;

/// Counts the calls in packets of events, of which none may be missing: returns the number of calls, ended or not, and
/// of lost ones.
fn account(packets: &[Packet]) -> (usize, u32) {
    let events = || packets.iter().filter(|packet| packet.cpu != METADATA);
    for (expected, packet) in events().enumerate() {
        assert_eq!(packet.sequence as usize, expected, "a packet is missing");
    }
    let calls = events().flat_map(|packet| &packet.records);
    let calls = calls.filter(|record| matches!(record.kind, Kind::Enter(_) | Kind::Exit(_)));
    (
        calls.count(),
        events().next_back().map_or(0, |packet| packet.discarded),
    )
}

#[test]
fn everything_arrives_whole_over_a_bad_cable_while_recording_goes_on() {
    let device = Device::new(config(16, 1024));
    let mut random = Random::new(7);
    let mut receiver = Receiver::start(device, 10);
    let mut worst = |receiver: &mut Receiver, sent: Vec<Vec<u8>>| {
        let mut arrived = Vec::new();
        for mut frame in sent {
            if random.one_in(10) {
                continue;
            }
            if random.one_in(10) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
            // The program prints into the middle of everything but frames.
            arrived.push(b"hello\r\n".to_vec());
            arrived.push(frame);
        }
        receiver.hear(arrived);
    };
    let mut total = 0;
    for _ in 0..500 {
        for i in 0..30 {
            device.call(0x1100 + 16 * (i % 7));
            total += 2;
        }
        device.passes(3);
        device.tick();
        for _ in 0..8 {
            let pieces = &receiver.host.pieces;
            let known = pieces.last_key_value().map_or(0, |(last, _)| *last);
            let say = match (receiver.next..known).find(|n| !pieces.contains_key(n)) {
                Some(first) => format!("resend {first} {first}"),
                None => format!("ack {}", receiver.next),
            };
            let sent = device.talk(&Host::command(3, &say));
            worst(&mut receiver, sent);
        }
    }
    assert!(receiver.host.damaged > 20, "the cable was bad");
    // The rest over a good one.
    receiver.finish(device);
    let (calls, discarded) = account(&receiver.packets());
    assert_eq!(calls + discarded as usize, total);
    assert_eq!(discarded, 0, "there was time for all");
}

#[test]
fn what_finds_no_room_is_counted_in_its_packet_and_everything_else_is_there() {
    let device = Device::new(config(4, 1024));
    let mut receiver = Receiver::start(device, 0);
    let mut total = 0;
    for pause in [0, 3000, 10, 6000] {
        for _ in 0..pause {
            device.call(0x1100);
            total += 2;
        }
        // The host comes back.
        for _ in 0..20 {
            receiver.acknowledge(device);
        }
        for _ in 0..10 {
            device.call(0x1100);
            total += 2;
        }
    }
    receiver.finish(device);
    let packets = receiver.packets();
    let (calls, discarded) = account(&packets);
    assert!(discarded > 1000);
    assert_eq!(calls + discarded as usize, total);
    let counts: Vec<u32> = packets.iter().map(|packet| packet.discarded).collect();
    assert!(counts.is_sorted());
    // Losses are reported where they were, not all at the end.
    assert!(counts.iter().any(|count| *count > 0 && *count < discarded));
}

#[test]
fn the_tick_closes_what_is_open_and_names_come_first_and_again() {
    let device = Device::new(config(16, 1024));
    device.name(b"early");
    let mut receiver = Receiver::start(device, 100);
    let cpus = |receiver: &Receiver| -> Vec<u16> {
        receiver.packets().iter().map(|packet| packet.cpu).collect()
    };
    assert_eq!(cpus(&receiver), [METADATA]);
    receiver.acknowledge(device);
    device.call(0x1100);
    device.tick();
    assert!(!device.pending(), "it is too soon");
    device.passes(110);
    device.tick();
    assert!(device.pending());
    receiver.hear(device.talk(b""));
    assert_eq!(cpus(&receiver), [METADATA, 0]);
    assert!(!device.pending());
    receiver.acknowledge(device);
    // A program without a tick has it done by polling.
    device.call(0x1100);
    device.passes(110);
    receiver.hear(device.talk(b""));
    assert_eq!(cpus(&receiver), [METADATA, 0, 0]);
    device.name(b"late");
    receiver.hear(device.talk(b""));
    assert_eq!(cpus(&receiver), [METADATA, 0, 0, METADATA]);
    let names = |packet: &Packet| {
        let names = packet.records.iter();
        names
            .filter(|record| matches!(record.kind, Kind::Metadata { kind: 1, .. }))
            .count()
    };
    let packets = receiver.packets();
    assert_eq!((names(&packets[0]), names(&packets[3])), (1, 2));
    // A name that comes while they are sent does not change what is sent again.
    device.name(b"later");
    let piece = receiver.host.pieces.remove(&3);
    receiver.hear(device.talk(&Host::command(4, "resend 3 3")));
    assert_eq!(receiver.host.pieces.remove(&3), piece);
}

#[test]
fn a_tail_that_was_lost_is_sent_again() {
    let device = Device::new(config(16, 1024));
    let mut receiver = Receiver::start(device, 100);
    receiver.acknowledge(device);
    device.call(0x1100);
    device.passes(110);
    assert_eq!(device.talk(b"").len(), 1, "and it is lost");
    receiver.acknowledge(device);
    assert_eq!(account(&receiver.packets()), (0, 0), "it may be on its way");
    receiver.acknowledge(device);
    assert_eq!(account(&receiver.packets()), (2, 0));
}

#[test]
fn a_host_that_is_gone_is_forgotten_and_the_next_one_gets_what_was_kept() {
    let device = Device::new(config(16, 1024));
    let mut first = Receiver::start(device, 0);
    let mut total = 0;
    let mut work = |calls: usize| {
        for _ in 0..calls {
            device.call(0x1100);
        }
        total += 2 * calls;
        total
    };
    work(1000);
    first.hear(device.talk(b""));
    assert!(account(&first.packets()).0 > 0);
    device.passes(u64::from(DUMP_TIMEOUT_MS) - 100);
    device.tick();
    work(1000);
    assert!(device.pending(), "it may still come back");
    device.passes(200);
    device.tick();
    assert!(!device.pending());
    assert_eq!(
        first.request(device, "ack 1"),
        (false, "no stream is going on".into())
    );
    // That is not the end of all that the host wanted.
    assert_eq!(
        first.request(device, "stream off"),
        (false, "no stream is going on".into())
    );
    // It goes on recording as long as there is room, and counts what comes then.
    let total = work(20_000);
    let mut second = Receiver::start(device, 0);
    second.finish(device);
    let (_, again) = second.request(device, "stream off");
    assert_eq!(again, format!("sending=0 pieces={}", second.next));
    let (calls, discarded) = account(&second.packets());
    assert!(discarded > 0);
    assert_eq!(
        calls + discarded as usize,
        total,
        "nothing was acknowledged"
    );
}

#[test]
fn other_commands_work_meanwhile_but_those_that_would_take_the_packets_away() {
    let device = Device::new(config(16, 1024));
    device.call(0x1100);
    let mut receiver = Receiver::start(device, 0);
    for command in ["status", "ping", "trigger 0x1200", "listsets", "on", "time"] {
        assert!(receiver.request(device, command).0, "{command}");
    }
    assert!(
        receiver
            .request(device, "status")
            .1
            .contains(" mode=stream ")
    );
    for command in ["clear", "mode fixed", "dump_trace", "dump_profile"] {
        let refused = "a stream is going on (stream off ends it)".to_owned();
        assert_eq!(receiver.request(device, command), (false, refused));
    }
    device.call(0x1100);
    device.single.clear(device.hot, device.config);
    receiver.finish(device);
    assert_eq!(
        account(&receiver.packets()).0,
        2,
        "what was there is forgotten"
    );
    // The mode is that of before, and everything works again.
    assert!(
        receiver
            .request(device, "status")
            .1
            .contains(" mode=overwrite ")
    );
    assert!(receiver.request(device, "dump_trace").0);
    assert!(receiver.request(device, "done").0);
}

#[test]
fn a_build_may_wait_for_a_stream_from_its_start() {
    let device = Device::new(Config {
        flags: STREAM,
        ..config(16, 1024)
    });
    for _ in 0..500 {
        device.call(0x1100);
    }
    let line = String::from_utf8(device.talk(b"identify\r").concat()).unwrap();
    let identity = Identity::parse(&line).expect("a clean line");
    assert!(identity.capabilities.stream);
    assert_eq!(identity.mode, Mode::Stream);
    let mut receiver = Receiver::start(device, 0);
    receiver.finish(device);
    assert_eq!(account(&receiver.packets()), (1000, 0));
    assert!(
        receiver
            .request(device, "status")
            .1
            .contains(" mode=stream ")
    );
    // Somebody who asks in text does not know of a stream: nothing more is sent to him.
    let _other = Receiver::start(device, 0);
    device.talk(b"identify\r");
    for _ in 0..1000 {
        device.call(0x1100);
    }
    assert!(device.talk(b"").is_empty());
}

#[test]
fn the_end_waits_for_what_is_being_filled_and_says_what_it_did_not_wait_for() {
    for filled in [true, false] {
        let device = Device::new(config(16, 1024));
        let mut receiver = Receiver::start(device, 0);
        device.call(0x1100);
        let record = device.single.reserve(device.hot, device.config, 8);
        assert!(!record.is_null());
        device.call(0x1100);
        let off = |receiver: &mut Receiver| {
            receiver.acknowledge(device);
            let (ok, text) = receiver.request(device, "stream off");
            assert!(ok, "{text}");
            text
        };
        for _ in 0..10 {
            assert!(off(&mut receiver).starts_with("sending=1 "));
            device.passes(50);
        }
        assert_eq!(account(&receiver.packets()).0, 0);
        if filled {
            // SAFETY: it was reserved, and is not used again.
            unsafe { device.single.commit(device.hot, record, 7) };
            receiver.finish(device);
            assert_eq!(account(&receiver.packets()).0, 4);
            continue;
        }
        device.passes(600);
        let end = format!("sending=0 pieces={} reserved=1", receiver.next);
        assert_eq!(off(&mut receiver), end);
        assert_eq!(off(&mut receiver), end, "whoever asks again");
        // It is there for the next stream, if the program finishes it.
        let status = receiver.request(device, "status").1;
        assert!(status.contains(" mode=stream "), "{status}");
        // SAFETY: as above.
        unsafe { device.single.commit(device.hot, record, 7) };
        let mut next = Receiver::start(device, 0);
        next.finish(device);
        assert_eq!(account(&next.packets()).0, 4);
        let status = next.request(device, "status").1;
        assert!(status.contains(" mode=overwrite "), "{status}");
    }
}

#[test]
fn a_poll_does_not_send_for_ever() {
    let device = Device::new(config(64, 4096));
    let receiver = Receiver::start(device, 0);
    for _ in 0..40_000 {
        device.call(0x1100);
    }
    let sent = device.talk(b"");
    assert_eq!(sent.len(), BURST as usize);
    assert!(device.pending());
    // Until too much is on its way.
    let mut pieces = receiver.host.pieces.len() + sent.len();
    while device.pending() {
        let sent = device.talk(b"");
        assert!(sent.len() <= BURST as usize);
        pieces += sent.len();
    }
    assert!(pieces <= WINDOW * 4096_usize.div_ceil(240));
    assert!(device.talk(b"").is_empty());
}

#[test]
fn the_time_of_day_is_that_of_the_moment_at_which_it_is_recorded() {
    let device = Device::new(config(16, 1024));
    device.call(0x1100);
    let mut receiver = Receiver::start(device, 0);
    let (ok, text) = receiver.request(device, "time");
    assert!(ok);
    let ticks: u64 = text.strip_prefix("ticks=").unwrap().parse().unwrap();
    device.passes(1500);
    let ns = 1_792_600_000_123_456_789;
    let tell = format!("wall_clock {ticks} {ns} 40000");
    assert_eq!(receiver.request(device, &tell), (true, "recorded=1".into()));
    receiver.request(device, "off");
    assert_eq!(receiver.request(device, &tell), (true, "recorded=0".into()));
    receiver.finish(device);
    let packets = receiver.packets();
    let records = packets.iter().flat_map(|packet| &packet.records);
    let reported: BTreeMap<u64, (u64, u32)> = records
        .filter_map(|record| match record.kind {
            Kind::WallClock { ns, uncertainty } => Some((record.time, (ns, uncertainty))),
            _ => None,
        })
        .collect();
    assert_eq!(reported.len(), 1);
    // At a million ticks a second.
    let (&time, &reported) = reported.first_key_value().unwrap();
    assert_eq!(reported, (ns + (time - ticks) * 1000, 40_000));
    assert!(time - ticks >= 1_500_000);
}
