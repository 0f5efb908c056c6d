//! Lists of symbols in text: what `nm` prints, what GNU ld writes with `-Map`, and what Linux
//! kernels know of themselves. Which it is follows from the content.

mod map;
mod nm;

use std::sync::Arc;

use crate::error::TextError;
use crate::image::{Base, File};
use crate::lines::Location;
use crate::table::{Candidate, Table};

/// What a list yields.
#[derive(Debug, Default)]
struct List {
    /// Its functions.
    functions: Vec<Candidate>,
    /// Where they stand in the source, by address, where the list tells.
    locations: Vec<(u64, Location)>,
    /// How many symbols it has, of any kind.
    symbols: usize,
    /// How many of them do not have the address 0.
    addresses: usize,
    /// The address of `__executable_start`.
    executable_start: Option<u64>,
}

impl List {
    /// Takes note of a symbol of any kind.
    fn saw(&mut self, name: &str, address: u64) {
        self.symbols += 1;
        self.addresses += usize::from(address != 0);
        if name == "__executable_start" {
            self.executable_start = Some(address);
        }
    }

    /// Takes the mode bit off the addresses of Thumb functions, and says whether it was there.
    ///
    /// An `nm` that was built for ARM leaves it away; that of the host does not know it and prints
    /// what stands in the ELF. A list does not name its architecture, but elsewhere odd addresses
    /// are half of all at the most (code without alignment). Some even ones may be among them:
    /// labels of hand-written code, functions in the mode ARM.
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

/// Reads a list of symbols.
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
    // A list does not tell whether its program is position-independent, but such a one is linked to
    // start at 0. (A firmware that starts at 0 runs there, and is not moved either.)
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
