//! Builds and runs the targets of demonstrations, benchmarks and product tests: the firmware in QEMU, the eight-CPU
//! machine, the program on this machine, and the library that they link.
//!
//! This crate runs other programs (cargo, compilers, QEMU, the binary `kymo`) as a user in a shell would, and is not
//! part of the product. It prints each command line before running it, so that users can repeat it by hand.
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
