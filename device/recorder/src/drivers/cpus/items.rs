//! Items of several CPUs: a ring for each in its [`CpuBuffer`], with the same gate and clock as its events; and records
//! that a CPU fills in place.

use core::sync::atomic::Ordering;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::gate::Gate;
use crate::items::{Cursor, Drained, Item, PacketContext, Ring, Timed};
use crate::sync::add;

/// Memory of all rings: `kymo_cpu_items` in C.
#[repr(C)]
#[derive(Debug)]
pub struct CpuItems {
    /// The packets of the first CPU, followed by those of the others; aligned to a packet.
    pub memory: *mut u8,
    /// Number of packets per CPU.
    pub packets: u32,
    /// Number of CPUs with packets.
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
    /// Produces items, or counts them as lost, while inside.
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
        self.ring.produce(now, items, || PacketContext {
            isr_depth: stream.isr_depth.get(),
            thread: stream.thread(),
            flags: 0,
        });
    }

    /// Counts lost items: in the ring, or with the events where there is no ring.
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

    /// Copies this CPU's items behind `cursor`.
    pub fn drain(&'static self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        let was = self.port.mask();
        let cpu_buffer = self.cpu_buffer();
        self.port.unmask(was);
        cpu_buffer.map_or_else(Drained::default, |cpu_buffer| {
            cpu_buffer.ring.drain(cursor, out)
        })
    }

    /// Reserves a record of `length` bytes in this CPU's stream and returns the address of its data; null if nothing is
    /// to be recorded now, or if it is not possible (which is counted).
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

    /// Finishes a reserved record, with this type; 0 discards it: it is removed, or remains unfinished if something was
    /// recorded since, or if this is another CPU than the one that reserved it.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&'static self, gate: &Gate, data: *mut u8, kind: u16) {
        let was = self.port.mask();
        let holds = |cpu_buffer: &&CpuBuffer<P>| cpu_buffer.writer.stream().buffer().holds(data);
        if let Some(cpu_buffer) = self.cpu_buffer().filter(holds) {
            // A fault handler may have interrupted a hook.
            let again = cpu_buffer.inside.load(Ordering::Relaxed);
            cpu_buffer.inside.store(true, Ordering::SeqCst);
            let stream = cpu_buffer.writer.stream();
            if kind != 0 {
                // SAFETY: by this function's contract.
                unsafe { stream.commit_block(data, kind) };
            } else if again || gate.state_in_order().frozen() {
                // While a reader is active, or a hook interrupted, nothing can be removed.
                stream.buffer().unpin(data, false);
            } else {
                // SAFETY: by this function's contract.
                unsafe { stream.discard_block(data) };
            }
            cpu_buffer.inside.store(again, Ordering::Release);
        } else if let Some(cpu_buffer) = self.cpu_buffers().iter().find(holds) {
            const { assert!(P::FINISHED_ELSEWHERE) };
            // SAFETY: by this function's contract. No other context writes to the record while it is not finished.
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
