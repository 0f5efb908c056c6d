//! Detects which functions of a program call the hooks that compilers insert, and whether the program defines these
//! hooks.
//!
//! A program can be compiled with hooks and still record nothing: the C library has empty hooks of its own, and the
//! linker uses the first definition. This module determines from the file alone how many functions call which hook, and
//! where the hook is.

mod calls;

use std::collections::BTreeSet;

use object::read::elf::{ElfFile32, ElfFile64};
use object::{
    Architecture, Endianness, Object, ObjectKind, ObjectSection, ObjectSymbol, ObjectSymbolTable,
    RelocationTarget, SymbolKind,
};

use crate::elf::{check_magic, is_code};
use crate::error::ElfError;
use crate::linkage;

/// Functions that compilers call at the beginning and end of functions: for `-finstrument-functions`, then the variants
/// of `-pg`.
pub const HOOKS: [&str; 6] = [
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "mcount",
    "_mcount",
    "__fentry__",
    "__gnu_mcount_nc",
];

/// Stands in for a hook's name: no-ops at the entries of functions, which a program can replace by calls.
pub const PATCHABLE: &str = "-fpatchable-function-entry";

/// The section with the addresses of these no-ops.
const PATCHABLE_ENTRIES: &str = "__patchable_function_entries";

/// The function that Kymo's `patchable.c` makes them call.
const PATCHED: &str = "kymo_patched";

/// A section that every program with Kymo's recorder has.
const NOTE: &str = ".note.kymo";

/// Hooks of a program, as found in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instrumentation {
    /// Its processor architecture.
    pub architecture: Architecture,
    /// Whether addresses have 64 bits.
    pub is_64: bool,
    /// Kind of file.
    pub kind: FileKind,
    /// Whether it is a program for Linux, not firmware. A guess if the file is stripped and has no note about it.
    pub runs_on_linux: bool,
    /// Whether Kymo's recorder is linked to it.
    pub has_recorder: bool,
    /// Number of functions in its symbols.
    pub functions: u64,
    /// The hooks that it calls or defines, in the order of [`HOOKS`], then [`PATCHABLE`] entries.
    pub hooks: Vec<Hook>,
    /// Patchable entries with no-ops in other places than Kymo's `patchable.c` expects: those functions are not recorded.
    pub misplaced: u64,
    /// The libraries that it needs, in the search order of the dynamic linker.
    pub needed: Vec<String>,
    /// Library search path, with `$ORIGIN` unexpanded.
    pub search: Vec<String>,
    /// Its build id.
    pub build_id: Option<Vec<u8>>,
}

/// Kinds of linked files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// It runs without a dynamic linker: firmware, or a static program.
    Static,
    /// A program with libraries that the dynamic linker loads.
    Dynamic,
    /// A shared library or plug-in.
    Library,
}

/// One of [`HOOKS`], or [`PATCHABLE`], in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: &'static str,
    /// Its calls; `None` if calls are not recognised for this architecture.
    pub calls: Option<Calls>,
    /// Its definition.
    pub place: HookPlace,
}

/// Calls of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Number of call sites.
    pub sites: u64,
    /// Number of named functions that contain these.
    pub functions: u64,
}

/// Location of a hook's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPlace {
    /// In the file.
    Own {
        /// Whether it returns at once, as those of the C library do.
        empty: bool,
    },
    /// In a library, or in the program that loads this one.
    Elsewhere,
    /// Nowhere: functions begin with no-ops, and the program has nothing that replaces them.
    Nowhere,
}

impl Instrumentation {
    /// Reads a linked ELF file.
    ///
    /// # Errors
    /// When it is not an ELF file, or damaged.
    pub fn of(data: &[u8]) -> Result<Self, ElfError> {
        check_magic(data)?;
        let damaged = |error: object::Error| ElfError::Damaged {
            bytes: data.len(),
            message: error.to_string(),
        };
        if data.get(4) == Some(&2) {
            let file = ElfFile64::<Endianness>::parse(data).map_err(damaged)?;
            read(&file)
        } else {
            let file = ElfFile32::<Endianness>::parse(data).map_err(damaged)?;
            read(&file)
        }
    }

    /// Whether the file exports a hook to other files.
    pub fn offers(&self, hook: &str) -> bool {
        let own = |it: &&Hook| matches!(it.place, HookPlace::Own { .. });
        self.hooks.iter().filter(own).any(|it| it.name == hook)
    }

    /// Whether a library is for the same architecture.
    pub fn fits(&self, library: &Self) -> bool {
        (self.architecture, self.is_64) == (library.architecture, library.is_64)
    }
}

fn read<'d>(file: &impl Object<'d>) -> Result<Instrumentation, ElfError> {
    if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
        return Err(ElfError::WrongKind {
            found: "a file that is not linked",
        });
    }
    let dynamic = Dynamic::of(file);
    let kind = if file.section_by_name(".interp").is_some() {
        FileKind::Dynamic
    } else if file.kind() == ObjectKind::Dynamic && !dynamic.is_program {
        FileKind::Library
    } else {
        FileKind::Static
    };
    let functions = functions(file);
    let slots = slots(file);
    let recorders = recorders_own(file);
    let hooks = HOOKS
        .iter()
        .filter_map(|name| hook(file, (&functions, &recorders), &slots, name));
    Ok(Instrumentation {
        architecture: file.architecture(),
        is_64: file.is_64(),
        kind,
        runs_on_linux: kind != FileKind::Static || runs_on_linux(file, functions.is_empty()),
        has_recorder: file.section_by_name(NOTE).is_some(),
        functions: functions.len() as u64,
        hooks: hooks.chain(patchable(file)).collect(),
        misplaced: misplaced(file, &functions),
        needed: dynamic.needed,
        search: dynamic.search,
        build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
    })
}

/// Whether a static program is for Linux. The C library's start files say so (glibc, with a note) or show it by their
/// names (musl); without either, and without names, processors decide: a static program of 64 bits or for i386 is
/// rarely firmware.
fn runs_on_linux<'d>(file: &impl Object<'d>, is_stripped: bool) -> bool {
    let is_pc = matches!(
        file.architecture(),
        Architecture::X86_64 | Architecture::I386
    );
    file.section_by_name(".note.ABI-tag").is_some()
        || file.symbol_by_name("__libc_start_main").is_some()
        || is_pc
        || (is_stripped && file.is_64())
}

/// Content of the dynamic section.
#[derive(Debug, Default)]
struct Dynamic {
    needed: Vec<String>,
    search: Vec<String>,
    /// Whether it is a program linked like a library, so that it can be loaded anywhere.
    is_program: bool,
}

impl Dynamic {
    fn of<'d>(file: &impl Object<'d>) -> Self {
        const NEEDED: u64 = 1;
        const RPATH: u64 = 15;
        const RUNPATH: u64 = 29;
        const FLAGS_1: u64 = 0x6fff_fffb;
        const PIE: u64 = 0x0800_0000;
        let mut found = Self::default();
        let section = |name| file.section_by_name(name)?.data().ok();
        let (Some(entries), Some(texts)) = (section(".dynamic"), section(".dynstr")) else {
            return found;
        };
        let width = if file.is_64() { 8 } else { 4 };
        let number = |bytes: &[u8]| {
            let add = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
            match file.is_little_endian() {
                true => bytes.iter().rev().fold(0, add),
                false => bytes.iter().fold(0, add),
            }
        };
        let text = |at: u64| {
            let rest = texts.get(usize::try_from(at).ok()?..)?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
        };
        for entry in entries.chunks_exact(2 * width) {
            let (tag, value) = entry.split_at(width);
            match (number(tag), number(value)) {
                (NEEDED, at) => found.needed.extend(text(at)),
                (RPATH | RUNPATH, at) => {
                    let folders = text(at).unwrap_or_default();
                    let folders = folders.split(':').filter(|folder| !folder.is_empty());
                    found.search.extend(folders.map(str::to_owned));
                }
                (FLAGS_1, flags) => found.is_program = flags & PIE != 0,
                _ => {}
            }
        }
        found
    }
}

/// Where the functions begin and end that have names, in order.
fn functions<'d>(file: &impl Object<'d>) -> Vec<(u64, u64)> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let mode = u64::from(file.architecture() == Architecture::Arm);
    let mut functions: Vec<(u64, u64)> = all
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| (symbol.address() & !mode, symbol.size()))
        .collect();
    functions.sort_unstable();
    functions.dedup_by_key(|function| function.0);
    functions
}

/// The words that the dynamic linker fills in with addresses of functions, by name.
fn slots<'d>(file: &impl Object<'d>) -> Vec<(&'static str, u64)> {
    let (Some(relocations), Some(symbols)) =
        (file.dynamic_relocations(), file.dynamic_symbol_table())
    else {
        return Vec::new();
    };
    let slots = relocations.filter_map(|(address, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return None;
        };
        let name = symbols.symbol_by_index(index).ok()?.name().ok()?;
        let name = HOOKS.iter().find(|hook| **hook == name)?;
        Some((*name, address))
    });
    slots.collect()
}

fn hook<'d>(
    file: &impl Object<'d>,
    (functions, recorders): (&[(u64, u64)], &BTreeSet<u64>),
    slots: &[(&'static str, u64)],
    name: &'static str,
) -> Option<Hook> {
    let mode = u64::from(file.architecture() == Architecture::Arm);
    let is_it = |symbol: &str| {
        // A linker's help for calls over a long way.
        symbol == name
            || symbol
                .strip_prefix("__")
                .and_then(|it| it.strip_suffix("_veneer"))
                == Some(name)
    };
    let all = || file.symbols().chain(file.dynamic_symbols());
    let mut targets = BTreeSet::new();
    let mut own = None;
    let mut mentioned = false;
    for symbol in all().filter(|symbol| symbol.name().is_ok_and(is_it)) {
        mentioned = true;
        if symbol.is_definition() {
            let address = symbol.address() & !mode;
            targets.insert(address);
            if symbol.name() == Ok(name) {
                own = Some(address);
            }
        }
    }
    let stub = format!("{name}@plt");
    let stubs = linkage::stubs(file);
    targets.extend(
        stubs
            .iter()
            .filter(|it| *it.name == *stub)
            .map(|it| it.address),
    );
    let slots: BTreeSet<u64> = slots
        .iter()
        .filter(|slot| slot.0 == name)
        .map(|slot| slot.1)
        .collect();
    if !mentioned {
        return None;
    }
    let finder = calls::Finder::new(file, targets, slots);
    let calls = finder.map(|finder| {
        let mut within = BTreeSet::new();
        let mut sites = 0;
        for section in file.sections().filter(is_code) {
            let is_stubs = section.name().is_ok_and(|name| name.starts_with(".plt"));
            let (false, Ok(data)) = (is_stubs, section.data()) else {
                continue;
            };
            finder.find(section.address(), data, &mut |address| {
                let next = functions.partition_point(|function| function.0 <= address);
                let function = next.checked_sub(1).and_then(|last| functions.get(last));
                if function.is_some_and(|function| recorders.contains(&function.0)) {
                    return;
                }
                sites += 1;
                within.extend(function.map(|function| function.0));
            });
        }
        Calls {
            sites,
            functions: within.len() as u64,
        }
    });
    let place = match own {
        Some(address) => HookPlace::Own {
            empty: code_at(file, address)
                .is_some_and(|code| calls::returns_at_once(file.architecture(), code)),
        },
        None => HookPlace::Elsewhere,
    };
    Some(Hook { name, calls, place })
}

/// The no-ops at the entries of functions, if there are any.
fn patchable<'d>(file: &impl Object<'d>) -> Option<Hook> {
    let width = if file.is_64() { 8 } else { 4 };
    let sites = file.section_by_name(PATCHABLE_ENTRIES)?.size() / width;
    let mut symbols = file.symbols();
    let patched = symbols.any(|it| it.is_definition() && it.name() == Ok(PATCHED));
    Some(Hook {
        name: PATCHABLE,
        calls: Some(Calls {
            sites,
            functions: sites,
        }),
        place: match patched {
            true => HookPlace::Own { empty: false },
            false => HookPlace::Nowhere,
        },
    })
}

/// Where the recorder's own functions begin, some of which call its hooks.
fn recorders_own<'d>(file: &impl Object<'d>) -> BTreeSet<u64> {
    let mode = u64::from(file.architecture() == Architecture::Arm);
    let own = file
        .symbols()
        .filter(|symbol| symbol.name().is_ok_and(is_recorders));
    own.map(|symbol| symbol.address() & !mode).collect()
}

/// Whether a function of this name is the recorder's: of one of its crates, or of `pg.c`.
fn is_recorders(name: &str) -> bool {
    const CRATES: [&str; 7] = [
        "kymo",
        "kymo_arch_aarch64",
        "kymo_arch_cortex_m",
        "kymo_arch_riscv",
        "kymo_minimal",
        "kymo_os_linux",
        "kymo_recorder",
    ];
    if ["kymo_pg_enter", "kymo_pg_exit"].contains(&name) {
        return true;
    }
    let is_digit = |letter: char| letter.is_ascii_digit();
    let path = if let Some(rest) = name.strip_prefix("_ZN") {
        let rest = rest.trim_start_matches(is_digit);
        rest.strip_prefix("_$LT$").unwrap_or(rest)
    } else if name.starts_with("_R") {
        // `_RNvCsHASH_4kymo5enter`: the first name is the crate's.
        let crate_at = name.find("_").and_then(|_| name.get(2..)?.find('_'));
        let rest = crate_at.and_then(|at| name.get(at + 3..)).unwrap_or("");
        rest.trim_start_matches(is_digit)
    } else {
        return false;
    };
    let end = path.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    CRATES.iter().any(|own| {
        let rest = path.strip_prefix(own);
        rest.is_some_and(|rest| rest.starts_with(is_digit) || end == Some(own.len()))
    })
}

/// The addresses of no-ops that functions begin with, if the file's words have 64 bits.
fn patchable_sites<'d>(file: &impl Object<'d>) -> Vec<u64> {
    let section = file
        .section_by_name(PATCHABLE_ENTRIES)
        .filter(|_| file.is_64());
    let Some((begin, data)) = section.and_then(|it| Some((it.address(), it.data().ok()?))) else {
        return Vec::new();
    };
    let word = |bytes: &[u8]| {
        let bytes: [u8; 8] = bytes.try_into().unwrap_or_default();
        match file.is_little_endian() {
            true => u64::from_le_bytes(bytes),
            false => u64::from_be_bytes(bytes),
        }
    };
    let mut sites: Vec<u64> = data.chunks_exact(8).map(word).collect();
    // The dynamic linker fills them in where the program can be loaded anywhere.
    for (address, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let at = address.checked_sub(begin).map(|offset| offset / 8);
        let site = at.and_then(|at| sites.get_mut(usize::try_from(at).ok()?));
        if let (Some(site), Ok(addend)) = (site, u64::try_from(relocation.addend()))
            && addend != 0
        {
            *site = addend;
        }
    }
    sites
}

/// Counts no-ops that do not lie at a function's entry as `patchable.c` expects them: five before it on x86-64, none on
/// AArch64. Functions without names are not counted.
fn misplaced<'d>(file: &impl Object<'d>, functions: &[(u64, u64)]) -> u64 {
    let begins = |at: u64| functions.binary_search_by_key(&at, |it| it.0).is_ok();
    let is_misplaced = |site: &u64| {
        // The largest number before an entry that compilers take is larger; nobody means that.
        let mut near = (0..64).map(|offset| site.wrapping_add(offset));
        match file.architecture() {
            Architecture::X86_64 => !begins(site.wrapping_add(5)) && near.any(begins),
            Architecture::Aarch64 => {
                !begins(*site) && !begins(site.wrapping_sub(4)) && near.any(begins)
            }
            _ => false,
        }
    };
    let sites = patchable_sites(file);
    sites.iter().filter(|site| is_misplaced(site)).count() as u64
}

/// The code from an address on.
fn code_at<'d>(file: &impl Object<'d>, address: u64) -> Option<&'d [u8]> {
    file.sections().filter(is_code).find_map(|section| {
        let skip = usize::try_from(address.checked_sub(section.address())?).ok()?;
        section
            .data()
            .ok()?
            .get(skip..)
            .filter(|code| !code.is_empty())
    })
}
