//! What the command prints, command line by command line: see `cmd/*.trycmd`. After a change that
//! is meant, `TRYCMD=overwrite cargo test -p kymo transcripts` writes them anew; read the
//! difference.

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        // Help is wrapped to the terminal's width, or what this says of it.
        .env("COLUMNS", "100")
        .case("tests/cmd/*.trycmd");
}
