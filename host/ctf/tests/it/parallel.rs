//! Tests that several threads give the same results as one, in the same order, including damage.

use std::sync::Arc;

use crate::random::{Kind, Random};
use kymo_ctf::metadata::Scope;
use kymo_ctf::{
    Event, Message, Messages, Parallel, Plan, Reported, Run, Skipped, Trace, Value, Visitor,
};

/// Records every value.
struct Values(String);

impl<'a> Visitor<'a> for Values {
    fn value(&mut self, name: &'a str, value: Value<'a>) {
        self.0.push_str(&format!(" {name} {value:?}"));
    }
}

/// All fields of an event: in one pass, and scope by scope from the last one on.
fn fields(event: &Event<'_>) -> String {
    const SCOPES: [Scope; 6] = [
        Scope::EventFields,
        Scope::EventContext,
        Scope::StreamEventContext,
        Scope::EventHeader,
        Scope::PacketContext,
        Scope::PacketHeader,
    ];
    let mut values = Values(String::new());
    event.visit_all(&mut values);
    for scope in SCOPES {
        event.visit(scope, &mut values);
    }
    values.0
}

/// A line for a message of a stream.
fn line(stream: usize, reported: Reported<'_>) -> String {
    match reported {
        Reported::Message(Message::Event(event)) => {
            let place = (event.offset(), event.size(), event.ticks());
            let (time, number) = (event.time_ns(), event.number());
            format!(
                "{stream} {place:?} {time:?} {number} {}{}",
                event.name(),
                fields(&event)
            )
        }
        Reported::Message(Message::Packet(packet)) => format!("{stream} {:?}", packet.info()),
        Reported::Message(Message::Gap(gap)) => format!("{stream} {gap:?}"),
        Reported::Damage { error, skipped } => damage(stream, skipped, &error.to_string()),
    }
}

fn damage(stream: usize, skipped: Option<Skipped>, error: &str) -> String {
    format!("{stream} {error} {skipped:?}")
}

/// The lines of a single thread.
fn alone(trace: &Trace) -> Vec<String> {
    merged(trace, 1)
}

/// The lines of [`Messages`] with this number of decoding threads.
fn merged(trace: &Trace, threads: usize) -> Vec<String> {
    let mut messages = Messages::merge_by([trace], threads).expect("memory");
    let mut lines = Vec::new();
    loop {
        match messages.next_message() {
            Ok(Some((origin, message))) => {
                lines.push(line(origin.stream, Reported::Message(message)))
            }
            Ok(None) => return lines,
            Err(error) => {
                let skipped = messages.skip(error.origin).expect("memory");
                lines.push(damage(
                    error.origin.stream,
                    skipped,
                    &error.error.to_string(),
                ));
            }
        }
    }
}

/// The same lines, read in runs of events.
fn merged_by_runs(trace: &Trace, threads: usize) -> Vec<String> {
    let mut messages = Messages::merge_by([trace], threads).expect("memory");
    let mut lines = Vec::new();
    loop {
        let (origin, run) = match messages.next_run() {
            Ok(Some(next)) => next,
            Ok(None) => return lines,
            Err(error) => {
                let skipped = messages.skip(error.origin).expect("memory");
                let error = (error.origin.stream, error.error.to_string());
                lines.push(damage(error.0, skipped, &error.1));
                continue;
            }
        };
        let mut add = |message| lines.push(line(origin.stream, Reported::Message(message)));
        match run {
            Run::Packet(packet) => add(Message::Packet(packet)),
            Run::Gap(gap) => add(Message::Gap(gap)),
            Run::Events(events) => events
                .into_iter()
                .for_each(|event| add(Message::Event(event))),
        }
    }
}

/// The lines of [`Parallel`].
fn together(trace: &Trace, threads: usize) -> Vec<String> {
    let make = |origin: kymo_ctf::Origin, reported: Reported<'_>, lines: &mut Vec<String>| {
        lines.push(line(origin.stream, reported));
    };
    let mut parallel = Parallel::new([trace], threads, make).expect("memory");
    let mut lines = Vec::new();
    while let Some((origin, part)) = parallel.next_part() {
        let of_stream = format!("{} ", origin.stream);
        assert!(part.iter().all(|line| line.starts_with(&of_stream)));
        lines.extend_from_slice(part);
    }
    lines
}

#[test]
fn any_number_of_threads_tells_the_same() {
    let mut random = Random::new(21);
    for round in 0..5u64 {
        let metadata = crate::random::metadata(&mut random, 20, Kind::Ctf18);
        let plan = Arc::new(Plan::new(metadata).expect("metadata"));
        let streams: Vec<_> = (0..=round)
            .map(|number| {
                let (bytes, _) = crate::random::stream(&plan, 0, &mut random, 3_000, 0);
                (format!("stream {number}"), bytes)
            })
            .collect();
        let trace = Trace::from_plan(plan.clone(), streams.clone());
        let expected = alone(&trace);
        for threads in [1, 2, 7] {
            let found = together(&trace, threads);
            assert_eq!(found.len(), expected.len());
            assert!(found == expected, "{threads} threads, round {round}");
            assert!(merged(&trace, threads) == expected, "{threads}, {round}");
            assert!(
                merged_by_runs(&trace, threads) == expected,
                "{threads}, {round}"
            );
        }
        // If a stream is damaged, its own messages are the same; the order between streams may differ where time goes
        // back.
        let damaged = streams.into_iter().map(|(name, mut bytes)| {
            for _ in 0..3 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            (name, bytes)
        });
        let trace = Trace::from_plan(plan.clone(), damaged.collect::<Vec<_>>());
        let (mut found, mut expected) = (together(&trace, 3), alone(&trace));
        assert!(merged(&trace, 3) == expected, "damaged, round {round}");
        assert!(
            merged_by_runs(&trace, 3) == expected,
            "damaged, round {round}"
        );
        let stream = |line: &String| line.split(' ').next().map(str::to_owned);
        found.sort_by_key(stream);
        expected.sort_by_key(stream);
        assert!(found == expected, "damaged, round {round}");
    }
}

#[test]
fn nothing_is_waited_for_when_nobody_asks_any_more() {
    let mut random = Random::new(22);
    let plan = Arc::new(
        Plan::new(crate::random::metadata(&mut random, 20, Kind::Ctf18)).expect("metadata"),
    );
    let (bytes, _) = crate::random::stream(&plan, 0, &mut random, 20_000, 0);
    let trace = Trace::from_plan(plan, [("a", bytes.clone()), ("b", bytes)]);
    let make = |_: kymo_ctf::Origin, _: Reported<'_>, out: &mut Vec<u8>| out.push(1);
    let mut parallel = Parallel::new([&trace], 3, make).expect("memory");
    assert!(parallel.next_part().is_some());
    drop(parallel);
    // A callback that panics must not block other threads either.
    let make = |origin: kymo_ctf::Origin, _: Reported<'_>, out: &mut Vec<u8>| {
        assert!(origin.stream == 0, "on purpose");
        out.push(1);
    };
    let end = std::panic::catch_unwind(|| {
        let mut parallel = Parallel::new([&trace], 3, make).expect("memory");
        while parallel.next_part().is_some() {}
    });
    assert!(end.is_err());
}
