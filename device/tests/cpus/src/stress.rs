//! Stress test: checks every record while eight CPUs continue to record; none may be lost or torn.
//!
//! Each CPU calls C functions with hooks, which record an increasing number, and is interrupted by its timer from time
//! to time, whose handler also calls functions. The content of its stream is therefore known, record by record. The
//! first CPU, between its own calls, consumes and checks the packets of all CPUs.
//!
//! Either CPUs that are far ahead of the check wait for it: then everything must arrive. Or no CPU waits: then the
//! received records and the losses that packets report must add up to what was recorded.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_demo_cpus::{board, say_line};

use crate::CPUS;
use crate::decode::{self, Kind, Records, Wrong};

/// How far a CPU may be ahead of the check, in rounds of three records: about half its buffer.
const AHEAD: u32 = 25_000;

/// Number of rounds between two checks when losses are wanted.
const SELDOM: u32 = 1 << 15;

/// Number of rounds between two progress messages.
const MESSAGE: u32 = 50_000;

/// Functions of the rounds, which alternate, and those of the timer's handler.
const ROUND: [unsafe extern "C" fn(u32); 4] = [round_a, round_b, round_c, round_d];

// SAFETY: `rounds.c` defines these functions.
unsafe extern "C" {
    fn round_a(n: u32);
    fn round_b(n: u32);
    fn round_c(n: u32);
    fn round_d(n: u32);
    /// Calls `beat_step`.
    fn beat(n: u32) -> u32;
    fn beat_step(n: u32) -> u32;
    static text_base: core::ffi::c_void;
}

/// A function's number in a record.
fn number(function: *const ()) -> u32 {
    ((function as usize - &raw const text_base as usize) / 4) as u32
}

/// Data shared between CPUs: each CPU's on a cache line of its own.
#[repr(C, align(128))]
struct Progress {
    /// Number of the CPU's rounds that have been checked.
    checked: AtomicU32,
    /// Number of interrupts that the CPU has handled.
    interrupts: AtomicU32,
}

static PROGRESS: [Progress; CPUS as usize] = [const {
    Progress {
        checked: AtomicU32::new(0),
        interrupts: AtomicU32::new(0),
    }
}; CPUS as usize];

/// Number of CPUs that have finished their rounds, and whether the test is over.
static DONE: AtomicU32 = AtomicU32::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// State of a stream's check on the first CPU.
#[derive(Clone, Copy)]
struct Stream {
    packets: u32,
    records: u64,
    bytes: u64,
    discarded: u32,
    last: u64,
    /// The next or current round, and its step: entry, marker, exit.
    round: u32,
    step: u8,
    /// The step of the handler, while it is active.
    handler: Option<u8>,
    /// Number of calls that were entered in this packet.
    depth: u32,
}

struct Streams(UnsafeCell<[Stream; CPUS as usize]>);

// SAFETY: only the first CPU touches them.
unsafe impl Sync for Streams {}

static STREAMS: Streams = Streams(UnsafeCell::new(
    [Stream {
        packets: 0,
        records: 0,
        bytes: 0,
        discarded: 0,
        last: 0,
        round: 0,
        step: 0,
        handler: None,
        depth: 0,
    }; CPUS as usize],
));

impl Stream {
    /// Checks a packet. With `whole`, nothing may be missing.
    fn look(&mut self, cpu: u16, packet: &[u8], whole: bool) -> Result<(), Wrong> {
        let header = decode::header(packet)?;
        let is = |holds: bool, what| if holds { Ok(()) } else { Err(Wrong(what, 0)) };
        is(header.cpu == cpu, "the packet of another CPU")?;
        is(header.sequence == self.packets, "a packet is missing")?;
        is(header.begin >= self.last, "the packet begins too early")?;
        let depth = u8::from(self.handler.is_some());
        if whole {
            is(header.isr_depth == depth, "the interrupts are other ones")?;
            is(header.discarded == 0, "something was lost")?;
        }
        self.packets += 1;
        self.bytes += packet.len() as u64;
        self.discarded = header.discarded;
        self.depth = 0;
        let mut records = Records::new(packet, &header);
        while let Some(record) = records.next()? {
            is(record.time >= self.last, "a time goes back")?;
            self.last = record.time;
            self.records += 1;
            if whole {
                self.expect(record.kind)?;
            } else {
                self.accept(record.kind)?;
            }
        }
        // A packet without records only reports losses and their time.
        let empty = self.last <= header.begin;
        is(
            self.last == header.end || empty,
            "the packet ends at another time",
        )?;
        self.last = header.end;
        Ok(())
    }

    /// Checks the next record when nothing is missing.
    fn expect(&mut self, kind: Kind) -> Result<(), Wrong> {
        if let Kind::Recording(true) = kind {
            return Ok(());
        }
        let function = match (self.handler, self.step) {
            (Some(0 | 3), _) => beat as *const (),
            (Some(_), _) => beat_step as *const (),
            (None, _) => ROUND[self.round as usize % ROUND.len()] as *const (),
        };
        let (next, what) = match (self.handler, self.step) {
            (Some(0 | 1), _) | (None, 0) => (Kind::Enter(number(function)), "not the entry"),
            (Some(2 | 3), _) | (None, 2) => {
                let known = self.depth.checked_sub(1);
                let name = known.map_or(Some(number(function)), |_| None);
                (Kind::Exit(name), "not the exit")
            }
            (Some(_), _) => match kind {
                Kind::IsrExit(None | Some(board::TIMER_IRQ)) => (kind, ""),
                _ => (Kind::IsrExit(None), "not the end of the handler"),
            },
            (None, _) => (Kind::Marker(self.round), "not the marker"),
        };
        if kind != next {
            if self.handler.is_none() && kind == Kind::IsrEnter(board::TIMER_IRQ) {
                self.handler = Some(0);
                return Ok(());
            }
            return Err(Wrong(what, 0));
        }
        match kind {
            Kind::Enter(_) => self.depth += 1,
            Kind::Exit(None) => self.depth -= 1,
            _ => {}
        }
        match &mut self.handler {
            Some(4) => self.handler = None,
            Some(step) => *step += 1,
            None if self.step == 2 => {
                self.step = 0;
                self.round += 1;
            }
            None => self.step += 1,
        }
        Ok(())
    }

    /// Checks the next record when some may be missing.
    fn accept(&mut self, kind: Kind) -> Result<(), Wrong> {
        let known = |function| {
            let handler = [number(beat as *const ()), number(beat_step as *const ())];
            handler.contains(&function)
                || ROUND.iter().any(|it| number(*it as *const ()) == function)
        };
        let fine = match kind {
            Kind::Marker(round) => {
                let later = round >= self.round;
                self.round = round + 1;
                later
            }
            Kind::Enter(function) | Kind::Exit(Some(function)) => known(function),
            _ => true,
        };
        if fine {
            Ok(())
        } else {
            Err(Wrong("a record of an unknown function", 0))
        }
    }
}

/// Checks all available packets, on the first CPU.
fn look(whole: bool) {
    // SAFETY: only the first CPU comes here, and not from a handler.
    let streams = unsafe { &mut *STREAMS.0.get() };
    kymo::take_packets(|cpu, packet| {
        let Some(stream) = streams.get_mut(usize::from(cpu)) else {
            return;
        };
        if let Err(Wrong(what, at)) = stream.look(cpu, packet, whole) {
            let Stream {
                packets, records, ..
            } = *stream;
            say_line!("FAILED: CPU {cpu}, packet {packets}, record {records}, byte {at}: {what}");
            board::off();
        }
        if let Some(progress) = PROGRESS.get(usize::from(cpu)) {
            progress.checked.store(stream.round, Ordering::Relaxed);
        }
    });
}

/// Counts an interrupt of this CPU.
pub fn count_interrupt(cpu: u16) {
    if let Some(progress) = PROGRESS.get(usize::from(cpu)) {
        let interrupts = progress.interrupts.load(Ordering::Relaxed);
        progress.interrupts.store(interrupts + 1, Ordering::Relaxed);
    }
}

/// The rounds of one CPU.
pub fn run(cpu: u16, rounds: u32, whole: bool) {
    let Some(progress) = PROGRESS.get(usize::from(cpu)) else {
        return;
    };
    for round in 0..rounds {
        // SAFETY: it is C without demands.
        unsafe { ROUND[round as usize % ROUND.len()](round) };
        if cpu == 0 && round % MESSAGE == 0 && round > 0 {
            say_line!("{round} of {rounds} rounds");
        }
        if round % 64 == 0 {
            // When no CPU waits, the checks are so rare that the buffer is full in between.
            if cpu == 0 && (whole || round % SELDOM == 0) {
                look(whole);
            }
            while whole && round.saturating_sub(progress.checked.load(Ordering::Relaxed)) > AHEAD {
                if cpu == 0 {
                    look(whole);
                } else {
                    board::wait();
                }
            }
        }
    }
    board::disable_interrupts();
    DONE.fetch_add(1, Ordering::Release);
    while !OVER.load(Ordering::Acquire) {
        kymo::flush();
        if cpu == 0 {
            look(whole);
            if DONE.load(Ordering::Acquire) == CPUS && is_over(rounds, whole) {
                OVER.store(true, Ordering::Release);
            }
        }
    }
}

/// Whether everything that was recorded has arrived, or been reported as lost. Prints the result.
fn is_over(rounds: u32, whole: bool) -> bool {
    // SAFETY: as in `look`.
    let streams = unsafe { &*STREAMS.0.get() };
    let sum = |of: fn(&Stream) -> u64| streams.iter().map(of).sum::<u64>();
    let interrupts: u64 = PROGRESS
        .iter()
        .map(|progress| u64::from(progress.interrupts.load(Ordering::Relaxed)))
        .sum();
    // The record for the start of recording, three records per round, and six per interrupt.
    let recorded = 1 + 3 * u64::from(rounds) * u64::from(CPUS) + 6 * interrupts;
    let (records, lost) = (sum(|it| it.records), sum(|it| it.discarded.into()));
    if records + lost < recorded {
        return false;
    }
    let packets = sum(|it| it.packets.into());
    let bytes = sum(|it| it.bytes);
    if records + lost > recorded || (whole && lost > 0) {
        say_line!("FAILED: {records} records and {lost} lost are not {recorded}");
        board::off();
    }
    say_line!(
        "checked {records} records of {CPUS} CPUs, {packets} packets, {bytes} bytes, {interrupts} \
         interrupts: {lost} lost, none torn"
    );
    true
}
