//! What a live target has recorded, fetched.
//!
//! `kymo trace` fetches it, and so does every subcommand whose input turns out to be a target: all of
//! them say the same of what could not be recorded or did not fit.

use kymo_event::ClockCheck;
use kymo_link::{ClockReading, Dump, Status};
use kymo_read::kymo::{clock_checks, host_check_packet, loss_packet};
use kymo_wire::clock_check::HostCheck;
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

/// What a live target had recorded.
pub struct Captured {
    /// Its packets.
    pub dump: Dump,
    /// How its clock compares with this computer's.
    pub host: Option<HostCheck>,
}

impl Captured {
    /// The packets as they are kept: with what this computer knows of the target's clock behind them.
    pub fn into_kept(mut self) -> Dump {
        let dump = &mut self.dump;
        if let Some(check) = &self.host {
            let packet = host_check_packet(&dump.identity, &dump.bytes, check);
            dump.bytes.extend(packet);
        }
        self.dump
    }
}

/// Fetches all that a target has recorded. Says on stderr what is to know before it is looked at.
///
/// # Errors
/// When nothing of it arrived; a part of it is a [`Dump`] too
/// ([`incomplete`](crate::target::incomplete)).
pub fn fetch(live: &mut Live, context: &Context) -> Result<Captured, Report> {
    // Asked before the dump: while it is sent, new events are discarded on purpose.
    let status = live.target.status().map_err(explain)?;
    // (A target that cannot tell the time has a recording all the same.)
    let reading = live.target.read_clock().ok();
    let mut dump = live.fetch(What::Trace, context)?;
    if dump.is_whole()
        && let Some(packet) = loss_packet(&dump.identity, &dump.bytes, status.discarded)
    {
        dump.bytes.extend(packet);
    }
    let mut host = None;
    if dump.is_whole()
        && !dump.bytes.is_empty()
        && let Some(reading) = reading
        && let Ok((_, check)) = live.target.compare_clock(&reading)
    {
        host = check;
    }
    remark(&dump.identity, &status, context);
    Ok(Captured { dump, host })
}

/// What a target's clock comes to beside its periodic tick and this computer's clock, since it was read.
pub fn compare(live: &mut Live, reading: &ClockReading) -> Vec<ClockCheck> {
    match live.target.compare_clock(reading) {
        Ok((now, host)) => clock_checks(live.identity.clock_hz, now.tick, host),
        Err(_) => Vec::new(),
    }
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
