//! Scheduler events: switches and wakeups.

use std::borrow::Cow;
use std::io;

use kymo_event::{Event, EventKind, ThreadId, TraceInfo, Value};

use super::classes::Type;
use super::{Lttng, Processor};

/// Priority of a thread if the source does not record it: that of Linux's ordinary threads.
const PRIORITY: i32 = 20;

/// First of the thread numbers for threads whose own number does not fit.
pub(super) const NUMBERED: i32 = 1 << 20;

/// The state of a waiting thread (`TASK_INTERRUPTIBLE`).
const BLOCKED: i64 = 1;

/// Offset of `prev_state` in a `sched_switch`: after name, number and priority.
const STATE_AT: u64 = 16 + 4 + 4;

/// The bits of Linux's `prev_state` for what a thread waits for; those above mean that it was preempted.
const STATES: i64 = 0xFF;

/// A thread that lost its processor.
pub(super) struct Left {
    pub ticks: u64,
    pub thread: Option<ThreadId>,
    /// Whether the trace has a record of it: for a thread that waits when a window begins, the event is synthesized.
    pub recorded: bool,
    /// Its state, if the source records it.
    pub state: Option<i64>,
}

/// A thread in an event: number, priority, name.
struct Actor {
    tid: i32,
    priority: i32,
    comm: [u8; 16],
}

/// The value of a numeric field of an event.
pub(super) fn number(event: &Event, name: &str) -> Option<i64> {
    let field = event.fields.iter().find(|field| field.name == name)?;
    match field.value {
        Value::Unsigned(value) | Value::Hex(value) => Some(value.cast_signed()),
        Value::Signed(value) => Some(value),
        _ => None,
    }
}

/// Letters of states in the print format of Linux's `sched_switch` from 4.14 on, each with its bit.
const LETTERS: [(&str, i64); 9] = [
    ("R", 0),
    ("S", 0x01),
    ("D", 0x02),
    ("T", 0x04),
    ("t", 0x08),
    ("X", 0x10),
    ("Z", 0x20),
    ("P", 0x40),
    ("I", 0x80),
];

/// The bit of a preempted thread, which is printed as `+`.
const PREEMPTED: i64 = 0x100;

/// The state of the thread that lost its processor, from a number or from letters (`S`, `R+`, `D|T`).
pub(super) fn state(event: &Event) -> Option<i64> {
    const NAME: &str = "prev_state";
    let field = event.fields.iter().find(|field| field.name == NAME)?;
    let Value::Text(text) = &field.value else {
        return number(event, NAME);
    };
    let (letters, preempted) = match text.strip_suffix('+') {
        Some(letters) => (letters, PREEMPTED),
        None => (&**text, 0),
    };
    let mut state = preempted;
    for letter in letters.split('|') {
        state |= LETTERS.iter().find(|(known, _)| *known == letter)?.1;
    }
    Some(state)
}

/// LTTng's name for a field with a thread's number in Linux's own scheduler events: `child_tid` for `child_pid`. `None`
/// for other fields.
pub(super) fn tid_field(name: &str) -> Option<String> {
    let of = name.strip_suffix("pid")?;
    (of.is_empty() || of.ends_with('_')).then(|| format!("{of}tid"))
}

impl Lttng<'_> {
    /// Writes the state of woken threads: they were blocked.
    pub(super) fn set_states(&mut self) -> io::Result<()> {
        for (place, position) in self.woken.drain(..) {
            if let Some(Some(processor)) = self.processors.get_mut(place) {
                processor.stream.set(position, &BLOCKED.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Writes that the processor is idle after a thread lost it.
    pub(super) fn end_out(
        &mut self,
        info: &TraceInfo,
        processor: &mut Processor,
    ) -> io::Result<()> {
        match processor.out.take() {
            Some(left) => {
                let ticks = left.ticks.max(processor.stream.last);
                self.switch(info, &left, None, ticks, processor)
            }
            None => Ok(()),
        }
    }

    /// Writes a switch for a thread whose source names it before any switch of its processor: LTTng's events identify
    /// the running thread only by switches.
    pub(super) fn first_thread(
        &mut self,
        info: &TraceInfo,
        event: &Event,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let is_switch = matches!(event.kind, EventKind::SwitchedOut | EventKind::SwitchedIn);
        if processor.has_switched {
            return Ok(());
        }
        let known = self.first_threads.get(&processor.cpu).copied();
        processor.has_switched = is_switch || known == Some(Err(()));
        if is_switch {
            self.first_threads.insert(processor.cpu, Err(()));
        }
        let news = event.thread.filter(|_| event.record);
        let before = known.and_then(Result::ok);
        let Some(thread) = news.filter(|_| !processor.has_switched && news != before) else {
            return Ok(());
        };
        self.first_threads.insert(processor.cpu, Ok(thread));
        let before = Left {
            ticks,
            thread: before,
            recorded: false,
            state: None,
        };
        processor.thread = news;
        self.switch(info, &before, news, ticks, processor)
    }

    /// Records the priority of a thread, if the event has it.
    pub(super) fn learn_priority(&mut self, thread: Option<ThreadId>, event: &Event, field: &str) {
        let reported = number(event, field).and_then(|reported| i32::try_from(reported).ok());
        if let (Some(thread), Some(reported)) = (thread, reported) {
            self.priorities.insert(thread, reported);
        }
    }

    pub(super) fn switch(
        &mut self,
        info: &TraceInfo,
        left: &Left,
        entered: Option<ThreadId>,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let cpu = processor.cpu;
        let before = self.actor(info, left.thread, cpu);
        let next = self.actor(info, entered, cpu);
        let state = left.state.unwrap_or(0) & STATES;
        self.write("sched_switch", ticks, processor, |record| {
            record.comm("prev_comm", before.comm);
            record.int32("prev_tid", before.tid);
            record.int32("prev_prio", before.priority);
            record.long("prev_state", Type::Int64, state.cast_unsigned());
            record.comm("next_comm", next.comm);
            record.int32("next_tid", next.tid);
            record.int32("next_prio", next.priority);
        })?;
        if let Some(thread) = entered {
            self.waiting.remove(&thread);
        }
        // An idle thread is always runnable.
        if let Some(thread) = left.thread.filter(|_| before.tid != 0)
            && left.state.is_none()
        {
            let position = processor.stream.payload().behind(STATE_AT);
            self.waiting.insert(thread, (processor.place, position));
        }
        Ok(())
    }

    pub(super) fn wakeup(
        &mut self,
        info: &TraceInfo,
        thread: ThreadId,
        target: Option<i64>,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let actor = self.actor(info, Some(thread), processor.cpu);
        if actor.tid == 0 {
            // An idle thread is never woken.
            return Ok(());
        }
        let target = target.and_then(|target| i32::try_from(target).ok());
        let cpu = target.unwrap_or(processor.cpu as i32);
        self.write("sched_wakeup", ticks, processor, |record| {
            record.comm("comm", actor.comm);
            record.int32("tid", actor.tid);
            record.int32("prio", actor.priority);
            record.int32("target_cpu", cpu);
        })
    }

    /// A thread as events describe it; `None` is the processor's idle thread.
    fn actor(&mut self, info: &TraceInfo, thread: Option<ThreadId>, cpu: u32) -> Actor {
        let name = thread.and_then(|thread| info.identities.thread_name(thread));
        let is_idle = thread.is_none_or(|thread| info.identities.is_idle(thread));
        let own: Cow<'_, str> = match (name, thread) {
            (Some(name), _) => name.into(),
            (None, Some(thread)) => format!("{:#x}", info.identities.tid(thread).0).into(),
            (None, None) => format!("swapper/{cpu}").into(),
        };
        let mut comm = [0; 16];
        // Zero-terminated, without incomplete characters.
        let mut length = own.len().min(15);
        while !own.is_char_boundary(length) {
            length -= 1;
        }
        for (place, byte) in comm.iter_mut().zip(own.as_bytes().iter().take(length)) {
            *place = *byte;
        }
        let tid = match thread.filter(|_| !is_idle) {
            Some(thread) => self.tid(info, thread),
            None => 0,
        };
        let reported = || {
            let known = info.identities.threads().get(thread?.0 as usize)?;
            i32::try_from(known.priority?).ok()
        };
        let priority = thread.and_then(|thread| self.priorities.get(&thread).copied());
        Actor {
            tid,
            priority: priority.or_else(reported).unwrap_or(PRIORITY),
            comm,
        }
    }

    /// The number of a thread: its own, if that fits and is unique.
    fn tid(&mut self, info: &TraceInfo, thread: ThreadId) -> i32 {
        let place = thread.0 as usize;
        if let Some(Some(known)) = self.tids.get(place) {
            return *known;
        }
        let own = i32::try_from(info.identities.tid(thread).0).ok();
        let own = own.filter(|own| *own > 0 && self.taken.insert(*own));
        let tid = own.unwrap_or_else(|| {
            while !self.taken.insert(self.next_tid) {
                self.next_tid = self.next_tid.saturating_add(1);
            }
            self.next_tid
        });
        if self.tids.len() <= place {
            self.tids.resize(place + 1, None);
        }
        if let Some(room) = self.tids.get_mut(place) {
            *room = Some(tid);
        }
        tid
    }
}
