//! Tests of `kymo-coresight` on captures of real trace units, against the listings of OpenCSD 1.8.0.

mod calls;
mod classes;
mod data;
mod elements;
mod encoder;
mod files;
mod hostile;
mod packets;
mod parts;
mod perf;
mod programs;
mod recordings;
