//! `kymo profile` of a dump of a target's memory, or of what a debug server reads of it: the table that the target
//! keeps itself, as far as it is in there.

use std::path::Path;
use std::process::ExitCode;

use kymo_read::kymo::MemoryTable;
use kymo_read::{OpenError, OpenOptions};

use super::{Args, keep, kept_note, show_kept};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::gdb;
use crate::input::{name_of, refused};
use crate::output::{Inputs, protect};

/// Whether an input is a dump of a target's memory: its address is given, or it is nothing else that is known, and a
/// program is given.
pub fn is_dump(args: &Args, path: &Path, options: &OpenOptions) -> bool {
    if args.memory.memory_address.is_some() {
        return true;
    }
    let is_unknown = || {
        matches!(
            kymo_read::open(path, options),
            Err(OpenError::Unknown { .. })
        )
    };
    !args.symbols.elf.is_empty() && path.is_file() && is_unknown()
}

/// Shows the table in a dump that is kept in `path`; `None` if the program has no table.
///
/// # Errors
/// When there is no recorder's memory in it, or its table is damaged.
pub fn show(args: &Args, path: &Path, context: &mut Context) -> Result<Option<ExitCode>, Report> {
    let program = gdb::program(&args.symbols)?;
    let memory = &args.memory;
    let table = MemoryTable::open(path, &program, memory.memory_address, &memory.memory);
    let table = table.map_err(|error| {
        refused(&error).help(
            "is it the ELF file of this very program, and are the recorder's buffers and table in the dump? \
             `kymo report` works out a table from the events in it",
        )
    })?;
    let Some(table) = table else { return Ok(None) };
    if let Some(output) = &args.output {
        let inputs = args.inputs(path);
        protect(&Inputs::of(&inputs, &args.symbols), output)?;
        keep(output, table.identity(), table.bytes())?;
        kept_note(output, table.bytes(), context);
    }
    let shown = show_kept(args, path, table.identity(), table.bytes(), context)?;
    let Some((first, more)) = table.damage().split_first() else {
        return Ok(Some(shown));
    };
    let more = match more.len() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let name = name_of(path);
    Err(Report::new(format_args!("{name}: {first}{more}"))
        .help("the functions of such slots are not in the table"))
}
