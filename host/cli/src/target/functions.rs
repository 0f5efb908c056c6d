//! Resolves functions that are sent to a target, given by name or address.

use kymo_event::Addr;
use kymo_symbols::{Function, Symbols};
use kymo_wire::link::Identity;

use super::build_id_text;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::hex;
use crate::names;

/// Help for a trigger or stopper that is no known function.
pub(super) const NO_SUCH_FUNCTION: &str = "is that the ELF file of the program that runs there? A function's address as 0x and \
     hexadecimal digits will do, too";

/// Resolves a function's name, an address (`0x...`) or `none` to an address; 0 for `none`.
///
/// A name needs the symbols of the program that the target runs. An address is accepted as it is, with a warning if no
/// function begins there.
///
/// # Errors
/// When no function or several have the name, or the symbols are of another build.
pub fn one_function(
    symbols: &Symbols,
    wanted: &str,
    identity: &Identity,
    context: &Context,
) -> Result<Addr, Report> {
    if wanted == "none" || wanted == "0" {
        return Ok(Addr(0));
    }
    let other_build = symbols
        .build_id()
        .filter(|found| !identity.build_id().is_empty() && *found != identity.build_id());
    if let Some(digits) = wanted.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).map(Addr).map_err(|_| {
            Report::new(format_args!("{wanted} is no address"))
                .help("give a function's name, its address as 0x and hexadecimal digits, or none")
        })?;
        if other_build.is_none() && !symbols.is_empty() {
            check_start(symbols, address, identity, context);
        }
        return Ok(address);
    }
    if let Some(found) = other_build {
        return Err(Report::new(format_args!(
            "where {wanted} is in the target is not known: the symbols are of build {}, the target \
             runs build {}",
            hex(found),
            build_id_text(identity)
        ))
        .help(
            "give the ELF file of the program that runs there with --elf, or the function's address \
             as 0x and hexadecimal digits",
        ));
    }
    let found = names::by_name(symbols, wanted, NO_SUCH_FUNCTION)?;
    match found.as_slice() {
        [one] => Ok(one.address()),
        several => {
            let report = Report::new(format_args!(
                "{wanted} is the name of {} functions: give the address of the one that you mean",
                several.len()
            ));
            Err(several
                .iter()
                .fold(report, |report, function| report.help(place(function))))
        }
    }
}

/// Warns if no function begins at an address, because neither trigger nor stopper would ever match.
fn check_start(symbols: &Symbols, address: Addr, identity: &Identity, context: &Context) {
    // The low bits that addresses of functions lack on this processor select a mode (Thumb).
    let shift = u32::from(identity.layout.function_shift);
    let start = address.0.checked_shr(shift).unwrap_or(0) << shift.min(63);
    match symbols.function_at(address) {
        Some(function) if function.address().0 == start => {}
        Some(function) => context.warn(format_args!(
            "no function begins at {address}, it is inside of {}: it may never be entered there",
            place(&function)
        )),
        None => context.warn(format_args!(
            "no function is known at {address}: it may never be entered"
        )),
    }
}

/// Formats a function's address, name and source location.
pub(super) fn place(function: &Function<'_>) -> String {
    let (address, name) = (function.address(), function.name());
    match function.location() {
        Some(location) => format!("{address}  {name}  {location}"),
        None => format!("{address}  {name}"),
    }
}

/// Formats the function that is set on a target, with its source location; `none` if none is set.
pub fn set_text(symbols: &Symbols, set: Option<Addr>) -> String {
    let Some(address) = set else {
        return "none".to_owned();
    };
    match symbols.function_at(address) {
        Some(function) if function.address() == address => place(&function),
        _ => address.to_string(),
    }
}
