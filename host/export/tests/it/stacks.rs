//! Contents of folded stacks and flame graphs.

use std::collections::BTreeMap;

use crate::common::traces::{self, A, B};
use kymo_analysis::calls::{Calls, Step};
use kymo_analysis::profile::Profile;
use kymo_export::Options;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event as XmlEvent};
use quick_xml::reader::Reader;

fn folded(trace: &crate::common::Trace, thread_roots: bool) -> Vec<(String, u64)> {
    let options = Options {
        thread_roots,
        ..Options::default()
    };
    let (bytes, _) = trace.export_with("folded", &options);
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().map(|line| {
        let (stack, ns) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), ns.parse().unwrap())
    });
    lines.collect()
}

#[test]
fn a_stack_has_the_time_that_its_innermost_call_took_itself() {
    // Worker 1 runs from 100 to 160 and from 240 on; an interrupt takes 140 to 152 of it.
    assert_eq!(
        folded(&traces::whole(), true),
        [
            ("SysTick (irq 15)", 4),
            ("SysTick (irq 15);c", 4),
            ("irq 16", 1),
            ("irq 16;0x9000", 3),
            ("main;a", 50),
            ("thread 0x20000300;b", 10),
            ("worker;a", 30),
            ("worker;a;operator<<:\"x\" & <y>", 28),
            ("worker (0x20000200);a", 25),
            ("worker (0x20000200);a;a", 5),
        ]
        .map(|(stack, ns)| (stack.to_owned(), ns))
    );
}

#[test]
fn the_sums_are_those_of_the_profile() {
    for (name, trace) in traces::all() {
        let mut calls = Calls::new(&trace.info, Default::default());
        let mut profile = Profile::new();
        let mut take = |step: Step<'_>| profile.add(&step);
        trace.batches(|info, batch| {
            calls.learn(info);
            for event in batch.iter() {
                calls.push(event, &mut take);
            }
        });
        calls.finish(&mut take);
        let expected: u64 = profile.rows().map(|(_, row)| row.self_time.0).sum();
        for thread_roots in [false, true] {
            let sum: u64 = folded(&trace, thread_roots).iter().map(|(_, ns)| ns).sum();
            assert_eq!(sum, expected, "{name}");
        }
    }
}

#[test]
fn without_threads_equal_stacks_are_one() {
    let stacks: BTreeMap<String, u64> = folded(&traces::whole(), false).into_iter().collect();
    assert_eq!(stacks["a"], 50 + 30 + 25);
    assert_eq!(stacks["a;a"], 5);
}

#[test]
fn a_recursion_that_ran_away_is_cut_and_keeps_its_time() {
    let mut writer = traces::Writer::new();
    let depth = 5_000;
    for i in 0..depth {
        writer.at(i).enter(if i % 2 == 0 { A } else { B });
    }
    for i in 0..depth {
        let function = if (depth - 1 - i) % 2 == 0 { A } else { B };
        writer.at(depth + i).exit(function);
    }
    let stacks = folded(&writer.trace, false);
    let sum: u64 = stacks.iter().map(|(_, ns)| ns).sum();
    assert_eq!(sum, 2 * depth as u64 - 1);
    let (deepest, ns) = stacks.last().unwrap();
    assert!(deepest.ends_with(";(deeper calls)"), "{} ns", ns);
    assert_eq!(deepest.split(';').count(), 1025);
}

#[test]
fn the_flame_graph_is_well_formed_and_always_the_same() {
    let (svg, _) = traces::whole().export("flamegraph");
    let text = std::str::from_utf8(&svg).unwrap();
    let names = well_formed(text);
    assert_eq!(names.first().map(String::as_str), Some("svg"));
    assert!(text.contains("operator&lt;&lt;:"), "names are escaped");
    assert!(text.contains("worker (0x20000200)"));
    assert_eq!(traces::whole().export("flamegraph").0, svg);
    let (svg, _) = traces::broken().export("flamegraph");
    let text = std::str::from_utf8(&svg).unwrap();
    assert!(
        text.contains("37 events known to be lost"),
        "it says so itself"
    );
}

#[test]
fn what_is_too_small_for_the_picture_is_its_callers() {
    let mut writer = traces::Writer::new();
    writer.at(0).enter(A).enter(B);
    writer.at(1).exit(B);
    writer.at(10).enter(traces::C);
    writer.at(50).isr_enter(16).at(52).isr_exit(16);
    writer.at(100_002).exit(traces::C).exit(A);
    let (svg, _) = writer.trace.export("flamegraph");
    let text = std::str::from_utf8(&svg).unwrap();
    let titles: Vec<&str> = text.split("<title>").skip(1).collect();
    let title = |name: &str| titles.iter().find(|title| title.starts_with(name));
    assert!(title("a (100,000 ns").is_some(), "{titles:?}");
    assert!(title("c (99,990 ns").is_some(), "{titles:?}");
    assert!(title("b ").is_none(), "{titles:?}");
    let all = |title: &&str| title.starts_with("all (100,002 ns");
    assert!(
        titles.iter().any(all),
        "an interrupt has no caller, but its time: {titles:?}"
    );
}

#[test]
fn a_trace_without_calls_still_makes_a_picture() {
    let (svg, summary) = traces::empty().export("flamegraph");
    well_formed(std::str::from_utf8(&svg).unwrap());
    assert_eq!(summary.events, 0);
}

/// Checks that a text is well-formed XML, and returns the names of its elements.
fn well_formed(text: &str) -> Vec<String> {
    let mut reader = Reader::from_str(text);
    let mut names = Vec::new();
    let mut open = 0;
    loop {
        // The parser reports mismatched end tags, unknown entities and invalid attributes.
        match reader.read_event().expect("well-formed") {
            XmlEvent::Start(element) | XmlEvent::Empty(element) if checked(&element) => {
                names.push(String::from_utf8(element.name().0.to_vec()).unwrap());
            }
            XmlEvent::Eof => break,
            _ => {}
        }
        open = reader.buffer_position();
    }
    assert_eq!(open, text.len() as u64, "everything is read");
    names
}

/// Checks that all attributes of an element are well-formed.
fn checked(element: &BytesStart<'_>) -> bool {
    element.attributes().all(|attribute| {
        attribute
            .expect("an attribute")
            .normalized_value(XmlVersion::Implicit1_0)
            .is_ok()
    })
}
