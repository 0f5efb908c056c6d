//! Returns to untraced code, and calls whose branches are not call instructions.

use super::*;

#[test]
fn a_function_that_returned_before_a_pause_has_ended() {
    // 2 calls itself, and is called by code that a filter excludes from the trace.
    check(
        &[
            ON,
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x220, Leave::Return),
            run(0x210, 0x220, Leave::Return),
            ON,
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x220, Leave::Return),
            // An interrupt occurs before the code to which it returned runs.
            ON,
            run(0x210, 0x220, Leave::Return),
        ],
        "on ?2 >2 <2 <2 on ?2 >2 <2 on",
    );
}

/// Program in which a branch that is no call instruction, at 0x10c, is a call.
struct Calling;

impl Program for Calling {
    fn place(&mut self, context: &Context, address: u64) -> Place {
        Numbered.place(context, address)
    }

    fn thread(&mut self, context: &Context) -> u32 {
        Numbered.thread(context)
    }

    fn is_call(&mut self, range: &Range) -> bool {
        range.end == 0x110
    }
}

#[test]
fn a_program_knows_calls_that_their_branches_do_not_say() {
    let (mut edges, mut stacks) = (Edges::new(&mut Calling), Stacks::new(false));
    let mut words = Vec::new();
    for element in [
        run(0x100, 0x110, Leave::IndirectJump),
        run(0x200, 0x210, Leave::Return),
        run(0x110, 0x120, Leave::IndirectJump),
        run(0x300, 0x310, Leave::Next),
    ] {
        edges.element(&element, &mut Calling, &mut |edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| words.push(word(step)));
        });
    }
    assert_eq!(words.join(" "), "?1 >2 <2 <1 =3");
}
