//! The symbols that go with an input: those that are named, those that a build has left, and those that a
//! trace carries itself.

use std::path::Path;

use kymo_event::{Mapping, TraceInfo};
use kymo_symbols::{Symbols, UnmarkedJumps};

use super::{FORMAT, hex, images};
use crate::args::SymbolArgs;
use crate::context::Context;
use crate::diagnostic::Report;

/// Where the build of a Zephyr application leaves its ELF file, seen from its own directory.
const DEFAULT_ELF: &str = "build/zephyr/zephyr.elf";

/// Where that file is in the directory of the build.
const BUILT_ELF: &str = "zephyr/zephyr.elf";

impl SymbolArgs {
    /// Whether any file was given.
    pub fn any(&self) -> bool {
        !self.elf.is_empty() || !self.symbols.is_empty() || self.build_dir.is_some()
    }

    /// Reads the files of symbols, for a trace of which `info` is known.
    ///
    /// Says on stderr when one is of another build than the traced program, and when the program
    /// jumps without the trace telling. Without any file, the ELF that a Zephyr build leaves is taken if
    /// its build id is the trace's, or if the trace is of Zephyr's own instrumentation, which has none.
    /// Names that the trace itself carries are in its [`Identities`](kymo_event::Identities).
    ///
    /// # Errors
    /// When a file can't be read or is no file of symbols.
    pub fn load(&self, info: &TraceInfo, context: &Context) -> Result<Symbols, Report> {
        let mut symbols = Symbols::new();
        let mappings = mappings(info);
        // Files of the process, at their places, and those.
        let (mut placed, mut known) = (Symbols::new(), Vec::new());
        let mut others = Vec::new();
        let mut same = false;
        let built = self.build_dir.as_ref().map(|dir| dir.join(BUILT_ELF));
        for path in self.elf.iter().chain(&self.symbols).chain(&built) {
            let mut file = Symbols::open(path).map_err(|error| {
                Report::caused_by(&error).help(
                    "--elf takes the program's ELF file, --symbols the output of nm, a linker \
                     map, System.map or kallsyms",
                )
            })?;
            let count = file.functions().count();
            context.detail(format_args!("{}: {count} functions", path.display()));
            if let (Some(of_file), Some(traced)) = (file.build_id(), &info.build_id) {
                same |= of_file == traced;
                let is_mapped = |it: &&Mapping| it.build_id.as_deref() == Some(of_file);
                if let Some(mapping) = mappings.iter().find(is_mapped) {
                    same = true;
                    let start = mapping.start;
                    known.push(start);
                    file.set_text_base(start);
                    placed.merge(file);
                    continue;
                }
                if of_file != traced {
                    others.push((path, hex(of_file)));
                }
            }
            symbols.merge(file);
        }
        // Each file of a process is known by its build id; elsewhere a boot loader may be beside the program.
        if !mappings.is_empty() {
            same = false;
        }
        if let (false, Some(traced)) = (same, &info.build_id) {
            for (path, found) in others {
                context.warn(format_args!(
                    "{} is another build than the traced program: its build id is {found}, the \
                     trace says {}; names may be wrong",
                    path.display(),
                    hex(traced)
                ));
            }
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
        // What is named otherwise stands for the program, which is the first mapping.
        let has_program = !symbols.is_empty();
        symbols.merge(placed);
        let (program, libraries) = mappings.split_at(mappings.len().min(1));
        let is_new = |mapping: &&Mapping| !known.contains(&mapping.start);
        let program = program.iter().filter(|_| !has_program).filter(is_new);
        symbols.merge(images::load(program, &self.debug_dir, context));
        // Before the libraries come: the one of C has these functions, and is no program that calls them.
        if info.format == FORMAT
            && let Some(jumps) = symbols.unmarked_jumps()
        {
            context.warn(unmarked(jumps));
        }
        let libraries = libraries.iter().filter(is_new);
        symbols.merge(images::load(libraries, &self.debug_dir, context));
        Ok(symbols)
    }
}

/// The files of the process, where the trace is a recording of one.
fn mappings(info: &TraceInfo) -> &[Mapping] {
    let space = info.identities.spaces().first();
    let ours = space.filter(|_| info.format == FORMAT);
    ours.map_or(&[], |space| &space.mappings)
}

/// What a program's jumps do to its traces, and what mends it.
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
