//! True self time of every function of a firmware, from every instruction that QEMU executes while Kymo records the
//! same run.
//!
//! With `-icount` QEMU's clock advances by a fixed time with each instruction, so a function's time is proportional to
//! its instructions. Kymo's hooks take part of the time, as do the instructions that pass them the function and the
//! call site. Both are known instruction by instruction and are subtracted. The rest is what `kymo report --compensate`
//! estimates from the trace alone.
//!
//! A function begins and ends where its hooks are called. The instructions before the first hook and after the last one
//! (which save and restore registers) count for the caller, as in a trace.

pub mod code;
pub mod log;
pub mod replay;
