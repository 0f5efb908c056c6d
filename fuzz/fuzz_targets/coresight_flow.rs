//! Fuzz target: instruction flow of CoreSight trace through any code.
//!
//! Built without cargo-fuzz, it replays the files named on the command line.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kymo_fuzz::coresight_flow(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    kymo_fuzz::replay(kymo_fuzz::coresight_flow)
}
