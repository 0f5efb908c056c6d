//! Intentionally empty: this package only declares the dependency on Lua's sources.
