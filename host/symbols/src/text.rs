//! Lists of symbols in text: the output of `nm`, maps that GNU ld writes with `-Map`, and the symbols of Linux kernels.
//! The content determines the format.

mod map;
mod nm;

use std::sync::Arc;

use crate::error::TextError;
use crate::image::{Base, File};
use crate::lines::Location;
use crate::table::{Candidate, Table};

/// Content of a list.
#[derive(Debug, Default)]
struct List {
    /// Its functions.
    functions: Vec<Candidate>,
    /// Their source locations, by address, if the list has them.
    locations: Vec<(u64, Location)>,
    /// Number of symbols of any kind.
    symbols: usize,
    /// Number of symbols with an address other than 0.
    addresses: usize,
    /// The address of `__executable_start`.
    executable_start: Option<u64>,
}

impl List {
    /// Counts a symbol of any kind.
    fn saw(&mut self, name: &str, address: u64) {
        self.symbols += 1;
        self.addresses += usize::from(address != 0);
        if name == "__executable_start" {
            self.executable_start = Some(address);
        }
    }

    /// Clears the mode bit of the addresses of Thumb functions, and returns whether it was set.
    ///
    /// An `nm` built for Arm clears it; the host's `nm` does not know it and prints the value in the ELF file. A list
    /// does not name its architecture, but for others odd addresses are at most half of all (code without alignment).
    /// With Thumb, some may be even: labels of hand-written code, functions in Arm mode.
    fn clear_thumb_bits(&mut self) -> bool {
        let odd = self.functions.iter().filter(|f| f.address & 1 == 1).count();
        let thumb = odd > 0 && odd >= self.functions.len() - self.functions.len() / 10;
        if thumb {
            for function in &mut self.functions {
                function.address &= !1;
            }
            for (address, _) in &mut self.locations {
                *address &= !1;
            }
        }
        thumb
    }
}

/// Parses a list of symbols.
pub(crate) fn read(text: &str) -> Result<File, TextError> {
    let mut list = if map::recognise(text) {
        map::read(text)
    } else {
        nm::read(text)
    };
    if list.symbols == 0 {
        return Err(TextError::NoSymbols {
            lines: text.lines().count(),
        });
    }
    if list.addresses == 0 && list.symbols > 1 {
        return Err(TextError::HiddenAddresses {
            symbols: list.symbols,
        });
    }
    let thumb = list.clear_thumb_bits();
    let mut listed = list.locations;
    listed.sort();
    listed.dedup_by_key(|(address, _)| *address);
    // A list does not state whether its program is position-independent, but such a program is linked at address 0. (A
    // firmware that starts at 0 runs there, and is not moved either.)
    let base = match list.executable_start {
        Some(0) => Base::Movable(0),
        _ => Base::Fixed,
    };
    Ok(File {
        table: Table::new(list.functions),
        lines: None,
        listed,
        build_id: None,
        base,
        thumb,
        not_thumb: Vec::new(),
        constants: Vec::new(),
        declared: None,
        unmarked_jumps: None,
        switches_stacks: None,
        data: Arc::default(),
    })
}
