//! Table of the names of called functions and interrupts in an export.
//!
//! Each name is looked up once and numbered: exports that intern names need a number anyway, and the others save the
//! symbol lookup for every call. The tables are indexed by callee.

use std::collections::HashMap;

use kymo_analysis::calls::Callee;
use kymo_analysis::titles;
use kymo_event::{FunctionId, InterruptId, SpaceId, TraceInfo};
use kymo_symbols::{Location, Symbols};

use crate::format::Context;

/// The number of a name, from 0 in the order of first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(pub u32);

impl NameId {
    /// Not looked up yet.
    const NONE: Self = Self(u32::MAX);

    /// The index in a table by names.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names of callees.
pub(crate) struct Names<'a> {
    symbols: &'a Symbols,
    /// Whether to look up source locations of functions.
    with_sources: bool,
    /// By [`FunctionId`].
    functions: Vec<NameId>,
    /// By [`InterruptId`].
    interrupts: Vec<NameId>,
    unknown: NameId,
    names: Vec<Name>,
    /// The names of functions, each with the space of the first function of this name.
    spaces: HashMap<Box<str>, SpaceId>,
}

/// Name and source location of a callee.
struct Name {
    text: Box<str>,
    source: Option<Location>,
}

impl<'a> Names<'a> {
    /// Creates an empty table; `context` provides the symbols.
    pub fn new(context: Context<'a>) -> Self {
        Self {
            symbols: context.symbols,
            with_sources: false,
            functions: Vec::new(),
            interrupts: Vec::new(),
            unknown: NameId::NONE,
            names: Vec::new(),
            spaces: HashMap::new(),
        }
    }

    /// As [`new`](Self::new), for formats that show source locations of functions.
    pub fn with_sources(context: Context<'a>) -> Self {
        Self {
            with_sources: true,
            ..Self::new(context)
        }
    }

    /// The number of a callee's name.
    #[inline]
    pub fn id(&mut self, info: &TraceInfo, callee: Callee) -> NameId {
        let known = match callee {
            Callee::Function(id) => self.functions.get(id.0 as usize),
            Callee::Interrupt(id) => self.interrupts.get(id.0 as usize),
            Callee::Unknown => Some(&self.unknown),
        };
        match known {
            Some(known) if *known != NameId::NONE => *known,
            _ => self.look_up(info, callee),
        }
    }

    #[cold]
    fn look_up(&mut self, info: &TraceInfo, callee: Callee) -> NameId {
        match callee {
            Callee::Function(id) => {
                let function = info.identities.function(id);
                let text = self.function(info, id);
                let source = function
                    .filter(|_| self.with_sources)
                    .and_then(|function| self.symbols.function_of(function))
                    .and_then(|function| function.location());
                let name = self.add(text, source);
                put(&mut self.functions, id.0, name);
                name
            }
            Callee::Interrupt(id) => {
                let name = self.add(titles::interrupt_title(&info.identities, id), None);
                put(&mut self.interrupts, id.0, name);
                name
            }
            Callee::Unknown => {
                self.unknown = self.add("(unknown function)".to_owned(), None);
                self.unknown
            }
        }
    }

    /// The name of this number.
    pub fn get(&self, id: NameId) -> &str {
        self.names.get(id.index()).map_or("", |name| &name.text)
    }

    /// The name of a callee.
    pub fn name(&mut self, info: &TraceInfo, callee: Callee) -> &str {
        let id = self.id(info, callee);
        self.get(id)
    }

    /// The source location of the function with this number, if requested and known.
    #[inline]
    pub fn source(&self, id: NameId) -> Option<&Location> {
        self.names.get(id.index())?.source.as_ref()
    }

    /// Updates the name of an interrupt, for activations from here on.
    pub fn update_interrupt(&mut self, info: &TraceInfo, id: InterruptId) {
        let known = self.interrupts.get(id.0 as usize).copied();
        let known = known.filter(|known| *known != NameId::NONE);
        let name = |known| self.get(known) != titles::interrupt_title(&info.identities, id);
        if known.is_some_and(name) {
            self.look_up(info, Callee::Interrupt(id));
        }
    }

    /// Name from the symbols, else from the trace, else the address. A function of another space than the first one of
    /// this name is shown with its space.
    fn function(&mut self, info: &TraceInfo, id: FunctionId) -> String {
        let Some(function) = info.identities.function(id) else {
            return "(unknown function)".to_owned();
        };
        let name = self.symbols.name_of(function).map_or_else(
            || function.address.unwrap_or_default().to_string(),
            str::to_owned,
        );
        let first = *self
            .spaces
            .entry(name.as_str().into())
            .or_insert(function.space);
        if first == function.space {
            return name;
        }
        format!("{name} [{}]", titles::space(info, function.space))
    }

    fn add(&mut self, text: String, source: Option<Location>) -> NameId {
        // More names than a `u32` counts would need more memory than a machine has.
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(Name {
            text: text.into(),
            source,
        });
        id
    }
}

/// Stores a name in a table.
fn put(table: &mut Vec<NameId>, index: u32, name: NameId) {
    let index = index as usize;
    if table.len() <= index {
        table.resize(index + 1, NameId::NONE);
    }
    if let Some(place) = table.get_mut(index) {
        *place = name;
    }
}
