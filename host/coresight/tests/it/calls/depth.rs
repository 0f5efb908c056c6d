//! Deep recursion, and the function that runs behind a loss or a mismatch.

use kymo_coresight::calls::{Edge, Edges, Stacks};
use kymo_coresight::element::{Element, Leave};

use super::{Numbered, check, exception, run, word};

#[test]
fn recursion_deeper_than_the_frames_closes_them_where_they_end() {
    const DEEPER: u64 = 70_000;
    let calls = (0..DEEPER).map(|_| run(0x200, 0x210, Leave::Call));
    let returns = (0..DEEPER).map(|_| run(0x210, 0x214, Leave::Return));
    let elements: Vec<Element> = [run(0x110, 0x120, Leave::Call)]
        .into_iter()
        .chain(calls)
        .chain([run(0x200, 0x204, Leave::Return)])
        .chain(returns)
        .chain([run(0x120, 0x124, Leave::Next)])
        .collect();
    let (mut stacks, mut words) = (Stacks::new(false), Vec::new());
    // Where each step occurs, as its element's index.
    let mut edges = Edges::new(&mut Numbered);
    for (at, element) in elements.iter().enumerate() {
        edges.element(element, &mut Numbered, &mut |edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| {
                words.push((at, word(step)));
            });
        });
    }
    let frames = (1 << 16) - 1;
    assert_eq!(stacks.too_deep(), DEEPER - frames + 1);
    let exits: Vec<usize> = words
        .iter()
        .filter(|(_, word)| word == "<2")
        .map(|(at, _)| *at)
        .collect();
    // The innermost call with a frame returns to the last of its callers, not earlier.
    let deepest = elements.len() - 1 - frames as usize;
    assert_eq!(exits.len() as u64, frames);
    assert_eq!(exits.first(), Some(&(deepest + 1)));
}

#[test]
fn a_mismatch_is_before_the_function_that_runs_behind_it() {
    // Function 1 goes on elsewhere than behind its last instruction.
    check(
        &[
            run(0x110, 0x120, Leave::Next),
            run(0x200, 0x210, Leave::Next),
            run(0x210, 0x220, Leave::Next),
        ],
        "?1 mismatch 120 <1 =2",
    );
}

#[test]
fn losses_in_code_without_symbols_keep_its_callers_open() {
    // A stripped program whose function at 10100 loops while trace is lost again and again.
    let lost = |from| [Element::AddressUnknown, run(from, from + 0x10, Leave::Next)];
    let elements: Vec<Element> = [
        run(0x110, 0x120, Leave::Call),
        run(0x10000, 0x10010, Leave::Call),
        run(0x10100, 0x10110, Leave::Next),
    ]
    .into_iter()
    .chain(
        [0x10104, 0x10120, 0x10100, 0x10130]
            .into_iter()
            .flat_map(lost),
    )
    .chain([
        run(0x10140, 0x10150, Leave::Return),
        run(0x10010, 0x10020, Leave::Return),
        run(0x120, 0x124, Leave::Next),
    ])
    .collect();
    check(
        &elements,
        "?1 >10000 >10100 NoAddress NoAddress NoAddress NoAddress <10100 <10000",
    );
}

/// Exits of functions, with the index of the element at which each occurs.
fn exits(elements: Vec<Element>) -> Vec<(usize, String)> {
    let (mut stacks, mut words) = (Stacks::new(false), Vec::new());
    let mut edges = Edges::new(&mut Numbered);
    for (at, element) in elements.iter().enumerate() {
        let mut out = |edge: Edge| {
            let mut functions = |_, address| address as u32;
            stacks.edge(0, &edge, &mut functions, &mut |step| {
                let word = word(step);
                if word.starts_with('<') {
                    words.push((at, word));
                }
            });
        };
        edges.pause(element, &mut out);
        edges.element(element, &mut Numbered, &mut out);
    }
    words
}

/// A recursion of functions 2 and 3, this many calls deep in all, called by function 1.
fn two_recurse(deep: u64) -> Vec<Element> {
    let calls = (0..deep).map(|at| match at % 2 {
        0 => run(0x200, 0x210, Leave::Call),
        _ => run(0x300, 0x310, Leave::Call),
    });
    let first = [run(0x110, 0x120, Leave::Call)];
    first.into_iter().chain(calls).collect()
}

#[test]
fn recursion_of_two_functions_closes_frames_where_they_end() {
    const DEEPER: u64 = 80_000;
    let mut elements = two_recurse(DEEPER);
    // The last call is of function 2. Tracing pauses at its return, and in its caller.
    elements.push(run(0x200, 0x204, Leave::Return));
    elements.push(super::ON);
    let returns = (0..DEEPER).rev();
    elements.extend(returns.map(|at| match at % 2 {
        0 => run(0x210, 0x214, Leave::Return),
        _ => run(0x310, 0x314, Leave::Return),
    }));
    elements.push(run(0x120, 0x124, Leave::Next));
    let last = elements.len() - 1;
    let exits = exits(elements);
    let frames = (1 << 16) - 1;
    assert_eq!(exits.len(), frames);
    assert_eq!(exits[0].0, last + 1 - frames);
    assert_eq!(exits.last(), Some(&(last, "<2".to_owned())));
}

#[test]
fn a_jump_out_of_calls_too_deep_for_frames_closes_them() {
    let mut elements = two_recurse(65_000);
    elements.push(run(0x200, 0x210, Leave::Call));
    elements.push(run(0x500, 0x510, Leave::Call));
    elements.extend(two_recurse(1_000).split_off(1));
    // A jump by a table within the innermost function, then `longjmp` into function 5, which calls again.
    elements.push(run(0x200, 0x208, Leave::IndirectJump));
    elements.push(run(0x220, 0x228, Leave::IndirectJump));
    let jumped = elements.len();
    elements.push(run(0x540, 0x550, Leave::Call));
    elements.push(run(0x400, 0x404, Leave::Return));
    elements.push(run(0x550, 0x554, Leave::Next));
    let exits = exits(elements);
    assert!(
        exits.iter().all(|(at, _)| *at >= jumped),
        "{:?}",
        exits.first()
    );
    assert_eq!(exits.last(), Some(&(jumped + 2, "<4".to_owned())));
}

#[test]
fn a_handler_whose_path_is_unknown_runs_in_its_exception() {
    check(
        &[
            run(0x110, 0x114, Leave::Next),
            exception(14, 0x114),
            Element::RangeWithoutPath {
                start: 0x500,
                next: 0x520,
                count: 8,
            },
            Element::ExceptionReturn,
            run(0x114, 0x118, Leave::Next),
        ],
        "?1 !14 NoPath(8) >fff <fff .14",
    );
}
