//! TSDL, the metadata language of CTF 1.8: parser and printer.
//!
//! TSDL is C's declarations with attributes. As in C, parsing depends on which identifiers are types, so the parser
//! resolves type names while it reads, without a syntax tree. Byte order is the exception: a type declared before the
//! `trace` block may refer to the byte order in that block, so that is looked up first.

mod attributes;
mod declarators;
mod lexer;
mod parser;
mod print;
mod roles;
mod types;

pub(crate) use print::print;
pub(crate) use roles::implied_role;
pub(crate) use types::{MAX_DEPTH, MAX_PARTS};

use crate::error::MetadataError;
use crate::metadata::Metadata;

/// Parses the text of a metadata file.
pub(crate) fn parse(text: &str) -> Result<(Metadata, Vec<Warning>), MetadataError> {
    parser::Parser::new(text).and_then(parser::Parser::parse)
}

/// A part of metadata that is not understood and harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The name of the attribute or block, as written.
    pub name: String,
    /// Position in bytes from the start of the text.
    pub offset: usize,
}
