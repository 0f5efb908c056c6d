//! Sessions with a target: commands, refusals, dumps over unreliable lines.

use std::cell::RefCell;

use kymo_device_tests::layout::Small;
use kymo_device_tests::{Host, Kind, Mock, Random, config, hot, leak, packets};
use kymo_recorder::config::{Config, START_ON};
use kymo_recorder::gate::Gate;
use kymo_recorder::hot::Hot;
use kymo_recorder::link::check_receiver;
use kymo_recorder::single::Single;
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::clock_check::TickCheck;
use kymo_wire::event::ByteOrder;
use kymo_wire::link::{DUMP_TIMEOUT_MS, Identity, Mode};
use kymo_wire::profile::{Entry, TableHeader};

#[path = "link/conditions.rs"]
mod conditions;
#[path = "link/names.rs"]
mod names;
#[path = "link/stopper.rs"]
mod stopper;
#[path = "link/ways_out.rs"]
mod ways_out;

thread_local! {
    /// Output of the target of this thread's test.
    static SENT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// What another thread does while it sends.
    static BESIDE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

unsafe extern "C" fn send(bytes: *const u8, count: usize) {
    // SAFETY: the recorder gives a slice.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    if let Some(mut beside) = BESIDE.take() {
        beside();
        BESIDE.set(Some(beside));
    }
    SENT.with_borrow_mut(|sent| sent.push(bytes.to_vec()));
}

#[derive(Clone, Copy)]
struct Device {
    hot: &'static Hot,
    gate: &'static Gate,
    single: &'static Single<Mock<Small>>,
    config: &'static Config,
}

impl Device {
    fn new(config: Config) -> Self {
        let words = |count: usize| vec![0u64; count].leak().as_mut_ptr().cast();
        let hot = hot();
        Self {
            hot,
            gate: &hot.gate,
            single: leak(Single::new(Mock::default())),
            config: leak(Config {
                flags: START_ON,
                send: Some(send),
                slots: words(6 * 32),
                slot_count: 32,
                frames: words(5 * 2 * 16),
                shadow_stacks: 2,
                shadow_depth: 16,
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

    fn poll(self) {
        self.single.poll(self.hot, self.config);
    }

    /// Sends bytes to the target and returns its output, write by write.
    fn talk(self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.receive(bytes);
        self.poll();
        SENT.take()
    }

    /// The answer to a line.
    fn line(self, line: &str) -> String {
        String::from_utf8(self.talk(line.as_bytes()).concat()).expect("text")
    }

    /// The answer to a command in a frame.
    fn frame(self, text: &str) -> (bool, String) {
        let mut host = Host::default();
        host.hear(&self.talk(&Host::command(9, text)).concat());
        let (request, ok, text) = host.replies.pop().expect("an answer");
        assert_eq!(request, 9);
        (ok, text)
    }

    fn passes(self, milliseconds: u64) {
        let time = &self.single.port().time;
        time.set(time.get() + milliseconds * 1000);
    }
}

/// The calls in a dump.
fn calls(dump: &[u8]) -> usize {
    packets(dump, Mock::<Small>::LAYOUT, 0x1000)
        .iter()
        .flat_map(|packet| &packet.records)
        .filter(|record| matches!(record.kind, Kind::Enter(_) | Kind::Exit(_)))
        .count()
}

#[test]
fn people_get_lines_and_programs_get_frames() {
    let device = Device::new(config(16, 1024));
    assert_eq!(device.line("ping\r"), "kymo ping: pong\r\n");
    assert_eq!(device.frame("ping"), (true, "pong".into()));
    assert_eq!(device.line("\r\n  \r\n"), "", "an empty line does nothing");
    assert_eq!(device.line("p\r"), "kymo error: unknown command\r\n");
    assert_eq!(
        device.line("trigger 0x100000000\r"),
        if usize::BITS == 64 {
            "kymo trigger: ok\r\n"
        } else {
            "kymo error: the address does not fit this target\r\n"
        }
    );
    assert_eq!(
        device.line("trigger 0x1200\rstopper 1300\n"),
        "kymo trigger: ok\r\nkymo stopper: ok\r\n"
    );
    assert_eq!(
        device.frame("listsets"),
        (true, "trigger=0x1200 stopper=0x1300".into())
    );
    assert_eq!(
        device.frame("trigger"),
        (false, "an argument is missing".into())
    );
    assert_eq!(
        device.frame("reboot"),
        (
            false,
            "this target cannot reboot (kymo_config.reboot)".into()
        )
    );
    assert_eq!(
        device.frame("resend 0 1"),
        (false, "no dump is going on".into())
    );
    let long = "x".repeat(400) + "\r";
    assert_eq!(device.line(&long), "kymo error: the line is too long\r\n");
}

#[test]
fn a_command_that_lost_its_middle_is_refused() {
    let device = Device::new(config(16, 1024));
    device.receive("ping\r".repeat(102).as_bytes());
    // Two bytes fit, the rest does not; then the target looks, and the end arrives.
    device.receive(b"trigger 0x1234");
    let answer = device.line("");
    assert_eq!(answer, "kymo ping: pong\r\n".repeat(102));
    assert_eq!(
        device.line("5678\r"),
        "kymo error: bytes of the line were lost\r\n"
    );
    assert_eq!(device.gate.trigger(), 0);
    assert!(
        device
            .frame("status")
            .1
            .contains(" damaged=1 lost_bytes=13 ")
    );
}

#[test]
fn the_target_says_who_and_how_it_is() {
    let device = Device::new(Config {
        tick_hz: 100,
        ..config(16, 1024)
    });
    let line = device.line("identify\r");
    let identity = Identity::parse(&line).expect("a clean line");
    assert_eq!(identity.layout, Mock::<Small>::LAYOUT);
    assert_eq!(
        (identity.buffer_bytes, identity.packet_bytes),
        (16 << 10, 1024)
    );
    assert_eq!((identity.clock_hz, identity.clock_bits), (1_000_000, 32));
    assert!(identity.capabilities.sure_clock && identity.capabilities.profile);
    assert!(!identity.capabilities.reboot && !identity.capabilities.retained);
    // A host that lost its place gets the line, and its answer.
    let sent = device.talk(&Host::command(3, "identify"));
    assert_eq!(sent[0], line.as_bytes());
    device.call(0x1100);
    assert_eq!(
        device.frame("status").1,
        "enabled=1 on=1 mode=overwrite used=1024 needed=1024 bytes=53 discarded=0 packets=1 \
         functions=1 slots=32 no_slot=0 damaged=0 lost_bytes=0 refused=0 backward=0 \
         clock_gaps=0"
    );
    assert_eq!(device.frame("off"), (true, "ok".into()));
    assert_eq!(device.frame("disable"), (true, "ok".into()));
    assert!(device.frame("status").1.starts_with("enabled=0 on=0 "));
    assert_eq!(device.frame("mode fixed"), (true, "ok".into()));
    let status = device.frame("status").1;
    assert!(
        status.contains("mode=fixed used=0 needed=0 bytes=0"),
        "{status}"
    );
    let line = device.line("identify\r");
    assert_eq!(Identity::parse(&line).map(|i| i.mode), Some(Mode::Fixed));
}

#[test]
fn the_target_compares_its_clock_with_the_tick() {
    // The tick comes 100 times a second; the clock says that 10 times as much passes.
    let with_tick = Config {
        tick_hz: 100,
        ..config(16, 1024)
    };
    let device = Device::new(with_tick);
    device.single.port().step.set(0);
    device.call(0x1100);
    device.passes(50);
    let said = |device: Device| {
        let (ok, text) = device.frame("time");
        assert!(ok);
        let behind = text.split_once(" tick_hz=").map(|(_, behind)| behind);
        behind.unwrap_or_default().to_owned()
    };
    assert_eq!(said(device), "100 tick_count=0 tick_clock=50000");
    let recorded = |device: Device| {
        let mut host = Host::default();
        host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
        device.frame("done");
        let packets = packets(&host.dump(), Mock::<Small>::LAYOUT, 0x1000);
        let values = packets[0]
            .records
            .iter()
            .filter_map(|record| match &record.kind {
                Kind::Metadata { kind: 10, value } => Some(value.clone()),
                _ => None,
            });
        let values: Vec<_> = values.collect();
        assert_eq!(values.len(), 1, "it has one place");
        TickCheck::decode(ByteOrder::Little, &values[0])
    };
    let expected = |clock, count| {
        Some(TickCheck {
            clock,
            count,
            hz: 100,
        })
    };
    assert_eq!(recorded(device), expected(50_000, 0));
    for _ in 0..21 {
        device.passes(100);
        device.single.tick(device.hot, device.config);
    }
    assert_eq!(said(device), "100 tick_count=20 tick_clock=2000000");
    assert_eq!(recorded(device), expected(2_000_000, 20));
    // What a debugger finds without being announced is from a while ago.
    for _ in 21..=40 {
        device.passes(100);
        device.single.tick(device.hot, device.config);
    }
    // SAFETY: nobody writes.
    let memory = unsafe {
        std::slice::from_raw_parts(
            device.config.metadata.cast::<u8>(),
            device.config.metadata_size as usize,
        )
    };
    let value = expected(3_200_000, 32).unwrap().encode(ByteOrder::Little);
    assert!(memory.windows(value.len()).any(|found| found == value));
    // A counter that stands still.
    for _ in 0..100 {
        device.single.tick(device.hot, device.config);
    }
    assert_eq!(said(device), "100 tick_count=140 tick_clock=4000000");
    let without = Device::new(config(16, 1024));
    assert_eq!(said(without), "", "without a tick there is nothing to say");
}

#[test]
fn a_dump_is_whole_takes_nothing_away_and_recording_goes_on() {
    let device = Device::new(config(16, 1024));
    for i in 0..500 {
        device.call(0x1100 + 2 * i);
    }
    let mut host = Host::default();
    host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
    let dump = host.dump();
    let frames = host.ends[0].0;
    // By the clock the host knows a target that starts again.
    let announced = format!("bytes={} frames={frames} ticks=", dump.len());
    assert!(
        host.replies[0].2.starts_with(&announced),
        "{:?}",
        host.replies
    );
    assert_eq!(calls(&dump), 1000);
    // The host is not done: what happens now is lost, and counted.
    device.call(0x1100);
    // The program does not take away what the host reads.
    device.single.clear(device.hot, device.config);
    let mut again = Host::default();
    let sent = device.talk(&Host::command(2, "resend 0 2"));
    again.hear(&sent.concat());
    assert_eq!(again.pieces.len(), 3);
    assert_eq!(again.ends, host.ends);
    for (n, piece) in &again.pieces {
        assert_eq!(piece, &host.pieces[n]);
    }
    assert!(!device.frame(&format!("resend 2 {frames}")).0);
    assert!(!device.frame("resend 3 2").0);
    assert_eq!(device.frame("done"), (true, "ok".into()));
    device.call(0x1100);
    let mut after = Host::default();
    after.hear(&device.talk(&Host::command(3, "dump_trace")).concat());
    let after = after.dump();
    assert_eq!(calls(&after), 1002);
    let last = packets(&after, Mock::<Small>::LAYOUT, 0x1000).pop();
    assert_eq!(last.map(|packet| packet.discarded), Some(2));
    device.frame("done");
    assert_eq!(device.frame("clear"), (true, "ok".into()));
    let mut empty = Host::default();
    empty.hear(&device.talk(&Host::command(4, "dump_trace")).concat());
    assert_eq!(calls(&empty.dump()), 0);
}

#[test]
fn everything_arrives_whole_over_a_bad_cable() {
    let device = Device::new(config(64, 1024));
    for i in 0..12_000 {
        device.call(0x1100 + 2 * (i % 50));
    }
    let mut random = Random::new(1);
    let mut host = Host::default();
    let mut worst = |host: &mut Host, sent: Vec<Vec<u8>>| {
        for mut frame in sent {
            // The program prints into the middle of everything but frames.
            host.hear(b"hello\r\n");
            if random.one_in(50) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
            if random.one_in(50) {
                continue;
            }
            host.hear(&frame);
        }
    };
    let (mut frames, mut rounds) = (None, 0);
    worst(&mut host, device.talk(&Host::command(1, "dump_trace")));
    let whole = loop {
        rounds += 1;
        assert!(rounds < 100);
        frames = frames.or(host.ends.first().map(|end| end.0));
        let request = match frames {
            None => "resend 0 0".to_owned(),
            Some(frames) => match host.missing(frames).first() {
                None => break host.dump(),
                Some(first) => format!("resend {first} {first}"),
            },
        };
        worst(&mut host, device.talk(&Host::command(2, &request)));
    };
    assert!(host.damaged > 0 && rounds > 2, "the cable was bad");
    device.frame("done");
    let mut clean = Host::default();
    clean.hear(&device.talk(&Host::command(3, "dump_trace")).concat());
    assert_eq!(clean.dump(), whole);
}

#[test]
fn a_host_can_stop_a_dump_and_one_that_is_gone_is_forgotten() {
    let device = Device::new(config(64, 1024));
    for _ in 0..3000 {
        device.call(0x1100);
    }
    // Both arrive before the target looks: the dump ends before its first piece.
    let both = [Host::command(1, "dump_trace"), Host::command(2, "done")].concat();
    let mut host = Host::default();
    host.hear(&device.talk(&both).concat());
    assert_eq!((host.pieces.len(), host.replies.len()), (0, 2));
    let before = device.single.writer().stream().figures().bytes;
    device.call(0x1100);
    let recorded = device.single.writer().stream().figures().bytes;
    assert!(recorded > before, "recording goes on");

    device.talk(&Host::command(3, "dump_trace"));
    device.passes(u64::from(DUMP_TIMEOUT_MS) - 100);
    device.poll();
    assert!(device.gate.state().frozen());
    // A sign of life.
    device.frame("ping");
    device.passes(u64::from(DUMP_TIMEOUT_MS) - 100);
    device.poll();
    assert!(device.gate.state().frozen());
    device.passes(200);
    device.poll();
    assert!(!device.gate.state().frozen());
}

#[test]
fn the_tick_ends_the_dump_of_a_host_that_is_gone() {
    let device = Device::new(config(16, 1024));
    device.call(0x1100);
    let tick = || device.single.tick(device.hot, device.config);
    let frozen = || device.gate.state().frozen();
    device.talk(&Host::command(1, "dump_trace"));
    device.passes(u64::from(DUMP_TIMEOUT_MS) - 100);
    tick();
    assert!(frozen(), "the host still has time");
    // What has arrived is heard first, however late the program polls.
    device.receive(b"\r");
    device.passes(200);
    tick();
    assert!(frozen(), "the host has said something");
    device.poll();
    assert!(!frozen(), "an empty line is no sign of a host");

    device.talk(&Host::command(2, "dump_trace"));
    device.passes(u64::from(DUMP_TIMEOUT_MS) + 100);
    assert!(frozen());
    device.call(0x1100);
    // No byte arrives, so nobody polls.
    tick();
    assert!(!frozen());
    assert!(SENT.take().is_empty(), "a tick does not send");
    let before = device.single.writer().stream().figures();
    assert_eq!(before.discarded, 2, "what was refused is counted");
    device.call(0x1100);
    let after = device.single.writer().stream().figures();
    assert!(after.bytes > before.bytes, "recording goes on");
    assert_eq!(
        device.frame("resend 0 0"),
        (false, "no dump is going on".into())
    );
}

#[test]
fn what_clear_forgets_does_not_come_back() {
    let device = Device::new(config(16, 1024));
    device.call(0x1100);
    device.gate.freeze(true);
    device.single.writer().stream().miss();
    device.call(0x1100);
    device.gate.freeze(false);
    device.single.writer().stream().miss();
    assert!(device.frame("status").1.contains(" discarded=2 "));
    assert_eq!(device.frame("clear"), (true, "ok".into()));
    let status = device.frame("status").1;
    assert!(status.contains(" bytes=0 discarded=0 "), "{status}");
    assert!(status.contains(" functions=0 "), "{status}");
    device.call(0x1100);
    let mut host = Host::default();
    host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
    let packets = packets(&host.dump(), Mock::<Small>::LAYOUT, 0x1000);
    assert_eq!(packets.last().map(|packet| packet.discarded), Some(0));
    assert_eq!(calls(&host.dump()), 2);
}

#[test]
fn the_profile_table_is_sent_as_it_stood() {
    let device = Device::new(config(16, 1024));
    device
        .single
        .hook(device.hot, device.config, Event::SwitchedIn(4));
    for _ in 0..3 {
        device.call(0x1100);
        device.call(0x1200);
    }
    let mut host = Host::default();
    host.hear(&device.talk(b"dump_profiler\r").concat());
    assert!(
        host.text.starts_with("kymo dump_profiler: bytes="),
        "{}",
        host.text
    );
    device.passes(10);
    let dump = host.dump();
    let header = TableHeader::read(&dump).expect("a table");
    assert_eq!((header.entries, header.slots), (2, 32));
    assert_eq!((header.clock_hz, header.unmatched), (1_000_000, 0));
    let layout = Mock::<Small>::LAYOUT;
    let size = Entry::bytes(layout.word);
    let mut entries: Vec<Entry> = dump[TableHeader::BYTES..]
        .chunks(size)
        .map(|bytes| Entry::read(bytes, layout.word, layout.order).expect("an entry"))
        .collect();
    entries.sort_by_key(|entry| entry.address);
    let seen: Vec<(u64, u32)> = entries.iter().map(|e| (e.address, e.count)).collect();
    assert_eq!(seen, [(0x1100, 3), (0x1200, 3)]);
    device.passes(10);
    host.pieces.clear();
    host.hear(&device.talk(&Host::command(1, "resend 0 0")).concat());
    assert_eq!(host.dump(), dump, "the table stands still, its span too");
}

#[test]
fn without_a_table_or_with_a_wrong_configuration_dumps_are_refused() {
    let device = Device::new(config(16, 1024));
    let bare = Device {
        config: leak(Config {
            send: Some(send),
            ..config(16, 1024)
        }),
        ..device
    };
    assert_eq!(
        bare.frame("dump_profile"),
        (
            false,
            "there is no profile table (kymo_config.slots)".into()
        )
    );
    let wrong = Device::new(config(1, 1024));
    assert_eq!(
        wrong.frame("dump_trace"),
        (false, "the recorder could not be set up; see status".into())
    );
    let status = wrong.frame("status").1;
    assert!(
        status.ends_with(" error=buffer_size value=1024"),
        "{status}"
    );
}

#[test]
fn whatever_arrives_nothing_panics_and_the_target_still_answers() {
    let mut random = Random::new(3);
    let words = [
        "identify",
        "ping",
        "status",
        "on",
        "off",
        "enable",
        "disable",
        "clear",
        "dump_trace",
        "dump_profile",
        "done",
        "resend",
        "mode",
        "trigger",
        "0",
        "7",
        "4294967295",
        "fixed",
    ];
    let device = Device::new(config(4, 256));
    for _ in 0..300 {
        device.call(0x1100);
        let mut bytes = Vec::new();
        for _ in 0..random.below(20) {
            let word = words[random.below(words.len() as u64) as usize];
            match random.below(5) {
                0 => bytes.extend(Host::command(random.number() as u8, word)),
                1 => bytes.extend((0..random.below(30)).map(|_| random.number() as u8)),
                2 => bytes.push(b'\r'),
                _ => bytes.extend(format!("{word} ").bytes()),
            }
        }
        check_receiver(&bytes);
        device.talk(&bytes);
        // Whatever is open is ended by these.
        device.talk(b"\0\0\r");
        device.talk(&Host::command(1, "done"));
        assert_eq!(device.frame("ping"), (true, "pong".into()));
    }
}
