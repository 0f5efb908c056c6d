//! The profile table while interrupts preempt between any two instructions of the hooks: it must agree with the trace
//! of the same run for every function, to the tick.

use std::collections::BTreeMap;
use std::path::Path;

use kymo_device_tests::emulator::{Core, Program, Said, TARGET, equipped, library_for};
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

/// The packets in memory, with the open one completed.
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

/// Figures of a function: calls, total, self, minimum and maximum time, and whether (1) it ever called itself.
type Numbers = [u64; 6];

/// An open call: function, time, and that of its callees.
type Open = (u64, u64, u64);

/// Computes the figures of each function from the records. A recorded interrupt stops the clock of the interrupted
/// code.
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

/// Decodes the table: `kymo_slot_t` of a 32-bit machine; the last one belongs to the table itself.
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

/// How `table.c` is built and run.
#[derive(Clone, Copy)]
struct Variant<'a> {
    core: Core,
    features: &'a str,
    rounds: u32,
    /// Whether both interrupts are recorded. Otherwise totals may be slightly off.
    reported: bool,
    /// Approximate frequency of each interrupt in Hz; `None`: continuous.
    hz: Option<u32>,
}

impl<'a> Variant<'a> {
    const fn usual(features: &'a str, rounds: u32, reported: bool) -> Self {
        Self {
            core: Core::M4,
            features,
            rounds,
            reported,
            hz: None,
        }
    }
}

/// Result of a run.
struct Outcome {
    said: Said,
    program: Program,
    /// By function.
    table: BTreeMap<u64, Numbers>,
}

impl Outcome {
    fn of(&self, function: &str) -> Numbers {
        self.table[&self.program.functions()[function]]
    }

    fn calls(&self) -> u64 {
        self.table.values().map(|numbers| numbers[0]).sum()
    }
}

/// Runs `table.c` and compares the table with the trace.
fn compare(variant: Variant<'_>) -> Outcome {
    let Variant {
        core,
        features,
        rounds,
        reported,
        hz,
    } = variant;
    let kind = if features.is_empty() {
        "assembly"
    } else {
        features
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("stress_table")
        .join(format!("{core:?}-{kind}-{rounds}-{reported}-{hz:?}"));
    let library = folder.with_file_name(format!("library-{core:?}-{kind}"));
    let library = library_for(core, &library, features);
    let mut options = vec![
        "-finstrument-functions".to_owned(),
        format!("-DROUNDS={rounds}"),
    ];
    if reported {
        options.push("-DTOLD".to_owned());
    }
    if let Some(hz) = hz {
        // At 25 MHz.
        let least = 25_000_000 / hz / 2;
        for name in ["LOW", "HIGH"] {
            options.push(format!("-DSTRIKE_{name}={least}"));
            options.push(format!("-DSTRIKE_{name}_RANGE={}", 2 * least));
        }
        options.push("-DTIMES=50".to_owned());
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = Program::build_for(core, &folder, "table.c", &options, &[&library]);
    let said = program.run(&folder);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("it was written");
    let packets = whole_packets(&read("trace.bin"), &said);
    assert_eq!(packets[0].sequence, 0, "all is kept");
    assert!(packets.iter().all(|packet| packet.discarded == 0));
    let expected = account(&packets);
    let mut found = table(&read("table.bin"));
    if !reported {
        for (function, numbers) in &mut found {
            let total = expected.get(function).map_or(0, |numbers| numbers[1]);
            assert!(numbers[1].abs_diff(total) <= total / 50, "{function:#x}");
            numbers[1] = total;
        }
    }
    assert_eq!(found, expected);
    let outcome = Outcome {
        said,
        program,
        table: found,
    };
    let said = |name: &str| u64::from(outcome.said.number(name));
    assert_eq!(outcome.of("low")[0], said("low"));
    assert_eq!(outcome.of("high")[0], said("high"));
    assert!(said("low") > 100 && said("high") > 100 && outcome.of("again")[0] > 100);
    outcome
}

/// Compares TOTAL and SELF with the emulator's count of instructions, with two nested interrupts, each about 4,000
/// times a second.
fn hold_against_instructions(core: Core, features: &str) {
    const ROUNDS: u64 = 300;
    let run = compare(Variant {
        core,
        features,
        rounds: ROUNDS as u32,
        reported: true,
        hz: Some(4000),
    });
    let said = |name: &str| u64::from(run.said.number(name));
    assert!(said("nested") > 10, "{} nested", said("nested"));
    // All that was executed between the outermost calls' begins and ends, but for the handlers. A call begins and
    // ends at the moments at which its hooks read the clock, some instructions within.
    let total = run.of("turns")[1];
    let truth = said("outer") - said("handlers");
    let unseen = said("unseen") * 1000;
    let (least, most) = (truth - ROUNDS * 1000 - unseen, truth + unseen);
    assert!(
        (least..=most).contains(&total),
        "{total} ticks in the table, {least} to {most} of instructions, of {} with handlers",
        said("outer")
    );
    assert!(most - least < most / 10, "{least} to {most}");
    assert!(said("outer") > most * 5 / 4, "handlers took their time");
    // Self times of all functions are what all outermost calls took: those of the thread, and of each handler.
    let all_self: u64 = run.table.values().map(|numbers| numbers[2]).sum();
    let outermost = total + run.of("low")[1] + run.of("high")[1];
    assert_eq!(all_self, outermost);
    for [count, total, own, least, most, _] in run.table.into_values() {
        assert!(count > 0 && least <= most && most <= total && own < 1 << 32);
    }
}

#[test]
fn the_table_of_a_cortex_m4_is_what_was_executed() {
    if equipped(&[TARGET]) {
        hold_against_instructions(Core::M4, "");
    }
}

#[test]
fn the_table_of_a_cortex_m0_is_what_was_executed() {
    if equipped(&[Core::M0.target()]) {
        hold_against_instructions(Core::M0, "");
    }
}

#[test]
fn the_table_of_a_cortex_m0_is_that_of_the_trace_wherever_interrupts_strike() {
    if equipped(&[Core::M0.target()]) {
        let calls = compare(Variant {
            core: Core::M0,
            features: "",
            rounds: 50,
            reported: true,
            hz: None,
        });
        assert!(calls.calls() > 1_000, "{}", calls.calls());
    }
}

#[test]
fn the_table_is_that_of_the_trace_wherever_interrupts_strike() {
    if equipped(&[TARGET]) {
        let calls = compare(Variant::usual("", 200, true)).calls();
        assert!(calls > 4_000, "{calls}");
    }
}

#[test]
fn so_it_is_with_portable_hooks() {
    if equipped(&[TARGET]) {
        let calls = compare(Variant::usual("portable", 50, true)).calls();
        assert!(calls > 1_000, "{calls}");
    }
}

#[test]
fn so_it_is_but_for_totals_where_nobody_tells_of_interrupts() {
    if equipped(&[TARGET]) {
        let calls = compare(Variant::usual("", 100, false)).calls();
        assert!(calls > 2_000, "{calls}");
    }
}
