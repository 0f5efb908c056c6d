//! Tests of the command line on real targets: emulated boards, machines with eight CPUs, programs on this machine; and
//! checks of rules for the sources.

mod bytes;
mod console;
mod cpus;
mod deaths;
mod duration;
mod ended_calls;
mod events;
mod firmware;
mod foreign;
mod ftrace;
mod instructions;
mod kernel;
mod libraries;
mod memory;
mod native_stream;
mod processes;
mod rtems_stream;
mod rtt;
mod served;
mod sizes;
mod slow_path;
mod sources;
mod stacks;
mod sysview;
mod transports;
mod truth;
mod unsafe_code;
mod zephyr_app;
