//! Decoding of real captures against what trace-cmd writes of them.

mod golden;
mod made;
mod older;
mod written;
