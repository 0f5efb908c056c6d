//! Tests of calls from elements, on a synthetic program with a function at every multiple of 0x100.

mod depth;
mod exceptions;
mod jumps;
mod switches;
mod tasks;
mod untraced;

use kymo_coresight::calls::{Edge, Edges, Entered, Lost, Place, Program, Stacks, Step};
use kymo_coresight::element::{
    Context, Element, Last, Leave, Range, TraceOn, Transaction, Unsynced,
};
use kymo_coresight::instruction::{Class, Purpose};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::MemorySpace;

/// Program whose functions below 0x10000 are numbered by their addresses divided by 0x100. Code from there on is
/// unknown, and its functions are numbered by their addresses.
struct Numbered;

impl Program for Numbered {
    fn place(&mut self, _: &Context, address: u64) -> Place {
        match address < 0x10000 {
            true => Place::Function {
                function: (address >> 8) as u32,
                is_start: address & 0xff == 0,
            },
            false => Place::Unknown { code: 0 },
        }
    }

    fn thread(&mut self, context: &Context) -> u32 {
        context.context_id.unwrap_or(99)
    }

    fn unknown_path(&mut self, _: &Context) -> Option<Place> {
        Some(Place::Function {
            function: 0xfff,
            is_start: false,
        })
    }
}

/// A range of instructions from `start` to `end`, which ends with this kind of branch.
fn run(start: u64, end: u64, leave: Leave) -> Element {
    let (class, purpose) = match leave {
        Leave::Next => (Class::Branch, Purpose::None),
        Leave::Jump => (Class::Branch, Purpose::None),
        Leave::IndirectJump => (Class::Indirect, Purpose::None),
        Leave::Call => (Class::Branch, Purpose::Call),
        Leave::IndirectCall => (Class::Indirect, Purpose::Call),
        Leave::Return => (Class::Indirect, Purpose::Return),
        Leave::ExceptionReturn => (Class::Indirect, Purpose::ExceptionReturn),
    };
    let range = Range {
        start,
        end,
        count: ((end - start) / 4) as u32,
        isa: Isa::A64,
        is_taken: leave != Leave::Next,
        last: Last {
            size: 4,
            class,
            purpose,
            is_conditional: leave == Leave::Next,
            may_be_skipped: false,
        },
        block: None,
        cycles: None,
        has_no_opcode: false,
    };
    assert_eq!(range.leave(), leave);
    Element::Range(range)
}

fn context(thread: Option<u32>, level: u8) -> Element {
    Element::Context(Context {
        context_id: thread,
        level: Some(level),
        ..Context::default()
    })
}

fn exception(number: u32, return_address: u64) -> Element {
    Element::Exception {
        number,
        return_address: Some(return_address),
        is_branch_target: false,
        is_inferred: false,
    }
}

const ON: Element = Element::TraceOn {
    why: TraceOn::Normal,
    cycles: None,
};

/// The steps as words: `>1` enters function 1, `=1` by a tail call, `?1` finds execution in it, `~1` resumes it, `<1`
/// exits it, `<1+2` with two others, `/1` leaves it by a jump past it, `!14` and `.14` begin and end an exception, `@5`
/// switches to a thread.
fn steps(elements: &[Element]) -> (String, u64) {
    let mut words = Vec::new();
    let mut stacks = Stacks::new(false);
    let instructions = follow(0, elements, &mut stacks, &mut words);
    (words.join(" "), instructions)
}

/// Reads the elements of a source, and returns the number of instructions.
fn follow(
    source: usize,
    elements: &[Element],
    stacks: &mut Stacks,
    words: &mut Vec<String>,
) -> u64 {
    let mut edges = Edges::new(&mut Numbered);
    for element in elements {
        let mut out = |edge: Edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(source, &edge, &mut functions, &mut |step| {
                words.push(word(step))
            });
        };
        edges.pause(element, &mut out);
        edges.element(element, &mut Numbered, &mut out);
    }
    edges.instructions()
}

fn word(step: Step) -> String {
    match step {
        Step::Enter { function, how, .. } => match how {
            Entered::Call => format!(">{function:x}"),
            Entered::TailCall => format!("={function:x}"),
            Entered::Found => format!("?{function:x}"),
            Entered::Resumed => format!("~{function:x}"),
        },
        Step::Exit {
            function,
            unwound,
            is_left,
        } => {
            let end = if is_left { "/" } else { "<" };
            match unwound {
                0 => format!("{end}{function:x}"),
                _ => format!("{end}{function:x}+{unwound}"),
            }
        }
        Step::Exception { number } => format!("!{number}"),
        Step::ExceptionEnd { number } => format!(".{number}"),
        Step::Thread { thread } => format!("@{thread}"),
        Step::Stack { number, is_certain } => {
            format!("#{number}{}", if is_certain { "" } else { "?" })
        }
        Step::Lost(Lost::NoCode(address)) => format!("lost {address:x}"),
        Step::Lost(why) => format!("{why:?}"),
        Step::TraceOn => "on".to_owned(),
        Step::Reset => "reset".to_owned(),
        Step::Mismatch { address } => format!("mismatch {address:x}"),
    }
}

fn check(elements: &[Element], expected: &str) {
    assert_eq!(steps(elements).0, expected);
}

#[test]
fn calls_and_returns_nest() {
    let elements = [
        run(0x110, 0x120, Leave::Call),
        run(0x200, 0x208, Leave::Next),
        run(0x208, 0x210, Leave::IndirectCall),
        run(0x300, 0x304, Leave::Return),
        run(0x210, 0x220, Leave::Return),
        run(0x120, 0x124, Leave::Return),
        run(0x480, 0x484, Leave::Jump),
    ];
    let (words, instructions) = steps(&elements);
    // Function 4 called function 1 before the trace began.
    assert_eq!(words, "?1 >2 >3 <3 <2 <1 ?4");
    assert_eq!(instructions, 4 + 2 + 2 + 1 + 4 + 1 + 1);
}

#[test]
fn recursion_returns_call_by_call() {
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x204, Leave::Return),
            run(0x210, 0x214, Leave::Return),
            run(0x210, 0x214, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >2 >2 >2 <2 <2 <2",
    );
}

#[test]
fn a_jump_to_a_start_is_a_tail_call_and_one_within_is_none() {
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x208, Leave::Jump),
            run(0x200, 0x210, Leave::Jump),
            run(0x300, 0x310, Leave::IndirectJump),
            run(0x320, 0x330, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >2 <2 =3 <3",
    );
}

#[test]
fn a_transaction_that_fails_goes_on_where_it_began() {
    // In function 1, and once within a call that it makes.
    check(
        &[
            run(0x110, 0x120, Leave::Next),
            Element::Transaction(Transaction::Start),
            run(0x120, 0x130, Leave::Next),
            Element::Transaction(Transaction::Fail),
            run(0x124, 0x130, Leave::Call),
            run(0x210, 0x220, Leave::Next),
            Element::Transaction(Transaction::Fail),
            run(0x124, 0x130, Leave::Return),
        ],
        "?1 >2 <2",
    );
}

#[test]
fn a_system_call_of_a_user_trace_ends_where_it_began() {
    check(
        &[
            context(Some(7), 0),
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(2, 0x208),
            ON,
            context(Some(7), 0),
            run(0x208, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@7 ?1 >2 !2 on .2 <2",
    );
}

#[test]
fn an_interrupt_comes_before_its_branch_arrives() {
    // The call of 2 was taken; the interrupt comes before the first instruction there. Its handler is at 0x800.
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            exception(14, 0x200),
            run(0x800, 0x810, Leave::Call),
            run(0x900, 0x904, Leave::Return),
            run(0x810, 0x814, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x200, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "?1 >2 !14 >8 >9 <9 <8 .14 <2",
    );
}

#[test]
fn a_thread_has_one_stack_on_all_processors() {
    let thread = context(Some(7), 0);
    let here = [
        thread,
        run(0x110, 0x120, Leave::Call),
        run(0x200, 0x208, Leave::Next),
        exception(14, 0x208),
    ];
    let there = [
        thread,
        ON,
        run(0x208, 0x210, Leave::Return),
        run(0x120, 0x124, Leave::Next),
    ];
    let both = |moves| {
        let (mut stacks, mut words) = (Stacks::new(moves), Vec::new());
        follow(0, &here, &mut stacks, &mut words);
        follow(1, &there, &mut stacks, &mut words);
        words.join(" ")
    };
    assert_eq!(both(true), "@7 ?1 >2 !14 @7 on .14 <2");
    // If context IDs do not identify threads, each CPU has its own calls.
    assert_eq!(both(false), "@7 ?1 >2 !14 @7 on ?2 <2 ?1");
}

#[test]
fn a_number_that_is_another_thread_s_has_its_calls_ended() {
    let thread = context(Some(7), 0);
    let begun = [
        thread,
        run(0x110, 0x120, Leave::Call),
        run(0x200, 0x208, Leave::Next),
    ];
    let (mut stacks, mut words) = (Stacks::new(true), Vec::new());
    follow(0, &begun, &mut stacks, &mut words);
    stacks.begin(0, &mut |step| words.push(word(step)));
    follow(0, &begun, &mut stacks, &mut words);
    assert_eq!(words.join(" "), "@7 ?1 >2 <1+1 @7 ?1 >2");
}

#[test]
fn threads_have_stacks_of_their_own() {
    check(
        &[
            context(Some(1), 1),
            run(0x100, 0x110, Leave::Call),
            run(0x900, 0x910, Leave::Next),
            context(Some(2), 1),
            run(0x910, 0x920, Leave::Return),
            run(0x310, 0x320, Leave::Call),
            run(0x900, 0x910, Leave::Next),
            context(Some(1), 1),
            run(0x910, 0x920, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@1 ?1 >9 @2 ?9 <9 ?3 >9 @1 <9",
    );
}

#[test]
fn code_that_is_missing_is_left_by_its_return() {
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            Element::NotAccessible {
                address: 0x20000,
                space: MemorySpace::ANY,
            },
            run(0x110, 0x120, Leave::Return),
        ],
        "?1 >20000 lost 20000 <20000",
    );
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x204, Leave::Next),
            Element::NoSync(Unsynced::Overflow),
            run(0x204, 0x208, Leave::Return),
            run(0x110, 0x120, Leave::Next),
        ],
        "?1 >2 Unsynced(Overflow) <2",
    );
}

#[test]
fn where_execution_is_found_no_unknown_function_begins() {
    // A loop in which the trace begins, and to which another function jumps.
    check(
        &[
            run(0x20010, 0x20020, Leave::Jump),
            run(0x20010, 0x20020, Leave::Call),
            run(0x30000, 0x30010, Leave::Jump),
            run(0x20010, 0x20020, Leave::Return),
            run(0x20020, 0x20024, Leave::Next),
        ],
        "?20010 >30000 <30000",
    );
    // Tracing resumes in the middle of a called function.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20010, Leave::Next),
            ON,
            run(0x20040, 0x20050, Leave::Jump),
            run(0x20040, 0x20050, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >20000 on Paused <20000",
    );
    // A function in which execution was found is entered like others when it is called later.
    check(
        &[
            run(0x20000, 0x20010, Leave::Return),
            run(0x30010, 0x30020, Leave::Call),
            run(0x20000, 0x20010, Leave::Return),
            run(0x30020, 0x30030, Leave::Call),
            run(0x40000, 0x40010, Leave::Jump),
            run(0x20000, 0x20010, Leave::Return),
            run(0x30030, 0x30034, Leave::Next),
        ],
        "?20000 <20000 ?30010 >20000 <20000 >40000 <40000 =20000 <20000",
    );
}

#[test]
fn a_return_leaves_what_was_found_for_an_unknown_caller() {
    // The trace begins in an epilogue. The callers were also called before the trace began.
    check(
        &[
            run(0x20010, 0x2001c, Leave::Return),
            run(0x30020, 0x30028, Leave::Call),
            run(0x40000, 0x40010, Leave::Return),
            run(0x30028, 0x30030, Leave::Return),
            run(0x50020, 0x50028, Leave::Jump),
        ],
        "?20010 <20010 ?30020 >40000 <40000 <30020 ?50020",
    );
    // A function whose call was seen is only exited by a return to that call: other uses of `ret` may be jumps.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20010, Leave::Return),
            run(0x20040, 0x20050, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >20000 <20000",
    );
}

#[test]
fn a_loop_to_the_start_of_an_unknown_function_is_no_call() {
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20010, Leave::Jump),
            run(0x20000, 0x20010, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >20000 <20000",
    );
}

#[test]
fn an_instruction_that_is_skipped_or_repeated_is_no_signal_handler() {
    // Unknown code: the kernel emulates an instruction at 0x20008, and restarts a system call at 0x20010.
    let calls = |level, skipped: &[Element]| {
        let begin = [
            context(Some(7), level),
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20008, Leave::Next),
            exception(3, 0x20008),
        ];
        let end = [
            run(0x2000c, 0x20014, Leave::Next),
            exception(2, 0x20014),
            ON,
            run(0x20010, 0x20014, Leave::Next),
            exception(2, 0x20014),
            ON,
            run(0x20014, 0x20018, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ];
        steps(&[&begin, skipped, &end].concat()).0
    };
    assert_eq!(
        calls(0, &[ON]),
        "@7 ?1 >20000 !3 on .3 !2 on .2 !2 on .2 <20000"
    );
    // With a traced handler.
    let handler = [
        run(0x800, 0x810, Leave::ExceptionReturn),
        Element::ExceptionReturn,
    ];
    assert_eq!(
        calls(1, &handler),
        "@7 ?1 >20000 !3 >8 <8 .3 !2 on .2 !2 on .2 <20000"
    );
    // A system call at the beginning of a function.
    check(
        &[
            context(Some(7), 0),
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x204, Leave::Next),
            exception(2, 0x204),
            ON,
            run(0x200, 0x204, Leave::Next),
            exception(2, 0x204),
            ON,
            run(0x204, 0x208, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "@7 ?1 >2 !2 on .2 !2 on .2 <2",
    );
}

/// Steps of a program with a `gap` in the trace. Before it, 1 has called 2, which has called 3, which has returned.
/// After it, 5 is running, called by 4, which 2 has called; all return.
fn across(gap: &[Element]) -> String {
    let begin = [
        context(Some(7), 0),
        run(0x100, 0x110, Leave::Call),
        run(0x200, 0x210, Leave::Call),
        run(0x300, 0x310, Leave::Call),
        run(0x600, 0x610, Leave::Return),
        run(0x310, 0x320, Leave::Return),
    ];
    let end = [
        run(0x504, 0x510, Leave::Return),
        run(0x410, 0x420, Leave::Call),
        run(0x600, 0x610, Leave::Return),
        run(0x420, 0x430, Leave::Return),
        run(0x220, 0x230, Leave::Return),
        run(0x110, 0x114, Leave::Next),
    ];
    steps(&[&begin, gap, &end].concat()).0
}

#[test]
fn calls_that_are_open_when_tracing_pauses_or_trace_is_lost_stay_open() {
    let overflow = Element::TraceOn {
        why: TraceOn::Overflow,
        cycles: None,
    };
    let lost = Element::NoSync(Unsynced::Overflow);
    // Whether 3 has returned before a loss of trace is uncertain, so it stays open; before a pause it has returned. 4
    // returns in the trace, and 1 and 2 are entered once.
    let begin = "@7 ?1 >2 >3 >6 <6";
    let end = "?5 <5 ?4 >6 <6 <4 <3 <2";
    assert_eq!(
        across(&[ON]),
        format!("{begin} <3 on Paused ?5 <5 ?4 >6 <6 <4 <2")
    );
    // One overflow is one loss, with and without a packet of its own.
    assert_eq!(
        across(&[lost, overflow]),
        format!("{begin} Unsynced(Overflow) on {end}")
    );
    assert_eq!(across(&[overflow]), format!("{begin} Overflow on {end}"));
    // After the pause execution is in the innermost function, which returns to a caller that was not seen.
    check(
        &[
            run(0x210, 0x220, Leave::Next),
            ON,
            run(0x230, 0x240, Leave::Return),
            run(0x310, 0x320, Leave::Next),
        ],
        "?2 on Paused <2 ?3",
    );
    // Calls that were open at one pause and not seen until the next one are given up, with a mark.
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x210, Leave::Next),
            ON,
            run(0x310, 0x320, Leave::Next),
            lost,
            run(0x410, 0x420, Leave::Next),
        ],
        "?1 >2 on Paused ?3 Unsynced(Overflow) <1+2 ?4",
    );
}

#[test]
fn tracing_that_goes_on_where_it_paused_ends_no_call() {
    // Unknown code: tracing pauses after an ordinary instruction, or after a call of an untraced function.
    for leave in [Leave::Next, Leave::Call, Leave::IndirectCall] {
        check(
            &[
                run(0x110, 0x120, Leave::Call),
                run(0x20000, 0x20010, Leave::Call),
                run(0x30000, 0x30010, leave),
                ON,
                run(0x30010, 0x30020, Leave::Return),
                run(0x20010, 0x20020, Leave::Return),
                run(0x120, 0x124, Leave::Next),
            ],
            "?1 >20000 >30000 on <30000 <20000",
        );
    }
    // A function that falls through into the next one keeps its caller.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x300, Leave::Next),
            ON,
            run(0x300, 0x310, Leave::Return),
            run(0x120, 0x130, Leave::Next),
        ],
        "?1 >2 on <2 =3 <3",
    );
}

#[test]
fn what_code_and_trace_disagree_on_is_told() {
    check(
        &[
            run(0x100, 0x110, Leave::Next),
            run(0x118, 0x120, Leave::Next),
        ],
        "?1 mismatch 110",
    );
    let mut element = run(0x100, 0x110, Leave::Jump);
    if let Element::Range(range) = &mut element {
        range.is_taken = false;
    }
    check(&[element], "?1 mismatch 10c");
}
