//! Loom models of writers, signals and readers that interact, in every order, with every value that each processor
//! could see of the others' memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kymo-recorder --release --lib model` runs them. Loom runs each with all
//! interleavings of up to [`PREEMPTIONS`] preemptions (`LOOM_MAX_PREEMPTIONS` changes that), and all values that a load
//! may return. It also tracks data without atomics ([`Owned`](crate::sync::Owned)): a packet that is read while it is
//! written fails the model even if the bytes happen to be right. To prove that the models detect errors, tests omit one
//! kind of ordering and expect a failure.
//!
//! A signal is a flag that another thread sets: the writer's thread checks it wherever a signal can preempt, and then
//! runs the handler to its end before it continues.
//!
//! The models of several processors and of items are beside their code (`cpus/model.rs`, `items/model.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use kymo_wire::event::{ByteOrder, Layout, PacketHeader, Shape, WordSize};

use crate::sync::{WEAK, Weak};

mod buffer;
mod threads;

/// Most preemptions of threads in one interleaving.
const PREEMPTIONS: usize = 3;

/// Most steps of one run: more than the longest has.
const STEPS: usize = 20_000;

/// The layout of a 64-bit machine.
pub(crate) const LAYOUT: Layout = Layout {
    shape: Shape::Wide,
    word: WordSize::Bits64,
    order: ByteOrder::NATIVE,
    function_shift: 0,
};

/// Runs `model` in all interleavings, with one ordering weakened, or none.
pub(crate) fn explore(weak: Option<Weak>, model: impl Fn() + Sync + Send + 'static) {
    explore_with(PREEMPTIONS, weak, model);
}

/// The same with another number of preemptions, for models that would take too long.
pub(crate) fn explore_with(
    preemptions: usize,
    weak: Option<Weak>,
    model: impl Fn() + Sync + Send + 'static,
) {
    WEAK.set(weak);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = STEPS;
    let result = catch_unwind(AssertUnwindSafe(|| builder.check(model)));
    WEAK.set(None);
    match weak {
        None => result.expect("the model holds"),
        Some(weak) => assert!(result.is_err(), "{weak:?} is not missed"),
    }
}

/// Content of a stream's packets, as far as models need it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Number of events.
    pub events: usize,
    /// Offsets of the functions that were entered from the start of the text.
    pub entered: Vec<usize>,
    /// Number of events lost until the end of the last packet.
    pub discarded: u32,
    /// The time of the last event, if there are any.
    pub end: Option<u64>,
    /// The number of the last packet.
    sequence: Option<u32>,
}

impl Kept {
    /// Reads the next packet. It may contain only complete records of calls; anything else fails.
    pub fn packet(&mut self, packet: &[u8]) {
        let header = PacketHeader::read(LAYOUT, packet).expect("it has a header");
        if let Some(last) = self.sequence {
            assert_eq!(
                header.sequence,
                last + 1,
                "no packet is missing between two"
            );
        }
        assert!(header.discarded >= self.discarded, "losses are counted up");
        self.sequence = Some(header.sequence);
        self.discarded = header.discarded;
        let mut records = &packet[LAYOUT.header_bytes()..];
        while let Some(first) = records.first() {
            // Exit; enter; exit and enter with longer times; named exit.
            let bytes = match first & 0b111 {
                0b000 => 6,
                0b010 => 4,
                0b100 => 8,
                0b110 => {
                    assert_eq!(first >> 3, 4, "a named exit");
                    7
                }
                _ => 2,
            };
            let (record, rest) = records.split_at_checked(bytes).expect("a record is whole");
            match first & 0b111 {
                0b000 => self.entered.push(number(&record[3..6])),
                0b100 => self.entered.push(number(&record[4..8])),
                _ => {}
            }
            records = rest;
            self.events += 1;
            self.end = Some(header.end);
        }
    }

    /// Fails unless the functions, each `step` behind the one before, were recorded in order, and no more are missing
    /// between two than were counted as lost.
    pub fn in_order(&self, step: usize) {
        for pair in self.entered.windows(2) {
            let &[one, next] = pair else { continue };
            assert!(
                next > one && (next - one).is_multiple_of(step),
                "{one:#x} before {next:#x}"
            );
            let missing = (next - one) / step - 1;
            assert!(missing <= self.discarded as usize, "{missing} are missing");
        }
    }
}

/// A number in the machine's byte order.
fn number(bytes: &[u8]) -> usize {
    let push = |number: usize, byte: &u8| number << 8 | usize::from(*byte);
    match LAYOUT.order {
        ByteOrder::Little => bytes.iter().rev().fold(0, push),
        ByteOrder::Big => bytes.iter().fold(0, push),
    }
}
