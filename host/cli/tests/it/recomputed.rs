//! `kymo report` of function graphs beside a plain recomputation from their exits, which hold when a call began and ended.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;
use kymo_ftrace::{Records, Step, Trace};
use serde_json::Value;

/// A call as its exit has it.
struct Call {
    begin: u64,
    end: u64,
    depth: u64,
    function: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    total: u64,
    self_time: u64,
}

/// Sums by function: all calls of a task, outer ones first, on one stack.
fn recomputed(trace: &Trace, bytes: &[u8]) -> HashMap<String, Sums> {
    let exit = trace.formats.named("funcgraph_exit").unwrap();
    let mut tasks: HashMap<(u64, Option<u32>), Vec<Call>> = HashMap::new();
    let mut records = Records::new(trace, bytes);
    while let Some((place, step)) = records.next(trace, bytes) {
        let Step::Record(record) = step else {
            continue;
        };
        let number = |name| {
            let field = exit.field(name).unwrap();
            trace.scope().field(field, record.data)
        };
        if number("common_type") != u64::from(exit.id) {
            continue;
        }
        let pid = number("common_pid");
        // Idle tasks share a number.
        let task = (pid, (pid == 0).then_some(place.cpu));
        tasks.entry(task).or_default().push(Call {
            begin: number("calltime"),
            end: number("rettime"),
            depth: number("depth"),
            function: number("func"),
        });
    }
    let mut sums: HashMap<String, Sums> = HashMap::new();
    for calls in tasks.values_mut() {
        calls.sort_by_key(|call| (call.begin, std::cmp::Reverse(call.end), call.depth));
        let mut open: Vec<(&Call, String)> = Vec::new();
        for call in &*calls {
            while open
                .pop_if(|(last, _)| last.end <= call.begin || last.depth >= call.depth)
                .is_some()
            {}
            let name = trace.symbols.find(call.function).unwrap().name.to_owned();
            let duration = call.end - call.begin;
            if let Some((caller, of)) = open.last()
                && caller.depth + 1 == call.depth
            {
                let sum = sums.get_mut(of).unwrap();
                sum.self_time = sum.self_time.wrapping_sub(duration);
            }
            let is_recursive = open.iter().any(|(_, known)| *known == name);
            let sum = sums.entry(name.clone()).or_default();
            sum.count += 1;
            sum.self_time = sum.self_time.wrapping_add(duration);
            sum.total += if is_recursive { 0 } else { duration };
            open.push((call, name));
        }
    }
    sums
}

/// The rows of `kymo report --wall`, by function.
fn reported(input: &Path) -> HashMap<String, Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["report", "--wall", "--format", "json"]);
    let output = command.arg(input).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line| {
        let row: Value = serde_json::from_str(line).unwrap();
        (row["function"].as_str().unwrap().to_owned(), row)
    };
    text.lines().map(row).collect()
}

#[test]
fn counts_totals_and_self_times_are_those_of_a_plain_recomputation() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    // The second one has lost every tenth event.
    for (name, functions) in [("arm64/fg-v6.dat", 50), ("amd64/dat/fg-sched-v6.dat", 1000)] {
        let Some(bytes) = captures::unpacked(&folder.join(name)) else {
            return;
        };
        let input = scratch.path().join("trace.dat");
        std::fs::write(&input, &bytes).unwrap();
        let expected = recomputed(&Trace::parse(&bytes).unwrap(), &bytes);
        assert!(expected.len() >= functions, "{name}: {}", expected.len());
        let rows = reported(&input);
        let (mut certain, mut bounded, mut differing) = (0, 0, Vec::new());
        for (function, sums) in &expected {
            let number = |member: &str| rows[function][member].as_u64().unwrap();
            // Every exit is that of a whole call, or of one whose entry is not there.
            let exits = number("complete") + number("orphans");
            assert_eq!(exits, sums.count, "{name}: {function}");
            // Calls whose exits are not in the trace are in no recomputation.
            if ["unwound", "lost", "open"].iter().any(|it| number(it) > 0) {
                continue;
            }
            let is_doubtful = ["doubtful", "orphans"].iter().any(|it| number(it) > 0);
            if is_doubtful || rows[function]["stated"].is_u64() {
                // Bounds hold what was.
                bounded += 1;
                // A call that is very long begins at the record of its entry, as a remark says.
                let late = 1_000 * sums.count;
                let most = |member: &str| {
                    let most = rows[function][member].as_u64();
                    most.map_or(u64::MAX, |most| most + late)
                };
                assert!(
                    number("total_ns") <= sums.total && sums.total <= most("total_max_ns"),
                    "{name}: {function}: {} {:?}",
                    rows[function],
                    sums
                );
                continue;
            }
            certain += 1;
            let ours = Sums {
                count: number("count"),
                total: number("total_ns"),
                self_time: number("self_ns"),
            };
            if ours != *sums {
                differing.push((function, ours, sums));
            }
        }
        // Of one function: what an interrupt calls before the exit of a call is recorded that has ended is that call's here.
        assert!(differing.len() <= 1, "{name}: {differing:#?}");
        let looked_at = certain + bounded;
        assert!(
            certain * 10 > expected.len() * 8 && looked_at * 10 > expected.len() * 9,
            "{name}: {certain} and {bounded} of {}",
            expected.len()
        );
    }
}
