//! Jumps that end or begin calls: `longjmp`, signals, stubs of libraries.

use kymo_coresight::element::{Element, Leave, Unsynced};
use kymo_coresight::memory::MemorySpace;

use super::{ON, check, context, exception, run};

#[test]
fn a_longjmp_leaves_what_is_above() {
    // 1 calls setjmp (5), which returns, then 2, which calls 3, which calls longjmp (6). It continues after the call of
    // setjmp.
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x500, 0x510, Leave::Return),
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x300, 0x310, Leave::Call),
            run(0x600, 0x610, Leave::IndirectJump),
            run(0x110, 0x130, Leave::Return),
        ],
        "?1 >5 <5 >2 >3 >6 /2+2",
    );
}

#[test]
fn no_frame_of_a_recursion_that_a_longjmp_leaves_has_returned() {
    // 1 calls 2, which calls itself twice, and then longjmp (6).
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x200, 0x220, Leave::Call),
            run(0x600, 0x610, Leave::IndirectJump),
            run(0x120, 0x130, Leave::Return),
        ],
        "?1 >2 >2 >2 >6 /2+1 /2 /2",
    );
}

#[test]
fn a_signal_handler_comes_back_to_where_it_cut_in() {
    check(
        &[
            context(Some(7), 0),
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(14, 0x208),
            ON,
            // The kernel sends the thread to its handler 4, which returns to a trampoline in 5 with a system call.
            run(0x400, 0x410, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            run(0x208, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@7 ?1 >2 !14 on .14 >4 <4 ?5 !2 on .2 <5 <2",
    );
}

#[test]
fn a_signal_that_waits_for_another_one_is_beside_it() {
    check(
        &[
            context(Some(7), 0),
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(14, 0x208),
            ON,
            run(0x400, 0x410, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            // The kernel does not return to the interrupted code, but runs the handler of the next signal, 6.
            run(0x600, 0x610, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            run(0x208, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@7 ?1 >2 !14 on .14 >4 <4 ?5 !2 on .2 <5 >6 <6 ?5 !2 on .2 <5 <2",
    );
    // A signal during a system call of the handler is nested in the handler.
    check(
        &[
            context(Some(7), 0),
            run(0x200, 0x208, Leave::Next),
            exception(14, 0x208),
            ON,
            run(0x400, 0x410, Leave::Next),
            exception(2, 0x410),
            ON,
            run(0x600, 0x610, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            run(0x410, 0x418, Leave::Next),
        ],
        "@7 ?2 !14 on .14 >4 !2 on .2 >6 <6 ?5 !2 on .2 <5",
    );
}

#[test]
fn a_handler_s_tail_call_to_what_it_cut_into_is_no_return() {
    // A signal occurs before the first instruction of 2. Its handler 4 calls 2 itself.
    check(
        &[
            context(Some(7), 0),
            run(0x100, 0x110, Leave::Call),
            exception(14, 0x200),
            ON,
            run(0x400, 0x410, Leave::IndirectJump),
            run(0x200, 0x210, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            run(0x200, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@7 ?1 >2 !14 on .14 >4 <4 =2 <2 ?5 !2 on .2 <5 <2",
    );
}

#[test]
fn a_siglongjmp_leaves_the_handler_and_what_it_cut_into() {
    // 1 calls 2, which a signal interrupts. The handler 4 calls longjmp (5), which returns into 1.
    for leave in [Leave::Return, Leave::IndirectJump] {
        check(
            &[
                context(Some(7), 0),
                run(0x100, 0x110, Leave::Call),
                run(0x200, 0x208, Leave::Next),
                exception(14, 0x208),
                ON,
                run(0x400, 0x410, Leave::Call),
                run(0x500, 0x510, leave),
                run(0x120, 0x124, Leave::Call),
                run(0x200, 0x210, Leave::Return),
                run(0x124, 0x128, Leave::Next),
            ],
            "@7 ?1 >2 !14 on .14 >4 >5 /4+1 /2 >2 <2",
        );
    }
}

#[test]
fn what_is_jumped_to_returns_for_the_function_that_jumped() {
    // The stub 2 of a library jumps to code without symbols, which resolves the function 3 and jumps to it.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x210, Leave::IndirectJump),
            run(0x20000, 0x20010, Leave::IndirectJump),
            run(0x20040, 0x20050, Leave::Call),
            run(0x30000, 0x30010, Leave::Return),
            run(0x20050, 0x20060, Leave::IndirectJump),
            run(0x300, 0x310, Leave::Return),
            run(0x120, 0x130, Leave::Return),
        ],
        "?1 >2 <2 ?20000 >30000 <30000 <20000 =3 <3",
    );
}

#[test]
fn a_loss_in_a_signal_handler_leaves_what_it_cut_into() {
    check(
        &[
            context(Some(7), 0),
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x208, Leave::Next),
            exception(2, 0x208),
            ON,
            run(0x400, 0x410, Leave::Call),
            Element::NoSync(Unsynced::Overflow),
            run(0x610, 0x620, Leave::Return),
            run(0x410, 0x420, Leave::Return),
            run(0x510, 0x518, Leave::Next),
            exception(2, 0x518),
            ON,
            run(0x208, 0x210, Leave::Return),
            run(0x110, 0x114, Leave::Next),
        ],
        "@7 ?1 >2 !2 on .2 >4 Unsynced(Overflow) ?6 <6 <4 ?5 !2 on .2 <5 <2",
    );
}

#[test]
fn an_indirect_jump_to_the_caller_returns_from_unknown_code() {
    // 0x20000 twice calls 0x30000, which returns by `br x30`. Then 0x40000 exits both by such a jump.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20010, Leave::Call),
            run(0x30000, 0x30008, Leave::IndirectJump),
            run(0x20010, 0x20020, Leave::Call),
            run(0x30000, 0x30008, Leave::IndirectJump),
            run(0x20020, 0x20030, Leave::Call),
            run(0x40000, 0x40008, Leave::IndirectJump),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >20000 >30000 <30000 >30000 <30000 >40000 <20000+1",
    );
    // A jump table stays within its function.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x20000, 0x20010, Leave::IndirectJump),
            run(0x20080, 0x20090, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >20000 <20000",
    );
}

#[test]
fn a_jump_into_missing_code_is_a_tail_call() {
    // 2 is the stub of a library without an image, whose code is treated as one function.
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x210, Leave::IndirectJump),
            Element::NotAccessible {
                address: 0x840,
                space: MemorySpace::ANY,
            },
            run(0x110, 0x120, Leave::Call),
            run(0x300, 0x310, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >2 <2 =8 lost 840 <8 >3 <3",
    );
}
