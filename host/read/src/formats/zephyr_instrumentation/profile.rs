//! Profile of the target: total times by function.

use kymo_event::{Addr, Damage, Duration};
use kymo_zephyr_instrumentation::{Hints, Kind, Layout, Piece, Walk};
use thiserror::Error;

use super::dump;
use crate::source::add_damage;

/// Profile that a target sent.
///
/// The target keeps one sum per function, over all threads and processors. Recursive calls count once. It has no call
/// counts and no self times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileDump {
    /// Functions in descending order of total time, then those whose total is not a time. Equal ones are in order of
    /// address.
    pub functions: Vec<FunctionTotal>,
    /// Layout of its entries; `None` if there are none.
    pub layout: Option<Layout>,
    /// Damage: the first occurrences.
    pub damage: Vec<Damage>,
    /// Number of further occurrences of damage.
    pub more_damage: u64,
}

/// Entry of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionTotal {
    /// Address of the function, without the Thumb bit.
    pub address: Addr,
    /// Time in the function and its callees; `None` if the sum is negative, because the target's time stepped back.
    pub total: Option<Duration>,
    /// Sum as the target has it, modulo 2^64.
    pub raw_total_ns: u64,
}

/// Error for bytes without a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "expected a profile dump of Zephyr's instrumentation (entries of 13 or 17 bytes that begin with 2, \
     between -*-# and -*-!), found none in {found} bytes"
)]
pub struct NoProfile {
    /// Number of bytes.
    pub found: usize,
}

/// Decodes the last profile in the data of a target: a dump with its marks and any bytes around it, or only its
/// entries.
///
/// `name` is used for [`Damage::stream`]. An empty dump is a profile without functions.
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

/// Converts a sum of differences to a time. No target has run for 292 years, so a larger sum is negative.
pub(super) fn total(raw_ns: u64) -> Option<Duration> {
    i64::try_from(raw_ns).is_ok().then_some(Duration(raw_ns))
}
