//! Interrupts: activations of a handler, which nest, and what they are called.

use kymo_event::{Event, Irq, StreamId, Time};

use super::functions::unfinished;
use super::lane::LaneKey;
use super::step::{Callee, Doubt, How, Step, TrackInfo, TrackKind};
use super::{Calls, NESTED_INTERRUPTS};

impl Calls {
    /// A handler begins.
    pub(super) fn interrupt(
        &mut self,
        lane: usize,
        irq: Irq,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        // Whom it interrupts, if this is the first that is heard of the processor.
        if event.thread.is_some() {
            self.context(lane, event, out);
        }
        if self.lanes[lane].interrupts.len() >= NESTED_INTERRUPTS {
            self.counts.too_deep += 1;
            self.lanes[lane].hidden += 1;
            return;
        }
        let track = self.interrupt_track(lane, irq, event.stream, out);
        self.lanes[lane].interrupts.push(track);
        let call = self.next_call();
        let begin = self.tracks[track].begin(call, Callee::Interrupt(irq), event.time, None);
        out(Step::Begin(begin));
    }

    /// The track of the next activation of an interrupt.
    fn interrupt_track(
        &mut self,
        lane: usize,
        irq: Irq,
        stream: StreamId,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        let found = &self.lanes[lane];
        let same = |track: &&usize| self.is_irq(**track, irq);
        let level = found.interrupts.iter().filter(same).count();
        if let Some(track) = self.interrupts.get(&(lane, irq, level)) {
            return *track;
        }
        let kind = TrackKind::Interrupt {
            irq,
            thread: found.owner,
            level: level as u32,
        };
        let name = self.interrupt_names.get(&irq).cloned();
        let cpu = found.cpu();
        let track = self.add_track(
            TrackInfo {
                kind,
                cpu,
                stream,
                name,
            },
            out,
        );
        self.interrupts.insert((lane, irq, level), track);
        track
    }

    fn is_irq(&self, track: usize, wanted: Irq) -> bool {
        matches!(self.tracks[track].info.kind, TrackKind::Interrupt { irq, .. } if irq == wanted)
    }

    /// A handler ends, with those that it was interrupted by.
    pub(super) fn interrupt_end(
        &mut self,
        lane: usize,
        irq: Option<Irq>,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        if self.lanes[lane].hidden > 0 {
            self.lanes[lane].hidden -= 1;
            return;
        }
        let interrupts = &self.lanes[lane].interrupts;
        let fits = |track: &usize| irq.is_none_or(|irq| self.is_irq(*track, irq));
        if let Some(level) = interrupts.iter().rposition(fits) {
            let track = interrupts[level];
            self.end_interrupts(lane, level + 1, event.time, unfinished, out);
            self.close(track, 1, event.time, unfinished, out);
            self.close(track, 0, event.time, |_| How::Returned, out);
            self.lanes[lane].interrupts.pop();
        } else {
            self.doubt_interrupted(lane);
            self.unseen_end(lane, event.time, out);
            let (track, callee) = match irq {
                Some(irq) => {
                    let track = self.interrupt_track(lane, irq, event.stream, out);
                    (track, Callee::Interrupt(irq))
                }
                None => (self.context(lane, event, out), Callee::Unknown),
            };
            self.orphan(track, callee, event.time, out);
        }
        // Where it returns to.
        if event.thread.is_some() {
            self.context(lane, event, out);
        }
    }

    /// An interrupt ends of which nobody knew that it was being served: what passed meanwhile was charged to
    /// threads. As many as can be nested may have begun before the trace, or in a loss; if there are more, the
    /// trace tells of no beginnings.
    fn doubt_interrupted(&mut self, lane: usize) {
        let found = &mut self.lanes[lane];
        if found.unseen > 0 || found.unforeseen as usize >= NESTED_INTERRUPTS {
            return;
        }
        found.unforeseen += 1;
        let wanders = matches!(found.key, LaneKey::Cpu(_));
        for track in &mut self.tracks {
            let thread = matches!(track.info.kind, TrackKind::Thread { .. });
            if thread && (wanders || track.last_on == Some(lane)) {
                track.doubt_interrupt();
            }
        }
    }

    /// An interrupt ends whose beginning was not seen. If it was known to be served, what is open
    /// in it is over, and so is what has interrupted it.
    fn unseen_end(&mut self, lane: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        let Some(left) = self.lanes[lane].unseen.checked_sub(1) else {
            return;
        };
        if let Some(nobody) = self.lanes[lane].nobody {
            self.close(nobody, 0, time, unfinished, out);
        }
        self.end_interrupts(lane, 0, time, unfinished, out);
        self.lanes[lane].unseen = left;
    }

    /// Ends the innermost interrupts until `level` are left, with all that is open in them.
    pub(super) fn end_interrupts(
        &mut self,
        lane: usize,
        level: usize,
        time: Time,
        how: impl Fn(Doubt) -> How,
        out: &mut impl FnMut(Step<'_>),
    ) {
        self.lanes[lane].hidden = 0;
        if level == 0 {
            self.lanes[lane].unseen = 0;
        }
        while self.lanes[lane].interrupts.len() > level {
            let Some(track) = self.lanes[lane].interrupts.pop() else {
                return;
            };
            self.close(track, 0, time, &how, out);
        }
    }

    /// The name of an interrupt is known.
    pub(super) fn name_interrupt(
        &mut self,
        irq: Irq,
        name: &str,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        self.interrupt_names.insert(irq, name.to_owned());
        for track in 0..self.tracks.len() {
            if self.is_irq(track, irq) {
                self.rename(track, name, out);
            }
        }
        out(Step::Event { track: None, event });
    }
}
