//! Profile tables of live targets, and those computed from traces.

use std::fs;

use kymo_wire::profile::{Entry, TableCpu, TableHeader};
use serde_json::{Value, json};

use super::{err, fails, good, on, run, state, table};
use kymo_fixtures::target::{self, Fake};

#[test]
fn recursion_leaves_averages_between_the_shortest_and_the_longest() {
    let text = good(&run(&["report", "demo", "--format", "json"]));
    let mut recursive = 0;
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        if row["count"] == 0 {
            continue;
        }
        let number = |name: &str| row[name].as_u64().expect("a number");
        assert!(number("min_ns") <= number("avg_ns"), "{line}");
        assert!(number("avg_ns") <= number("max_ns"), "{line}");
        recursive += u64::from(number("avg_ns") != number("total_ns") / number("count"));
    }
    assert!(recursive > 0, "the fixture has functions within themselves");

    // A target's own table has only the total, to which a recursion adds only its outermost call.
    let mut deep = state("demo.kymo");
    let layout = target::identity().layout;
    let below_the_shortest = Entry {
        address: 0x0800_0035,
        count: 100,
        total: 250,
        self_time: 250,
        min: 25,
        max: 250,
        recursive: false,
    };
    // Three calls of 100, 100 and 200 ticks, one of them within another. The quotient of 100 is a plausible average, so
    // only the target's mark shows the recursion.
    let plausible = Entry {
        count: 3,
        total: 300,
        min: 100,
        max: 200,
        recursive: true,
        ..below_the_shortest
    };
    let at = deep.profile.len() - Entry::bytes(layout.word);
    for entry in [below_the_shortest, plausible] {
        deep.profile.truncate(at);
        let bytes = entry.to_bytes(layout.word, layout.order);
        deep.profile.extend(&bytes[..Entry::bytes(layout.word)]);
        let fake = Fake::start(deep.clone());
        let output = on(&fake, &["profile", "--format", "json"]);
        let averages: Vec<Value> = good(&output)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["avg_ns"].clone())
            .collect();
        assert!(averages.contains(&Value::Null), "{averages:?}");
        assert!(err(&output).contains("calls itself"), "{}", err(&output));
    }
}

/// Several CPUs send a table each.
#[test]
fn tables_of_several_cpus_are_added_up() {
    let one = table(0);
    let header = TableHeader::read(&one).expect("a header");
    let mut tables = state("demo.kymo");
    tables.profile.clear();
    for number in [0, 2] {
        let cpu = TableCpu { number, cpus: 3 };
        tables.profile.extend(header.to_bytes_of(cpu));
        tables.profile.extend(&one[TableHeader::BYTES..]);
    }
    let fake = Fake::start(tables);
    let output = on(
        &fake,
        &["profile", "--elf", "demo.elf", "--format", "json", "-v"],
    );
    let rows: Vec<Value> = good(&output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (
            &rows[0]["function"],
            &rows[0]["count"],
            &rows[0]["total_ns"]
        ),
        (&json!("compute"), &json!(40), &json!(80_000))
    );
    let on_cpu = |cpu| json!({"cpu": cpu, "count": 20, "total_ns": 40_000, "self_ns": 28_000});
    assert_eq!(rows[0]["cpus"], json!([on_cpu(0), on_cpu(2)]));
    let messages = err(&output);
    for part in [
        "the table of CPU 1 is missing: it did not leave the recorder",
        "the sum of the tables of 3 CPUs: in the fullest, 2 of 8 slots are taken",
        "the begin or end of 2 calls was not seen",
    ] {
        assert!(messages.contains(part), "{messages}");
    }
}

#[test]
fn duration_mode_keeps_no_table() {
    let mut empty = state("demo.kymo");
    let mut header = TableHeader::read(&empty.profile).expect("a header");
    header.entries = 0;
    empty.profile = header.to_bytes().to_vec();
    empty.identity.capabilities.duration = true;
    for (reply, says) in [
        ("on=1 threshold=2500", "duration mode keeps none"),
        ("on=0 threshold=2500", "nothing was recorded yet"),
    ] {
        empty.duration = reply;
        let fake = Fake::start(empty.clone());
        let output = on(&fake, &["profile"]);
        good(&output);
        assert!(err(&output).contains(says), "{}", err(&output));
    }
}

#[test]
fn a_profile_has_what_the_target_counted_and_what_it_could_not() {
    let mut full = state("demo.kymo");
    full.profile = table(5);
    let fake = Fake::start(full);
    let output = on(&fake, &["profile", "--elf", "demo.elf"]);
    let text = good(&output);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0].last(), Some(&"FUNCTION"));
    assert_eq!((lines[1][0], lines[1].last()), ("20", Some(&"compute")));
    assert_eq!((lines[2][0], lines[2].last()), ("30", Some(&"leaf")));
    let messages = err(&output);
    assert!(
        messages.contains("5 calls are not in the table: no slot was free"),
        "{messages}"
    );
    assert!(
        messages.contains(
            "the table was full: 3 functions gave way to others, the lowest TOTAL first; any row may lack some of \
             their calls and of their 5 us"
        ),
        "{messages}"
    );
    assert!(
        messages.contains("the begin or end of 1 call was not seen"),
        "{messages}"
    );

    let json = good(&on(&fake, &["profile", "-n", "1", "--format", "json"]));
    let json: Value = serde_json::from_str(&json).expect("one line");
    assert_eq!(json["address"], 0x0800_0034);
    assert_eq!(json["total_ns"], 40_000);
    assert_eq!(json["self_ns"], 28_000);

    let dir = tempfile::tempdir().expect("a directory");
    let kept = dir.path().join("kept");
    let kept = kept.to_str().expect("a name");
    assert_eq!(
        good(&on(&fake, &["profile", "--elf", "demo.elf", "-o", kept])),
        text
    );
    assert_eq!(good(&run(&["profile", kept, "--elf", "demo.elf"])), text);
    for subcommand in ["show", "report", "info"] {
        fails(
            &run(&[subcommand, kept]),
            &["is a profile table, not a trace", "`kymo profile "],
        );
    }
    let nowhere = dir.path().join("no/such/place");
    let nowhere = nowhere.to_str().expect("a name");
    fails(&on(&fake, &["profile", "-o", nowhere]), &["help: is there"]);
    let raw = format!("{nowhere}.kymo");
    fails(&on(&fake, &["trace", "-o", &raw]), &["help: is there"]);
    let whole = fs::read(kept).expect("it was kept");
    fs::write(kept, &whole[..whole.len() - 1]).expect("a file");
    fails(&run(&["profile", kept]), &["expected 2 entries"]);
}

#[test]
fn a_profile_of_a_saved_trace_agrees_with_its_report() {
    let members = |subcommand: &str| -> Vec<Value> {
        let text = good(&run(&[
            subcommand,
            "demo.kymo",
            "--elf",
            "demo.elf",
            "--format",
            "json",
        ]));
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let functions = lines.filter(|line: &Value| line["address"].is_u64() && line["count"] != 0);
        let wanted = [
            "function", "count", "total_ns", "self_ns", "min_ns", "max_ns", "avg_ns",
        ];
        functions
            .map(|line| wanted.iter().map(|name| line[name].clone()).collect())
            .collect()
    };
    assert!(!members("profile").is_empty());
    assert_eq!(members("profile"), members("report"));
    for (trace, missing) in [
        ("demo.kymo", "lost, and in no row: 37 events"),
        ("processors.kymo", "2 packets before it, overwritten"),
    ] {
        let printed = err(&run(&["profile", trace, "--elf", "demo.elf"]));
        assert!(printed.contains(missing), "{printed}");
    }
}
