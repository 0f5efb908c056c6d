//! Wire formats shared by a Kymo target and its host.
//!
//! Three kinds of data cross the link: the *packets* of events that a target keeps in its buffer ([`packet`],
//! [`event`]), the *frames and commands* of the link that carries them ([`link`]), and the target's own *profile table*
//! ([`profile`]). Each is defined here once, for both sides, without allocation and dependencies, so that the recorder
//! in a Cortex-M0 and the reader on a workstation cannot diverge.
//!
//! The packets are plain Common Trace Format 1.8: [`metadata`] writes the description with which any CTF reader reads
//! them.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod clock_check;
pub mod cost;
pub mod event;
pub mod items;
mod layout;
pub mod link;
pub mod metadata;
pub mod note;
pub mod packet;
pub mod process_file;
pub mod profile;
pub mod walk;
