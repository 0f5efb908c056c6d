//! Commands and dumps of Kymo targets, with and without faults on the connection.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kymo_fixtures::target::{Connection, Faults, State, noise};
use kymo_link::{Address, Cancel, Ended, LinkError, Target, Timeouts};
use kymo_wire::event::Shape;
use kymo_wire::link::{Command, PROTOCOL};

type Fake = crate::direct::Fake<Connection>;

/// Time-outs that are short if the faults lose data, because the test is then about a time-out. Otherwise they are
/// long, because this machine may be busy.
fn timeouts(faults: &Faults) -> Timeouts {
    let long = Duration::from_secs(300);
    let short = Timeouts {
        connect: long,
        identify: Duration::from_secs(2),
        reply: Duration::from_secs(2),
        stall: Duration::from_millis(400),
        silence: Duration::from_secs(6),
        reboot: long,
    };
    if faults.nothing_is_missing() {
        Timeouts {
            identify: long,
            stall: long,
            silence: long,
            ..short
        }
    } else {
        short
    }
}

fn open(fake: &Fake) -> Target {
    fake.open(timeouts(&fake.state().faults))
}

fn with_faults(trace: Vec<u8>, faults: Faults) -> Fake {
    Fake::start(State {
        faults,
        ..State::new(trace, Vec::new())
    })
}

/// Fetches a trace. Also returns the console output.
fn fetch(fake: &Fake) -> (kymo_link::Dump, String) {
    let mut target = open(fake);
    let console = Arc::new(Mutex::new(Vec::new()));
    target.set_console({
        let console = Arc::clone(&console);
        move |text| console.lock().unwrap().extend_from_slice(text)
    });
    let dump = target.dump_trace(&mut |_| {}, &Cancel::new()).unwrap();
    drop(target);
    let console = String::from_utf8(console.lock().unwrap().clone()).unwrap();
    (dump, console)
}

#[test]
fn a_target_is_asked_who_it_is_in_text_and_then_obeys() {
    let fake = Fake::start(State::new(noise(10), Vec::new()));
    let mut target = open(&fake);
    assert!(fake.state().received.is_empty(), "opening sends nothing");
    assert_eq!(target.identify().unwrap(), fake.state().identity);
    assert_eq!(fake.state().received, b"identify\r");
    assert_eq!(target.command(Command::Ping).unwrap(), "pong");
    assert_eq!(target.status().unwrap().bytes, 2000);
    target.command(Command::Trigger(0x101)).unwrap();
    assert_eq!(
        target.sets().unwrap().to_string(),
        "trigger=0x101 stopper=0x0"
    );
}

#[test]
fn a_dump_arrives_whole_whatever_its_length() {
    for length in [0, 1, 239, 240, 241, 480, 100_000] {
        let fake = Fake::start(State::new(noise(length), Vec::new()));
        let (dump, console) = fetch(&fake);
        assert_eq!(dump.bytes, noise(length));
        assert_eq!(dump.total, Some(length as u64));
        assert!(dump.is_whole() && dump.missing.is_empty());
        assert_eq!((dump.damaged, dump.resent), (0, 0));
        assert_eq!(console, "");
        assert_eq!(fake.state().commands.last(), Some(&Command::Done));
    }
}

#[test]
fn everything_arrives_over_a_bad_line() {
    let fake = with_faults(
        noise(300_000),
        Faults {
            damage_every: Some(101),
            lose_every: Some(97),
            console_after_every: Some(59),
            ..Faults::default()
        },
    );
    let (dump, console) = fetch(&fake);
    assert_eq!(dump.bytes, noise(300_000));
    assert!(dump.is_whole());
    assert!(dump.damaged > 10 && dump.resent > 20);
    assert_eq!(console, fake.state().console);
    assert!(console.len() > 100);
}

#[test]
fn replies_and_ends_may_be_lost_too() {
    // Frame 1 is the reply that announces the dump, 2 its data, 3 its end.
    for lose in [
        &[1][..],
        &[2],
        &[3],
        &[1, 3],
        &[1, 2, 3],
        &[2, 3, 4, 5],
        &[1, 2, 3, 4],
    ] {
        let fake = with_faults(
            noise(240),
            Faults {
                lose: lose.to_vec(),
                ..Faults::default()
            },
        );
        let (dump, _) = fetch(&fake);
        assert_eq!(dump.bytes, noise(240), "without {lose:?}");
        assert!(dump.is_whole(), "without {lose:?}");
    }
}

#[test]
fn more_requests_than_there_are_numbers_for_them() {
    // Every second piece is lost, and each needs a separate request: more than the 256 request numbers.
    let (pieces, bytes) = (700_u32, 700 * 240);
    let fake = with_faults(
        noise(bytes),
        Faults {
            lose: (1..=pieces / 2).map(|n| 2 * n).collect(),
            ..Faults::default()
        },
    );
    let (dump, _) = fetch(&fake);
    assert_eq!(dump.ended, Ended::Whole);
    assert_eq!(dump.bytes, noise(bytes));
    let commands = fake.state().commands;
    let requests = commands
        .iter()
        .filter(|command| matches!(command, Command::Resend { .. }));
    assert!(requests.count() > 300);
}

#[test]
fn text_in_the_middle_of_frames_costs_nothing_and_is_shown() {
    let fake = with_faults(
        noise(50_000),
        Faults {
            console_inside_every: Some(2),
            console_after_every: Some(3),
            ..Faults::default()
        },
    );
    let (dump, console) = fetch(&fake);
    assert_eq!(dump.bytes, noise(50_000));
    assert_eq!((dump.damaged, dump.resent), (0, 0));
    assert_eq!(console, fake.state().console);
}

#[test]
fn single_bytes_with_pauses_are_enough() {
    let fake = with_faults(
        noise(2_000),
        Faults {
            fragments: Some(1),
            console_inside_every: Some(2),
            ..Faults::default()
        },
    );
    let (dump, console) = fetch(&fake);
    assert_eq!(dump.bytes, noise(2_000));
    assert_eq!(console, fake.state().console);
}

#[test]
fn a_torn_identity_is_asked_for_again_and_nothing_else_is_sent() {
    let fake = with_faults(
        Vec::new(),
        Faults {
            torn_identities: 2,
            ..Faults::default()
        },
    );
    open(&fake).identify().unwrap();
    assert_eq!(fake.state().received, b"identify\r".repeat(3));
}

#[test]
fn silence_and_strangers_are_told_apart() {
    let silent = with_faults(
        Vec::new(),
        Faults {
            silent: true,
            ..Faults::default()
        },
    );
    let error = open(&silent).command(Command::Ping).unwrap_err();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    assert_eq!(silent.state().received, b"identify\r", "nothing else");

    let stranger = with_faults(
        Vec::new(),
        Faults {
            stranger: Some("what do you mean by that?\r\n"),
            ..Faults::default()
        },
    );
    let error = open(&stranger).status().unwrap_err();
    assert!(
        matches!(&error, LinkError::NotKymo { heard, .. } if heard.contains("what do you mean")),
        "{error}"
    );
    assert_eq!(stranger.state().received, b"identify\r", "nothing else");

    // A Kymo target that received a damaged line is not treated as another device.
    let ours = with_faults(
        Vec::new(),
        Faults {
            stranger: Some("kymo error: unknown command\r\n"),
            ..Faults::default()
        },
    );
    open(&ours).status().unwrap_err();
    assert!(ours.state().received.len() > 2 * b"identify\r".len());
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let mut state = State::new(Vec::new(), Vec::new());
    state.identity.protocol = PROTOCOL + 1;
    let fake = Fake::start(state);
    let error = open(&fake).identify().unwrap_err();
    assert!(
        matches!(error, LinkError::Version { found, .. } if found == PROTOCOL + 1),
        "{error}"
    );
}

#[test]
fn a_target_of_version_2_is_taken_if_its_packets_are_the_same() {
    for (shape, taken) in [(Shape::Compact, true), (Shape::Wide, false)] {
        let mut state = State::new(Vec::new(), Vec::new());
        state.identity.protocol = 2;
        state.identity.layout.shape = shape;
        let fake = Fake::start(state);
        match open(&fake).identify() {
            Ok(identity) => assert_eq!((identity.protocol, taken), (2, true)),
            Err(LinkError::Version { found, .. }) => assert_eq!((found, taken), (2, false)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ports_that_cannot_be_opened_say_why() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let open = |text: &str| {
        Target::open(&text.parse().unwrap(), timeouts(&Faults::default()))
            .err()
            .unwrap()
    };
    let error = open(&format!("tcp:127.0.0.1:{port}"));
    assert!(
        matches!(error, LinkError::ConnectionRefused { .. }),
        "{error}"
    );
    let error = open("tcp:host.invalid:4000");
    assert!(matches!(error, LinkError::NotFound { .. }), "{error}");
    let error = open("/dev/no-such-serial-port");
    assert!(matches!(error, LinkError::NotFound { .. }), "{error}");
    let error = open("/dev/null");
    assert!(matches!(error, LinkError::Open { .. }), "{error}");
}

#[test]
fn a_target_that_hangs_leaves_what_it_sent() {
    let fake = with_faults(
        noise(10_000),
        Faults {
            hang_at: Some(11),
            ..Faults::default()
        },
    );
    let (dump, _) = fetch(&fake);
    assert!(
        matches!(dump.ended, Ended::Silent { .. }),
        "{:?}",
        dump.ended
    );
    assert_eq!(dump.bytes, noise(10_000)[..2_400]);
    assert_eq!(dump.missing.first(), Some(&(2_400..10_000)));
}

#[test]
fn a_target_that_starts_again_in_a_dump_is_told_from_one_that_ends_it() {
    let fake = with_faults(
        noise(10_000),
        Faults {
            restart_at: Some(11),
            ..Faults::default()
        },
    );
    let (dump, _) = fetch(&fake);
    assert_eq!(dump.ended, Ended::Restarted);
    assert_eq!(dump.bytes, noise(10_000)[..2_400]);

    let fake = with_faults(
        noise(10_000),
        Faults {
            lose: vec![20],
            refuse: Some(("resend", "no dump is going on")),
            ..Faults::default()
        },
    );
    let (dump, _) = fetch(&fake);
    assert_eq!(dump.ended, Ended::Refused("no dump is going on".to_owned()));
}

#[test]
fn a_connection_that_breaks_leaves_what_came() {
    let fake = with_faults(
        noise(10_000),
        Faults {
            close_at: Some(11),
            lose_every: Some(5),
            ..Faults::default()
        },
    );
    let (dump, _) = fetch(&fake);
    assert!(
        matches!(dump.ended, Ended::Disconnected(_)),
        "{:?}",
        dump.ended
    );
    assert_eq!(dump.total, Some(10_000));
    assert!(dump.missing.len() > 1, "{:?}", dump.missing);
    for hole in &dump.missing {
        let hole = hole.start as usize..(hole.end as usize).min(dump.bytes.len());
        assert!(dump.bytes[hole].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_transfer_that_is_broken_off_keeps_what_came() {
    let fake = with_faults(
        noise(100_000),
        Faults {
            slow: Some(Duration::from_millis(2)),
            ..Faults::default()
        },
    );
    let cancel = Cancel::new();
    let mut target = open(&fake);
    let mut pieces = 0;
    let dump = target
        .dump_trace(
            &mut |progress| {
                assert_eq!(progress.total, Some(100_000));
                pieces += 1;
                if pieces == 20 {
                    cancel.cancel();
                }
            },
            &cancel,
        )
        .unwrap();
    assert_eq!(dump.ended, Ended::Cancelled);
    assert!(dump.bytes.len() > 4_000 && dump.bytes.len() < 100_000);
    assert_eq!(dump.bytes, noise(100_000)[..dump.bytes.len()]);
    assert!(fake.state().commands.contains(&Command::Done));
}

#[test]
fn a_transfer_that_is_broken_off_before_anything_came_gives_nothing() {
    let fake = Fake::start(State::new(noise(1_000), Vec::new()));
    let cancel = Cancel::new();
    cancel.cancel();
    let error = open(&fake).dump_trace(&mut |_| {}, &cancel).unwrap_err();
    assert!(matches!(error, LinkError::Cancelled), "{error}");
    assert!(fake.state().commands.contains(&Command::Done));
}

#[test]
fn a_dump_whose_checksum_is_wrong_is_fetched_once_more() {
    for (wrong, ended) in [(1, Ended::Whole), (2, Ended::Changed)] {
        let fake = with_faults(
            noise(1_000),
            Faults {
                wrong_sums: wrong,
                ..Faults::default()
            },
        );
        let (dump, _) = fetch(&fake);
        assert_eq!(dump.ended, ended);
        assert_eq!(dump.bytes, noise(1_000));
    }
}

#[test]
fn a_reboot_is_waited_for_and_can_be_refused() {
    let fake = Fake::start(State::new(Vec::new(), Vec::new()));
    let mut target = open(&fake);
    assert_eq!(
        target.reboot(&Cancel::new()).unwrap(),
        fake.state().identity
    );
    assert!(fake.state().commands.contains(&Command::Reboot));

    // The target is opened again, so it needs an address.
    let fake = kymo_fixtures::target::Fake::start(State {
        faults: Faults {
            reboot_disconnects: true,
            ..Faults::default()
        },
        ..State::new(noise(500), Vec::new())
    });
    let address: Address = fake.address().parse().unwrap();
    let mut target = Target::open(&address, timeouts(&fake.state().faults)).unwrap();
    target.reboot(&Cancel::new()).unwrap();
    let dump = target.dump_trace(&mut |_| {}, &Cancel::new()).unwrap();
    assert_eq!(dump.bytes, noise(500), "over the new connection");

    let mut state = State::new(Vec::new(), Vec::new());
    state.identity.capabilities.reboot = false;
    let fake = Fake::start(state);
    let error = open(&fake).reboot(&Cancel::new()).unwrap_err();
    assert!(
        matches!(&error, LinkError::Refused { reason, .. } if reason.contains("cannot reboot")),
        "{error}"
    );
}
