//! The true self time of every function of a firmware, from every single instruction that QEMU
//! executes while Kymo records the same run.
//!
//! With `-icount` QEMU's clock advances by a fixed time with each instruction, so what a function
//! took is what it executed. Kymo's hooks take part of the time, and so does passing them the
//! function and the call site; both are known instruction by instruction and taken off. What is
//! left is what `kymo report --compensate` estimates from the trace alone.
//!
//! A function begins and ends here where its hooks are called. The instructions before the first
//! and behind the last (saving and restoring registers) count for its caller, here as in a trace.

pub mod code;
pub mod log;
pub mod replay;
