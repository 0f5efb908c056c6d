//! Formats the lines of a block of instructions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use kymo_coresight::disassembly::{Disassembler, Opcode};
use kymo_coresight::element::Range;
use kymo_coresight::instruction::{self, Waypoints};
use kymo_coresight::memory::{MemorySpace, Scene};
use kymo_export::json::Json;

use crate::args::Format;
use crate::hardware::part::Addresses;
use crate::hardware::program::{Place, Programs};
use crate::render::escape::escape_from;

/// Formatted lines of a block of instructions.
#[derive(Debug)]
pub struct Block {
    /// Path of the block's file; empty if it is in none.
    pub file: Rc<str>,
    /// Its lines. A line of JSON lacks the members at its begin, which depend on offset and thread.
    pub text: Vec<u8>,
}

/// Formats blocks as text or JSON.
#[derive(Debug)]
pub struct Writer {
    programs: Programs,
    addresses: Addresses,
    format: Format,
    has_source: bool,
    disassembler: Disassembler,
    /// Paths of files, each stored once, so that they can be compared by pointer.
    files: HashMap<String, Rc<str>>,
    line: String,
}

/// Column at which the function begins.
const FUNCTION: usize = 76;

/// Column at which file and line begin.
const SOURCE: usize = 108;

impl Writer {
    /// Creates a writer for the instructions at `addresses`.
    pub fn new(programs: Programs, addresses: Addresses, format: Format, has_source: bool) -> Self {
        Writer {
            programs,
            addresses,
            format,
            has_source,
            disassembler: Disassembler::default(),
            files: HashMap::new(),
            line: String::new(),
        }
    }

    /// Whether all addresses are listed.
    pub fn is_everything(&self) -> bool {
        self.addresses.is_all()
    }

    /// The programs that name addresses.
    pub fn programs(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// Formats the instructions of a range.
    pub fn block(&mut self, code: Scene<'_>, range: &Range) -> Block {
        let mut block = Block {
            file: Rc::default(),
            text: Vec::new(),
        };
        let mut path = String::new();
        let mut address = range.start;
        while address < range.end {
            let bytes = code.at(MemorySpace::ANY, address).unwrap_or_default();
            let found = instruction::decode(range.isa, address, bytes, Waypoints::default());
            let Some(instruction) = found else { break };
            let size = u64::from(instruction.size);
            if self.addresses.has(code, address) {
                let place = self.programs.place(code, address);
                if let Some(place) = place.as_ref().filter(|_| path.is_empty()) {
                    path.clone_from(&place.program.path);
                }
                match self.format {
                    Format::Text => self.text(place.as_ref(), address, range, bytes),
                    Format::Json => {
                        let bytes = bytes.get(..size as usize).unwrap_or_default();
                        self.json(place.as_ref(), address, range, bytes, &mut block.text);
                    }
                }
                block.text.extend_from_slice(self.line.as_bytes());
                self.line.clear();
            }
            address = address.wrapping_add(size);
        }
        block.file = match self.files.get(&path) {
            Some(known) => Rc::clone(known),
            None => {
                let file: Rc<str> = path.as_str().into();
                self.files.insert(path, Rc::clone(&file));
                file
            }
        };
        block
    }

    fn text(&mut self, place: Option<&Place>, address: u64, range: &Range, bytes: &[u8]) {
        let line = &mut self.line;
        // Writing into a String cannot fail.
        let _ = write!(line, "{address:16x}  ");
        self.disassembler.write(range.isa, address, bytes, line);
        if let Some(within) = self.programs.function(place, address) {
            pad(line, FUNCTION);
            let start = line.len();
            let _ = write!(line, "{}+{:#x}", within.function, within.offset);
            escape_from(line, start);
        }
        if self.has_source
            && let Some(location) = self.programs.location(place, address)
        {
            pad(line, SOURCE);
            let start = line.len();
            // The file name without directories. The path may be that of another system.
            let file = location.file.rsplit(['/', '\\']).next().unwrap_or_default();
            let _ = match location.line {
                Some(number) => write!(line, "{file}:{number}"),
                None => write!(line, "{file}"),
            };
            escape_from(line, start);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
    }

    fn json(
        &mut self,
        place: Option<&Place>,
        address: u64,
        range: &Range,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let mut member = |name: &str, value: &dyn Json| {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            value.write(out);
        };
        member("file", &place.map(|place| place.program.path.as_str()));
        member("address", &address);
        member("address_hex", &format!("{address:#x}"));
        member("isa", &range.isa.short_name());
        let opcode = match Opcode::of(range.isa, bytes) {
            Opcode::Word(word) => format!("{word:08x}"),
            Opcode::Half(half) => format!("{half:04x}"),
            Opcode::Halves(first, second) => format!("{first:04x}{second:04x}"),
        };
        member("opcode", &opcode);
        let text = self.disassembler.text(range.isa, address, bytes);
        member("text", &text);
        let within = self.programs.function(place, address);
        member("function", &within.as_ref().map(|within| &*within.function));
        member("function_offset", &within.map(|within| within.offset));
        if self.has_source {
            let location = self.programs.location(place, address);
            member(
                "source",
                &location.as_ref().map(|location| location.file.as_str()),
            );
            member("line", &location.and_then(|location| location.line));
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Pads a line up to a column, with two spaces at least.
fn pad(line: &mut String, column: usize) {
    line.push_str("  ");
    while line.len() < column {
        line.push(' ');
    }
}
