//! Checks that `unsafe` occurs only in the permitted folders (CONTRIBUTING.md explains them), and that each use has a
//! justification. Clippy checks the latter too, where it looks: `undocumented_unsafe_blocks` is denied.

use std::process::Command;

use kymo_targets::run;

/// The recorder, code specific to processors or operating systems, the interfaces, memory maps; programs for bare
/// metal; and tests of the recorder that act as its drivers.
const ALLOWED: [&str; 13] = [
    "device/recorder/src/",
    "device/arch/",
    "device/os/",
    "device/c/abi/src/",
    "device/kymo/src/",
    "device/minimal/src/",
    "device/sysview/c/src/",
    "device/kymo/tests/",
    "device/tests/",
    "demos/",
    "device/bench/",
    "host/coresight-c/src/",
    "host/read/src/bytes.rs",
];

/// Maximum distance in lines between a use and the start of its justification.
const ABOVE: usize = 14;

/// The code of a line, without comments and strings.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or("");
    let code = line.split('"').step_by(2);
    code.collect::<Vec<_>>().join(" ")
}

/// Whether a line of code has the keyword, apart from names that contain it.
fn is_unsafe(code: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    code.split(|c| !name(c)).any(|word| word == "unsafe") && !code.contains("#[unsafe(")
}

/// Whether the keyword belongs to a function or a function type: its documentation, or its trait's, states the
/// obligations of callers.
fn is_function(code: &str) -> bool {
    let after = code.split("unsafe").nth(1).unwrap_or("");
    let mut words = after
        .split_whitespace()
        .skip_while(|word| *word == "extern");
    words.next().is_some_and(|word| word.starts_with("fn"))
}

#[test]
fn unsafe_code_is_where_it_may_be_and_says_why() {
    let mut files = Command::new("git");
    files.args(["ls-files", "*.rs"]).current_dir(run::root());
    let files = run::output(&mut files).unwrap();
    let (mut uses, mut faults) = (0, Vec::new());
    for file in files.lines() {
        let Ok(text) = std::fs::read_to_string(run::root().join(file)) else {
            // Deleted, but not committed yet.
            continue;
        };
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let code = code(line);
            if !is_unsafe(&code) {
                continue;
            }
            uses += 1;
            let place = format!("{file}:{}", n + 1);
            if !ALLOWED.iter().any(|allowed| file.starts_with(allowed)) {
                faults.push(format!("{place}: unsafe code does not belong here"));
            }
            let above = &lines[n.saturating_sub(ABOVE)..=n];
            let explained = above
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
            if !is_function(&code) && !explained {
                faults.push(format!("{place}: unsafe code does not say why it is sound"));
            }
        }
    }
    assert!(
        uses > 100,
        "only {uses} uses found: is this the repository?"
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_keyword_is_found() {
    const QUOTE: &str = "\u{22}";
    assert!(is_unsafe(&code("    unsafe { call() } // fine")));
    assert!(!is_unsafe(&code("// unsafe")));
    assert!(!is_unsafe(&code("#![forbid(unsafe_code)]")));
    assert!(!is_unsafe(&code("#[unsafe(no_mangle)]")));
    assert!(is_function(&code("unsafe extern fn send();")));
    assert!(!is_function(&code("unsafe impl Sync for Hot {}")));
    assert!(!is_unsafe(&code(
        &["let text = ", "unsafe", ";"].join(QUOTE)
    )));
}
