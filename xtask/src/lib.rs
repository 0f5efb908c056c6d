//! The benchmarks, as a library: tests use the same code as the commands.
#![forbid(unsafe_code)]

pub mod bench;
