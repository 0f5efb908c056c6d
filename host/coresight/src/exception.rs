//! Names and kinds of exceptions, by their number in packets.
//!
//! Each trace architecture has its own exception numbers, and the M profile has others than the A and R profiles.

use std::borrow::Cow;

use crate::source::Protocol;

/// Exception numbering of a trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exceptions {
    /// ETMv4 and ETE of an A or R profile core (Arm IHI 0064, exception instruction trace packet).
    EtmV4,
    /// ETMv4 of an M profile core.
    EtmV4M,
    /// ETMv3 and PTM of an A or R profile core (Arm IHI 0014 and 0035, branch address packet).
    Armv7,
    /// ETMv3 of an M profile core.
    EtmV3M,
}

/// Kind of an exception, from the view of the interrupted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionKind {
    /// Asynchronous, without relation to the interrupted instruction: IRQ, FIQ, SysTick, a system error.
    Interrupt,
    /// Requested by the instruction before it: SVC, HVC, SMC.
    Call,
    /// An instruction could not execute: aborts, traps, undefined instructions.
    Fault,
    /// The processor resets, or halts for a debugger.
    Reset,
}

impl Exceptions {
    /// Returns the numbering of a protocol; `None` if the protocol does not trace instructions.
    pub fn of(protocol: &Protocol) -> Option<Self> {
        match protocol {
            Protocol::EtmV4(config) if config.is_m_profile => Some(Self::EtmV4M),
            Protocol::EtmV4(_) => Some(Self::EtmV4),
            Protocol::EtmV3(config) if config.is_m_profile => Some(Self::EtmV3M),
            Protocol::EtmV3(_) | Protocol::Ptm(_) => Some(Self::Armv7),
            Protocol::Stm(_) | Protocol::Itm(_) => None,
        }
    }

    /// Returns the name of an exception, in the reference tool's spelling.
    pub fn name(self, number: u32) -> Cow<'static, str> {
        let index = number as usize;
        let known = match self {
            Self::EtmV4 => ETMV4.get(index),
            Self::EtmV4M => ETMV4_M.get(index),
            Self::Armv7 => ARMV7.get(index),
            Self::EtmV3M => ETMV3_M.get(index),
        };
        match (known, self, number) {
            (Some(name), ..) => Cow::Borrowed(name),
            (None, Self::EtmV4M, 0x208..=0x3ef) => format!("IRQ{}", number - 0x200).into(),
            (None, Self::EtmV3M, _) => format!("IRQ{}", number - 0x10).into(),
            _ => Cow::Borrowed("Reserved"),
        }
    }

    /// Whether the exception number is valid. Checked only for [`Armv7`](Self::Armv7): the others accept every number.
    pub(crate) fn knows(self, number: u32) -> bool {
        self != Self::Armv7 || (number as usize) < ARMV7.len()
    }

    /// Returns the kind of an exception.
    pub fn kind(self, number: u32) -> ExceptionKind {
        use ExceptionKind::{Call, Fault, Interrupt, Reset};
        match (self, number) {
            (Self::EtmV4, 0 | 1 | 6 | 7) => Reset,
            (Self::EtmV4, 2) => Call,
            (Self::EtmV4, 3 | 0xa..=0xc) => Fault,
            (Self::EtmV4M, 1 | 0x18 | 0x1a) => Reset,
            (Self::EtmV4M, 0xb) => Call,
            (Self::EtmV4M, 3..=6 | 0xc) => Fault,
            (Self::Armv7, 1 | 8) => Reset,
            (Self::Armv7, 2 | 3 | 0xa) => Call,
            (Self::Armv7, 5..=7 | 9 | 0xb..=0xd) => Fault,
            (Self::EtmV3M, 0x11) => Reset,
            (Self::EtmV3M, 0xb) => Call,
            (Self::EtmV3M, 9 | 0xc | 0xd | 0x13 | 0x15) => Fault,
            _ => Interrupt,
        }
    }

    /// Whether the processor starts anew, so that nothing that ran before goes on.
    pub fn is_reset(self, number: u32) -> bool {
        match self {
            Self::EtmV4 => number == 0,
            Self::EtmV4M => number == 1,
            Self::Armv7 => number == 8,
            Self::EtmV3M => number == 0x11,
        }
    }

    /// Whether the core is of the M profile, where all handlers have the same entry and preempt each other by priority.
    pub fn is_m_profile(self) -> bool {
        matches!(self, Self::EtmV4M | Self::EtmV3M)
    }
}

const ETMV4: [&str; 16] = [
    "PE Reset",
    "Debug Halt",
    "Call",
    "Trap",
    "System Error",
    "Reserved",
    "Inst Debug",
    "Data Debug",
    "Reserved",
    "Reserved",
    "Alignment",
    "Inst Fault",
    "Data Fault",
    "Reserved",
    "IRQ",
    "FIQ",
];

const ETMV4_M: [&str; 32] = [
    "Reserved",
    "PE Reset",
    "NMI",
    "HardFault",
    "MemManage",
    "BusFault",
    "UsageFault",
    "Reserved",
    "Reserved",
    "Reserved",
    "Reserved",
    "SVC",
    "DebugMonitor",
    "Reserved",
    "PendSV",
    "SysTick",
    "IRQ0",
    "IRQ1",
    "IRQ2",
    "IRQ3",
    "IRQ4",
    "IRQ5",
    "IRQ6",
    "IRQ7",
    "DebugHalt",
    "LazyFP Push",
    "Lockup",
    "Reserved",
    "Reserved",
    "Reserved",
    "Reserved",
    "Reserved",
];

const ARMV7: [&str; 16] = [
    "No Exception",
    "Debug Halt",
    "SMC",
    "Hyp",
    "Async Data Abort",
    "Jazelle",
    "Reserved",
    "Reserved",
    "PE Reset",
    "Undefined Instr",
    "SVC",
    "Prefetch Abort",
    "Data Fault",
    "Generic",
    "IRQ",
    "FIQ",
];

const ETMV3_M: [&str; 24] = [
    "No Exception",
    "IRQ1",
    "IRQ2",
    "IRQ3",
    "IRQ4",
    "IRQ5",
    "IRQ6",
    "IRQ7",
    "IRQ0",
    "usage Fault",
    "NMI",
    "SVC",
    "DebugMonitor",
    "Mem Manage",
    "PendSV",
    "SysTick",
    "Reserved",
    "PE Reset",
    "Reserved",
    "HardFault",
    "Reserved",
    "BusFault",
    "Reserved",
    "Reserved",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_interrupts_and_calls() {
        for (exceptions, irq, call) in [
            (Exceptions::EtmV4, 0xe, 2),
            (Exceptions::EtmV4M, 0x208, 0xb),
            (Exceptions::Armv7, 0xe, 0xa),
            (Exceptions::EtmV3M, 0x20, 0xb),
        ] {
            assert_eq!(exceptions.kind(irq), ExceptionKind::Interrupt);
            assert!(exceptions.name(irq).starts_with("IRQ"), "{exceptions:?}");
            assert_eq!(exceptions.kind(call), ExceptionKind::Call);
            let resets = (0..0x400).filter(|number| exceptions.is_reset(*number));
            let names: Vec<_> = resets.map(|number| exceptions.name(number)).collect();
            assert_eq!(names, ["PE Reset"], "{exceptions:?}");
        }
    }
}
