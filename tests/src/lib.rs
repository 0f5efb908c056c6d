//! Reference model for the product tests: counts every instruction that a firmware executes in QEMU, to compare Kymo's
//! figures with it.
#![forbid(unsafe_code)]

pub mod truth;
