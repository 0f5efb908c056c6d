//! The board of the demonstration, which the stress test in `device/tests/cpus` shares: QEMU's machine `virt` with
//! several CPUs.
//!
//! A program defines `cpu_main(cpu: u16) -> !`, the entry point of every CPU, and `cpu_interrupt()`, the handler of its
//! interrupts.
#![no_std]

pub mod board;
mod start;
