//! File offsets and addresses of the code in an ELF file.

use crate::isa::Isa;

/// Segments of an ELF file, and the instruction sets of its code.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Segments: file offset, size in bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Start addresses of code of an instruction set, or of data, sorted: the mapping symbols `$a`, `$t`, `$x` and `$d`
    /// (Arm IHI 0044).
    marks: Vec<(u64, Option<Isa>)>,
    /// Instruction set of code without mapping symbols.
    isa: Isa,
}

impl Layout {
    /// Reads an ELF file's headers and symbols. `None` if it is not an ELF file, or not linked.
    pub fn of_elf(elf: &[u8]) -> Option<Self> {
        use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
        let file = object::File::parse(elf).ok()?;
        let mut layout = Layout {
            isa: match file.architecture() {
                object::Architecture::Aarch64 | object::Architecture::Aarch64_Ilp32 => Isa::A64,
                object::Architecture::Arm => Isa::A32,
                _ => Isa::Unknown,
            },
            segments: file
                .segments()
                .map(|segment| {
                    let (offset, size) = segment.file_range();
                    (offset, size, segment.address())
                })
                .collect(),
            marks: Vec::new(),
        };
        if layout.segments.is_empty() {
            // A kernel module, with its layout in memory, has only sections.
            let code = file
                .sections()
                .filter(|section| section.kind() == object::SectionKind::Text);
            let code = code.filter(|section| section.address() != 0);
            layout.segments.extend(code.filter_map(|section| {
                let (offset, size) = section.file_range()?;
                Some((offset, size, section.address()))
            }));
        }
        for symbol in file.symbols() {
            let isa = match symbol.name_bytes().unwrap_or_default() {
                [b'$', kind] | [b'$', kind, b'.', ..] => match kind {
                    b'a' => Some(Isa::A32),
                    b't' => Some(Isa::T32),
                    b'x' => Some(Isa::A64),
                    b'd' => None,
                    _ => continue,
                },
                _ => continue,
            };
            layout.marks.push((symbol.address(), isa));
        }
        layout.marks.sort_by_key(|(address, _)| *address);
        (!layout.segments.is_empty()).then_some(layout)
    }

    /// Whether the file has mapping symbols, which a stripped one does not have.
    pub fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Takes the mapping symbols of a file with the same code.
    pub fn take_marks(&mut self, of: Layout) {
        self.marks = of.marks;
    }

    /// Returns the segments: file offset, size in bytes, address.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.segments.iter().copied()
    }

    /// Returns the address of the byte at a file offset. `None` if no segment contains it.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|(start, size, address)| {
            let within = offset.checked_sub(*start).filter(|within| within < size)?;
            address.checked_add(within)
        })
    }

    /// Returns the file offset of the byte at an address. `None` if no segment contains it.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|(offset, size, start)| {
            let within = address.checked_sub(*start).filter(|within| within < size)?;
            offset.checked_add(within)
        })
    }

    /// Returns the instruction set of the file's processor; A32 for a processor with both A32 and T32.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the instruction set of the code at an address, or `Some(None)` for data. `None` if the file has no
    /// mapping symbol at or before it.
    pub fn isa_at(&self, address: u64) -> Option<Option<Isa>> {
        let after = self.marks.partition_point(|(mark, _)| *mark <= address);
        Some(self.marks.get(after.checked_sub(1)?)?.1)
    }
}

/// Returns the build ID of an ELF file.
pub fn build_id(elf: &[u8]) -> Option<Vec<u8>> {
    use object::Object as _;
    let id = object::File::parse(elf).ok()?.build_id().ok()??;
    Some(id.to_vec())
}

/// Returns the machine of an ELF file if it is not Arm's, because Arm trace cannot be of its code.
pub(crate) fn other_machine(elf: &[u8]) -> Option<String> {
    const ARM: u16 = 40;
    const AARCH64: u16 = 183;
    let bytes = elf.strip_prefix(b"\x7fELF")?;
    let machine: [u8; 2] = bytes.get(14..16)?.try_into().ok()?;
    let machine = match bytes.get(1)? {
        2 => u16::from_be_bytes(machine),
        _ => u16::from_le_bytes(machine),
    };
    Some(match machine {
        ARM | AARCH64 => return None,
        3 => "x86".to_owned(),
        62 => "x86-64".to_owned(),
        8 => "MIPS".to_owned(),
        20 | 21 => "PowerPC".to_owned(),
        22 => "s390".to_owned(),
        243 => "RISC-V".to_owned(),
        258 => "LoongArch".to_owned(),
        other => format!("machine {other}"),
    })
}

/// Returns a human-readable kind of an ELF file; `None` if the bytes are not an ELF file.
pub(crate) fn elf_kind(bytes: &[u8]) -> Option<&'static str> {
    let rest = bytes.strip_prefix(b"\x7fELF")?;
    // `ET_CORE` is 4.
    let is_core = matches!(rest.get(12..14), Some([4, 0] | [0, 4]));
    Some(if is_core {
        "a core file (ELF)"
    } else {
        "an ELF file"
    })
}
