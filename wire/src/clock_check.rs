//! Comparisons of a target's clock with its periodic tick, and with the clock of a host.
//!
//! A clock whose frequency is configured wrongly falsifies every timestamp and duration of a trace, and nothing in the
//! trace shows it. Both comparisons are recorded as they were measured; the reader of the trace evaluates them.

use crate::event::ByteOrder;

/// Comparison of the clock with the program's calls of `kymo_tick()`: the value of a
/// [`MetadataType::TickCheck`](crate::event::MetadataType::TickCheck).
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | u64 | `clock` |
/// | 8 | u32 | `count` |
/// | 12 | u32 | `hz` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickCheck {
    /// Ticks of the clock between the first call and the last one (or since set-up, if there was none).
    pub clock: u64,
    /// Number of calls after the first.
    pub count: u32,
    /// Calls per second according to the program.
    pub hz: u32,
}

impl TickCheck {
    /// Size of the record's value in bytes.
    pub const BYTES: usize = 16;

    /// Encodes the record's value.
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::BYTES] {
        let mut value = [0; Self::BYTES];
        let (clock, rest) = value.split_at_mut(8);
        let (count, hz) = rest.split_at_mut(4);
        match order {
            ByteOrder::Little => {
                clock.copy_from_slice(&self.clock.to_le_bytes());
                count.copy_from_slice(&self.count.to_le_bytes());
                hz.copy_from_slice(&self.hz.to_le_bytes());
            }
            ByteOrder::Big => {
                clock.copy_from_slice(&self.clock.to_be_bytes());
                count.copy_from_slice(&self.count.to_be_bytes());
                hz.copy_from_slice(&self.hz.to_be_bytes());
            }
        }
        value
    }

    /// Reads the record's value; `None` if it is too short.
    pub fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        Some(Self {
            clock: u64_at(order, value, 0)?,
            count: u32_at(order, value, 8)?,
            hz: u32_at(order, value, 12)?,
        })
    }
}

/// Comparison of the clock with a host's over an interval: the value of a
/// [`MetadataType::HostCheck`](crate::event::MetadataType::HostCheck).
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | u64 | `clock` |
/// | 8 | u64 | `ns` |
/// | 16 | u64 | `uncertainty` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCheck {
    /// Ticks of the target's clock in the interval.
    pub clock: u64,
    /// Nanoseconds of the host's clock in the interval.
    pub ns: u64,
    /// Uncertainty of `ns` in nanoseconds, in either direction.
    pub uncertainty: u64,
}

impl HostCheck {
    /// Size of the record's value in bytes.
    pub const BYTES: usize = 24;

    /// Encodes the record's value.
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::BYTES] {
        let mut value = [0; Self::BYTES];
        let fields = [self.clock, self.ns, self.uncertainty];
        for (place, field) in value.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&match order {
                ByteOrder::Little => field.to_le_bytes(),
                ByteOrder::Big => field.to_be_bytes(),
            });
        }
        value
    }

    /// Reads the record's value; `None` if it is too short.
    pub fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        Some(Self {
            clock: u64_at(order, value, 0)?,
            ns: u64_at(order, value, 8)?,
            uncertainty: u64_at(order, value, 16)?,
        })
    }
}

fn u64_at(order: ByteOrder, value: &[u8], at: usize) -> Option<u64> {
    let bytes = value.get(at..)?.first_chunk().copied()?;
    Some(match order {
        ByteOrder::Little => u64::from_le_bytes(bytes),
        ByteOrder::Big => u64::from_be_bytes(bytes),
    })
}

fn u32_at(order: ByteOrder, value: &[u8], at: usize) -> Option<u32> {
    let bytes = value.get(at..)?.first_chunk().copied()?;
    Some(match order {
        ByteOrder::Little => u32::from_le_bytes(bytes),
        ByteOrder::Big => u32::from_be_bytes(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_in_both_byte_orders() {
        let tick = TickCheck {
            clock: 0x0102_0304_0506_0708,
            count: 0x1122_3344,
            hz: 1000,
        };
        let host = HostCheck {
            clock: 5,
            ns: u64::MAX,
            uncertainty: 7,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let value = tick.encode(order);
            assert_eq!(TickCheck::decode(order, &value), Some(tick));
            assert_eq!(TickCheck::decode(order, &value[..15]), None);
            let value = host.encode(order);
            assert_eq!(HostCheck::decode(order, &value), Some(host));
            assert_eq!(HostCheck::decode(order, &value[..23]), None);
        }
        assert_eq!(tick.encode(ByteOrder::Big)[..4], [1, 2, 3, 4]);
    }
}
