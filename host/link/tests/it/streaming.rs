//! Streams from recording targets, with and without faults on the connection.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kymo_fixtures::target::{Connection, Fake, Faults, STARTED, State, identity, wait_until};
use kymo_link::{Address, LinkError, Next, Stream, Target, Timeouts};
use kymo_wire::event::{PACKET_MAGIC, PacketHeader};
use kymo_wire::link::Command;

fn timeouts(faults: &Faults) -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(300),
        identify: Duration::from_secs(60),
        // Waiting time for a lost answer; four times as long on a busy machine.
        reply: Duration::from_millis(1500),
        stall: if faults.nothing_is_missing() {
            Duration::from_secs(300)
        } else {
            Duration::from_millis(100)
        },
        silence: Duration::from_secs(300),
        reboot: Duration::from_secs(300),
    }
}

fn open(fake: &Fake) -> Target {
    let address: Address = fake.address().parse().unwrap();
    Target::open(&address, timeouts(&fake.state().faults)).unwrap()
}

/// A packet with this sequence number, whose length depends on the number.
fn packet(sequence: u32) -> Vec<u8> {
    let layout = identity().layout;
    let length = layout.header_bytes() + (sequence as usize * 37) % 1100;
    let bits = length as u32 * 8;
    let mut bytes = vec![sequence as u8; length];
    bytes[..layout.header_bytes()].fill(0);
    bytes[..4].copy_from_slice(&PACKET_MAGIC.to_le_bytes());
    let header = PacketHeader {
        sequence,
        content_bits: bits,
        packet_bits: bits,
        ..PacketHeader::read(layout, &bytes).unwrap()
    };
    header.write(layout, &mut bytes).unwrap();
    bytes
}

fn target_with(packets: u32, faults: Faults) -> Fake {
    let fake = Fake::start(State {
        faults,
        ..State::new(Vec::new(), Vec::new())
    });
    for sequence in 0..packets {
        fake.record(packet(sequence));
    }
    fake
}

/// The next packet; panics if none arrives within ten minutes.
fn next(stream: &mut Stream<'_>) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(600);
    match stream.next(deadline) {
        Ok(Next::Packet(packet)) => packet,
        other => panic!("expected a packet, found {other:?}"),
    }
}

/// Stops the stream, and returns all packets up to its end.
fn rest(stream: &mut Stream<'_>) -> Vec<Vec<u8>> {
    stream.stop();
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut packets = Vec::new();
    loop {
        match stream.next(deadline) {
            Ok(Next::Packet(packet)) => packets.push(packet),
            Ok(Next::Over) => return packets,
            other => panic!("expected the end, found {other:?}"),
        }
    }
}

#[test]
fn packets_come_while_more_are_recorded_and_commands_work_meanwhile() {
    let fake = target_with(10, Faults::default());
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::from_millis(100)).unwrap();
    for sequence in 0..10 {
        assert_eq!(next(&mut stream), packet(sequence));
    }
    assert_eq!(stream.next(Instant::now()).unwrap(), Next::Nothing);
    for sequence in 10..40 {
        fake.record(packet(sequence));
        if sequence % 10 == 0 {
            assert_eq!(stream.target().command(Command::Ping).unwrap(), "pong");
        }
        assert_eq!(next(&mut stream), packet(sequence));
    }
    fake.record(packet(40));
    assert_eq!(rest(&mut stream), [packet(40)]);
    assert_eq!(stream.next(Instant::now()).unwrap(), Next::Over);
    assert_eq!((stream.resends(), stream.stray()), (0, 0));
    assert_eq!(fake.state().released, 41);
    drop(stream);
    // The target still answers commands.
    assert_eq!(target.command(Command::Ping).unwrap(), "pong");
}

#[test]
fn everything_arrives_whole_and_in_order_over_a_bad_line() {
    for faults in [
        Faults {
            lose_every: Some(5),
            ..Faults::default()
        },
        Faults {
            damage_every: Some(7),
            console_after_every: Some(3),
            ..Faults::default()
        },
        Faults {
            console_inside_every: Some(4),
            ..Faults::default()
        },
        Faults {
            fragments: Some(50),
            lose_every: Some(9),
            ..Faults::default()
        },
    ] {
        let fake = crate::direct::Fake::<Connection>::start(State {
            faults: faults.clone(),
            packets: (0..60).map(packet).collect(),
            ..State::new(Vec::new(), Vec::new())
        });
        let mut target = fake.open(timeouts(&faults));
        let mut stream = target.stream(Duration::ZERO).unwrap();
        let mut packets: Vec<_> = (0..30).map(|_| next(&mut stream)).collect();
        packets.extend(rest(&mut stream));
        let all: Vec<_> = (0..60).map(packet).collect();
        assert!(packets == all, "{faults:?}");
        assert_eq!(stream.stray(), 0);
    }
}

#[test]
fn the_last_piece_may_be_lost_too() {
    // Packet 1 is one piece. Frames before it: the answer to `stream on`, and packet 0.
    for lost in [2, 3] {
        let fake = target_with(
            2,
            Faults {
                lose: vec![lost],
                ..Faults::default()
            },
        );
        let mut target = open(&fake);
        let mut stream = target.stream(Duration::ZERO).unwrap();
        assert_eq!(next(&mut stream), packet(0));
        assert_eq!(next(&mut stream), packet(1));
        wait_until("all is acknowledged", || {
            let _ = stream.next(Instant::now());
            fake.state().released == 2
        });
    }
}

#[test]
fn a_connection_that_breaks_loses_nothing() {
    let fake = target_with(
        50,
        Faults {
            close_after: Some(20),
            ..Faults::default()
        },
    );
    let mut packets = Vec::new();
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    let deadline = Instant::now() + Duration::from_secs(600);
    let error = loop {
        match stream.next(deadline) {
            Ok(Next::Packet(packet)) => packets.push(packet),
            Err(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(error.is_connection(), "{error}");
    assert!(packets.len() >= 20);
    // A second host continues after the packets that the first one acknowledged.
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    for packet in rest(&mut stream) {
        if !packets.contains(&packet) {
            packets.push(packet);
        }
    }
    assert!(packets == (0..50).map(packet).collect::<Vec<_>>());
}

#[test]
fn a_target_that_knows_of_no_stream_any_more_says_so() {
    let fake = target_with(
        30,
        Faults {
            forget_after: Some(10),
            ..Faults::default()
        },
    );
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    let deadline = Instant::now() + Duration::from_secs(600);
    let error = loop {
        match stream.next(deadline) {
            Ok(Next::Packet(_)) => {}
            Err(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(error, LinkError::Refused { .. }), "{error}");
    drop(stream);
    // A new stream is started over the same connection.
    let mut stream = target.stream(Duration::ZERO).unwrap();
    assert_eq!(rest(&mut stream).last(), Some(&packet(29)));
}

#[test]
fn a_stream_that_the_target_ended_by_itself_is_not_over() {
    let forgetful = Faults {
        forget_after: Some(30),
        ..Faults::default()
    };
    let fake = target_with(30, forgetful);
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    for sequence in 0..30 {
        assert_eq!(next(&mut stream), packet(sequence));
    }
    let soon = || Instant::now() + Duration::from_millis(10);
    while fake.state().released < 30 {
        assert_eq!(stream.next(soon()).unwrap(), Next::Nothing);
    }
    fake.record(packet(30));
    stream.stop();
    let error = loop {
        match stream.next(soon()) {
            Ok(Next::Nothing) => {}
            Err(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(error, LinkError::Refused { .. }), "{error}");
    drop(stream);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    assert_eq!(rest(&mut stream), [packet(30)]);
    drop(stream);

    // The answer of an older target reports the end, but also that it has sent more pieces than arrived.
    fake.change(|state| state.faults.end = " pieces=99");
    let mut stream = target.stream(Duration::ZERO).unwrap();
    stream.stop();
    let error = stream.next(Instant::now() + Duration::from_secs(600));
    assert!(matches!(error, Err(LinkError::Refused { .. })), "{error:?}");
}

#[test]
fn what_a_target_keeps_back_is_counted() {
    let unfinished = Faults {
        end: " pieces=0 reserved=3",
        ..Faults::default()
    };
    let fake = target_with(0, unfinished);
    let mut target = open(&fake);
    let mut stream = target.stream(Duration::ZERO).unwrap();
    assert_eq!(rest(&mut stream), Vec::<Vec<u8>>::new());
    assert_eq!(stream.withheld(), 3);
}

#[test]
fn a_target_that_cannot_stream_says_so() {
    let fake = target_with(
        0,
        Faults {
            refuse: Some(("stream", "this target cannot stream")),
            ..Faults::default()
        },
    );
    let mut target = open(&fake);
    let error = target.stream(Duration::ZERO).err().expect("refused");
    assert!(error.to_string().contains("cannot stream"), "{error}");
    assert_eq!(target.command(Command::Ping).unwrap(), "pong");
}

#[test]
fn the_time_that_the_target_is_told_is_right_within_what_is_said_of_it() {
    let fake = target_with(0, Faults::default());
    let mut target = open(&fake);
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos()
    };
    let before = now();
    let printed = target.send_time().unwrap();
    let after = now();
    let reported = fake
        .state()
        .commands
        .into_iter()
        .rev()
        .find_map(|command| match command {
            Command::WallClock {
                ticks,
                ns,
                uncertainty,
            } => Some((ticks, u128::from(ns), uncertainty)),
            _ => None,
        });
    let (ticks, ns, uncertainty) = reported.expect("the time was told");
    assert_eq!((printed.ticks, u128::from(printed.ns)), (ticks, ns));
    assert_eq!(printed.uncertainty, uncertainty);
    assert!((before..=after).contains(&ns));
    // The fake target's clock is exact: the error of the pair is at most the reported uncertainty (and a tick).
    let wrong = (u128::from(ticks) * 40 + u128::from(STARTED)).abs_diff(ns);
    assert!(
        wrong <= u128::from(uncertainty) + 40,
        "{wrong} of {uncertainty} ns"
    );
}
