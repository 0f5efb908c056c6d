//! Which functions, lines and branches of the binaries in a hardware trace ever ran.

use std::collections::BTreeMap;
use std::rc::Rc;

use kymo_coresight::instruction::{self, Class, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_event::{Addr, Pattern};
use kymo_symbols::{Function, Location};

use super::counting::{Counted, steps_of};
use super::part::{Addresses, CodeArgs};
use super::program::{Program, Programs};
use super::tally::{Taken, Tally};

/// A binary of which something ran.
pub struct Covered {
    /// The binary.
    pub program: Rc<Program>,
    /// Its functions with a size, by address.
    pub functions: Vec<CoveredFunction>,
}

/// What ran of a function.
pub struct CoveredFunction {
    /// Its name.
    pub name: String,
    /// Where it stands in the source, if known.
    pub location: Option<Location>,
    /// How often its first instruction ran.
    pub entries: u64,
    /// Instructions that ran, and all.
    pub instructions: (u64, u64),
    /// How often each of its lines ran in this function: as often as that of the line's instructions there that ran most often.
    pub lines: BTreeMap<(String, u32), u64>,
    /// Its conditional branches, by address.
    pub branches: Vec<CoveredBranch>,
}

/// What a conditional branch did.
pub struct CoveredBranch {
    /// Its line, if known.
    pub location: Option<Location>,
    /// How often it was taken and not.
    pub taken: Taken,
}

impl CoveredFunction {
    /// Lines that ran, and all.
    pub fn line_counts(&self) -> (u64, u64) {
        let ran = self.lines.values().filter(|count| **count > 0).count();
        (ran as u64, self.lines.len() as u64)
    }

    /// Ways of branches that were gone, and all.
    pub fn branch_counts(&self) -> (u64, u64) {
        let ways = |taken: &Taken| u64::from(taken.taken > 0) + u64::from(taken.not_taken > 0);
        let gone = self.branches.iter().map(|branch| ways(&branch.taken)).sum();
        (gone, 2 * self.branches.len() as u64)
    }
}

/// Works out what ran of each binary at addresses that are chosen. Where not all are, functions of which nothing ran are
/// those that `code` names.
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
        let functions = program.symbols.functions();
        let is_named = |function: &Function<'_>| {
            let mut named = code.function.iter();
            addresses.is_all() || named.any(|name| Pattern::new(name).matches(function.name()))
        };
        let functions = functions.filter_map(|function| {
            let covered = cover(&program, &function, &tallies)?;
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

/// What ran of a function. `None` if its code is not known, or if the file tells no size and nothing of it ran: it may be data.
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
        // Data among the code is none of it.
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
