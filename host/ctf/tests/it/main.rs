//! Tests of the reader and the writer against other readers, with random traces and hostile bytes.

mod attributes;
mod backward;
mod cases;
mod convert;
mod ctf2;
mod elements;
mod golden;
mod hostile;
mod joined;
mod kymo;
mod metadata;
mod parallel;
mod quick;
mod random;
mod refused;
mod roundtrip;
mod skip;
