//! Profile tables of several CPUs: one for each, which only that CPU changes, and shadow stacks that all share
//! ([`Pool`](crate::profile::Pool)). The host adds them up.
//!
//! While a reader excludes a CPU, its slots are read, so they don't change; the stacks follow the calls all the same, so
//! that those that are open have the right times afterwards. Calls that end meanwhile are counted as ones without a
//! slot. While recording is off, no CPU touches a stack: the CPU that turns it off counts the calls that are open.

use kymo_wire::link::SetupError;
use kymo_wire::profile::TableCpu;

use super::control::Handle;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::Event;
use crate::config::Config;
use crate::gate::State;
use crate::link::{Control, SCRATCH_BYTES};
use crate::profile::Profile;

impl<P: CpusPort> CpuBuffer<P> {
    /// Has the table continue at `now` with the thread and the interrupts of this CPU, after it may have missed events.
    /// While recording is on, or about to be.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up_table(&self, now: u64) {
        if let Some(table) = self.writer.profile() {
            let stream = self.writer.stream();
            table.catch_up(now, stream.thread(), stream.isr_depth.get());
        }
    }

    /// Lets the table notice at `now` that another thread runs, if the program does not report switches. (A CPU that idles
    /// has no other event: without this, it would keep the stack of a thread that runs elsewhere.)
    pub(super) fn notice_thread_in_table(&self, now: u64) {
        if let Some(table) = self.writer.profile()
            && let Some(thread) = self.writer.ask_thread()
        {
            table.notice_thread(now, thread);
        }
    }

    /// Updates the shadow stacks with an event that is not recorded: with calls if only a reader prevents that, else with
    /// switches and interrupts. `state` is the one for which it was refused.
    #[cold]
    pub(super) fn follow_in_table(&self, port: &P, state: State, event: Event) {
        let Some(table) = self.writer.profile() else {
            return;
        };
        let is_context = matches!(
            event,
            Event::Context { .. }
                | Event::SwitchedIn(_)
                | Event::SwitchedOut(_)
                | Event::IsrEnter(_)
                | Event::IsrExit(_)
        );
        if !state.on() || !state.enabled() && !is_context {
            return;
        }
        let now = self.now_in_order(port).max(self.writer.stream().last());
        table.read_slots(true);
        let depth = self.writer.stream().isr_depth.get();
        self.writer.with_queried_thread(|thread| {
            table.catch_up(now, thread, depth);
            self.writer.account_unrecorded(now, event);
        });
        table.read_slots(false);
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Sets up the shadow stacks of `count` CPUs, if the program has tables.
    pub(super) fn set_up_stacks(&self, config: &Config, count: u32) -> Result<(), SetupError> {
        if config.slot_count == 0 || !cfg!(feature = "profile") {
            return Ok(());
        }
        let (frames, stacks) = (config.frames.cast_const().cast(), config.shadow_stacks);
        // SAFETY: the program gives its memory to the recorder, and describes it truly; no CPU uses it yet.
        unsafe {
            self.shared
                .pool
                .set_up(frames, count as u16, stacks, config.shadow_depth)
        }
    }

    /// The tables of all CPUs.
    fn tables(&self) -> impl Iterator<Item = &Profile<P>> {
        self.cpu_buffers()
            .iter()
            .filter_map(|cpu_buffer| cpu_buffer.writer.profile())
    }

    /// Starts or stops all tables at `now`, with `lock` held, while recording is off. When they stop, counts the calls
    /// that are open, and takes the stacks from all CPUs, because switches are not followed from here on: but only if it
    /// is certain that no CPU is inside its buffer (`alone`).
    pub(super) fn record_in_tables(&self, own: &CpuBuffer<P>, on: bool, now: u64, alone: bool) {
        let Some(own) = own.writer.profile() else {
            return;
        };
        let pool = &self.shared.pool;
        if !on && alone {
            let interrupts = self.tables().map(Profile::open_in_interrupts);
            own.count_unmatched(interrupts.sum::<u32>() + pool.open_in_threads());
            self.tables().for_each(Profile::release_stacks);
            pool.take_all_back();
        }
        pool.end_calls();
        for table in self.tables() {
            table.record(now, on);
        }
    }
}

impl<P: CpusPort, const N: usize> Handle<'_, P, N> {
    /// Keeps the numbers of the tables that are in the headers of a dump, because these may change while it is sent. All
    /// CPUs are excluded.
    pub(super) fn keep_figures(&self) {
        let now = self.now();
        for cpu_buffer in self.held() {
            if let Some(table) = cpu_buffer.writer.profile() {
                cpu_buffer.losses.set(table.losses());
                let recorded = self.cpus.locked(|| table.recorded(now));
                cpu_buffer.recorded.set(recorded);
            }
        }
    }

    /// The `n`th piece of the tables, each CPU's behind the other.
    pub(super) fn table_chunk<'a>(
        &self,
        mut n: u32,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]> {
        let cpus = self.cpus.cpu_buffers().len() as u16;
        for cpu_buffer in self.held() {
            let table = cpu_buffer.writer.profile()?;
            let chunks = table.slots() + 1;
            if n < chunks {
                let number = cpu_buffer.writer.stream().buffer().cpu();
                let (losses, recorded) = (cpu_buffer.losses.get(), cpu_buffer.recorded.get());
                return table.chunk_of(
                    TableCpu { number, cpus },
                    n,
                    (self.hz(), recorded, losses),
                    scratch,
                );
            }
            n -= chunks;
        }
        None
    }

    /// Clears the tables of all CPUs, which are excluded.
    pub(super) fn clear_tables(&self) {
        self.cpus.locked(|| {
            let now = self.now();
            for cpu_buffer in self.held() {
                if let Some(table) = cpu_buffer.writer.profile() {
                    table.clear(now);
                }
            }
        });
    }

    /// Figures of the tables for the status: functions and slots of the fullest one, and calls without a slot in all.
    pub(super) fn table_figures(&self) -> (u32, u32, u32) {
        let most = |most: u32, more: u32| most.max(more);
        let tables = || self.cpus.tables();
        (
            tables().map(Profile::functions).fold(0, most),
            tables().map(Profile::slots).fold(0, most),
            tables()
                .map(|table| table.losses().no_slot)
                .fold(0, u32::saturating_add),
        )
    }

    /// Whether the program has tables.
    pub(super) fn has_tables(&self) -> bool {
        self.cpus.tables().next().is_some()
    }
}
