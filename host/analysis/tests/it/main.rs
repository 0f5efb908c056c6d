//! Comparison of rebuilt calls with the known calls of random programs.

mod truth;
