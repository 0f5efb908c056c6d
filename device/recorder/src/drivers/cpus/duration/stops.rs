//! What stops recording in duration mode: a function that is entered, a call that took long, an event.
//!
//! It is in the first CPU's settings, with its counts, and holds for all CPUs. That memory is the first CPU's own, which
//! it writes at each call; so other CPUs look there only when a call is recorded, at an event, or at an entry while a stop
//! function is set.

use kymo_wire::event::Cause;

use super::Follower;
use crate::duration::Settings;
use crate::gate::Gate;
use crate::{Edge, Event};

use super::super::{Cpus, CpusPort};

/// The bit of hooks' word in the gate ([`Gate::set_duration`]) while a stop function is set.
const WATCHES: usize = 1;

impl<P: CpusPort, const N: usize> Follower<'_, P, N> {
    /// Slow path of an exit: a call ends that is recorded, or several do.
    #[cold]
    #[inline(never)]
    pub(super) fn exit_slowly(&self, function: usize, now: u64) {
        let stops = self.cpus.stops();
        let mut over = false;
        self.control.exit_slowly(function, now, |control, call| {
            if self.ended(call, now) {
                over |= stops.is_some_and(Settings::count);
            }
            over |= stops.is_some_and(|stops| {
                stops.freezes(call.function, call.duration) && stops.happen(control.caller(call, 0))
            });
        });
        if over {
            self.stop();
        }
    }

    /// Stops recording if this event does.
    #[inline(never)]
    pub(super) fn freeze_on(&self, event: Event) {
        let stops = self.cpus.stops();
        if stops.is_some_and(|it| it.freezes_on(event) && it.happen(self.control.innermost())) {
            self.stop();
        }
    }

    /// Turns recording off on all CPUs.
    fn stop(&self) {
        let stop = || {
            let (cpu_buffer, gate) = (self.cpu_buffer, self.gate);
            let cpus = self.cpus;
            cpus.set_recording_inside(cpu_buffer, gate, false, Cause::Function)
        };
        if let Some(stops) = self.cpus.stops() {
            stops.act(stop);
        }
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// The settings with what stops recording; `None` without duration mode.
    pub(super) fn stops(&self) -> Option<&'static Settings> {
        let first = self.cpu_buffers().first()?;
        Some(&first.duration()?.settings)
    }

    /// Whether this event is a marker that stops nothing: in duration mode it needs nothing but a record, too.
    #[inline(always)]
    pub(in super::super) fn is_marker_alone(&self, event: Event) -> bool {
        match event {
            Event::NamedMarker { .. } => true,
            Event::Marker(_) => self.stops().is_some_and(|stops| !stops.freezes_on(event)),
            _ => false,
        }
    }

    /// Restarts the counts of what stops recording where recording is turned on.
    pub(in super::super) fn restart_stops(&self) {
        if let Some(stops) = self.stops() {
            stops.restart();
        }
    }

    /// Restarts all counts of what stops recording.
    pub(in super::super) fn rearm_stops(&self) {
        if let Some(stops) = self.stops() {
            stops.rearm();
        }
    }

    /// Sets how hooks handle calls: as entries and exits, or `in_duration`, then comparing them with a stop function if
    /// one is set. (The settings' flags may be a debugger's, not applied yet.)
    pub(super) fn choose_hooks(&self, gate: &Gate, in_duration: bool) {
        let word = match self.stops().filter(|_| in_duration) {
            Some(stops) => {
                let word = core::ptr::from_ref(stops).cast::<u8>();
                word.wrapping_add(if stops.watches() { WATCHES } else { 0 })
            }
            None => core::ptr::null(),
        };
        gate.set_duration(word.cast_mut());
    }

    /// A call in duration mode while a stop function is set.
    #[cold]
    #[inline(never)]
    pub(super) fn watched_call(
        &'static self,
        gate: &Gate,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        let is_stop = |stops: &Settings| stops.stop() != 0 && stops.stop() == function;
        if edge == Edge::Enter
            && let Some(stops) = self.stops().filter(|stops| is_stop(stops))
        {
            let stopped = self.inside(gate, |cpu_buffer| {
                let Some(control) = cpu_buffer.duration().filter(|_| gate.in_duration()) else {
                    return false;
                };
                let state = gate.state_in_order();
                if !(state.on() && state.enabled()) {
                    return false;
                }
                let follower = Follower {
                    cpus: self,
                    gate,
                    cpu_buffer,
                    control,
                    records: state.open(),
                };
                let now = cpu_buffer.now(&self.port);
                let look = || {
                    follower.prepare(now);
                    let stops = stops.happen(control.innermost());
                    if stops {
                        follower.stop();
                    }
                    stops
                };
                if state.open() {
                    cpu_buffer.catch_up(gate.changes(), now);
                    look()
                } else {
                    // A reader may be looking at the open calls.
                    cpu_buffer.calls.lock.with(&self.port, look)
                }
            });
            // (A hook within a hook is refused, and counted, once.)
            if stopped != Some(false) {
                return;
            }
        }
        self.slow_call_in_duration(gate, edge, function, caller);
    }
}
