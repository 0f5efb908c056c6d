//! What recording costs, as a target has measured it on itself.
//!
//! Every event takes time that the traced program would otherwise have had: some of it *before* the
//! moment that stands in its record (the call of the hook and its checks), some *after* (encoding,
//! storing, the way back). So between two neighbouring events of one context the trace shows what
//! the program did, and in addition what the first of them took after its moment and the second
//! before its own. A reader that knows both can subtract them ([`Cost`], in the metadata record of
//! type [`MetadataType::Cost`](crate::event::MetadataType::Cost)).
//!
//! Records that come late after the one before them have other forms, which take another way
//! through the encoder; so a cost says from which distance on it holds ([`Cost::from_bits`]).

use crate::event::ByteOrder;

/// What is being recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Recorded {
    /// A function is entered.
    Enter = 0,
    /// A function is left.
    Exit = 1,
    /// An interrupt handler begins.
    IsrEnter = 2,
    /// An interrupt handler ends.
    IsrExit = 3,
    /// A function is left, and the record says which ([`EventId::ExitNamed`](crate::event::EventId)).
    ExitNamed = 4,
    /// A thread loses its processor.
    SwitchedOut = 5,
    /// A thread gets one.
    SwitchedIn = 6,
}

impl Recorded {
    /// The one with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Enter),
            1 => Some(Self::Exit),
            2 => Some(Self::IsrEnter),
            3 => Some(Self::IsrExit),
            4 => Some(Self::ExitNamed),
            5 => Some(Self::SwitchedOut),
            6 => Some(Self::SwitchedIn),
            _ => None,
        }
    }
}

/// What one record costs. Times are in parts of a tick of the target's clock, because they are
/// averages.
///
/// (In the order in which it is [laid out](Self::BYTES): a target copies words.)
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Of what.
    pub recorded: Recorded,
    /// It holds for records that come 2^this ticks or more after the record before (0: for all),
    /// unless there is another cost with a larger number that holds too.
    pub from_bits: u8,
    /// How much [`before`](Self::before) and [`after`](Self::after) may each be wrong, either way,
    /// in 1/[`UNIT`](Self::UNIT) ticks.
    pub uncertainty: u16,
    /// From the first instruction that is there for the sake of the hook's call to the moment that
    /// is recorded, in 1/[`UNIT`](Self::UNIT) ticks.
    pub before: u32,
    /// From the moment that is recorded to the hook's return, in 1/[`UNIT`](Self::UNIT) ticks.
    pub after: u32,
}

impl Cost {
    /// So many parts has a tick.
    pub const UNIT: u32 = 256;

    /// How it is laid out: `u8 recorded, u8 from_bits, u16 uncertainty, u32 before, u32 after`.
    pub const BYTES: usize = 12;

    /// The value of the metadata record.
    pub const fn encode(&self, order: ByteOrder) -> [u8; Self::BYTES] {
        let (recorded, bits) = (self.recorded as u32, self.from_bits as u32);
        let uncertainty = self.uncertainty as u32;
        // As words: targets store no single bytes then.
        let words = match order {
            ByteOrder::Little => [
                (recorded | bits << 8 | uncertainty << 16).to_le_bytes(),
                self.before.to_le_bytes(),
                self.after.to_le_bytes(),
            ],
            ByteOrder::Big => [
                (recorded << 24 | bits << 16 | uncertainty).to_be_bytes(),
                self.before.to_be_bytes(),
                self.after.to_be_bytes(),
            ],
        };
        let [[h0, h1, h2, h3], [b0, b1, b2, b3], [a0, a1, a2, a3]] = words;
        [h0, h1, h2, h3, b0, b1, b2, b3, a0, a1, a2, a3]
    }

    /// Reads the value of a metadata record; `None` if it is shorter, or of something unknown.
    pub fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        let value: &[u8; Self::BYTES] = value.first_chunk()?;
        let [recorded, from_bits, u0, u1, b0, b1, b2, b3, a0, a1, a2, a3] = *value;
        let (uncertainty, before, after) = ([u0, u1], [b0, b1, b2, b3], [a0, a1, a2, a3]);
        let (uncertainty, before, after) = match order {
            ByteOrder::Little => (
                u16::from_le_bytes(uncertainty),
                u32::from_le_bytes(before),
                u32::from_le_bytes(after),
            ),
            ByteOrder::Big => (
                u16::from_be_bytes(uncertainty),
                u32::from_be_bytes(before),
                u32::from_be_bytes(after),
            ),
        };
        Some(Self {
            recorded: Recorded::from_number(recorded)?,
            from_bits,
            uncertainty,
            before,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_as_it_was_written() {
        let cost = Cost {
            recorded: Recorded::Exit,
            from_bits: 7,
            uncertainty: 0x0102,
            before: 0x0304_0506,
            after: 0x0708_090A,
        };
        let big = [1, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(cost.encode(ByteOrder::Big), big);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut value = [0xFF; 16];
            value[..12].copy_from_slice(&cost.encode(order));
            assert_eq!(Cost::decode(order, &value), Some(cost));
            assert_eq!(Cost::decode(order, &value[..11]), None);
            value[0] = 7;
            assert_eq!(Cost::decode(order, &value), None);
        }
    }
}
