//! Coverage of functions, lines and branches of the binaries in a hardware trace.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use kymo_coresight::instruction::{self, Class, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_event::{Addr, Pattern};
use kymo_symbols::{Function, Location};

use super::counting::{Counted, steps_of};
use super::part::{Addresses, CodeArgs};
use super::program::{Program, Programs};
use super::tally::{Taken, Tally};

/// A binary with executed code.
pub struct Covered {
    /// The binary.
    pub program: Rc<Program>,
    /// Its functions with a size, by address.
    pub functions: Vec<CoveredFunction>,
}

/// Coverage of a function.
pub struct CoveredFunction {
    /// Its name.
    pub name: String,
    /// Its place in the source, if known.
    pub location: Option<Location>,
    /// Number of executions of its first instruction.
    pub entries: u64,
    /// Numbers of executed instructions, and of all.
    pub instructions: (u64, u64),
    /// Number of executions of each of its lines in this function: that of the line's most executed instruction
    /// there.
    pub lines: BTreeMap<(String, u32), u64>,
    /// Its conditional branches, by address.
    pub branches: Vec<CoveredBranch>,
}

/// Coverage of a conditional branch.
pub struct CoveredBranch {
    /// Its line, if known.
    pub location: Option<Location>,
    /// Executions in which it was taken and not taken.
    pub taken: Taken,
}

impl CoveredFunction {
    /// Numbers of executed lines, and of all.
    pub fn line_counts(&self) -> (u64, u64) {
        let ran = self.lines.values().filter(|count| **count > 0).count();
        (ran as u64, self.lines.len() as u64)
    }

    /// Numbers of executed directions of branches, and of all.
    pub fn branch_counts(&self) -> (u64, u64) {
        let ways = |taken: &Taken| u64::from(taken.taken > 0) + u64::from(taken.not_taken > 0);
        let gone = self.branches.iter().map(|branch| ways(&branch.taken)).sum();
        (gone, 2 * self.branches.len() as u64)
    }
}

/// Computes the coverage of each binary at the selected addresses. If these are not all, functions without executed
/// code are those that `code` names.
pub fn coverage(
    counted: &[Counted<'_>],
    programs: &mut Programs,
    (code, addresses): (&CodeArgs, &Addresses),
) -> Vec<Covered> {
    let mut tallies: BTreeMap<String, (Rc<Program>, BTreeMap<u64, Tally>)> = BTreeMap::new();
    for counted in counted {
        for run in &counted.counts.runs {
            for address in steps_of(counted.code, run) {
                if !addresses.has(counted.code.seen(run.view), address) {
                    continue;
                }
                let Some(place) = programs.place(counted.code.seen(run.view), address) else {
                    continue;
                };
                let (_, of_program) = tallies
                    .entry(place.program.path.clone())
                    .or_insert_with(|| (Rc::clone(&place.program), BTreeMap::new()));
                let tally = of_program.entry(place.address).or_default();
                tally.add(run, address);
            }
        }
    }
    let programs = tallies.into_values();
    let covered = programs.map(|(program, tallies)| {
        // A file with the names and the stripped one both have the functions of its interface. The one of them that has
        // their sizes counts.
        let mut known = HashSet::new();
        let functions = program.symbols.functions();
        let is_named = |function: &Function<'_>| {
            let mut named = code.function.iter();
            addresses.is_all() || named.any(|name| Pattern::new(name).matches(function.name()))
        };
        let functions = functions.filter_map(|function| {
            if known.contains(&function.address()) {
                return None;
            }
            let covered = cover(&program, &function, &tallies)?;
            known.insert(function.address());
            (covered.instructions.0 > 0 || is_named(&function)).then_some(covered)
        });
        Covered {
            functions: functions.collect(),
            program: Rc::clone(&program),
        }
    });
    covered
        .filter(|covered| !covered.functions.is_empty())
        .collect()
}

/// The coverage of a function. `None` if its code is unknown, or if the file has no size for it and none of it was
/// executed, because it may be data.
fn cover(
    program: &Program,
    function: &Function<'_>,
    tallies: &BTreeMap<u64, Tally>,
) -> Option<CoveredFunction> {
    let layout = program.layout.as_ref()?;
    let start = function.address().0;
    let end = function.end().0;
    let ran = tallies.range(start..end.max(start)).next().is_some();
    if function.size().is_none() && !ran {
        return None;
    }
    let is_thumb = function.pointer().is_some_and(|pointer| pointer.0 & 1 == 1);
    let isa = program.isa_at(start, is_thumb.then_some(Isa::T32));
    let offset = usize::try_from(layout.offset_of(start)?).ok()?;
    let code = program.bytes.get(offset..)?;
    let entries = tallies.get(&start).map_or(0, |tally| tally.count);
    let mut covered = CoveredFunction {
        name: function.name().to_owned(),
        location: function.location(),
        entries,
        instructions: (0, 0),
        lines: BTreeMap::new(),
        branches: Vec::new(),
    };
    for row in program.symbols.rows(Addr(start), Addr(end)) {
        let ran = tallies.range(row.start..row.end);
        let count = ran.map(|(_, tally)| tally.count).max().unwrap_or_default();
        if let Some(number) = row.location.line {
            let line = covered
                .lines
                .entry((row.location.file, number))
                .or_default();
            *line = count.max(*line);
        }
    }
    let mut address = start;
    while address < end {
        let bytes = code.get((address - start) as usize..).unwrap_or_default();
        let Some(found) = instruction::decode(isa, address, bytes, Waypoints::default()) else {
            break;
        };
        let tally = tallies.get(&address);
        // Skips data among the code.
        if layout.isa_at(address) != Some(None) {
            covered.instructions.0 += u64::from(tally.is_some());
            covered.instructions.1 += 1;
            let is_branch = matches!(found.class, Class::Branch | Class::Indirect);
            let taken = tally.and_then(|tally| tally.branch).unwrap_or_default();
            if is_branch && (found.is_conditional || taken.is_conditional) {
                covered.branches.push(CoveredBranch {
                    location: program.symbols.location(Addr(address)),
                    taken,
                });
            }
        }
        address += u64::from(found.size);
    }
    Some(covered)
}
