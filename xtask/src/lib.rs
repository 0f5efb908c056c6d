//! The benchmarks, as a library so that tests can use what the commands use.
#![forbid(unsafe_code)]

pub mod bench;
