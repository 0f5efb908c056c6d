//! Meaning of each event, in a table by event number.

use kymo_event::{FunctionId, Identities, SpaceId};
use kymo_rtems_record::EventId;

/// Meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Shown with its data only.
    Other,
    /// One-time fact about the target.
    Fact,
    /// Time.
    Time,
    /// Shown like `Other`; its data is a code address.
    Code,
    SwitchOut,
    SwitchIn,
    Create,
    Delete,
    IrqEntry,
    IrqExit,
    /// Start of a call; its data is the call site.
    Begin(FunctionId),
    End(FunctionId),
    FunctionEntry,
    FunctionExit,
    LockWait,
    LockHold,
    LockRelease,
    /// Interrupts, or thread switches, are disabled on the processor from here on.
    Mask(FunctionId),
    Unmask(FunctionId),
    Argument,
    Return,
    /// Memory is allocated (1) or freed (-1).
    Uma(i8),
    /// The data is a size.
    Size,
    Ready,
    Priority,
    BlockAddress,
    BlockLength,
    BlockWord,
}

/// Names of the spans that have no function.
const MASKED: [(EventId, EventId, &str); 2] = [
    (
        EventId::ISR_DISABLE,
        EventId::ISR_ENABLE,
        "interrupts disabled",
    ),
    (
        EventId::THREAD_DISPATCH_DISABLE,
        EventId::THREAD_DISPATCH_ENABLE,
        "thread dispatching disabled",
    ),
];

/// Returns the meanings of events, by [`EventId`].
pub(super) fn table(identities: &mut Identities, space: SpaceId) -> Vec<Means> {
    let mut table: Vec<Means> = (0..=EventId::PER_CPU_TAIL.0)
        .map(|number| match EventId(number) {
            EventId::PER_CPU_OVERFLOW => Means::Other,
            event if !event.has_time() => Means::Fact,
            event => single(event),
        })
        .collect();
    let mut set = |event: EventId, means| {
        if let Some(place) = table.get_mut(usize::from(event.0)) {
            *place = means;
        }
    };
    for (on, off, name) in MASKED {
        let function = identities.function_named(space, name);
        set(on, Means::Mask(function));
        set(off, Means::Unmask(function));
    }
    for number in 0..EventId::USER_0.0 {
        let event = EventId(number);
        let name = event.name(10);
        // One of them is misspelled in RTEMS.
        let call = name.strip_suffix("_ENTRY").or(name.strip_suffix("_ENTY"));
        let (Some(call), Means::Other) = (call, single(event)) else {
            continue;
        };
        let exit = (0..EventId::USER_0.0).map(EventId);
        let mut exit = exit.filter(|other| other.name(10).strip_suffix("_EXIT") == Some(call));
        if let Some(exit) = exit.next() {
            let function = identities.function_named(space, &call.to_ascii_lowercase());
            set(event, Means::Begin(function));
            set(exit, Means::End(function));
        }
    }
    table
}

/// Returns the meaning of an event that does not depend on other events.
fn single(event: EventId) -> Means {
    match event {
        EventId::UPTIME_LOW | EventId::UPTIME_HIGH => Means::Time,
        EventId::CALLER | EventId::LINE => Means::Code,
        EventId::THREAD_SWITCH_OUT => Means::SwitchOut,
        EventId::THREAD_SWITCH_IN => Means::SwitchIn,
        EventId::THREAD_CREATE => Means::Create,
        EventId::THREAD_DELETE | EventId::THREAD_TERMINATE => Means::Delete,
        EventId::INTERRUPT_ENTRY => Means::IrqEntry,
        EventId::INTERRUPT_EXIT => Means::IrqExit,
        EventId::FUNCTION_ENTRY => Means::FunctionEntry,
        EventId::FUNCTION_EXIT => Means::FunctionExit,
        EventId::ISR_LOCK_ACQUIRE_ENTRY => Means::LockWait,
        EventId::ISR_LOCK_ACQUIRE_EXIT => Means::LockHold,
        EventId::ISR_LOCK_RELEASE => Means::LockRelease,
        event if (EventId::ARG_0..=EventId::ARG_9).contains(&event) => Means::Argument,
        event if (EventId::RETURN_0..=EventId::RETURN_9).contains(&event) => Means::Return,
        EventId::UMA_ALLOC_PTR | EventId::UMA_ALLOC_ZONE => Means::Uma(1),
        EventId::UMA_FREE_PTR | EventId::UMA_FREE_ZONE => Means::Uma(-1),
        EventId::HEAP_SIZE
        | EventId::HEAP_USAGE
        | EventId::WORKSPACE_SIZE
        | EventId::WORKSPACE_USAGE => Means::Size,
        EventId::THREAD_START | EventId::THREAD_RESTART => Means::Ready,
        EventId::THREAD_PRIO_CURRENT_LOW => Means::Priority,
        EventId::ADDRESS => Means::BlockAddress,
        EventId::LENGTH => Means::BlockLength,
        EventId::MEMORY | EventId::BUFFER | EventId::REGISTERS => Means::BlockWord,
        _ => Means::Other,
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::Space;

    use super::*;

    #[test]
    fn pairs_are_calls() {
        let mut identities = Identities::default();
        let space = identities.add_space(Space::default());
        let table = table(&mut identities, space);
        let of = |name: &str| {
            let place = (0..1024).position(|number| EventId(number).name(10) == name);
            table[place.unwrap()]
        };
        for (entry, exit) in [
            ("WRITE_ENTRY", "WRITE_EXIT"),
            ("MALLOC_ENTRY", "MALLOC_EXIT"),
            ("WORKSPACE_FREE_ENTY", "WORKSPACE_FREE_EXIT"),
            ("INTERRUPT_SERVER_ENTRY", "INTERRUPT_SERVER_EXIT"),
        ] {
            let (Means::Begin(begin), Means::End(end)) = (of(entry), of(exit)) else {
                panic!("{entry}: {:?}, {exit}: {:?}", of(entry), of(exit));
            };
            assert_eq!(begin, end);
        }
        for (name, means) in [
            ("THREAD_EXIT", Means::Other),
            ("INTERRUPT_ENTRY", Means::IrqEntry),
            ("ARG_9", Means::Argument),
            ("RETURN_0", Means::Return),
            ("USER_0", Means::Other),
            ("VERSION", Means::Fact),
            ("LINE", Means::Code),
        ] {
            assert_eq!(of(name), means, "{name}");
        }
        let pairs = table.iter().filter(|it| matches!(it, Means::Begin(_)));
        assert!(pairs.count() > 70);
    }
}
