//! The command `kymo`, from its command line to what it prints.

mod behaviour;
mod convert;
mod coresight;
mod counts;
mod disassembly;
mod fdd;
mod fixtures;
mod ftrace_text;
mod hardware_inputs;
mod hardware_json;
mod hardware_parts;
mod hostile_directories;
mod live;
mod metadata;
mod other_tracers;
mod outputs_and_terminals;
mod processes;
mod properties;
mod recomputed;
mod rtems;
mod run_times;
mod stated_durations;
mod systemview;
mod trace_cmd;
mod transcripts;
mod zephyr;
