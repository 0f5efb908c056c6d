//! Fuzz target: text and frames that share a line.
//!
//! Built without cargo-fuzz, it replays the files named on the command line.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kymo_fuzz::splitter(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    kymo_fuzz::replay(kymo_fuzz::splitter)
}
