//! Return stack of trace units: return addresses of calls, so that returns need no address in the trace.

use crate::isa::Isa;

/// Depth of the stack. A push beyond it replaces the oldest entry.
const DEPTH: usize = 16;

impl PartialEq for ReturnStack {
    fn eq(&self, other: &Self) -> bool {
        let is_same = (self.is_active, self.len, self.is_pop_pending)
            == (other.is_active, other.len, other.is_pop_pending);
        // `entries` keeps popped values, so compare only the live ones.
        is_same && self.newest_first().eq(other.newest_first())
    }
}

/// Return addresses of calls, the newest last.
#[derive(Clone, Debug)]
pub(super) struct ReturnStack {
    is_active: bool,
    entries: [(u64, Isa); DEPTH],
    /// Index of the next entry.
    top: usize,
    len: usize,
    /// Whether an indirect branch waits for its target, from an address packet or else from the stack.
    pub is_pop_pending: bool,
}

impl ReturnStack {
    pub fn new(is_active: bool) -> Self {
        ReturnStack {
            is_active,
            entries: [(0, Isa::Unknown); DEPTH],
            top: 0,
            len: 0,
            is_pop_pending: false,
        }
    }

    fn newest_first(&self) -> impl Iterator<Item = (u64, Isa)> {
        (1..=self.len).map(|back| self.entries[(self.top + DEPTH - back) % DEPTH])
    }

    /// Whether the trace unit uses a return stack.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    pub fn push(&mut self, address: u64, isa: Isa) {
        if self.is_active {
            self.entries[self.top] = (address, isa);
            self.top = (self.top + 1) % DEPTH;
            self.len = (self.len + 1).min(DEPTH);
        }
    }

    /// Notes a taken indirect branch.
    pub fn expect_pop(&mut self) {
        self.is_pop_pending = self.is_active;
    }

    pub fn pop(&mut self) -> Option<(u64, Isa)> {
        self.is_pop_pending = false;
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(self.entries[self.top])
    }

    pub fn flush(&mut self) {
        self.len = 0;
        self.is_pop_pending = false;
    }
}
