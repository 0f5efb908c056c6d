//! Runs through all instructions that were executed, and counts for each function those that it
//! executed itself.
//!
//! What is known of the run is only which instruction came after which. Contexts (threads, handlers
//! of exceptions), the hooks and the stack of functions in each context follow from that and from
//! the [`Code`]:
//!
//! - A handler of an exception is only ever entered by an exception, and ends with its own return.
//! - A hook begins where its first instruction is executed and ends with its own return; what it
//!   calls belongs to it. A handler that preempts meanwhile does not.
//! - Which thread goes on after a switch follows from the stack that its registers are loaded from.
//! - A function is entered and left where its hooks are called, inlined ones too. `longjmp` leaves
//!   all that were entered since the `setjmp` to which it returns.

use std::collections::HashMap;

use super::code::{Code, Flow, Hook};
use kymo_targets::run::{Error, Result};

/// What one function did while it was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The function's address.
    pub function: u32,
    /// How often it was entered.
    pub calls: u64,
    /// How many instructions it executed itself, from its hook at the entry to that at the exit:
    /// without the functions that it called (those that have no hooks are part of it), without the
    /// hooks, without what only sets up their calls, and without interrupts.
    pub instructions: u64,
    /// How many functions it entered.
    pub children: u64,
    /// Beside [`calls`](Self::calls): how often a hook told its entry, in another thread or a handler,
    /// while recording was being turned on or off. How far that had come decides whether it is recorded.
    pub beside: u64,
    /// Of [`calls`](Self::calls): how often a hook was just about to tell its entry when watching ended,
    /// likewise.
    pub cut: u64,
}

/// What a hook cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCount {
    /// How often it was called.
    pub calls: u64,
    /// The instructions that it executed, from its first to its return.
    pub instructions: u64,
}

/// What was counted, from the moment when the hook at the watched function's entry returned to the
/// call of that at its exit.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Those functions that were entered.
    pub functions: Vec<Count>,
    /// All instructions, of whatever.
    pub all: u64,
    /// The hook at entries.
    pub enter: HookCount,
    /// The hook at exits.
    pub exit: HookCount,
    /// Instructions that only set up the call of a hook, the calls themselves included.
    pub set_up: u64,
    /// Instructions of the recorder in other places: the program's markers, the tick, interrupts.
    pub recorder: u64,
    /// Instructions of handlers, as far as they are no function's (and no hook's).
    pub handlers: u64,
    /// Instructions of threads in no function that was entered while it was watched.
    pub outside: u64,
    /// Functions that `longjmp` left.
    pub unwound: u64,
    /// Beside [`all`](Self::all): instructions of whatever while recording was being turned on or off.
    pub beside: u64,
}

/// What of the recorder is being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A hook of the compiler's.
    Hook(Hook),
    /// Something else that the program calls: a marker, the tick, the mark of a `setjmp`.
    Other,
}

/// A thread, or an activation of a handler.
#[derive(Debug, Default)]
struct Context {
    /// The functions that were entered and not left, the innermost last.
    frames: Vec<Frame>,
    /// The instruction that was executed last.
    last: Option<u32>,
    /// How many calls deep, from an arbitrary beginning (a handler's is 0).
    depth: i64,
    /// The part of the recorder that is being executed, and the depth at which it returns.
    hook: Option<(Part, i64)>,
    /// For each `setjmp`, where it returned to, and how many functions were open.
    setjmps: Vec<(u32, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    /// Its place in [`Truth::functions`], if it was entered since watching began.
    watched: Option<usize>,
}

/// The state of the run.
#[derive(Debug)]
pub struct Replay<'a> {
    code: &'a Code,
    /// What is watched: from this function's entry to its exit.
    window: u32,
    watching: bool,
    /// The thread in which the hook at the entry is still being executed: nothing is counted before
    /// it returns.
    entering: Option<usize>,
    /// The thread in which the hook at the exit is still being executed: nothing is counted any more,
    /// but it may be recorded.
    leaving: Option<usize>,
    done: bool,
    threads: Vec<Context>,
    /// The index of a thread, by where the symbol begins that its stack lies in.
    stacks: HashMap<u32, usize>,
    /// The thread that runs, or that was interrupted; the first is the one that booted.
    running: usize,
    /// The thread whose registers were loaded last.
    loaded: Option<usize>,
    /// The handlers that are being executed, the innermost last.
    handlers: Vec<Context>,
    truth: Truth,
    /// Places in [`Truth::functions`].
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

    /// The switch of threads loaded a register from here.
    pub fn loads(&mut self, address: u32) {
        let stack = self.code.symbol_before(address).unwrap_or_default();
        let thread = *self.stacks.entry(stack).or_insert(self.threads.len());
        if thread == self.threads.len() {
            self.threads.push(Context::default());
        }
        self.loaded = Some(thread);
    }

    /// This instruction was executed.
    ///
    /// # Errors
    /// When a hook was called from where the code shows no call, or functions were not left in the
    /// order in which they were entered: then the count would not be worth much.
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
        // The marks of setjmp and longjmp go on to the real ones.
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

    /// Ends handlers that have returned by now, as `address` shows, where their last instruction
    /// led.
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

    /// Its place in [`Truth::functions`].
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

    /// The functions that a hook is just telling to be entered, in whatever context.
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
        // A function that has returned can't be jumped back to.
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

    /// `longjmp` has come to `address`.
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
    /// What the instruction at `from` did to the flow of control, now that `to` shows where it led.
    /// Whether it was `longjmp`'s return.
    fn follow(&mut self, code: &Code, from: u32, to: u32) -> bool {
        let instruction = code.at(from);
        match instruction.flow {
            Flow::On => {}
            // One whose condition does not hold goes on behind itself.
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
            0x100, 0x102, 0x104, 0x106, 0x10A, 0x10C, 0x10E, // before the hook: nobody looks
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
        // The last exit ends it.
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
            0x2000_0011, // a switch to another one
            0x126,
            ENTER,
            0x12A,
            0x220,
            0x2000_0111, // which is left again in inner
            0x102,
            0x220,
            0x2000_0021, // a third one does nothing
            0x130,
            0x12E, // the second goes on
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
        // Here it comes to one while that happens, and then once more.
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
        // And here it is in one when recording is turned off.
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
