//! Kernel images: from a copy of its memory (`kcore`), its `vmlinux`, or the `Image` that was booted.

use std::path::{Path, PathBuf};

use object::elf::PT_LOAD;
use object::read::elf::{ElfFile32, ElfFile64, FileHeader, ProgramHeader};
use object::{Object as _, ObjectSymbol as _};

use super::super::Mapping;
use super::{Files, NotFound, first_of, hex};
use crate::memory::{Bytes, Image, MemorySpace};

/// Prefix of perf's name of the kernel's own mapping: `[kernel.kallsyms]_text`.
const KERNEL: &str = "[kernel.kallsyms]";

/// Whether a kernel mapping is the kernel itself, not a module.
pub(super) fn is_kernel(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    path.starts_with("[kernel") || path.starts_with("[guest.kernel") || file.starts_with("vmlinux")
}

impl Files {
    /// Images of the kernel.
    pub(super) fn kernel(&mut self, mapping: &Mapping) -> Result<Vec<Image>, NotFound> {
        let directories = self.core_directories(mapping);
        self.find_symbols(&directories, mapping);
        for directory in &directories {
            let Ok(file) = crate::file::read(&directory.join("kcore")) else {
                continue;
            };
            let core: Vec<_> = segments(&Bytes::from(file), &mapping.path, 0);
            if !core.is_empty() {
                self.core.clone_from(&core);
                return Ok(core);
            }
        }
        let places = match &self.kernel {
            Some(kernel) => vec![kernel.clone()],
            None => self.kernel_places(mapping),
        };
        let path = places.first().cloned().unwrap_or_default();
        let file = self.checked(mapping, first_of(places, &mapping.build_id))?;
        let images = match is_boot_image(&file) {
            true => self.boot_image(mapping, &file),
            false => segments(&file, &mapping.path, self.moved(mapping, &file)),
        };
        match images.is_empty() {
            true => Err(NotFound::NotCode { path }),
            false => Ok(images),
        }
    }

    /// Directories that can have a copy of the kernel's memory, the newest first.
    fn core_directories(&self, mapping: &Mapping) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.kcore.iter().cloned().collect();
        if mapping.build_id.is_empty() {
            return all;
        }
        let id = hex(&mapping.build_id);
        for cache in &self.caches {
            let of_build = cache.join("[kernel.kcore]").join(&id);
            let entries = std::fs::read_dir(of_build).into_iter().flatten();
            // The directories are named by their creation time.
            let mut copies: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            copies.sort();
            all.extend(copies.into_iter().rev());
        }
        all
    }

    /// Possible locations of the kernel's ELF file: caches, and the paths of distributions.
    fn kernel_places(&self, mapping: &Mapping) -> Vec<PathBuf> {
        let mut places = self.cached(&mapping.build_id, &["elf", "vmlinux"]);
        let mut names = vec!["vmlinux".to_owned(), "boot/vmlinux".to_owned()];
        if let Some(release) = self.release.as_deref().filter(|name| !name.contains('/')) {
            names.extend([
                format!("boot/vmlinux-{release}"),
                format!("usr/lib/debug/boot/vmlinux-{release}"),
                format!("usr/lib/debug/lib/modules/{release}/vmlinux"),
                format!("lib/modules/{release}/build/vmlinux"),
            ]);
        }
        for root in &self.roots {
            // Without a build ID, accept only a file at the recorded path.
            if mapping.build_id.is_empty() {
                places.extend(super::below(&mapping.path).map(|below| root.join(below)));
            } else {
                places.extend(names.iter().map(|name| root.join(name)));
            }
        }
        places
    }

    /// Finds and stores the kernel's symbols.
    fn find_symbols(&mut self, directories: &[PathBuf], mapping: &Mapping) {
        let mut places: Vec<_> = directories
            .iter()
            .map(|directory| directory.join("kallsyms"))
            .collect();
        places.extend(self.cached(&mapping.build_id, &["kallsyms"]));
        let read = |path: &PathBuf| crate::file::read(path).ok();
        let found = places.iter().find_map(read);
        // An entry of the cache can also be an ELF file.
        let found = found.filter(|text| !text.starts_with(b"\x7fELF"));
        let Some(text) = found else {
            return;
        };
        for line in text.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let mut parts = line.split_ascii_whitespace();
            let address = parts.next().map(|part| u64::from_str_radix(part, 16));
            let (Some(Ok(address)), Some(name)) = (address, parts.nth(1)) else {
                continue;
            };
            let module = parts
                .next()
                .map(|part| part.trim_matches(['[', ']']).into());
            let known = self.addresses.entry(name.into()).or_default();
            known.push((module, address));
        }
        self.symbols = Some(text);
    }

    /// Run-time address of a symbol of the kernel, or of one of its modules.
    pub(super) fn symbol(&self, name: &str, module: Option<&str>) -> Option<u64> {
        let found = self.addresses.get(name)?;
        let wanted = |(of, _): &&(Option<Box<str>>, u64)| match module {
            Some(module) => of.as_deref() == Some(module),
            None => true,
        };
        found.iter().find(wanted).map(|(_, address)| *address)
    }

    /// Offset of the kernel's run-time addresses from its link addresses (KASLR).
    fn moved(&self, mapping: &Mapping, file: &[u8]) -> u64 {
        // The mapping's offset is the address of the symbol that follows the prefix of its name.
        let symbol = mapping.path.strip_prefix(KERNEL).unwrap_or_default();
        let is_named = !symbol.is_empty();
        let symbol = if is_named { symbol } else { "_text" };
        let linked = object::File::parse(file).ok().and_then(|file| {
            let mut symbols = file.symbols();
            let found = symbols.find(|other| other.name() == Ok(symbol));
            found.map(|symbol| symbol.address())
        });
        let ran = match is_named {
            true => Some(mapping.offset),
            false => self.symbol(symbol, None),
        };
        match (linked, ran) {
            (Some(linked), Some(ran)) => ran.wrapping_sub(linked),
            _ => 0,
        }
    }

    /// Image of the kernel from an `Image` file, which is its memory from `_text` on.
    fn boot_image(&self, mapping: &Mapping, file: &Bytes) -> Vec<Image> {
        let named = (mapping.path.strip_prefix(KERNEL) == Some("_text")).then_some(mapping.offset);
        let start = named.or_else(|| self.symbol("_text", None));
        vec![Image {
            name: mapping.path.clone(),
            address: start.unwrap_or(mapping.address),
            file_offset: 0,
            bytes: file.clone(),
            space: MemorySpace::ANY,
        }]
    }
}

/// Whether a file is an `Image` of AArch64 (Documentation/arch/arm64/booting.rst: the magic number at offset 56).
fn is_boot_image(file: &[u8]) -> bool {
    file.get(56..60) == Some(b"ARM\x64")
}

/// Loadable segments of an ELF file, as images. Empty for other files.
fn segments(file: &Bytes, name: &str, moved: u64) -> Vec<Image> {
    fn all<H: FileHeader>(header: &H, bytes: &[u8]) -> Option<Vec<(u64, u64, u64)>> {
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, bytes).ok()?;
        let loaded = segments
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
            .map(|segment| {
                (
                    segment.p_vaddr(endian).into(),
                    segment.p_offset(endian).into(),
                    segment.p_filesz(endian).into(),
                )
            });
        Some(loaded.collect())
    }
    let bytes: &[u8] = file;
    let found = match ElfFile64::<object::Endianness>::parse(bytes) {
        Ok(file) => all(file.elf_header(), bytes),
        Err(_) => ElfFile32::<object::Endianness>::parse(bytes)
            .ok()
            .and_then(|file| all(file.elf_header(), bytes)),
    };
    let images = found.unwrap_or_default().into_iter();
    images
        .filter(|(_, _, size)| *size > 0)
        .map(|(address, offset, size)| Image {
            name: name.to_owned(),
            address: address.wrapping_add(moved),
            file_offset: offset,
            bytes: file.part(offset, size),
            space: MemorySpace::ANY,
        })
        .collect()
}

/// Name of a module from its file name: `snd_timer` for `kernel/sound/core/snd-timer.ko.xz` or `[snd_timer]`.
pub(super) fn module_name(path: &str) -> String {
    let file = Path::new(path).file_name().unwrap_or_default();
    let file = file.to_string_lossy();
    let name = file.trim_matches(['[', ']']);
    let name = name.split(".ko").next().unwrap_or(name);
    name.replace('-', "_")
}
