//! Conversations with fake targets: over TCP, or where time-outs are what is tested, [without a connection](direct) and by a clock of their own.

mod conversation;
mod direct;
mod endless_targets;
mod gdb;
mod rtt;
mod serial;
mod streaming;
mod systemview;
mod zephyr;
