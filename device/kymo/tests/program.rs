//! A Rust program that records itself.

use std::ffi::CString;
use std::path::Path;

use kymo::events::Text;
use kymo::kernel::Kymo;
use kymo::{Buffer, Packets, Recorder, Table};
use kymo_device_tests::{Kind, packets};
use kymo_hooks::Hooks;
use kymo_wire::link::Identity;

kymo::event! {
    /// A user event.
    struct Sensor = 7 {
        channel: u8,
        volts: f32,
        offset: i16,
    }
}

kymo::event! {
    /// What is called at which of its values.
    enum Mode: i16 { Unset = -1, On = 0x10 }
}

kymo::event! {
    struct Heard = 8 {
        mode: Mode,
        samples: [u16; 3],
        raw: [u8; 2],
        name: Text<4>,
    }
}

static PROMOTIONS: [kymo::Promotion; 0] = [];
static EVENTS: Packets<1024, 64> = Packets::new();
/// Not used on Linux, but a program for both may set it.
static NAMES: Buffer<512> = Buffer::new();
static TABLE: Table<64, 3, 16> = Table::new();

kymo::recorder!(Recorder::new(&EVENTS).names(&NAMES).promotions(&PROMOTIONS));

#[test]
fn sizes_follow_from_the_types_of_the_memory() {
    let config = Recorder::new(&EVENTS)
        .flags(kymo::START_ON)
        .names(&NAMES)
        .table(&TABLE)
        .clock_hz(1_000_000)
        .tick_hz(1000)
        .config();
    assert_eq!(config.version, kymo::CONFIG_VERSION);
    assert_eq!((config.buffer_size, config.packet_size), (65_536, 1024));
    assert_eq!(config.metadata_size, 512);
    assert_eq!(
        (config.slot_count, config.shadow_stacks, config.shadow_depth),
        (64, 3, 16)
    );
    assert_eq!(config.buffer as usize % 8, 0);
    assert_eq!((config.clock_hz, config.tick_hz), (1_000_000, 1000));
}

fn work(depth: u32) {
    let _call = kymo::call(work as *const () as usize);
    if depth > 0 {
        work(depth - 1);
    }
}

#[test]
fn a_rust_program_records_itself() {
    work(1);
    kymo::on();
    work(2);
    kymo::disable();
    work(1);
    kymo::enable();
    kymo::named_marker(c"half", 2);
    // A kernel in Rust.
    Kymo.isr_enter(9);
    Kymo.semaphore_give(5);
    Kymo.semaphore_take(6, 7);
    Kymo.isr_exit(9);
    let sensor = Sensor {
        channel: 3,
        volts: 1.5,
        offset: -2,
    };
    sensor.record();
    let heard = |mode, name| Heard {
        mode,
        samples: [1, 2, 0xFFFF],
        raw: [7, 8],
        name: Text::new(name),
    };
    heard(Mode::On, "one").record();
    // Its last character does not fit, and no part of it is recorded.
    heard(Mode::Unset, "four€").record();
    heard(Mode::Unset, "abc€").record();
    kymo::off();
    sensor.record();
    work(1);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust.kymo");
    let file = CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero in the path");
    kymo::save(&file).expect("it is saved");
    let bytes = std::fs::read(&path).expect("it was saved");
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line of text");
    let line = String::from_utf8_lossy(&bytes[..end]);
    let identity = Identity::parse(&line).expect("the identity");
    let kinds: Vec<Kind> = packets(&bytes[end + 1..], identity.layout, identity.text_base)
        .into_iter()
        .flat_map(|packet| packet.records)
        .map(|record| record.kind)
        .filter(|kind| !matches!(kind, Kind::Metadata { .. }))
        .collect();
    let elf = std::fs::read(std::env::current_exe().expect("it has a file")).expect("it is one");
    for description in [
        "7 Sensor u8 channel f32 volts i16 offset\0",
        "enum Mode i16 -1=Unset 16=On\0",
        "8 Heard Mode mode u16 samples[3] bytes2 raw text4 name\0",
    ] {
        let description = description.as_bytes();
        let described = elf.windows(description.len()).any(|it| it == description);
        assert!(described, "the ELF file says what is in it");
    }
    let function = work as *const () as u64;
    let (enter, exit) = (Kind::Enter(function), Kind::Exit(function));
    let recording = |on| Kind::Recording { on, cause: 2 };
    let mut expected = vec![recording(true)];
    expected.extend([enter.clone(), enter.clone(), enter]);
    expected.extend([exit.clone(), exit.clone(), exit]);
    let Kind::NamedMarker { name, .. } = kinds[7] else {
        panic!("no marker: {:?}", kinds[7]);
    };
    expected.push(Kind::NamedMarker { name, value: 2 });
    expected.push(Kind::IsrEnter(9));
    for (number, value) in [(9, 5), (10, 6), (11, 7)] {
        let Kind::NamedMarker { name, .. } = kinds[number] else {
            panic!("no marker: {:?}", kinds[number]);
        };
        expected.push(Kind::NamedMarker { name, value });
    }
    expected.push(Kind::IsrExit(9));
    let mut data = vec![3];
    data.extend(1.5f32.to_ne_bytes());
    data.extend((-2i16).to_ne_bytes());
    expected.push(Kind::Block { kind: 7, data });
    for (mode, name) in [(0x10i16, b"one\0"), (-1, b"four"), (-1, b"abc\0")] {
        let mut data = mode.to_ne_bytes().to_vec();
        data.extend([1u16, 2, 0xFFFF].iter().flat_map(|it| it.to_ne_bytes()));
        data.extend([7, 8]);
        data.extend(name);
        expected.push(Kind::Block { kind: 8, data });
    }
    expected.push(recording(false));
    assert_eq!(kinds, expected);

    kymo::clear();
    kymo::save(&file).expect("it is saved");
    let cleared = std::fs::metadata(&path).expect("it was saved").len();
    assert!(cleared < bytes.len() as u64);
    let error = kymo::save(c"/nowhere/at/all").expect_err("there is no such folder");
    assert_eq!(error.errno, 2);
}
