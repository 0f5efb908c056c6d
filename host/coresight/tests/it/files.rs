//! Tests of the search for files: build-ID caches, copies of the kernel's memory, modules, and files of another build.

use std::fs;
use std::path::Path;

use kymo_coresight::memory::Image;
use kymo_coresight::perf::{Files, Mapping, NotFound};

const BUILD_ID: [u8; 20] = [0xab; 20];
const NOP: u32 = 0xd503_201f;
const BL: u32 = 0x9400_0000;

fn mapping(process: Option<u32>, address: u64, offset: u64, path: &str) -> Mapping {
    Mapping {
        process,
        address,
        length: 0x1000,
        offset,
        path: path.to_owned(),
        build_id: BUILD_ID.to_vec(),
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, bytes).expect("a file");
}

/// The instruction words of an image.
fn words(image: &Image) -> Vec<u32> {
    let words = image.bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// A section: name, type, flags, link, info, entry size, bytes.
type Section<'a> = (&'a str, u32, u64, u32, u32, u64, Vec<u8>);

/// Generator of an ELF file of AArch64: header, then segments (address, bytes) or sections.
struct Elf {
    bytes: Vec<u8>,
}

impl Elf {
    fn new(kind: u16) -> Self {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
        bytes[20] = 1;
        bytes[52] = 64;
        Elf { bytes }
    }

    /// Adds loaded segments.
    fn with_segments(mut self, segments: &[(u64, Vec<u8>)]) -> Vec<u8> {
        self.bytes[32] = 64;
        self.bytes[54] = 56;
        self.bytes[56] = segments.len() as u8;
        let mut offset = 64 + 56 * segments.len() as u64;
        for (address, bytes) in segments {
            let size = bytes.len() as u64;
            // PT_LOAD, readable and executable.
            self.bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]);
            for field in [offset, *address, 0, size, size, 4] {
                self.bytes.extend(field.to_le_bytes());
            }
            offset += size;
        }
        for (_, bytes) in segments {
            self.bytes.extend(bytes);
        }
        self.bytes
    }

    /// Adds sections.
    fn with_sections(mut self, sections: &[Section<'_>]) -> Vec<u8> {
        let mut names = vec![0];
        let mut headers = vec![[0u8; 64]];
        for (name, kind, flags, link, info, entry, bytes) in sections {
            let mut header = Vec::new();
            header.extend((names.len() as u32).to_le_bytes());
            header.extend(kind.to_le_bytes());
            for field in [*flags, 0, self.bytes.len() as u64, bytes.len() as u64] {
                header.extend(field.to_le_bytes());
            }
            header.extend(link.to_le_bytes());
            header.extend(info.to_le_bytes());
            header.extend(4u64.to_le_bytes());
            header.extend(entry.to_le_bytes());
            headers.push(header.try_into().expect("64 bytes"));
            names.extend(name.as_bytes());
            names.push(0);
            self.bytes.extend(bytes);
        }
        let mut header = [0; 64];
        header[4] = 3;
        header[24..32].copy_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(names.len() as u64).to_le_bytes());
        self.bytes.extend(names);
        headers.push(header);
        let table = self.bytes.len() as u64;
        self.bytes[40..48].copy_from_slice(&table.to_le_bytes());
        self.bytes[58] = 64;
        self.bytes[60] = headers.len() as u8;
        self.bytes[62] = headers.len() as u8 - 1;
        self.bytes.extend(headers.concat());
        self.bytes
    }
}

fn code(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A note with a build ID, like an executable that contains nothing else.
fn with_build_id(id: [u8; 20]) -> Vec<u8> {
    let mut note = code(&[4, 20, 3]);
    note.extend(b"GNU\0");
    note.extend(id);
    Elf::new(2).with_sections(&[(".note.gnu.build-id", 7, 2, 0, 0, 0, note)])
}

#[test]
fn a_file_that_does_not_say_its_build_is_warned_of() {
    let folder = tempfile::tempdir().expect("a directory");
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    let stripped = Elf::new(2).with_segments(&[(0x40_0000, code(&[NOP]))]);
    for name in ["bin/one", "bin/two"] {
        write(&root.join(name), &stripped);
    }
    let mut files = Files::below(vec![root.clone()]);
    let warnings = |files: &Files| -> Vec<String> {
        files.remarks().iter().map(ToString::to_string).collect()
    };
    // The recording has no build ID of the mapping.
    let mut unnamed = mapping(Some(1), 0x40_0000, 0, "/bin/one");
    unnamed.build_id.clear();
    files.images(&unnamed).expect("a file");
    assert_eq!(warnings(&files), [""; 0]);
    for (path, expected) in [
        (
            "/bin/one",
            "the file of /bin/one has no build ID, and the recording names one: whether it is what ran is not known",
        ),
        (
            "/bin/two",
            "the files of /bin/one and 1 more have no build ID, and the recording names one of each: whether they are what ran \
             is not known",
        ),
    ] {
        files
            .images(&mapping(Some(1), 0x40_0000, 0, path))
            .expect("a file");
        assert_eq!(warnings(&files), [expected]);
    }
    // A file with the right build ID is preferred, wherever it is.
    let entry = format!(".build-id/ab/{}", "ab".repeat(19));
    write(&cache.join(&entry).join("elf"), &with_build_id(BUILD_ID));
    let mut files = Files::below(vec![root]).with_caches(vec![cache]);
    files
        .images(&mapping(Some(1), 0x40_0000, 0, "/bin/one"))
        .expect("a file");
    assert_eq!(warnings(&files), [""; 0]);
}

#[test]
fn a_file_of_another_build_is_refused_and_the_cache_has_the_right_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    let of = mapping(Some(1), 0x40_0000, 0, "/bin/program");
    let find = || Files::below(vec![root.clone()]).with_caches(vec![cache.clone()]);
    assert_eq!(find().images(&of).unwrap_err(), NotFound::Nothing);
    write(&root.join("bin/program"), &with_build_id([1; 20]));
    let NotFound::OtherBuild { path, found } = find().images(&of).unwrap_err() else {
        panic!("it is of another build");
    };
    assert_eq!((path, found), (root.join("bin/program"), vec![1; 20]));
    let entry = format!(".build-id/ab/{}", "ab".repeat(19));
    write(&cache.join(&entry).join("elf"), &with_build_id(BUILD_ID));
    assert_eq!(find().images(&of).expect("a file").len(), 1);
    // A path can't leave its root directory.
    let outside = mapping(Some(1), 0x40_0000, 0, "/../cache/secret");
    write(&cache.join("secret"), &with_build_id([2; 20]));
    let mut files = Files::below(vec![root]);
    assert_eq!(files.images(&outside).unwrap_err(), NotFound::Nothing);
}

#[test]
fn the_vdso_comes_from_the_cache() {
    let folder = tempfile::tempdir().expect("a directory");
    let entry = format!(".build-id/ab/{}/vdso", "ab".repeat(19));
    write(&folder.path().join(entry), &with_build_id(BUILD_ID));
    let mut files = Files::below(Vec::new()).with_caches(vec![folder.path().to_owned()]);
    let images = files.images(&mapping(Some(1), 0xffff_0000, 0, "[vdso]"));
    assert_eq!(images.expect("a vdso").len(), 1);
}

const KERNEL: u64 = 0xffff_8000_0800_0000;
const MODULE: u64 = 0xffff_8000_0100_0000;

#[test]
fn a_copy_of_the_kernel_s_memory_has_modules_too() {
    let folder = tempfile::tempdir().expect("a directory");
    let copies = folder.path().join("[kernel.kcore]").join("ab".repeat(20));
    let core = Elf::new(4).with_segments(&[
        (KERNEL, code(&[NOP; 8])),
        (MODULE - 8, code(&[NOP, NOP, BL, NOP])),
    ]);
    write(&copies.join("2026010100000000/kcore"), b"damaged");
    write(&copies.join("2026010200000000/kcore"), &core);
    let list = "ffff800008000000 T _text\nffff800001000000 t init\t[thing]\n";
    write(&copies.join("2026010200000000/kallsyms"), list.as_bytes());
    let mut files = Files::below(Vec::new()).with_caches(vec![folder.path().to_owned()]);
    let kernel = mapping(None, KERNEL, KERNEL, "[kernel.kallsyms]_text");
    let images = files.images(&kernel).expect("a copy");
    assert_eq!(images.len(), 2);
    assert_eq!(
        (images[0].address, words(&images[0])),
        (KERNEL, vec![NOP; 8])
    );
    let module = mapping(None, MODULE, 0, "/lib/modules/6.1/thing.ko");
    let images = files.images(&module).expect("a module");
    assert_eq!(
        (images[0].address, words(&images[0])),
        (MODULE, vec![BL, NOP])
    );
    assert_eq!(files.kernel_symbols().as_deref(), Some(list.as_bytes()));
}

#[test]
fn a_kernel_runs_where_its_reference_symbol_did() {
    let folder = tempfile::tempdir().expect("a directory");
    // A kernel image (`Image`) has its magic number at offset 56.
    let mut boot = code(&[NOP; 16]);
    boot[56..60].copy_from_slice(b"ARM\x64");
    let path = folder.path().join("Image");
    write(&path, &boot);
    let mut files = Files::below(Vec::new()).with_kernel(Some(path.clone()));
    let kernel = mapping(None, KERNEL + 0x1000, KERNEL, "[kernel.kallsyms]_text");
    assert_eq!(files.images(&kernel).expect("an Image")[0].address, KERNEL);
    write(&path, b"no kernel at all");
    let mut files = Files::below(Vec::new()).with_kernel(Some(path.clone()));
    let refused = files.images(&kernel).unwrap_err();
    assert_eq!(refused, NotFound::NotCode { path });
}

#[test]
fn a_module_is_laid_out_and_its_branches_lead_where_they_did() {
    let folder = tempfile::tempdir().expect("a directory");
    // Calls of a function of the module, of one of the kernel, and of an unknown one.
    let text = code(&[NOP, BL, BL, BL]);
    let unlikely = code(&[NOP, NOP]);
    let names = b"\0own\0kernel\0other\0".to_vec();
    let symbol = |name: u32, info: u8, section: u16, value: u64| {
        let mut symbol = name.to_le_bytes().to_vec();
        symbol.extend([info, 0]);
        symbol.extend(section.to_le_bytes());
        symbol.extend(value.to_le_bytes());
        symbol.extend(4u64.to_le_bytes());
        symbol
    };
    let symbols = [
        symbol(0, 0, 0, 0),
        symbol(1, 0x12, 2, 4),
        symbol(5, 0x10, 0, 0),
        symbol(12, 0x10, 0, 0),
    ];
    let relocations: Vec<u8> = [(4u64, 1u64), (8, 2), (12, 3)]
        .iter()
        // R_AARCH64_CALL26.
        .flat_map(|(at, symbol)| [*at, symbol << 32 | 283, 0])
        .flat_map(u64::to_le_bytes)
        .collect();
    let file = Elf::new(1).with_sections(&[
        (".text", 1, 6, 0, 0, 0, text),
        (".text.unlikely", 1, 6, 0, 0, 0, unlikely),
        (".rela.text", 4, 0x40, 4, 1, 24, relocations),
        (".symtab", 2, 0, 5, 1, 24, symbols.concat()),
        (".strtab", 3, 0, 0, 0, 0, names),
    ]);
    write(&folder.path().join("lib/modules/6.1/thing.ko"), &file);
    let list = format!("{KERNEL:x} T kernel\n{:x} t own\t[thing]\n", MODULE + 0x104);
    write(&folder.path().join("core/kallsyms"), list.as_bytes());
    let mut files =
        Files::below(vec![folder.path().to_owned()]).with_kcore(Some(folder.path().join("core")));
    // The kernel image is missing, but its symbols are known.
    let kernel = mapping(None, KERNEL, KERNEL, "[kernel.kallsyms]_text");
    assert_eq!(files.images(&kernel).unwrap_err(), NotFound::Nothing);
    let module = mapping(None, MODULE, 0, "/lib/modules/6.1/thing.ko");
    let images = files.images(&module).expect("a module");
    let places: Vec<_> = images.iter().map(|image| image.address).collect();
    assert_eq!(places, [MODULE, MODULE + 0x100]);
    let to = |from: u64, to: u64| BL | (to.wrapping_sub(from) >> 2) as u32 & 0x3ff_ffff;
    let kernel = to(MODULE + 8, KERNEL);
    // BLR XZR replaces a call with an unknown target.
    let expected = [NOP, to(MODULE + 4, MODULE + 0x104), kernel, 0xd63f_03e0];
    assert_eq!(words(&images[0]), expected);
}
