//! Overhead of recording, as a target has measured it on itself.
//!
//! Every event takes time from the traced program: some of it *before* the timestamp in its record is taken (the call
//! of the hook and its checks), some *after* (encoding, storing, the return). So the interval between two consecutive
//! events of one context contains the program's own work, the first event's overhead after its timestamp, and the
//! second event's overhead before its timestamp. A reader that knows both can subtract them ([`Cost`]).
//!
//! Records that come long after the previous one have other forms, and take another path through the encoder. So each
//! overhead has a minimum distance from which it applies ([`Cost::from_bits`]).
//!
//! A target only calls each of its hooks several times and records the total times without processing ([`Sums`], in the
//! metadata record of type [`MetadataType::Measured`](crate::event::MetadataType::Measured)), because code is scarce
//! there. The reader computes the overhead of a call of the hook, and its uncertainty ([`costs`]).

use crate::event::{ByteOrder, Form, Layout};

/// Kind of event whose overhead was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Recorded {
    /// Entry to a function.
    Enter = 0,
    /// Exit from a function.
    Exit = 1,
    /// Start of an interrupt handler.
    IsrEnter = 2,
    /// End of an interrupt handler.
    IsrExit = 3,
    /// Exit from a function that is recorded with the function ([`EventId::ExitNamed`](crate::event::EventId)).
    ExitNamed = 4,
    /// A thread loses its processor.
    SwitchedOut = 5,
    /// A thread gets a processor.
    SwitchedIn = 6,
}

impl Recorded {
    /// Returns the kind with this number.
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

/// Overhead of one record. Times are in fractions of a tick of the target's clock, because they are averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The kind of event.
    pub recorded: Recorded,
    /// The overhead applies to records that come at least 2^`from_bits` ticks after the previous record (0: to all),
    /// unless another overhead with a larger number applies, too.
    pub from_bits: u8,
    /// Uncertainty of [`before`](Self::before) and of [`after`](Self::after), in either direction, in
    /// 1/[`UNIT`](Self::UNIT) ticks.
    pub uncertainty: u16,
    /// Time from the first instruction that exists only for the hook's call to the timestamp, in 1/[`UNIT`](Self::UNIT)
    /// ticks.
    pub before: u32,
    /// Time from the timestamp to the hook's return, in 1/[`UNIT`](Self::UNIT) ticks.
    pub after: u32,
}

impl Cost {
    /// Fractions per tick.
    pub const UNIT: u32 = 256;

    /// Size of the older encoding, which targets used before [`Sums`]: `u8 recorded, u8 from_bits, u16 uncertainty, u32
    /// before, u32 after`.
    pub const BYTES: usize = 12;

    /// Reads one overhead from the value of such a metadata record; `None` if it is too short, or of an unknown kind.
    pub fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        let value: &[u8; Self::BYTES] = value.first_chunk()?;
        let [recorded, from_bits, u0, u1, b0, b1, b2, b3, a0, a1, a2, a3] = *value;
        Some(Self {
            recorded: Recorded::from_number(recorded)?,
            from_bits,
            uncertainty: match order {
                ByteOrder::Little => u16::from_le_bytes([u0, u1]),
                ByteOrder::Big => u16::from_be_bytes([u0, u1]),
            },
            before: word(order, [b0, b1, b2, b3]),
            after: word(order, [a0, a1, a2, a3]),
        })
    }
}

const fn word(order: ByteOrder, bytes: [u8; 4]) -> u32 {
    match order {
        ByteOrder::Little => u32::from_le_bytes(bytes),
        ByteOrder::Big => u32::from_be_bytes(bytes),
    }
}

/// Total time of several calls of one hook, in ticks. The sums wrap at 2^32.
///
/// The time of each call includes a part of reading the clock, and the time that any call takes: [`Base`] provides
/// both.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Sum of the times from before the calls to their timestamps.
    pub before: u32,
    /// Sum of the times from the timestamps to the calls' return.
    pub after: u32,
    /// The longest time of one call, both parts together.
    pub most: u32,
}

impl Sums {
    /// Size of the encoding: `u32 before, u32 after, u32 most`.
    const BYTES: usize = 12;

    /// Sums of no calls.
    pub const NOTHING: Self = Self {
        before: 0,
        after: 0,
        most: 0,
    };

    /// Adds a call that took `before` ticks before its timestamp, and `after` ticks after it.
    #[inline(always)]
    pub fn add(&mut self, before: u32, after: u32) {
        self.before = self.before.wrapping_add(before);
        self.after = self.after.wrapping_add(after);
        self.most = self.most.max(before.wrapping_add(after));
    }

    fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        let value: &[u8; Self::BYTES] = value.first_chunk()?;
        let [b0, b1, b2, b3, a0, a1, a2, a3, m0, m1, m2, m3] = *value;
        Some(Self {
            before: word(order, [b0, b1, b2, b3]),
            after: word(order, [a0, a1, a2, a3]),
            most: word(order, [m0, m1, m2, m3]),
        })
    }
}

/// Overhead of the measurement itself, in ticks: sums of the same number of calls.
///
/// Compilers call hooks in one fixed way. How the measuring code is compiled varies, but it calls everything in the
/// same way. So it also calls a function that does almost nothing, and one that does the same and in addition calls the
/// former, as compilers call hooks. With both a reader can subtract the overhead of the measurement, and add that of
/// the compilers' call instead.
///
/// The timestamp of such calls counts as one tick before they begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Calls of the function that does nothing.
    pub nothing: u32,
    /// Calls of the function that calls it.
    pub calling: u32,
}

/// Two hooks, of which the second ends what the first begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pair {
    /// None: measures the [`Base`].
    Nothing = 0,
    /// Entry and exit of a function.
    Function = 1,
    /// Start and end of an interrupt handler.
    Interrupt = 2,
    /// A thread loses its processor, and gets it again.
    Switch = 3,
}

impl Pair {
    const fn from_number(number: u32) -> Self {
        match number & 3 {
            0 => Self::Nothing,
            1 => Self::Function,
            2 => Self::Interrupt,
            _ => Self::Switch,
        }
    }
}

/// How a pair is measured. Encoded as a [number](Self::number) both in a target's plan and in its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The pair of hooks.
    pub pair: Pair,
    /// Number of calls in [`Sums`], as a power of two.
    pub calls: u8,
    /// Reciprocal of the part of a hook's overhead that out-of-order execution may hide behind the program's work, or
    /// vice versa; 0 if a processor executes in order.
    pub hidden: u8,
    /// Whether a call is open before each hook. Otherwise an exit is recorded with its function.
    pub open: bool,
    /// Ticks between the previous record and each of the hooks, as powers of two.
    pub from_bits: [u8; 2],
}

impl Measure {
    /// Returns all measurements: the base; a function's entry and exit soon after the previous record, so late that
    /// they need the longer form, so late that a timestamp record precedes them, and such that the exit is recorded
    /// with its function; an interrupt; and a thread switch, if the program reports switches.
    pub const fn all(layout: Layout, calls: u8, hidden: u8) -> [Self; 7] {
        const fn bits(layout: Layout, form: Form) -> u8 {
            layout.shape.time_bits(form) as u8
        }
        const fn of(pair: Pair, calls: u8, hidden: u8) -> Measure {
            Measure {
                pair,
                calls,
                hidden,
                open: true,
                from_bits: [0; 2],
            }
        }
        let function = of(Pair::Function, calls, hidden);
        [
            of(Pair::Nothing, calls, hidden),
            function,
            Self {
                from_bits: [
                    bits(layout, Form::EnterShort),
                    bits(layout, Form::ExitShort),
                ],
                ..function
            },
            Self {
                from_bits: [bits(layout, Form::EnterLong), bits(layout, Form::ExitLong)],
                ..function
            },
            Self {
                open: false,
                ..function
            },
            of(Pair::Interrupt, calls, hidden),
            of(Pair::Switch, calls, hidden),
        ]
    }

    /// Encodes the measurement as one number, from the lowest bits on: `u8 pair, u4 calls, u4 hidden`, and for each
    /// hook `u5 from_bits, u1 open, u2 1`.
    pub const fn number(self) -> u32 {
        let [first, second] = self.from_bits;
        let open = (2 + self.open as u32) << Self::OPEN_AT;
        self.pair as u32
            | (self.calls as u32) << 8
            | (self.hidden as u32) << 12
            | (first as u32 | open) << Self::HOOKS_AT[0]
            | (second as u32 | open) << Self::HOOKS_AT[1]
    }

    /// Positions of the hooks' bits in the number.
    pub const HOOKS_AT: [u32; 2] = [16, 24];

    /// Position of [`open`](Self::open) among a hook's bits.
    pub const OPEN_AT: u32 = 5;

    /// Decodes a [`number`](Self::number).
    const fn from_number(number: u32) -> Self {
        let [_, how, first, second] = number.to_le_bytes();
        Self {
            pair: Pair::from_number(number),
            calls: how & 15,
            hidden: how >> 4,
            open: second >> Self::OPEN_AT & 1 != 0,
            from_bits: [first & 31, second & 31],
        }
    }

    /// Returns the kinds of events; `None` for the base, and for the entry that another pair measures.
    const fn recorded(self) -> [Option<Recorded>; 2] {
        match self.pair {
            Pair::Nothing => [None; 2],
            Pair::Function if self.open => [Some(Recorded::Enter), Some(Recorded::Exit)],
            Pair::Function => [None, Some(Recorded::ExitNamed)],
            Pair::Interrupt => [Some(Recorded::IsrEnter), Some(Recorded::IsrExit)],
            Pair::Switch => [Some(Recorded::SwitchedOut), Some(Recorded::SwitchedIn)],
        }
    }

    /// Returns the average of a sum for one call, in fractions of a tick.
    fn average(self, sum: u32) -> i64 {
        (i64::from(sum) * i64::from(Cost::UNIT)) >> self.calls
    }

    /// Returns the uncertainty of a whole call's overhead: two standard deviations. The standard deviation of one call
    /// is at most half of the range of the calls, which is estimated as twice the excess of the longest call over the
    /// average. The range is at least one tick, because even identical calls differ in their position relative to the
    /// clock's ticks (also if the measurement did not show it). The result is 5/2 times that of this average alone,
    /// because what is subtracted and added consists of three averages of the same number of calls: √(1 + 2² + 1) is
    /// less.
    fn doubt(self, sums: &Sums) -> i64 {
        let unit = i64::from(Cost::UNIT);
        let average = self.average(sums.before.wrapping_add(sums.after));
        let above = i64::from(sums.most) * unit - average;
        ((2 * above).max(unit) * 5 / 2) >> (self.calls / 2)
    }

    /// Computes the overhead of the first or second hook. Returns `None` if it recorded nothing, or if the clock did
    /// not count.
    fn cost(self, hook: usize, measured: &Measured) -> Option<Cost> {
        let base = [measured.base.nothing, measured.base.calling];
        let [nothing, calling] = base.map(|sum| {
            let unit = i64::from(Cost::UNIT);
            (sum != 0).then(|| self.average(sum) - unit)
        });
        let (nothing, calling) = (nothing?, calling?);
        // Both functions do nothing, and the second one also calls the first: the difference is such a call. The
        // remainder is the time to read the clock, and to call in the way of the measuring code.
        let call = (calling - nothing).max(0);
        let reading = nothing - call;
        // A negative time means that there was no record.
        let part = |sum: u32| {
            i32::try_from(sum).ok()?;
            let part = (self.average(sum) - reading / 2).max(0);
            u32::try_from(part).ok()
        };
        let sums = &measured.hooks[hook];
        let (before, after) = (part(sums.before)?, part(sums.after)?);
        let hidden = match self.hidden {
            0 => 0,
            parts => (i64::from(before) + i64::from(after)) / i64::from(parts),
        };
        // A call is at least five instructions, including those of the empty function; compilers may need one more in
        // one place than in another. Each part gets half of the uncertainty.
        let doubt = (self.doubt(sums) + call / 5 + hidden) / 2;
        Some(Cost {
            recorded: self.recorded()[hook]?,
            from_bits: self.from_bits[hook],
            uncertainty: u16::try_from(doubt).unwrap_or(u16::MAX),
            before,
            after,
        })
    }
}

/// Measurement of one [`Pair`] by a target, in the layout of the metadata record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured<T = Sums> {
    /// The [number](Measure::number) of a [`Measure`].
    pub measure: u32,
    /// The overhead of the measurement, to be subtracted.
    pub base: Base,
    /// The times of the two hooks.
    pub hooks: [T; 2],
}

impl Measured {
    fn decode(order: ByteOrder, value: &[u8]) -> Option<Self> {
        let (measure, value) = value.split_first_chunk()?;
        let (nothing, value) = value.split_first_chunk()?;
        let (calling, value) = value.split_first_chunk()?;
        Some(Self {
            measure: word(order, *measure),
            base: Base {
                nothing: word(order, *nothing),
                calling: word(order, *calling),
            },
            hooks: [
                Sums::decode(order, value)?,
                Sums::decode(order, value.get(Sums::BYTES..)?)?,
            ],
        })
    }
}

/// Computes the overheads from the value of one metadata record. Hooks that recorded nothing during the measurement
/// yield none.
pub fn costs(order: ByteOrder, value: &[u8]) -> impl Iterator<Item = Cost> {
    let measured = Measured::decode(order, value).into_iter();
    let hooks = measured.flat_map(|measured| [(0, measured), (1, measured)]);
    hooks
        .filter_map(|(hook, measured)| Measure::from_number(measured.measure).cost(hook, &measured))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::event::Shape;

    const MANY: Measure = Measure {
        pair: Pair::Function,
        calls: 6,
        hidden: 0,
        open: true,
        from_bits: [0; 2],
    };

    /// A value as targets encode it.
    fn value(order: ByteOrder, measured: &Measured) -> Vec<u8> {
        let Measured {
            measure,
            base,
            hooks,
        } = measured;
        let words = hooks.map(|sums| [sums.before, sums.after, sums.most]);
        [*measure, base.nothing, base.calling]
            .into_iter()
            .chain(words.into_iter().flatten())
            .flat_map(|word| match order {
                ByteOrder::Little => word.to_le_bytes(),
                ByteOrder::Big => word.to_be_bytes(),
            })
            .collect()
    }

    /// Sums of calls, each of which took the ticks that `calls` returns.
    fn sums(measure: Measure, calls: impl Fn(u32) -> [u32; 2]) -> Sums {
        let mut sums = Sums::NOTHING;
        for call in 0..1 << measure.calls {
            let [before, after] = calls(call);
            sums.add(before, after);
        }
        sums
    }

    /// Base for an empty function that takes two ticks, and a call that takes `call` more. (Plus the tick after the
    /// timestamp.)
    fn base(measure: Measure, call: u32) -> Base {
        let sum = |ticks| sums(measure, |_| [u32::MAX, 1 + ticks]).after;
        Base {
            nothing: sum(2),
            calling: sum(2 + call),
        }
    }

    /// Computes the overhead from one hook's calls.
    fn cost(measure: Measure, call: u32, calls: impl Fn(u32) -> [u32; 2]) -> Option<Cost> {
        let measured = Measured {
            measure: measure.number(),
            base: base(measure, call),
            hooks: [sums(measure, calls), Sums::NOTHING],
        };
        let order = ByteOrder::Little;
        let value = value(order, &measured);
        let mut costs = costs(order, &value);
        costs.find(|cost| cost.recorded == Recorded::Enter)
    }

    #[test]
    fn a_cost_is_read_as_it_was_told() {
        let cost = Cost {
            recorded: Recorded::Exit,
            from_bits: 7,
            uncertainty: 0x0102,
            before: 0x0304_0506,
            after: 0x0708_090A,
        };
        let mut big = [1, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let little = [1, 7, 2, 1, 6, 5, 4, 3, 10, 9, 8, 7];
        assert_eq!(Cost::decode(ByteOrder::Big, &big), Some(cost));
        assert_eq!(Cost::decode(ByteOrder::Little, &little), Some(cost));
        assert_eq!(Cost::decode(ByteOrder::Big, &big[..11]), None);
        big[0] = 7;
        assert_eq!(Cost::decode(ByteOrder::Big, &big), None);
    }

    #[test]
    fn every_pair_tells_of_its_own() {
        let mut measured = Measured {
            measure: MANY.number(),
            base: base(MANY, 0),
            hooks: [sums(MANY, |_| [30, 21]), sums(MANY, |_| [30, 22])],
        };
        let expected: [&[(Recorded, u8, u32)]; 7] = [
            &[],
            &[(Recorded::Enter, 0, 20), (Recorded::Exit, 0, 21)],
            &[(Recorded::Enter, 8, 20), (Recorded::Exit, 7, 21)],
            &[(Recorded::Enter, 12, 20), (Recorded::Exit, 13, 21)],
            &[(Recorded::ExitNamed, 0, 21)],
            &[(Recorded::IsrEnter, 0, 20), (Recorded::IsrExit, 0, 21)],
            &[
                (Recorded::SwitchedOut, 0, 20),
                (Recorded::SwitchedIn, 0, 21),
            ],
        ];
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let layout = Layout {
                order,
                shape: Shape::Compact,
                ..Layout::NATIVE
            };
            let all = Measure::all(layout, MANY.calls, MANY.hidden);
            for (measure, expected) in all.into_iter().zip(expected) {
                measured.measure = measure.number();
                let value = value(order, &measured);
                assert_eq!(value.len(), size_of::<Measured>());
                let told: Vec<_> = costs(order, &value)
                    .map(|cost| (cost.recorded, cost.from_bits, cost.after / Cost::UNIT))
                    .collect();
                assert_eq!(told, expected);
                // Cut off.
                for cut in 0..value.len() {
                    assert_eq!(costs(order, &value[..cut]).next(), None);
                }
            }
        }
    }

    #[test]
    fn what_measuring_takes_is_taken_off_and_a_compilers_call_put_in_its_place() {
        let cost = cost(MANY, 1, |_| [20, 30]).unwrap();
        // The empty function's call takes one of the two ticks of its measurement.
        assert_eq!(cost.before, 20 * Cost::UNIT - Cost::UNIT / 2);
        assert_eq!(cost.after, 30 * Cost::UNIT - Cost::UNIT / 2);
        // It is still possible that no call has met the tick that makes a difference.
        let doubt = Cost::UNIT * 5 / 2 / 8 + Cost::UNIT / 5;
        assert_eq!(u32::from(cost.uncertainty), doubt / 2);
    }

    #[test]
    fn an_average_is_as_unsure_as_what_it_is_of() {
        let cost = cost(MANY, 0, |n| [27, if n % 4 == 0 { 30 } else { 26 }]).unwrap();
        assert_eq!(cost.before, 26 * Cost::UNIT);
        assert_eq!(cost.after, 26 * Cost::UNIT);
        // The longest call took three ticks more than the average.
        let doubt = 6 * Cost::UNIT * 5 / 2 / 8;
        assert_eq!(u32::from(cost.uncertainty), doubt / 2);
    }

    #[test]
    fn what_may_be_hidden_is_doubt() {
        let measure = Measure {
            calls: 5,
            hidden: 4,
            ..MANY
        };
        // A call takes more than the whole empty function: that much is missing where it was measured.
        let cost = cost(measure, 4, |_| [8, 18]).unwrap();
        assert_eq!((cost.before, cost.after), (9 * Cost::UNIT, 19 * Cost::UNIT));
        let doubt = 28 * Cost::UNIT / 4 + 4 * Cost::UNIT / 5 + Cost::UNIT * 5 / 2 / 4;
        assert_eq!(u32::from(cost.uncertainty), doubt / 2);
    }

    #[test]
    fn there_is_no_cost_of_what_recorded_nothing() {
        assert!(cost(MANY, 0, |_| [0, 30]).is_some());
        assert_eq!(cost(MANY, 0, |_| [u32::MAX, 30]), None);
        let mut measured = Measured {
            measure: MANY.number(),
            base: base(MANY, 0),
            hooks: [sums(MANY, |_| [9, 9]); 2],
        };
        let order = ByteOrder::Little;
        let known = value(order, &measured);
        assert_eq!(costs(order, &known).count(), 2);
        // Nor with a clock that stood still.
        measured.base.nothing = 0;
        let still = value(order, &measured);
        assert_eq!(costs(order, &still).count(), 0);
    }
}
