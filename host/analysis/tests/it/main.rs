//! Rebuilt calls against the truth of random programs.

mod truth;
