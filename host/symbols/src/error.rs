//! Errors of symbol files.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why symbols cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file begins like an ELF file, but cannot be used.
    #[error("{}: {source}", path.display())]
    ElfFile {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: ElfError,
    },
    /// The file is neither an ELF file nor a list of symbols.
    #[error("{}: {source}", path.display())]
    TextFile {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: TextError,
    },
}

impl Error {
    /// The path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Error::Io { path, .. } | Error::ElfFile { path, .. } | Error::TextFile { path, .. } => {
                path
            }
        }
    }
}

/// Error in an ELF file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It does not begin with the magic number.
    #[error("not an ELF file: expected the bytes 7f 45 4c 46 at offset 0, found {}", hex(.found))]
    NotElf {
        /// The bytes found instead, up to 4.
        found: Vec<u8>,
    },
    /// It is truncated or damaged.
    #[error("damaged ELF file ({bytes} bytes): {message}")]
    Damaged {
        /// The size of the file in bytes.
        bytes: usize,
        /// The inconsistency.
        message: String,
    },
    /// It is not a linked program: in an object file, for example, nothing has an address yet.
    #[error("expected an executable or a shared object, found {found}")]
    WrongKind {
        /// The kind of file found.
        found: &'static str,
    },
}

/// Error in a list of symbols.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// No line is a symbol.
    #[error(
        "no symbols found in {lines} lines: expected an ELF file, the output of nm, a map of GNU \
         ld, System.map or kallsyms"
    )]
    NoSymbols {
        /// Number of lines examined.
        lines: usize,
    },
    /// It is not text.
    #[error("neither an ELF file nor text: expected UTF-8, found another byte at offset {offset}")]
    NotText {
        /// The offset of the first invalid byte.
        offset: usize,
    },
    /// The kernel hid its addresses.
    #[error(
        "all {symbols} addresses are 0: the kernel hides them (kernel.kptr_restrict), read it as root"
    )]
    HiddenAddresses {
        /// Number of symbols.
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
