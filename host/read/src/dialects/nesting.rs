//! Resolves exits that carry no function, and interrupt exits without a number.
//!
//! Targets name the function of an exit only if a reader cannot know it ([`kymo_wire::event`], "Exits without a
//! function"). This module keeps the reader's side. In most packets it is one stack, which is cleared whenever the
//! target clears its own. In packets whose exits are never named
//! ([`FLAG_NESTED`](kymo_wire::packet::PacketHeader::FLAG_NESTED)) it is one stack for each thread and handler, as long
//! as nothing is lost.

use std::collections::HashMap;

use kymo_event::{Addr, FunctionId, InterruptId, ThreadId};

/// Largest number of calls on a stack. Exits of deeper calls have no function.
const DEEPEST: usize = 1 << 16;

/// Largest number of threads with stacks, and of `setjmp` environments in each, for packets without named exits. Beyond
/// it, all are cleared. It bounds memory for hostile traces.
const MOST: usize = 1 << 12;

/// Largest number of active handlers.
const NESTED: usize = 256;

/// State for the unnamed exits of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nesting {
    /// Calls of the running code. Without named exits, those of handlers are in `handlers`.
    calls: Stack,
    /// Calls of the active handlers and of waiting threads, for packets without named exits. `nested` tells whether the
    /// current packet is one.
    nested: bool,
    handlers: Vec<Stack>,
    waiting: HashMap<Option<ThreadId>, Stack>,
    thread: Option<ThreadId>,
    /// Active interrupts, as far as they are known.
    interrupts: Vec<InterruptId>,
}

/// Open calls.
#[derive(Clone, Debug, Default)]
struct Stack {
    calls: Vec<FunctionId>,
    /// Number of further calls that are too deep.
    deeper: u64,
    /// Without named exits: the number of calls that remain after a `longjmp` to each environment.
    marks: HashMap<Addr, usize>,
}

impl Stack {
    fn push(&mut self, function: FunctionId) {
        if self.calls.len() < DEEPEST && self.deeper == 0 {
            self.calls.push(function);
        } else {
            self.deeper += 1;
        }
    }

    fn pop(&mut self) -> Option<FunctionId> {
        match self.deeper.checked_sub(1) {
            Some(left) => {
                self.deeper = left;
                None
            }
            None => self.calls.pop(),
        }
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.deeper = 0;
        self.marks.clear();
    }
}

impl Nesting {
    /// Begins a packet. `nested` tells whether its exits are never named, `lost` whether something is missing in front
    /// of it, and `thread` which thread runs.
    pub(crate) fn packet(&mut self, nested: bool, lost: bool, thread: Option<ThreadId>) {
        if lost {
            self.interrupts.clear();
        }
        if lost || !nested || !self.nested {
            self.forget();
        }
        self.nested = nested;
        self.switch(thread);
    }

    fn forget(&mut self) {
        self.calls.clear();
        self.handlers.clear();
        self.waiting.clear();
    }

    fn stack(&mut self) -> &mut Stack {
        self.handlers.last_mut().unwrap_or(&mut self.calls)
    }

    /// Enters a function.
    pub(crate) fn enter(&mut self, function: FunctionId) {
        self.stack().push(function);
    }

    /// Leaves the innermost function, and returns it if it is known.
    pub(crate) fn exit(&mut self) -> Option<FunctionId> {
        self.stack().pop()
    }

    /// Leaves a function that the target names. Its stack is then empty on the target, too.
    pub(crate) fn exit_named(&mut self) {
        self.stack().clear();
    }

    /// Sets the running thread, or none.
    pub(crate) fn switch(&mut self, thread: Option<ThreadId>) {
        if thread == self.thread {
            return;
        }
        let before = std::mem::replace(&mut self.thread, thread);
        if !self.nested {
            return self.calls.clear();
        }
        if self.waiting.len() >= MOST {
            self.waiting.clear();
        }
        let calls = self.waiting.remove(&thread).unwrap_or_default();
        let calls = std::mem::replace(&mut self.calls, calls);
        self.waiting.insert(before, calls);
    }

    /// Recording starts: earlier events are unknown.
    pub(crate) fn turned_on(&mut self) {
        self.forget();
        self.interrupts.clear();
    }

    /// Handles a call of `setjmp` with this environment.
    pub(crate) fn set_jump(&mut self, env: Addr) {
        if !self.nested {
            return;
        }
        let stack = self.stack();
        if stack.marks.len() >= MOST {
            stack.marks.clear();
        }
        if stack.deeper == 0 {
            stack.marks.insert(env, stack.calls.len());
        } else {
            stack.marks.remove(&env);
        }
    }

    /// Handles a call of `longjmp` with this environment.
    pub(crate) fn jump(&mut self, env: Addr) {
        let nested = self.nested;
        let stack = self.stack();
        match stack.marks.get(&env).copied() {
            Some(left) if nested => {
                stack.calls.truncate(left);
                stack.deeper = 0;
            }
            _ => stack.clear(),
        }
    }

    /// Enters an interrupt handler.
    pub(crate) fn interrupt(&mut self, irq: InterruptId) {
        if self.interrupts.len() >= NESTED {
            self.interrupts.clear();
            self.handlers.clear();
        }
        self.interrupts.push(irq);
        if self.nested {
            self.handlers.push(Stack::default());
        }
    }

    /// Leaves a handler, the innermost if `irq` is `None`. Returns the interrupt, if it is known.
    pub(crate) fn interrupt_end(&mut self, irq: Option<InterruptId>) -> Option<InterruptId> {
        let Some(irq) = irq else {
            self.handlers.pop();
            return self.interrupts.pop();
        };
        if let Some(level) = self.interrupts.iter().rposition(|served| *served == irq) {
            let inner = self.interrupts.len() - level;
            self.interrupts.truncate(level);
            let handlers = self.handlers.len().saturating_sub(inner);
            self.handlers.truncate(handlers);
        }
        Some(irq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FunctionId = FunctionId(0xA0);
    const B: FunctionId = FunctionId(0xB0);
    const ENV: Addr = Addr(0x100);
    const ONE: Option<ThreadId> = Some(ThreadId(1));
    const TWO: Option<ThreadId> = Some(ThreadId(2));

    fn nesting(nested: bool) -> Nesting {
        let mut nesting = Nesting::default();
        nesting.packet(nested, false, ONE);
        nesting
    }

    #[test]
    fn what_the_target_forgets_is_forgotten() {
        type Act = fn(&mut Nesting);
        let forgets: [Act; 5] = [
            |nesting| nesting.packet(false, false, ONE),
            |nesting| nesting.switch(TWO),
            |nesting| nesting.turned_on(),
            |nesting| nesting.jump(ENV),
            |nesting| nesting.exit_named(),
        ];
        for forget in forgets {
            let mut nesting = nesting(false);
            nesting.enter(A);
            nesting.set_jump(ENV);
            nesting.enter(B);
            assert_eq!(nesting.exit(), Some(B));
            forget(&mut nesting);
            assert_eq!(nesting.exit(), None);
        }
        // A switch to the running thread, and handlers, change nothing.
        let mut nesting = nesting(false);
        nesting.enter(A);
        nesting.switch(ONE);
        nesting.interrupt(InterruptId(1));
        nesting.enter(B);
        assert_eq!(nesting.exit(), Some(B));
        assert_eq!(nesting.interrupt_end(None), Some(InterruptId(1)));
        assert_eq!(nesting.exit(), Some(A));
    }

    #[test]
    fn where_no_exit_is_named_threads_and_handlers_have_stacks() {
        let mut nesting = nesting(true);
        nesting.enter(A);
        nesting.interrupt(InterruptId(1));
        nesting.enter(B);
        // The handler switches threads before it ends.
        nesting.switch(TWO);
        assert_eq!(nesting.exit(), Some(B));
        assert_eq!(nesting.interrupt_end(None), Some(InterruptId(1)));
        assert_eq!(
            nesting.exit(),
            None,
            "of the second thread nothing is known"
        );
        nesting.enter(B);
        nesting.packet(true, false, TWO);
        assert_eq!(nesting.exit(), Some(B), "packets change nothing");
        nesting.switch(ONE);
        nesting.set_jump(ENV);
        nesting.enter(B);
        nesting.enter(B);
        nesting.jump(ENV);
        assert_eq!(nesting.exit(), Some(A));
        nesting.enter(A);
        nesting.packet(true, true, ONE);
        assert_eq!(nesting.exit(), None, "something was lost");
    }

    #[test]
    fn deep_stacks_and_many_handlers_are_bounded() {
        let mut nesting = nesting(false);
        for depth in 0..DEEPEST + 10 {
            nesting.enter(FunctionId(depth as u32));
        }
        for _ in 0..10 {
            assert_eq!(nesting.exit(), None);
        }
        assert_eq!(nesting.exit(), Some(FunctionId(DEEPEST as u32 - 1)));
        for irq in 0..1000 {
            nesting.interrupt(InterruptId(irq));
        }
        assert_eq!(nesting.interrupt_end(None), Some(InterruptId(999)));
        assert!(nesting.interrupts.len() < NESTED);
        assert_eq!(
            nesting.interrupt_end(Some(InterruptId(5000))),
            Some(InterruptId(5000))
        );
    }

    #[test]
    fn interrupts_end_by_name_with_what_is_within() {
        let mut nesting = nesting(true);
        nesting.enter(A);
        (1..4).for_each(|irq| nesting.interrupt(InterruptId(irq)));
        assert_eq!(
            nesting.interrupt_end(Some(InterruptId(2))),
            Some(InterruptId(2))
        );
        assert_eq!(nesting.interrupt_end(None), Some(InterruptId(1)));
        assert_eq!(nesting.exit(), Some(A));
        assert_eq!(nesting.interrupt_end(None), None);
    }
}
