//! Encoder that writes a walk as ETMv3 packets (Arm IHI 0014), with the expected elements. Every instruction has an
//! atom.

use kymo_coresight::etmv3::Config;
use kymo_coresight::isa::Isa;

use super::etmv4::{isa_number, next_of};
use super::program::{Event, Instruction, Op, Program, Random, Run};

/// Configuration of the trace unit.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Branch packets have the alternative encoding, in which short ones can contain an exception.
    pub has_alternative_branches: bool,
    pub counts_cycles: bool,
    /// Exceptions may cancel the instruction before them.
    pub cancels: bool,
}

impl Options {
    /// Registers with these choices, context IDs of 4 bytes, and 64-bit timestamps.
    pub fn config(self) -> Config {
        Config {
            cr: 0xc000 | u32::from(self.counts_cycles) << 12,
            ccer: 1 << 29,
            idr: 0x4100_f250 | u32::from(self.has_alternative_branches) << 20,
            trace_idr: 0x10,
            is_m_profile: false,
        }
    }
}

struct Encoder<'a> {
    options: Options,
    program: &'a Program,
    random: &'a mut Random,
    bytes: Vec<u8>,
    expected: Vec<String>,
    /// Address and instruction set of the last packet with an address.
    address: u64,
    isa: Isa,
    /// Atoms not sent yet, each with the line of its range.
    atoms: Vec<(bool, String)>,
    context_id: u32,
    vmid: Option<u8>,
    context_isa: Isa,
    timestamp: u64,
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
        program,
        random,
        bytes: vec![0x21, 0x11],
        expected: vec!["nosync".into()],
        address: 0,
        isa: first.isa,
        atoms: Vec::new(),
        context_id: 0x1234,
        vmid: None,
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

/// Atom of an instruction that is no element, because the exception behind it cancels it.
const CANCELLED: &str = "";

impl Encoder<'_> {
    /// Writes A-sync and I-sync.
    fn synchronize(&mut self, address: u64, isa: Isa, reason: u8) {
        self.flush();
        self.bytes.extend([0, 0, 0, 0, 0, 0x80]);
        // With cycle counts, an I-sync can contain one.
        let cycles = self.options.counts_cycles && self.random.once_in(2);
        self.bytes.push(if cycles { 0x70 } else { 0x08 });
        if cycles {
            self.bytes.extend([0x85, 0x01]);
        }
        self.bytes.extend(self.context_id.to_le_bytes());
        // In non-secure state.
        self.bytes.push(0x08 | reason << 5);
        let is_thumb = u32::from(isa == Isa::T32);
        self.bytes.extend((address as u32 | is_thumb).to_le_bytes());
        (self.address, self.isa) = (address, isa);
        self.context_isa = isa;
    }

    fn expect_context(&mut self) {
        let isa = isa_number(self.context_isa);
        let vmid = self
            .vmid
            .map_or_else(String::new, |vmid| format!(" vm{vmid:x}"));
        let id = self.context_id;
        self.expected.push(format!("context {isa} id{id:x}{vmid}"));
    }

    fn instruction(&self, address: u64) -> Instruction {
        let all = &self.program.all;
        let index = all.binary_search_by_key(&address, |instruction| instruction.address);
        all[index.expect("an instruction")]
    }

    /// Adds the atom of an instruction, which may have been executed or not.
    fn atom(&mut self, address: u64, is_executed: bool) -> u64 {
        let instruction = self.instruction(address);
        let exec = if is_executed { 'E' } else { 'N' };
        let (end, isa) = (instruction.end(), isa_number(instruction.isa));
        let line = format!("range {address:x} {end:x} 1 isa{isa} {exec}");
        self.atoms.push((is_executed, line));
        if self.random.once_in(12) {
            self.flush();
        }
        end
    }

    fn run(&mut self, run: &Run) {
        let mut at = run.start;
        for number in 1..=run.count {
            at = self.atom(at, number < run.count || run.is_taken);
        }
        assert_eq!(at, run.end);
        // The library does not always detect that a call changes the instruction set.
        let is_broadcast = !self.options.cancels && run.next_isa != run.isa;
        if run.is_indirect() || is_broadcast {
            self.flush();
            self.branch(run.next, run.next_isa, None);
        }
    }

    /// Writes a branch address, with the byte of an exception if there is one.
    fn branch(&mut self, address: u64, isa: Isa, exception: Option<u8>) {
        let shift = if isa == Isa::A32 { 2 } else { 1 };
        let (new, old) = (address as u32 >> shift, self.address as u32 >> shift);
        let is_alternative = self.options.has_alternative_branches;
        // Address bits in this number of bytes. The last byte of the alternative encoding has one bit less.
        let bits = |len: u32| 6 + 7 * (len - 1) - u32::from(is_alternative && len > 1);
        let fits = |len: u32| isa == self.isa && (new ^ old) >> bits(len) == 0;
        let shortest = match (exception, is_alternative) {
            (None, _) => 1,
            (Some(_), true) => 2,
            (Some(_), false) => 5,
        };
        let mut len = (shortest..5).find(|len| fits(*len)).unwrap_or(5);
        if self.random.once_in(4) {
            len += self.random.below(6 - len as usize) as u32;
        }
        let flag = u8::from(exception.is_some()) << 6;
        for index in 0..len {
            let goes_on = u8::from(index + 1 < len) << 7;
            let is_last = index + 1 == len;
            self.bytes.push(match index {
                0 => (new as u8 & 0x3f) << 1 | 1 | goes_on,
                4 if isa == Isa::T32 => 0x10 | (new >> 27) as u8 & 0xf | flag,
                4 => 0x08 | (new >> 27) as u8 & 7 | flag,
                _ if is_last && is_alternative => (new >> (7 * index - 1)) as u8 & 0x3f | flag,
                _ => (new >> (7 * index - 1)) as u8 & 0x7f | goes_on,
            });
        }
        self.bytes.extend(exception);
        (self.address, self.isa) = (address, isa);
    }

    fn exception(&mut self, ran: &Run, at: u64, handler: u64, number: u8) {
        let mut address = ran.start;
        for _ in 0..ran.count {
            address = self.atom(address, true);
        }
        assert_eq!(address, at);
        // The instruction at which the exception occurs may be in the trace and be cancelled. Its atom has a packet of
        // its own, or is the last of several in one.
        let is_cancelled = self.options.cancels && self.random.once_in(2);
        if self.random.once_in(2) {
            self.flush();
        }
        if is_cancelled {
            self.atoms.push((true, CANCELLED.to_owned()));
        }
        self.flush();
        self.expected.push(format!("exception {number}"));
        let cancels = u8::from(is_cancelled) << 5;
        self.branch(handler, ran.isa, Some(number << 1 | 1 | cancels));
    }

    /// Sends the atoms, in P-headers of random formats.
    fn flush(&mut self) {
        let atoms = std::mem::take(&mut self.atoms);
        let mut rest = &atoms[..];
        while !rest.is_empty() {
            let executed = rest.iter().take_while(|(executed, _)| *executed).count();
            let (first, second) = (rest[0].0, rest.get(1).map(|(executed, _)| *executed));
            let is_n = |executed: bool| u8::from(!executed);
            // Header, atoms, and the cycles of each.
            let mut forms: Vec<(u8, usize, Vec<u32>)> = Vec::new();
            let counts = self.options.counts_cycles;
            let most = if counts { 7 } else { 15 };
            let run = executed.min(most);
            let follows = u8::from(run == executed && executed < rest.len());
            let all = run + usize::from(follows);
            if all > 0 {
                let header = 0x80 | follows << 6 | (run as u8) << 2;
                forms.push((header, all, vec![1; all]));
            }
            if let Some(second) = second {
                let header = 0x82 | is_n(first) << 3 | is_n(second) << 2;
                forms.push((header, 2, vec![1, 0]));
            }
            if counts {
                forms.push((0x92 | is_n(first) << 2, 1, vec![0]));
                let cycles = 1 + self.random.below(8) as u8;
                if first {
                    forms.push((0xe0 | (cycles - 1) << 2, 1, vec![u32::from(cycles)]));
                }
                if self.random.once_in(8) {
                    self.bytes.push(0xa0 | (cycles - 1) << 2);
                    self.expected.push(format!("cycles {cycles}"));
                }
            }
            let form = self.random.below(forms.len());
            let (header, count, cycles) = &forms[form];
            self.bytes.push(*header);
            for ((_, line), cycles) in rest[..*count].iter().zip(cycles) {
                if line == CANCELLED {
                    continue;
                }
                self.expected.push(if counts {
                    format!("{line} cc{cycles}")
                } else {
                    line.clone()
                });
            }
            rest = &rest[*count..];
        }
    }

    /// Adds timestamps, events and other packets that may occur between instructions.
    fn between(&mut self, event: &Event) {
        let choice = self.random.below(60);
        if choice < 9 {
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
                self.expected.push(format!("time {value:x}"));
            }
            1 => {
                self.bytes.push(0x0c);
                self.expected.push("event -1".into());
            }
            2 => self.bytes.push(0x66),
            3 => {
                self.context_id = 0x1000 + self.random.below(3) as u32;
                self.bytes.push(0x6e);
                self.bytes.extend(self.context_id.to_le_bytes());
                self.expect_context();
            }
            4 => {
                let vmid = self.random.below(256) as u8;
                self.vmid = Some(vmid);
                self.bytes.extend([0x3c, vmid]);
                self.expect_context();
            }
            5 if matches!(event, Event::Run(run) if run.last != Op::Plain) => {
                self.bytes.push(0x76);
                self.expected.push("return".into());
                // An exception after it would cancel it.
                self.bytes.push(0x66);
            }
            // A periodic synchronization, and one after an overflow.
            6 | 7 => {
                let (address, isa) = next_of(event);
                let reason = if choice == 6 { 0 } else { 2 };
                self.synchronize(address, isa, reason);
                if reason == 2 {
                    self.expected.push("on 1".into());
                }
                self.expect_context();
            }
            8 if self.options.counts_cycles => {
                let cycles = 1 + self.random.below(100) as u8;
                self.bytes.extend([0x04, cycles]);
                self.expected.push(format!("cycles {cycles}"));
            }
            _ => {}
        }
    }
}
