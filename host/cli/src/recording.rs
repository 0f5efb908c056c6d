//! What a live target has recorded, fetched.
//!
//! `kymo trace` fetches it, and so does every subcommand whose input turns out to be a target: all of
//! them say the same of what could not be recorded or did not fit.

use kymo_link::{Dump, Status};
use kymo_wire::link::Identity;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::target::{Live, What, explain};

/// Makes sure that a target records events at all.
///
/// # Errors
/// When it was not built to.
pub fn check(live: &Live) -> Result<(), Report> {
    if live.identity.capabilities.trace {
        return Ok(());
    }
    Err(Report::new("this target records no events")
        .help("it may keep a table of functions: `kymo profile`"))
}

/// Fetches all that a target has recorded. Says on stderr what is to know before it is looked at.
///
/// # Errors
/// When nothing of it arrived; a part of it is a [`Dump`] too
/// ([`incomplete`](crate::target::incomplete)).
pub fn fetch(live: &mut Live, context: &Context) -> Result<Dump, Report> {
    // Asked before the dump: while it is sent, new events are discarded on purpose.
    let status = live.target.status().map_err(explain)?;
    let dump = live.fetch(What::Trace, context)?;
    remark(&dump.identity, &status, context);
    Ok(dump)
}

/// Says what is to know of a capture before it is looked at.
fn remark(identity: &Identity, status: &Status, context: &Context) {
    if let Some(error) = &status.error {
        context.warn(format_args!("the recorder could not be set up: {error}"));
    }
    if let Some(refused) = status.refused.filter(|refused| *refused > 0) {
        context.warn(format_args!(
            "{refused} hooks were called from inside a hook and not recorded: what kymo_config \
             names must not be instrumented"
        ));
    }
    if status.bytes == 0 {
        context.note(
            "the target has recorded nothing yet: `kymo trace --list` shows what it waits for, \
             `kymo status` whether it is enabled; `kymo command on` makes it record at once",
        );
    }
    if status.needed > status.used {
        let each = if identity.streams > 1 {
            " for each stream"
        } else {
            ""
        };
        context.note(format_args!(
            "the capture did not fit: it takes {} bytes, of which {} are there; a buffer of {} \
             bytes{each} would have held it (this one has {})",
            status.needed,
            status.used,
            enough(identity, status.needed),
            identity.buffer_bytes
        ));
    }
    if status.discarded > 0 {
        context.note(format_args!(
            "the target could not record {} events; gaps show where",
            status.discarded
        ));
    }
}

/// A size of a buffer that holds so many bytes: whole packets, as the recorder wants them.
fn enough(identity: &Identity, bytes: u64) -> u64 {
    let packet = u64::from(identity.packet_bytes.max(1));
    // The last packet of a buffer is seldom full, and a record never lies in two.
    let packets = bytes.div_ceil(packet).saturating_add(1);
    packets.saturating_mul(packet)
}
