//! Programs with surroundings that refuse, limit or share what a recording needs.

use std::process::Command;

use super::common::{build, compilers, raw_file};

#[test]
fn a_hook_is_no_cancellation_point() {
    for compiler in compilers() {
        let program = build(compiler, "cancelled", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "by {compiler}: {text}");
        let (identity, _) = raw_file(&file);
        assert!(identity.streams > 0);
    }
}

#[test]
fn a_limit_of_the_files_size_does_not_end_the_program() {
    let program = build("gcc", "limited", &["-finstrument-functions"]);
    // Too little for the header of the file; for all threads; for one that begins later, and for what is
    // written at the end.
    for (case, limit) in [
        ("ulimit -f 16; exec \"$0\"", ""),
        ("ulimit -f 1000; exec \"$0\"", ""),
        ("exec \"$0\" $1", "100000"),
    ] {
        let file = program.with_extension(format!("{}.kymo", case.len()));
        let output = Command::new("bash")
            .args(["-c", case])
            .arg(&program)
            .arg(limit)
            .env("KYMO_OUTPUT", &file)
            .output()
            .expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{case}: {:?}: {errors}",
            output.status
        );
        assert_eq!(output.stdout, b"alive\n", "{case}");
        assert!(
            errors.contains("the file would be too large"),
            "{case}: {errors}"
        );
    }
}
