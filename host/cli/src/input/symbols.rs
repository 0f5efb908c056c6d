//! Symbols for an input: files that the user names, files left by a build, and symbols in the trace itself.

use std::path::{Path, PathBuf};

use kymo_event::{Addr, Mapping, SpaceId, SpaceKind, TraceInfo};
use kymo_symbols::{Place, Symbols, UnmarkedJumps};

use super::{FORMAT, hex, images};
use crate::args::SymbolArgs;
use crate::context::Context;
use crate::diagnostic::Report;

/// The ELF file of a Zephyr build, relative to the application's directory.
const DEFAULT_ELF: &str = "build/zephyr/zephyr.elf";

/// The format whose traces may introduce the files of processes while they are read (LTTng).
pub const CTF: &str = "ctf";

/// The path of Zephyr's ELF file in the build directory.
const BUILT_ELF: &str = "zephyr/zephyr.elf";

impl SymbolArgs {
    /// Whether any file was given.
    pub fn any(&self) -> bool {
        !self.elf.is_empty() || !self.symbols.is_empty() || self.build_dir.is_some()
    }

    /// The files that were given.
    pub fn files(&self) -> Vec<PathBuf> {
        let built = self.build_dir.as_ref().map(|dir| dir.join(BUILT_ELF));
        let given = self.elf.iter().chain(&self.symbols).cloned();
        given.chain(built).collect()
    }

    /// Reads the files of symbols for a trace with this `info`.
    ///
    /// Warns if one is of another build than the traced program, and if the program jumps without marks in the trace.
    /// Without any file, the ELF file of a Zephyr build is used if its build id is the trace's, or if the trace is of
    /// Zephyr's own instrumentation, which has none. Names in the trace itself are in its
    /// [`Identities`](kymo_event::Identities).
    ///
    /// # Errors
    /// When a file can't be read or contains no symbols.
    pub fn load(&self, info: &TraceInfo, context: &Context) -> Result<Symbols, Report> {
        let mut symbols = Symbols::new();
        // Files of processes, with their load addresses.
        let placed = Symbols::new();
        let mut rest = Vec::new();
        let mut same = false;
        for path in self.files() {
            let file = Symbols::open(&path).map_err(|error| unreadable(&error))?;
            let count = file.functions().count();
            context.detail(format_args!("{}: {count} functions", path.display()));
            if info.settled_symbols.contains(&path) {
                continue;
            }
            let places = places(info, &path, &file);
            for (place, start) in &places {
                placed.merge(file.placed(*place, *start));
            }
            if !places.is_empty() {
                same = true;
                // An additional recording may not identify its program.
                if !any_program(info) {
                    continue;
                }
            }
            same |= file.build_id().is_some() && file.build_id() == info.build_id.as_deref();
            rest.push((path, file));
        }
        let mappings = mappings(info);
        for (path, file) in rest {
            if let (Some(found), Some(traced)) = (file.build_id(), &info.build_id)
                && found != traced
            {
                // Each file of a process is identified by its build id; elsewhere a boot loader may be given beside
                // the program.
                if same && !mappings.is_empty() {
                    context.warn(format_args!(
                        "{} is not used: its build id {} is that of no file of the traced process",
                        path.display(),
                        hex(found)
                    ));
                    continue;
                }
                if !same {
                    context.warn(format_args!(
                        "{} is another build than the traced program: its build id is {}, the trace says {}; \
                         names may be wrong",
                        path.display(),
                        hex(found),
                        hex(traced)
                    ));
                }
            }
            symbols.merge(file);
        }
        let default = Path::new(DEFAULT_ELF);
        if symbols.is_empty()
            && info.format == kymo_read::zephyr_instrumentation::FORMAT
            && default.exists()
        {
            match Symbols::open(default) {
                Ok(file) => {
                    context.note(format_args!(
                        "names are taken from {DEFAULT_ELF}; the target does not tell its build, so \
                         make sure that it runs that one (--elf names another)"
                    ));
                    symbols = file;
                }
                Err(error) => context.warn(Report::caused_by(&error).message()),
            }
        }
        if symbols.is_empty() && info.build_id.is_some() && default.exists() {
            match Symbols::open(default) {
                Ok(file) if file.build_id() == info.build_id.as_deref() => {
                    context.detail(format_args!("names are taken from {DEFAULT_ELF}"));
                    symbols = file;
                }
                Ok(_) => context.detail(format_args!("{DEFAULT_ELF} is another build: not used")),
                Err(error) => context.warn(Report::caused_by(&error).message()),
            }
        }
        if let Some(text_base) = info.text_base {
            symbols.set_text_base(text_base);
        }
        // A file of another name is taken for the program, which is the first mapping of a process.
        let has_program = !symbols.is_empty();
        symbols.merge(placed);
        let is_program = |(place, _): &(Place, &Mapping)| place.mapping == Some(0);
        let (program, libraries): (Vec<_>, Vec<_>) = mappings.into_iter().partition(is_program);
        let is_new = |(place, _): &(Place, &Mapping)| !symbols.knows(*place);
        let program = program.into_iter().filter(|_| !has_program);
        let program = program.filter(is_new);
        symbols.merge(images::load(program, &self.debug_dir, context));
        // Checked before libraries are added, because the C library defines these functions, but is no program that
        // calls them.
        if info.format == FORMAT
            && let Some(jumps) = symbols.unmarked_jumps()
        {
            context.warn(unmarked(jumps));
        }
        if info.format == FORMAT
            && let Some(function) = symbols.switches_stacks()
        {
            context.warn(several_stacks(function));
        }
        let libraries = libraries.into_iter().filter(is_new);
        symbols.merge(images::load(libraries, &self.debug_dir, context));
        Ok(symbols)
    }

    /// Adds the files of a live process to the symbols that were [loaded](Self::load) before its trace named them: all
    /// mappings from number `from` on. Returns the number of mappings so far.
    pub fn load_mapped(
        &self,
        info: &TraceInfo,
        symbols: &Symbols,
        from: usize,
        note: &mut dyn FnMut(String),
    ) -> usize {
        let mappings = mappings(info);
        let has_program = !symbols.is_empty();
        for (place, mapping) in mappings.iter().skip(from) {
            let is_given = has_program && place.mapping == Some(0);
            if is_given || symbols.knows(*place) {
                continue;
            }
            let found = images::find(mapping, &self.debug_dir);
            found.refused.into_iter().for_each(&mut *note);
            match found.other {
                Some(build_id) => note(images::other_build(mapping, &build_id)),
                None if found.symbols.is_empty() => note(images::absent(&images::file(mapping))),
                None => {}
            }
            symbols.merge(found.symbols.placed(*place, mapping.start));
        }
        mappings.len()
    }
}

/// The report on a file of symbols that cannot be read.
pub fn unreadable(error: &kymo_symbols::Error) -> Report {
    Report::caused_by(error).help(
        "--elf takes the program's ELF file, --symbols the output of nm, a linker map, System.map or kallsyms",
    )
}

/// The files of the processes, for recordings of processes.
fn mappings(info: &TraceInfo) -> Vec<(Place, &Mapping)> {
    let spaces = (0..).map(SpaceId).zip(info.identities.spaces());
    let ours = spaces.filter(|_| info.format == FORMAT);
    let mappings = ours.flat_map(|(space, known)| {
        let place = move |mapping| Place {
            space,
            mapping: Some(mapping),
        };
        (0..).map(place).zip(&known.mappings)
    });
    mappings.collect()
}

/// The spaces and load addresses of a file in a trace: each mapping with its build id, or with its name if the trace
/// has no build id; in a space without mappings, the program. In a trace of a single program there are none, because
/// the file applies to the whole trace.
fn places(info: &TraceInfo, path: &Path, file: &Symbols) -> Vec<(Place, Addr)> {
    let spaces = info.identities.spaces();
    let mut places = Vec::new();
    for (number, space) in (0..).map(SpaceId).zip(spaces) {
        let is_it = |id: Option<&[u8]>| file.build_id().is_some() && id == file.build_id();
        for (index, mapping) in (0..).zip(&space.mappings) {
            if is_file(info, mapping, path, file) {
                let place = Place {
                    space: number,
                    mapping: Some(index),
                };
                places.push((place, mapping.start));
            }
        }
        if spaces.len() > 1 && space.mappings.is_empty() && is_it(space.build_id.as_deref()) {
            let place = Place {
                space: number,
                mapping: None,
            };
            places.push((place, space.text_base.unwrap_or_default()));
        }
    }
    places
}

/// Whether one of several recordings identifies neither the build nor the addresses of its program.
fn any_program(info: &TraceInfo) -> bool {
    let mut spaces = info.identities.spaces().iter();
    info.format.contains('+')
        && spaces.any(|space| {
            let is_reported = space.build_id.is_some() || !space.mappings.is_empty();
            space.kind == SpaceKind::Firmware && !is_reported
        })
}

/// Whether a file belongs to a mapping: by its build id, or by its name if the trace has no build id.
pub(super) fn is_file(info: &TraceInfo, mapping: &Mapping, path: &Path, file: &Symbols) -> bool {
    // Mappings of hardware trace are pieces of files.
    if ![FORMAT, CTF].iter().any(|format| info.is_of(format)) || mapping.offset != 0 {
        return false;
    }
    match &mapping.build_id {
        Some(traced) => file.build_id() == Some(traced),
        None => Path::new(&mapping.path).file_name() == path.file_name(),
    }
}

/// The message on the effect of a program's jumps on its traces, with the remedy.
fn unmarked(jumps: &UnmarkedJumps) -> String {
    let functions = jumps.functions().join(" and ");
    let mend = jumps.options().map_or(
        "there are no marks for this processor".to_owned(),
        |options| format!("link the program with {options} (see kymo.h)"),
    );
    format!(
        "the program calls {functions} without a mark in the trace: calls that the jump leaves \
         seem to go on, and those that end after it may be misnamed up to the end of the packet; \
         {mend}"
    )
}

/// The message on the effect of several stacks in one thread on a program's traces.
fn several_stacks(function: &str) -> String {
    format!(
        "the program calls {function}, so that a thread has several stacks, and nothing in the trace tells which is in use: calls of \
         one seem to be made by those of another, their times contain each other's, and a call that another stack's return \
         seemed to end may count twice"
    )
}

/// Facts about the program for a recording's metadata; `string_at` finds a constant string.
pub fn program<'s>(
    symbols: &'s Symbols,
    string_at: &'s dyn Fn(Addr) -> Option<String>,
) -> kymo_read::kymo::Program<'s> {
    let functions = symbols.functions();
    let events = symbols.declared_events();
    kymo_read::kymo::Program {
        functions: functions
            .map(|function| (function.address(), function.name()))
            .collect(),
        events: events.map(|(section, _)| section).collect(),
        string_at,
    }
}
