//! Conversations with fake targets.

mod conversation;
mod endless_targets;
mod gdb;
mod rtt;
mod serial;
mod streaming;
mod systemview;
mod zephyr;
