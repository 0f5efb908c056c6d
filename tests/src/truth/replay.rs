//! Replay of all executed instructions, which counts for each function those that it executed itself.
//!
//! The only input is the sequence of instructions. Contexts (threads and exception handlers), the hooks, and the stack
//! of functions in each context follow from the sequence and from the [`Code`]:
//!
//! - Only an exception enters an exception handler, and the handler ends with its own return.
//! - A hook begins with its first instruction and ends with its own return. Functions that it calls belong to it; a
//!   handler that preempts it does not.
//! - The stack from which a switch loads registers identifies the thread that runs afterwards.
//! - A function is entered and exited where its hooks are called, also if it is inlined. `longjmp` exits all functions
//!   that were entered since the `setjmp` to which it returns.

use std::collections::HashMap;

use super::code::{Code, Flow, Hook};
use kymo_targets::run::{Error, Result};

/// Counts of one function in the watched window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The function's address.
    pub function: u32,
    /// Number of entries.
    pub calls: u64,
    /// Instructions of the function itself, from its hook at the entry to that at the exit. Callees without hooks are
    /// included. Callees with hooks, the hooks, the instructions that only set up their calls, and interrupts are not.
    pub instructions: u64,
    /// Number of functions that it entered.
    pub children: u64,
    /// Entries beside [`calls`](Self::calls) whose hook ran in another thread or a handler while recording was being
    /// started or stopped. Whether such an entry is recorded depends on how far that had got.
    pub beside: u64,
    /// Those of [`calls`](Self::calls) whose hook was still running when the watched window ended. Whether such
    /// an entry is recorded is uncertain too.
    pub cut: u64,
}

/// Calls and instructions of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCount {
    /// Number of calls.
    pub calls: u64,
    /// Executed instructions, from its first to its return.
    pub instructions: u64,
}

/// Counts of the watched window: it begins when the hook at the watched function's entry returns, and ends with the
/// call of the hook at its exit.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// The functions that were entered.
    pub functions: Vec<Count>,
    /// All instructions.
    pub all: u64,
    /// The hook at entries.
    pub enter: HookCount,
    /// The hook at exits.
    pub exit: HookCount,
    /// Instructions that only set up the call of a hook, including the calls themselves.
    pub set_up: u64,
    /// Other instructions of the recorder: the program's markers, the tick, interrupts.
    pub recorder: u64,
    /// Instructions of handlers that belong to no function and no hook.
    pub handlers: u64,
    /// Instructions of threads that belong to no function entered in the window.
    pub outside: u64,
    /// Number of functions that `longjmp` exited.
    pub unwound: u64,
    /// Instructions outside the window while recording was being started or stopped, in any context.
    pub beside: u64,
}

/// Part of the recorder that is being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A hook that the compiler calls.
    Hook(Hook),
    /// Another function that the program calls: a marker, the tick, the wrapper of `setjmp` or `longjmp`.
    Other,
}

/// A thread, or one activation of a handler.
#[derive(Debug, Default)]
struct Context {
    /// The open functions, the innermost last.
    frames: Vec<Frame>,
    /// The last executed instruction.
    last: Option<u32>,
    /// Call depth, relative to the first seen instruction (to the handler's first one in a handler).
    depth: i64,
    /// The part of the recorder that is being executed, and the depth at which it returns.
    hook: Option<(Part, i64)>,
    /// For each `setjmp`: the address to which it returned, and the number of functions open at that time.
    setjmps: Vec<(u32, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    /// Index in [`Truth::functions`], if it was entered in the window.
    watched: Option<usize>,
}

/// The state of the run.
#[derive(Debug)]
pub struct Replay<'a> {
    code: &'a Code,
    /// The watched function: the window is from its entry to its exit.
    window: u32,
    watching: bool,
    /// The thread in which the hook at the watched function's entry is still running. Nothing is counted before it
    /// returns.
    entering: Option<usize>,
    /// The thread in which the hook at the watched function's exit is still running. Nothing is counted any more, but
    /// other contexts' calls may still be recorded.
    leaving: Option<usize>,
    done: bool,
    threads: Vec<Context>,
    /// Thread indexes by the address of the symbol that contains the thread's stack.
    stacks: HashMap<u32, usize>,
    /// The running or interrupted thread; thread 0 is the one that booted.
    running: usize,
    /// The thread whose registers were loaded last.
    loaded: Option<usize>,
    /// The active handlers, the innermost last.
    handlers: Vec<Context>,
    truth: Truth,
    /// Indexes in [`Truth::functions`] by function address.
    places: HashMap<u32, usize>,
}

impl<'a> Replay<'a> {
    /// Watches from the entry of `window` to its exit.
    pub fn new(code: &'a Code, window: u32) -> Self {
        Self {
            code,
            window,
            watching: false,
            entering: None,
            leaving: None,
            done: false,
            threads: vec![Context::default()],
            stacks: HashMap::new(),
            running: 0,
            loaded: None,
            handlers: Vec::new(),
            truth: Truth::default(),
            places: HashMap::new(),
        }
    }

    /// Whether the hook at the watched function's exit has returned.
    pub const fn done(&self) -> bool {
        self.done
    }

    /// What was counted.
    pub fn truth(self) -> Truth {
        self.truth
    }

    /// Processes a load at this address by the function that switches threads.
    pub fn loads(&mut self, address: u32) {
        let stack = self.code.symbol_before(address).unwrap_or_default();
        let thread = *self.stacks.entry(stack).or_insert(self.threads.len());
        if thread == self.threads.len() {
            self.threads.push(Context::default());
        }
        self.loaded = Some(thread);
    }

    /// Processes the execution of an instruction.
    ///
    /// # Errors
    /// When a hook is called by an instruction that is no call of a hook in the code, or a function is exited that was
    /// not entered last: the counts would be meaningless.
    pub fn executes(&mut self, address: u32) -> Result<()> {
        let code = self.code;
        if code.at(address).handler {
            self.handlers.push(Context::default());
        } else {
            self.leave_handlers(address);
        }
        let context = self.context();
        let from = context.last.replace(address);
        let jumped = from.is_some_and(|from| context.follow(code, from, address));
        // The wrappers of setjmp and longjmp jump to the real functions, which belong to the program again.
        let real = Some(address) == code.setjmp || address == code.longjmp.start;
        if real && context.hook.is_some_and(|(part, _)| part == Part::Other) {
            context.hook = None;
        }
        let outside = context.hook.is_none();
        if outside && code.at(address).recorder {
            context.hook = Some((Part::Other, context.depth));
        }
        if jumped {
            self.unwind(address);
        }
        if outside && (address == code.enter || address == code.exit) {
            let site = from.and_then(|from| code.sites.get(&from));
            let site = *site.ok_or_else(|| {
                Error::new(format!(
                    "a hook is called from {from:x?}, where no call is seen"
                ))
            })?;
            let context = self.context();
            context.hook = Some((Part::Hook(site.hook), context.depth));
            match site.hook {
                Hook::Enter => self.enter(site.function)?,
                Hook::Exit => self.exit(site.function)?,
            }
        }
        if self.entering.is_some() || self.leaving.is_some() {
            self.truth.beside += 1;
        }
        if self.watching || self.entering.is_some() {
            self.count(address);
        }
        if let Some(thread) = self.leaving
            && self.handlers.is_empty()
            && self.running == thread
        {
            self.done |= self.threads[thread].hook.is_none();
        }
        Ok(())
    }

    fn context(&mut self) -> &mut Context {
        match self.handlers.last_mut() {
            Some(handler) => handler,
            None => &mut self.threads[self.running],
        }
    }

    /// Removes the handlers that have returned: `address` is the first instruction after their last one.
    fn leave_handlers(&mut self, address: u32) {
        while let Some(handler) = self.handlers.last() {
            let last = handler.last.map(|last| (last, self.code.at(last)));
            let returned = last.is_some_and(|(last, instruction)| {
                handler.depth == 0 && instruction.returns(last, address)
            });
            if !returned {
                return;
            }
            self.handlers.pop();
            if self.handlers.is_empty() {
                self.running = self.loaded.unwrap_or(self.running);
            }
        }
    }

    fn enter(&mut self, function: Option<u32>) -> Result<()> {
        let function =
            function.ok_or_else(|| Error::new("an entry whose function the code does not show"))?;
        let begins = function == self.window && !self.watching && self.leaving.is_none();
        if begins {
            self.entering = Some(self.running);
        } else if !self.watching && (self.entering.is_some() || self.leaving.is_some()) {
            let place = self.place(function);
            self.truth.functions[place].beside += 1;
        }
        let watched = (self.watching || begins).then(|| self.place(function));
        let caller = self.context().frames.last().and_then(|frame| frame.watched);
        self.context().frames.push(Frame { function, watched });
        if let Some(watched) = watched {
            self.truth.functions[watched].calls += 1;
        }
        if let Some(caller) = caller {
            self.truth.functions[caller].children += 1;
        }
        Ok(())
    }

    /// The function's index in [`Truth::functions`], which is added if it is new.
    fn place(&mut self, function: u32) -> usize {
        let functions = &mut self.truth.functions;
        *self.places.entry(function).or_insert_with(|| {
            functions.push(Count {
                function,
                ..Count::default()
            });
            functions.len() - 1
        })
    }

    /// The functions whose hook at the entry is running, in all contexts.
    fn in_entries(&self) -> Vec<u32> {
        let contexts = self.threads.iter().chain(&self.handlers);
        let telling = contexts.filter(|context| {
            let hook = context.hook.map(|(hook, _)| hook);
            hook == Some(Part::Hook(Hook::Enter))
        });
        let frames = telling.filter_map(|context| context.frames.last());
        frames.map(|frame| frame.function).collect()
    }

    fn exit(&mut self, function: Option<u32>) -> Result<()> {
        let context = self.context();
        let left = context.frames.pop().map(|frame| frame.function);
        // A `longjmp` to a function that has returned is invalid.
        let open = context.frames.len();
        context.setjmps.retain(|(_, depth)| *depth <= open);
        if function.is_some() && left != function {
            return Err(Error::new(format!(
                "{function:x?} was left where {left:x?} was entered last"
            )));
        }
        if left == Some(self.window) && self.watching {
            self.watching = false;
            self.leaving = Some(self.running);
            for function in self.in_entries() {
                let place = self.place(function);
                self.truth.functions[place].cut += 1;
            }
        }
        Ok(())
    }

    /// Exits the functions that a `longjmp` to `address` skips.
    fn unwind(&mut self, address: u32) {
        let context = self.context();
        let target = context.setjmps.iter().rfind(|(to, _)| *to == address);
        if let Some((_, depth)) = target.copied() {
            let watched = context
                .frames
                .drain(depth..)
                .filter(|frame| frame.watched.is_some());
            let unwound = watched.count() as u64;
            context.setjmps.retain(|(_, open)| *open <= depth);
            self.truth.unwound += unwound;
        }
    }

    fn count(&mut self, address: u32) {
        let in_handler = !self.handlers.is_empty();
        let context = self.context();
        let hook = context.hook.map(|(hook, _)| hook);
        let function = context.frames.last().and_then(|frame| frame.watched);
        if let Some(thread) = self.entering {
            if in_handler || hook.is_some() || self.running != thread {
                return;
            }
            self.entering = None;
            self.watching = true;
            for function in self.in_entries() {
                let place = self.place(function);
                self.truth.functions[place].beside += 1;
            }
        }
        let truth = &mut self.truth;
        truth.all += 1;
        let counter = match (hook, function) {
            (Some(Part::Other), _) => &mut truth.recorder,
            (Some(Part::Hook(hook)), _) => {
                let (count, first) = match hook {
                    Hook::Enter => (&mut truth.enter, self.code.enter),
                    Hook::Exit => (&mut truth.exit, self.code.exit),
                };
                count.calls += u64::from(address == first);
                &mut count.instructions
            }
            _ if self.code.at(address).set_up => &mut truth.set_up,
            (None, Some(function)) => &mut truth.functions[function].instructions,
            _ if in_handler => &mut truth.handlers,
            _ => &mut truth.outside,
        };
        *counter += 1;
    }
}

impl Context {
    /// Follows the control flow from the instruction at `from` to the next one of this context, at `to`. Returns
    /// whether it was `longjmp`'s return.
    fn follow(&mut self, code: &Code, from: u32, to: u32) -> bool {
        let instruction = code.at(from);
        match instruction.flow {
            Flow::On => {}
            // A call whose condition does not hold falls through.
            Flow::Call if to == from + u32::from(instruction.size) => {}
            Flow::Call => {
                self.depth += 1;
                if code.setjmp_calls.binary_search(&from).is_ok() {
                    let back = from + u32::from(instruction.size);
                    let open = self.frames.len();
                    self.setjmps.retain(|setjmp| *setjmp != (back, open));
                    self.setjmps.push((back, open));
                }
            }
            Flow::Return { .. } if !instruction.returns(from, to) => {}
            Flow::Return { .. } => {
                if self.hook.is_some_and(|(_, depth)| depth == self.depth) {
                    self.hook = None;
                }
                self.depth -= 1;
                return code.longjmp.contains(&from);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;

    const ENTER: u32 = 0x200;
    const EXIT: u32 = 0x210;

    fn replayed(steps: &[u32]) -> Result<Truth> {
        let code = code();
        let mut replay = Replay::new(&code, 0x100);
        for step in steps {
            match step & 1 {
                0 => replay.executes(*step)?,
                _ => replay.loads(step & !1),
            }
        }
        Ok(replay.truth())
    }

    fn instructions(truth: &Truth, function: u32) -> Option<u64> {
        let mut functions = truth.functions.iter();
        let count = functions.find(|count| count.function == function)?;
        Some(count.instructions)
    }

    #[test]
    fn hooks_set_up_and_handlers_are_nobodys() {
        let truth = replayed(&[
            0x100, 0x102, 0x104, 0x106, 0x10A, 0x10C, 0x10E, // before the hook: not counted
            ENTER, 0x112, // outer's own
            0x120, 0x122, 0x124, 0x126, // push: still outer's; set-up
            ENTER, 0x220, // a handler within the hook
            0x12A, 0x12C, 0x12E, // set-up; ldmia is inner's own
            0x220, 0x132, // a handler between two instructions
            EXIT, 0x114, 0x116, 0x11A, EXIT, 0x11C,
        ])
        .unwrap();
        assert_eq!(instructions(&truth, 0x100), Some(2));
        assert_eq!(instructions(&truth, 0x120), Some(1));
        assert_eq!(truth.handlers, 2);
        assert_eq!((truth.enter.calls, truth.exit.calls), (1, 1));
        // The last exit ends the window.
        assert_eq!(truth.set_up, 3 + 2 + 1 + 3);
        assert_eq!(truth.functions[0].children, 1);
        let parts = truth.enter.instructions + truth.exit.instructions + truth.set_up;
        assert_eq!(truth.all, parts + 2 + 1 + 2);
    }

    #[test]
    fn a_jump_leaves_what_was_entered_since() {
        let truth = replayed(&[
            0x10E, ENTER, 0x140, 0x230, 0x144, // outer calls setjmp
            0x126, ENTER, 0x240, // inner jumps
            0x144, 0x144, 0x144, // outer's own again
            0x11A, EXIT,
        ])
        .unwrap();
        assert_eq!(truth.unwound, 1);
        assert_eq!(instructions(&truth, 0x100), Some(6));
        assert_eq!(instructions(&truth, 0x120), Some(1));
    }

    #[test]
    fn a_thread_is_known_by_its_stack() {
        let truth = replayed(&[
            0x10E,
            ENTER,
            0x112, // the first thread is in outer
            0x220,
            0x2000_0011, // a switch to a second one
            0x126,
            ENTER,
            0x12A,
            0x220,
            0x2000_0111, // a switch to a third one, while the second is in inner
            0x102,
            0x220,
            0x2000_0021, // back to the second one
            0x130,
            0x12E,
        ])
        .unwrap();
        assert_eq!(instructions(&truth, 0x100), Some(1));
        assert_eq!(instructions(&truth, 0x120), Some(2));
        assert_eq!((truth.outside, truth.handlers), (1, 3));
    }

    #[test]
    fn a_thread_in_a_hook_may_or_may_not_be_recorded() {
        let count = |truth: &Truth, function| {
            let mut functions = truth.functions.iter();
            let count = functions.find(|count| count.function == function).unwrap();
            (count.calls, count.beside, count.cut)
        };
        let to_first = [0x220, 0x2000_0011, 0x102];
        let to_second = [0x220, 0x2000_0111, 0x102];
        let enter_inner = [0x126, ENTER];
        // The second thread is in a hook when the first one turns recording on.
        let begun = [
            &to_second[..],
            &enter_inner,
            &to_first,
            &[0x10E, ENTER, 0x112],
        ];
        let truth = replayed(&begun.concat()).unwrap();
        assert_eq!(count(&truth, 0x120), (0, 1, 0));
        assert_eq!(count(&truth, 0x100), (1, 0, 0));
        // The second thread is in hooks meanwhile, and once more afterwards.
        let meanwhile = [
            &to_first[..],
            &[0x10E, ENTER],
            &to_second,
            &enter_inner,
            &[0x12A, 0x126, ENTER, 0x12A],
            &to_first[..2],
            &[0x112],
            &to_second[..2],
            &enter_inner,
            &[0x12A],
        ];
        let truth = replayed(&meanwhile.concat()).unwrap();
        assert_eq!(count(&truth, 0x120), (1, 2, 0));
        // The second thread is in a hook when the first one turns recording off.
        let cut = [
            &to_first[..],
            &[0x10E, ENTER, 0x112],
            &to_second,
            &enter_inner,
            &to_first,
            &[0x11A, EXIT],
        ];
        let truth = replayed(&cut.concat()).unwrap();
        assert_eq!(count(&truth, 0x120), (1, 0, 1));
        assert_eq!(count(&truth, 0x100), (1, 0, 0));
    }

    #[test]
    fn what_can_not_be_is_an_error() {
        assert!(replayed(&[0x102, ENTER]).is_err());
        assert!(replayed(&[0x10E, ENTER, 0x132, EXIT]).is_err());
    }
}
