//! `kymo report` for function graphs, compared with a simple recomputation from the records of exits, which have begin
//! and end of the call, and from switches.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use kymo_fixtures::captures;
use kymo_ftrace::{EventFormat, Records, Step, Trace};
use serde_json::Value;

/// A call as recorded at its exit.
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

/// A task: its pid, and for idle tasks, which share pid 0, its CPU.
type Task = (u64, Option<u32>);

fn task(pid: u64, cpu: u32) -> Task {
    (pid, (pid == 0).then_some(cpu))
}

/// Computes the intervals in which each task had no CPU. A switch takes effect after the last record of the previous
/// task, which may follow the record of the switch on the same CPU.
fn without_cpu(trace: &Trace, bytes: &[u8]) -> HashMap<Task, Vec<(u64, u64)>> {
    /// A switch that may not have taken effect: previous task, next task, and time of the previous task's last record.
    type Pending = (Task, Task, u64);
    let named = |name| trace.formats.named(name);
    let (exit, switch) = (named("funcgraph_exit"), named("sched_switch"));
    let field = |event: Option<&EventFormat>, name: &str, data: &[u8]| {
        let event = event.unwrap();
        let field = event.field(name).unwrap();
        trace.scope().field(field, data)
    };
    let mut left: HashMap<Task, u64> = HashMap::new();
    let mut found: HashMap<Task, Vec<(u64, u64)>> = HashMap::new();
    let mut done = |left: &mut HashMap<Task, u64>, (from, to, time): Pending| {
        left.insert(from, time);
        if let Some(since) = left.remove(&to) {
            found.entry(to).or_default().push((since, time));
        }
    };
    let mut pending: HashMap<usize, Pending> = HashMap::new();
    let mut records = Records::new(trace, bytes);
    while let Some((place, step)) = records.next(trace, bytes) {
        let Step::Record(record) = step else {
            let pending = pending.remove(&place.cpu_buffer);
            pending.into_iter().for_each(|it| done(&mut left, it));
            continue;
        };
        let of = |name| field(exit, name, record.data);
        let id = of("common_type");
        let is = |event: Option<&EventFormat>| event.is_some_and(|it| u64::from(it.id) == id);
        let running = task(of("common_pid"), place.cpu);
        match pending.get_mut(&place.cpu_buffer) {
            Some((from, _, time)) if *from == running && !is(switch) => {
                let end = if is(exit) { of("rettime") } else { place.time };
                *time = end.max(*time);
            }
            other => {
                if other.is_some() {
                    let pending = pending.remove(&place.cpu_buffer);
                    pending.into_iter().for_each(|it| done(&mut left, it));
                }
                // The switch to this task was lost.
                left.remove(&running);
            }
        }
        if is(switch) {
            let next = task(field(switch, "next_pid", record.data), place.cpu);
            pending.insert(place.cpu_buffer, (running, next, place.time));
        }
    }
    found
}

/// Kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Wall,
    OnCpu,
}

/// Computes the sums of each function. The calls of a task are processed on one stack, outer ones first.
fn recomputed(trace: &Trace, bytes: &[u8], measure: Measure) -> HashMap<String, Sums> {
    let without_cpu = match measure {
        Measure::Wall => HashMap::new(),
        Measure::OnCpu => without_cpu(trace, bytes),
    };
    let exit = trace.formats.named("funcgraph_exit").unwrap();
    let mut tasks: HashMap<Task, Vec<Call>> = HashMap::new();
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
        let task = task(number("common_pid"), place.cpu);
        tasks.entry(task).or_default().push(Call {
            begin: number("calltime"),
            end: number("rettime"),
            depth: number("depth"),
            function: number("func"),
        });
    }
    let mut sums: HashMap<String, Sums> = HashMap::new();
    for (task, calls) in &mut tasks {
        let off = without_cpu.get(task).map_or(&[][..], Vec::as_slice);
        calls.sort_by_key(|call| (call.begin, std::cmp::Reverse(call.end), call.depth));
        let mut open: Vec<(&Call, String)> = Vec::new();
        for call in &*calls {
            while open
                .pop_if(|(last, _)| last.end <= call.begin || last.depth >= call.depth)
                .is_some()
            {}
            let name = trace.symbols.find(call.function).unwrap().name.to_owned();
            let first = off.partition_point(|(_, to)| *to <= call.begin);
            let within = off[first..].iter().take_while(|(from, _)| *from < call.end);
            let off: u64 = within
                .map(|(from, to)| (*to).min(call.end) - (*from).max(call.begin))
                .sum();
            let duration = call.end - call.begin - off;
            if let Some((caller, of)) = open.last()
                && caller.depth + 1 == call.depth
                && caller.end >= call.end
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

/// Reads the rows of `kymo report`, keyed by function.
fn reported(input: &Path, measure: Measure) -> HashMap<String, Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["report", "--format", "json"]);
    command.args((measure == Measure::Wall).then_some("--wall"));
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
    // In the captures of amd64, a tenth or half of the events are lost.
    for (name, functions) in [
        ("arm64/fg-v6.dat", 50),
        ("arm64/fg-v7.dat", 50),
        ("amd64/dat/fg-sched-v6.dat", 1000),
        ("amd64/dat/fg-sched-v7.dat", 1000),
    ] {
        let Some(bytes) = captures::unpacked(&folder.join(name)) else {
            return;
        };
        let input = scratch.path().join("trace.dat");
        std::fs::write(&input, &bytes).unwrap();
        let trace = Trace::parse(&bytes).unwrap();
        for measure in [Measure::Wall, Measure::OnCpu] {
            let expected = recomputed(&trace, &bytes, measure);
            assert!(expected.len() >= functions, "{name}: {}", expected.len());
            compare(
                &format!("{name} {measure:?}"),
                &expected,
                &reported(&input, measure),
            );
        }
    }
}

fn compare(name: &str, expected: &HashMap<String, Sums>, rows: &HashMap<String, Value>) {
    let (mut certain, mut differing) = (0, Vec::new());
    for (function, sums) in expected {
        let number = |member: &str| rows[function][member].as_u64().unwrap();
        // Each exit belongs to a complete call, or to one whose entry is missing.
        let exits = number("complete") + number("orphans");
        assert_eq!(exits, sums.count, "{name}: {function}");
        // The recomputation has no calls whose exits are missing in the trace.
        if ["unwound", "lost", "open"].iter().any(|it| number(it) > 0) {
            continue;
        }
        let is_doubtful = ["doubtful", "orphans"].iter().any(|it| number(it) > 0);
        if is_doubtful || rows[function]["stated"].is_u64() {
            // The bounds must contain the recomputed value. Very long calls begin at the record of their entry (`kymo`
            // prints a remark about this), so 1 us is added for each call.
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
        assert_eq!(
            (ours.count, ours.total),
            (sums.count, sums.total),
            "{name}: {function}"
        );
        if ours.self_time != sums.self_time {
            differing.push((function, ours, sums));
        }
    }
    // If an interrupt occurs between the end of a call and the record of its exit, Kymo counts the functions of the
    // interrupt as callees of that call.
    assert!(differing.len() <= 4, "{name}: {differing:#?}");
    assert!(
        certain * 10 > expected.len() * 8,
        "{name}: {certain} of {}",
        expected.len()
    );
}
