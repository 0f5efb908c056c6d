//! Live trace from a target, or from a directory that `kymo record` writes.
//!
//! It blocks like a pipe. Whenever no more data is available, output so far is flushed ([`Moment::Pause`]), so that a
//! reader of the output sees everything at once.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kymo_event::{Batch, Event, Time, TraceInfo, Wanted};
use kymo_link::Cancel;
use kymo_read::kymo::{Live as LiveTrace, Tail};
use kymo_read::{Declarations, OpenOptions};
use kymo_symbols::Symbols;

use crate::args::SymbolArgs;
use crate::context::{Context, Remarks};
use crate::diagnostic::Report;
use crate::input::{Events, Moment, declared, first_time, more, refused};
use crate::interrupt::Interruptible;
use crate::live_stream::{self, Ended, Go, Sink, StreamArgs};
use crate::recording;
use crate::target::{Live, TargetArgs, explain, trace_info};

/// Maximum number of packets in the queue before the target must wait.
const WAITING: usize = 64;

/// Silence after which events are no longer held back to be merged with other streams.
const SILENCE: Duration = Duration::from_millis(250);

/// Polling interval of a directory.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A trace that still grows.
pub struct Follow {
    live: LiveTrace,
    symbols: Arc<Symbols>,
    /// Where symbols of files come from that the trace names later, and how many it has named so far.
    files: SymbolArgs,
    mapped: usize,
    declared: Declarations,
    feeder: Feeder,
    remarks: Remarks,
    /// Batches that arrived while waiting for the first event.
    read: Vec<Batch>,
    /// The number of processors whose clock corrections have been reported.
    corrected: usize,
}

/// The source of packets.
enum Feeder {
    /// A thread that talks to the target. It ends when the user stops, or the target is gone.
    Target {
        packets: Receiver<Vec<u8>>,
        thread: Option<JoinHandle<Result<Ended, Report>>>,
    },
    /// A directory, which is polled until the user stops.
    Directory { tail: Tail, cancel: Interruptible },
}

/// Result of one poll.
enum Fed {
    /// New data arrived.
    More,
    /// No data arrived within the wait.
    Silence,
    /// No more data will arrive.
    End,
}

impl Follow {
    /// Follows a live target.
    ///
    /// # Errors
    /// When it does not answer, or cannot stream.
    pub fn target(
        target: TargetArgs,
        stream: StreamArgs,
        symbols: &SymbolArgs,
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        let mut connected = target.connect(context)?;
        recording::check(&connected)?;
        live_stream::check(&connected)?;
        let reported = connected.target.send_time().map_err(explain)?;
        let loaded = Arc::new(symbols.load(&trace_info(&connected.identity), context)?);
        let live = LiveTrace::of_target(
            &connected.identity,
            &connected.name(),
            live_stream::origin(reported, &connected.identity),
            &OpenOptions {
                wanted,
                ..OpenOptions::default()
            },
        );
        let live = live.map_err(|error| refused(&error))?;
        let (sender, packets) = sync_channel(WAITING);
        let remarks = context.remarks().clone();
        let drain = move || drain(connected, &target, stream, sender, &remarks);
        let thread = Some(std::thread::spawn(drain));
        let feeder = Feeder::Target { packets, thread };
        Self::begin(live, (loaded, symbols), feeder, context.remarks())
    }

    /// Follows a directory.
    ///
    /// # Errors
    /// When it is no recording of a target.
    pub fn directory(
        path: &Path,
        symbols: &SymbolArgs,
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        if path.is_file() {
            let name = path.display();
            let report = Report::new(format_args!(
                "{name}: expected a target, or the directory that `kymo record` writes"
            ));
            return Err(report
                .help(format_args!("`kymo show {name}` shows a file"))
                .help(format_args!(
                    "text that still grows is shown as it comes: tail -f {name} | kymo show -"
                )));
        }
        let opened = Tail::open(
            path,
            &OpenOptions {
                wanted,
                ..OpenOptions::default()
            },
        );
        let (tail, live) = opened.map_err(|error| refused(&error))?;
        let loaded = Arc::new(symbols.load(live.info(), context)?);
        let cancel = Interruptible::new()?;
        let feeder = Feeder::Directory { tail, cancel };
        Self::begin(live, (loaded, symbols), feeder, context.remarks())
    }

    /// Waits until the streams are known, because the output depends on them.
    fn begin(
        live: LiveTrace,
        (symbols, files): (Arc<Symbols>, &SymbolArgs),
        feeder: Feeder,
        remarks: &Remarks,
    ) -> Result<Self, Report> {
        let mut follow = Self {
            mapped: live
                .info()
                .identities
                .spaces()
                .iter()
                .map(|it| it.mappings.len())
                .sum(),
            live,
            declared: declared(&symbols),
            symbols,
            files: files.clone(),
            feeder,
            remarks: remarks.clone(),
            read: Vec::new(),
            corrected: 0,
        };
        while !follow.live.info().streams.iter().any(|s| !s.timeless) {
            if let Fed::End = follow.feed(SILENCE)? {
                break;
            }
        }
        Ok(follow)
    }

    /// Polls for more packets, and waits for them at most for `wait`.
    fn feed(&mut self, wait: Duration) -> Result<Fed, Report> {
        let fed = self.take(wait)?;
        // A process names its files in its stream.
        let (info, before) = (self.live.info(), self.mapped);
        let note = &mut |text| self.remarks.note(text);
        self.mapped = self.files.load_mapped(info, &self.symbols, before, note);
        if self.mapped > before {
            self.declared = declared(&self.symbols);
        }
        Ok(fed)
    }

    fn take(&mut self, wait: Duration) -> Result<Fed, Report> {
        match &mut self.feeder {
            Feeder::Target { packets, .. } => match packets.recv_timeout(wait) {
                Ok(packet) => {
                    self.live.push(packet);
                    Ok(Fed::More)
                }
                Err(RecvTimeoutError::Timeout) => Ok(Fed::Silence),
                Err(RecvTimeoutError::Disconnected) => Ok(Fed::End),
            },
            Feeder::Directory { tail, cancel } => {
                let mut waited = Duration::ZERO;
                loop {
                    let fed = tail.feed(&mut self.live);
                    if fed.map_err(|error| Report::caused("the recording", &error))? {
                        return Ok(Fed::More);
                    }
                    if cancel.flag().is_cancelled() {
                        return Ok(Fed::End);
                    }
                    if waited >= wait {
                        return Ok(Fed::Silence);
                    }
                    std::thread::sleep(LOOK_EVERY);
                    waited += LOOK_EVERY;
                }
            }
        }
    }

    /// The final result, once there are no more packets.
    ///
    /// # Errors
    /// If it ended before the user stopped it, or data was damaged.
    pub fn verdict(mut self) -> Result<(), Report> {
        if let Feeder::Target { packets, thread } = &mut self.feeder {
            // The thread may be blocked while it sends one more packet.
            while packets.try_recv().is_ok() {}
            if let Some(thread) = thread.take() {
                let ended = thread
                    .join()
                    .map_err(|_| Report::new("the conversation with the target broke off"))??;
                if let Some(report) = ended.failure {
                    return Err(report);
                }
            }
        }
        match self.live.info().damage.first() {
            Some(damage) => Err(Report::new(format_args!(
                "a packet in {} could not be read: {}",
                damage.stream, damage.message
            ))),
            None => Ok(()),
        }
    }
}

impl Follow {
    /// Reports clocks that are now known to differ. Events shown before have the times of their own clocks.
    fn report_corrections(&mut self) {
        let corrections = &self.live.info().clock_corrections;
        for correction in corrections.get(self.corrected..).unwrap_or(&[]) {
            self.remarks.note(format_args!(
                "times of CPU {} are corrected from here on to the clock of CPU {}, by {} ns (± {} ns)",
                correction.cpu.0, correction.reference.0, correction.last_ns, correction.uncertainty_ns
            ));
        }
        self.corrected = self.corrected.max(corrections.len());
    }
}

impl Events for Follow {
    fn info(&self) -> &TraceInfo {
        self.live.info()
    }

    fn symbols(&self) -> Arc<Symbols> {
        Arc::clone(&self.symbols)
    }

    fn start(&mut self) -> Result<Option<Time>, Report> {
        let mut start = None;
        let mut read = std::mem::take(&mut self.read);
        let come = self.come(&mut |moment| {
            if let Moment::Batch(info, batch) = moment {
                read.push(batch.clone());
                start = first_time(info, batch);
            }
            Ok(more(start.is_none()))
        });
        self.read = read;
        come.map(|()| start)
    }

    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report> {
        for batch in std::mem::take(&mut self.read) {
            if each(Moment::Batch(self.live.info(), &batch))?.is_break() {
                return Ok(());
            }
        }
        self.come(each)
    }
}

impl Follow {
    /// Iterates over events as they arrive, until the end or until `each` breaks.
    fn come(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report> {
        let mut all = false;
        let mut batch = Batch::default();
        loop {
            while let Some(mut event) = self.live.next(all) {
                label(&mut event, &self.symbols);
                self.declared.describe(&mut event);
                batch.push_event(event);
                if batch.is_full() {
                    break;
                }
            }
            if !batch.is_empty() {
                if each(Moment::Batch(self.live.info(), &batch))?.is_break() {
                    return Ok(());
                }
                batch.clear();
                continue;
            }
            if all && each(Moment::Pause)?.is_break() {
                return Ok(());
            }
            let mut fed = self.feed(Duration::ZERO)?;
            self.report_corrections();
            if let Fed::Silence = fed {
                if each(Moment::Pause)?.is_break() {
                    return Ok(());
                }
                fed = self.feed(SILENCE)?;
            }
            match fed {
                Fed::More => all = false,
                Fed::Silence => all = true,
                Fed::End if all => return Ok(()),
                Fed::End => {
                    all = true;
                    self.live.finish();
                }
            }
        }
    }
}

/// Adds the name to a named marker.
fn label(event: &mut Event, symbols: &Symbols) {
    kymo_read::label_marker(event, &|address| symbols.string_at(address));
}

/// The thread that talks to a target.
fn drain(
    mut live: Live,
    target: &TargetArgs,
    stream: StreamArgs,
    packets: SyncSender<Vec<u8>>,
    remarks: &Remarks,
) -> Result<Ended, Report> {
    let mut sink = Channel {
        packets,
        cancel: live.cancel.flag().clone(),
    };
    live_stream::run(&mut live, target, stream, &mut sink, remarks)
}

/// Passes packets to the consumer's thread.
struct Channel {
    packets: SyncSender<Vec<u8>>,
    cancel: Cancel,
}

impl Sink for Channel {
    fn packet(&mut self, packet: &[u8]) -> Result<Go, Report> {
        // The channel is closed when the reader of our output has gone.
        Ok(match self.packets.send(packet.to_vec()) {
            Ok(()) => Go::On,
            Err(_) => Go::Away,
        })
    }

    fn pause(&mut self) -> Result<Go, Report> {
        Ok(if self.cancel.is_cancelled() {
            Go::Enough
        } else {
            Go::On
        })
    }
}
