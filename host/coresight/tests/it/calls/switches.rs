//! Coroutines: switches from one stack of a thread to another.

use kymo_coresight::element::{Element, Leave, Unsynced};

use super::{check, run};

#[test]
fn a_coroutine_goes_on_below_the_function_that_lets_it() {
    // 1 drives the coroutine 2: it calls the switch 8, which jumps to 2. That calls 3, which switches back; then the
    // same again.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x800, 0x810, Leave::IndirectJump),
            run(0x200, 0x210, Leave::Call),
            run(0x300, 0x310, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x120, 0x130, Leave::Call),
            run(0x500, 0x510, Leave::Return),
            run(0x130, 0x140, Leave::Call),
            // The coroutine resumes in 3, returns to 2, and calls 3 again.
            run(0x800, 0x810, Leave::Return),
            run(0x310, 0x320, Leave::Return),
            run(0x210, 0x220, Leave::Call),
            run(0x300, 0x310, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x140, 0x150, Leave::Next),
        ],
        "?1 >8 <8 =2 >3 >8 <2+2 >5 <5 >8 ~2 ~3 <3 >3 >8 <8 <8+2",
    );
}

#[test]
fn a_return_to_a_start_begins_a_coroutine() {
    // The switch 8 returns to the start of the coroutine 2, which switches back and is resumed once.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x200, 0x210, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x120, 0x130, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x210, 0x220, Leave::Call),
            run(0x300, 0x310, Leave::Return),
            run(0x220, 0x230, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x130, 0x140, Leave::Next),
        ],
        "?1 >8 <8 =2 >8 <2+1 >8 ~2 >3 <3 >8 <8 <8+1",
    );
}

#[test]
fn coroutines_go_on_in_turn() {
    // 1 starts 2, which starts 3, which switches back to 1. Then each is resumed once more.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x200, 0x210, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x300, 0x310, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x120, 0x130, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x210, 0x220, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x310, 0x320, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x130, 0x140, Leave::Next),
        ],
        "?1 >8 <8 =2 >8 <8 =3 >8 <2+2 >8 ~2 >8 ~3 >8 <8 <8+1 <8+1",
    );
}

#[test]
fn behind_a_loss_no_coroutine_is_known() {
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x800, 0x810, Leave::IndirectJump),
            run(0x200, 0x210, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x120, 0x124, Leave::Next),
            Element::NoSync(Unsynced::Overflow),
            run(0x124, 0x130, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x210, 0x220, Leave::Next),
        ],
        "?1 >8 <8 =2 >8 <2+1 Unsynced(Overflow) >8 <1+1 ?2",
    );
}

#[test]
fn what_a_longjmp_left_does_not_go_on() {
    // 1 calls 2, which calls 3; longjmp (6) exits both. Then 2 is called again and returns.
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x300, 0x310, Leave::Call),
            run(0x600, 0x610, Leave::IndirectJump),
            run(0x110, 0x120, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            run(0x300, 0x310, Leave::Return),
            run(0x210, 0x220, Leave::Return),
            run(0x120, 0x130, Leave::Next),
        ],
        "?1 >2 >3 >6 <2+2 >2 >3 <3 <2",
    );
}

#[test]
fn the_oldest_coroutine_makes_room() {
    // 1 starts 70 coroutines, each of which switches back. Then one of them is resumed.
    let begins = |number: u64| 0x1000 + 0x100 * number;
    let ends = |last: u64| {
        let mut elements = Vec::new();
        for number in 0..70 {
            let start = begins(number);
            elements.extend([
                run(0x110, 0x120, Leave::Call),
                run(0x800, 0x810, Leave::Return),
                run(start, start + 0x10, Leave::Call),
                run(0x800, 0x810, Leave::Return),
                run(0x120, 0x124, Leave::Jump),
            ]);
        }
        elements.extend([
            run(0x110, 0x120, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(begins(last) + 0x10, begins(last) + 0x14, Leave::Next),
        ]);
        let (words, _) = super::steps(&elements);
        words.rsplit(' ').next().map(str::to_owned)
    };
    assert_eq!(ends(69).as_deref(), Some("~55"));
    assert_eq!(ends(6).as_deref(), Some("~16"));
    assert_eq!(ends(5).as_deref(), Some("?15"));
}

#[test]
fn a_coroutine_that_ends_leaves_those_that_wait_for_it() {
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            run(0x200, 0x210, Leave::Call),
            // 5 switches to the start of 6, which returns to code that switches back to 2 by 8.
            run(0x500, 0x510, Leave::Return),
            run(0x600, 0x620, Leave::Return),
            run(0x704, 0x710, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x210, 0x220, Leave::Return),
            run(0x110, 0x120, Leave::Next),
        ],
        "?1 >2 >5 <5 =6 <6 ?7 >8 <7+1 <2",
    );
}

#[test]
fn a_coroutine_that_went_on_ends_alone() {
    check(
        &[
            run(0x100, 0x110, Leave::Call),
            // 5 switches to 6, which calls 5 to switch back, is resumed, and ends.
            run(0x500, 0x510, Leave::IndirectJump),
            run(0x600, 0x610, Leave::Call),
            run(0x500, 0x510, Leave::Return),
            run(0x110, 0x120, Leave::Call),
            run(0x500, 0x510, Leave::Return),
            run(0x610, 0x620, Leave::Return),
            run(0x704, 0x710, Leave::Call),
            run(0x800, 0x810, Leave::Return),
            run(0x120, 0x130, Leave::Next),
        ],
        "?1 >5 <5 =6 >5 <6+1 >5 ~6 <6 ?7 >8 <5+2",
    );
}
