//! Kymo's chores, as a library so that tests can use what the commands use.
//!
//! Everything here drives other programs (cargo, compilers, QEMU, the binary `kymo`) the way a
//! person at a shell would; nothing of it is part of the product. Each command line is printed
//! before it runs, so that what a chore did can be repeated by hand.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod bench;
pub mod compile;
pub mod cpus;
pub mod demo;
pub mod firmware;
pub mod library;
pub mod lua;
pub mod native;
pub mod port;
pub mod run;
pub mod tools;
pub mod truth;
