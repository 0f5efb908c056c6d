//! Items of several CPUs: a ring each, in its [`CpuBuffer`], under the same gate and clock as its events; and
//! records that a CPU fills in place.

use core::sync::atomic::Ordering;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::gate::Gate;
use crate::items::{Cursor, Drained, Item, Moment, Ring, Timed};
use crate::sync::add;

/// The memory of all rings: `kymo_cpu_items` in C.
#[repr(C)]
#[derive(Debug)]
pub struct CpuItems {
    /// The packets of the first CPU, then those of the next; aligned to a packet.
    pub memory: *mut u8,
    /// How many packets each CPU has.
    pub packets: u32,
    /// How many CPUs have any.
    pub cpus: u32,
}

// SAFETY: it is constant; what it points to is only used by the recorder, under its own rules.
unsafe impl Sync for CpuItems {}

impl CpuItems {
    /// The memory of this CPU's ring.
    pub(super) fn of<P: CpusPort>(&self, cpu: usize) -> Option<*mut u8> {
        let bytes = self.packets as usize * Ring::<P>::PACKET;
        (cpu < self.cpus as usize).then(|| self.memory.wrapping_add(cpu * bytes))
    }
}

impl<P: CpusPort> CpuBuffer<P> {
    /// Produces items inside, or counts them.
    fn produce(&self, gate: &Gate, port: &P, items: &[Item]) {
        let state = gate.state_in_order();
        if !state.open() {
            if state.on() && state.enabled() && state.frozen() {
                self.lose(items.len());
            }
            return;
        }
        let now = self.now_in_order(port);
        self.catch_up(gate.changes(), now);
        if !self.ring.usable() {
            return self.lose(items.len());
        }
        let stream = self.writer.stream();
        self.ring.produce(now, items, || Moment {
            isr_depth: stream.isr_depth.get(),
            thread: stream.thread(),
            flags: 0,
        });
    }

    /// Counts items: in the ring, or where there is none among the events.
    fn lose(&self, items: usize) {
        match self.ring.usable() {
            true => self.ring.lose(items),
            false => add(&self.lost, items as u32),
        }
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Produces items of this CPU that share one time and stay together.
    #[inline(never)]
    pub fn produce(&'static self, gate: &Gate, items: &[Item]) {
        let state = gate.state();
        if gate.open() || state.on() && state.enabled() && state.frozen() {
            self.inside(gate, |cpu_buffer| {
                cpu_buffer.produce(gate, &self.port, items)
            });
        }
    }

    /// Gives this CPU its items behind `cursor`.
    pub fn drain(&'static self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        let was = self.port.mask();
        let cpu_buffer = self.cpu_buffer();
        self.port.unmask(was);
        cpu_buffer.map_or_else(Drained::default, |cpu_buffer| {
            cpu_buffer.ring.drain(cursor, out)
        })
    }

    /// Reserves a record of so many bytes in this CPU's stream, and returns where they go; null if it is
    /// not to be recorded now, or cannot be (then it is counted).
    #[inline(never)]
    pub fn reserve(&'static self, gate: &Gate, length: usize) -> *mut u8 {
        if !gate.open() {
            return core::ptr::null_mut();
        }
        let data = self.inside(gate, |cpu_buffer| {
            let state = gate.state_in_order();
            if !state.open() {
                self.refuse(cpu_buffer, state);
                return core::ptr::null_mut();
            }
            let now = cpu_buffer.now_in_order(&self.port);
            cpu_buffer.catch_up(gate.changes(), now);
            cpu_buffer.writer.stream().reserve_block(now, length)
        });
        data.unwrap_or(core::ptr::null_mut())
    }

    /// Finishes a reserved record, with this type; 0 is none: it is taken back, or where something was
    /// recorded since, or by another CPU than that which reserved it, stays as unfinished.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&'static self, gate: &Gate, data: *mut u8, kind: u16) {
        let was = self.port.mask();
        let holds = |cpu_buffer: &&CpuBuffer<P>| cpu_buffer.writer.stream().buffer().holds(data);
        if let Some(cpu_buffer) = self.cpu_buffer().filter(holds) {
            // A fault's handler may have interrupted a hook.
            let again = cpu_buffer.inside.load(Ordering::Relaxed);
            cpu_buffer.inside.store(true, Ordering::SeqCst);
            let stream = cpu_buffer.writer.stream();
            if kind != 0 {
                // SAFETY: by this function's contract.
                unsafe { stream.commit_block(data, kind) };
            } else if again || gate.state_in_order().frozen() {
                // Under a reader, or an interrupted hook, nothing can be taken back.
                stream.buffer().unpin(data, false);
            } else {
                // SAFETY: by this function's contract.
                unsafe { stream.discard_block(data) };
            }
            cpu_buffer.inside.store(again, Ordering::Release);
        } else if let Some(cpu_buffer) = self.cpu_buffers().iter().find(holds) {
            const { assert!(P::FINISHED_ELSEWHERE) };
            // SAFETY: by this function's contract. Nobody else writes to the record while it is not finished.
            unsafe {
                cpu_buffer
                    .writer
                    .stream()
                    .commit_block_elsewhere(data, kind)
            };
        }
        self.port.unmask(was);
    }
}
