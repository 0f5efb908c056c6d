//! Messages for failures of the link to a target.

use kymo_link::{Address, Dump, Ended, LinkError};

use crate::diagnostic::Report;

/// Report of an incomplete dump; `None` if it is complete.
pub fn incomplete(dump: &Dump) -> Option<Report> {
    let missing: u64 = dump.missing.iter().map(|hole| hole.end - hole.start).sum();
    let arrived = (dump.bytes.len() as u64).saturating_sub(
        dump.missing
            .iter()
            .map(|hole| {
                hole.end
                    .min(dump.bytes.len() as u64)
                    .saturating_sub(hole.start)
            })
            .sum(),
    );
    let much = match dump.total {
        Some(total) => format!("{arrived} of {total} bytes arrived"),
        None => format!("{arrived} bytes arrived, the target did not say of how many"),
    };
    let kept = "what arrived is kept and marked where something is missing";
    let again = "the target still has it all: try again";
    Some(match &dump.ended {
        Ended::Whole => return None,
        Ended::Changed => Report::new(
            "the target's buffer changed while it was sent: its checksum is wrong, twice",
        )
        .help("what arrived is kept, but events may be wrong; is another program using the link?"),
        Ended::Cancelled => Report::new(format_args!("broken off: {much}")).help(kept),
        Ended::Silent { waited } => Report::new(format_args!(
            "the target fell silent for {:.1} s in the middle of the dump: {much}",
            waited.as_secs_f64()
        ))
        .help(kept)
        .help("does its program still run, and does it call kymo_link_poll() often enough?"),
        Ended::Incomplete => Report::new(format_args!(
            "the target does not send {missing} bytes however often it is asked: {much}"
        ))
        .help(kept),
        Ended::Restarted => Report::new(format_args!(
            "the target started again in the middle of the dump: {much}"
        ))
        .help(kept)
        .help("what it had recorded before is gone: did it crash, or its watchdog reset it?"),
        Ended::Refused(reason) => Report::new(format_args!(
            "the target ended the dump before it was whole ({reason}): {much}"
        ))
        .help(kept)
        .help(again),
        Ended::TooLong { limit } => Report::new(format_args!(
            "the target sends more than {limit} bytes, which is more than it can hold: {much}"
        ))
        .help(kept)
        .help("reset the target: its recorder may be damaged"),
        Ended::Disconnected(error) => Report::new(format_args!("{error}: {much}"))
            .help(kept)
            .help(again),
    })
}

/// Report of a failed link to a target, with advice.
pub fn explain(error: LinkError) -> Report {
    let report = Report::caused_by(&error);
    match &error {
        LinkError::NotFound {
            address: Address::Serial { .. },
            ..
        } => report.help(
            "is the board plugged in? give its port with --serial, or the whole target with \
             --target tcp:HOST:PORT",
        ),
        LinkError::NotFound {
            address: Address::Memory { .. },
            ..
        }
        | LinkError::Open {
            address: Address::Memory { .. },
            ..
        } => report.help(
            "is the guest running, is this the file of its memory, and is the address that of the file's first byte?",
        ),
        LinkError::PermissionDenied {
            address: Address::Memory { .. },
            ..
        } => report.help("the file is read and written: check its permissions"),
        LinkError::NotFound {
            address: Address::Unix { .. },
            ..
        }
        | LinkError::ConnectionRefused {
            address: Address::Unix { .. },
        } => report.help(
            "does the program run, linked with Kymo's library and with KYMO_SOCKET in its environment?",
        ),
        LinkError::PermissionDenied {
            address: Address::Unix { .. },
            ..
        } => report.help("a program is reached by its own user, and by root"),
        LinkError::NotFound { .. } => report.help("is the name of the host right?"),
        LinkError::PermissionDenied { .. } => report.help(
            "serial ports belong to a group (ls -l shows it, dialout as a rule): become a member \
             of it and log in again",
        ),
        LinkError::PortBusy { .. } => {
            report.help("close the terminal program that holds it (`fuser PORT` finds it)")
        }
        LinkError::ConnectionRefused {
            address: Address::Rtt { .. },
        } => report.help(
            "is the debug server running, and was RTT started in it (OpenOCD: rtt setup, rtt start, rtt server \
             start PORT CHANNEL; J-Link: port 19021)?",
        ),
        LinkError::ConnectionRefused { .. } => {
            report.help("is the target (or QEMU) running, and is this its port?")
        }
        LinkError::ConnectTimeout { .. } => {
            report.help("is the host on, and does a firewall stand in between?")
        }
        LinkError::Open {
            address: Address::Serial { .. },
            ..
        } => report.help(
            "a serial port is a device such as /dev/ttyACM0 or /dev/ttyUSB0; a saved recording is \
             given without --target or --serial",
        ),
        LinkError::Open { .. } => report.help("is the network up? try again"),
        LinkError::Refused { .. } => report.help(
            "`kymo status` shows what this target can do and what it is doing; what was sent \
             before stands",
        ),
        LinkError::Cancelled => report.help("nothing had arrived; the target still has it all"),
        LinkError::NoAnswer {
            address: Address::Unix { .. },
            ..
        } => report
            .help(
                "a program answers one host at a time: does another kymo record from it, or follow it? end that one, or \
                 look at what it writes",
            )
            .help("if there is none, the program may be stopped (in a debugger, by SIGSTOP)"),
        LinkError::NoAnswer { .. } => report
            .help(
                "is the firmware running, and does it call kymo_link_poll()? (with Zephyr's own \
                 instrumentation: is this the UART of its console?)",
            )
            .help(
                "a serial port must have the firmware's speed (--baud); a TCP port may serve \
                 another program already, such as a kymo that records: a target answers one at a time",
            ),
        LinkError::Zephyr { .. } => report.help(
            "of such a target kymo gets traces and profiles (`kymo trace`, `kymo profile`), and sets its \
             trigger and stopper (`kymo trace --list`); it can't stream, and knows no other commands",
        ),
        LinkError::NotSupported { .. } => report.help(
            "was the firmware built with CONFIG_INSTRUMENTATION_MODE_CALLGRAPH (traces) or \
             _STATISTICAL (profiles)? `kymo status` tells",
        ),
        LinkError::NotSet { .. } => report.help(
            "a target of 32 bits can't have a longer address; else something else may use the same \
             line: try again",
        ),
        LinkError::NotKymo { .. } => report
            .help("is this the port of the program with Kymo, or Zephyr's instrumentation, in it?")
            .help("unreadable text means that the serial port has another speed (--baud)"),
        LinkError::Version { .. } => {
            report.help("build the firmware and the command `kymo` from the same release")
        }
        LinkError::TooMuch { .. } => {
            report.help("no target holds as much: reset it, its recorder may be damaged")
        }
        LinkError::TimedOut { .. } => {
            report.help("the target answered before: its program may have stopped; reset it")
        }
        LinkError::Disconnected { .. } => report.help("was the cable pulled, or QEMU ended?"),
        LinkError::Protocol { .. } => {
            report.help("the firmware and the command `kymo` may be of different releases")
        }
        _ => report,
    }
}
