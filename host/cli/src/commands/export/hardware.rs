//! Exports of hardware trace for tools that read counts: coverage for lcov, profiles for AutoFDO.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use kymo_coresight::counts::Run;
use kymo_coresight::element::{Element, Range};
use kymo_coresight::memory;
use kymo_event::Pattern;

use super::Args;
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::filter::nothing;
use crate::hardware::counting::{self, Counted};
use crate::hardware::coverage::coverage;
use crate::hardware::part::{Addresses, CodeArgs};
use crate::hardware::program::{Place, Program, Programs};
use crate::hardware::{self, DecodeArgs, hex};
use crate::output::OutputFile;
use crate::render::escape::escaped;

/// A format that is made of counts, not of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Which functions, lines and branches ran, for lcov and genhtml.
    Lcov,
    /// Ranges and branches with their counts, for create_llvm_prof.
    AutoFdo,
}

/// These formats by name, with descriptions.
pub const FORMATS: [(&str, Kind, &str); 2] = [
    (
        "lcov",
        Kind::Lcov,
        "coverage of functions, lines and branches by hardware trace, for genhtml",
    ),
    (
        "autofdo",
        Kind::AutoFdo,
        "ranges and branches of hardware trace with their counts, for create_llvm_prof --profiler=text",
    ),
];

/// Writes the counts of each binary in such a format.
///
/// # Errors
/// When the input is no hardware trace, or the result can't be written.
pub fn run(
    kind: Kind,
    args: &Args,
    output: Option<&Path>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let (part, code) = args.filter.part_of_counts("this format")?;
    let binaries = &args.input.ctf.binaries;
    let mut opened = hardware::open(args.input.path(), binaries, &args.symbols, true)?;
    part.sources.choose(&mut opened.buffers)?;
    let mut programs = Programs::new(&mut opened);
    let (counted, findings) = counting::count(&opened, &part, DecodeArgs::default(), context)?;
    let addresses = code.addresses(&opened, &mut programs)?;
    let mut text = Vec::new();
    let mut binaries = Binaries::new(&args.binary);
    match kind {
        Kind::Lcov => {
            let chosen = (&code, &addresses);
            lcov(
                &counted,
                &mut programs,
                (chosen, &mut binaries),
                context,
                &mut text,
            )?;
        }
        Kind::AutoFdo => {
            let profiles = autofdo(&counted, &mut programs, (&addresses, &mut binaries));
            write_autofdo(&profiles, &mut text)?;
            if profiles.len() > 1 {
                context.warn(format_args!(
                    "{} binaries, one behind the other: create_llvm_prof reads the first alone; --binary chooses one",
                    profiles.len()
                ));
            }
        }
    }
    binaries.check()?;
    match output {
        // Names from the input could send control sequences to the terminal.
        None if context.shows_output() => {
            let text = String::from_utf8_lossy(&text);
            for line in text.lines() {
                writeln!(context.out().0, "{}", escaped(line))?;
            }
        }
        None => context.out().0.write_all(&text)?,
        Some(path) => {
            let mut file = OutputFile::create(path)?;
            file.write_all(&text)
                .map_err(|error| unwritable(path, &error))?;
            file.finish()?;
        }
    }
    findings.verdict()
}

/// Selection of binaries.
struct Binaries {
    /// The patterns, each with whether a binary has matched it; empty for all.
    wanted: Vec<(String, bool)>,
    known: BTreeSet<String>,
}

impl Binaries {
    fn new(wanted: &[String]) -> Self {
        Self {
            wanted: wanted.iter().map(|text| (text.clone(), false)).collect(),
            known: BTreeSet::new(),
        }
    }

    /// Whether a binary is selected, by its path or its file name.
    fn has(&mut self, path: &str) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        if !self.known.contains(path) {
            self.known.insert(path.to_owned());
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut is_meant = false;
        for (text, met) in &mut self.wanted {
            let pattern = Pattern::new(text.as_str());
            if pattern.matches(path) || pattern.matches(name) {
                *met = true;
                is_meant = true;
            }
        }
        is_meant
    }

    /// Refuses patterns that no binary of the trace matches.
    fn check(self) -> Result<(), Report> {
        match self.wanted.into_iter().find(|(_, met)| !met) {
            None => Ok(()),
            Some((text, _)) => Err(nothing("binary", &text, "binaries", self.known)),
        }
    }
}

/// Coverage of a source file.
#[derive(Default)]
struct Source {
    /// Per line: the number of executions in all functions that have code of it, including where it is inlined.
    lines: BTreeMap<u32, u64>,
    /// The line of each function, and its number of entries.
    functions: BTreeMap<String, (u32, u64)>,
    /// Per line: executions in which each of its branches was taken and not taken; `None` for one never executed.
    branches: BTreeMap<u32, Vec<Option<(u64, u64)>>>,
}

/// The tracefile of `geninfo`: man geninfo, section "TRACEFILE FORMAT".
fn lcov(
    counted: &[Counted<'_>],
    programs: &mut Programs,
    (chosen, binaries): ((&CodeArgs, &Addresses), &mut Binaries),
    context: &Context,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    // The file format has no place for functions and branches without a source line.
    let (mut functions_without, mut branches_without) = (0u64, 0u64);
    for covered in coverage(counted, programs, chosen) {
        if !binaries.has(&covered.program.path) {
            continue;
        }
        let mut has_lines = false;
        for function in &covered.functions {
            has_lines |= !function.lines.is_empty();
            for ((file, number), count) in &function.lines {
                let source = sources.entry(file.clone()).or_default();
                *source.lines.entry(*number).or_default() += count;
            }
            if let Some(location) = &function.location
                && let Some(number) = location.line
            {
                let source = sources.entry(location.file.clone()).or_default();
                let entry = source.functions.entry(function.name.clone());
                // A function with executed code was entered, whether the entry is in the trace or not.
                let ran = u64::from(function.instructions.0 > 0);
                entry.or_insert((number, 0)).1 += function.entries.max(ran);
            } else {
                functions_without += 1;
            }
            for branch in &function.branches {
                let location = branch.location.as_ref();
                let Some((location, number)) =
                    location.and_then(|location| Some((location, location.line?)))
                else {
                    branches_without += 1;
                    continue;
                };
                let (taken, not_taken) = (branch.taken.taken, branch.taken.not_taken);
                let source = sources.entry(location.file.clone()).or_default();
                let of_line = source.branches.entry(number).or_default();
                of_line.push((taken + not_taken > 0).then_some((taken, not_taken)));
            }
        }
        if !has_lines {
            context.warn(format_args!(
                "{}: no debug information: the coverage has none of its lines",
                covered.program.path
            ));
        }
    }
    if functions_without + branches_without > 0 {
        context.note(format_args!(
            "{functions_without} functions and {branches_without} conditional branches have no line in the source: \
             only `kymo hotspots --coverage` has them"
        ));
    }
    for (file, source) in &sources {
        write_source(file, source, out)?;
    }
    Ok(())
}

fn write_source(file: &str, source: &Source, out: &mut dyn Write) -> std::io::Result<()> {
    // A line break in a name would begin another record.
    let one_line = |text: &str| text.replace(['\n', '\r'], "?");
    writeln!(out, "TN:\nSF:{}", one_line(file))?;
    for (name, (number, _)) in &source.functions {
        writeln!(out, "FN:{number},{}", one_line(name))?;
    }
    for (name, (_, count)) in &source.functions {
        writeln!(out, "FNDA:{count},{}", one_line(name))?;
    }
    let entered = source.functions.values().filter(|(_, count)| *count > 0);
    writeln!(
        out,
        "FNF:{}\nFNH:{}",
        source.functions.len(),
        entered.count()
    )?;
    let (mut found, mut hit) = (0, 0);
    for (number, branches) in &source.branches {
        for (block, counts) in branches.iter().enumerate() {
            let ways = counts.map(|(taken, not_taken)| [taken, not_taken]);
            for way in 0..2 {
                found += 1;
                match ways {
                    Some(ways) => {
                        hit += u64::from(ways[way] > 0);
                        writeln!(out, "BRDA:{number},{block},{way},{}", ways[way])?;
                    }
                    None => writeln!(out, "BRDA:{number},{block},{way},-")?,
                }
            }
        }
    }
    writeln!(out, "BRF:{found}\nBRH:{hit}")?;
    for (number, count) in &source.lines {
        writeln!(out, "DA:{number},{count}")?;
    }
    let ran = source.lines.values().filter(|count| **count > 0).count();
    writeln!(out, "LF:{}\nLH:{ran}\nend_of_record", source.lines.len())
}

/// Counts of a binary, by offsets in its file.
#[derive(Default)]
struct Profile {
    /// First and last instruction of straight runs, with counts.
    ranges: BTreeMap<(u64, u64), u64>,
    /// Taken branches with counts; to 0 if they leave the binary.
    branches: BTreeMap<(u64, u64), u64>,
}

type Profiles = BTreeMap<String, (Rc<Program>, Profile)>;

/// Collects the counts of each selected binary.
fn autofdo(
    counted: &[Counted<'_>],
    programs: &mut Programs,
    (addresses, binaries): (&Addresses, &mut Binaries),
) -> Profiles {
    let mut profiles = Profiles::new();
    for counted in counted {
        let mut jumps = Vec::new();
        for run in &counted.counts.runs {
            let code = counted.code.seen(run.view);
            // Code outside the selected addresses is not counted, and a part that ends at their bound ends in no
            // branch.
            let element = Element::Range(whole(run));
            let is_chosen = addresses.has_element(code, &element);
            let mut add = |part: &Element| {
                let Element::Range(part) = part else { return };
                let last = part.end.wrapping_sub(u64::from(part.last.size));
                let first = programs.place(code, part.start);
                let last = programs.place(code, last);
                let (Some(first), Some(last)) = (first, last) else {
                    return;
                };
                if Rc::ptr_eq(&first.program, &last.program) {
                    let profile = profile(&mut profiles, &first.program);
                    let key = (offset(&first), offset(&last));
                    *profile.ranges.entry(key).or_default() += run.executions;
                }
            };
            if is_chosen {
                addresses.each_part(code, &element, &mut add);
            }
            if let Some(target) = run.target.filter(|_| run.taken > 0) {
                jumps.push((run.view, run.last_address(), target, run.taken));
            }
        }
        let indirect = counted.counts.jumps.iter();
        jumps.extend(indirect.map(|jump| (jump.view, jump.from, jump.to, jump.count)));
        for (view, from, to, count) in jumps {
            let code = counted.code.seen(view);
            if !addresses.has(code, from) {
                continue;
            }
            let Some(from) = programs.place(code, from) else {
                continue;
            };
            let to = programs.place(code, to);
            let to = to.filter(|to| Rc::ptr_eq(&to.program, &from.program));
            let key = (offset(&from), to.map_or(0, |to| offset(&to)));
            let profile = profile(&mut profiles, &from.program);
            *profile.branches.entry(key).or_default() += count;
        }
    }
    profiles.retain(|path, _| binaries.has(path));
    profiles
}

/// All instructions of a run.
fn whole(run: &Run) -> Range {
    Range {
        start: run.start,
        end: run.end,
        count: run.count,
        isa: run.isa,
        is_taken: run.taken > 0,
        last: run.last,
        block: None,
        cycles: None,
        has_no_opcode: false,
    }
}

/// Writes the text format of AutoFDO: the number of ranges, each `FIRST-LAST:COUNT`; the number of sampled addresses
/// (0); the number of branches, each `FROM->TO:COUNT`; then the binary, in comments.
fn write_autofdo(profiles: &Profiles, out: &mut dyn Write) -> std::io::Result<()> {
    for (program, profile) in profiles.values() {
        writeln!(out, "{}", profile.ranges.len())?;
        for ((first, last), count) in &profile.ranges {
            writeln!(out, "{first:x}-{last:x}:{count}")?;
        }
        writeln!(out, "0\n{}", profile.branches.len())?;
        for ((from, to), count) in &profile.branches {
            writeln!(out, "{from:x}->{to:x}:{count}")?;
        }
        if let Some(id) = memory::build_id(&program.bytes) {
            // 20 bytes, as the kernel records them.
            writeln!(out, "// build_id: 0x{:0<40}", hex(&id))?;
        }
        writeln!(out, "// {}\n", program.path.replace(['\n', '\r'], "?"))?;
    }
    Ok(())
}

/// The offset in the file, by which create_llvm_prof and simpleperf identify an instruction; for a kernel, the offset
/// from its link address.
fn offset(place: &Place) -> u64 {
    let Some(layout) = &place.program.layout else {
        return place.address;
    };
    let start = layout.segments().map(|(_, _, address)| address).min();
    match place.program.path.starts_with("[kernel") {
        true => place.address.wrapping_sub(start.unwrap_or_default()),
        false => layout.offset_of(place.address).unwrap_or(place.address),
    }
}

fn profile<'p>(profiles: &'p mut Profiles, program: &Rc<Program>) -> &'p mut Profile {
    let known = profiles.entry(program.path.clone());
    &mut known
        .or_insert_with(|| (Rc::clone(program), Profile::default()))
        .1
}
