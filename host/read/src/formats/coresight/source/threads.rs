//! Running threads of cores, and their interruptions.

use kymo_coresight::calls::{Edge, Lost, Step};
use kymo_coresight::exception::ExceptionKind;
use kymo_event::{
    Batch, Cpu, EventKind, Gap, InterruptKind, Irq, RecordingCause, RowKind, Tid, Time,
};

use super::super::program::NO_THREAD;
use super::{At, CoreSightSource, Reader};

impl CoreSightSource {
    /// Notes that a thread continues here and has left the core that it ran on before. No packet need record that.
    pub(super) fn threads_move(
        &mut self,
        index: usize,
        edge: &Edge,
        time: Time,
        batch: &mut Batch,
    ) {
        match edge {
            Edge::Thread { thread } => return self.follow.runs(index, *thread),
            Edge::Arrive(_) | Edge::Exception(_) => {}
            _ => return,
        }
        let left = self.follow.acts(index);
        // If the kernel's records have switched that core, they have reported this, too; and if another thread runs there,
        // it has left when that came.
        if let Some(left) = left.and_then(|left| self.readers.get_mut(left))
            && left.announced.is_none()
            && !std::mem::replace(&mut left.is_left, true)
        {
            batch.push_event(left.event(time, EventKind::SwitchedOut, false));
        }
        self.displace(index);
        let Some(reader) = self.readers.get_mut(index) else {
            return;
        };
        reader.announced = None;
        if std::mem::replace(&mut reader.is_left, false) {
            batch.push_event(reader.event(time, EventKind::SwitchedIn, false));
        }
    }

    /// Notes that what runs here has taken the place of the thread of another buffer on the same core: with a buffer for
    /// each thread, several are of one core.
    fn displace(&mut self, index: usize) {
        let Some(cpu) = self.readers.get(index).and_then(|reader| reader.cpu) else {
            return;
        };
        if let Some(before) = self.acting.insert(cpu, index)
            && before != index
            && let Some(other) = self.readers.get_mut(before)
            && other.thread.is_some()
            && other.announced.is_none()
        {
            other.is_left = true;
        }
    }

    /// Notes that a thread has left all cores but that of a source, according to the kernel.
    pub(super) fn leaves_others(
        &mut self,
        index: usize,
        thread: u32,
        time: Time,
        batch: &mut Batch,
    ) {
        let cpu = self.readers.get(index).and_then(|reader| reader.cpu);
        let (thread, _) = self.names.thread(thread, (index, cpu), &mut self.info);
        let others = self.readers.iter_mut().enumerate();
        for (_, other) in others.filter(|(other, _)| *other != index) {
            if other.thread == Some(thread) {
                other.leave(time, batch);
                other.announced = Some(None);
            }
        }
    }

    /// Whether a reset of the current source's core ends everything that runs: there is no other core at the same time.
    pub(super) fn is_only_core(&self) -> bool {
        let mut cores = self.readers.iter().filter(|it| it.exceptions.is_some());
        self.is_serial || cores.nth(1).is_none()
    }
}

impl Reader {
    /// Number of the source, and its CPU.
    fn place(&self) -> (usize, Option<Cpu>) {
        (self.stream.0 as usize, self.cpu)
    }

    /// Adds the switch away from the running thread, if it is not known yet.
    fn leave(&mut self, time: Time, batch: &mut Batch) {
        if self.thread.is_some() && !std::mem::replace(&mut self.is_left, true) {
            batch.push_event(self.event(time, EventKind::SwitchedOut, false));
        }
    }
}

impl At<'_> {
    /// Handles a switch of the core in the kernel's records, which the trace does not have.
    pub(super) fn cpu_runs(&mut self, thread: Option<u32>) {
        let Some(number) = thread else {
            self.reader.announced = Some(None);
            return self.reader.leave(self.time, self.batch);
        };
        let (thread, _) = self.names.thread(number, self.reader.place(), self.info);
        if self.reader.thread != Some(thread) {
            self.switch(number);
            self.reader.announced = Some(Some(number));
            return;
        }
        self.reader.announced = None;
        if std::mem::replace(&mut self.reader.is_left, false) {
            self.push_made(EventKind::SwitchedIn);
        }
    }

    /// Handles the start or end of an exception. Without threads, an interrupt interrupts whatever the core does.
    /// Within a thread it is part of the thread's calls, because handlers switch threads.
    pub(super) fn exception(&mut self, number: u32, begins: bool) {
        let Some(exceptions) = self.reader.exceptions else {
            return;
        };
        let name = exceptions.name(number);
        let is_interrupt =
            exceptions.is_m_profile() || exceptions.kind(number) == ExceptionKind::Interrupt;
        if self.reader.thread.is_some() && !self.reader.is_task || !is_interrupt {
            let function = self.names.exception(&name, self.reader.space, self.info);
            let kind = match begins {
                true => RowKind::Enter,
                false => RowKind::Exit,
            };
            return self.row(kind, |row| {
                let mut row = row.function(Some(function));
                row.named = true;
                row
            });
        }
        let identities = &mut self.info.identities;
        let irq = identities.interrupt(self.reader.space, InterruptKind::Hard, Irq(number));
        if begins {
            identities.name_interrupt(irq, &name);
            self.reader.interrupts.push(irq);
            self.row(RowKind::IsrEnter, |row| row.interrupt(Some(irq)));
        } else if self.reader.interrupts.last() == Some(&irq) {
            self.reader.interrupts.pop();
            self.row(RowKind::IsrExit, |row| row.interrupt(Some(irq)));
        }
    }

    /// The processor starts anew, and its calls end, without having returned: these steps. `is_only`: no other one
    /// runs.
    pub(super) fn reset(&mut self, steps: &[Step], is_only: bool) {
        self.doubts.resets += 1;
        let is_open = steps.len() > 1 || self.reader.is_task;
        self.named("reset", Vec::new());
        if is_only && is_open {
            for on in [false, true] {
                let cause = RecordingCause::Unknown;
                self.push_made(EventKind::Recording { on, cause });
                self.reader.interrupts.clear();
                (self.reader.thread, self.reader.is_task) = (None, false);
            }
        } else if is_open {
            // `RecordingOff` would end the calls of other processors.
            self.push_made(EventKind::Gap(Gap::Discarded { events: None }));
            for step in steps {
                self.step(*step, false);
            }
            if std::mem::replace(&mut self.reader.is_task, false) {
                self.row(RowKind::SwitchedOut, |row| row);
                self.reader.thread = None;
            }
        }
    }

    /// Handles a restart of the trace unit: it was off before, so there is no trace of the thread up to here.
    pub(super) fn restart(&mut self) {
        if self.reader.thread.is_none() {
            return self.lost(Lost::Paused);
        }
        self.doubts.paused += 1;
        self.reader.leave(self.time, self.batch);
    }

    /// Notes the last known time: for open calls, only the time up to here is certain.
    pub(super) fn last_time(&mut self) {
        self.reader.is_extrapolated = true;
        self.row(RowKind::Time, |row| {
            let mut row = row.last_time();
            row.record = false;
            row
        });
    }

    /// Switches to another task, which no context names. The first task of the trace is not a thread of its own, as in
    /// traces without task switches.
    pub(super) fn task(&mut self, number: u32, is_certain: bool) {
        self.row(RowKind::SwitchedOut, |row| row);
        self.reader.is_task = number > 0;
        self.reader.thread = self.reader.is_task.then(|| {
            let identities = &mut self.info.identities;
            let thread = identities.thread(self.reader.space, Tid(number.into()));
            identities.name_thread(thread, &format!("task {number}"));
            thread
        });
        self.row(RowKind::SwitchedIn, |row| row);
        if !is_certain {
            // Any of the tasks that were interrupted there may run.
            self.row(RowKind::SwitchedOut, |row| row.unseen(true));
            self.row(RowKind::SwitchedIn, |row| row);
        }
    }

    pub(super) fn switch(&mut self, thread: u32) {
        if self.reader.announced.take() == Some(Some(thread)) && !self.reader.is_left {
            return;
        }
        while let Some(irq) = self.reader.interrupts.pop() {
            self.row(RowKind::IsrExit, |row| row.interrupt(Some(irq)));
        }
        if self.reader.thread.is_some() && !self.reader.is_left {
            let is_unseen = self.reader.is_unordered;
            self.row(RowKind::SwitchedOut, |row| row.unseen(is_unseen));
        }
        (self.reader.thread, self.reader.is_left) = (None, false);
        self.reader.is_task = false;
        self.reader.is_unordered = self.unordered.contains(&thread);
        if thread != NO_THREAD {
            let (thread, space) = self.names.thread(thread, self.reader.place(), self.info);
            self.reader.thread = Some(thread);
            self.reader.space = space;
            self.row(RowKind::SwitchedIn, |row| row);
            if self.reader.is_extrapolated {
                self.last_time();
            }
        }
    }
}
