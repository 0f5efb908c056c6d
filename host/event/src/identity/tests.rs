//! Tests of identities.

use super::*;

#[test]
fn two_spaces_share_nothing() {
    let mut all = Identities::default();
    let [one, other] = ["one", "other"].map(|name| {
        all.add_space(Space {
            name: name.to_owned(),
            ..Space::default()
        })
    });
    assert_ne!(
        all.function_at(one, Addr(8)),
        all.function_at(other, Addr(8))
    );
    assert_ne!(
        all.function_named(one, "read"),
        all.function_named(other, "read")
    );
    assert_ne!(all.thread(one, Tid(1)), all.thread(other, Tid(1)));
    assert_eq!(all.thread(one, Tid(1)), all.thread(one, Tid(1)));
    let hard = all.interrupt(one, InterruptKind::Hard, Irq(3));
    assert_ne!(hard, all.interrupt(one, InterruptKind::Soft, Irq(3)));
}

#[test]
fn what_is_mapped_anew_is_another_function() {
    let mut all = Identities::default();
    let space = all.add_space(Space::default());
    let mapping = |path: &str| Mapping {
        start: Addr(0x1000),
        bytes: 0x100,
        offset: 0,
        path: path.to_owned(),
        build_id: None,
        since: None,
    };
    all.map(space, mapping("one"));
    let (inside, outside) = (
        all.function_at(space, Addr(0x1010)),
        all.function_at(space, Addr(0x2000)),
    );
    all.map(space, mapping("other"));
    let again = all.function_at(space, Addr(0x1010));
    assert_ne!(again, inside);
    assert_eq!(all.function_at(space, Addr(0x2000)), outside);
    let mappings = [inside, again, outside].map(|id| all.function(id).unwrap().mapping);
    assert_eq!(mappings, [Some(0), Some(1), None]);
}

#[test]
fn what_is_told_apart_is_bounded() {
    let mut all = Identities::default();
    let space = all.add_space(Space::default());
    let address = |number: usize| Addr(number as u64 * 16);
    for number in 0..MOST_FUNCTIONS + 3 {
        all.function_at(space, address(number));
    }
    assert_eq!(all.functions().len(), MOST_FUNCTIONS);
    assert_eq!(all.beyond().functions, 4);
    let last = all.function_named(space, "another one");
    let name = all
        .function(last)
        .and_then(|function| function.name.as_deref());
    assert_eq!(name, Some("(other functions)"));
    // Known identities do not change.
    assert_eq!(all.function_at(space, address(7)), FunctionId(7));
    for number in 0..MOST_THREADS + 3 {
        let thread = all.thread(space, Tid(number as u64));
        all.name_thread(thread, &number.to_string());
    }
    assert_eq!(all.threads().len(), MOST_THREADS);
    assert_eq!(all.beyond().threads, 3);
    assert!(all.changes.is_empty(), "nobody takes them");
    let name = "x".repeat(5 * LONGEST_NAME);
    all.name_thread(ThreadId(0), &name);
    assert_eq!(
        all.thread_name(ThreadId(0)).map(str::len),
        Some(LONGEST_NAME)
    );
}

#[test]
fn a_copy_learns_what_is_new() {
    let (mut all, mut copy) = (Identities::default(), Identities::default());
    let mut known = Known::default();
    // The same holds for a copy of the copy.
    let (mut second, mut known_of_copy) = (Identities::default(), Known::default());
    second.learn(copy.news(&mut known_of_copy));
    let space = all.add_space(Space::default());
    let thread = all.thread(space, Tid(7));
    copy.learn(all.news(&mut known));
    second.learn(copy.news(&mut known_of_copy));
    assert_eq!(second, all);
    let renamed = second.renamed();
    all.name_thread(thread, "main");
    all.set_priority(thread, 4);
    let stack = Stack {
        base: Addr(0x100),
        bytes: 512,
        used: None,
    };
    all.set_stack(thread, stack);
    all.function_named(space, "read");
    all.new_thread(space, Tid(7));
    copy.learn(all.news(&mut known));
    assert_eq!(copy, all);
    assert_eq!(copy.followed(), 1);
    second.learn(copy.news(&mut known_of_copy));
    assert_eq!(second, all);
    assert_ne!(second.renamed(), renamed);
}

#[test]
fn a_copy_is_told_of_spaces_that_changed_and_of_no_others() {
    let mut all = Identities::default();
    let [first, second] = ["a", "b"].map(|name| {
        all.add_space(Space {
            name: name.to_owned(),
            ..Space::default()
        })
    });
    let (mut copy, mut known) = (Identities::default(), Known::default());
    copy.learn(all.news(&mut known));
    assert_eq!(copy.spaces(), all.spaces());
    assert!(all.news(&mut known).spaces.is_empty());
    let mapping = Mapping {
        start: Addr(0x1000),
        bytes: 0x100,
        offset: 0,
        path: String::new(),
        build_id: None,
        since: None,
    };
    all.map(second, mapping);
    if let Some(space) = all.space_mut(second) {
        space.name = "c".to_owned();
    }
    let third = all.add_space(Space::default());
    let news = all.news(&mut known);
    let reported: Vec<_> = news.spaces.iter().map(|(id, _)| *id).collect();
    assert_eq!(reported, [second, third], "and not {first:?}");
    copy.learn(news);
    assert_eq!(copy.spaces(), all.spaces());
}

#[test]
fn idle_threads_are_known_by_their_names() {
    let mut all = Identities::default();
    let firmware = all.add_space(Space::default());
    let kind = SpaceKind::Process;
    let process = all.add_space(Space {
        kind,
        ..Space::default()
    });
    let names = [
        ("idle", true),
        ("idle 00", true),
        ("IDLE", true),
        ("IDLE1", true),
        ("IDLE/3", true),
        ("Idle_Task", true),
        ("CPU2 IDLE", true),
        ("idler", false),
        ("main IDLE", false),
        ("3", false),
        ("", false),
    ];
    for (number, (name, is_idle)) in (0..).zip(names) {
        let thread = all.thread(firmware, Tid(number));
        assert!(!all.is_idle(thread), "it has no name");
        all.name_thread(thread, name);
        assert_eq!(all.is_idle(thread), is_idle, "{name:?}");
        let thread = all.thread(process, Tid(number));
        all.name_thread(thread, name);
        assert!(!all.is_idle(thread), "{name:?} of a process");
    }
}
