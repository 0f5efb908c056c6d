//! Fuzz target: nm output, maps and ELF files.
//!
//! Built without cargo-fuzz, it replays the files named on the command line.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kymo_fuzz::symbols(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    kymo_fuzz::replay(kymo_fuzz::symbols)
}
