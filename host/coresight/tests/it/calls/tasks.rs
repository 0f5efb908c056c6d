//! Tasks without context IDs: a handler that returns to another address than the interrupted one switches tasks.

use kymo_coresight::calls::{Edges, Place, Program, Stacks};
use kymo_coresight::element::{Context, Element, Leave, Range};
use kymo_coresight::isa::Isa;

use super::{Numbered, ON, exception, run, word};

/// The synthetic program, without threads.
struct Unnamed;

impl Program for Unnamed {
    fn place(&mut self, context: &Context, address: u64) -> Place {
        Numbered.place(context, address)
    }

    fn thread(&mut self, _: &Context) -> u32 {
        u32::MAX
    }

    fn is_exception_return(&mut self, address: u64) -> bool {
        address == 0xffff_fffc
    }

    fn is_reset(&mut self, _: &Context, number: u32) -> bool {
        number == 1
    }
}

/// Checks the steps and the number of doubtful switches.
fn check(elements: &[Element], expected: &str, doubtful: u64) {
    let mut words = Vec::new();
    let mut stacks = Stacks::new(false).with_tasks();
    let mut edges = Edges::new(&mut Unnamed);
    for element in elements {
        edges.element(element, &mut Unnamed, &mut |edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| words.push(word(step)));
        });
    }
    assert_eq!(words.join(" "), expected);
    assert_eq!(stacks.doubtful_switches(), doubtful);
}

/// The exception handler that switches tasks.
fn handler() -> Element {
    run(0x800, 0x810, Leave::ExceptionReturn)
}

/// As [`Unnamed`]; the decoder takes the end of its handler for a jump (A32 without packets for exception returns).
struct ByOpcode;

impl Program for ByOpcode {
    fn place(&mut self, context: &Context, address: u64) -> Place {
        Numbered.place(context, address)
    }

    fn thread(&mut self, _: &Context) -> u32 {
        u32::MAX
    }

    fn returns_from_exception(&mut self, range: &Range) -> bool {
        range.end == 0x810
    }
}

#[test]
fn a_return_by_its_opcode_alone_switches_tasks() {
    let handler = || match run(0x800, 0x810, Leave::IndirectJump) {
        Element::Range(range) => Element::Range(Range {
            isa: Isa::A32,
            ..range
        }),
        other => other,
    };
    let elements = [
        run(0x100, 0x110, Leave::Next),
        exception(6, 0x110),
        handler(),
        run(0x300, 0x308, Leave::Next),
        exception(6, 0x308),
        handler(),
        run(0x110, 0x118, Leave::Next),
    ];
    let mut words = Vec::new();
    let mut stacks = Stacks::new(false).with_tasks();
    let mut edges = Edges::new(&mut ByOpcode);
    for element in elements {
        edges.element(&element, &mut ByOpcode, &mut |edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| words.push(word(step)));
        });
    }
    assert_eq!(words.join(" "), "?1 !6 >8 <8 .6 #1 ?3 !6 >8 <8 .6 #0");
}

#[test]
fn a_handler_that_returns_elsewhere_switches_tasks() {
    check(
        &[
            // 1 calls 2, which is interrupted. The task that begins with 3 calls 4, which is interrupted as well.
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(14, 0x208),
            handler(),
            run(0x300, 0x310, Leave::Call),
            run(0x400, 0x408, Leave::Next),
            exception(14, 0x408),
            handler(),
            // Both continue where they were interrupted.
            run(0x208, 0x220, Leave::Return),
            run(0x110, 0x118, Leave::Next),
            exception(14, 0x118),
            handler(),
            run(0x408, 0x420, Leave::Return),
            run(0x310, 0x320, Leave::Next),
        ],
        "?1 >2 !14 >8 <8 .14 #1 ?3 >4 !14 >8 <8 .14 #0 <2 !14 >8 <8 .14 #1 <4",
        0,
    );
}

#[test]
fn an_exception_that_returns_or_repairs_switches_nothing() {
    check(
        &[
            run(0x100, 0x110, Leave::Next),
            exception(14, 0x110),
            handler(),
            run(0x110, 0x120, Leave::Next),
            exception(3, 0x120),
            handler(),
            run(0x140, 0x150, Leave::Next),
        ],
        "?1 !14 >8 <8 .14 !3 >8 <8 .3",
        0,
    );
}

#[test]
fn tasks_that_yield_at_one_address_are_known_by_where_they_return() {
    // 2 yields at 0x208. It is called by 1 in one task, and by 3 in the other one.
    let begin = [
        run(0x100, 0x110, Leave::Call),
        run(0x200, 0x208, Leave::Next),
        exception(14, 0x208),
        handler(),
        run(0x300, 0x310, Leave::Call),
        run(0x200, 0x208, Leave::Next),
    ];
    let steps = "?1 >2 !14 >8 <8 .14 #1 ?3 >2";
    let end = |number, address| {
        [
            exception(number, 0x208),
            handler(),
            run(0x208, 0x220, Leave::Return),
            run(address, address + 8, Leave::Next),
        ]
    };
    // A handler that has switched before is assumed to switch again; about another one nothing is known.
    for (number, address, expected, doubtful) in [
        (14, 0x110, "!14 >8 <8 .14 #0? <2", 1),
        (14, 0x310, "!14 >8 <8 .14 #0? #1? <2", 2),
        (15, 0x110, "!15 >8 <8 .15 #1? #0? <2", 2),
        (15, 0x310, "!15 >8 <8 .15 #1? <2", 1),
    ] {
        let all = [&begin[..], &end(number, address)].concat();
        check(&all, &format!("{steps} {expected}"), doubtful);
    }
}

#[test]
fn nothing_goes_on_behind_a_reset() {
    check(
        &[
            // 1 calls 2, which is interrupted. The other task is reset within a handler.
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(14, 0x208),
            handler(),
            run(0x300, 0x308, Leave::Next),
            exception(15, 0x308),
            run(0x900, 0x908, Leave::Next),
            exception(1, 0x908),
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            // A return to the address where the first task was interrupted is a return to this task's.
            exception(14, 0x208),
            handler(),
            run(0x208, 0x220, Leave::Return),
            run(0x110, 0x118, Leave::Next),
        ],
        "?1 >2 !14 >8 <8 .14 #1 ?3 !15 >9 reset <9 .15 <3 ?1 >2 !14 >8 <8 .14 <2",
        0,
    );
    // Also if the reset is the first element, or tracing restarts after it.
    check(
        &[
            exception(1, 0),
            ON,
            run(0x100, 0x110, Leave::Next),
            exception(1, 0x110),
            ON,
            run(0x100, 0x110, Leave::Next),
        ],
        "reset on ?1 reset <1 on ?1",
        0,
    );
}

#[test]
fn an_exception_that_comes_as_a_handler_ends_takes_its_place() {
    for ends in [Leave::ExceptionReturn, Leave::Return] {
        check(
            &[
                run(0x100, 0x110, Leave::Call),
                run(0x200, 0x208, Leave::Next),
                exception(15, 0x208),
                // Another exception interrupts the handler of the first one before it ends.
                run(0x900, 0x908, Leave::Next),
                exception(21, 0x908),
                run(0xa00, 0xa08, Leave::ExceptionReturn),
                run(0x908, 0x910, ends),
                exception(14, 0xffff_fffc),
                handler(),
                run(0x208, 0x220, Leave::Return),
                run(0x110, 0x118, Leave::Next),
            ],
            "?1 >2 !15 >9 !21 >a <a .21 <9 .15 !14 >8 <8 .14 <2",
            0,
        );
    }
    // The return address of a handler that began before the trace is not known.
    check(
        &[
            run(0x900, 0x910, Leave::ExceptionReturn),
            exception(14, 0xffff_fffc),
            handler(),
            run(0x104, 0x110, Leave::Next),
        ],
        "?9 !14 >8 <8 .14 <9 ?1",
        0,
    );
}
