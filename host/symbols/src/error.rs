//! What can be wrong with a file of symbols.

use std::io;
use std::path::PathBuf;

/// Why there are no symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file begins as an ELF file does, but cannot be used.
    #[error("{}: {source}", path.display())]
    ElfFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ElfError,
    },
    /// The file is not an ELF file, and not a list of symbols either.
    #[error("{}: {source}", path.display())]
    TextFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: TextError,
    },
}

/// What is wrong with an ELF file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It does not begin with the four magic bytes.
    #[error("not an ELF file: expected the bytes 7f 45 4c 46 at offset 0, found {}", hex(.found))]
    NotElf {
        /// What is there instead: up to 4 bytes.
        found: Vec<u8>,
    },
    /// It is cut short or damaged.
    #[error("damaged ELF file ({bytes} bytes): {message}")]
    Damaged {
        /// The size of the file in bytes.
        bytes: usize,
        /// What does not fit.
        message: String,
    },
    /// It holds something else than a program: in an object file, for one, nothing has an address
    /// yet.
    #[error("expected an executable or a shared object, found {found}")]
    WrongKind {
        /// What it is.
        found: &'static str,
    },
}

/// What is wrong with a list of symbols.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// Nothing in it reads as a symbol.
    #[error(
        "no symbols found in {lines} lines: expected an ELF file, the output of nm, a map of GNU \
         ld, System.map or kallsyms"
    )]
    NoSymbols {
        /// How many lines were looked at.
        lines: usize,
    },
    /// It is not text.
    #[error("neither an ELF file nor text: expected UTF-8, found another byte at offset {offset}")]
    NotText {
        /// The offset of the first byte that is none.
        offset: usize,
    },
    /// The kernel hid its addresses.
    #[error(
        "all {symbols} addresses are 0: the kernel hides them (kernel.kptr_restrict), read it as root"
    )]
    HiddenAddresses {
        /// How many symbols there are.
        symbols: usize,
    },
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
