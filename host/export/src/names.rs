//! What the called functions and interrupts are called in an export.
//!
//! A name is looked up once and numbered: exports that intern names need a number anyway, and the
//! others save the lookup in the symbols for every call.

use std::collections::HashMap;

use kymo_analysis::calls::Callee;
use kymo_event::{Addr, Irq, TraceInfo};
use kymo_symbols::{Location, Symbols};

use crate::format::Context;

/// The number of a name; counted from 0 in the order of first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(pub u32);

impl NameId {
    /// As an index into a table by names.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names of what is called.
pub(crate) struct Names<'a> {
    symbols: &'a Symbols,
    info: &'a TraceInfo,
    /// Whether to look up where functions stand in the source.
    with_sources: bool,
    by_callee: HashMap<Callee, NameId>,
    names: Vec<Name>,
}

/// What is known of something that is called.
struct Name {
    text: Box<str>,
    source: Option<Location>,
}

impl<'a> Names<'a> {
    /// No names yet; `context` tells where they come from.
    pub fn new(context: Context<'a>) -> Self {
        Self {
            symbols: context.symbols,
            info: context.info,
            with_sources: false,
            by_callee: HashMap::new(),
            names: Vec::new(),
        }
    }

    /// The same for formats that tell where functions stand in the source.
    pub fn with_sources(context: Context<'a>) -> Self {
        Self {
            with_sources: true,
            ..Self::new(context)
        }
    }

    /// The number of a callee's name.
    pub fn id(&mut self, callee: Callee) -> NameId {
        if let Some(&id) = self.by_callee.get(&callee) {
            return id;
        }
        let name = match callee {
            Callee::Function(address) => self.function(address),
            Callee::Interrupt(irq) => {
                let named = self.info.interrupts.iter().find(|(known, _)| *known == irq);
                interrupt(irq, named.map(|(_, name)| name.as_str()))
            }
            Callee::Unknown => "(unknown function)".to_owned(),
        };
        self.insert(callee, name)
    }

    /// The name of this number.
    pub fn get(&self, id: NameId) -> &str {
        self.names.get(id.index()).map_or("", |name| &name.text)
    }

    /// Where the function of this number begins in the source, if that was asked for and is known.
    pub fn source(&self, id: NameId) -> Option<&Location> {
        self.names.get(id.index())?.source.as_ref()
    }

    /// Everything that has been asked for, in the order of addresses, then of interrupts.
    pub fn all(&self) -> impl Iterator<Item = (Callee, &str)> {
        let mut all: Vec<_> = self.by_callee.iter().collect();
        all.sort_unstable();
        all.into_iter().map(|(callee, id)| (*callee, self.get(*id)))
    }

    /// Takes note of what an interrupt is called; it holds for activations from here on.
    pub fn learn_interrupt(&mut self, irq: Irq, name: &str) {
        let name = interrupt(irq, Some(name));
        let callee = Callee::Interrupt(irq);
        let known = self.by_callee.get(&callee);
        if known.is_none_or(|&id| self.get(id) != name) {
            self.insert(callee, name);
        }
    }

    /// The symbols know best, then the trace itself; where neither does, the address stands for
    /// the name.
    pub fn function(&self, address: Addr) -> String {
        if let Some(function) = self.symbols.function_at(address) {
            return function.name().into();
        }
        let functions = &self.info.functions;
        functions
            .binary_search_by_key(&address, |function| function.address)
            .ok()
            .and_then(|at| functions.get(at))
            .map_or_else(|| address.to_string(), |function| function.name.clone())
    }

    fn insert(&mut self, callee: Callee, name: String) -> NameId {
        // As many names as a u32 counts would need more memory than a machine has.
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let source = match callee {
            Callee::Function(address) if self.with_sources => self
                .symbols
                .function_at(address)
                .and_then(|function| function.location()),
            _ => None,
        };
        self.names.push(Name {
            text: name.into(),
            source,
        });
        self.by_callee.insert(callee, id);
        id
    }
}

/// How an interrupt is shown: its number always, and its name where there is one.
pub(crate) fn interrupt(irq: Irq, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("IRQ {irq} {name}"),
        None => format!("IRQ {irq}"),
    }
}
