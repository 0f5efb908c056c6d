//! Tests with fake targets: over TCP, or if a test is about time-outs, [without a connection](direct) and with a
//! simulated clock.

mod conversation;
mod direct;
mod endless_targets;
mod gdb;
mod rtt;
mod serial;
mod streaming;
mod systemview;
mod zephyr;
