//! Thread schedule of one stream without context IDs, from the kernel's context-switch records.
//!
//! Each part of the stream lies between two times: the begin and end of its session, or two timestamps if the trace's
//! clock converts to the kernel's. If the CPU ran one thread only between them, the part belongs to that thread. If the
//! CPU switched threads between them, only the user code before the first and after the last entry into the kernel has
//! a known thread, because switches happen in the kernel. All other parts have no thread; nothing is guessed.

use std::ops::Range;

use super::{History, Ran, Recorded};
use crate::frames::Stream;
use crate::listing::{Packet, PacketDecoder};
use crate::source::Protocol;
use crate::{etmv3, etmv4, ptm};

/// Threads of a stream, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// First position of each run of packets with one thread, in order; `None` if several threads may have run.
    changes: Vec<(usize, Option<u32>)>,
    /// Length of the stream in bytes.
    bytes: u64,
    /// Number of bytes without a known thread.
    unknown: u64,
}

impl Schedule {
    /// Thread that ran the instructions of the packet at `position`.
    pub fn at(&self, position: usize) -> Option<u32> {
        let after = self.changes.partition_point(|(at, _)| *at <= position);
        self.changes.get(after.checked_sub(1)?)?.1
    }

    /// Threads in the order of the stream; a thread repeats for each of its runs.
    pub fn threads(&self) -> impl Iterator<Item = u32> {
        self.changes.iter().filter_map(|(_, thread)| *thread)
    }

    /// Length of the stream in bytes, and the number of bytes without a known thread.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.unknown)
    }

    /// Schedule of `stream`. `None` if the trace itself names the threads, or the recording has no switches of its CPU.
    pub(crate) fn of(history: &History, source: &Recorded, stream: &Stream<'_>) -> Option<Self> {
        let cpu = source
            .cpu
            .filter(|cpu| history.switches.contains_key(cpu))?;
        if source.thread.is_some() || !source.protocol.traces_instructions() {
            return None;
        }
        let (schedule, is_zero_user) = Self::read(history, source, cpu, stream, Ran::User)?;
        if !is_zero_user {
            return Some(schedule);
        }
        // Thread 0 is more than the idle task: perf ran in a PID namespace and records 0 for threads outside of it.
        let again = Self::read(history, source, cpu, stream, Ran::UserOfAny);
        again.map(|(schedule, _)| schedule)
    }

    /// Schedule of `stream` with `user` as the rule for user code; and whether user code ran while the CPU ran only
    /// thread 0.
    fn read(
        history: &History,
        source: &Recorded,
        cpu: u32,
        stream: &Stream<'_>,
        user: Ran,
    ) -> Option<(Self, bool)> {
        let mut builder = Builder {
            history,
            cpu,
            user,
            is_zero_user: false,
            schedule: Schedule::default(),
        };
        for segment in stream.segments() {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            let session = segment.session;
            let session = session.and_then(|number| source.sessions.get(number as usize));
            let (begin, end) = session.map_or((0, u64::MAX), |it| (it.begin, it.end.max(it.begin)));
            let mut span = Span::new(segment.start, begin, false, false);
            let mut state = State::default();
            for packet in PacketDecoder::new(&source.protocol, bytes, segment.start) {
                let at = packet.start();
                match Mark::of(&source.protocol, &packet) {
                    None => {}
                    // The trace itself names its threads.
                    Some(Mark::Context { thread: 1.., .. }) => return None,
                    Some(Mark::Time(0)) => {}
                    Some(Mark::Time(ticks)) => {
                        let time = source.conversion.map(|it| it.nanoseconds(ticks));
                        // A time outside of the session, or before the last timestamp, is of another clock or damaged.
                        if let Some(time) = time.filter(|time| (span.begin..=end).contains(time)) {
                            builder.add(&span, (time, true), at);
                            span = Span::new(at, time, true, state.is_user);
                        }
                    }
                    Some(mark) => {
                        // No instruction ran before the first context, so it describes the piece already begun.
                        let is_first = state.level.is_none();
                        let begins = state.take(mark);
                        match span.pieces.last_mut() {
                            Some(last) if is_first && mark != Mark::TraceOn => {
                                last.1 = state.is_user;
                            }
                            _ if begins => span.pieces.push((at, state.is_user)),
                            _ => {}
                        }
                    }
                }
            }
            builder.add(&span, (end, false), segment.end);
        }
        Some((builder.schedule, builder.is_zero_user))
    }
}

/// Thread that a packet names. `None` for 0, the value under a kernel that writes no context IDs.
pub(crate) fn thread_in(protocol: &Protocol, packet: &Packet) -> Option<u32> {
    match Mark::of(protocol, packet)? {
        Mark::Context { thread, .. } => Some(thread).filter(|thread| *thread > 0),
        _ => None,
    }
}

/// Part of a packet that matters to the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Time(u64),
    TraceOn,
    Exception,
    ExceptionReturn,
    /// Exception level, `None` if the protocol does not report it; and the thread, 0 if it is not known.
    Context {
        level: Option<u8>,
        thread: u32,
    },
}

impl Mark {
    fn of(protocol: &Protocol, packet: &Packet) -> Option<Self> {
        let context = |thread: Option<u32>| Mark::Context {
            level: None,
            thread: thread.unwrap_or_default(),
        };
        Some(match packet {
            Packet::EtmV4(packet) => match (packet.kind, packet.fields) {
                (etmv4::Kind::TraceOn, _) => Mark::TraceOn,
                (etmv4::Kind::Exception, _) => Mark::Exception,
                (etmv4::Kind::ExceptionReturn, _) => Mark::ExceptionReturn,
                (_, etmv4::Fields::Timestamp { value, .. }) => Mark::Time(value),
                (
                    _,
                    etmv4::Fields::Context(Some(known)) | etmv4::Fields::AddressContext(_, known),
                ) => {
                    let is_vmid = match protocol {
                        Protocol::EtmV4(config) => config.vmid_is_thread(),
                        _ => false,
                    };
                    let thread = if is_vmid {
                        known.vmid
                    } else {
                        known.context_id
                    };
                    Mark::Context {
                        level: Some(known.level),
                        thread: thread.unwrap_or_default(),
                    }
                }
                _ => return None,
            },
            Packet::EtmV3(packet) => match packet.fields {
                etmv3::Fields::Timestamp(value) => Mark::Time(value),
                etmv3::Fields::ContextId(thread) => context(Some(thread)),
                etmv3::Fields::ISync(isync) => context(isync.id),
                _ => return None,
            },
            Packet::Ptm(packet) => match packet.fields {
                ptm::Fields::Timestamp { value, .. } => Mark::Time(value),
                ptm::Fields::ContextId(thread) => context(Some(thread)),
                ptm::Fields::ISync { context: known, .. } => context(known.id),
                ptm::Fields::Branch(branch) => context(branch.context.and_then(|it| it.id)),
                _ => return None,
            },
            Packet::Stm(_) | Packet::Itm(_) => return None,
        })
    }
}

/// Whether user code runs. Only ETMv4 reports this: the packets of the other protocols carry no exception level.
#[derive(Debug, Default)]
struct State {
    level: Option<u8>,
    is_user: bool,
    /// Whether the last context may be of the exception's return address and not of its handler.
    is_exception: bool,
}

impl State {
    /// Updates the state. Returns whether a new piece begins, which another thread may have run.
    fn take(&mut self, mark: Mark) -> bool {
        let before = self.is_user;
        match mark {
            Mark::TraceOn => {
                self.is_exception = false;
                self.is_user = self.level == Some(0);
                return true;
            }
            Mark::Exception => (self.is_exception, self.is_user) = (true, false),
            Mark::ExceptionReturn => self.is_exception = false,
            Mark::Context { level, .. } => {
                self.level = level;
                self.is_exception &= level == Some(0);
                self.is_user = level == Some(0) && !self.is_exception;
            }
            Mark::Time(_) => {}
        }
        self.is_user != before
    }
}

/// Part of a stream from one time to the next.
#[derive(Debug)]
struct Span {
    begin: u64,
    /// Whether its first instruction ran at `begin`, and not some time later.
    is_exact: bool,
    /// First position of each piece, and whether the piece is user code.
    pieces: Vec<(usize, bool)>,
}

impl Span {
    fn new(at: usize, begin: u64, is_exact: bool, is_user: bool) -> Self {
        Span {
            begin,
            is_exact,
            pieces: vec![(at, is_user)],
        }
    }
}

struct Builder<'a> {
    history: &'a History,
    cpu: u32,
    /// Rule for the threads of user code.
    user: Ran,
    /// Whether user code ran while the CPU ran only thread 0.
    is_zero_user: bool,
    schedule: Schedule,
}

impl Builder<'_> {
    /// Adds a part that ends at time `end` and before position `behind`. `is_exact` tells that its last instruction ran
    /// at `end`.
    fn add(&mut self, span: &Span, (end, is_exact): (u64, bool), behind: usize) {
        let ran = |times: Range<u64>, code| {
            let (begin, end) = (times.start, times.end);
            self.history.running(self.cpu, begin, end, code)
        };
        let only = ran(span.begin..end, Ran::Any);
        // Computed at most once: a part can have as many pieces as there are switches.
        let mut user = None;
        let mut pieces = span.pieces.iter().enumerate().peekable();
        while let Some((number, (at, is_user))) = pieces.next() {
            let next = pieces.peek().map(|(_, (at, _))| *at);
            let thread = match only {
                Some(0) if *is_user => {
                    self.is_zero_user = true;
                    None
                }
                Some(thread) => Some(thread),
                None if !is_user => None,
                None if number == 0 && span.is_exact => ran(span.begin..span.begin, self.user),
                None if next.is_none() && is_exact => ran(end..end, self.user),
                None => *user.get_or_insert_with(|| ran(span.begin..end, self.user)),
            };
            // For user code, thread 0 stands for any thread outside of perf's PID namespace.
            let thread = thread.filter(|thread| !is_user || *thread != 0);
            let bytes = next.unwrap_or(behind).saturating_sub(*at) as u64;
            self.schedule.bytes += bytes;
            if thread.is_none() {
                self.schedule.unknown += bytes;
            }
            let changes = &mut self.schedule.changes;
            if changes.last().is_none_or(|(_, last)| *last != thread) {
                changes.push((*at, thread));
            }
        }
    }
}
