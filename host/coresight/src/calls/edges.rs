//! Edges from trace elements: the points at which execution may enter another function.

use std::collections::HashSet;

use super::step::{Arrival, Before, Cut, Edge, Lost, Place, Program};
use crate::element::{Context, Element, Leave, Range, TraceOn, Transaction, Unsynced};
use crate::flow::BlockId;
use crate::isa::Isa;

/// Limit of known function starts in code without symbols. Hostile traces have billions.
const BEGINNINGS: usize = 1 << 20;

/// Address of instructions at unknown addresses. No call returns there.
const NOWHERE: u64 = u64::MAX;

/// Follows the elements of one source.
#[derive(Debug)]
pub struct Edges {
    /// Number of instructions so far.
    instructions: u64,
    context: Context,
    thread: u32,
    before: Before,
    /// Function of the last range, if the range was of the current thread.
    last: Option<Place>,
    /// Cached function of each block.
    places: Vec<Option<Place>>,
    /// Addresses of calls into code without symbols; a function begins at each.
    beginnings: HashSet<(u32, u64)>,
    /// Return address of the last exception.
    returns_to: Option<u64>,
}

impl Edges {
    /// Starts with the thread of the default (unknown) context.
    pub fn new(program: &mut impl Program) -> Self {
        let context = Context::default();
        Edges {
            instructions: 0,
            context,
            thread: program.thread(&context),
            before: Before::Nothing,
            last: None,
            places: Vec::new(),
            beginnings: HashSet::new(),
            returns_to: None,
        }
    }

    /// Number of instructions executed so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Current thread.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Clears the cache of blocks, because their numbers are no longer valid.
    pub fn forget_code(&mut self) {
        self.places.clear();
    }

    /// Reports that another program replaced the thread's.
    pub fn replace(&mut self, out: &mut impl FnMut(Edge)) {
        self.before = Before::Nothing;
        out(Edge::Replaced);
    }

    /// Reports a return before `element`, if the element marks a pause of tracing: the return's time is that before the
    /// pause.
    pub fn pause(&mut self, element: &Element, out: &mut impl FnMut(Edge)) {
        let is_pause = matches!(element, Element::TraceOn { why, .. } if *why == TraceOn::Normal);
        if is_pause && matches!(self.before, Before::Range(Leave::Return, _)) {
            out(Edge::Returned);
        }
    }

    /// Looks up the current thread, which may have changed without an element.
    pub fn look_for_thread(&mut self, program: &mut impl Program, out: &mut impl FnMut(Edge)) {
        let thread = program.thread(&self.context);
        if thread != self.thread {
            self.switch(thread, out);
        }
    }

    /// Follows the next element. Its edges happened before the instructions that it adds.
    #[inline]
    pub fn element(
        &mut self,
        element: &Element,
        program: &mut impl Program,
        out: &mut impl FnMut(Edge),
    ) {
        match element {
            Element::Range(range) => self.range(range, program, out),
            other => self.other(other, program, out),
        }
    }

    #[inline]
    fn range(&mut self, range: &Range, program: &mut impl Program, out: &mut impl FnMut(Edge)) {
        let place = self.place(range.block, range.start, program);
        if let Before::Range(Leave::Next, end) = self.before
            && end != range.start
        {
            self.mismatch(end, 0, out);
        }
        let stays = match (self.last, self.before, place) {
            (
                Some(Place::Function { function, .. }),
                Before::Range(Leave::Next | Leave::Jump, _),
                Place::Function { function: now, .. },
            ) => function == now,
            (
                Some(Place::Unknown { code }),
                Before::Range(Leave::Next | Leave::Jump, _),
                Place::Unknown { code: now },
            ) => code == now && !self.beginnings.contains(&(code, range.start)),
            _ => false,
        };
        if !stays {
            self.arrive(range.start, place, out);
        }
        self.instructions += u64::from(range.count);
        let leave = match range.leave() {
            Leave::IndirectJump | Leave::Return
                if range.isa != Isa::A64 && program.returns_from_exception(range) =>
            {
                Leave::ExceptionReturn
            }
            Leave::IndirectJump if program.is_call(range) => Leave::IndirectCall,
            leave => leave,
        };
        self.before = Before::Range(leave, range.end);
        self.last = Some(place);
        if !range.is_taken && range.is_mismatch() {
            let branch = range.end.wrapping_sub(u64::from(range.last.size));
            self.mismatch(branch, range.count, out);
        }
    }

    /// Reports that code and trace disagree. The next range arrives anew, so that its function is known to run.
    #[cold]
    fn mismatch(&mut self, address: u64, behind: u32, out: &mut impl FnMut(Edge)) {
        self.last = None;
        out(Edge::Mismatch { address, behind });
    }

    #[inline]
    fn place(&mut self, block: Option<BlockId>, address: u64, program: &mut impl Program) -> Place {
        let Some(block) = block else {
            return program.place(&self.context, address);
        };
        let index = block as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        match self.places[index] {
            Some(place) => place,
            None => {
                let place = program.place(&self.context, address);
                self.places[index] = Some(place);
                place
            }
        }
    }

    fn arrive(&mut self, address: u64, place: Place, out: &mut impl FnMut(Edge)) {
        let is_call = matches!(
            self.before,
            Before::Range(Leave::Call | Leave::IndirectCall, _) | Before::Exception
        );
        if let Place::Unknown { code } = place
            && is_call
            && self.beginnings.len() < BEGINNINGS
        {
            self.beginnings.insert((code, address));
        }
        out(Edge::Arrive(Arrival {
            before: self.before,
            address,
            place,
            is_user: self.context.level == Some(0),
        }));
    }

    #[cold]
    fn other(&mut self, element: &Element, program: &mut impl Program, out: &mut impl FnMut(Edge)) {
        match *element {
            Element::Context(context) => {
                self.context = context;
                self.look_for_thread(program, out);
            }
            Element::Exception {
                number,
                return_address,
                ..
            } => self.exception(number, return_address, program, out),
            // After an exception-return instruction, this element is redundant.
            Element::ExceptionReturn
                if !matches!(self.before, Before::Range(Leave::ExceptionReturn, _)) =>
            {
                self.before = Before::ExceptionReturn;
            }
            Element::TraceOn { why, .. } => {
                // ETMv4 has reported the overflow before, by its own packet.
                if why == TraceOn::Overflow && self.before != Before::Lost {
                    self.lose(Lost::Overflow, out);
                }
                self.before = match self.before {
                    Before::Range(Leave::ExceptionReturn, _) | Before::Exception => Before::Nothing,
                    Before::Range(leave, end) => Before::Pause(leave, end),
                    before => before,
                };
                out(Edge::TraceOn);
            }
            Element::NoSync(Unsynced::Init) => self.before = Before::Nothing,
            Element::NoSync(why) => self.lose(Lost::Unsynced(why), out),
            Element::NotAccessible { address, .. } => {
                // The address and the way there are known. A jump there is a tail call, for example by a library's
                // stub.
                let is_jump = matches!(
                    self.before,
                    Before::Range(Leave::Jump | Leave::IndirectJump, _)
                );
                let place = match program.place(&self.context, address) {
                    Place::Function { function, is_start } => Place::Function {
                        function,
                        is_start: is_start || is_jump,
                    },
                    unknown => unknown,
                };
                self.arrive(address, place, out);
                self.lose(Lost::NoCode(address), out);
            }
            Element::AddressUnknown => self.lose(Lost::NoAddress, out),
            // Execution resumes after the instruction that began the transaction, in its function.
            Element::Transaction(Transaction::Fail) => {
                if let Before::Range(_, end) = self.before {
                    self.before = Before::Range(Leave::Jump, end);
                }
            }
            Element::RangeWithoutPath { count, .. } => {
                let is_handler = self.before == Before::Exception;
                self.lose(Lost::NoPath(count), out);
                if count > 0
                    && let Some(place) = program.unknown_path(&self.context)
                {
                    // The handler of an exception does not end it.
                    if is_handler {
                        self.before = Before::Exception;
                    }
                    self.arrive(NOWHERE, place, out);
                    self.before = Before::Nothing;
                }
                self.instructions += u64::from(count);
            }
            _ => {}
        }
    }

    fn lose(&mut self, why: Lost, out: &mut impl FnMut(Edge)) {
        self.before = match why {
            // The last known address is certain, or nothing was traced.
            Lost::NoCode(_) | Lost::Unsynced(Unsynced::Reset | Unsynced::EndOfTrace) => {
                Before::Nothing
            }
            _ => Before::Lost,
        };
        out(Edge::Lost(why));
    }

    fn exception(
        &mut self,
        number: u32,
        return_address: Option<u64>,
        program: &mut impl Program,
        out: &mut impl FnMut(Edge),
    ) {
        if program.is_reset(&self.context, number) {
            (self.before, self.last, self.returns_to) = (Before::Nothing, None, None);
            return out(Edge::Reset);
        }
        if return_address.is_some_and(|it| program.is_exception_return(it)) {
            let before = std::mem::replace(&mut self.before, Before::Exception);
            (self.returns_to, self.last) = (None, None);
            return out(Edge::Exception(Cut {
                number,
                return_address: None,
                before,
                is_chained: true,
            }));
        }
        // The packet of an exception that interrupts another one may lack the return address.
        let return_address = return_address.or(match self.before {
            Before::Range(Leave::Next, end) => Some(end),
            _ => None,
        });
        if let Before::Exception = self.before
            && return_address.is_some()
            && return_address == self.returns_to
        {
            // Neither the handler nor any code after it was traced.
            self.before = Before::ExceptionReturn;
        }
        let is_under_way = match self.before {
            Before::Range(leave, _) => leave != Leave::Next,
            // A reset has no other address.
            Before::Nothing | Before::Lost | Before::Pause(..) => return_address != Some(0),
            Before::Exception | Before::ExceptionReturn => true,
        };
        if is_under_way && let Some(address) = return_address {
            // The branch before the exception has arrived at its target, though no instruction ran there.
            let place = program.place(&self.context, address);
            self.arrive(address, place, out);
        }
        self.returns_to = return_address;
        out(Edge::Exception(Cut {
            number,
            return_address,
            before: self.before,
            is_chained: false,
        }));
        self.before = Before::Exception;
    }

    fn switch(&mut self, thread: u32, out: &mut impl FnMut(Edge)) {
        if matches!(self.before, Before::Pause(..)) {
            // The pause was of another thread.
            self.before = Before::Nothing;
        }
        (self.thread, self.last) = (thread, None);
        out(Edge::Thread { thread });
    }
}
