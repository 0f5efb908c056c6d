//! Duration mode in a memory dump: reads open calls from the shadow stacks ([`kymo_wire::note::duration`]).
//!
//! Memory does not contain the time at which the target was stopped. Open calls therefore end at the last known time:
//! of a packet, of an entry, or of the last aging of frames.

use kymo_symbols::Program;
use kymo_wire::event::{METADATA_STREAM, PacketHeader, WordSize};
use kymo_wire::note::duration as structure;
use kymo_wire::packet::EVENT_STREAM;

use super::Found;
use super::open_calls::{self, OpenCall, headers};

/// Plausibility limits: more stacks than a structure has, and more frames than a stack has.
const STACKS: u32 = 64;
const FRAMES: u32 = 4096;

/// Location of a program's structures for duration mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The address of the first processor's structure; those of the others follow.
    pub at: u64,
    /// Whether bit 0 of a function's address is the Thumb bit.
    pub arm: bool,
}

impl Place {
    /// Finds the structures of a program; `None` if it has none.
    pub fn of(program: &Program) -> Option<Self> {
        let one = program.variable("kymo_duration");
        let at = one.or_else(|| program.variable("kymo_duration_of_cpu"))?;
        let arm = program.is_arm();
        Some(Self { at, arm })
    }
}

/// Adds the open calls, or a remark that they are missing.
pub(super) fn add(found: &mut Found<'_>) {
    let layout = found.recorder.layout;
    let structures = (0..found.recorder.cpus).map(|cpu| {
        let structure = Structure::read(found, cpu)?;
        Some((structure.aged, structure.calls(found)?))
    });
    let structures: Option<Vec<(u64, Vec<OpenCall>)>> = structures.collect();
    let Some(structures) = structures else {
        let mut packets = headers(layout, &found.packets);
        let is_one = |header: PacketHeader| {
            header.cpu != METADATA_STREAM && header.flags & PacketHeader::FLAG_CALLS != 0
        };
        if packets.any(is_one) {
            found.remarks.push(
                "calls that had not ended are missing: in duration mode they stand in the program's KYMO_DURATION, which the \
                 ELF file does not name, or which is not in the dump"
                    .to_owned(),
            );
        }
        return;
    };
    let events = headers(layout, &found.packets).filter(|header| header.cpu != METADATA_STREAM);
    let calls = structures.iter().flat_map(|(_, calls)| calls);
    let starts = calls.map(|call| call.start);
    let aged = structures.iter().map(|(aged, _)| *aged);
    let now = events.map(|header| header.end).chain(starts).chain(aged);
    let now = now.max().unwrap_or(0);
    for (cpu, (_, mut calls)) in (0..).zip(structures) {
        // The target has recorded them for a reader, after recording was turned off.
        let mut known = open_calls::recorded(layout, &found.packets, cpu, now);
        calls.retain(|call| {
            let place = known.iter().position(|it| it.is(call));
            place.map(|place| known.swap_remove(place)).is_none()
        });
        let head = PacketHeader {
            stream: EVENT_STREAM,
            flags: PacketHeader::FLAG_CALLS,
            isr_depth: 0,
            cpu,
            sequence: 0,
            discarded: 0,
            begin: 0,
            end: 0,
            content_bits: 0,
            packet_bits: 0,
            thread: 0,
        };
        let packet = open_calls::packet(layout, head, now, &found.packets, &calls);
        found.packets.extend(packet.unwrap_or_default());
    }
}

/// A processor's structure for duration mode.
struct Structure {
    is_on: bool,
    arm: bool,
    top: u64,
    frames: u64,
    stacks: u32,
    depth: u32,
    running: u64,
    /// The last known time of the processor: all frames began within one wraparound of a 32-bit counter before it.
    known: u64,
    /// A lower bound of the time when its frames last aged; 0 if they never did.
    aged: u64,
}

impl Structure {
    /// `None` if it is not in the dump, or not valid.
    fn read(found: &Found<'_>, cpu: u32) -> Option<Self> {
        let Place { at, arm } = found.recorder.duration?;
        let word = found.recorder.layout.word;
        let at = at.wrapping_add(u64::from(cpu) * structure::bytes(word) as u64);
        let place = |offset: usize| at.wrapping_add(offset as u64);
        let half = |offset: usize| found.half(place(offset));
        if half(structure::magic(word))? != structure::MAGIC {
            return None;
        }
        let stacks = structure::stacks(word);
        let layout = found.recorder.layout;
        let packets = headers(layout, &found.packets);
        let ends = packets.filter(|header| u32::from(header.cpu) == cpu);
        let recorded = ends.map(|header| header.end).max().unwrap_or(0);
        let aged = u64::from(half(structure::age(word))?) << 30;
        Some(Self {
            is_on: half(structure::flags(word))? & structure::ON != 0,
            arm,
            top: found.word(place(structure::TOP))?,
            frames: found.word(place(structure::frames(word)))?,
            stacks: half(stacks)?,
            depth: half(stacks + 4)?,
            running: found.word(place(structure::running(word)))?,
            known: recorded.max(aged),
            aged,
        })
    }

    /// All open calls, the outermost of each stack first; `None` if frames are damaged or not in the dump.
    fn calls(&self, found: &Found<'_>) -> Option<Vec<OpenCall>> {
        let mut calls = Vec::new();
        // No frames before the recorder is initialised.
        if !self.is_on || self.top == 0 {
            return Some(calls);
        }
        if self.stacks > STACKS || !(2..=FRAMES).contains(&self.depth) {
            return None;
        }
        let bytes = (structure::FRAME_WORDS * found.recorder.layout.word.bytes()) as u64;
        for n in 0..self.stacks {
            let stack = self.frames.wrapping_add(u64::from(n * self.depth) * bytes);
            let head = Frame::read(found, stack)?;
            if head.word(structure::START_HIGH) != 0 {
                // Its thread continues on another stack.
                continue;
            }
            let is_running = stack == self.running && head.word(structure::DEEP) == 0;
            let end = match is_running {
                true => self.top,
                false => head.word(structure::END),
            };
            let count = end.checked_sub(stack).map_or(0, |length| length / bytes);
            for i in 1..count.min(self.depth.into()) {
                let frame = Frame::read(found, stack.wrapping_add(i * bytes))?;
                calls.extend(self.call(found, &frame, head.word(structure::START)));
            }
        }
        Some(calls)
    }

    /// `None` if the frame has not been filled.
    fn call(&self, found: &Found<'_>, frame: &Frame, thread: u64) -> Option<OpenCall> {
        let function = frame.word(structure::FUNCTION);
        if function == 0 {
            return None;
        }
        let (start, callees) = (frame.word(structure::START), frame.word(structure::CALLEES));
        let is_wide = found.recorder.layout.word == WordSize::Bits64;
        let has_aged = !is_wide && (function & 1 == 1) != self.arm;
        let (start, callees) = match has_aged {
            _ if is_wide => (start, callees),
            true => {
                let again = u64::from(callees < frame.word(structure::END));
                let high = frame.word(structure::CALLEES_HIGH) + again;
                (
                    frame.word(structure::START_HIGH) << 32 | start,
                    high << 32 | callees,
                )
            }
            // Within half a wraparound before or after the last known time.
            false => {
                let apart = (start as u32).wrapping_sub(self.known as u32).cast_signed();
                let start = self.known.saturating_add_signed(apart.into());
                (start, callees)
            }
        };
        Some(OpenCall {
            function: function & !1,
            callees,
            start,
            thread,
        })
    }
}

/// The words of a frame.
struct Frame([u64; structure::FRAME_WORDS]);

impl Frame {
    fn read(found: &Found<'_>, at: u64) -> Option<Self> {
        let mut words = [0; structure::FRAME_WORDS];
        let bytes = found.recorder.layout.word.bytes() as u64;
        for (place, word) in (0..).zip(&mut words) {
            *word = found.word(at.wrapping_add(place * bytes))?;
        }
        Some(Self(words))
    }

    const fn word(&self, n: usize) -> u64 {
        self.0[n]
    }
}

#[cfg(test)]
mod tests;
