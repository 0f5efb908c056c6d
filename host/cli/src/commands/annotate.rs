//! `kymo annotate`: a function's source and instructions with execution counts, from Arm hardware trace.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_coresight::disassembly::{Disassembler, Opcode};
use kymo_coresight::instruction::{self, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::{MemorySpace, Scene, View};
use kymo_export::json::Object;
use kymo_symbols::Location;

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::counting::{self, Counted};
use crate::hardware::part::{PartArgs, no_function};
use crate::hardware::program::{Loaded, Place, Programs};
use crate::hardware::tally::{Tally, tally};
use crate::hardware::{self, HardwareArgs};
use crate::render::count::counted as number_of;
use crate::render::escape::escaped;

/// The options of `kymo annotate`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo annotate main --symfs root/ perf.data     source and instructions of main, with their counts
  kymo annotate 'parse_*' perf.data              of several functions
  kymo annotate main --source src/ perf.data     with the sources below src/
  kymo annotate main --format json perf.data | jq .count   one instruction a line, for programs")]
pub struct Args {
    /// The function: its name with * and ? as wildcards.
    #[arg(value_name = "FUNCTION")]
    function: String,

    #[command(flatten)]
    hardware: HardwareArgs,

    /// Where the sources are, if not where they were compiled: their paths, or ends of their paths, below this directory.
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// Prints the functions with the given name.
///
/// # Errors
/// When the input can't be read, or no binary has such a function.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input,
        binaries,
        decode,
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &args.symbols, true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let mut programs = Programs::new(&mut opened);
    let functions = programs.named(&opened.buffers, &args.function);
    if functions.is_empty() {
        return Err(no_function(&args.function, &programs));
    }
    let (counted, findings) = counting::count(&opened, &args.part, *decode, context)?;
    // A file that is mapped at several addresses has its functions several times.
    let mut same: BTreeMap<(String, u64), Vec<Loaded>> = BTreeMap::new();
    for function in functions {
        let path = function.program.as_ref();
        let path = path.map_or(String::new(), |program| program.path.clone());
        let key = (path, function.linked);
        same.entry(key).or_default().push(function);
    }
    let mut sources = Sources {
        below: args.source.clone(),
        files: HashMap::new(),
    };
    // In a damaged file, each function can be as large as the file, so the listing is limited by the size of the
    // code.
    let mut room = Programs::code_bytes(&opened.buffers).saturating_mul(2);
    let mut left_out = 0;
    for functions in same.values() {
        let size = functions.first().map_or(0, |it| it.end - it.start);
        let code = functions
            .first()
            .map_or(0, |it| it.code.images().map(|it| it.bytes.len()).sum());
        match room.checked_sub(size.min(code as u64)) {
            Some(rest) => room = rest,
            None => {
                left_out += 1;
                continue;
            }
        }
        let found = annotate(functions, &counted, &mut programs);
        match args.format.format {
            Format::Text => text(&found, &mut sources, context)?,
            Format::Json => json(&found, context)?,
        }
    }
    if left_out > 0 {
        context.warn(format_args!(
            "{} left out: by their sizes they have more code than there is: their file is damaged",
            number_of(left_out, "function")
        ));
    }
    findings.verdict()
}

/// A function with its instructions.
struct Annotated<'a> {
    function: &'a Loaded,
    lines: Vec<Line>,
}

/// An instruction.
struct Line {
    address: u64,
    tally: Tally,
    opcode: Opcode,
    /// Opcode and text in listing format.
    listing: String,
    /// Its text, if the disassembler knows it.
    text: Option<String>,
    location: Option<Location>,
}

fn annotate<'a>(
    functions: &'a [Loaded],
    counted: &[Counted<'_>],
    programs: &mut Programs,
) -> Annotated<'a> {
    let function = &functions[0];
    let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
    for other in functions {
        let mut ran = BTreeMap::new();
        for counted in counted {
            tally(&mut ran, counted, other, programs);
        }
        // All instances are shown at the addresses of the first one.
        for (address, tally) in ran {
            let address = address
                .wrapping_sub(other.start)
                .wrapping_add(function.start);
            let sum = tallies.entry(address).or_default();
            sum.count += tally.count;
            sum.isa = tally.isa;
            if let Some(theirs) = tally.branch {
                let branch = sum.branch.get_or_insert_default();
                branch.taken += theirs.taken;
                branch.not_taken += theirs.not_taken;
                branch.is_conditional |= theirs.is_conditional;
            }
        }
    }
    let code = function.code.seen(View::default());
    let lines = listing(function, code, &tallies, programs);
    Annotated { function, lines }
}

/// All instructions of a function, including those that were not executed.
fn listing(
    function: &Loaded,
    code: Scene<'_>,
    tallies: &BTreeMap<u64, Tally>,
    programs: &mut Programs,
) -> Vec<Line> {
    let mut disassembler = Disassembler::default();
    let mut lines = Vec::new();
    let ran = tallies.values().next().map(|tally| tally.isa);
    let isa = ran.or(function.isa).unwrap_or(Isa::A64);
    let mut address = function.start;
    while address < function.end {
        let bytes = code.at(MemorySpace::ANY, address).unwrap_or_default();
        let tally = tallies.get(&address).copied().unwrap_or_default();
        let found = instruction::decode(isa, address, bytes, Waypoints::default());
        let Some(found) = found else { break };
        let size = u64::from(found.size);
        let place = programs.place(code, address);
        let is_data = is_data(place.as_ref());
        if !is_data || tally.count > 0 {
            let mut listing = String::new();
            disassembler.write(isa, address, bytes, &mut listing);
            let text = disassembler.text(isa, address, bytes);
            lines.push(Line {
                address,
                tally,
                opcode: Opcode::of(isa, bytes.get(..size as usize).unwrap_or_default()),
                listing,
                text: text.map(str::to_owned),
                location: programs.location(place.as_ref(), address),
            });
        }
        address = address.saturating_add(size);
    }
    lines
}

/// Whether the file marks this address as data within code.
pub(super) fn is_data(place: Option<&Place>) -> bool {
    place.is_some_and(|place| {
        let layout = place.program.layout.as_ref();
        layout.and_then(|layout| layout.isa_at(place.address)) == Some(None)
    })
}

fn text(found: &Annotated<'_>, sources: &mut Sources, context: &mut Context) -> Result<(), Report> {
    let Annotated { function, lines } = found;
    let ran = lines.iter().filter(|line| line.tally.count > 0).count() as u64;
    let entries = lines.first().map_or(0, |line| line.tally.count);
    let executed: u64 = lines.iter().map(|line| line.tally.count).sum();
    let file = function.program.as_ref();
    let file = file.map_or("symbols", |program| program.path.as_str());
    let (out, palette) = context.out();
    let heading = palette.heading;
    writeln!(
        out,
        "{heading}{}{heading:#}  {}: entered {}, {executed} instructions executed, {ran} of {} ran",
        escaped(&function.name),
        escaped(file),
        number_of(entries, "time"),
        number_of(lines.len() as u64, "instruction")
    )?;
    writeln!(out, "{heading}     COUNT  TAKEN{heading:#}")?;
    let mut before: Option<&Location> = None;
    for line in lines {
        if let Some(location) = line.location.as_ref().filter(|here| Some(*here) != before) {
            let code = sources.line(location);
            let place = location.to_string();
            let file = place.rsplit(['/', '\\']).next().unwrap_or_default();
            let line = format!("{:18}{}  {}", "", escaped(file), escaped(&code));
            writeln!(out, "{}", line.trim_end())?;
            before = Some(location);
        }
        let count = match line.tally.count {
            0 => "-".to_owned(),
            count => count.to_string(),
        };
        let taken = match line.tally.branch {
            Some(branch) if branch.is_conditional => {
                let all = (branch.taken + branch.not_taken).max(1);
                format!("{:.0} %", 100.0 * branch.taken as f64 / all as f64)
            }
            _ => String::new(),
        };
        let text = format!(
            "{count:>10} {taken:>6}  {:8x}  {}",
            line.address, line.listing
        );
        writeln!(out, "{}", text.trim_end())?;
    }
    writeln!(out)?;
    Ok(())
}

fn json(found: &Annotated<'_>, context: &mut Context) -> Result<(), Report> {
    let Annotated { function, lines } = found;
    let file = function
        .program
        .as_ref()
        .map(|program| program.path.as_str());
    let mut out = Vec::new();
    for line in lines {
        out.clear();
        let opcode = match line.opcode {
            Opcode::Word(word) => format!("{word:08x}"),
            Opcode::Half(half) => format!("{half:04x}"),
            Opcode::Halves(first, second) => format!("{first:04x}{second:04x}"),
        };
        let mut object = Object::begin(&mut out);
        object
            .member("function", function.name.as_str())
            .member("file", file)
            .member("address", line.address)
            .member("function_offset", line.address.wrapping_sub(function.start))
            .member("opcode", opcode.as_str())
            .member("text", line.text.as_deref())
            .member("count", line.tally.count)
            .member("taken", line.tally.branch.map(|branch| branch.taken))
            .member(
                "not_taken",
                line.tally.branch.map(|branch| branch.not_taken),
            )
            .member(
                "source",
                line.location.as_ref().map(|place| place.file.as_str()),
            )
            .member("line", line.location.as_ref().and_then(|place| place.line));
        object.end();
        out.push(b'\n');
        context.out().0.write_all(&out)?;
    }
    Ok(())
}

/// The lines of source files, read when first needed.
struct Sources {
    below: Option<PathBuf>,
    files: HashMap<String, Vec<String>>,
}

/// Maximum size of a source file, in bytes.
const LARGEST_SOURCE: u64 = 16 << 20;

impl Sources {
    /// A line; empty if its file is missing.
    fn line(&mut self, location: &Location) -> String {
        let Some(number) = location.line else {
            return String::new();
        };
        if !self.files.contains_key(&location.file) {
            let text = self.read(&location.file).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().map(str::to_owned).collect();
            self.files.insert(location.file.clone(), lines);
        }
        let lines = self.files.get(&location.file);
        let line = lines.and_then(|lines| lines.get((number as usize).checked_sub(1)?));
        line.cloned().unwrap_or_default()
    }

    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let read = |path: &Path| kymo_symbols::read_file(path, LARGEST_SOURCE).ok();
        let Some(below) = &self.below else {
            return read(Path::new(file));
        };
        let parts: Vec<&str> = file
            .split(['/', '\\'])
            .filter(|part| !part.is_empty() && *part != "." && *part != "..")
            .collect();
        (0..parts.len()).find_map(|skip| {
            let path: PathBuf = parts.get(skip..)?.iter().collect();
            read(&below.join(path))
        })
    }
}
