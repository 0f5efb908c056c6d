//! Symbols of programs that compilers on this machine make.

mod cpp;
mod elf;
mod jumps;
mod text;
mod workshop;
