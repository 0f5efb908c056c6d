//! Fast path of the decoder: a tight loop over entries and exits of the usual forms.

use kymo_event::{Batch, Identities, Row};
use kymo_wire::event::EventId;

use super::header_table::{HeaderTable, load};
use super::interned::Interned;
use super::ticks::Near;
use crate::dialects::kymo::Dialect;

/// Decoding state within a packet.
pub(super) struct Run {
    /// The offset of the next record in the packet.
    pub(super) at: usize,
    /// The tick of the last record.
    pub(super) clock: u64,
    /// The number of open calls that an unnamed exit may close.
    pub(super) entered: u64,
    /// The number of rows that still fit into the batch.
    pub(super) room: usize,
}

/// Decoder for entries and exits of the usual forms, which are nearly all records.
pub(super) struct Straight<'a> {
    pub(super) table: &'a HeaderTable,
    pub(super) interned: &'a mut Interned,
    /// The template of all rows.
    pub(super) row: Row,
    pub(super) content: &'a [u8],
    /// The last tick whose events may be decoded.
    pub(super) stop: u64,
}

impl Straight<'_> {
    /// Decodes records up to the first one of another form, which the general decoder handles.
    ///
    /// `near` converts the ticks from `run.clock` to `stop`.
    #[inline(never)]
    pub(super) fn run<const BIG: bool>(
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
            stop,
            ref row,
            ref mut interned,
        } = *self;
        let near = *near;
        let mut calls = batch.run(row);
        let (mut clock, mut entered, mut room) = (run.clock, run.entered, run.room);
        let mut rest = content.get(run.at..).unwrap_or(&[]);
        let mut head = load(BIG, rest, 0);
        // Zeros may be missing data; so may the end of a record before zeros.
        while room > 0 && head != 0 {
            let first = if BIG { head >> 56 } else { head & 0xFF };
            let header = table.get(first as u8);
            let elapsed = (head >> header.time_shift).wrapping_sub(clock) & header.time_mask;
            // Cannot overflow: the clock is not after `stop`, and a record adds at most 56 bits.
            let tick = clock.wrapping_add(elapsed);
            let Some(behind) = rest.get(usize::from(header.size)..) else {
                break;
            };
            let Some(ahead) = behind.first_chunk() else {
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
            if header.function_mask != 0 {
                let number = (head >> header.function_shift) as u32 & header.function_mask;
                let function = interned.function(dialect, identities, number);
                calls.enter(function, near.time(tick));
                entered += 1;
            } else if header.id == EventId::Exit && entered > 0 {
                calls.exit(near.time(tick));
                entered -= 1;
            } else {
                break;
            }
            (rest, clock, head) = (behind, tick, ahead);
            room -= 1;
        }
        calls.end();
        *run = Run {
            at: content.len() - rest.len(),
            clock,
            entered,
            room,
        };
    }
}
