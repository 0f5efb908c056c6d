//! Exceptions before the first instruction of the interrupted function.

use super::*;

#[test]
fn an_exception_before_the_first_instruction_cuts_into_its_function() {
    // Tracing begins at 0x104, where the interrupt occurs.
    check(
        &[
            ON,
            exception(14, 0x104),
            run(0x800, 0x814, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x104, 0x110, Leave::Call),
        ],
        "on ?1 !14 >8 <8 .14",
    );
    // Another exception occurs before the first instruction of the handler, which runs afterwards.
    check(
        &[
            run(0x100, 0x110, Leave::Next),
            exception(14, 0x110),
            exception(15, 0x800),
            run(0x900, 0x914, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x800, 0x814, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x110, 0x120, Leave::Next),
        ],
        "?1 !14 >8 !15 >9 <9 .15 <8 .14",
    );
    // Handlers that are not traced.
    check(
        &[
            run(0x100, 0x110, Leave::Next),
            exception(2, 0x110),
            exception(14, 0x110),
            ON,
            run(0x110, 0x120, Leave::Next),
        ],
        "?1 !2 .2 !14 on .14",
    );
}

#[test]
fn exceptions_that_return_nobody_knows_where_are_not_at_one_place() {
    let cut = |number| Element::Exception {
        number,
        return_address: None,
        is_branch_target: false,
        is_inferred: false,
    };
    check(
        &[
            run(0x100, 0x110, Leave::Jump),
            cut(2),
            cut(14),
            run(0x900, 0x914, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x800, 0x814, Leave::ExceptionReturn),
            Element::ExceptionReturn,
            run(0x204, 0x210, Leave::Next),
        ],
        "?1 !2 !14 >9 <9 .14 >8 <8 .2 <1 ?2",
    );
}

/// Program whose first requested address is in another function than the same address later, because its code was not
/// known at first.
struct Late(bool);

impl Program for Late {
    fn place(&mut self, context: &Context, address: u64) -> Place {
        match std::mem::replace(&mut self.0, true) {
            true => Numbered.place(context, address),
            false => Place::Function {
                function: 0xff,
                is_start: false,
            },
        }
    }

    fn thread(&mut self, context: &Context) -> u32 {
        Numbered.thread(context)
    }
}

#[test]
fn what_an_exception_returns_to_is_found_if_it_was_not_known() {
    let (mut program, mut words) = (Late(false), Vec::new());
    let mut edges = Edges::new(&mut program);
    let mut stacks = Stacks::new(false);
    for element in [ON, exception(14, 0x104), ON, run(0x104, 0x110, Leave::Call)] {
        edges.element(&element, &mut program, &mut |edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| words.push(word(step)));
        });
    }
    assert_eq!(words.join(" "), "on ?ff !14 on .14 <ff ?1");
}
