//! Recognition of the kernel's text without a header.

use std::path::Path;

use kymo_read::{OpenError, OpenOptions};

use crate::ftrace_text::{read, read_lines};

const EVENT: &str = "  sh-175   [001] .....   310.670951: twice <-main\n";
const GRAPH: &str = "   60.702480 |   0)     ls-113     |   1.002 us    |      idle_cpu();\n";

/// Applies `of` to a pipe with this text.
fn of_pipe<T>(text: String, of: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        // A reader that refuses the text may close the pipe early.
        move || drop(std::fs::write(pipe, text))
    });
    let found = of(&pipe);
    writer.join().unwrap();
    found
}

#[test]
fn odd_lines_are_counted_and_do_not_make_it_another_text() {
    for (text, events, odd) in [
        (format!("{EVENT}what is this?\n{EVENT}"), 2, vec![2]),
        (
            format!("Last login: today\n{}", EVENT.repeat(9)),
            9,
            vec![1],
        ),
        (
            format!("$ cat trace\nfoo\n{}bar\n{EVENT}", GRAPH.repeat(5)),
            11,
            vec![1, 2, 8],
        ),
    ] {
        let check = |(found, info): (Vec<_>, kymo_event::TraceInfo)| {
            assert_eq!(found.len(), events, "{text}");
            let damage = info.damage.iter().map(|it| it.message.clone());
            let expected = odd
                .iter()
                .map(|line| format!("line {line}: expected a line of ftrace's"));
            for (found, expected) in damage.clone().zip(expected) {
                assert!(found.starts_with(&expected), "{found}");
            }
            assert_eq!(damage.len(), odd.len());
        };
        check(read_lines(&text));
        check(of_pipe(text.clone(), read));
    }
}

#[test]
fn a_header_is_found_behind_what_a_script_wrote() {
    let before = "+ echo some command of the script\n".repeat(1000);
    let (found, info) = read_lines(&format!("{before}# tracer: nop\n#\n{EVENT}"));
    assert_eq!(found.len(), 1);
    assert_eq!(info.damaged_places(), 1000);
    // Another tracer's text, and bytes that are none.
    let folder = tempfile::tempdir().unwrap();
    for rest in ["# tracer: mmiotrace\n", "\0\n# tracer: nop\n"] {
        let path = folder.path().join("log");
        std::fs::write(&path, format!("{before}{rest}{EVENT}")).unwrap();
        let refused = kymo_read::open(&path, &OpenOptions::default()).err();
        assert!(matches!(refused, Some(OpenError::Unknown { .. })), "{rest}");
    }
}

#[test]
fn other_texts_are_refused() {
    let prose = "A sentence about vfs_read() and nothing else.\nIt calls foo(); and ends.\n";
    let source =
        "int main(void)\n{\n    foo();\n    if (x) {\n        bar();\n    }\n    return 0;\n}\n";
    let kernel = "[    0.000000] Linux version 6.1.0\n[    0.100000] Kernel command line: quiet\n";
    let strace = "openat(AT_FDCWD, \"a\", O_RDONLY) = 3\nread(3, \"\", 80) = 0\nclose(3) = 0\n";
    let mail = format!("{prose}{EVENT}{prose}");
    for text in [prose, source, kernel, strace, &mail] {
        for text in [text.to_owned(), text.repeat(100)] {
            let open = |path: &Path| {
                let result = kymo_read::open(path, &OpenOptions::default());
                result.err().expect("another text")
            };
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("text");
            std::fs::write(&path, &text).unwrap();
            for error in [open(&path), of_pipe(text.clone(), open)] {
                let is_unknown = matches!(error, OpenError::Unknown { .. });
                assert!(is_unknown, "{error}: {text}");
            }
        }
    }
}

/// Output of `systrace.py --json` and Chromium, which contains the text as a string.
#[test]
fn the_text_in_json_is_read() {
    let text = format!("# tracer: nop\n#\n{EVENT}{EVENT}");
    let (expected, _) = read_lines(&text);
    let string = serde_json::to_string(&text).unwrap();
    for json in [
        format!("{{\"traceEvents\":[],\"systemTraceEvents\":{string}}}"),
        format!("{{\n  \"systemTraceEvents\" : {string},\n  \"metadata\": {{}}\n}}\n"),
        format!(
            "{{\"systemTraceEvents\":{}}}",
            string.replace("#", "\\u0023").replace(":", "\\u003a")
        ),
    ] {
        let (found, info) = read_lines(&json);
        assert_eq!(found, expected, "{json}");
        assert_eq!(info.damaged_places(), 0, "{json}");
    }
}
