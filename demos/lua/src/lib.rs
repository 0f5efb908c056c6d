//! Empty on purpose: this package only names where the sources of Lua come from.
