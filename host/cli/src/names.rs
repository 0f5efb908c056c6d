//! Names of functions for what a verb shows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kymo_event::Addr;
use kymo_symbols::{Function, Symbols};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::count::are;

/// Names of functions, each looked up once.
pub struct Names<'s> {
    symbols: &'s Symbols,
    known: RefCell<HashMap<Addr, Name>>,
}

struct Name {
    text: Rc<str>,
    found: bool,
}

impl<'s> Names<'s> {
    /// The names that `symbols` has.
    pub fn new(symbols: &'s Symbols) -> Self {
        Self {
            symbols,
            known: RefCell::default(),
        }
    }

    /// The name of the function that begins at `address`; `name+0x10` where one goes on there, and
    /// the address where there is none.
    pub fn function(&self, address: Addr) -> Rc<str> {
        let mut known = self.known.borrow_mut();
        let name = known.entry(address).or_insert_with(|| {
            let function = self.symbols.function_at(address);
            let text = function.map(|function| {
                let name = function.name();
                match address.0.saturating_sub(function.address().0) {
                    0 => name.into(),
                    inside => format!("{name}+{inside:#x}").into(),
                }
            });
            Name {
                found: text.is_some(),
                text: text.unwrap_or_else(|| address.to_string().into()),
            }
        });
        Rc::clone(&name.text)
    }

    /// Says so if functions without a name were shown.
    pub fn remark(&self, context: &Context) {
        let known = self.known.borrow();
        let unnamed = known.values().filter(|name| !name.found).count();
        if unnamed == 0 {
            return;
        }
        let advice = if self.symbols.is_empty() {
            "give the program's ELF file with --elf"
        } else {
            "they are not in the symbols that were given; is that the program that was traced?"
        };
        let functions = are(unnamed as u64, "function");
        context.note(format_args!("{functions} shown by address: {advice}"));
    }
}

/// The functions that a user means by a name: all of that name, as one who looks at calls wants to
/// see each of them.
///
/// # Errors
/// When there is none; the names that come close are the advice, or what is given where none does.
pub fn by_name<'s>(
    symbols: &'s Symbols,
    name: &str,
    advice: &str,
) -> Result<Vec<Function<'s>>, Report> {
    let found = symbols.by_name(name);
    if !found.is_empty() {
        return Ok(found);
    }
    let report = Report::new(format_args!("there is no function {name}"));
    if symbols.is_empty() {
        return Err(report.help("no symbols are known: give the program's ELF file with --elf"));
    }
    let similar = symbols.similar(name);
    Err(if similar.is_empty() {
        report.help(advice)
    } else {
        report.help(format_args!("similar names: {}", similar.join(", ")))
    })
}
