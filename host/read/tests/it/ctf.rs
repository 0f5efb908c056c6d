//! CTF traces of other tracers, from the shared collection: the same number of events as in babeltrace2, and damage
//! reported where babeltrace2 stops.

use kymo_event::{EventKind, Gap, Value, Wanted};
use kymo_fixtures::captures;
use kymo_read::{Events, OpenOptions, Summary, open};

#[test]
fn as_many_events_as_babeltrace2_finds() {
    let Some(folder) = captures::ctf() else {
        return;
    };
    let cases = std::fs::read(folder.join("cases.json")).unwrap();
    let cases: serde_json::Value = serde_json::from_slice(&cases).unwrap();
    let mut read = 0;
    let mut other = Vec::new();
    for (name, case) in cases.as_object().unwrap() {
        let trace = folder.join(name).join("trace");
        // Cases of babeltrace's live protocol are no trace directories.
        if case["ctf"] != 1 || !trace.is_dir() || name.contains("ctf1-live-") {
            continue;
        }
        let summary = match open(&trace, &OpenOptions::default()) {
            Ok(mut source) => Summary::of(&mut *source),
            Err(error) => {
                if case["expect"] == "pass" {
                    other.push(format!("{name}: {error}"));
                }
                continue;
            }
        };
        read += 1;
        let theirs = &case["bt20"];
        if case["expect"] == "fail" {
            // Tests of `kymo-ctf` cover invalid metadata; this test is about streams.
            if theirs["rc"] != 0 && summary.errors.is_empty() {
                other.push(format!("{name}: no error, {} events", summary.events));
            }
        } else if theirs["rc"] == 0 && theirs["events"] != summary.events {
            let theirs = &theirs["events"];
            other.push(format!(
                "{name}: {} events, babeltrace2: {theirs}",
                summary.events
            ));
        } else if theirs["rc"] == 0 && !summary.errors.is_empty() {
            other.push(format!("{name}: {:?}", summary.errors));
        }
    }
    assert!(read > 100, "{read}");
    assert_eq!(other, Vec::<String>::new());
}

#[test]
fn records_keep_their_names_and_fields() {
    let Some(folder) = captures::ctf() else {
        return;
    };
    let trace = folder.join("lttng-recorded/lttng213-ctf1-cyg/trace");
    let mut source = open(&trace, &OpenOptions::default()).unwrap();
    assert_eq!(source.info().format, "ctf");
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let entry = events
        .iter()
        .find(|event| event.name == "lttng_ust_cyg_profile:func_entry")
        .unwrap();
    assert!(entry.cpu.is_some());
    assert!(matches!(entry.fields[0].value, Value::Hex(_)));
    assert_eq!(entry.fields[0].name, "addr");
    assert_eq!(entry.fields[1].name, "call_site");
    assert_eq!(entry.fields[2].name, "context");
    assert!(events.is_sorted_by_key(|event| event.time));
    let bare = Events::new(
        &mut *open(
            &trace,
            &OpenOptions {
                wanted: Wanted::Meaning,
                ..OpenOptions::default()
            },
        )
        .unwrap(),
    )
    .map(Result::unwrap)
    .all(|event| event.fields.is_empty());
    assert!(bare);
}

#[test]
fn what_a_tracer_lost_is_told() {
    let Some(folder) = captures::ctf() else {
        return;
    };
    let gaps = |name: &str| {
        let trace = folder.join("lttng-recorded").join(name).join("trace");
        let mut source = open(&trace, &OpenOptions::default()).unwrap();
        let events = Events::new(&mut *source).map(Result::unwrap);
        let gaps = events.filter_map(|event| match event.kind {
            EventKind::Gap(gap) => Some(gap),
            _ => None,
        });
        gaps.collect::<Vec<_>>()
    };
    let overwritten = |gap: &Gap| matches!(gap, Gap::Overwritten { packets: 1.. });
    assert!(gaps("lttng213-ctf1-overwrite").iter().any(overwritten));
}

/// A CTF packet: a header of 12 bytes, and encoded events.
fn packet(number: u8, events: &[u8]) -> Vec<u8> {
    let size = (12 + events.len() as u32) * 8;
    let mut packet = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    packet.extend(u32::from(number).to_le_bytes());
    packet.extend(size.to_le_bytes());
    packet.extend(events);
    packet
}

/// Metadata with a magic number, and one event.
const METADATA: &str = "/* CTF 1.8 */
    typealias integer { size = 32; align = 8; } := word;
    trace { major = 1; minor = 8; byte_order = le; packet.header := struct { word magic; }; };
    stream {
        packet.context := struct { word packet_seq_num; word packet_size; };
        event.header := struct { integer { size = 8; } id; };
    };
    event { id = 1; name = one; fields := struct { integer { size = 8; } n; }; };";

#[test]
fn what_is_behind_a_damaged_packet_is_read_and_what_is_passed_over_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = packet(0, &[1, 10, 1, 11]);
    // An event of an unknown class, after an intact one.
    stream.extend(packet(1, &[1, 12, 9, 9, 9]));
    stream.extend(packet(2, &[1, 13]));
    std::fs::write(folder.path().join("metadata"), METADATA).unwrap();
    std::fs::write(folder.path().join("stream"), stream).unwrap();
    let read = || -> Vec<String> {
        let options = OpenOptions {
            wanted: Wanted::Everything,
            ..OpenOptions::default()
        };
        let mut source = open(folder.path(), &options).unwrap();
        let events = Events::new(&mut *source).map(Result::unwrap);
        events
            .map(|event| match event.kind {
                EventKind::Gap(gap) => gap.to_string(),
                _ => format!("{:?}", event.fields[0].value),
            })
            .collect()
    };
    let reported = read();
    // The second packet begins at byte 16, its damaged event 14 bytes later; the third at 33.
    assert_eq!(reported.len(), 5, "{reported:?}");
    let damage = &reported[3];
    assert!(
        damage.starts_with("3 bytes at offset 30 passed over: "),
        "{damage}"
    );
    assert!(damage.contains("unknown event class 9"), "{damage}");
    // The wrong byte may also be in the event before.
    let doubt =
        "the event of this packet before it is counted, although a wrong byte may lie in it";
    assert!(damage.contains(doubt), "{damage}");
    for (index, number) in [(0, 10), (1, 11), (2, 12), (4, 13)] {
        assert_eq!(reported[index], format!("{:?}", Value::Unsigned(number)));
    }
}

#[test]
fn a_file_beside_the_streams_that_is_none_is_no_damage() {
    for (content, is_damage) in [
        (&b"[mapping]\nenter = \"func_entry\"\n"[..], false),
        (&[0; 64], true),
        (&packet(0, &[1, 10])[1..], true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("metadata"), METADATA).unwrap();
        std::fs::write(folder.path().join("stream"), packet(0, &[1, 10])).unwrap();
        std::fs::write(folder.path().join("map.toml"), content).unwrap();
        let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
        let summary = Summary::of(&mut *source);
        assert_eq!(summary.events, 1);
        let info = source.info();
        assert_eq!(info.damaged_places() > 0, is_damage, "{:?}", info.damage);
        let named = info
            .remarks
            .iter()
            .any(|it| it.starts_with("map.toml is no stream"));
        assert_eq!(named, !is_damage, "{:?}", info.remarks);
    }
}

/// A file with only magic numbers is damaged everywhere. The list of damaged places is limited: the first ones are
/// listed, the others only counted.
#[test]
fn places_of_damage_without_end_are_counted() {
    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 32; align = 8; } := word;
        trace { major = 1; minor = 8; byte_order = le; packet.header := struct { word magic; }; };
        stream {
            packet.context := struct { word packet_size; };
            event.header := struct { integer { size = 8; } id; };
        };
        event { id = 1; name = one; };";
    const MAGICS: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metadata"), METADATA).unwrap();
    let stream = 0xc1fc_1fc1u32.to_le_bytes().repeat(MAGICS);
    std::fs::write(folder.path().join("stream"), stream).unwrap();
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    let gaps = Events::new(&mut *source)
        .filter(|event| {
            matches!(
                event.as_ref().unwrap().kind,
                EventKind::Gap(Gap::Damage { .. })
            )
        })
        .count();
    assert!(gaps > 4_000, "{gaps}");
    let info = source.info();
    assert_eq!(info.damage.len(), 100);
    assert_eq!(info.damaged_places(), gaps as u64);
}

/// Without the refusal such times would be 0 everywhere.
#[test]
fn clocks_whose_times_do_not_fit_are_refused() {
    let metadata = |offset: &str| {
        format!(
            "/* CTF 1.8 */
        clock {{ name = far; freq = 1000000000; {offset} }};
        typealias integer {{ size = 32; align = 8; }} := word;
        typealias integer {{ size = 32; align = 8; map = clock.far.value; }} := time;
        trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ word magic; }}; }};
        stream {{
            packet.context := struct {{ word packet_seq_num; word packet_size; }};
            event.header := struct {{ time timestamp; }};
        }};
        event {{ name = one; }};"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let stream = packet(0, &[5, 0, 0, 0]);
    std::fs::write(folder.path().join("stream"), stream).unwrap();
    let read = |offset: &str| {
        std::fs::write(folder.path().join("metadata"), metadata(offset)).unwrap();
        let mut source = open(folder.path(), &OpenOptions::default())?;
        let time = Events::new(&mut *source).next().unwrap().unwrap().time;
        Ok::<_, kymo_read::OpenError>(time.0)
    };
    assert_eq!(read("").unwrap(), 5);
    assert_eq!(
        read("offset_s = 1700000000;").unwrap(),
        1_700_000_000_000_000_005
    );
    // The sum of both offsets fits.
    let offsets = "offset_s = 9300000000; offset = -9200000000000000000;";
    assert_eq!(read(offsets).unwrap(), 100_000_000_000_000_005);
    for offset in [
        "offset_s = 9223372036854775807;",
        "offset_s = -9223372036854775807;",
        "offset_s = 9223372036;",
        "offset_s = 1; offset = 9223372036854775807;",
    ] {
        let error = read(offset).unwrap_err().to_string();
        assert!(error.contains("\"far\""), "{error}");
        assert!(error.contains("64 bits of nanoseconds"), "{error}");
    }
}
