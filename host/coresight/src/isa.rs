//! Instruction sets, and the parts that the decoders of 32-bit trace (ETMv3, PTM) share.

use std::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Isa {
    /// 32-bit Arm.
    A32,
    /// Thumb, 16 and 32 bits.
    T32,
    /// AArch64.
    A64,
    /// ThumbEE.
    ThumbEe,
    /// Jazelle.
    Jazelle,
    /// Not known yet.
    #[default]
    Unknown,
}

impl Isa {
    /// The name in listings of elements.
    pub fn short_name(self) -> &'static str {
        match self {
            Isa::A32 => "A32",
            Isa::T32 => "T32",
            Isa::A64 => "A64",
            Isa::ThumbEe => "TEE",
            Isa::Jazelle => "Jaz",
            Isa::Unknown => "Unk",
        }
    }

    /// The name in listings of ETMv3 and PTM packets.
    pub(crate) fn packet_name(self) -> &'static str {
        match self {
            Isa::A32 => "ARM(32)",
            Isa::T32 => "Thumb2",
            Isa::A64 => "AArch64",
            Isa::ThumbEe => "ThumbEE",
            Isa::Jazelle => "Jazelle",
            Isa::Unknown => "Unknown",
        }
    }
}

/// A 32-bit address whose low bits came from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PartialAddress {
    /// Full value, completed from earlier packets.
    pub value: u32,
    /// Number of low bits known from all packets so far.
    pub valid_bits: u8,
    /// Number of low bits in this packet.
    pub bits: u8,
}

impl PartialAddress {
    /// Replaces the low `bits` bits.
    pub(crate) fn update(&mut self, value: u32, bits: u8) {
        let bits = bits.min(32);
        let mask = if bits == 32 {
            u32::MAX
        } else {
            (1 << bits) - 1
        };
        self.value = self.value & !mask | value & mask;
        self.bits = bits;
        self.valid_bits = self.valid_bits.max(bits);
    }
}

impl fmt::Display for PartialAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.valid_bits.div_ceil(4));
        write!(out, "0x{:?<unknown$}", "", unknown = 8 - digits)?;
        if digits > 0 {
            let mask = u32::MAX >> (32 - 4 * digits);
            write!(out, "{:0digits$X}", self.value & mask)?;
        }
        if self.valid_bits < 32 {
            write!(out, " ({}:0)", i16::from(self.valid_bits) - 1)?;
        }
        if self.bits > 0 {
            write!(
                out,
                " ~[0x{:X}]",
                self.value & (u32::MAX >> (32 - self.bits))
            )?;
        }
        Ok(())
    }
}

/// Reason for a synchronization with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReason {
    /// Periodic.
    Periodic,
    /// Tracing begins.
    TraceEnable,
    /// Tracing begins again after an overflow.
    RestartOverflow,
    /// The processor leaves debug state.
    DebugExit,
}

impl SyncReason {
    pub(crate) fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => SyncReason::Periodic,
            1 => SyncReason::TraceEnable,
            2 => SyncReason::RestartOverflow,
            _ => SyncReason::DebugExit,
        }
    }

    /// Machine-readable name.
    pub(crate) fn plain_name(self) -> &'static str {
        match self {
            SyncReason::Periodic => "periodic",
            SyncReason::TraceEnable => "trace_enable",
            SyncReason::RestartOverflow => "restart_overflow",
            SyncReason::DebugExit => "debug_exit",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            SyncReason::Periodic => "Periodic",
            SyncReason::TraceEnable => "Trace Enable",
            SyncReason::RestartOverflow => "Restart Overflow",
            SyncReason::DebugExit => "Debug Exit",
        }
    }
}

/// Reads a little-endian number.
pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Reads a context ID of the given size at the start of `rest`; the inner `None` means a size of 0.
pub(crate) fn context_id(rest: &[u8], len: usize) -> Option<Option<u32>> {
    match len {
        0 => Some(None),
        len => Some(Some(little_endian(rest.get(..len)?) as u32)),
    }
}

/// Reads a timestamp of at most 64 or 48 bits at the start of `rest`: seven bits in each byte except the last
/// possible one. Returns its low bits, their number, and its length in bytes.
pub(crate) fn timestamp(rest: &[u8], is_64_bit: bool) -> Option<(u64, u8, usize)> {
    let (most, last_bits) = if is_64_bit { (9, 8) } else { (7, 6) };
    let mut value = 0;
    let mut bits = 0;
    for (index, byte) in rest.iter().enumerate() {
        let is_last = index + 1 == most;
        let width = if is_last { last_bits } else { 7 };
        value |= (u64::from(*byte) & ((1 << width) - 1)) << bits;
        bits += width;
        if is_last || byte & 0x80 == 0 {
            return Some((value, bits as u8, index + 1));
        }
    }
    None
}

/// Combines the low `bits` bits of one number with the other bits of another.
pub(crate) fn with_low_bits(value: u64, low: u64, bits: u8) -> u64 {
    let mask = u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0);
    value & !mask | low & mask
}

/// Returns the number of leading zeros, and whether they and the 0x80 after them are an alignment synchronization of
/// ETMv3 and PTM.
pub(crate) fn zeros_of_async(rest: &[u8]) -> (usize, bool) {
    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
    (
        zeros,
        zeros >= ASYNC_ZEROS && rest.get(zeros) == Some(&0x80),
    )
}

/// Number of zeros in an alignment synchronization of ETMv3 and PTM, before its 0x80.
pub(crate) const ASYNC_ZEROS: usize = 5;

/// Largest size of an unsynchronized packet of ETMv3 and PTM, in bytes.
pub(crate) const UNSYNCED_LEN: usize = 16;

pub(crate) fn to_gray(value: u64) -> u64 {
    value ^ value >> 1
}

pub(crate) fn from_gray(gray: u64) -> u64 {
    [32, 16, 8, 4, 2, 1]
        .iter()
        .fold(gray, |value, shift| value ^ value >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gray_code_round_trips() {
        for value in [0, 1, 2, 0xffff_ffff_ffff_ffff, 0x1234_5678_9abc_def0] {
            assert_eq!(from_gray(to_gray(value)), value);
        }
    }

    #[test]
    fn shows_what_is_not_known_of_an_address() {
        let mut address = PartialAddress::default();
        address.update(0xf680, 15);
        assert_eq!(address.to_string(), "0x????7680 (14:0) ~[0x7680]");
    }
}
