//! Kernel modules: relocatable files, laid out and relocated as the kernel does it, as far as instruction flow needs
//! it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use object::elf::{
    R_AARCH64_CALL26, R_AARCH64_CONDBR19, R_AARCH64_JUMP26, R_AARCH64_TSTBR14, R_ARM_CALL,
    R_ARM_JUMP24, RelocationType, SHF_ALLOC, SHF_EXECINSTR,
};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SectionFlags, SectionIndex, SectionKind, SymbolIndex,
};

use super::super::Mapping;
use super::kernel::module_name;
use super::{Files, NotFound, first_of};
use crate::memory::{Bytes, Image, MemorySpace};

/// Whether a kernel mapping is a module.
pub(super) fn is_module(path: &str) -> bool {
    path.ends_with(".ko") || path.contains(".ko.") || path.starts_with('[')
}

impl Files {
    /// Images of a module: its code sections.
    pub(super) fn module(&mut self, mapping: &Mapping) -> Result<Vec<Image>, NotFound> {
        // A copy of memory has the module as it ran.
        let ran = self.core.iter().find_map(|image| {
            let within = mapping.address.checked_sub(image.address)?;
            (within < image.bytes.len() as u64).then(|| Image {
                name: mapping.path.clone(),
                address: mapping.address,
                file_offset: image.file_offset + within,
                bytes: image.bytes.part(within, mapping.length),
                space: MemorySpace::ANY,
            })
        });
        if let Some(ran) = ran {
            return Ok(vec![ran]);
        }
        let mut places = self.places(&mapping.path, &mapping.build_id);
        let name = module_name(&mapping.path);
        if mapping.path.starts_with('[') {
            let roots = self.roots.iter();
            places.extend(roots.map(|root| root.join(format!("{name}.ko"))));
        }
        let path = places.first().cloned().unwrap_or_default();
        let file = first_of(places, &mapping.build_id).or_else(|why| {
            // Any directory, compressed or not.
            let own = Path::new(&mapping.path).file_name().map(PathBuf::from);
            let plain = PathBuf::from(format!("{name}.ko"));
            let mut names = own.into_iter().chain([plain]);
            let found = names.find_map(|name| self.named(&name, &mapping.build_id));
            found.ok_or(why)
        });
        let file = self.checked(mapping, file)?;
        let images = self.sections(mapping, &name, &file);
        images.ok_or(NotFound::NotCode { path })
    }

    fn sections(&self, mapping: &Mapping, module: &str, file: &Bytes) -> Option<Vec<Image>> {
        let elf = object::File::parse(&**file).ok()?;
        let code: Vec<_> = elf
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .collect();
        let mut bases = laid_out(&elf, mapping.address);
        for section in &code {
            // The kernel's list of the module's symbols gives the addresses of its sections.
            let mut symbols = elf.symbols().filter(|symbol| {
                symbol.section_index() == Some(section.index()) && symbol.is_definition()
            });
            let listed = symbols.find_map(|symbol| {
                let address = self.symbol(symbol.name().ok()?, Some(module))?;
                Some(address.wrapping_sub(symbol.address() & !1))
            });
            if let Some(base) = listed {
                bases.insert(section.index(), base);
            }
        }
        let mut relocated = file.to_vec();
        for section in &code {
            let Some((base, (offset, size))) = bases
                .get(&section.index())
                .copied()
                .zip(section.file_range())
            else {
                continue;
            };
            for (at, relocation) in section.relocations().filter(|(at, _)| *at < size) {
                let target = match relocation.target() {
                    RelocationTarget::Symbol(symbol) => self.target(&elf, symbol, &bases),
                    _ => None,
                };
                let target = target.map(|target| target.wrapping_add_signed(relocation.addend()));
                let place = offset
                    .checked_add(at)
                    .and_then(|at| usize::try_from(at).ok());
                let Some((RelocationFlags::Elf { r_type }, place)) =
                    Some(relocation.flags()).zip(place)
                else {
                    continue;
                };
                relocate(&mut relocated, place, r_type, base.wrapping_add(at), target);
            }
        }
        if elf.is_64() && elf.is_little_endian() {
            place(&mut relocated, &bases);
        }
        let relocated = Bytes::from(relocated);
        let images: Vec<_> = code
            .iter()
            .filter_map(|section| {
                let base = *bases.get(&section.index())?;
                let (offset, size) = section.file_range()?;
                (size > 0).then(|| Image {
                    name: mapping.path.clone(),
                    address: base,
                    file_offset: offset,
                    bytes: relocated.part(offset, size),
                    space: MemorySpace::ANY,
                })
            })
            .collect();
        (!images.is_empty()).then_some(images)
    }

    /// Address of a symbol in the running kernel, if known.
    fn target(
        &self,
        elf: &object::File<'_>,
        symbol: SymbolIndex,
        bases: &HashMap<SectionIndex, u64>,
    ) -> Option<u64> {
        let symbol = elf.symbol_by_index(symbol).ok()?;
        match symbol.section_index() {
            Some(section) => Some(bases.get(&section)?.wrapping_add(symbol.address())),
            None => self.symbol(symbol.name().ok()?, None),
        }
    }
}

/// Size in bytes of the kernel's veneer for a function out of reach of a branch (AArch64).
const VENEER: u64 = 12;

/// Addresses of the code sections of a module that begins at `start`, as the kernel lays them out: one after another in
/// file order, each with its alignment; initialization sections are elsewhere. AArch64's `.plt` and
/// `.text.ftrace_trampoline` are empty in the file; the kernel reserves space there for veneers: one for each function
/// outside of the module, and one more.
fn laid_out(elf: &object::File<'_>, start: u64) -> HashMap<SectionIndex, u64> {
    let mut bases = HashMap::new();
    let mut at = start;
    for section in elf.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            return bases;
        };
        let wanted = SHF_ALLOC | SHF_EXECINSTR;
        let name = section.name().unwrap_or_default();
        if sh_flags & wanted != wanted || name.starts_with(".init") {
            continue;
        }
        let (align, size) = match name {
            ".plt" => (64, (far_calls(elf) + 1) * VENEER),
            ".text.ftrace_trampoline" => (4, VENEER),
            _ => (section.align().max(1), section.size()),
        };
        at = at.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        bases.insert(section.index(), at);
        at = at.saturating_add(size);
    }
    bases
}

/// Number of functions outside of a module that its code, except for its initialization, branches to.
fn far_calls(elf: &object::File<'_>) -> u64 {
    let sections = elf.sections();
    let code = sections.filter(|section| {
        let is_init = section.name().is_ok_and(|name| name.starts_with(".init"));
        section.kind() == SectionKind::Text && !is_init
    });
    let mut functions = HashSet::new();
    for section in code {
        for (_, relocation) in section.relocations() {
            let is_branch = matches!(
                relocation.flags(),
                RelocationFlags::Elf {
                    r_type: R_AARCH64_CALL26 | R_AARCH64_JUMP26
                }
            );
            if is_branch
                && let RelocationTarget::Symbol(index) = relocation.target()
                && let Ok(symbol) = elf.symbol_by_index(index)
                && symbol.section_index() != Some(section.index())
            {
                functions.insert((section.index(), index));
            }
        }
    }
    functions.len() as u64
}

/// Little-endian fields of an ELF file, modified in place.
struct Fields<'f>(&'f mut [u8]);

impl Fields<'_> {
    fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk::<N>().copied()
    }

    fn half(&self, at: usize) -> Option<u16> {
        self.get(at).map(u16::from_le_bytes)
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.get(at).map(u32::from_le_bytes)
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.get(at).map(u64::from_le_bytes)
    }

    /// Number that is an offset in the file, or a size.
    fn offset(&self, at: usize) -> Option<usize> {
        usize::try_from(self.number(at)?).ok()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len());
        if let Some(place) = self.0.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
    }
}

/// Writes addresses of sections and symbols into a 64-bit ELF file and changes its type to a linked file, so that
/// readers of its symbols get run-time addresses. `None` if the file ends before its tables.
fn place(file: &mut [u8], bases: &HashMap<SectionIndex, u64>) -> Option<()> {
    let mut file = Fields(file);
    // System V ABI, ELF-64: e_type at 16, e_shoff at 40, e_shentsize at 58, e_shnum at 60.
    file.put(16, &object::elf::ET_EXEC.0.to_le_bytes());
    let table = file.offset(40)?;
    let size = usize::from(file.half(58)?);
    for index in 0..usize::from(file.half(60)?) {
        let header = table.checked_add(index.checked_mul(size)?)?;
        // Section header: sh_type at 4, sh_addr at 16, sh_offset at 24, sh_size at 32.
        if let Some(base) = bases.get(&SectionIndex(index)) {
            file.put(header.checked_add(16)?, &base.to_le_bytes());
        }
        if file.word(header.checked_add(4)?)? != object::elf::SHT_SYMTAB.0 {
            continue;
        }
        let start = file.offset(header.checked_add(24)?)?;
        let end = start.checked_add(file.offset(header.checked_add(32)?)?)?;
        // Symbol of 24 bytes: st_shndx at 6, st_value at 8.
        for symbol in (start..end.min(file.0.len())).step_by(24) {
            let section = file.half(symbol.checked_add(6)?)?;
            let value = file.number(symbol.checked_add(8)?)?;
            if let Some(base) = bases.get(&SectionIndex(usize::from(section))) {
                let address = base.wrapping_add(value);
                file.put(symbol.checked_add(8)?, &address.to_le_bytes());
            }
        }
    }
    Some(())
}

/// BR XZR and BLR XZR: placeholders for branches with an unknown target.
const BR: u32 = 0xd61f_03e0;
const BLR: u32 = 0xd63f_03e0;

/// Writes the target into a branch. A branch with an unknown target becomes an indirect one, because its unrelocated
/// offset would lead to itself; so the flow stops there until the trace has an address.
fn relocate(
    bytes: &mut [u8],
    place: usize,
    kind: RelocationType,
    address: u64,
    target: Option<u64>,
) {
    let Some(word) = bytes
        .get_mut(place..)
        .and_then(|rest| rest.first_chunk_mut::<4>())
    else {
        return;
    };
    let code = u32::from_le_bytes(*word);
    let offset = target.map(|target| target.wrapping_sub(address).cast_signed());
    // Offset of `bits` bits in units of `unit` bytes. The kernel uses a veneer for targets out of reach.
    let field = |bits: u32, unit: i64| {
        let value = offset? / unit;
        let reach = 1i64 << (bits - 1);
        let mask = (1u32 << bits) - 1;
        (-reach..reach)
            .contains(&value)
            .then_some(value as u32 & mask)
    };
    let branch = |field: Option<u32>, otherwise: u32| match field {
        Some(field) => code & 0xfc00_0000 | field,
        None => otherwise,
    };
    let code = match kind {
        R_AARCH64_CALL26 => branch(field(26, 4), BLR),
        R_AARCH64_JUMP26 => branch(field(26, 4), BR),
        R_AARCH64_CONDBR19 => match field(19, 4) {
            Some(field) => code & !(0x7_ffff << 5) | field << 5,
            None => return,
        },
        R_AARCH64_TSTBR14 => match field(14, 4) {
            Some(field) => code & !(0x3fff << 5) | field << 5,
            None => return,
        },
        // A32: relative to the address two instructions later. The addend for this is in the instruction.
        R_ARM_CALL | R_ARM_JUMP24 => {
            let offset = offset.map(|offset| (offset - 8) / 4);
            match offset.filter(|offset| (-(1 << 23)..1 << 23).contains(offset)) {
                Some(field) => code & 0xff00_0000 | field as u32 & 0xff_ffff,
                None => return,
            }
        }
        _ => return,
    };
    *word = code.to_le_bytes();
}
