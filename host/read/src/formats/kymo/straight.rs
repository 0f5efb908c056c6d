//! Entries and exits of the usual forms, decoded in a loop that knows nothing else.

use kymo_event::{Batch, Identities, Row, RowKind, Time};
use kymo_wire::event::EventId;

use super::header_table::{HeaderTable, load};
use super::interned::Interned;
use super::ticks::Near;
use crate::dialects::kymo::Dialect;

/// Where decoding is in a packet.
pub(super) struct Run {
    /// Where the next record begins, from the packet's beginning on.
    pub(super) at: usize,
    /// The tick of the last record.
    pub(super) clock: u64,
    /// How many exits may come that name no function.
    pub(super) entered: u64,
    /// How many more rows the batch takes.
    pub(super) room: usize,
}

/// What it takes to decode entries and exits of the usual forms: nearly all that there is.
pub(super) struct Straight<'a> {
    pub(super) table: &'a HeaderTable,
    pub(super) interned: &'a mut Interned,
    /// What all rows have.
    pub(super) row: Row,
    pub(super) content: &'a [u8],
    /// Nanoseconds of a tick, where that is a whole number.
    pub(super) factor: u64,
    /// The last tick of which events may be taken.
    pub(super) stop: u64,
}

impl Straight<'_> {
    /// Decodes as far as nothing unusual comes: whatever it is, it is left to others.
    #[inline(never)]
    ///
    /// `near` tells the times of ticks from here on to `stop`, where none is a whole number of nanoseconds.
    pub(super) fn run<const BIG: bool, const WHOLE: bool>(
        &mut self,
        run: &mut Run,
        near: &Near,
        dialect: &Dialect,
        identities: &mut Identities,
        batch: &mut Batch,
    ) {
        let Self {
            table,
            content,
            factor,
            stop,
            ref row,
            ref mut interned,
        } = *self;
        let near = *near;
        let (cpu, thread, stream) = (row.cpu(), row.thread(), row.stream);
        let row = |kind, time| Row::new(kind, time, stream).at(cpu, thread);
        let (mut at, mut clock, mut entered, mut room) = (run.at, run.clock, run.entered, run.room);
        let mut head = load(BIG, content, at);
        if head == 0 {
            return;
        }
        while room > 0 {
            let first = if BIG { head >> 56 } else { head & 0xFF };
            let header = table.get(first as u8);
            let elapsed = (head >> header.time_shift).wrapping_sub(clock) & header.time_mask;
            // Far from the end of all numbers: the clock is not behind `stop`, and a record adds 56 bits at most.
            let tick = clock.wrapping_add(elapsed);
            let next = at + usize::from(header.size);
            // Zeros may be a hole; so may be what this record ends in.
            let Some(ahead) = content.get(next..).and_then(<[u8]>::first_chunk) else {
                break;
            };
            let ahead = if BIG {
                u64::from_be_bytes(*ahead)
            } else {
                u64::from_le_bytes(*ahead)
            };
            if tick > stop || ahead == 0 {
                break;
            }
            let time = match WHOLE {
                true => Time((tick * factor) as i64),
                false => near.time(tick),
            };
            if header.function_mask != 0 {
                let number = (head >> header.function_shift) as u32 & header.function_mask;
                let function = interned.function(dialect, identities, number);
                batch.push(row(RowKind::Enter, time).function(Some(function)));
                entered += 1;
            } else if header.id == EventId::Exit && entered > 0 {
                batch.push(row(RowKind::Exit, time));
                entered -= 1;
            } else {
                break;
            }
            (at, clock, head) = (next, tick, ahead);
            room -= 1;
        }
        *run = Run {
            at,
            clock,
            entered,
            room,
        };
    }
}
