//! How often code ran, by straight runs and branches: hot spots, coverage and profiles without an event for each
//! instruction or range.
//!
//! Each stream is decoded for itself, and long ones in parts, so that several threads work on them; see [`of_buffer`].

mod counter;
mod parts;

pub use parts::{Cut, of_buffer, of_buffer_cut};

use crate::doubts::Doubts;
use crate::element::Last;
use crate::instruction::Class;
use crate::isa::Isa;
use crate::memory::View;

/// What ran, of one stream or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Ranges of instructions.
    pub ranges: u64,
    /// Instructions.
    pub instructions: u64,
    /// Instructions of which only the number is known.
    pub without_path: u64,
    /// Exceptions.
    pub exceptions: u64,
    /// Distinct runs, by thread and address.
    pub runs: Vec<Run>,
    /// Branches taken to where only the trace says, by thread and addresses. Those of direct branches are in the runs.
    pub jumps: Vec<Jump>,
    /// What was not followed, and what does not fit.
    pub doubts: Doubts,
}

/// A straight run of instructions, and how often it executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The thread, if known.
    pub thread: Option<u32>,
    /// What was in memory.
    pub view: View,
    /// Address of the first instruction.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// The last instruction.
    pub last: Last,
    /// Where it leads, if it is a direct branch.
    pub target: Option<u64>,
    /// How often it executed.
    pub executions: u64,
    /// How often its last instruction, if a branch, was taken.
    pub taken: u64,
}

impl Run {
    fn key(&self) -> (Option<u32>, View, u64, u64, Isa, u32) {
        let Run {
            thread,
            view,
            start,
            end,
            isa,
            count,
            ..
        } = *self;
        (thread, view, start, end, isa, count)
    }

    fn place(&self) -> Place {
        place(self.thread, self.view, self.start)
    }

    /// Address of the last instruction.
    pub fn last_address(&self) -> u64 {
        self.end.wrapping_sub(u64::from(self.last.size))
    }

    /// Whether the last instruction is a branch.
    pub fn is_branch(&self) -> bool {
        matches!(self.last.class, Class::Branch | Class::Indirect)
    }
}

/// A branch that was taken, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The thread, if known.
    pub thread: Option<u32>,
    /// What was in memory.
    pub view: View,
    /// Address of the branch.
    pub from: u64,
    /// Where it went; 0 if the trace does not say, because it ends or stops there.
    pub to: u64,
    /// How often.
    pub count: u64,
}

impl Jump {
    fn place(&self) -> Place {
        place(self.thread, self.view, self.from)
    }
}

impl Counts {
    /// Adds what another stream ran.
    pub fn add(&mut self, other: Counts) {
        self.append(other);
        (self.runs, self.jumps) = self.merged(&Share::default());
    }

    /// Adds what another stream ran, with runs and jumps as they come.
    fn append(&mut self, other: Counts) {
        self.packets += other.packets;
        self.ranges += other.ranges;
        self.instructions += other.instructions;
        self.without_path += other.without_path;
        self.exceptions += other.exceptions;
        self.doubts.add(other.doubts);
        self.runs.extend(other.runs);
        self.jumps.extend(other.jumps);
    }

    /// Where to cut the runs and jumps so that as many threads have about as much to put in order.
    fn shares(&self, threads: usize) -> Vec<Share> {
        /// Runs of which one is looked at.
        const SAMPLE: usize = 64;
        let mut sample: Vec<Place> = self.runs.iter().step_by(SAMPLE).map(Run::place).collect();
        sample.sort_unstable();
        let cuts = (1..threads).filter_map(|cut| sample.get(cut * sample.len() / threads).copied());
        let mut shares = vec![Share::default()];
        for cut in cuts {
            if let Some(last) = shares.last_mut() {
                last.end = Some(cut);
            }
            shares.push(Share {
                begin: Some(cut),
                end: None,
            });
        }
        shares
    }

    /// A share of the runs and jumps in order; what is there several times is added up.
    fn merged(&self, share: &Share) -> (Vec<Run>, Vec<Jump>) {
        let mut runs = in_order(&self.runs, share, Run::place);
        for same in runs.chunk_by_mut(|a, b| a.place() == b.place()) {
            same.sort_unstable_by_key(Run::key);
        }
        runs.dedup_by(|next, run| {
            let is_same = run.key() == next.key();
            if is_same {
                run.executions += next.executions;
                run.taken += next.taken;
                run.target = run.target.or(next.target);
            }
            is_same
        });
        let mut jumps = in_order(&self.jumps, share, Jump::place);
        for same in jumps.chunk_by_mut(|a, b| a.place() == b.place()) {
            same.sort_unstable_by_key(|jump| jump.to);
        }
        jumps.dedup_by(|next, jump| {
            let is_same = (jump.place(), jump.to) == (next.place(), next.to);
            if is_same {
                jump.count += next.count;
            }
            is_same
        });
        (runs, jumps)
    }
}

/// Where something is: its thread, what was in memory, and the address. In the order of results.
type Place = (u64, u64, u64);

fn place(thread: Option<u32>, view: View, address: u64) -> Place {
    let view = u64::from(view.program()) << 32 | u64::from(view.change());
    (
        thread.map_or(0, |number| u64::from(number) + 1),
        view,
        address,
    )
}

/// Places from one on and before another one; all by default.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    begin: Option<Place>,
    end: Option<Place>,
}

impl Share {
    fn has(&self, place: Place) -> bool {
        self.begin.is_none_or(|begin| begin <= place) && self.end.is_none_or(|end| place < end)
    }
}

/// Those of a share in the order of their places. They are large, and of few threads and views: what is sorted is one number
/// for each.
fn in_order<T: Copy>(all: &[T], share: &Share, place: impl Fn(&T) -> Place) -> Vec<T> {
    let own = || {
        let numbered = (0u32..).zip(all);
        let numbered = numbered.map(|(index, one)| (index, place(one)));
        numbered.filter(|(_, place)| share.has(*place))
    };
    let mut rooms: Vec<(u64, u64)> = Vec::new();
    for (_, (thread, view, _)) in own() {
        if rooms.last() != Some(&(thread, view)) {
            rooms.push((thread, view));
        }
    }
    rooms.sort_unstable();
    rooms.dedup();
    let mut last = ((0, 0), None);
    let mut room_of = |room: (u64, u64)| {
        if last.1.is_none() || last.0 != room {
            last = (room, rooms.binary_search(&room).ok());
        }
        last.1.unwrap_or_default() as u128
    };
    let mut order: Vec<u128> = Vec::with_capacity(all.len());
    order.extend(own().map(|(index, (thread, view, address))| {
        room_of((thread, view)) << 96 | u128::from(address) << 32 | u128::from(index)
    }));
    order.sort_unstable();
    let sorted = order.iter().filter_map(|key| all.get(*key as u32 as usize));
    sorted.copied().collect()
}
