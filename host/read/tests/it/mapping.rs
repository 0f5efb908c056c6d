//! Traces of other tracers, with a mapping file that defines the meaning of their events.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kymo_event::{Addr, Cpu, Event, EventKind, Quantity, StreamId};
use kymo_fixtures::captures;
use kymo_fixtures::names::{function_at, interrupt, thread};
use kymo_read::{Events, Mapping, OpenError, OpenOptions, Source, open};

/// A trace of the collection; `None`, with a message, if it is missing.
fn trace(name: &str) -> Option<PathBuf> {
    Some(captures::ctf()?.join(name).join("trace"))
}

fn with(mapping: &str) -> OpenOptions {
    OpenOptions {
        mapping: Some(Arc::new(Mapping::parse(mapping).unwrap())),
        ..OpenOptions::default()
    }
}

fn events(source: &mut dyn Source) -> Vec<Event> {
    Events::new(source).map(Result::unwrap).collect()
}

fn named<'e>(events: &'e [Event], name: &'e str) -> impl Iterator<Item = &'e Event> {
    events.iter().filter(move |event| event.name == name)
}

#[test]
fn functions_may_be_texts() {
    let Some(trace) = trace("lttng-recorded/lttng213-ctf1-overwrite") else {
        return;
    };
    let options = with(
        "thread = 'vtid'\n\
         [[event]]\nname = 'benchtp:span_begin'\nmeans = 'enter'\nfunction = 'name'\n\
         [[event]]\nname = '*:span_end'\nmeans = 'exit'\n\
         [[event]]\nname = 'benchtp:tick'\nmeans = 'marker'\nvalue = 'n'\n",
    );
    let mut source = open(&trace, &options).unwrap();
    let events = events(&mut *source);
    let identities = &source.info().identities;
    let mut counts = BTreeMap::new();
    for event in named(&events, "benchtp:span_begin") {
        assert!(event.thread.is_some());
        let EventKind::Enter { function, .. } = event.kind else {
            panic!("{event:?}");
        };
        let name = &identities.function(function).unwrap().name;
        let text = event.fields.iter().find(|field| field.name == "name");
        let name = name.as_deref().unwrap();
        assert_eq!(format!("{name:?}"), text.unwrap().value.to_string());
        *counts.entry(name).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 5, "{counts:?}");
    assert!(counts.contains_key("adc.sample"));
    let exits: Vec<_> = named(&events, "benchtp:span_end").collect();
    assert!(exits.len() > 100);
    let of_nesting = EventKind::Exit { function: None };
    assert!(exits.iter().all(|event| event.kind == of_nesting));
    let tick = named(&events, "benchtp:tick").next().unwrap();
    let label = Some("benchtp:tick".to_owned());
    assert_eq!(
        tick.kind,
        EventKind::Marker {
            label,
            value: 19403
        }
    );
}

#[test]
fn quantities_are_counters() {
    let Some(trace) = trace("lttng-recorded/lttng213-ctf1-overwrite") else {
        return;
    };
    let options = with(
        "[[event]]\nname = 'benchtp:tick'\nmeans = 'counter'\nvalue = 'n'\n\
         [[event]]\nname = '*:span_begin'\nmeans = 'counter'\nvalue = 'name'\n",
    );
    let mut source = open(&trace, &options).unwrap();
    let events = events(&mut *source);
    let tick = named(&events, "benchtp:tick").next().unwrap();
    let counter = EventKind::Counter {
        name: "benchtp:tick".to_owned(),
        process: None,
        value: Quantity::Unsigned(19403),
    };
    assert_eq!(tick.kind, counter);
    // A text is not a counter value.
    let begin = named(&events, "benchtp:span_begin").next().unwrap();
    assert_eq!(begin.kind, EventKind::Other);
}

#[test]
fn stretches_of_time_that_are_no_calls_are_spans() {
    let Some(trace) = trace("lttng-recorded/lttng213-ctf1-overwrite") else {
        return;
    };
    let options = with(
        "[[event]]\nname = 'benchtp:*_begin'\nmeans = 'span_begin'\nfunction = '*'\nper_cpu = true\n\
         [[event]]\nname = 'benchtp:*_end'\nmeans = 'span_end'\nfunction = '*'\nper_cpu = true\n",
    );
    let mut source = open(&trace, &options).unwrap();
    let events = events(&mut *source);
    let begin = named(&events, "benchtp:span_begin").next().unwrap();
    let EventKind::SpanBegin { function, per_cpu } = begin.kind else {
        panic!("{begin:?}");
    };
    assert!(per_cpu);
    let name = source.info().identities.function(function).unwrap();
    assert_eq!(name.name.as_deref(), Some("span"));
    let end = named(&events, "benchtp:span_end").next().unwrap();
    assert_eq!(end.kind, EventKind::SpanEnd { function, per_cpu });
    let wrong = Mapping::parse("[[event]]\nname = 'a'\nmeans = 'exit'\nper_cpu = true\n");
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("per_cpu"), "{error}");
}

#[test]
fn processors_threads_and_interrupts_may_be_fields() {
    let Some(trace) = trace("handmade/pass-ctf1-barectf-22bit") else {
        return;
    };
    let options = with(
        "thread = 'task'\ncpu = 'core'\n\
         [[event]]\nname = 'isr_enter'\nmeans = 'isr_enter'\nirq = 'irq'\n\
         [[event]]\nname = 'isr_exit'\nmeans = 'isr_exit'\n\
         [[event]]\nname = 'tick'\nmeans = 'enter'\nfunction = 'n'\n",
    );
    let mut source = open(&trace, &options).unwrap();
    let events = events(&mut *source);
    let info = source.info();
    let mut ticks = named(&events, "tick");
    let tick = ticks.next().unwrap();
    assert_eq!(
        (tick.thread, tick.cpu),
        (Some(thread(info, 8)), Some(Cpu(0)))
    );
    assert_eq!(ticks.next().unwrap().cpu, Some(Cpu(1)));
    let function = function_at(info, Addr(0));
    assert_eq!(
        tick.kind,
        EventKind::Enter {
            function,
            call_site: None
        }
    );
    let enter = named(&events, "isr_enter").next().unwrap();
    assert_eq!(
        enter.kind,
        EventKind::IsrEnter {
            irq: interrupt(info, 256)
        }
    );
    let exit = named(&events, "isr_exit").next().unwrap();
    assert_eq!(exit.kind, EventKind::IsrExit { irq: None });
}

#[test]
fn one_stream_is_read_with_the_metadata_beside_it_or_elsewhere() {
    let Some(trace) = trace("handmade/pass-ctf1-barectf-22bit") else {
        return;
    };
    // The events of `fast_0`, as text because NaN is not equal to itself.
    let events = |mut source: Box<dyn Source>| {
        let streams = source.info().streams.clone();
        let mut events = events(&mut *source);
        events.retain(|event| streams[event.stream.0 as usize].name != "slow_0");
        events
            .iter_mut()
            .for_each(|event| event.stream = StreamId(0));
        assert_eq!(events.len(), 20_000);
        format!("{events:?}")
    };
    let whole = events(open(&trace, &OpenOptions::default()).unwrap());
    let stream = trace.join("fast_0");
    assert!(events(open(&stream, &OpenOptions::default()).unwrap()) == whole);

    let apart = tempfile::tempdir().unwrap();
    let copy = apart.path().join("stream");
    std::fs::copy(&stream, &copy).unwrap();
    let refused = open(&copy, &OpenOptions::default());
    assert!(matches!(refused.err(), Some(OpenError::Unknown { .. })));
    let options = OpenOptions {
        metadata: Some(trace.join("metadata")),
        ..OpenOptions::default()
    };
    assert!(events(open(&copy, &options).unwrap()) == whole);
}

#[test]
fn what_does_not_fit_is_told() {
    let Some(trace) = trace("handmade/pass-ctf1-barectf-22bit") else {
        return;
    };
    let refusal = |mapping: &str| open(&trace, &with(mapping)).err().unwrap().to_string();
    let message = refusal("[[event]]\nname = 'tick'\nmeans = 'enter'\nfunction = 'm'");
    assert!(message.contains("field \"m\""), "{message}");
    let message = refusal("[[event]]\nname = 'tock'\nmeans = 'exit'");
    assert!(message.contains("tick"), "{message}");
    let tick = "[[event]]\nname = 'tick'\nmeans = 'marker'\n";
    for key in ["cpu", "thread"] {
        let message = refusal(&format!("{key} = 'nix'\n{tick}"));
        let expected = format!("{key}: expected a field \"nix\"");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn a_marker_may_have_a_fraction() {
    let folder = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        event { name = \"level\"; fields := struct {
            floating_point { exp_dig = 8; mant_dig = 24; align = 8; } volt; }; };";
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    let values = [3.75_f32, -2.0].map(f32::to_le_bytes).concat();
    std::fs::write(folder.path().join("stream"), values).unwrap();
    let options = with("[[event]]\nname = 'level'\nmeans = 'marker'\nvalue = 'volt'\n");
    let events = events(&mut *open(folder.path(), &options).unwrap());
    let values: Vec<_> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Marker { value, .. } => Some(value.cast_signed()),
            _ => None,
        })
        .collect();
    assert_eq!(values, [4, -2]);
}
