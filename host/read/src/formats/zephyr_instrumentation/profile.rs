//! The target's profile: total times by function.

use kymo_event::{Addr, Damage, Duration};
use kymo_zephyr_instrumentation::{Hints, Kind, Layout, Piece, Walk};
use thiserror::Error;

use super::dump;
use crate::source::add_damage;

/// What a target sent as its profile.
///
/// The target keeps one sum for a function, of all threads and processors together, with the calls
/// within a call of the same function counted once. There are no counts, and no times of functions alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileDump {
    /// The functions: those with the most total time first, then those whose total is no time, each in
    /// the order of their addresses where that leaves a choice.
    pub functions: Vec<FunctionTotal>,
    /// How its entries are laid out; `None` if there are none.
    pub layout: Option<Layout>,
    /// What could not be read: the first places.
    pub damage: Vec<Damage>,
    /// Places that could not be read beyond those in `damage`.
    pub more_damage: u64,
}

/// An entry of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionTotal {
    /// Where the function begins, without a Thumb bit.
    pub address: Addr,
    /// The time in it and in what it called; `None` if that makes no sense: the target's time stepped
    /// back, and differences of it became negative.
    pub total: Option<Duration>,
    /// The sum as the target has it, modulo 2^64.
    pub raw_total_ns: u64,
}

/// Bytes in which there is no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "expected a profile dump of Zephyr's instrumentation (entries of 13 or 17 bytes that begin with 2, \
     between -*-# and -*-!), found none in {found} bytes"
)]
pub struct NoProfile {
    /// How many bytes there are.
    pub found: usize,
}

/// Reads the last profile in what a target sent: a dump with its marks and whatever came around it, or
/// only its entries.
///
/// `name` is what [`Damage::stream`] says. An empty dump is a profile without functions.
///
/// # Errors
/// [`NoProfile`] if there is none.
pub fn decode_profile(name: &str, bytes: &[u8], hints: &Hints) -> Result<ProfileDump, NoProfile> {
    let none = NoProfile { found: bytes.len() };
    let dumps = dump::find(bytes, hints).ok_or(none)?;
    let known = |dump: &&dump::Dump| !dump.is_unknown();
    let last = |kind| {
        let mut dumps = dumps.iter().rev().filter(known);
        dumps.find(|dump| dump.kind() == kind)
    };
    let dump = last(Some(Kind::Profile))
        .or_else(|| last(None))
        .ok_or(none)?;
    let mut profile = ProfileDump {
        functions: Vec::new(),
        layout: dump.layout,
        damage: Vec::new(),
        more_damage: 0,
    };
    let Some(layout) = dump.layout else {
        return Ok(profile);
    };
    let body = bytes.get(dump.begin..dump.end).unwrap_or_default();
    let mut entries = Vec::new();
    let mut damage = |offset: usize, message: String| {
        let offset = (dump.begin + offset) as u64;
        let ProfileDump {
            damage,
            more_damage,
            ..
        } = &mut profile;
        add_damage(damage, more_damage, name, offset, message);
    };
    for piece in Walk::new(body, layout) {
        match piece {
            Piece::Record { bytes, .. } => entries.extend(layout.entry(bytes)),
            Piece::Damage { offset, bytes } | Piece::Cut { offset, bytes } => {
                damage(offset, super::source::no_record(&layout, bytes));
            }
            Piece::End(_) => {}
        }
    }
    if dump.cut {
        damage(body.len(), super::source::NO_END.to_owned());
    }
    let mut functions = super::source::Functions::default();
    for entry in &entries {
        functions.add(entry.function);
    }
    profile.functions = entries
        .iter()
        .map(|entry| FunctionTotal {
            address: Addr(entry.function & functions.mask()),
            total: total(entry.total_ns),
            raw_total_ns: entry.total_ns,
        })
        .collect();
    profile
        .functions
        .sort_by_key(|function| (std::cmp::Reverse(function.total), function.address));
    Ok(profile)
}

/// A sum of differences as a time. No target has run for 292 years; so far a sum is only if it is
/// negative.
pub(super) fn total(raw_ns: u64) -> Option<Duration> {
    i64::try_from(raw_ns).is_ok().then_some(Duration(raw_ns))
}
