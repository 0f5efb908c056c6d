//! Builds and runs the targets that demonstrations, benchmarks and product tests look at: the firmware in
//! QEMU, the eight-CPU machine, the program on this machine, and the library that they link.
//!
//! Everything here drives other programs (cargo, compilers, QEMU, the binary `kymo`) the way a
//! person at a shell would; nothing of it is part of the product. Each command line is printed
//! before it runs, so that it can be repeated by hand.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod compile;
pub mod cpus;
pub mod firmware;
pub mod guest;
pub mod kymo;
pub mod library;
pub mod lua;
pub mod native;
pub mod port;
pub mod run;
pub mod rust;
pub mod tools;
