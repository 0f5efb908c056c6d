//! Streams of RTEMS's event recording, against the lists of events that RTEMS's own client makes.

mod common;
mod damage;
mod layers;
mod peer;
mod streams;
