//! Interrupts that preempt between any two instructions. The tests check every record: none may be lost or torn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kymo_device_tests::emulator::{Program, Said, TARGET, equipped, library, minimal_library};
use kymo_device_tests::{Kind, Packet, packets};
use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::packet::{PACKET_MAGIC, PacketHeader};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("stress")
        .join(name)
}

/// Recording of `hooks.c`.
struct Recorded {
    said: Said,
    /// The packets in memory, with the open one completed.
    packets: Vec<Packet>,
    /// The whole buffer.
    memory: Vec<u8>,
    functions: BTreeMap<String, u64>,
}

/// The minimal recorder in place of the library's `features`.
const MINIMAL: &str = "minimal";

/// Builds and runs `hooks.c`.
fn hooks(name: &str, features: &str, options: &[&str], function_shift: u8) -> Recorded {
    const PLACE: usize = 4096;
    let folder = folder(name);
    let kind = if features.is_empty() {
        "assembly"
    } else {
        features
    };
    let target = folder.with_file_name(format!("library-{kind}"));
    let library = match features {
        MINIMAL => minimal_library(&target),
        _ => library(&target, features),
    };
    let options = [&["-finstrument-functions"], options].concat();
    let program = Program::build(&folder, "hooks.c", &options, &[&library]);
    let said = program.run(&folder);
    let memory = std::fs::read(folder.join("trace.bin")).expect("it was written");
    let layout = Layout {
        shape: Shape::Compact,
        word: WordSize::Bits32,
        order: ByteOrder::Little,
        function_shift,
    };
    let (at, last) = (said.number("at") as usize, said.number("last"));
    let mut whole = Vec::new();
    for (n, place) in memory.chunks(PLACE).enumerate() {
        let mut place = place.to_vec();
        if place[..4] != PACKET_MAGIC.to_le_bytes() {
            break;
        }
        let mut header = PacketHeader::read(layout, &place).expect("a header");
        if at > n * PLACE && at <= (n + 1) * PLACE && header.content_bits == 44 * 8 {
            header.content_bits = ((at - n * PLACE) * 8) as u32;
            header.packet_bits = header.content_bits;
            header.end = header.begin + u64::from(last.wrapping_sub(header.begin as u32));
            header.write(layout, &mut place);
        }
        place.truncate((header.content_bits / 8) as usize);
        whole.extend(place);
    }
    let found = packets(&whole, layout, 0);
    for pair in found.windows(2) {
        assert_eq!(pair[0].sequence + 1, pair[1].sequence);
        assert!(pair[0].end <= pair[1].begin);
    }
    assert_eq!(
        (found[0].sequence, found[0].discarded),
        (0, 0),
        "all is kept"
    );
    Recorded {
        said,
        packets: found,
        memory,
        functions: program.functions(),
    }
}

#[test]
fn hooks_in_assembly_write_what_the_portable_ones_write() {
    if !equipped(&[TARGET]) {
        return;
    }
    let options = ["-DCOMPARE", "-DROUNDS=100000"];
    let assembly = hooks("compare-assembly", "", &options, 4);
    let portable = hooks("compare-portable", "portable", &options, 4);
    assert!(assembly.memory == portable.memory, "not the same bytes");
    // All forms were among them, and all that can come in between.
    let mut ids = BTreeMap::new();
    for packet in &assembly.packets {
        for (id, count) in &packet.ids {
            *ids.entry(*id).or_insert(0) += count;
        }
    }
    for id in [0, 1, 2, 4, 5, 6, 14, 17, 18, 22, 31] {
        assert!(ids.get(&id).copied().unwrap_or(0) > 5, "{id}: {ids:?}");
    }
}

/// The random numbers of `hooks.c`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}

/// The effect of `branch` in `hooks.c`: the functions that it enters (`Some`) and exits.
fn branch(random: &mut Random, depth: u32, calls: &mut Vec<Option<&'static str>>) {
    calls.push(Some("branch"));
    let chance = random.next();
    calls.extend([Some("leaf"), None]);
    if depth != 0 && chance.is_multiple_of(4) {
        branch(random, depth - 1, calls);
    }
    if chance % 8 < 3 {
        calls.extend([Some("leaf"), None]);
    }
    calls.push(None);
}

/// Runs `hooks.c` with its interrupts and checks every record; returns their number.
fn struck(name: &str, features: &str, rounds: u32) -> (usize, Recorded) {
    let rounds_option = format!("-DROUNDS={rounds}");
    let minimal = features == MINIMAL;
    let mut options = vec![rounds_option.as_str()];
    options.extend(minimal.then_some("-DMINIMAL"));
    options.extend((features == "portable").then_some("-DSTRIKE_FORGETS"));
    let recorded = hooks(name, features, &options, 1);
    let mut random = Random(88_172_645_463_325_252);
    let mut expected = vec![Some("run")];
    for _ in 0..rounds {
        branch(&mut random, 20, &mut expected);
    }
    let mut expected = expected.into_iter();
    let names: BTreeMap<u64, &str> = recorded
        .functions
        .iter()
        .map(|(name, address)| (*address, name.as_str()))
        .collect();
    let handlers = ["preempt_low", "preempt_high"];
    // The calls that are open: of the thread, and on top of them those of handlers.
    let mut stack: Vec<&str> = Vec::new();
    let mut counts = BTreeMap::new();
    let mut records = 0;
    let mut off = false;
    for record in recorded.packets.iter().flat_map(|packet| &packet.records) {
        assert!(!off, "{record:?} while recording is off");
        let within = stack.iter().rposition(|name| handlers.contains(name));
        match record.kind {
            Kind::Enter(address) => {
                let name = names.get(&address).copied().unwrap_or("?");
                match (name, within) {
                    // A handler comes between any two records, but only the higher one in the other.
                    ("preempt_low", None) => {}
                    ("preempt_high", Some(n)) if stack[n] == "preempt_low" => {}
                    ("preempt_high", None) => {}
                    ("low_leaf", Some(n)) => assert_eq!(stack[n..], ["preempt_low"]),
                    ("high_leaf", Some(n)) => assert_eq!(stack[n..], ["preempt_high"]),
                    (_, None) => assert_eq!(expected.next(), Some(Some(name))),
                    _ => panic!("{name} in {stack:?}"),
                }
                stack.push(name);
                *counts.entry(name.to_owned()).or_insert(0) += 1;
            }
            Kind::Exit(address) => {
                let left = stack.pop().expect("something was entered");
                assert_eq!(names.get(&address).copied(), Some(left));
                if within.is_none() {
                    assert_eq!(expected.next(), Some(None));
                }
            }
            Kind::Recording { on: true, .. } if records == 0 => continue,
            // Its last word; nothing may come after it.
            Kind::Recording { on: false, .. } if minimal && !off => {
                off = true;
                continue;
            }
            ref other => panic!("{other:?}"),
        }
        records += 1;
    }
    assert_eq!(expected.next(), None, "calls are missing");
    assert_eq!(stack, ["run"]);
    assert_eq!(off, minimal, "turned off at the end");
    for (name, said) in [("low_leaf", "low"), ("high_leaf", "high")] {
        assert_eq!(
            counts.get(name),
            Some(&recorded.said.number(said)),
            "{name}"
        );
        assert!(recorded.said.number(said) > 100);
    }
    (records, recorded)
}

#[test]
fn a_million_calls_survive_interrupts_anywhere() {
    if !equipped(&[TARGET]) {
        return;
    }
    let (records, recorded) = struck("struck", "", 60_000);
    assert!(records >= 1_000_000, "{records}");
    // At every instruction of the hooks that is not behind `cpsid`: those before it and it, and the
    // return.
    let [enter, exit] = ["__cyg_profile_func_enter", "__cyg_profile_func_exit"]
        .map(|name| recorded.functions[name] as u32);
    let within = |from: u32, offsets: &[u32]| {
        for offset in offsets {
            let at = from - enter.min(exit) + offset;
            assert!(recorded.said.struck.contains(&at), "{offset} of {from:#x}");
        }
    };
    within(enter, &[0, 2, 6, 8, 10, 12, 16, 18, 22, 26, 30, 86]);
    within(exit, &[0, 2, 6, 8, 10, 12, 14, 18, 20, 24, 66]);
}

#[test]
fn portable_hooks_survive_interrupts_anywhere() {
    if equipped(&[TARGET]) {
        let (records, _) = struck("struck-portable", "portable", 6_000);
        assert!(records >= 100_000, "{records}");
    }
}

#[test]
fn the_minimal_recorder_survives_interrupts_anywhere() {
    if equipped(&[TARGET]) {
        let (records, recorded) = struck("struck-minimal", MINIMAL, 6_000);
        assert!(records >= 100_000, "{records}");
        // Calls go on from packet to packet, and every packet says so.
        assert!(recorded.packets.len() > 50);
        assert!(recorded.packets.iter().all(|packet| packet.flags == 2));
    }
}

#[test]
fn other_events_survive_interrupts_anywhere() {
    const ROUNDS: u32 = 3000;
    if !equipped(&[TARGET]) {
        return;
    }
    let rounds = format!("-DROUNDS={ROUNDS}");
    let options = [rounds.as_str(), "-DEVENTS", "-DSTRIKE_FORGETS"];
    let recorded = hooks("events", "", &options, 1);
    // The interrupts that are being served, and how many there were.
    let (mut open, mut next) = (Vec::new(), 0);
    let mut counts = [0, 0];
    for packet in &recorded.packets {
        assert_eq!(
            usize::from(packet.isr_depth),
            open.len(),
            "at {}",
            packet.begin
        );
        for record in &packet.records {
            match record.kind {
                Kind::IsrEnter(irq) => {
                    assert!(
                        open.is_empty() || (open == [15] && irq == 24),
                        "{irq} in {open:?}"
                    );
                    open.push(irq);
                    counts[usize::from(irq == 24)] += 1;
                }
                Kind::IsrExit(irq) => assert_eq!(open.pop(), Some(irq)),
                Kind::Marker(value) => {
                    assert_eq!((value, open.len()), (next, 0));
                    next += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!((next, open.len()), (ROUNDS, 0));
    assert_eq!(
        counts,
        ["low", "high"].map(|name| recorded.said.number(name))
    );
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
