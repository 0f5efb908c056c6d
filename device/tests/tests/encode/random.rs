//! Random sequences of possible events, and the expected records.

use kymo_device_tests::{Kind, Layouts, Random};
use kymo_recorder::Event;
use kymo_wire::event::{Cause, Form, WordSize};

use crate::TEXT_BASE;

/// A random time after `now`: mostly soon, sometimes exactly at the wraparound of a time field.
pub fn later<L: Layouts>(random: &mut Random, now: u64) -> u64 {
    let forms = [
        Form::ExitShort,
        Form::EnterShort,
        Form::ExitLong,
        Form::EnterLong,
        Form::Other,
    ];
    let distance = match random.below(20) {
        0 => 0,
        n @ 1..=5 => {
            let bits = L::LAYOUT.shape.time_bits(forms[n as usize - 1]);
            (1 << bits) - random.below(3)
        }
        6 if random.one_in(10) => random.below(1 << 41),
        7 if random.one_in(40) => (1 << 56) - random.below(3),
        8 => random.below(1 << 26),
        _ => random.below(150),
    };
    now.wrapping_add(distance)
}

/// Open calls and the running thread, from which only possible events follow.
#[derive(Default)]
pub struct Program {
    stack: Vec<u64>,
    interrupts: Vec<u16>,
    thread: u64,
}

/// A random event, and its expected record.
pub fn event<L: Layouts>(random: &mut Random, program: &mut Program) -> (Event, Kind) {
    let layout = L::LAYOUT;
    let word_mask = match layout.word {
        WordSize::Bits32 => u64::from(u32::MAX),
        WordSize::Bits64 => u64::MAX,
    };
    let reach = |bits: u32| 1u64 << (bits + u32::from(layout.function_shift));
    let near = reach(layout.shape.function_bits(Form::EnterShort));
    let far = reach(layout.shape.function_bits(Form::EnterLong));
    let named = reach(layout.shape.named_bits());
    let step = 1 << layout.function_shift;
    let function = match random.below(24) {
        0 => TEXT_BASE + near,
        1 => TEXT_BASE + near - step,
        2 => TEXT_BASE + far,
        3 => TEXT_BASE + far - step,
        4 => (TEXT_BASE + named) & word_mask,
        5 => TEXT_BASE + named - step,
        6 => TEXT_BASE - step,
        7 => TEXT_BASE,
        8 => random.number() & word_mask,
        9 => TEXT_BASE + random.below(far),
        _ => TEXT_BASE + random.below(near) / step * step,
    };
    let value = random.number();
    let word = value & word_mask;
    // Threads lie near to each other, mostly.
    let thread = match random.below(4) {
        0 => word,
        1 => 0x2000_0000 + (0x7FFF + random.below(3)) * 4,
        2 => 0x2000_0000 + random.below(64),
        _ => 0x2000_0000 - random.below(8) * 4,
    };
    match random.below(60) {
        0 => {
            let (priority, mode) = (value as i16, (value >> 16) as u16);
            let thread = if random.one_in(2) {
                program.thread
            } else {
                thread
            };
            program.thread = thread;
            let kind = Kind::Context {
                thread,
                priority,
                mode,
            };
            let event = Event::Context {
                thread: thread as usize,
                priority,
                mode,
            };
            (event, kind)
        }
        1 => {
            program.thread = thread;
            (Event::SwitchedIn(thread as usize), Kind::SwitchedIn(thread))
        }
        2 => {
            let thread = if random.one_in(3) {
                thread
            } else {
                program.thread
            };
            program.thread = 0;
            (
                Event::SwitchedOut(thread as usize),
                Kind::SwitchedOut(thread),
            )
        }
        3 => {
            let irq = (value >> random.below(16)) as u16;
            program.interrupts.push(irq);
            (Event::IsrEnter(irq), Kind::IsrEnter(irq))
        }
        4 => {
            let irq = program.interrupts.pop().unwrap_or(value as u16);
            (Event::IsrExit(irq), Kind::IsrExit(irq))
        }
        5 => (Event::Marker(value as u32), Kind::Marker(value as u32)),
        6 => {
            let (name, value) = (word, (value >> 7) as u32);
            let event = Event::NamedMarker {
                name: name as usize,
                value,
            };
            (event, Kind::NamedMarker { name, value })
        }
        7 => (Event::ClockGap { ticks: value }, Kind::ClockGap(value)),
        8 => {
            let on = value & 1 != 0;
            let cause = Cause::from_number((value >> 1) as u8 % 3).expect("there are three");
            let kind = Kind::Recording {
                on,
                cause: cause as u8,
            };
            (Event::Recording { on, cause }, kind)
        }
        9 => (Event::Setjmp(word as usize), Kind::Setjmp(word)),
        10 => {
            program
                .stack
                .truncate(random.below(1 + program.stack.len() as u64) as usize);
            (Event::Longjmp(word as usize), Kind::Longjmp(word))
        }
        11 => {
            let (ns, uncertainty) = (value, (value >> 13) as u32);
            let event = Event::WallClock { ns, uncertainty };
            (event, Kind::WallClock { ns, uncertainty })
        }
        n if n % 2 == 0 => {
            program.stack.push(function);
            (Event::Enter(function as usize), Kind::Enter(function))
        }
        _ => {
            let function = program.stack.pop().unwrap_or(function);
            (Event::Exit(function as usize), Kind::Exit(function))
        }
    }
}

/// The event whose record is `kind`.
pub fn event_of(kind: &Kind) -> Event {
    match *kind {
        Kind::Enter(address) => Event::Enter(address as usize),
        Kind::Exit(address) => Event::Exit(address as usize),
        Kind::Context {
            thread,
            priority,
            mode,
        } => Event::Context {
            thread: thread as usize,
            priority,
            mode,
        },
        Kind::SwitchedIn(thread) => Event::SwitchedIn(thread as usize),
        Kind::SwitchedOut(thread) => Event::SwitchedOut(thread as usize),
        Kind::IsrEnter(irq) => Event::IsrEnter(irq),
        Kind::IsrExit(irq) => Event::IsrExit(irq),
        Kind::Marker(value) => Event::Marker(value),
        Kind::NamedMarker { name, value } => Event::NamedMarker {
            name: name as usize,
            value,
        },
        Kind::ClockGap(ticks) => Event::ClockGap { ticks },
        Kind::Recording { on, cause } => Event::Recording {
            on,
            cause: Cause::from_number(cause).expect("it was one"),
        },
        Kind::Setjmp(buffer) => Event::Setjmp(buffer as usize),
        Kind::Longjmp(buffer) => Event::Longjmp(buffer as usize),
        Kind::EnterFrom { .. } | Kind::Block { .. } => unreachable!("other tests have these"),
        Kind::WallClock { ns, uncertainty } => Event::WallClock { ns, uncertainty },
        Kind::Metadata { .. } => unreachable!("no stream but one has metadata"),
        Kind::Call { .. } => unreachable!("no stream is in duration mode"),
    }
}
