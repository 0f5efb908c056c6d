//! Fuzz target: dumps with missing parts.
//!
//! Built without cargo-fuzz, it replays the files named on the command line.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kymo_fuzz::dump(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    kymo_fuzz::replay(kymo_fuzz::dump)
}
