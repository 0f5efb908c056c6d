//! Procedure linkage tables: names the stubs through which a program calls functions of libraries.
//!
//! Stubs have no symbols. The relocations of the table (`.rela.plt`, `.rel.plt`) are in the order of its entries, and
//! name the target of each.

use object::{Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SymbolIndex};

use crate::name::demangle;
use crate::table::{Binding, Candidate};

/// The stubs of a program, each as a function `printf@plt`.
pub(crate) fn stubs<'d>(file: &impl Object<'d>) -> Vec<Candidate> {
    let names = names(file);
    let Some((start, size, entry)) = entries(file, names.len() as u64) else {
        return Vec::new();
    };
    let stubs = (0..).zip(names).filter_map(|(index, name)| {
        Some(Candidate {
            address: start.checked_add(entry * index)?,
            size: entry,
            name: format!("{}@plt", name?).into(),
            function: true,
            binding: Binding::Local,
            limit: start.checked_add(size)?,
        })
    });
    stubs.collect()
}

/// Address and size of a table's entries, and the size of one entry.
fn entries<'d>(file: &impl Object<'d>, count: u64) -> Option<(u64, u64, u64)> {
    // The first entry follows a header, the call of the dynamic linker. With indirect branch tracking, x86 has the
    // stubs in a separate table.
    let (section, header) = match file.architecture() {
        Architecture::Aarch64 | Architecture::Aarch64_Ilp32 => (".plt", 32),
        Architecture::Arm => (".plt", 20),
        Architecture::Riscv32 | Architecture::Riscv64 => (".plt", 32),
        Architecture::X86_64 | Architecture::X86_64_X32 | Architecture::I386 => {
            match file.section_by_name(".plt.sec") {
                Some(_) => (".plt.sec", 0),
                None => (".plt", 16),
            }
        }
        _ => return None,
    };
    let section = file.section_by_name(section)?;
    let size = section.size().checked_sub(header)?;
    let entry = size.checked_div(count)?;
    // Padding after the last entry is shorter than an entry.
    let is_table = matches!(entry, 12 | 16 | 20 | 24) && size - entry * count < 16;
    is_table.then_some((section.address().checked_add(header)?, size, entry))
}

/// The names of the targets of the entries, in order; `None` for a target without a name.
fn names<'d>(file: &impl Object<'d>) -> Vec<Option<String>> {
    let find = |name, has_addend| Some((file.section_by_name(name)?, has_addend));
    let Some((section, has_addend)) = find(".rela.plt", true).or_else(|| find(".rel.plt", false))
    else {
        return Vec::new();
    };
    let (Ok(data), Some(symbols)) = (section.data(), file.dynamic_symbol_table()) else {
        return Vec::new();
    };
    let width = if file.is_64() { 8 } else { 4 };
    let size = width * if has_addend { 3 } else { 2 };
    let relocations = data.chunks_exact(size);
    relocations
        .map(|relocation| {
            let info = relocation.get(width..2 * width)?;
            let bytes = info.iter().copied();
            let add = |all: u64, byte: u8| all << 8 | u64::from(byte);
            let info = match file.is_little_endian() {
                true => bytes.rev().fold(0, add),
                false => bytes.fold(0, add),
            };
            let symbol = if file.is_64() { info >> 32 } else { info >> 8 };
            let symbol = SymbolIndex(usize::try_from(symbol).ok().filter(|it| *it > 0)?);
            let symbol = symbols.symbol_by_index(symbol).ok()?;
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            Some(demangle(name).into_owned())
        })
        .collect()
}
