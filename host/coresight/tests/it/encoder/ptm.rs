//! Encoder that writes a walk as PTM packets (Arm IHI 0035), with the expected elements.

use kymo_coresight::isa::Isa;
use kymo_coresight::ptm::Config;

use super::etmv4::{isa_number, next_of};
use super::program::{Event, Op, Program, Random, Run};

pub struct Encoder<'a> {
    options: Options,
    random: &'a mut Random,
    bytes: Vec<u8>,
    expected: Vec<String>,
    /// Address and instruction set of the last packet with an address.
    address: u64,
    isa: Isa,
    returns: Vec<(u64, Isa)>,
    /// Atoms not sent yet and their cycles, the oldest first.
    atoms: Vec<(bool, u32)>,
    context_id: u32,
    context_isa: Isa,
    timestamp: u64,
}

/// Configuration of the trace unit.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub has_return_stack: bool,
    pub counts_cycles: bool,
}

impl Options {
    /// Registers with these choices, context IDs of 4 bytes, and 64-bit binary timestamps.
    pub fn config(self) -> Config {
        let choices = u32::from(self.has_return_stack) << 29 | u32::from(self.counts_cycles) << 12;
        Config {
            cr: 0xc000 | choices,
            ccer: 1 << 29 | 1 << 28 | 1 << 23,
            idr: 0x4100_f310,
            trace_idr: 0x10,
        }
    }
}

/// Encodes a walk.
pub fn encode(
    program: &Program,
    events: &[Event],
    options: Options,
    random: &mut Random,
) -> (Vec<u8>, Vec<String>) {
    let first = program.all[0];
    let mut encoder = Encoder {
        options,
        random,
        bytes: vec![0x21, 0x11],
        expected: vec!["nosync".into()],
        address: 0,
        isa: first.isa,
        returns: Vec::new(),
        atoms: Vec::new(),
        context_id: 0x1234,
        context_isa: first.isa,
        timestamp: 0,
    };
    encoder.synchronize(first.address, first.isa, 1);
    encoder.expected.push("on 0".into());
    encoder.expect_context();
    for event in events {
        match event {
            Event::Run(run) => encoder.run(run),
            Event::Exception {
                ran,
                at,
                handler,
                number,
            } => encoder.exception(ran, *at, *handler, *number),
        }
        encoder.between(event);
    }
    encoder.flush();
    encoder.expected.push("end".into());
    (encoder.bytes, encoder.expected)
}

impl Encoder<'_> {
    /// Writes A-sync and I-sync.
    fn synchronize(&mut self, address: u64, isa: Isa, reason: u8) {
        self.flush();
        self.bytes.extend([0, 0, 0, 0, 0, 0x80, 0x08]);
        let is_thumb = u32::from(isa == Isa::T32);
        self.bytes.extend((address as u32 | is_thumb).to_le_bytes());
        // In non-secure state.
        self.bytes.push(0x09 | reason << 5);
        let cycles = self.cycles();
        self.count(0, cycles);
        self.bytes.extend(self.context_id.to_le_bytes());
        (self.address, self.isa) = (address, isa);
        self.context_isa = isa;
    }

    /// A random number of cycles; 0 if cycles are not counted.
    fn cycles(&mut self) -> u32 {
        match self.options.counts_cycles {
            true => {
                let bits = self.random.below(32);
                1 + self.random.below(1 << bits) as u32
            }
            false => 0,
        }
    }

    /// Writes a cycle count if cycles are counted: four bits in a byte with other fields, then seven in each byte.
    fn count(&mut self, first: u8, cycles: u32) {
        if !self.options.counts_cycles {
            return;
        }
        let goes_on = |rest: u32, bit: u32| u8::from(rest > 0) << bit;
        let mut rest = cycles >> 4;
        self.bytes
            .push(first | ((cycles & 0xf) as u8) << 2 | goes_on(rest, 6));
        while rest > 0 {
            let byte = (rest & 0x7f) as u8;
            rest >>= 7;
            self.bytes.push(byte | goes_on(rest, 7));
        }
    }

    fn expect_context(&mut self) {
        let isa = isa_number(self.context_isa);
        self.expected
            .push(format!("context {isa} id{:x}", self.context_id));
    }

    /// Writes the bytes of an address: as few as possible or more. Bit 6 of the last one marks an exception.
    fn address_bytes(&mut self, address: u64, isa: Isa, has_exception: bool) {
        let shift = u32::from(isa == Isa::A32);
        let (new, old) = (address as u32 >> shift, self.address as u32 >> shift);
        let fits = |len: u32| isa == self.isa && (new ^ old) >> (7 * len - u32::from(len > 1)) == 0;
        let least = if has_exception { 2 } else { 1 };
        let mut len = (least..5).find(|len| fits(*len)).unwrap_or(5);
        if self.random.once_in(4) {
            len += self.random.below(6 - len as usize) as u32;
        }
        for index in 0..len {
            let goes_on = u8::from(index + 1 < len) << 7;
            let bits = (new >> (7 * index)) as u8;
            let is_last = index + 1 == len;
            let flag = u8::from(has_exception && is_last) << 6;
            self.bytes.push(match index {
                0 => bits & 0x7e | 1 | goes_on,
                4 if isa == Isa::T32 => 0x10 | bits & 0xf | flag,
                4 => 0x08 | bits & 7 | flag,
                _ if is_last => bits & 0x3f | flag,
                _ => bits & 0x7f | goes_on,
            });
        }
        (self.address, self.isa) = (address, isa);
    }

    fn run(&mut self, run: &Run) {
        let exec = if run.is_taken { 'E' } else { 'N' };
        let (start, end, count, isa) = (run.start, run.end, run.count, isa_number(run.isa));
        let cycles = self.cycles();
        let counted = match cycles {
            0 => String::new(),
            cycles => format!(" cc{cycles}"),
        };
        self.expected.push(format!(
            "range {start:x} {end:x} {count} isa{isa} {exec}{counted}"
        ));
        let known =
            self.returns.last() == Some(&(run.next, run.next_isa)) && run.last != Op::CallRegister;
        let is_popped = run.is_indirect() && known;
        if is_popped {
            self.returns.pop();
        }
        if run.is_indirect() && !is_popped {
            self.flush();
            self.address_bytes(run.next, run.next_isa, false);
            self.count(0, cycles);
        } else {
            self.atoms.push((run.is_taken, cycles));
            if self.random.once_in(8) {
                self.flush();
            }
        }
        if run.is_call() && run.is_taken && self.options.has_return_stack {
            self.returns.push((run.end, run.isa));
            if self.returns.len() > 12 {
                self.returns.remove(0);
            }
        }
    }

    fn exception(&mut self, ran: &Run, at: u64, handler: u64, number: u8) {
        self.flush();
        if ran.count > 0 {
            let isa = isa_number(ran.isa);
            let (start, end, count) = (ran.start, ran.end, ran.count);
            self.expected
                .push(format!("range {start:x} {end:x} {count} isa{isa} E"));
            self.bytes.push(0x72);
            self.address_bytes(ran.source, ran.isa, false);
        }
        self.expected.push(format!("exception {number} {at:x}"));
        self.address_bytes(handler, ran.isa, true);
        self.bytes.push(number << 1 | 1);
        let cycles = self.cycles();
        self.count(0, cycles);
    }

    /// Sends the atoms, up to five in a packet, or each with its cycles if cycles are counted.
    fn flush(&mut self) {
        let atoms = std::mem::take(&mut self.atoms);
        let mut rest = &atoms[..];
        if self.options.counts_cycles {
            for (is_taken, cycles) in std::mem::take(&mut rest) {
                self.count(0x80 | u8::from(!is_taken) << 1, *cycles);
            }
        }
        while !rest.is_empty() {
            let count = 1 + self.random.below(rest.len().min(5));
            let (now, later) = rest.split_at(count);
            // Bit 1 is the newest atom; 1 is an N.
            let bits = now
                .iter()
                .fold(0, |bits, (taken, _)| bits << 1 | u8::from(!taken));
            self.bytes
                .push([0x84, 0x88, 0x90, 0xa0, 0xc0][count - 1] | bits << 1);
            rest = later;
        }
    }

    fn between(&mut self, event: &Event) {
        let choice = self.random.below(60);
        if choice < 7 {
            self.flush();
        }
        match choice {
            0 => {
                let step = 1u64 << self.random.below(40);
                let value = self.timestamp.wrapping_add(step);
                let differs = self.timestamp ^ value;
                let len = (64 - differs.leading_zeros()).div_ceil(7).clamp(1, 9);
                self.bytes.push(0x42);
                for index in 0..len {
                    let byte = (value >> (7 * index)) as u8;
                    let goes_on = u8::from(index + 1 < len) << 7;
                    self.bytes.push(if index == 8 {
                        byte
                    } else {
                        byte & 0x7f | goes_on
                    });
                }
                self.timestamp = value;
                let cycles = self.cycles();
                self.count(0, cycles);
                let counted = match cycles {
                    0 => String::new(),
                    cycles => format!(" cc{cycles}"),
                };
                self.expected.push(format!("time {value:x}{counted}"));
            }
            1 => {
                self.bytes.push(0x0c);
                self.expected.push("event -1".into());
            }
            2 => self.bytes.push(0x66),
            3 => {
                let id = 0x1000 + self.random.below(3) as u32;
                self.bytes.push(0x6e);
                self.bytes.extend(id.to_le_bytes());
                if id != self.context_id {
                    self.context_id = id;
                    self.context_isa = next_of(event).1;
                    self.expect_context();
                }
            }
            4 => {
                self.bytes.push(0x76);
                self.expected.push("return".into());
            }
            // A synchronization after an overflow.
            5 => {
                let (address, isa) = next_of(event);
                self.synchronize(address, isa, 2);
                self.returns.clear();
                self.expected.push("on 1".into());
                self.expect_context();
            }
            _ => {}
        }
    }
}
