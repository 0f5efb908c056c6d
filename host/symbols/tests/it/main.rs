//! Tests with symbols of programs that this machine's compilers build.

mod cpp;
mod elf;
mod hooks;
mod jumps;
mod separate;
mod text;
mod workshop;
