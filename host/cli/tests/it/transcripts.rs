//! Transcripts of command lines and their output, in `cmd/*.trycmd`. After an intended change,
//! `TRYCMD=overwrite cargo test -p kymo transcripts` rewrites them; review the difference.

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        // Help is wrapped to the terminal's width, which this variable overrides.
        .env("COLUMNS", "100")
        .case("tests/cmd/*.trycmd");
}
