//! Profile tables of eight CPUs: what the target sends, what is in its memory, and the trace of the same run.

use super::*;

/// Each of eight CPUs keeps a table, while a thread goes from one to the next in the middle of its calls.
#[test]
fn the_tables_of_eight_cpus_are_added_up() {
    tools::require(&[Need::Cpus]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = cpus::build(&BareRust::find_for(cpus::TARGET).unwrap(), &["table"]).unwrap();
    let folder = folder("cpu-tables");
    let mut monitor = Monitor::new();
    let options = monitor.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let machine = Machine::boot_with(&elf, Wish::Demonstration, &options).unwrap();
    // A machine that is busy may be silent for too long.
    let ask = |arguments: &[&str]| {
        (0..10)
            .find_map(|_| {
                let mut command = Command::new(&kymo);
                command.env("KYMO_PATIENCE", "20").args(arguments);
                command.args(["--target", &machine.target(), "--elf"]);
                run::output(command.arg(&elf)).ok()
            })
            .expect("the machine answers once in ten times")
    };
    let rows = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let sent = rows(&ask(&["profile", "-n", "0", "--format", "json"]));
    let trace = folder.join("trace.kymo");
    let _ = fs::remove_file(&trace);
    ask(&["trace", "--output", trace.to_str().unwrap()]);
    monitor.command(&json!({"execute": "stop"}));
    let ram = folder.join("ram.bin");
    monitor.save(0x4000_0000, 64 << 20, &ram);
    drop(machine);

    let of = |name: &str| sent.iter().find(|row| row["function"] == name).unwrap();
    // The program's own counts.
    for (name, count) in [
        ("work", 8 * 200),
        ("collatz", 8 * 200),
        ("kymo_demo_cpus::round", 8 * 200),
        ("kymo_demo_cpus::table::journey", 200),
        ("kymo_demo_cpus::table::leg", 600),
    ] {
        assert_eq!(of(name)["count"], count, "{name}");
    }
    // Calls count where they end.
    let counts = |name: &str| -> Vec<(u64, u64)> {
        let cpus = of(name)["cpus"].as_array().unwrap();
        let number = |cpu: &Value, field: &str| cpu[field].as_u64().unwrap();
        cpus.iter()
            .map(|cpu| (number(cpu, "cpu"), number(cpu, "count")))
            .collect()
    };
    let each = |cpus: &[u64], count| cpus.iter().map(|cpu| (*cpu, count)).collect::<Vec<_>>();
    assert_eq!(counts("work"), each(&[0, 1, 2, 3, 4, 5, 6, 7], 200));
    assert_eq!(counts("kymo_demo_cpus::table::journey"), each(&[3, 7], 100));
    assert_eq!(
        counts("kymo_demo_cpus::table::leg"),
        each(&[1, 2, 3, 5, 6, 7], 100)
    );
    // A journey's time is that of its thread, wherever it ran.
    let time = |name: &str, field: &str| of(name)[field].as_u64().unwrap();
    let (journey, leg) = (
        "kymo_demo_cpus::table::journey",
        "kymo_demo_cpus::table::leg",
    );
    assert_eq!(
        time(journey, "total_ns"),
        time(journey, "self_ns") + time(leg, "total_ns")
    );
    // The trace of the same run has the same calls, and the same times of them.
    let report = lines(&mut look(&kymo, "report", &elf, &trace));
    let of_trace = |name: &str| report.iter().find(|row| row["function"] == name).unwrap();
    for row in &sent {
        let name = row["function"].as_str().unwrap();
        let of_trace = of_trace(name);
        for field in ["count", "total_ns", "self_ns", "min_ns", "max_ns"] {
            assert_eq!(row[field], of_trace[field], "{field} of {name}: {of_trace}");
        }
    }
    // And so has the memory.
    let mut memory = Command::new(&kymo);
    memory.args(["profile", "-n", "0", "--format", "json", "--elf"]);
    let kept = rows(&run::output(memory.arg(&elf).arg(&ram)).unwrap());
    assert_eq!(kept, sent);
}
