//! Shows the fields of decoded packets and events: with field programs where available, otherwise by a walk over the
//! nodes.

use std::cell::Cell;

use super::super::bits::Cursor;
use super::super::run_program;
use super::super::walk::{Sink, Walk};
use super::{EventRecord, View};
use crate::metadata::Scope;
use crate::plan::field_program::Op;
use crate::plan::header_table::{HeaderEntry, HeaderTable};
use crate::plan::{IntegerNode, Program};

impl View {
    /// The programs of a packet's scope, and its position.
    pub(in crate::read) fn packet_program(&self, scope: Scope) -> Option<(Program, u64)> {
        match scope {
            Scope::PacketHeader => Some((self.plan.packet_header?, 0)),
            Scope::PacketContext => {
                let stream = self.plan.streams.get(self.packet.stream_class)?;
                Some((stream.packet_context?, self.context_start))
            }
            _ => None,
        }
    }

    /// The programs of an event's scope, and its position.
    #[inline]
    pub(in crate::read) fn event_program(
        &self,
        record: &EventRecord,
        scope: Scope,
    ) -> Option<(Program, u64)> {
        let stream = self.plan.streams.get(self.packet.stream_class)?;
        let event = || stream.events.get(record.parts.class as usize);
        let [stream_context, context, fields] = record.parts.starts;
        let (program, part) = match scope {
            Scope::EventHeader => (stream.event_header?, 0),
            Scope::StreamEventContext => (stream.event_context?, stream_context),
            Scope::EventContext => (event()?.context?, context),
            Scope::EventFields => (event()?.fields?, fields),
            Scope::PacketHeader | Scope::PacketContext => return None,
        };
        Some((program, record.start + u64::from(part)))
    }

    /// Shows fields of the packet's header or context.
    pub(in crate::read) fn show_head<'a, S: Sink<'a>>(
        &'a self,
        program: Program,
        scope: Scope,
        start: u64,
        sink: &mut S,
    ) {
        let place = self.place(&self.head, 0);
        if !self.show(place, self.flat(program), 0, start, sink) {
            self.walk_again(&self.head, 0, program, scope, start, sink);
        }
    }

    /// Shows fields of a scope of an event.
    #[inline]
    pub(in crate::read) fn show_event<'a, S: Sink<'a>>(
        &'a self,
        program: Program,
        scope: Scope,
        start: u64,
        sink: &mut S,
    ) {
        let (bytes, base) = self.window.held();
        let place = self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8));
        if !self.show(place, self.flat(program), 0, start, sink) {
            let (bytes, first) = self.window.from(self.packet.offset);
            let origin = (first - self.packet.offset) * 8;
            self.walk_again(bytes, origin, program, scope, start, sink);
        }
    }

    /// The header entry of an event.
    #[inline(always)]
    pub(in crate::read) fn lead(&self, record: &EventRecord) -> Option<&HeaderEntry> {
        let stream = self.plan.streams.get(self.packet.stream_class)?;
        stream.header_table.as_ref()?.get(record.lead)
    }

    /// All header entries of the packet's stream class.
    pub(in crate::read) fn leads(&self) -> &[Option<HeaderEntry>] {
        let stream = self.plan.streams.get(self.packet.stream_class);
        let table = stream.and_then(|stream| stream.header_table.as_ref());
        table.map_or(&[], HeaderTable::all)
    }

    /// Location of the fields of events.
    pub(in crate::read) fn event_place(&self) -> run_program::Place<'_, '_> {
        let (bytes, base) = self.window.held();
        self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8))
    }

    /// Runs a program, or a part of one, of this event's header entry, from operation `first` on.
    #[inline]
    pub(in crate::read) fn show_led<'a, S: Sink<'a>>(
        &'a self,
        record: &EventRecord,
        ops: Option<&'a [Op]>,
        first: usize,
        sink: &mut S,
    ) -> bool {
        let Some(ops) = ops else { return false };
        let (bytes, base) = self.window.held();
        let place = self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8));
        self.show(place, Some(ops), first, record.start, sink)
    }

    /// Shows only the values of an event with a header entry.
    #[inline]
    pub(in crate::read) fn show_values<'a, S: Sink<'a>>(
        &'a self,
        record: &EventRecord,
        sink: &mut S,
    ) -> bool {
        let Some(ops) = self.lead(record).and_then(HeaderEntry::values) else {
            return false;
        };
        let (bytes, base) = self.window.held();
        let place = self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8));
        let done = place.show_values(ops, record.start, sink);
        debug_assert!(done.is_some(), "decoded before");
        true
    }

    /// Passes the plain numbers at the start of a program of this event's header entry to `taken`; returns their
    /// number.
    #[inline(always)]
    pub(in crate::read) fn numbers<'a>(
        &'a self,
        record: &EventRecord,
        ops: &'a [Op],
        taken: &mut impl FnMut(&'a str, &'a IntegerNode, u64) -> bool,
    ) -> Option<usize> {
        let (bytes, base) = self.window.held();
        let place = self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8));
        place.numbers(ops, record.start, taken)
    }

    /// Shows all fields after the header of an event without a header entry, if there is a program for that.
    pub(in crate::read) fn show_body<'a, S: Sink<'a>>(
        &'a self,
        record: &EventRecord,
        sink: &mut S,
    ) -> bool {
        let stream = self.plan.streams.get(self.packet.stream_class);
        let event = stream.and_then(|it| it.events.get(record.parts.class as usize));
        let ops = event.and_then(|event| event.body.as_deref());
        let (bytes, base) = self.window.held();
        let place = self.place(bytes, self.packet.offset.wrapping_sub(base).wrapping_mul(8));
        let start = record.start + u64::from(record.parts.starts[0]);
        self.show(place, ops, 0, start, sink)
    }

    /// Position of the fields after an event's header, for other interpreters.
    #[inline(always)]
    pub(in crate::read) fn body_place<'a>(
        &'a self,
        record: &EventRecord,
    ) -> (run_program::Place<'a, 'a>, u64) {
        let (bytes, base) = self.window.held();
        let packet = self.packet.offset.wrapping_sub(base).wrapping_mul(8);
        let start = record.start + u64::from(record.parts.starts[0]);
        (self.place(bytes, packet), start)
    }

    /// Position of the fields of the packet context, for other interpreters.
    #[inline(always)]
    pub(in crate::read) fn context_place(&self) -> (run_program::Place<'_, '_>, u64) {
        (self.place(&self.head, 0), self.context_start)
    }

    #[inline(always)]
    fn place<'a>(&'a self, bytes: &'a [u8], packet: u64) -> run_program::Place<'a, 'a> {
        run_program::Place {
            plan: &self.plan,
            slots: &self.slots,
            bytes,
            packet,
        }
    }

    /// Shows fields with a field program, if there is one.
    #[inline(always)]
    fn show<'a, S: Sink<'a>>(
        &'a self,
        place: run_program::Place<'a, 'a>,
        program: Option<&'a [Op]>,
        first: usize,
        start: u64,
        sink: &mut S,
    ) -> bool {
        let Some(ops) = program else { return false };
        let done = place.show(ops, first, start, sink);
        debug_assert!(done.is_some(), "decoded before");
        true
    }

    /// A field program of the plan.
    fn flat(&self, program: Program) -> Option<&[Op]> {
        Some(self.plan.flat.get(program.flat? as usize)?)
    }

    /// Walks over fields that were decoded before.
    fn walk_again<'a, S: Sink<'a>>(
        &'a self,
        bytes: &'a [u8],
        origin: u64,
        program: Program,
        scope: Scope,
        start: u64,
        sink: &mut S,
    ) {
        let end = origin + bytes.len() as u64 * 8;
        let mut cursor = Cursor::new(bytes, origin, start, end, false);
        let walk = Walk {
            plan: &self.plan,
            slots: &self.slots,
            scope,
            empties: Cell::new(0),
        };
        let done = walk.scope(program.full, &mut cursor, sink);
        // Decoding has processed the same bytes with the same plan, so this cannot fail.
        debug_assert!(done.is_ok(), "{done:?}");
    }
}
