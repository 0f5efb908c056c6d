//! The truth model: what a firmware really executed, instruction by instruction, which Kymo's figures
//! are held against.
#![forbid(unsafe_code)]

pub mod truth;
