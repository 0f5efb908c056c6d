//! Live target of a subcommand.
//!
//! Shared by all subcommands that talk to a target: finds out which one to use, opens the connection, detects whether
//! it is a Kymo target or one that runs Zephyr's own instrumentation, shows the output that its program writes to the
//! same line, and explains errors to the user.

mod functions;
mod messages;
mod zephyr;

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kymo_event::{Addr, TraceInfo};
use kymo_link::systemview::SystemViewAddress;
use kymo_link::zephyr::Target as ZephyrTarget;
use kymo_link::{
    Address, AddressError, Cancel, DEFAULT_BAUD, Device, Dump, Progress, Target, Timeouts,
};
use kymo_wire::link::{Command, Conditions, Duration as Requested, Identity, Mode};

use crate::context::{Context, Remarks};
use crate::diagnostic::Report;
use crate::filter;
use crate::input::hex;
use crate::interrupt::Interruptible;
use crate::render::count::counted;
use crate::render::escape::Console as ConsoleFilter;
use crate::systemview;

pub use functions::{one_function, set_text};
pub use messages::{explain, incomplete};
pub use zephyr::{Fetched, LiveZephyr, ZEPHYR_WAIT, one_pointer, pointer_text};

/// The default serial port: the first board on USB.
const DEFAULT_SERIAL: &str = "/dev/ttyACM0";

/// Default time to wait for a capture to end.
pub const USUAL_WAIT: Duration = Duration::from_secs(10);

/// Polling interval of a capture.
const CAPTURE_POLL: Duration = Duration::from_millis(100);

/// The environment variable with a factor for all timeouts of a target.
const PATIENCE_VARIABLE: &str = "KYMO_PATIENCE";

/// What a target speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// What the target answers to tells.
    Auto,
    /// Kymo's.
    Kymo,
    /// That of Zephyr's instrumentation subsystem.
    Zephyr,
    /// That of Zephyr's tracing subsystem, which takes two commands and answers nothing.
    ZephyrTracing,
}

/// Which target, of every subcommand that talks to one.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Target")]
pub struct TargetArgs {
    /// The target: a serial port, tcp:HOST:PORT (a serial server, a UART of QEMU's), rtt:HOST:PORT (a debug probe's RTT
    /// server; /CHANNEL behind it for J-Link), or unix:PATH (a program on Linux that was started with KYMO_SOCKET=PATH).
    #[arg(long, value_name = "TARGET", conflicts_with = "serial")]
    target: Option<Address>,

    /// The target's serial port [default: /dev/ttyACM0].
    #[arg(long, value_name = "PORT")]
    serial: Option<Address>,

    /// The speed of the serial port in bits a second.
    #[arg(long, value_name = "BAUD", default_value_t = DEFAULT_BAUD)]
    baud: u32,

    /// Show what the program writes to the same line, on stderr.
    #[arg(long)]
    console: bool,

    /// What the target speaks: found out by a question that harms none of them, unless it is said.
    #[arg(long, value_name = "PROTOCOL", default_value = "auto")]
    protocol: Protocol,
}

/// A target that is named on the command line: by its address alone, or with `--target` or `--serial`.
#[derive(clap::Args, Clone, Debug)]
pub struct NamedTarget {
    /// The target: a serial port, or tcp:HOST:PORT; --target says the same.
    #[arg(value_name = "TARGET", conflicts_with_all = ["target", "serial"])]
    address: Option<Address>,

    #[command(flatten)]
    target: TargetArgs,
}

impl NamedTarget {
    /// The SystemView target that was named, if it is one.
    ///
    /// # Errors
    /// When it looks like one but is not valid.
    pub fn systemview(&self) -> Result<Option<SystemViewAddress>, Report> {
        match &self.address {
            // Everything but a TCP address is the name of a serial port.
            Some(Address::Serial { path, .. }) => systemview::address_in(path, self.target.baud),
            _ => Ok(None),
        }
    }

    /// The path or device that was named, unless it is a TCP address.
    pub fn path(&self) -> Option<std::path::PathBuf> {
        match self.args().target? {
            Address::Serial { path, .. } => Some(path),
            Address::Tcp { .. }
            | Address::Rtt { .. }
            | Address::Memory { .. }
            | Address::Unix { .. } => None,
        }
    }

    /// The options of the target, however it was named.
    pub fn args(&self) -> TargetArgs {
        match &self.address {
            Some(address) => self.target.with_address(address.clone()),
            None => self.target.clone(),
        }
    }
}

impl TargetArgs {
    /// The same options with another address.
    pub fn with_address(&self, address: Address) -> Self {
        Self {
            target: Some(address),
            ..self.clone()
        }
    }

    /// Whether the target is a program on this machine that has exited, so that its socket has no server.
    pub fn has_ended(&self) -> bool {
        match &self.target {
            #[cfg(unix)]
            Some(Address::Unix { path }) => std::os::unix::net::UnixStream::connect(path)
                .is_err_and(|error| {
                    [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused]
                        .contains(&error.kind())
                }),
            _ => false,
        }
    }

    /// A target at an address, with this speed of its serial port.
    pub const fn at(address: Address, baud: u32) -> Self {
        Self {
            target: Some(address),
            serial: None,
            baud,
            console: false,
            protocol: Protocol::Auto,
        }
    }

    /// Whether a target is named.
    pub const fn is_named(&self) -> bool {
        self.target.is_some() || self.serial.is_some()
    }

    /// The protocol that the user requested.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The address of the target.
    pub fn address(&self) -> Address {
        let given = self.target.clone().or_else(|| self.serial.clone());
        given
            .unwrap_or_else(|| Address::serial(DEFAULT_SERIAL))
            .with_baud(self.baud)
    }

    /// Connects to the target and requests its identity, for subcommands that support only Kymo targets.
    ///
    /// # Errors
    /// When it can't be reached, or is not a Kymo target.
    pub fn connect(&self, context: &Context) -> Result<Live, Report> {
        if !matches!(self.protocol, Protocol::Auto | Protocol::Kymo) {
            return Err(Report::new("only Kymo targets do this").help("leave --protocol out"));
        }
        let cancel = Interruptible::new()?;
        let bar = ProgressBar::hidden();
        let (target, identity) = self.open(&bar, context.remarks())?;
        Ok(Live {
            target,
            identity,
            cancel,
            bar,
        })
    }

    /// Connects to the target and detects its kind.
    ///
    /// # Errors
    /// When it can't be reached, or its answer is unknown.
    pub fn recognise(&self, context: &Context) -> Result<Either, Report> {
        let zephyr = |target: ZephyrTarget, cancel, bar| {
            context.detail(format_args!(
                "{} runs Zephyr's own instrumentation",
                target.address()
            ));
            Either::Zephyr(Box::new(LiveZephyr::new(target, cancel, bar)))
        };
        let bar = ProgressBar::hidden();
        match self.protocol {
            Protocol::Kymo => self
                .connect(context)
                .map(|live| Either::Kymo(Box::new(live))),
            Protocol::Auto => {
                let cancel = Interruptible::new()?;
                let target = self.reach_unknown(&bar, context.remarks())?;
                match target.recognise().map_err(explain)? {
                    Device::Zephyr(target) => Ok(zephyr(*target, cancel, bar)),
                    Device::Kymo(mut target) => {
                        let identity = target.identity().map_err(explain)?;
                        context.detail(format_args!("{} answers: {identity}", target.address()));
                        Ok(Either::Kymo(Box::new(Live {
                            target: *target,
                            identity,
                            cancel,
                            bar,
                        })))
                    }
                }
            }
            Protocol::Zephyr => {
                let cancel = Interruptible::new()?;
                let mut target = self.reach_unknown(&bar, context.remarks())?.into_zephyr();
                target.greet().map_err(explain)?;
                Ok(zephyr(target, cancel, bar))
            }
            Protocol::ZephyrTracing => Err(Report::new(
                "Zephyr's tracing takes no commands but enable and disable, and answers nothing",
            )
            .help("`kymo command enable --protocol zephyr-tracing` makes it send its stream")),
        }
    }

    /// Reconnects to a target that was lost.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when another program answers.
    pub fn reach(&self, live: &mut Live, remarks: &Remarks) -> Result<(), Report> {
        live.target.hang_up();
        let (target, identity) = self.open(&live.bar, remarks)?;
        if !same_program(&live.identity, &identity) {
            return Err(
                Report::new("the target runs another program now").help("begin a new recording")
            );
        }
        live.target = target;
        Ok(())
    }

    fn open(&self, bar: &ProgressBar, remarks: &Remarks) -> Result<(Target, Identity), Report> {
        let mut target = self.reach_unknown(bar, remarks)?;
        let identity = target.identify().map_err(explain)?;
        remarks.detail(format_args!("{} answers: {identity}", target.address()));
        Ok((target, identity))
    }

    /// Opens the connection to a target of any kind, without sending anything.
    fn reach_unknown(&self, bar: &ProgressBar, remarks: &Remarks) -> Result<Target, Report> {
        let address = self.address();
        remarks.detail(format_args!("opening {address}"));
        let mut target = Target::open(&address, timeouts()?).map_err(explain)?;
        if self.console {
            let bar = bar.clone();
            let mut console = ConsoleFilter::default();
            target.set_console(move |text| {
                let text = console.filter(text);
                // An error of stderr can't be reported.
                bar.suspend(|| {
                    let _ = io::stderr().lock().write_all(&text);
                });
            });
        }
        Ok(target)
    }
}

/// Parses the time of `--wait`: seconds, or with a unit.
pub fn wait_time(text: &str) -> Result<Duration, String> {
    filter::duration(text).map(|wait| Duration::from_nanos(wait.0))
}

/// Formats a time with its unit for messages.
fn time(time: Duration) -> String {
    match u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) {
        0 => "0 s".to_owned(),
        ns => kymo_event::Duration(ns).with_unit(),
    }
}

/// The timeouts of a target: the defaults times [`patience`].
pub fn timeouts() -> Result<Timeouts, Report> {
    patience().map(|factor| Timeouts::default().times(factor))
}

/// The factor for timeouts from the environment, for targets that are slow by an unpredictable factor (an emulator on
/// a busy machine).
pub fn patience() -> Result<u32, Report> {
    let Some(factor) = std::env::var_os(PATIENCE_VARIABLE) else {
        return Ok(1);
    };
    match factor.to_str().and_then(|factor| factor.parse().ok()) {
        Some(factor @ 1..=1000) => Ok(factor),
        _ => {
            let found = factor.display();
            let message = format!("{PATIENCE_VARIABLE} must be 1 to 1000, but is {found}");
            Err(Report::new(message))
        }
    }
}

/// The address of a live target that is given in the place of an input: `kymo trace tcp:localhost:4000` and `kymo
/// trace /dev/ttyUSB0` work as expected.
///
/// # Errors
/// When it looks like an address but is not valid.
pub fn address_in(input: &Path) -> Result<Option<Address>, Report> {
    let Some(name) = input.to_str() else {
        return Ok(None);
    };
    let prefixes = ["tcp:", "rtt:", "memory:", "unix:", "socket://", "serial:"];
    let prefixed = prefixes.iter().any(|prefix| name.starts_with(prefix));
    if !prefixed && !is_device(input) {
        return Ok(None);
    }
    name.parse().map(Some).map_err(|error: AddressError| {
        Report::caused_by(&error)
            .help("targets are tcp:HOST:PORT, rtt:HOST:PORT or a serial port; a file of such a name is ./NAME")
    })
}

/// Whether a path is a character device, which is usually a serial port. Memory devices (`/dev/zero`, `/dev/null`,
/// `/dev/urandom`: major number 1 in Linux) do not count.
#[cfg(unix)]
fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let is_memory = |device: u64| cfg!(target_os = "linux") && (device >> 8) & 0xfff == 1;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_char_device() && !is_memory(metadata.rdev()))
}

/// On this system serial ports have no paths.
#[cfg(not(unix))]
fn is_device(_: &Path) -> bool {
    false
}

/// A live target of either kind.
pub enum Either {
    /// A Kymo target.
    Kymo(Box<Live>),
    /// A target that runs Zephyr's own instrumentation.
    Zephyr(Box<LiveZephyr>),
}

/// A connected target with its identity.
pub struct Live {
    /// The target itself.
    pub target: Target,
    /// Its identity.
    pub identity: Identity,
    /// The flag that ctrl-C sets during a wait.
    pub cancel: Interruptible,
    bar: ProgressBar,
}

/// Whether two identities belong to the same program, so that the packets of one can follow those of the other. (A
/// program on Linux measures its clock rate for each request.)
fn same_program(one: &Identity, other: &Identity) -> bool {
    let apart = one.clock_hz.abs_diff(other.clock_hz);
    one.build_id() == other.build_id()
        && one.layout == other.layout
        && one.text_base == other.text_base
        && apart <= one.clock_hz / 1000
}

/// The properties that all traces of a target have.
pub fn trace_info(identity: &Identity) -> TraceInfo {
    let build_id = identity.build_id();
    TraceInfo {
        format: "kymo".to_owned(),
        build_id: (!build_id.is_empty()).then(|| build_id.to_vec()),
        text_base: Some(Addr(identity.text_base)),
        clock_hz: Some(identity.clock_hz),
        ..TraceInfo::default()
    }
}

/// The data to fetch from a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its recorded events.
    Trace,
    /// Its profile table.
    Profile,
}

/// The query for trigger and stopper, and the names of the counts in its answer.
const CONDITIONS: (Command, &[&str]) = (Command::Condition(Conditions::Ask), &["_hits", "_acted"]);

/// The query for duration mode, and the names of the counts in its answer.
const DURATION: (Command, &[&str]) = (
    Command::Duration(Requested::Ask),
    &["acted", "too_deep", "unmatched"],
);

impl Live {
    /// The name of the target in messages.
    pub fn name(&self) -> String {
        self.target.address().to_string()
    }

    /// Reboots the target and waits until it answers.
    ///
    /// # Errors
    /// When it refuses, or does not answer again.
    pub fn reboot(&mut self, context: &Context) -> Result<(), Report> {
        context.detail("rebooting the target");
        let before = self.target.sets().map_err(explain)?;
        let conditions = self.settings(CONDITIONS)?;
        let duration = self.settings(DURATION)?;
        self.identity = self.target.reboot(self.cancel.flag()).map_err(explain)?;
        context.detail(format_args!("it is back: {}", self.identity));
        let after = self.target.sets().map_err(explain)?;
        if before != after {
            let why = if self.identity.capabilities.retained {
                "kymo_config.retained lies where start-up code writes, or in memory that loses its \
                 contents: give it a section that is neither loaded nor cleared (.noinit); or the \
                 program sets others when it starts"
            } else {
                "it was built without kymo_config.retained, or its library without the part `retained`"
            };
            context.warn(format_args!(
                "trigger and stopper did not survive the reboot, they were {before} and are {after}: \
                 {why}"
            ));
        }
        let after = self.settings(CONDITIONS)?;
        if conditions != after {
            context.warn(format_args!(
                "the conditions of trigger and stopper did not survive the reboot, they were {conditions} and are \
                 {after}: the program has no kymo_config.retained, or in memory that start-up code writes, or its \
                 library has no part `retained`"
            ));
        }
        let after = self.settings(DURATION)?;
        if duration != after {
            context.warn(format_args!(
                "duration mode's settings did not survive the reboot, they were {duration} and are {after}: \
                 KYMO_DURATION has no .retained, or that or the filter lies in memory that start-up code writes, \
                 or the library has no part `retained`"
            ));
        }
        Ok(())
    }

    /// The settings that the target reports, without counts; empty if it has no such settings.
    fn settings(&mut self, (command, counts): (Command, &[&str])) -> Result<String, Report> {
        let capabilities = self.identity.capabilities;
        let has = match command {
            Command::Condition(_) => capabilities.conditions,
            _ => capabilities.duration,
        };
        if !has {
            return Ok(String::new());
        }
        let reply = self.target.command(command).map_err(explain)?;
        let is_count = |word: &&str| {
            let key = word.split('=').next().unwrap_or(word);
            counts.iter().any(|count| key.ends_with(count))
        };
        let settings = reply.split(' ').filter(|word| !is_count(word));
        Ok(settings.collect::<Vec<_>>().join(" "))
    }

    /// Waits until a capture that has just begun is over: recording was turned off again, or the buffer is full.
    /// After `longest`, or a ctrl-C, the capture ends anyway, and this is reported.
    ///
    /// # Errors
    /// When the target stops answering.
    pub fn wait_for_capture(&mut self, longest: Duration, context: &Context) -> Result<(), Report> {
        let has = u64::from(self.identity.buffer_bytes);
        let sets = self.target.sets().map_err(explain)?;
        let deadline = Instant::now() + longest;
        loop {
            let status = self.target.status().map_err(explain)?;
            let begun = status.on || status.bytes > 0;
            let full = match status.mode {
                Mode::Fixed | Mode::Stream => status.discarded > 0 || status.needed > has,
                // With a stopper, the capture ends there; without one, it has no end.
                Mode::Overwrite => sets.stopper.is_none() && status.needed > has,
            };
            if full || (begun && !status.on) {
                context.detail("the capture is complete");
                return Ok(());
            }
            if !begun && sets.trigger.is_none() {
                context.note(
                    "the target does not record, and no trigger would make it: set one with \
                     --trigger, or let it record at once with `kymo command on`",
                );
                return Ok(());
            }
            if self.cancel.flag().is_cancelled() {
                context.note(
                    "no longer waiting: this is what there is so far (ctrl-C again ends this too)",
                );
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waited = time(longest);
                if begun {
                    context.note(format_args!(
                        "still recording after {waited}; this is what there is so far"
                    ));
                } else {
                    context.warn(format_args!(
                        "the trigger was not entered within {waited}; is it compiled with the \
                         hooks, and is it called? (--wait waits longer)"
                    ));
                }
                return Ok(());
            }
            self.target
                .listen(CAPTURE_POLL, self.cancel.flag())
                .map_err(explain)?;
        }
    }

    /// Fetches a dump, with a progress bar on a terminal. Reports retransmissions on stderr.
    ///
    /// # Errors
    /// When nothing arrived.
    pub fn fetch(&mut self, what: What, context: &Context) -> Result<Dump, Report> {
        if context.progress_visible() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        // The template is a valid constant; an invalid one would only change the looks.
        if let Ok(style) = ProgressStyle::with_template(
            "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}",
        ) {
            self.bar.set_style(style);
        }
        let bar = self.bar.clone();
        let mut progress = |progress: Progress| {
            bar.set_length(progress.total.unwrap_or(progress.bytes));
            bar.set_position(progress.bytes);
            if progress.resent > 0 {
                bar.set_message(format!("{} sent again", progress.resent));
            }
        };
        // A ctrl-C that ended a wait must not cancel the transfer that follows.
        let cancel = match self.cancel.flag() {
            used if used.is_cancelled() => Cancel::new(),
            fresh => fresh.clone(),
        };
        let result = match what {
            What::Trace => self.target.dump_trace(&mut progress, &cancel),
            What::Profile => self.target.dump_profile(&mut progress, &cancel),
        };
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        let dump = result.map_err(explain)?;
        // From here on, ctrl-C ends the program as usual.
        self.cancel.disarm();
        if dump.damaged > 0 || dump.resent > 0 {
            context.note(format_args!(
                "{}; {} of the dump sent again",
                counted(dump.damaged, "damaged frame"),
                counted(dump.resent, "piece")
            ));
        }
        Ok(dump)
    }
}

/// A build id for display; many programs have none.
pub fn build_id_text(identity: &Identity) -> String {
    match identity.build_id() {
        [] => "none".to_owned(),
        build_id => hex(build_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_measured_anew_is_of_the_same_program() {
        let line = "kymo identify: protocol=3 word=64 order=le shape=wide shift=0 clock_hz=2600000154 \
                    clock_bits=64 buffer=1048576 packet=4096 streams=1 mode=stream \
                    text_base=0x555f69455000 caps=trace,sure_clock,stream \
                    build_id=cb1b6aa4608f25ccfb23af1ed3735b37fda61de7 #2ef47598";
        let first = Identity::parse(line).expect("an identity");
        let at = |clock_hz| Identity { clock_hz, ..first };
        assert!(same_program(&first, &at(2_600_000_011)));
        assert!(!same_program(&first, &at(1_000_000_000)));
    }
}
