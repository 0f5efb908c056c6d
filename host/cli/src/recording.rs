//! Fetches the recording of a live target.
//!
//! Used by `kymo trace` and by every subcommand whose input is a target, so that all report the same about events
//! that were lost or did not fit.

use kymo_event::ClockCheck;
use kymo_link::{ClockReading, Dump, Status};
use kymo_read::kymo::{clock_checks, host_check_packet, loss_packet};
use kymo_wire::clock_check::HostCheck;
use kymo_wire::link::Identity;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::target::{Live, What, explain};

/// Checks that a target records events at all.
///
/// # Errors
/// When its recorder was built without events.
pub fn check(live: &Live) -> Result<(), Report> {
    if live.identity.capabilities.trace {
        return Ok(());
    }
    Err(Report::new("this target records no events")
        .help("it may keep a table of functions: `kymo profile`"))
}

/// The recording of a live target.
pub struct Captured {
    /// Its packets.
    pub dump: Dump,
    /// Comparison of its clock with this computer's.
    pub host: Option<HostCheck>,
}

impl Captured {
    /// The packets in the form in which they are saved: followed by this computer's data on the target's clock.
    pub fn into_kept(mut self) -> Dump {
        let dump = &mut self.dump;
        if let Some(check) = &self.host {
            let packet = host_check_packet(&dump.identity, &dump.bytes, check);
            dump.bytes.extend(packet);
        }
        self.dump
    }
}

/// Fetches the whole recording of a target. Reports on stderr what a user must know about it.
///
/// # Errors
/// When nothing arrived. A partial dump is returned as well ([`incomplete`](crate::target::incomplete) reports it).
pub fn fetch(live: &mut Live, context: &Context) -> Result<Captured, Report> {
    // Read before the dump, because new events are discarded on purpose while it is sent.
    let status = live.target.status().map_err(explain)?;
    // (A target without a readable clock still has a recording.)
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

/// Compares a target's clock with its periodic tick and this computer's clock, since `reading`.
pub fn compare(live: &mut Live, reading: &ClockReading) -> Vec<ClockCheck> {
    match live.target.compare_clock(reading) {
        Ok((now, host)) => clock_checks(live.identity.clock_hz, now.tick, host),
        Err(_) => Vec::new(),
    }
}

/// Reports what a user must know about a capture before looking at it.
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

/// A buffer size that holds this many bytes, in whole packets, as the recorder requires.
fn enough(identity: &Identity, bytes: u64) -> u64 {
    let packet = u64::from(identity.packet_bytes.max(1));
    // The last packet of a buffer is seldom full, and a record never spans two.
    let packets = bytes.div_ceil(packet).saturating_add(1);
    packets.saturating_mul(packet)
}
