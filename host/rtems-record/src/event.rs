//! Event numbers and names.
//!
//! Version 10 moved the events without a time to the front and removed two events of version 9; the others kept their
//! order. This crate identifies an event by its number in version 10, for streams of both versions.

use std::sync::OnceLock;

/// Event by its number in version 10. [`PER_CPU_HEAD`](Self::PER_CPU_HEAD) and [`PER_CPU_TAIL`](Self::PER_CPU_TAIL),
/// which that version does not have, have numbers behind the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u16);

macro_rules! events {
    ($($name:ident = $number:literal),+ $(,)?) => {
        #[allow(missing_docs, reason = "the names are RTEMS's own")]
        impl EventId {
            $(pub const $name: Self = Self($number);)+
        }
    };
}

events! {
    EMPTY = 0, VERSION = 1, ARCH = 2, BSP = 3, FREQUENCY = 4, MULTILIB = 5, PER_CPU_COUNT = 6, PER_CPU_DISCARD = 7,
    PER_CPU_OVERFLOW = 8, PROCESSOR = 9, PROCESSOR_MAXIMUM = 10, THREAD_ID = 11, THREAD_NAME = 12, TIME_ADJUSTMENT = 13,
    TOOLS = 14, UNRELIABLE_TIME = 15, VERSION_CONTROL_KEY = 16,
    ADDRESS = 19, ARG_0 = 22, ARG_9 = 31, BUFFER = 34, CALLER = 35, ERRNO = 46, ETHER_INPUT = 44, ETHER_OUTPUT = 45,
    FATAL_CODE = 47, FATAL_SOURCE = 48, FUNCTION_ENTRY = 63, FUNCTION_EXIT = 64, HEAP_ALLOC = 67, HEAP_FREE = 68,
    HEAP_SIZE = 69, HEAP_USAGE = 70, INTERRUPT_ENTRY = 71, INTERRUPT_EXIT = 72, IP6_INPUT = 83, IP_OUTPUT = 86,
    ISR_DISABLE = 87, ISR_ENABLE = 88, ISR_LOCK_ACQUIRE_ENTRY = 89, ISR_LOCK_ACQUIRE_EXIT = 90, ISR_LOCK_ADDRESS = 91,
    ISR_LOCK_DESTROY = 92, ISR_LOCK_INITIALIZE = 93, ISR_LOCK_NAME = 94, ISR_LOCK_RELEASE = 95, LENGTH = 100, LINE = 101,
    MEMORY = 110, REGISTERS = 139, RETURN_0 = 142, RETURN_9 = 151, THREAD_BEGIN = 273, THREAD_CREATE = 276,
    THREAD_DELETE = 277, THREAD_DISPATCH_DISABLE = 278, THREAD_DISPATCH_ENABLE = 279, THREAD_EXIT = 280,
    THREAD_EXITTED = 281, THREAD_PRIO_CURRENT_HIGH = 282, THREAD_PRIO_CURRENT_LOW = 283, THREAD_RESTART = 298,
    THREAD_STACK_CURRENT = 299, THREAD_START = 302, THREAD_STATE_CLEAR = 303, THREAD_STATE_SET = 304,
    THREAD_SWITCH_IN = 305, THREAD_SWITCH_OUT = 306, THREAD_TERMINATE = 307, TCP_INPUT = 271, TCP_OUTPUT = 272,
    UDP_INPUT = 312, UDP_OUTPUT = 313, UMA_ALLOC_PTR = 314, UMA_ALLOC_ZONE = 315, UMA_FREE_PTR = 316,
    UMA_FREE_ZONE = 317, UPTIME_HIGH = 322, UPTIME_LOW = 323, WORKSPACE_SIZE = 336, WORKSPACE_USAGE = 337, USER_0 = 512,
    PER_CPU_HEAD = 1024, PER_CPU_TAIL = 1025,
}

/// First event of version 10 that has a time.
const FIRST_TIMED: u16 = 17;

/// First number that version 10 does not use.
const UNUSED: u16 = 342;

/// Number of event numbers: an item has 10 bits.
pub(crate) const NUMBERS: u16 = 1024;

/// Events of version 9 without a time. Version 9 has all events in the order of their names.
const UNTIMED_9: [(u16, EventId); 16] = [
    (0, EventId::EMPTY),
    (1, EventId::VERSION),
    (7, EventId::ARCH),
    (20, EventId::BSP),
    (44, EventId::FREQUENCY),
    (105, EventId::MULTILIB),
    (110, EventId::PER_CPU_COUNT),
    (111, EventId::PER_CPU_HEAD),
    (112, EventId::PER_CPU_OVERFLOW),
    (113, EventId::PER_CPU_TAIL),
    (118, EventId::PROCESSOR),
    (119, EventId::PROCESSOR_MAXIMUM),
    (277, EventId::THREAD_ID),
    (278, EventId::THREAD_NAME),
    (309, EventId::TOOLS),
    (322, EventId::VERSION_CONTROL_KEY),
];

/// First number that version 9 does not use.
const UNUSED_9: u16 = 341;

/// Returns the events of version 9, by number.
fn version_9() -> &'static [EventId] {
    static TABLE: OnceLock<Vec<EventId>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut timed = (FIRST_TIMED..UNUSED).map(EventId);
        (0..NUMBERS)
            .map(|number| {
                let untimed = UNTIMED_9.iter().find(|(known, _)| *known == number);
                match untimed {
                    Some((_, event)) => *event,
                    None if number < UNUSED_9 => timed.next().unwrap_or(EventId(number)),
                    // A distinct number: 341 is another event in version 10.
                    None if number == UNUSED_9 => EventId(UNUSED),
                    None => EventId(number),
                }
            })
            .collect()
    })
}

/// Returns the names of all events, by number: those of version 10, then the two of version 9.
fn names() -> &'static [String] {
    static TABLE: OnceLock<Vec<String>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let known = include_str!("events.txt").lines().map(str::to_owned);
        let unused = (UNUSED..512).map(|number| format!("SYSTEM_{number}"));
        let user = (0..512).map(|number| format!("USER_{number}"));
        let old = ["PER_CPU_HEAD", "PER_CPU_TAIL"].map(str::to_owned);
        known.chain(unused).chain(user).chain(old).collect()
    })
}

impl EventId {
    /// Returns the event with a number in a version of the format.
    pub fn of_number(number: u16, version: u32) -> Self {
        let number = number % NUMBERS;
        match version {
            9 => version_9()
                .get(usize::from(number))
                .copied()
                .unwrap_or(Self(number)),
            _ => Self(number),
        }
    }

    /// Returns the number in a version of the format; `None` if that version does not have the event.
    pub fn number(self, version: u32) -> Option<u16> {
        match version {
            9 => {
                let place = version_9().iter().position(|event| *event == self)?;
                u16::try_from(place).ok()
            }
            _ => (self.0 < NUMBERS).then_some(self.0),
        }
    }

    /// Returns RTEMS's name in a version of the format (`THREAD_SWITCH_IN`, `USER_7`).
    pub fn name(self, version: u32) -> &'static str {
        if version == 9 && self.0 == UNUSED {
            return "SYSTEM_341";
        }
        names().get(usize::from(self.0)).map_or("", String::as_str)
    }

    /// Returns whether items of this event have a time: 22 bits of the target's counter.
    #[inline]
    pub const fn has_time(self) -> bool {
        self.0 >= FIRST_TIMED && self.0 < NUMBERS
    }

    /// Returns whether the number belongs to neither a system event nor a user event.
    pub(crate) const fn is_unused(self) -> bool {
        self.0 >= UNUSED && self.0 < Self::USER_0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_fit() {
        assert_eq!(names().len(), 1026);
        for (number, version, name) in [
            (2, 9, "ACCEPT_ENTRY"),
            (111, 9, "PER_CPU_HEAD"),
            (340, 9, "WRITEV_EXIT"),
            (341, 9, "SYSTEM_341"),
            (341, 10, "WRITEV_EXIT"),
            (342, 10, "SYSTEM_342"),
            (306, 10, "THREAD_SWITCH_OUT"),
            (512, 9, "USER_0"),
            (1023, 10, "USER_511"),
        ] {
            let event = EventId::of_number(number, version);
            assert_eq!(event.name(version), name);
            assert_eq!(event.number(version), Some(number));
        }
        assert_eq!(EventId::PER_CPU_TAIL.number(10), None);
        assert_eq!(EventId::PER_CPU_TAIL.name(9), "PER_CPU_TAIL");
        for (name, event) in [
            ("ISR_LOCK_RELEASE", EventId::ISR_LOCK_RELEASE),
            ("THREAD_STATE_SET", EventId::THREAD_STATE_SET),
            ("UMA_FREE_ZONE", EventId::UMA_FREE_ZONE),
            ("RETURN_9", EventId::RETURN_9),
            ("TCP_OUTPUT", EventId::TCP_OUTPUT),
            ("WORKSPACE_USAGE", EventId::WORKSPACE_USAGE),
            ("FATAL_SOURCE", EventId::FATAL_SOURCE),
            ("ETHER_OUTPUT", EventId::ETHER_OUTPUT),
            ("HEAP_USAGE", EventId::HEAP_USAGE),
            ("IP_OUTPUT", EventId::IP_OUTPUT),
            ("THREAD_DISPATCH_ENABLE", EventId::THREAD_DISPATCH_ENABLE),
        ] {
            assert_eq!(event.name(10), name);
        }
    }
}
