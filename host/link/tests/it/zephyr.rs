//! Commands and dumps of targets with Zephyr's own instrumentation, as captured and with faults.

mod dumps;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kymo_event::Addr;
use kymo_fixtures::captures;
use kymo_fixtures::zephyr_target::recorded::{body, entries, records};
use kymo_fixtures::zephyr_target::{BANNER, Cut, Device as FakeDevice, State};
use kymo_link::zephyr::tracing::{self, HostCommand};
use kymo_link::zephyr::{self, Dump, Ended, Set};
use kymo_link::{Address, Cancel, Device, LinkError, Target, Timeouts};
use kymo_zephyr_instrumentation::Kind;

const LONG: Duration = Duration::from_secs(300);

/// Time-outs if all expected data arrives: long, because this machine may be busy.
const COMES: Timeouts = Timeouts {
    connect: LONG,
    identify: LONG,
    reply: LONG,
    stall: LONG,
    silence: LONG,
    reboot: LONG,
};

/// Time-outs if some data does not arrive, and the test is about the time-out.
const LACKS: Timeouts = Timeouts {
    connect: LONG,
    identify: Duration::from_millis(500),
    reply: Duration::from_secs(2),
    stall: Duration::from_millis(400),
    silence: Duration::from_secs(4),
    reboot: LONG,
};

/// Time-outs if nothing arrives.
const HASTY: Timeouts = Timeouts {
    reply: Duration::from_millis(100),
    ..LACKS
};

type Fake = crate::direct::Fake<FakeDevice>;

/// The console output.
type Console = Arc<Mutex<Vec<u8>>>;

fn open(fake: &Fake, timeouts: Timeouts) -> (Target, Console) {
    let mut target = fake.open(timeouts);
    let console = Console::default();
    target.set_console({
        let console = Arc::clone(&console);
        move |text| console.lock().unwrap().extend_from_slice(text)
    });
    (target, console)
}

/// The recognized device and its console output.
fn recognise(fake: &Fake, timeouts: Timeouts) -> (zephyr::Target, Console) {
    let (target, console) = open(fake, timeouts);
    match target.recognise().unwrap() {
        Device::Zephyr(target) => (*target, console),
        Device::Kymo(_) => panic!("taken for a Kymo target"),
    }
}

fn text_of(console: &Console) -> String {
    String::from_utf8(console.lock().unwrap().clone()).unwrap()
}

/// All dumps that arrive after a request, including the requested one.
fn all(target: &mut zephyr::Target, kind: Kind, cancel: &Cancel) -> Vec<Dump> {
    let arrived = target.dump(kind, &mut |_| {}, cancel).unwrap();
    assert!(arrived.missing.is_none(), "{:?}", arrived.missing);
    arrived.dumps
}

/// The only dump of a kind.
fn one(target: &mut zephyr::Target, kind: Kind) -> Dump {
    let mut dumps = all(target, kind, &Cancel::new());
    assert_eq!(dumps.len(), 1);
    dumps.remove(0)
}

/// Checks that no harmful bytes were sent to a device, and the number of its reboots.
fn unhurt(fake: &Fake, reboots: u32) {
    let state = fake.state();
    assert_eq!(state.reboots, reboots);
    assert!(state.lines.iter().all(|line| !line.is_empty()), "{state:?}");
    assert!(!state.received.starts_with(b"\r"));
}

/// Every command of the captures is answered with exactly the bytes that the device sent.
#[test]
fn the_fake_answers_as_real_devices_did() {
    let root = captures::zephyr_instrumentation();
    for (capture, trace, profile) in [
        (
            "instr_default/cap1",
            "11_dump_trace",
            Some("10_dump_profile"),
        ),
        (
            "instr_default/cap2",
            "09_dump_trace",
            Some("10_dump_profile"),
        ),
        (
            "instr_big/cap_big",
            "04_dump_trace",
            Some("03_dump_profile"),
        ),
        (
            "instr_big/cap_big2",
            "09_dump_trace",
            Some("10_dump_profile"),
        ),
        ("instr_trace_only/cap_to", "04_dump_trace", None),
    ] {
        let folder = root.join(capture);
        let file = |name: &str| folder.join(format!("{name}.bin"));
        let state = State {
            status: if profile.is_some() { "1 1 1" } else { "1 0 1" },
            profile: profile.map(|name| body(&file(name))),
            ..State::new(body(&file(trace)), Vec::new())
        };
        let fake = kymo_fixtures::zephyr_target::Fake::start(state);
        let mut line = TcpStream::connect(("127.0.0.1", fake.port())).unwrap();
        let log = std::fs::read(folder.join("log.json")).unwrap();
        let log: serde_json::Value = serde_json::from_slice(&log).unwrap();
        for entry in log.as_array().unwrap() {
            let name = entry["name"].as_str().unwrap();
            if name == "dump_trace_after_cr" {
                // Recorded after a reboot, by a program that was running again.
                continue;
            }
            let expected = folder.join(entry["rx_file"].as_str().unwrap());
            let expected = std::fs::read(expected).unwrap();
            line.write_all(entry["tx"].as_str().unwrap().as_bytes())
                .unwrap();
            let mut found = vec![0; expected.len()];
            line.read_exact(&mut found).unwrap();
            assert!(found == expected, "{capture} {name}");
        }
        // The fake sends nothing else.
        line.write_all(b"PING\r").unwrap();
        let mut rest = [0; 22];
        line.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"invalid command PING\r\n", "{capture}");
    }
}

#[test]
fn captured_dumps_arrive_whole() {
    let root = captures::zephyr_instrumentation();
    for (trace, profile, records, size) in [
        (
            "instr_default/cap1/11_dump_trace",
            "instr_default/cap1/10_dump_profile",
            222,
            54,
        ),
        (
            "instr_big/cap_big/04_dump_trace",
            "instr_big/cap_big/03_dump_profile",
            3_390,
            42,
        ),
    ] {
        let file = |name: &str| root.join(format!("{name}.bin"));
        for fragments in [None, Some(1_000), Some(97)] {
            let fake = Fake::start(State {
                fragments,
                ..State::new(body(&file(trace)), body(&file(profile)))
            });
            let (mut target, _) = recognise(&fake, COMES);
            let dump = one(&mut target, Kind::Trace);
            assert_eq!(dump.ended, Ended::Whole);
            assert_eq!(dump.body.len(), records * size);
            assert_eq!(dump.as_sent(), std::fs::read(file(trace)).unwrap());
            assert_eq!(dump.kind(), Some(Kind::Trace));
            // Fetching a dump clears the recording.
            let empty = one(&mut target, Kind::Trace);
            assert!(empty.is_whole() && empty.body.is_empty());
            let table = one(&mut target, Kind::Profile);
            assert_eq!(table.as_sent(), std::fs::read(file(profile)).unwrap());
            unhurt(&fake, 0);
        }
    }
}

#[test]
fn both_protocols_are_told_apart_by_one_harmless_line() {
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, console) = recognise(&fake, COMES);
    target.ping().unwrap();
    assert_eq!(fake.state().received, b"identify\rping\r\nping\r\n");
    unhurt(&fake, 0);
    let (target, _) = open(&fake, COMES);
    drop(console);
    drop(target);
}

#[test]
fn who_only_wants_kymo_is_told_what_is_there() {
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, _) = open(&fake, COMES);
    let error = target.identify().unwrap_err();
    assert!(matches!(error, LinkError::Zephyr { .. }), "{error}");
    assert_eq!(fake.state().received, b"identify\r", "nothing else");
}

#[test]
fn newer_firmware_behind_a_shell_is_found_by_its_prefix() {
    let fake = Fake::start(State {
        takes_prefix: true,
        needs_prefix: true,
        ..State::new(records(4), entries(2))
    });
    let (mut target, _) = recognise(&fake, LACKS);
    assert!(target.status().unwrap().trace);
    assert!(one(&mut target, Kind::Trace).body == records(4));
    let lines = fake.state().lines;
    let others = lines.iter().filter(|line| !line.starts_with("instr_"));
    assert_eq!(others.collect::<Vec<_>>(), ["identify"]);
    unhurt(&fake, 0);
}

#[test]
fn a_stranger_hears_two_questions_and_nothing_else() {
    let fake = Fake::start(State {
        needs_prefix: true,
        ..State::new(records(4), entries(2))
    });
    let (target, _) = open(&fake, LACKS);
    let error = target.recognise().err().unwrap();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    assert_eq!(fake.state().received, b"identify\rinstr_ping\r\n");
}

#[test]
fn a_status_has_two_fields_or_three() {
    for (status, retained) in [("1 0", None), ("1 0 0", Some(false)), ("1 0 1", Some(true))] {
        let fake = Fake::start(State {
            status,
            ..State::new(records(4), entries(2))
        });
        let found = recognise(&fake, COMES).0.status().unwrap();
        assert_eq!((found.trace, found.profile), (true, false));
        assert_eq!(found.retained, retained);
    }
}

/// Program output that looks like a reply is not treated as one, and is shown.
#[test]
fn a_chatty_console_neither_confuses_nor_delays() {
    for chatter in [
        "Philosopher 3 [P: 3]  STARVING  \r\n",
        "7 bytes",
        "0 0\r\n1 0 0\r\nvalue 1 1 0\r\n",
        "trigger: 0x1\r\n-*-!\r\n-*-#\r\ninvalid argument\r\n",
    ] {
        let fake = Fake::start(State {
            chatter: Some(chatter),
            status: "1 1 1",
            ..State::new(records(300), entries(20))
        });
        let (mut target, console) = recognise(&fake, COMES);
        for _ in 0..5 {
            target.ping().unwrap();
            assert_eq!(target.sets().unwrap().trigger, Some(Addr(0x829)));
        }
        // The reply may be at any position in a line of the program.
        for _ in 0..10 {
            let status = target.status().unwrap();
            assert!(status.trace && status.profile, "{status:?}");
            assert_eq!(status.retained, Some(true));
        }
        let dump = one(&mut target, Kind::Trace);
        assert_eq!(dump.ended, Ended::Whole);
        assert!(dump.body == records(300));
        assert!(one(&mut target, Kind::Profile).body == entries(20));
        target.reboot(&Cancel::new()).unwrap();
        unhurt(&fake, 1);
        drop(target);
        let printed = text_of(&console);
        assert!(printed.matches(chatter).count() > 1, "{printed}");
        assert!(printed.contains(BANNER.trim_end()), "{printed}");
        // If a line of the program looks like the reply, either may be shown.
        let replies = printed.matches("1 1 1").count();
        assert!(replies == 0 || chatter.contains("1 0 0"), "{printed}");
    }
}

/// Some samples print exactly `ping` and `pong`.
#[test]
fn a_program_that_plays_ping_pong_is_no_match() {
    let fake = Fake::start(State {
        chatter: Some("ping\r\npong\r\n"),
        ..State::new(records(300), entries(20))
    });
    let (mut target, _) = recognise(&fake, COMES);
    assert!(target.status().unwrap().trace);
    assert_eq!(target.sets().unwrap().stopper, Some(Addr(0x829)));
    assert!(one(&mut target, Kind::Trace).body == records(300));
    unhurt(&fake, 0);
}

#[test]
fn replies_are_taken_out_of_what_the_console_shows() {
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, console) = recognise(&fake, COMES);
    target.ping().unwrap();
    target.status().unwrap();
    target.sets().unwrap();
    one(&mut target, Kind::Trace);
    target.reboot(&Cancel::new()).unwrap();
    drop(target);
    let printed = text_of(&console);
    let printed = printed.replace("invalid command identify\r\n", "");
    assert_eq!(printed, BANNER);
}

#[test]
fn commands_that_are_lost_or_torn_are_given_again() {
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, _) = recognise(&fake, LACKS);
    for _ in 0..2 {
        fake.change(|state| state.torn_commands = 1);
        target.ping().unwrap();
        fake.change(|state| state.lost_commands = 1);
        assert!(target.status().unwrap().profile);
    }
    // An address is only set when it has been read back.
    fake.change(|state| state.lost_commands = 1);
    target.set(Set::Trigger, Some(Addr(0x711))).unwrap();
    assert_eq!(fake.state().trigger, 0x711);
    fake.change(|state| state.torn_commands = 1);
    assert!(one(&mut target, Kind::Trace).body == records(4));
    unhurt(&fake, 0);
}

#[test]
fn trigger_and_stopper_are_set_read_back_and_disabled() {
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, _) = recognise(&fake, COMES);
    target.set(Set::Trigger, Some(Addr(0x711))).unwrap();
    target.set(Set::Stopper, None).unwrap();
    let sets = target.sets().unwrap();
    assert_eq!((sets.trigger, sets.stopper), (Some(Addr(0x711)), None));
    // The target's own parser saturates at 0x7fffffff.
    for address in [0x9000_0001, 0xFFFF_FFFF, 0x8000_0000, 0x7FFF_FFFF] {
        target.set(Set::Stopper, Some(Addr(address))).unwrap();
        assert_eq!(u64::from(fake.state().stopper), address);
    }
    // An address that no 32-bit target has.
    let error = target
        .set(Set::Trigger, Some(Addr(0x1_0000_0001)))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the target's trigger should be 0x100000001 now, but is 0x7fffffff"
    );
    unhurt(&fake, 0);
}

#[test]
fn a_reboot_is_waited_for() {
    let fake = Fake::start(State {
        retained: false,
        ..State::new(records(4), entries(2))
    });
    let (mut target, _) = recognise(&fake, COMES);
    target.set(Set::Trigger, Some(Addr(0x711))).unwrap();
    assert!(target.reboot(&Cancel::new()).unwrap().heard);
    assert_eq!(target.sets().unwrap().trigger, Some(Addr(0x829)));
    unhurt(&fake, 1);
    // A firmware without a banner only shows by its answers that it has restarted.
    let fake = Fake::start(State {
        banner: "",
        ..State::new(records(4), entries(2))
    });
    let (mut target, _) = recognise(&fake, LACKS);
    assert!(!target.reboot(&Cancel::new()).unwrap().heard);
    unhurt(&fake, 1);
}

#[test]
fn what_the_firmware_lacks_is_known_without_a_guess() {
    let fake = Fake::start(State {
        profile: None,
        chatter: Some("never silent\r\n"),
        ..State::new(records(4), Vec::new())
    });
    let (mut target, _) = recognise(&fake, LACKS);
    let error = target.dump(Kind::Profile, &mut |_| {}, &Cancel::new());
    let error = error.unwrap_err();
    assert!(matches!(error, LinkError::NotSupported { .. }), "{error}");
    assert!(one(&mut target, Kind::Trace).body == records(4));
}

#[test]
fn a_device_that_dies_is_given_up() {
    let fake = Fake::start(State {
        cut: Some((0, Cut::Dead)),
        ..State::new(records(4), entries(2))
    });
    let (mut target, _) = recognise(&fake, LACKS);
    let dump = one(&mut target, Kind::Trace);
    assert!(matches!(dump.ended, Ended::Silent { .. }));
    assert!(dump.body.is_empty());
    drop(target);
    // The next host gets no answer, and must not send anything harmful.
    fake.change(|state| {
        state.lost_commands = u32::MAX;
        state.received.clear();
    });
    let (mut target, _) = open(&fake, HASTY);
    let error = target.identify().unwrap_err();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    let mut target = target.into_zephyr();
    let error = target.greet().unwrap_err();
    assert!(matches!(error, LinkError::NoAnswer { .. }), "{error}");
    for error in [
        target.ping().unwrap_err(),
        target.status().unwrap_err(),
        target.sets().unwrap_err(),
        target.set(Set::Trigger, None).unwrap_err(),
        target
            .dump(Kind::Trace, &mut |_| {}, &Cancel::new())
            .unwrap_err(),
    ] {
        assert!(matches!(error, LinkError::TimedOut { .. }), "{error}");
    }
}

#[test]
fn tracing_is_enabled_and_disabled_without_an_answer() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let address: Address = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    for (command, line) in [
        (HostCommand::Enable, "enable\r"),
        (HostCommand::Disable, "disable\r"),
    ] {
        let device = std::thread::spawn({
            let listener = listener.try_clone().unwrap();
            move || {
                let (mut line, _) = listener.accept().unwrap();
                line.write_all(&[1, 2, 3]).unwrap();
                let mut heard = String::new();
                line.read_to_string(&mut heard).unwrap();
                heard
            }
        });
        tracing::send(&address, command, COMES).unwrap();
        assert_eq!(device.join().unwrap(), line);
    }
}
