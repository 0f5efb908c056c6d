//! Integration tests: streams are compared with the event lists of RTEMS's own client.

mod common;
mod damage;
mod layers;
mod peer;
mod streams;
