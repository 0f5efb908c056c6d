//! Interrupts: nested activations of handlers, and their names.

use kymo_event::{EventRef, InterruptId, Row, StreamId, Time};

use super::cpu_state::CpuKey;
use super::functions::unfinished;
use super::output::{Begin, Callee, Doubt, How, Step, TrackInfo, TrackKind};
use super::{Calls, NESTED_INTERRUPTS};

impl Calls {
    /// Begins a handler.
    pub(super) fn interrupt(
        &mut self,
        cpu: usize,
        irq: InterruptId,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        // The row may name the interrupted thread: it counts if this is the processor's first event.
        if row.thread().is_some() {
            self.context(cpu, row, out);
        }
        if self.cpus[cpu].interrupts.len() >= NESTED_INTERRUPTS {
            self.counts.too_deep += 1;
            self.cpus[cpu].hidden += 1;
            return;
        }
        let track = self.interrupt_track(cpu, irq, row.stream, out);
        self.cpus[cpu].interrupts.push(track);
        let call = self.next_call();
        let begin = self.tracks[track].begin(call, Callee::Interrupt(irq), row.time, None);
        let below = self.cpus[cpu].thread.map(|thread| &self.tracks[thread]);
        let thread = match below.map(|below| below.info.kind) {
            Some(TrackKind::Thread { thread }) => thread,
            _ => None,
        };
        let begin = self.placed(begin, track);
        out(Step::Begin(Begin {
            thread: begin.thread.or(thread),
            ..begin
        }));
    }

    /// The track of the next activation of an interrupt.
    fn interrupt_track(
        &mut self,
        cpu: usize,
        irq: InterruptId,
        stream: StreamId,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        let found = &self.cpus[cpu];
        let same = |track: &&usize| self.is_irq(**track, irq);
        let level = found.interrupts.iter().filter(same).count();
        if let Some(track) = self.interrupts.get(&(cpu, irq, level)) {
            return *track;
        }
        let kind = TrackKind::Interrupt {
            irq,
            thread: found.owner,
            level: level as u32,
        };
        let cpu_id = found.cpu();
        let info = TrackInfo {
            kind,
            cpu: cpu_id,
            stream,
        };
        let track = self.add_track(info, out);
        self.interrupts.insert((cpu, irq, level), track);
        track
    }

    fn is_irq(&self, track: usize, wanted: InterruptId) -> bool {
        matches!(self.tracks[track].info.kind, TrackKind::Interrupt { irq, .. } if irq == wanted)
    }

    /// Ends a handler, and the handlers that have interrupted it.
    pub(super) fn interrupt_end(
        &mut self,
        cpu: usize,
        irq: Option<InterruptId>,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        if self.cpus[cpu].hidden > 0 {
            self.cpus[cpu].hidden -= 1;
            return;
        }
        let interrupts = &self.cpus[cpu].interrupts;
        let fits = |track: &usize| irq.is_none_or(|irq| self.is_irq(*track, irq));
        if let Some(level) = interrupts.iter().rposition(fits) {
            let track = interrupts[level];
            self.end_interrupts(cpu, level + 1, row.time, unfinished, out);
            self.close(track, 1, row.time, unfinished, out);
            self.close(track, 0, row.time, |_| How::Returned, out);
            self.cpus[cpu].interrupts.pop();
        } else {
            self.doubt_interrupted(cpu);
            self.unseen_end(cpu, row.time, out);
            let (track, callee) = match irq {
                Some(irq) => {
                    let track = self.interrupt_track(cpu, irq, row.stream, out);
                    (track, Callee::Interrupt(irq))
                }
                None => (self.context(cpu, row, out), Callee::Unknown),
            };
            self.orphan(track, callee, (row.time, None), out);
        }
        // The row may name the thread that the handler returns to.
        if row.thread().is_some() {
            self.context(cpu, row, out);
        }
    }

    /// Handles the end of an interrupt that was not known to be active: its time was charged to threads. At most
    /// [`NESTED_INTERRUPTS`] may have begun before the trace or in a loss. If there are more, the trace does not
    /// record begins.
    fn doubt_interrupted(&mut self, cpu: usize) {
        let found = &mut self.cpus[cpu];
        if found.unseen > 0 || found.unforeseen as usize >= NESTED_INTERRUPTS {
            return;
        }
        found.unforeseen += 1;
        let (wanders, machine) = (matches!(found.key, CpuKey::Cpu(..)), found.machine);
        for track in &mut self.tracks {
            let thread = track.info.is_thread() && track.machine == machine;
            if thread && (wanders || track.last_on == Some(cpu)) {
                track.doubt_interrupt();
            }
        }
    }

    /// Ends an interrupt whose begin was not seen. If it was known to be active, its open calls end, and so do the
    /// handlers that have interrupted it.
    fn unseen_end(&mut self, cpu: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        let Some(left) = self.cpus[cpu].unseen.checked_sub(1) else {
            return;
        };
        if let Some(nobody) = self.cpus[cpu].nobody {
            self.close(nobody, 0, time, unfinished, out);
        }
        self.end_interrupts(cpu, 0, time, unfinished, out);
        self.cpus[cpu].unseen = left;
    }

    /// Ends the innermost interrupts, with all their open calls, until `level` remain.
    pub(super) fn end_interrupts(
        &mut self,
        cpu: usize,
        level: usize,
        time: Time,
        how: impl Fn(Doubt) -> How,
        out: &mut impl FnMut(Step<'_>),
    ) {
        self.cpus[cpu].hidden = 0;
        if level == 0 {
            self.cpus[cpu].unseen = 0;
        }
        while self.cpus[cpu].interrupts.len() > level {
            let Some(track) = self.cpus[cpu].interrupts.pop() else {
                return;
            };
            // CPU states that other streams of the processor remember become invalid.
            self.epoch += 1;
            self.close(track, 0, time, &how, out);
        }
    }

    /// Reports the tracks of an interrupt whose name has become known.
    pub(super) fn name_interrupt(
        &mut self,
        irq: InterruptId,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        for track in 0..self.tracks.len() {
            if self.is_irq(track, irq) {
                self.tell(track, out);
            }
        }
        out(Step::Event { track: None, event });
    }
}
