//! Tests of complete output files: one program, which links faster than many.

mod again;
mod anything;
mod common;
mod counters;
mod ctf;
mod lists;
mod lttng;
mod lttnganalyses;
mod perfetto;
mod spaces;
mod stacks;
mod trace_event;
mod window;
