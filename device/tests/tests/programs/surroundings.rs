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
