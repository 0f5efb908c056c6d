//! `kymo profile` for a dump of a target's memory, or for memory read through a debug server: extracts the target's own
//! profile table.

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

/// Whether an input is a dump of a target's memory: the options give its address, or they give a program and the file
/// has no known format.
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

/// Shows the table in the dump at `path`; `None` if the program has no table.
///
/// # Errors
/// When the dump does not contain the recorder's memory, or the table is damaged.
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
