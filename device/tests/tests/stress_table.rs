//! The table of functions while interrupts strike between any two instructions of the hooks: it must say
//! of every function, to the tick, what the trace of the same run says.

use std::collections::BTreeMap;
use std::path::Path;

use kymo_device_tests::emulator::{Program, Said, TARGET, equipped, library};
use kymo_device_tests::{Kind, Packet, packets};
use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::packet::{PACKET_MAGIC, PacketHeader};

const PLACE: usize = 4096;

const LAYOUT: Layout = Layout {
    shape: Shape::Compact,
    word: WordSize::Bits32,
    order: ByteOrder::Little,
    function_shift: 1,
};

/// The packets in memory; the one that is open is completed.
fn whole_packets(memory: &[u8], said: &Said) -> Vec<Packet> {
    let (at, last) = (said.number("at") as usize, said.number("last"));
    let mut whole = Vec::new();
    for (n, place) in memory.chunks(PLACE).enumerate() {
        if place[..4] != PACKET_MAGIC.to_le_bytes() {
            break;
        }
        let mut place = place.to_vec();
        let mut header = PacketHeader::read(LAYOUT, &place).expect("a header");
        if (n * PLACE + 1..=(n + 1) * PLACE).contains(&at) && header.content_bits == 44 * 8 {
            header.content_bits = ((at - n * PLACE) * 8) as u32;
            header.packet_bits = header.content_bits;
            header.end = header.begin + u64::from(last.wrapping_sub(header.begin as u32));
            header.write(LAYOUT, &mut place);
        }
        place.truncate((header.content_bits / 8) as usize);
        whole.extend(place);
    }
    packets(&whole, LAYOUT, 0)
}

/// What is known of a function: calls, total, self, least and greatest time, and whether (1) it ever called
/// itself.
type Numbers = [u64; 6];

/// A call that is open: function, time, and that of its callees.
type Open = (u64, u64, u64);

/// What the records say of each function. An interrupt that says so stops the clock of what it interrupts.
fn account(packets: &[Packet]) -> BTreeMap<u64, Numbers> {
    let mut contexts: Vec<Vec<Open>> = vec![Vec::new()];
    let mut functions = BTreeMap::new();
    let mut before = 0;
    for record in packets.iter().flat_map(|packet| &packet.records) {
        let context = contexts.last_mut().expect("the thread's is there");
        for (_, time, _) in context.iter_mut() {
            *time += record.time - before;
        }
        before = record.time;
        match record.kind {
            Kind::Enter(function) => context.push((function, 0, 0)),
            Kind::Exit(function) => {
                let (left, time, callees) = context.pop().expect("something was entered");
                assert_eq!(left, function);
                if let Some(caller) = context.last_mut() {
                    caller.2 += time;
                }
                let recursive = context.iter().any(|call| call.0 == function);
                let numbers = functions
                    .entry(function)
                    .or_insert([0, 0, 0, u64::MAX, 0, 0]);
                let [count, total, own, least, greatest, itself] = numbers;
                *count += 1;
                *total += if recursive { 0 } else { time };
                *own += time - callees;
                *least = time.min(*least);
                *greatest = time.max(*greatest);
                *itself |= u64::from(recursive);
            }
            Kind::IsrEnter(_) => contexts.push(Vec::new()),
            Kind::IsrExit(_) => assert_eq!(contexts.pop(), Some(Vec::new())),
            Kind::Recording { on: true, .. } => {}
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(contexts, [Vec::new()], "all calls have ended");
    functions
}

/// What the table says: `kymo_slot_t` of a 32-bit machine, of which the last is the table's own.
fn table(memory: &[u8]) -> BTreeMap<u64, Numbers> {
    let slot = |slot: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        // The highest bit says that it called itself; the others, on which stacks it is.
        let (itself, stacks) = (word(8) >> 31, word(8) << 1);
        assert_eq!(stacks, 0, "nothing is open");
        let [own, total, least, most] = [long(16), long(24), !long(32), long(40)];
        let numbers = [word(4).into(), total, own, least, most, itself.into()];
        (word(0) != 0).then(|| (word(0).into(), numbers))
    };
    let slots = &memory[..memory.len() - 48];
    slots.chunks_exact(48).filter_map(slot).collect()
}

/// Runs `table.c` and compares; how many calls there were. Unless both interrupts are `told`, totals may
/// be a little off.
fn compare(features: &str, rounds: u32, told: bool) -> u64 {
    let kind = if features.is_empty() {
        "assembly"
    } else {
        features
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("stress_table")
        .join(format!("{kind}-{rounds}-{told}"));
    let library = library(&folder.with_file_name(format!("library-{kind}")), features);
    let rounds = format!("-DROUNDS={rounds}");
    let options = ["-finstrument-functions", &rounds, "-DTOLD"];
    let options = &options[..2 + usize::from(told)];
    let program = Program::build(&folder, "table.c", options, &[&library]);
    let said = program.run(&folder);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("it was written");
    let packets = whole_packets(&read("trace.bin"), &said);
    assert_eq!(packets[0].sequence, 0, "all is kept");
    assert!(packets.iter().all(|packet| packet.discarded == 0));
    let expected = account(&packets);
    let mut found = table(&read("table.bin"));
    if !told {
        for (function, numbers) in &mut found {
            let total = expected.get(function).map_or(0, |numbers| numbers[1]);
            assert!(numbers[1].abs_diff(total) <= total / 50, "{function:#x}");
            numbers[1] = total;
        }
    }
    assert_eq!(found, expected);
    let functions = program.functions();
    let calls = |name: &str| expected[&functions[name]][0];
    assert_eq!(calls("low"), said.number("low").into());
    assert_eq!(calls("high"), said.number("high").into());
    assert!(calls("low") > 100 && calls("high") > 100 && calls("again") > 100);
    expected.values().map(|numbers| numbers[0]).sum()
}

#[test]
fn the_table_is_that_of_the_trace_wherever_interrupts_strike() {
    if equipped(&[TARGET]) {
        let calls = compare("", 200, true);
        assert!(calls > 4_000, "{calls}");
    }
}

#[test]
fn so_it_is_with_portable_hooks() {
    if equipped(&[TARGET]) {
        let calls = compare("portable", 50, true);
        assert!(calls > 1_000, "{calls}");
    }
}

#[test]
fn so_it_is_but_for_totals_where_nobody_tells_of_interrupts() {
    if equipped(&[TARGET]) {
        let calls = compare("", 100, false);
        assert!(calls > 2_000, "{calls}");
    }
}
