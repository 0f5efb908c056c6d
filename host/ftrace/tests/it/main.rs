//! Integration tests: captures are decoded and compared with trace-cmd's output.

mod golden;
mod made;
mod older;
mod written;
