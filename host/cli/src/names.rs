//! Names of functions for output.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kymo_analysis::calls::Callee;
use kymo_analysis::selection::FunctionChoice;
use kymo_analysis::titles;
use kymo_event::{Addr, FunctionId, Identities, SpaceKind, TraceInfo};
use kymo_symbols::{Function, Symbols, spellings};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::symbols::CTF;
use crate::render::count::are;

/// Cached names of functions: from the symbols if they know the address, else from the trace, else the address
/// itself.
pub struct Names<'s> {
    symbols: &'s Symbols,
    /// Indexed by [`FunctionId`].
    functions: RefCell<Vec<Option<Name>>>,
    /// Functions that no trace names: those of a target's profile table.
    addresses: RefCell<HashMap<Addr, Name>>,
}

#[derive(Clone)]
struct Name {
    text: Rc<str>,
    found: bool,
}

impl<'s> Names<'s> {
    /// Uses the names in `symbols` and in the trace.
    pub fn new(symbols: &'s Symbols) -> Self {
        Self {
            symbols,
            functions: RefCell::default(),
            addresses: RefCell::default(),
        }
    }

    /// The name of a function of a trace.
    #[inline]
    pub fn function(&self, identities: &Identities, id: FunctionId) -> Rc<str> {
        if let Some(Some(known)) = self.functions.borrow().get(id.0 as usize) {
            return Rc::clone(&known.text);
        }
        self.look_up(identities, id)
    }

    /// The name of a called function or interrupt.
    pub fn callee(&self, identities: &Identities, callee: Callee) -> Rc<str> {
        match callee {
            Callee::Function(id) => self.function(identities, id),
            Callee::Interrupt(id) => titles::interrupt(identities, id).into(),
            Callee::Unknown => "(unknown)".into(),
        }
    }

    #[cold]
    fn look_up(&self, identities: &Identities, id: FunctionId) -> Rc<str> {
        let function = identities.function(id);
        let address = function.and_then(|function| function.address);
        let by_symbols = function.and_then(|function| {
            let found = self.symbols.function_of(function)?;
            Some(named(found, function.address?))
        });
        let by_trace = || function.and_then(|function| function.name.as_deref().map(Rc::from));
        let name = by_symbols.or_else(by_trace);
        let name = Name {
            found: name.is_some(),
            text: name.unwrap_or_else(|| match address {
                Some(address) => address.to_string().into(),
                None => "(unknown)".into(),
            }),
        };
        let text = Rc::clone(&name.text);
        let mut functions = self.functions.borrow_mut();
        let index = id.0 as usize;
        if functions.len() <= index {
            functions.resize(index + 1, None);
        }
        functions[index] = Some(name);
        text
    }

    /// The name of the function at an address, without a trace.
    pub fn at(&self, address: Addr) -> Rc<str> {
        let mut known = self.addresses.borrow_mut();
        let name = known.entry(address).or_insert_with(|| {
            let name = self.by_symbols(address);
            Name {
                found: name.is_some(),
                text: name.unwrap_or_else(|| address.to_string().into()),
            }
        });
        Rc::clone(&name.text)
    }

    /// The name of the function at an address; `name+0x10` if the address is not its begin.
    fn by_symbols(&self, address: Addr) -> Option<Rc<str>> {
        Some(named(self.symbols.function_at(address)?, address))
    }

    /// Reports if functions without a name were shown.
    pub fn remark(&self, identities: &Identities, context: &Context) {
        let (functions, addresses) = (self.functions.borrow(), self.addresses.borrow());
        let unnamed = |name: &&Name| !name.found;
        let of_trace = functions.iter().enumerate();
        let of_trace = of_trace.filter(|(_, name)| name.as_ref().is_some_and(|it| !it.found));
        let of_trace: Vec<&kymo_event::Function> = of_trace
            .filter_map(|(id, _)| identities.function(FunctionId(u32::try_from(id).ok()?)))
            .collect();
        let all = functions.iter().flatten().chain(addresses.values());
        let all = all.filter(unnamed).count();
        let without_address = of_trace.iter().filter(|it| it.address.is_none()).count();
        if without_address > 0 {
            let functions = are(without_address as u64, "function");
            context.note(format_args!(
                "{functions} shown as (unknown): the trace has neither a name nor an address for them"
            ));
        }
        let unnamed = all - without_address;
        if unnamed == 0 {
            return;
        }
        let functions = are(unnamed as u64, "function");
        let advice = self.advice(identities, &of_trace);
        context.note(format_args!("{functions} shown by address: {advice}"));
    }

    /// Advice on how to get names for these functions of a trace.
    fn advice(&self, identities: &Identities, unnamed: &[&kymo_event::Function]) -> &'static str {
        if !self.symbols.is_empty() {
            return "they are not in the symbols that were given; is that the program that was traced?";
        }
        let space = |function: &kymo_event::Function| {
            let spaces = identities.spaces();
            spaces.get(function.space.0 as usize)
        };
        let is_kernels = |it: &&kymo_event::Function| {
            space(it).is_some_and(|space| space.kind == SpaceKind::Kernel)
        };
        if identities
            .spaces()
            .iter()
            .any(|space| !space.mappings.is_empty())
        {
            "the files that hold them are not here, or have no symbols; --elf names them"
        } else if unnamed.is_empty() || !unnamed.iter().all(is_kernels) {
            "give the program's ELF file with --elf"
        } else if carries_names(identities) {
            "the kernel's symbols that the trace has (kallsyms) do not have them"
        } else {
            "the trace has no symbols of the kernel; they are in /proc/kallsyms of the machine that was traced"
        }
    }
}

/// The name of a function for an address in it; `name+0x10` if that is not its begin.
fn named(function: Function<'_>, address: Addr) -> Rc<str> {
    let name = function.name();
    match address.0.saturating_sub(function.address().0) {
        0 => name.into(),
        inside => format!("{name}+{inside:#x}").into(),
    }
}

/// Whether the trace itself contains names of functions.
pub fn carries_names(identities: &Identities) -> bool {
    let mut functions = identities.functions().iter();
    functions.any(|function| function.name.is_some())
}

/// The functions and interrupts of a trace that a user names.
///
/// # Errors
/// When neither the symbols nor the trace have one of the names; similar names are the advice. Names that a trace
/// introduces later can't be missed yet.
pub fn choose(
    wanted: &[String],
    symbols: &Symbols,
    info: &TraceInfo,
) -> Result<Vec<FunctionChoice>, Report> {
    let mut choices = Vec::new();
    for text in wanted {
        let choice = FunctionChoice::new(text);
        let plain = matches!(choice, FunctionChoice::Named(_)) && !text.contains(['*', '?']);
        let found = if plain {
            symbols.by_name(text)
        } else {
            Vec::new()
        };
        if !found.is_empty() {
            let addresses = found.iter().map(Function::address);
            choices.extend(addresses.map(FunctionChoice::Address));
            // Such a trace introduces the files of its other processes later.
            if info.is_of(CTF) {
                choices.push(choice);
            }
            continue;
        }
        let identities = &info.identities;
        // Interrupts appear later in the trace.
        let reported_before = info.format == KYMO && !is_irq(text);
        if plain && reported_before && !is_named(text, identities) {
            return Err(unknown(symbols, text, carries_names(identities), LISTED));
        }
        choices.push(choice);
    }
    Ok(choices)
}

/// The format whose functions are known before its events are read.
const KYMO: &str = "kymo";

/// Advice on where to find the names of functions.
const LISTED: &str = "`kymo report --sort name` lists the functions of the trace";

/// Whether this is the display name of an interrupt without a name.
fn is_irq(text: &str) -> bool {
    let number = text.split_once(' ');
    number.is_some_and(|(kind, number)| {
        titles::INTERRUPT_KINDS.contains(&kind) && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether the trace has a function or interrupt of this name.
fn is_named(wanted: &str, identities: &Identities) -> bool {
    let fits = |name: Option<&str>| name.is_some_and(|name| spellings(name).contains(&wanted));
    let mut functions = identities.functions().iter();
    let mut interrupts = identities.interrupts().iter();
    functions.any(|function| fits(function.name.as_deref()))
        || interrupts.any(|interrupt| {
            fits(interrupt.name.as_deref())
                || wanted == titles::numbered(interrupt.kind, interrupt.irq)
        })
}

/// All functions of a name, because a user who looks at calls wants to see each of them.
///
/// # Errors
/// When there is none; similar names are the advice, or `advice` if there are none.
pub fn by_name<'s>(
    symbols: &'s Symbols,
    name: &str,
    advice: &str,
) -> Result<Vec<Function<'s>>, Report> {
    let found = symbols.by_name(name);
    if found.is_empty() {
        return Err(unknown(symbols, name, false, advice));
    }
    Ok(found)
}

/// The error for an option with a function that neither the symbols nor the events of a complete trace have.
pub fn not_there(name: &str, info: &TraceInfo, symbols: &Symbols) -> Report {
    unknown(symbols, name, carries_names(&info.identities), LISTED)
}

/// The error for an unknown name.
fn unknown(symbols: &Symbols, name: &str, carried: bool, advice: &str) -> Report {
    let report = Report::new(format_args!("there is no function {name}"));
    if symbols.is_empty() && !carried {
        return report.help("no symbols are known: give the program's ELF file with --elf");
    }
    let similar = symbols.similar(name);
    if similar.is_empty() {
        report.help(advice)
    } else {
        report.help(format_args!("similar names: {}", similar.join(", ")))
    }
}
