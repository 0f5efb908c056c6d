//! CTF 1.8's metadata language, TSDL: text to model and back.
//!
//! TSDL is C's declarations with attributes. Like C it cannot be parsed without knowing which identifiers are types, so
//! the parser resolves type names while it reads and there is no syntax tree in between. Byte order is the exception: a
//! type declared before the `trace` block may mean the byte order that the block states, so that is looked up first.

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

/// Something in metadata that is not understood and does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is, as written: the name of an attribute or block.
    pub name: String,
    /// Where, in bytes from the start of the text.
    pub offset: usize,
}
