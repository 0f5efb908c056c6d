//! Dumps as devices sent them, and any others.

mod any;
mod captures;
