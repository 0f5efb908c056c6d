//! Output of ftrace events: rows of a batch, sorted if whole calls arrive at their ends.

mod lives;

use std::collections::HashMap;

use super::held::{Held, Number};
use super::processes::Processes;
use super::sorter::Sorter;
use super::tails::{self, Tails};
use crate::reused::Threads;
use kymo_event::{
    Addr, Batch, Cpu, Event, EventKind, Field, FunctionId, Gap, Identities, Row, RowKind, Space,
    SpaceId, SpaceKind, StreamId, ThreadId, Tid, Time, TraceInfo,
};

/// Largest number of rows that wait for calls that began before them and end later.
const WAITING: usize = 1 << 19;

/// Row to be output, with the data that does not fit into it.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) row: Row,
    /// Running task, if it is known; 0 is the idle task of the CPU. For a switch, the task after it.
    pub(super) pid: Option<i32>,
    /// Data that only an event has.
    pub(super) event: Option<Box<Reported>>,
    /// For a row that [waits](Held): the time of the row before it in its CPU buffer.
    pub(super) before: Time,
    /// Whether it is an entry whose exit has not arrived.
    pub(super) waits: bool,
    /// Whether it is cancelled.
    pub(super) is_void: bool,
}

impl Out {
    #[inline]
    pub(super) const fn new(row: Row, pid: Option<i32>, event: Option<Box<Reported>>) -> Self {
        Self {
            row,
            pid,
            event,
            before: Time(i64::MIN),
            waits: false,
            is_void: false,
        }
    }

    #[inline]
    pub(super) const fn time(&self) -> Time {
        self.row.time
    }

    /// Returns whether it is a gap.
    pub(super) fn is_gap(&self) -> bool {
        let kind = self.event.as_ref().map(|event| &event.kind);
        matches!(kind, Some(EventKind::Gap(_))) && !self.is_void
    }
}

/// Data of an event that a row does not have.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) kind: EventKind,
    pub(super) name: std::borrow::Cow<'static, str>,
    pub(super) fields: Vec<Field>,
    /// Timestamp of its record.
    pub(super) stamp: Time,
}

/// Output of rows into batches.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) space: SpaceId,
    functions: HashMap<u64, FunctionId>,
    /// Cache of recent functions, by address.
    recent: Vec<(u64, FunctionId)>,
    tasks: Tasks,
    /// Names of tasks in the list of the trace: of those that had their pids last.
    comms: HashMap<i32, String>,
    pub(super) processes: Processes,
    pub(super) reused: Threads,
    last_thread: (i32, Option<ThreadId>),
    sorter: Option<Sorter>,
    held: Option<Held>,
    /// Whether each entry that could not wait for its exit begins late: not in text, where nearly none does.
    early_is_late: bool,
    ready: Vec<Out>,
    /// Rows with later times than the next ones; at most one per stream.
    ahead: Vec<Out>,
}

/// Tasks of a kernel.
#[derive(Debug, Default)]
struct Tasks {
    threads: HashMap<i32, ThreadId>,
    /// Threads whose names are in records.
    stated: Vec<bool>,
    /// Task that runs on each CPU, as far as it is known from records: those of idle tasks name no thread.
    running: Vec<Option<i32>>,
    /// Whether a record of a switch has been read.
    has_switches: bool,
    /// Incomplete switches, and the rows after them.
    tails: Tails,
    /// Whether rows keep the order of their records, so that no switch waits.
    stay: bool,
    /// Whether a different task in the records of a CPU does not imply a switch.
    without_switches: bool,
}

/// Number of entries of [`Output::recent`].
const RECENT: usize = 4096;

/// Largest number of CPUs whose running task is tracked.
const MOST_CPUS: usize = 1 << 16;

impl Output {
    /// Creates the output with a kernel's space and the names of tasks.
    pub(super) fn new(
        identities: &mut Identities,
        name: &str,
        comms: HashMap<i32, String>,
        sorted: bool,
    ) -> Self {
        let space = identities.add_space(Space {
            kind: SpaceKind::Kernel,
            name: name.to_owned(),
            ..Space::default()
        });
        Self {
            space,
            functions: HashMap::new(),
            recent: vec![(0, FunctionId(u32::MAX)); RECENT],
            tasks: Tasks::default(),
            comms,
            processes: Processes::default(),
            reused: Threads::default(),
            last_thread: (0, None),
            sorter: sorted.then(Sorter::default),
            held: None,
            early_is_late: true,
            ready: Vec::new(),
            ahead: Vec::new(),
        }
    }

    /// Keeps rows in the order of their records, as a list of all records needs them.
    pub(super) const fn stay(&mut self) {
        self.tasks.stay = true;
    }

    /// Stops inferring switches. Whole calls have the CPU on which they returned, and may have run on others before.
    pub(super) const fn infer_no_switches(&mut self) {
        self.tasks.without_switches = true;
    }

    /// Sorts whole calls from here on.
    pub(super) fn sort(&mut self) {
        self.sorter.get_or_insert_default();
    }

    /// Makes entries wait for the exits with the start times of their calls.
    pub(super) fn hold(&mut self) {
        self.held = Some(Held::new(self.tasks.stay));
    }

    /// Lets entries of text wait for their exits: the few that were written late go back to where their calls began.
    pub(super) fn hold_text(&mut self) {
        self.hold();
        self.early_is_late = false;
    }

    /// Adds a remark if calls began before rows already output, and were truncated there.
    pub(super) fn remark_cut(&self, info: &mut TraceInfo) {
        let cut = self.sorter.as_ref().map_or(0, |sorter| sorter.cut_calls);
        let held = self.held.as_ref().filter(|_| self.early_is_late);
        let early = held.map_or(0, Held::early);
        for (calls, remark) in [
            (
                cut,
                "calls began too long before their ends to be put in order: they are cut",
            ),
            (
                early,
                "calls are so long that they begin at the record of their entry, some 100 ns late",
            ),
        ] {
            let remark = format!("{calls} {remark}");
            if calls > 0 && !self.is_waiting() && !info.remarks.contains(&remark) {
                info.remarks.push(remark);
            }
        }
    }

    /// Returns the function at an address. `find` returns the address and the name of its symbol.
    #[inline]
    pub(super) fn function_at<'n>(
        &mut self,
        address: u64,
        identities: &mut Identities,
        find: impl FnOnce(u64) -> Option<(u64, &'n str)>,
    ) -> FunctionId {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let place = (address.wrapping_mul(SPREAD) >> 52) as usize;
        if let Some((known, id)) = self.recent.get(place)
            && *known == address
            && id.0 != u32::MAX
        {
            return *id;
        }
        let id = self.other_function(address, identities, find);
        if let Some(entry) = self.recent.get_mut(place) {
            *entry = (address, id);
        }
        id
    }

    #[inline(never)]
    fn other_function<'n>(
        &mut self,
        address: u64,
        identities: &mut Identities,
        find: impl FnOnce(u64) -> Option<(u64, &'n str)>,
    ) -> FunctionId {
        let space = self.space;
        *self
            .functions
            .entry(address)
            .or_insert_with(|| match find(address) {
                Some((start, name)) => {
                    let id = identities.function_at(space, Addr(start));
                    identities.name_function(id, name);
                    id
                }
                None => identities.function_at(space, Addr(address)),
            })
    }

    /// Returns the thread of a task; `None` for the idle tasks, of which each CPU has one.
    #[inline]
    pub(super) fn thread(&mut self, pid: i32, identities: &mut Identities) -> Option<ThreadId> {
        if self.last_thread.0 != pid {
            self.last_thread = (pid, self.other_thread(pid, identities));
        }
        self.last_thread.1
    }

    #[inline(never)]
    fn other_thread(&mut self, pid: i32, identities: &mut Identities) -> Option<ThreadId> {
        if pid <= 0 {
            return None;
        }
        if let Some(known) = self.tasks.threads.get(&pid) {
            return Some(*known);
        }
        let space = self.processes.space(pid, self.space, identities);
        let thread = identities.thread(space, Tid(u64::from(pid.unsigned_abs())));
        self.tasks.threads.insert(pid, thread);
        if let Some(comm) = self.comms.get(&pid) {
            identities.name_thread(thread, comm);
        }
        Some(thread)
    }

    /// Adds a row. Rows of one CPU arrive in order.
    #[inline]
    pub(super) fn put(&mut self, out: Out, batch: &mut Batch) {
        if !self.ahead.is_empty() {
            self.give_ahead(Some(&out.row), batch);
        }
        self.pass(out, batch);
    }

    /// Takes a row that nothing ahead belongs before.
    #[inline]
    fn pass(&mut self, mut out: Out, batch: &mut Batch) {
        if let Some(held) = &mut self.held {
            held.add(out);
            self.give_held(false, batch);
        } else if let Some(sorter) = &mut self.sorter {
            sorter.add(out, 0);
            self.settle(WAITING, batch);
        } else {
            self.tasks.emit(&mut out, batch);
        }
    }

    /// Adds the end of a call whose line is at its start. Lines of other CPUs with earlier times follow, so the row
    /// waits until its time: rows are in order of time.
    pub(super) fn put_ahead(&mut self, out: Out, batch: &mut Batch) {
        if self.sorter.is_some() {
            return self.put(out, batch);
        }
        self.give_ahead(Some(&out.row), batch);
        self.ahead.push(out);
    }

    /// Removes a stream's row that is [ahead](Self::put_ahead), if it has not been output.
    pub(super) fn take_ahead(&mut self, stream: StreamId) -> Option<Out> {
        let mut ahead = self.ahead.iter();
        let place = ahead.position(|out| out.row.stream == stream)?;
        Some(self.ahead.swap_remove(place))
    }

    /// Outputs the rows ahead that belong before this one, in time order; all of them at the end.
    #[inline(never)]
    fn give_ahead(&mut self, next: Option<&Row>, batch: &mut Batch) {
        let is_before = |out: &Out| {
            next.is_none_or(|next| {
                let is_its = out.row.thread().is_some() && out.row.thread() == next.thread();
                out.row.stream == next.stream || is_its || out.time() <= next.time
            })
        };
        loop {
            let due = self
                .ahead
                .iter()
                .enumerate()
                .filter(|(_, out)| is_before(out));
            let Some((first, _)) = due.min_by_key(|(_, out)| out.time()) else {
                return;
            };
            let out = self.ahead.swap_remove(first);
            self.pass(out, batch);
        }
    }

    /// Adds a row without further data.
    #[inline]
    pub(super) fn put_row(&mut self, row: Row, pid: i32, batch: &mut Batch) {
        self.put(Out::new(row, Some(pid), None), batch);
    }

    /// Adds an entry whose exit will contain the start of the call. Returns its number, if it waits.
    #[inline]
    pub(super) fn put_entry(&mut self, out: Out, batch: &mut Batch) -> Option<Number> {
        if !self.ahead.is_empty() {
            self.give_ahead(Some(&out.row), batch);
        }
        match &mut self.held {
            // Only this entry was added, so no row can be output.
            Some(held) => Some(held.add_entry(out)),
            None => {
                self.put(out, batch);
                None
            }
        }
    }

    /// Adds a gap. Returns its number, if it waits.
    pub(super) fn put_gap(&mut self, out: Out, batch: &mut Batch) -> Option<Number> {
        let number = self.held.as_ref().map(Held::next_number);
        self.put(out, batch);
        number
    }

    /// Cancels the row with this number, if it was not output yet.
    pub(super) fn take_back(&mut self, row: Number) {
        if let Some(held) = &mut self.held {
            held.take_back(row);
        }
    }

    /// Adds an exit of a call that ended at `end`, and whose `entry` happened at the given time.
    #[inline]
    pub(super) fn put_exit(
        &mut self,
        out: Out,
        end: Time,
        entry: Option<(Number, Time)>,
        batch: &mut Batch,
    ) {
        if !self.ahead.is_empty() {
            self.give_ahead(Some(&out.row), batch);
        }
        match &mut self.held {
            Some(held) => {
                held.add_exit(out, end, entry);
                self.give_held(false, batch);
            }
            None => self.put(out, batch),
        }
    }

    /// Releases an entry whose exit is missing or adds no information. Returns whether it was still waiting.
    pub(super) fn release(&mut self, entry: Number) -> bool {
        let held = self.held.as_mut();
        held.is_some_and(|held| held.release(entry).is_some())
    }

    /// How many calls of [text](Self::hold_text) begin late, since their entries could not go back far enough.
    pub(super) fn late(&self) -> u64 {
        self.held.as_ref().map_or(0, Held::late)
    }

    /// Returns the old and new numbers of entries that moved.
    pub(super) fn moved(&mut self) -> Option<Vec<(Number, Number)>> {
        let moved = &mut self.held.as_mut()?.moved;
        (!moved.is_empty()).then(|| std::mem::take(moved))
    }

    /// Outputs held rows up to the first waiting one, and as many as fit into the batch. With `is_over`, none waits.
    #[inline]
    pub(super) fn give_held(&mut self, is_over: bool, batch: &mut Batch) {
        let Self { held, tasks, .. } = self;
        let Some(held) = held else { return };
        while !batch.is_full()
            && let Some(out) = held.next(is_over)
        {
            if !out.is_void {
                tasks.emit(out, batch);
            }
            held.pop();
        }
    }

    /// Adds a whole call when its end is known: `enter` and `exit`, the depth of the call among those of its task, and
    /// whether its times are exact.
    pub(super) fn put_call(
        &mut self,
        mut enter: Out,
        mut exit: Out,
        (depth, is_exact): (u32, bool),
        batch: &mut Batch,
    ) {
        let sorter = self.sorter.get_or_insert_default();
        match is_exact {
            true => sorter.cut(&mut enter, &mut exit),
            false => sorter.nest(&mut enter, &mut exit, depth),
        }
        sorter.add(enter, depth);
        sorter.add(exit, depth);
        self.settle(WAITING, batch);
    }

    /// Outputs rows until no more than `most` wait.
    pub(super) fn settle(&mut self, most: usize, batch: &mut Batch) {
        let Some(sorter) = &mut self.sorter else {
            return;
        };
        if sorter.len() <= most {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        // The number is limited, so that a batch does not become much too large.
        while sorter.len() > most && ready.len() < Batch::ROWS {
            let Some(out) = sorter.pop() else { break };
            ready.push(out);
        }
        for mut out in ready.drain(..) {
            self.tasks.emit(&mut out, batch);
        }
        self.ready = ready;
    }

    /// Ends the output. If no row is held, outputs those that wait for the end of a switch.
    pub(super) fn end(&mut self, batch: &mut Batch) {
        self.give_ahead(None, batch);
        self.give_held(true, batch);
        if !self.is_waiting() {
            self.tasks.tails.end();
            self.tasks.give_waiting(batch);
        }
    }

    /// Returns whether rows wait for calls.
    fn is_waiting(&self) -> bool {
        let sorter = self.sorter.as_ref();
        sorter.is_some_and(|sorter| sorter.len() > 0)
            || self.held.as_ref().is_some_and(|held| !held.is_empty())
    }
}

impl Tasks {
    /// Notes the running task of a CPU. The first record of an idle task, which has no thread, switches the thread
    /// before out.
    #[inline]
    fn run(&mut self, row: &Row, pid: i32, batch: &mut Batch) {
        let Some(cpu) = row.cpu() else { return };
        if let Some(Some(running)) = self.running.get(cpu.0 as usize)
            && *running == pid
        {
            return;
        }
        self.run_other(row, cpu, pid, batch);
    }

    #[inline(never)]
    fn run_other(&mut self, row: &Row, cpu: Cpu, pid: i32, batch: &mut Batch) {
        let place = cpu.0 as usize;
        if place >= MOST_CPUS {
            return;
        }
        if self.running.len() <= place {
            self.running.resize(place + 1, None);
        }
        let Some(running) = self.running.get_mut(place) else {
            return;
        };
        let before = running.replace(pid);
        // The trace itself records the switch.
        if matches!(row.kind, RowKind::SwitchedIn | RowKind::SwitchedOut) {
            return;
        }
        if let Some(before) = before.filter(|before| *before > 0 && pid == 0)
            && let Some(thread) = self.threads.get(&before)
        {
            let mut left = Row::new(RowKind::SwitchedOut, row.time, row.stream);
            left.record = false;
            batch.push(left.at(Some(cpu), Some(*thread)));
        }
    }

    /// Outputs a row, or makes it wait for the end of a switch. Takes its event data.
    #[inline]
    fn emit(&mut self, out: &mut Out, batch: &mut Batch) {
        match self.tails.is_empty() && (!tails::is_switch(out.row.kind) || self.stay) {
            true => self.give(out, batch),
            false => self.wait(out, batch),
        }
    }

    #[inline(never)]
    fn wait(&mut self, out: &mut Out, batch: &mut Batch) {
        self.tails.add(Out::new(out.row, out.pid, out.event.take()));
        self.give_waiting(batch);
    }

    fn give_waiting(&mut self, batch: &mut Batch) {
        while let Some(mut out) = self.tails.pop() {
            self.give(&mut out, batch);
        }
    }

    #[inline]
    fn give(&mut self, out: &mut Out, batch: &mut Batch) {
        let row = &out.row;
        if let Some(pid) = out.pid
            && !self.without_switches
        {
            self.run(row, pid, batch);
        }
        match out.event.take() {
            None => batch.push(*row),
            Some(reported) => {
                let Reported {
                    kind,
                    name,
                    fields,
                    stamp,
                } = *reported;
                let event = Event {
                    time: row.time,
                    stream: row.stream,
                    cpu: row.cpu(),
                    thread: row.thread(),
                    kind,
                    named: row.named,
                    record: row.record,
                    stamp: Some(stamp).filter(|stamp| *stamp != row.time),
                    name,
                    fields,
                };
                match row.wall().is_some() || row.is_untimed() {
                    false => batch.push_event(event),
                    true => batch.push_both(row, event),
                }
            }
        }
    }
}

impl Reported {
    /// Creates the data of an event that is not a record of the trace.
    pub(super) fn unnamed(kind: EventKind, time: Time) -> Box<Self> {
        Self::record(kind, "".into(), Vec::new(), time)
    }

    /// Creates the data of a record with its timestamp.
    pub(super) fn record(
        kind: EventKind,
        name: std::borrow::Cow<'static, str>,
        fields: Vec<Field>,
        stamp: Time,
    ) -> Box<Self> {
        Box::new(Self {
            kind,
            name,
            fields,
            stamp,
        })
    }
}

/// Returns a gap in a stream.
pub(super) fn gap(gap: Gap, time: Time, stream: StreamId, cpu: Option<Cpu>) -> Out {
    let mut row = Row::new(RowKind::Rare, time, stream).at(cpu, None);
    row.record = false;
    let event = Reported::unnamed(EventKind::Gap(gap), time);
    Out::new(row, None, Some(event))
}
