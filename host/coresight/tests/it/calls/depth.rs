//! Deep recursion, and the function that runs behind a loss or a mismatch.

use kymo_coresight::calls::{Edges, Stacks};
use kymo_coresight::element::{Element, Leave};

use super::{Numbered, check, run, word};

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
fn code_without_symbols_is_of_the_function_that_a_loss_shows() {
    // The function at 10000 is open when trace is lost; it runs elsewhere in the same code, and may have returned.
    check(
        &[
            run(0x110, 0x120, Leave::Call),
            run(0x10000, 0x10010, Leave::Next),
            run(0x10010, 0x10020, Leave::Next),
            Element::AddressUnknown,
            run(0x10100, 0x10110, Leave::Next),
            run(0x10110, 0x10120, Leave::Return),
            run(0x120, 0x124, Leave::Next),
        ],
        "?1 >10000 NoAddress ?10100 <10100 <10000",
    );
}
