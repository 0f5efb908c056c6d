//! Comparison of Kymo's figures with all instructions that QEMU executed in the same run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::{Arc, mpsc};
use std::thread;

use kymo_targets::firmware::{self, Hooks, Optimized, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use kymo_tests::truth::code::Code;
use kymo_tests::truth::log::{self, Plugin};
use kymo_tests::truth::replay::Truth;
use serde_json::Value;

/// The recorded function: trigger and stopper of the firmware.
const WINDOW: &str = "program_first_round";

/// Nanoseconds per instruction with `-icount shift=6`.
const INSTRUCTION_NS: u64 = 64;

/// One run of the firmware, logged and traced.
struct Run {
    kymo: PathBuf,
    elf: PathBuf,
    trace: PathBuf,
    code: Arc<Code>,
    truth: Truth,
}

impl Run {
    fn new(optimized: Optimized, name: &str) -> Self {
        tools::require(&[Need::Firmware, Need::Native]).unwrap();
        let kymo = kymo::build(Profile::Debug).unwrap();
        let rust = BareRust::find().unwrap();
        let elf = firmware::build_optimized(Hooks::Lean, &rust, optimized).unwrap();
        let folder = run::target_dir().join("truth/instructions").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (code, qemu, counted) = logged(&elf, &folder, |log, code| {
            let window = code.symbol(WINDOW).unwrap().address;
            log::count(log, code, window)
        });
        let trace = folder.join("trace");
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args(["trace", "--target", &qemu.target(), "--elf"]);
        run::run(command.arg(&elf).arg("--output").arg(&trace)).unwrap();
        // QEMU runs until the log contains the whole window.
        let truth = counted.recv().unwrap().unwrap();
        drop(qemu);
        Self {
            kymo,
            elf,
            trace,
            code,
            truth,
        }
    }

    /// Runs `kymo` with JSON output, one value per line.
    fn ask(&self, verb: &str, options: &[&str]) -> Vec<Value> {
        let mut command = Command::new(&self.kymo);
        command.args([verb, "--format", "json"]).args(options);
        let output = run::output(command.arg(Path::new(&self.trace))).unwrap();
        let lines = output.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    fn name(&self, function: u32) -> &str {
        let mut symbols = self.code.symbols.iter();
        let symbol = symbols.find(|symbol| symbol.address == function);
        symbol.map_or("?", |symbol| &symbol.name)
    }
}

/// Boots a firmware, and passes all executed instructions to `count`.
fn logged<T: Send + 'static>(
    elf: &Path,
    folder: &Path,
    count: impl FnOnce(&mut ChildStdout, &Code) -> T + Send + 'static,
) -> (Arc<Code>, Qemu, mpsc::Receiver<T>) {
    let code = Arc::new(Code::read(elf).unwrap());
    let plugin = Plugin::build().unwrap();
    let arguments = plugin.arguments(&code, "scheduler_switch").unwrap();
    let (counted, result) = mpsc::channel();
    let reader = {
        let code = Arc::clone(&code);
        |mut output| {
            thread::spawn(move || {
                // The receiver may have ended.
                let _ = counted.send(count(&mut output, &code));
                log::drain(output);
            });
        }
    };
    let options: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let qemu = Qemu::boot_with_plugin(elf, folder, &options, reader).unwrap();
    (code, qemu, result)
}

/// Instructions of each function in the same program without hooks, unless it was inlined. Registers and inlining
/// differ, so this is for information only.
fn uninstrumented(run: &Run) -> BTreeMap<String, u64> {
    let elf = firmware::build(Hooks::None, &BareRust::find().unwrap()).unwrap();
    let folder = run.trace.parent().unwrap();
    let (_, qemu, counted) = logged(&elf, folder, |log, code| {
        let window = code.symbol(WINDOW).unwrap().address;
        log::by_symbol(log, code, window)
    });
    let counts = counted.recv().unwrap().unwrap();
    drop(qemu);
    counts
}

/// Number of functions whose compensated self times are compared.
const HOTTEST: usize = 30;

/// Minimum number of them within 3 % of the truth, whatever uncertainty is reported. Otherwise a very wide uncertainty
/// would satisfy the test.
const NEAR: usize = 20;

/// Compensated self time of one function, and its executed instructions.
struct Compared {
    calls: u64,
    true_ns: u64,
    self_ns: u64,
    bound_ns: u64,
}

impl Compared {
    fn error_ns(&self) -> u64 {
        self.self_ns.abs_diff(self.true_ns)
    }

    /// A time in percent of the truth.
    fn percent(&self, ns: u64) -> f64 {
        100.0 * ns as f64 / self.true_ns.max(1) as f64
    }

    fn instructions_a_call(&self) -> u64 {
        self.true_ns / INSTRUCTION_NS / self.calls.max(1)
    }
}

#[test]
fn compensated_times_are_those_of_the_instructions() {
    let run = Run::new(Optimized::USUAL, "usual");
    let bare = uninstrumented(&run);
    compare(&run, &bare);
}

/// Measurements of a target must not depend on how the measuring code was compiled.
#[test]
fn they_are_so_however_the_recorder_was_compiled() {
    let optimized = Optimized {
        library: Some("3"),
        ..Optimized::USUAL
    };
    compare(&Run::new(optimized, "fast-recorder"), &BTreeMap::new());
}

/// They must not depend on how the program was compiled either.
#[test]
fn they_are_so_however_the_program_was_compiled() {
    let optimized = Optimized {
        program: "-O1",
        library: Some("z"),
    };
    compare(&Run::new(optimized, "other-program"), &BTreeMap::new());
}

/// Compares a run with the truth; `bare` is the run of the program without hooks.
fn compare(run: &Run, bare: &BTreeMap<String, u64>) {
    let truth = &run.truth;
    println!(
        "{} instructions: {} of the hooks ({:.1} an entry, {:.1} an exit), {} of their calls",
        truth.all,
        truth.enter.instructions + truth.exit.instructions,
        truth.enter.instructions as f64 / truth.enter.calls as f64,
        truth.exit.instructions as f64 / truth.exit.calls as f64,
        truth.set_up
    );

    // The recorded time is that of the instructions, and of some of those executed while the hooks turned recording on
    // and off.
    let info = &run.ask("info", &[])[0];
    let ns = |name: &str| info[name].as_u64().unwrap();
    let recorded = ns("end_ns") - ns("start_ns");
    let executed = truth.all * INSTRUCTION_NS..=(truth.all + truth.beside) * INSTRUCTION_NS;
    let slack = 10_000 * INSTRUCTION_NS;
    assert!(
        (executed.start() - slack..=executed.end() + slack).contains(&recorded),
        "recorded {recorded} ns, executed {executed:?} ns"
    );

    // Every function has the same number of calls.
    let elf = run.elf.to_str().unwrap();
    let rows = run.ask("report", &["--compensate", "--elf", elf]);
    let rows = rows
        .iter()
        .filter_map(|row| Some((row["address"].as_u64()?, row)));
    let rows: BTreeMap<u64, &Value> = rows.collect();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let mut differ = Vec::new();
    for count in &truth.functions {
        let row = rows.get(&u64::from(count.function));
        let calls = row.map(|row| number(row, "count") + number(row, "open"));
        let possible = count.calls - count.cut..=count.calls + count.beside;
        if !possible.contains(&calls.unwrap_or(0)) {
            differ.push(format!(
                "{}: {possible:?} calls, reported {row:?}",
                run.name(count.function)
            ));
        }
    }
    assert!(
        differ.is_empty(),
        "called another number of times:\n{}",
        differ.join("\n")
    );
    assert!(truth.functions.len() > 100 && truth.unwound > 10);

    // The remaining time is that of its executed instructions.
    let mut hottest: Vec<_> = truth.functions.iter().collect();
    hottest.sort_by_key(|count| std::cmp::Reverse(count.instructions));
    hottest.truncate(HOTTEST);
    println!(
        "{:20} {:>7} {:>10} {:>10} {:>7} {:>7}   {:>10}",
        "instructions of", "calls", "executed", "reported", "error %", "bound %", "not traced"
    );
    let mut wrong = Vec::new();
    let mut within = 0;
    for count in hottest {
        let name = run.name(count.function);
        let row = rows[&u64::from(count.function)];
        let compared = Compared {
            calls: count.calls,
            true_ns: count.instructions * INSTRUCTION_NS,
            self_ns: number(row, "self_ns"),
            bound_ns: number(row, "self_bound_ns"),
        };
        let (error, bound) = (compared.error_ns(), compared.bound_ns);
        println!(
            "{name:20} {:7} {:10} {:10} {:7.2} {:7.2}   {:>10}",
            compared.calls,
            count.instructions,
            compared.self_ns / INSTRUCTION_NS,
            compared.percent(error),
            compared.percent(bound),
            bare.get(name).map_or("-".to_owned(), u64::to_string),
        );
        let near = compared.percent(error) <= 3.0;
        within += usize::from(near);
        let sure = compared.percent(bound) <= 3.0 || compared.instructions_a_call() <= 200;
        if !(near || error <= bound) || !sure {
            wrong.push(name);
        }
    }
    println!("{within} of {HOTTEST} are within 3 % of the truth");
    assert!(within >= NEAR, "only {within} are within 3 % of the truth");
    assert!(
        wrong.is_empty(),
        "not within the bound, or not bound enough: {wrong:?}"
    );
}
