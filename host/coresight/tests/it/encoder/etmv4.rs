//! Encoder that writes a walk as ETMv4 and ETE packets, in all forms that the protocol allows (Arm IHI 0064), with the
//! expected elements.

mod atoms;

use kymo_coresight::etmv4::Config;
use kymo_coresight::isa::Isa;

use super::program::{Event, Op, Program, Random, Run};

/// Configuration of the trace unit.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub is_ete: bool,
    pub has_return_stack: bool,
    pub counts_cycles: bool,
    /// Greatest number of speculative P0 elements.
    pub speculation: u32,
    /// Whether cycle counts contain the number of committed elements.
    pub commits_with_cycles: bool,
    /// Branches may be sent as source addresses (ETE).
    pub has_sources: bool,
    /// Q elements may replace atoms.
    pub has_q: bool,
    /// Loads have atoms.
    pub loads: bool,
    /// Stores have atoms.
    pub stores: bool,
}

impl Options {
    pub fn config(&self) -> Config {
        let commit_option = u32::from(!self.commits_with_cycles) << 29;
        // Return stack, cycle counts, Q elements with counts; no conditional trace.
        let accesses = if self.loads || self.stores { 6 } else { 0 };
        let idr0 = 0x0800_0e81 | commit_option | u32::from(self.has_q) << 15 | accesses;
        Config {
            configr: 0xc1
                | u32::from(self.loads) << 1
                | u32::from(self.stores) << 2
                | u32::from(self.counts_cycles) << 4
                | u32::from(self.has_return_stack) << 12,
            trace_idr: 0x10,
            idr0,
            // A version with markers and ignore packets.
            idr1: if self.is_ete {
                0x4100_fff0
            } else {
                0x4100_f463
            },
            idr2: 0x488,
            idr8: self.speculation,
            devarch: 0x4770_5a13,
            is_ete: self.is_ete,
            ..Config::default()
        }
    }
}

pub struct Encoder<'a> {
    options: Options,
    random: &'a mut Random,
    pub bytes: Vec<u8>,
    /// Elements, without the offsets of their packets.
    pub expected: Vec<String>,
    history: [(u64, u8); 3],
    /// Return addresses, the newest last.
    returns: Vec<(u64, Isa)>,
    /// Atoms not sent yet, the oldest first.
    atoms: Vec<bool>,
    /// P0 elements that were sent and not committed by the trace yet.
    uncommitted: u32,
    timestamp: Option<u64>,
    threshold: u32,
    context_id: u32,
    level: u8,
    isa: Isa,
    /// Whether no context was sent since the last synchronization.
    is_new: bool,
}

/// Encodes a walk.
pub fn encode(
    program: &Program,
    events: &[Event],
    options: Options,
    random: &mut Random,
) -> (Vec<u8>, Vec<String>) {
    let mut encoder = Encoder {
        options,
        threshold: 4,
        random,
        bytes: Vec::new(),
        expected: vec!["nosync".into()],
        history: [(0, 0); 3],
        returns: Vec::new(),
        atoms: Vec::new(),
        uncommitted: 0,
        timestamp: None,
        context_id: 0x1234,
        level: 1,
        isa: program.all[0].isa,
        is_new: true,
    };
    // Unsynchronized bytes first, which result in no element.
    encoder.bytes.extend([0x95, 0x11, 0xf7]);
    encoder.synchronize();
    encoder.bytes.push(0x04);
    encoder.expected.push("on 0".into());
    let first = program.all[0];
    encoder.address_with_context(first.address, first.isa);
    let end = events.iter().rposition(is_plain).map_or(0, |last| last + 1);
    for (number, event) in events[..end].iter().enumerate() {
        // The target of a branch, if it was not sent because the return stack contains it.
        let unsent = match event {
            Event::Run(run) => encoder.run(run),
            Event::Exception {
                ran,
                at,
                handler,
                number,
            } => {
                encoder.exception(ran, *at, *handler, *number);
                None
            }
        };
        if number + 1 < end {
            encoder.between(event, unsent);
        }
    }
    encoder.flush();
    encoder.commit_all();
    encoder.expected.push("end".into());
    (encoder.bytes, encoder.expected)
}

impl Encoder<'_> {
    fn synchronize(&mut self) {
        self.bytes.extend([0; 11]);
        self.bytes.push(0x80);
        // INFO, the number of elements that are speculative already, the threshold of cycle counts.
        let counts = self.options.counts_cycles;
        let is_speculative = self.options.speculation > 0;
        self.bytes.extend([
            0x01,
            0x01 | u8::from(is_speculative) << 2 | u8::from(counts) << 3,
            u8::from(counts),
        ]);
        if is_speculative {
            self.number(self.uncommitted);
        }
        if counts {
            self.number(self.threshold);
        }
        self.is_new = true;
        self.history = [(0, 0); 3];
        self.returns.clear();
        self.timestamp = None;
    }

    /// Writes a number with seven bits in each byte.
    fn number(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn is_of(isa: Isa) -> u8 {
        u8::from(isa == Isa::T32)
    }

    fn push_history(&mut self, address: u64, is: u8) {
        self.history = [(address, is), self.history[0], self.history[1]];
    }

    /// The bytes of an address in a long packet, whose two low bytes omit the bits that are always 0.
    fn long(address: u64, is: u8, len: usize) -> Vec<u8> {
        let mut bytes = address.to_le_bytes()[..len].to_vec();
        if is == 0 {
            (bytes[0], bytes[1]) = ((address >> 2 & 0x7f) as u8, (address >> 9 & 0x7f) as u8);
        } else {
            (bytes[0], bytes[1]) = ((address >> 1 & 0x7f) as u8, (address >> 8) as u8);
        }
        bytes
    }

    /// Returns an address in one of the forms that contain all of it. `headers`: those for match, short, 32 and 64
    /// bits, with bit 0 of the instruction set.
    fn address_in(&mut self, address: u64, isa: Isa, headers: [u8; 4]) {
        let is = Self::is_of(isa);
        let shift = if is == 0 { 2 } else { 1 };
        let (newest, _) = self.history[0];
        let differs = |bits: u32| address >> bits != newest >> bits;
        let mut forms: Vec<Vec<u8>> = Vec::new();
        for (entry, header) in self.history.iter().zip(headers[0]..) {
            if *entry == (address, is) {
                forms.push(vec![header]);
            }
        }
        let low = (address >> shift) as u8;
        if !differs(7 + shift) {
            forms.push(vec![headers[1] + is, low & 0x7f]);
        } else if !differs(15 + shift) {
            forms.push(vec![
                headers[1] + is,
                low | 0x80,
                (address >> (7 + shift)) as u8,
            ]);
        }
        // In a 32-bit state, the upper half is 0.
        if !differs(32) || isa != Isa::A64 {
            forms.push([&[headers[2] + is], &Self::long(address, is, 4)[..]].concat());
        }
        let has_64_bits = headers[2] != headers[3];
        if forms.is_empty() || has_64_bits && self.random.once_in(6) {
            forms.push([&[headers[3] + is], &Self::long(address, is, 8)[..]].concat());
        }
        let form = self.random.below(forms.len());
        self.bytes.extend(&forms[form]);
        self.push_history(address, is);
    }

    /// Writes a Q element: a number of instructions, then an address.
    fn q(&mut self, count: u32, address: u64, isa: Isa) {
        self.flush();
        self.p0(1);
        self.address_in(address, isa, [0xa0, 0xa5, 0xaa, 0xaa]);
        self.number(count);
    }

    fn address(&mut self, address: u64, isa: Isa) {
        self.flush();
        self.address_in(address, isa, [0x90, 0x95, 0x9a, 0x9d]);
    }

    fn context_bytes(&mut self) -> Vec<u8> {
        let is_64 = u8::from(self.isa == Isa::A64) << 4;
        // After trace info everything is sent.
        let has_ids = self.is_new || self.random.once_in(2);
        self.is_new = false;
        let info = self.level | is_64 | 0x20 | if has_ids { 0xc0 } else { 0 };
        let mut bytes = vec![info];
        if has_ids {
            self.context_id = 0x1000 + self.random.below(4) as u32;
            bytes.push(self.context_id as u8);
            bytes.extend(self.context_id.to_le_bytes());
        }
        bytes
    }

    /// Expects a context. The first one contains its identifiers, which are valid until others are sent.
    fn expect_context(&mut self, bytes: &[u8]) {
        let isa = isa_number(self.isa);
        let has_ids = bytes[0] & 0xc0 != 0;
        let ids = match (has_ids, self.known_ids()) {
            (true, _) => Some(self.context_id),
            (false, known) => known,
        };
        let ids = ids.map_or_else(String::new, |id| format!(" id{id:x} vm{:x}", id & 0xff));
        self.expected
            .push(format!("context {isa} el{}{ids}", self.level));
    }

    /// The last sent identifiers since the last loss of synchronization.
    fn known_ids(&self) -> Option<u32> {
        let lost = self
            .expected
            .iter()
            .rposition(|line| line == "nosync")
            .unwrap_or(0);
        let with_ids = |line: &&String| line.starts_with("context") && line.contains(" id");
        let line = self.expected[lost..].iter().rev().find(with_ids)?;
        let id = line.split(" id").nth(1)?.split(' ').next()?;
        u32::from_str_radix(id, 16).ok()
    }

    fn address_with_context(&mut self, address: u64, isa: Isa) {
        self.flush();
        self.isa = isa;
        let is = Self::is_of(isa);
        let is_wide =
            isa == Isa::A64 && address >> 32 != self.history[0].0 >> 32 || self.random.once_in(4);
        let (header, len) = if is_wide { (0x85, 8) } else { (0x82, 4) };
        self.bytes.push(header + is);
        self.bytes.extend(Self::long(address, is, len));
        let context = self.context_bytes();
        self.bytes.extend(&context);
        self.push_history(address, is);
        self.expect_context(&context);
    }

    /// Encodes the instructions up to a waypoint. Returns its target if that was not sent.
    fn run(&mut self, run: &Run) -> Option<u64> {
        let exec = if run.is_taken { 'E' } else { 'N' };
        let (start, end, count, isa) = (run.start, run.end, run.count, isa_number(run.isa));
        self.expected
            .push(format!("range {start:x} {end:x} {count} isa{isa} {exec}"));
        // For a source address, the library reports no return from an exception, although captures contain one.
        let is_branch =
            run.is_taken && !matches!(run.last, Op::Barrier | Op::Access | Op::ExceptionReturn);
        if self.options.has_sources && is_branch && self.random.once_in(3) {
            self.flush();
            self.p0(1);
            self.address_in(run.source, run.isa, [0xb0, 0xb4, 0xb6, 0xb8]);
        } else if self.options.has_q
            && is_branch
            && self.history[0].0 >> 32 == run.next >> 32
            && self.random.once_in(3)
        {
            self.q(run.count, run.next, run.next_isa);
            self.isa = run.next_isa;
            return None;
        } else {
            self.atoms.push(run.is_taken);
            if self.atoms.len() >= 24 || self.random.once_in(8) {
                self.flush();
            }
        }
        let is_return = run.last == Op::ExceptionReturn;
        if is_return && self.options.is_ete {
            self.expected.push("return".into());
        }
        if is_return && !self.options.is_ete {
            self.flush();
            self.bytes.push(0x07);
            self.expected.push("return".into());
        }
        if !run.is_taken {
            return None;
        }
        let mut unsent = None;
        if run.is_call() && self.options.has_return_stack {
            self.returns.push((run.end, run.isa));
            if self.returns.len() > 12 {
                self.returns.remove(0);
            }
        }
        if run.is_indirect() {
            // A call through a register pushes its return address before its own target could be popped.
            let known = self.returns.last() == Some(&(run.next, run.next_isa));
            if self.options.has_return_stack && known {
                self.returns.pop();
                unsent = Some(run.next);
            } else {
                self.address(run.next, run.next_isa);
            }
        }
        self.isa = run.next_isa;
        unsent
    }

    fn exception(&mut self, ran: &Run, at: u64, handler: u64, number: u8) {
        self.flush();
        if ran.count > 0 {
            let isa = isa_number(ran.isa);
            let (start, end, count) = (ran.start, ran.end, ran.count);
            self.expected
                .push(format!("range {start:x} {end:x} {count} isa{isa} E"));
        }
        self.expected.push(format!("exception {number} {at:x}"));
        // A target that was not sent is on the return stack, so no exception packet has it (`E1:E0` = 0b10: see
        // `targets`).
        self.bytes.extend([0x06, number << 1 | 1]);
        self.p0(1);
        self.address(at, ran.next_isa);
        self.level = 1 + self.random.below(2) as u8;
        let isa = ran.isa;
        if self.random.once_in(2) {
            self.address_with_context(handler, isa);
        } else {
            self.level = self.last_level();
            self.address(handler, isa);
        }
    }

    fn last_level(&self) -> u8 {
        let line = self
            .expected
            .iter()
            .rev()
            .find(|line| line.starts_with("context"));
        let level = line
            .and_then(|line| line.split(" el").nth(1))
            .unwrap_or("1");
        level.as_bytes()[0] - b'0'
    }

    fn commit_all(&mut self) {
        if self.uncommitted > 0 {
            self.bytes.push(0x2d);
            self.number(self.uncommitted);
            self.uncommitted = 0;
        }
    }

    /// Adds timestamps, events and other packets that may occur between waypoints.
    fn between(&mut self, event: &Event, unsent: Option<u64>) {
        let choice = self.random.below(60);
        if choice < 8 {
            self.flush();
        }
        match choice {
            0 => self.timestamp(),
            1 if self.options.counts_cycles => self.cycles(),
            2 => {
                let number = 1 + self.random.below(15) as u8;
                self.bytes.push(0x70 | number);
                self.expected.push(format!("event {number}"));
            }
            3 => self.bytes.push(0x70),
            4 if self.uncommitted > 0 => {
                let count = 1 + self.random.below(self.uncommitted as usize) as u32;
                self.bytes.push(0x2d);
                self.number(count);
                self.uncommitted -= count;
            }
            5 if unsent.is_none() => {
                // A position where synchronization is due. The library discards uncommitted elements there.
                if !self.options.commits_with_cycles {
                    self.commit_all();
                }
                let (address, isa) = next_of(event);
                self.synchronize();
                self.address_with_context(address, isa);
            }
            // An overflow loses packets after the last P0 element that have no time: contexts, exception returns.
            6 if unsent.is_none() && is_plain(event) => {
                let (address, isa) = next_of(event);
                self.commit_all();
                self.bytes.extend([0x00, 0x05]);
                self.expected.push("nosync".into());
                self.uncommitted = 0;
                self.synchronize();
                self.bytes.push(0x04);
                self.expected.push("on 1".into());
                self.address_with_context(address, isa);
            }
            7 if self.options.is_ete => {
                self.bytes.push(0x0a);
                self.p0(1);
                self.expected.push("transaction 1".into());
                self.bytes.push(0x0b);
                self.expected.push("transaction 2".into());
            }
            _ => {}
        }
    }

    fn timestamp(&mut self) {
        let step = 1u64 << self.random.below(40);
        let value = self
            .timestamp
            .map_or(0x0123_4567_89ab_cdef, |last| last.wrapping_add(step));
        let differs = self.timestamp.map_or(u64::MAX, |last| last ^ value);
        self.timestamp = Some(value);
        let cycles = self.options.counts_cycles && self.random.once_in(2);
        self.bytes.push(0x02 | u8::from(cycles));
        let len = (64 - differs.leading_zeros()).div_ceil(7).clamp(1, 9) as usize;
        for index in 0..len {
            let byte = (value >> (7 * index)) as u8;
            let goes_on = index + 1 < len;
            self.bytes.push(match (index, goes_on) {
                (8, _) => byte,
                (_, true) => byte | 0x80,
                _ => byte & 0x7f,
            });
        }
        let mut line = format!("time {value:x}");
        if cycles {
            let count = 1 + self.random.below(4000) as u32;
            self.number(count);
            line += &format!(" cc{count}");
        }
        self.expected.push(line);
    }

    fn cycles(&mut self) {
        let commits = self.options.commits_with_cycles;
        let commit = if commits {
            self.random.below(self.uncommitted as usize + 1) as u32
        } else {
            0
        };
        let mut count = self.threshold + self.random.below(500) as u32;
        match self.random.below(4) {
            0 => {
                self.bytes.push(0x0f);
                if commits {
                    self.number(commit);
                    self.uncommitted -= commit;
                }
                count = 0;
            }
            1 if !commits || (1..=4).contains(&commit) => {
                count = self.threshold + self.random.below(4) as u32;
                let low = (count - self.threshold) as u8;
                let high = if commits { commit as u8 - 1 } else { 0 };
                self.bytes.push(0x10 | high << 2 | low);
                self.uncommitted -= commit;
            }
            2 if !commits || (1..=16).contains(&commit) => {
                count = self.threshold + self.random.below(16) as u32;
                let low = (count - self.threshold) as u8;
                let high = if commits { commit as u8 - 1 } else { 0 };
                self.bytes.extend([0x0c, high << 4 | low]);
                self.uncommitted -= commit;
            }
            _ => {
                self.bytes.push(0x0e);
                if commits {
                    self.number(commit);
                    self.uncommitted -= commit;
                }
                self.number(count - self.threshold);
            }
        }
        self.expected.push(format!("cycles {count}"));
    }
}

/// Whether only address packets follow the last P0 element of an event.
fn is_plain(event: &Event) -> bool {
    matches!(event, Event::Run(run) if run.last != Op::ExceptionReturn)
}

/// Address and instruction set at which execution continues after an event.
pub fn next_of(event: &Event) -> (u64, Isa) {
    match event {
        Event::Run(run) => (run.next, run.next_isa),
        Event::Exception { ran, handler, .. } => (*handler, ran.isa),
    }
}

pub fn isa_number(isa: Isa) -> u8 {
    match isa {
        Isa::A32 => 0,
        Isa::T32 => 1,
        Isa::A64 => 2,
        Isa::ThumbEe => 3,
        Isa::Jazelle => 4,
        Isa::Unknown => 6,
    }
}
