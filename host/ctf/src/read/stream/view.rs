//! Data from which events and packets are shown.

use std::cell::Cell;
use std::sync::Arc;

use super::super::event::PacketInfo;
use super::super::window::Window;
use super::EventRecord;
use crate::metadata::{Clock, EventClass, StreamClass};
use crate::plan::Plan;

/// A packet, and the part of its stream in memory: everything known about an event besides its [record](EventRecord).
#[derive(Debug)]
pub(in crate::read) struct View {
    pub(in crate::read) plan: Arc<Plan>,
    pub(super) window: Window,
    pub(in crate::read) packet: PacketInfo,
    /// The bytes of the packet's header and context, kept when the window advances.
    pub(super) head: Vec<u8>,
    /// Position of the context in the packet, in bits.
    pub(super) context_start: u64,
    /// Slots: numbers that other fields depend on.
    pub(super) slots: Vec<Cell<Option<u64>>>,
}

impl View {
    /// Creates an empty view.
    pub(super) fn new(plan: Arc<Plan>, window: Window) -> Self {
        Self {
            window,
            packet: PacketInfo::default(),
            head: Vec::new(),
            context_start: 0,
            slots: vec![Cell::new(None); plan.slots],
            plan,
        }
    }

    /// Switches to the packet of another view, and copies `length` bytes of its stream from offset `at` on, as far as
    /// they are in memory.
    pub(super) fn show_packet(&mut self, other: &Self, at: u64, length: u64) {
        if !Arc::ptr_eq(&self.plan, &other.plan) {
            self.plan = Arc::clone(&other.plan);
        }
        self.packet = other.packet;
        self.head.clone_from(&other.head);
        self.context_start = other.context_start;
        self.slots.clone_from(&other.slots);
        let (bytes, at) = other.window.from(at);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.window.hold(bytes.get(..length).unwrap_or(bytes), at);
    }

    pub(in crate::read) fn class(&self) -> &StreamClass {
        static NONE: StreamClass = StreamClass::new(0);
        self.plan
            .metadata
            .streams
            .get(self.packet.stream_class)
            .unwrap_or(&NONE)
    }

    pub(in crate::read) fn event_class(&self, record: &EventRecord) -> &EventClass {
        static NONE: EventClass = EventClass::new(0, String::new());
        self.class()
            .events
            .get(record.parts.class as usize)
            .unwrap_or(&NONE)
    }

    pub(in crate::read) fn clock(&self) -> Option<&Clock> {
        let clock = self.plan.streams.get(self.packet.stream_class)?.clock?;
        self.plan.metadata.clocks.get(clock.0 as usize)
    }
}
