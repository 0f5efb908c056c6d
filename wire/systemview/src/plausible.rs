//! Judges whether a packet is plausible in its stream, given the packets so far.
//!
//! A stream has no checksums, and most bytes decode to some packet. Foreign bytes are detected by tasks, interrupts and
//! events that did not occur before, and by packets that no target sends.

use crate::packet::{FIRST_OF_MODULES, Packet};
use crate::varint::Varints;

/// Degree of implausibility of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Oddity {
    /// Similar packets occurred in the stream.
    None,
    /// Something in it is new.
    New,
    /// Targets usually do not send it.
    Strange,
}

/// Number of tasks that are remembered. If there are more, all tasks count as known.
const TASKS: usize = 128;

/// Limit of interrupt and event numbers that are remembered individually.
const NUMBERS: usize = 1024;

/// Payloads of usual packets are shorter: a text of 128 bytes and 16 arguments take 220.
pub(crate) const LONG: usize = 300;

/// Maximum number of events of a module, and of all modules before their descriptions are known.
const EVENTS_OF_MODULES: u32 = 512;

/// Set of small numbers.
#[derive(Clone, Debug)]
struct Numbers([u64; NUMBERS / 64]);

impl Numbers {
    fn has(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn add(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    tasks: [u32; TASKS],
    task_count: usize,
    interrupts: Numbers,
    events: Numbers,
    /// Highest id of a module's first event.
    modules: u32,
    dropped: u32,
    /// Number of active interrupt handlers, if known.
    depth: Option<u32>,
    /// Number of packets so far.
    pub(crate) packets: u64,
}

impl Default for Known {
    fn default() -> Self {
        let none = Numbers([0; NUMBERS / 64]);
        Self {
            tasks: [0; TASKS],
            task_count: 0,
            interrupts: none.clone(),
            events: none,
            modules: FIRST_OF_MODULES,
            dropped: 0,
            depth: None,
            packets: 0,
        }
    }
}

impl Known {
    fn has_task(&self, task: u32) -> bool {
        let known = self.tasks.get(..self.task_count).unwrap_or_default();
        self.task_count == TASKS || known.contains(&task)
    }

    fn add_task(&mut self, task: u32) {
        if !self.has_task(task)
            && let Some(place) = self.tasks.get_mut(self.task_count)
        {
            *place = task;
            self.task_count += 1;
        }
    }

    /// Adds a packet that belongs to the stream.
    pub(crate) fn learn(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        match *packet {
            Packet::TaskStartExec { task }
            | Packet::TaskStartReady { task }
            | Packet::TaskStopReady { task, .. }
            | Packet::TaskCreate { task }
            | Packet::TaskInfo { task, .. } => self.add_task(task),
            Packet::IsrEnter { irq } => {
                self.interrupts.add(irq);
                self.depth = Some(self.depth.unwrap_or(0).saturating_add(1));
            }
            Packet::IsrExit | Packet::IsrToScheduler => {
                self.depth = self.depth.map(|depth| depth.saturating_sub(1));
            }
            Packet::Overflow { total } => {
                self.dropped = total;
                self.depth = None;
            }
            Packet::ModuleDescription { offset, .. } => self.modules = self.modules.max(offset),
            Packet::Event { id, .. } => self.events.add(id),
            _ => {}
        }
    }

    /// Keeps the tasks, interrupts and events, but resets the state that depends on order.
    pub(crate) const fn forget_order(&mut self) {
        self.dropped = 0;
        self.depth = None;
        self.packets = 0;
    }

    /// Judges a packet.
    pub(crate) fn oddity(&self, packet: &Packet<'_>) -> Oddity {
        let odd = |is_odd: bool, how| if is_odd { how } else { Oddity::None };
        let printable = |text: &[u8]| text.iter().all(|byte| *byte >= b' ' && *byte != 0x7F);
        match *packet {
            Packet::Nop => Oddity::Strange,
            Packet::TraceStart => odd(self.packets > 0, Oddity::New),
            Packet::IsrExit | Packet::IsrToScheduler => odd(self.depth == Some(0), Oddity::New),
            Packet::TaskStartExec { task }
            | Packet::TaskStartReady { task }
            | Packet::TaskStopReady { task, .. } => odd(!self.has_task(task), Oddity::New),
            Packet::TaskInfo { name, .. } => odd(!printable(name.0), Oddity::Strange),
            Packet::IsrEnter { irq } if irq as usize >= NUMBERS => Oddity::Strange,
            Packet::IsrEnter { irq } => odd(!self.interrupts.has(irq), Oddity::New),
            Packet::Overflow { total } => odd(total < self.dropped, Oddity::New),
            Packet::SystemDescription { text } | Packet::ModuleDescription { text, .. } => {
                odd(!printable(text.0), Oddity::Strange)
            }
            Packet::Init { frequency, ids, .. } => {
                odd(frequency == 0 || ids.shift > 31, Oddity::Strange)
            }
            Packet::Extended { id, .. } => odd(id > 63, Oddity::Strange),
            Packet::Event { id, payload } => {
                let bound = self.modules.saturating_add(EVENTS_OF_MODULES);
                if id >= bound || payload.len() > LONG {
                    return Oddity::Strange;
                }
                let is_known = self.events.has(id);
                let is_text = id < FIRST_OF_MODULES && !Varints::new(payload).are_all();
                odd(!is_known || is_text, Oddity::New)
            }
            _ => Oddity::None,
        }
    }
}
