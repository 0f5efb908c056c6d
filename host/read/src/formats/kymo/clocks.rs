//! Wall-clock synchronisation: dates of events, and correction of processors whose clocks differ.
//!
//! A target that knows the time of day records it occasionally ([`EventId::WallClock`]), on each
//! processor with the processor's own clock. Such a record is a [`Moment`]: one instant on two clocks.
//! Moments give the dates of events and, where several processors have them, the offsets between
//! the processors' clocks. Merging events of several processors requires one clock. The times of all
//! processors are then converted to the clock of the first processor that has moments, by linear
//! interpolation between moments. This happens only where clocks differ by more than the moments'
//! uncertainty, so that reading errors never reorder events of processors that share a clock.
//!
//! The moments must be known before the first event is returned. A pass over the records, which
//! decodes only their sizes and times, collects them beforehand.

use kymo_ctf::metadata::Clock;
use kymo_event::{
    ClockCheck, ClockCorrection, ClockReference, ClockVerdict, Cpu, Moment, Time, WallClock,
};
use kymo_wire::event::EventId;

use super::feed::Input;
use super::packets::{Packet, Piece, Pieces};
use super::quick_check::{Found, QuickCheck};
use super::records::{self, Walk, number};
use super::streams::{StreamKind, StreamNumber, find_streams};
use super::{Dump, Identity};

/// Maximum number of moments kept per stream; beyond it, every second one is dropped. More do not add accuracy.
const MOST: usize = 1 << 14;

/// Uncertainty assumed where none is recorded: a time of day from a link or a peripheral clock is
/// usually no better.
const SUPPOSED_NS: u64 = 1_000_000;

/// A recorded time of day with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recorded {
    moment: Moment,
    /// The uncertainty in nanoseconds; 0 if not recorded.
    uncertainty: u64,
}

/// The times of day in one stream, in recorded order.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments(Vec<Recorded>);

impl Moments {
    /// Collects the moments of a stream whose ticks are those of `clock`, and sets the input's list of suspect packets.
    pub(super) fn of_stream(input: &mut Input, clock: &Clock) -> Self {
        let Input {
            layout,
            bytes,
            missing,
            range,
            number,
            ..
        } = &*input;
        let mut pieces = Pieces::new(*layout, bytes, missing)
            .starting_at(range.start)
            .heads_only();
        let mut packets = std::iter::from_fn(|| {
            while pieces.offset() < range.end {
                match pieces.next()? {
                    Piece::Packet(packet)
                        if number
                            .is_none_or(|number| number == StreamNumber::of(&packet.header)) =>
                    {
                        return Some(packet);
                    }
                    _ => {}
                }
            }
            None
        });
        let check = QuickCheck::new(*layout);
        let (found, suspect) = Self::find(&check, bytes, &mut packets, clock);
        input.suspect = suspect.into();
        found
    }

    /// Collects the moments in a stream's packets, which lie in `bytes`. Also returns the offsets of the packets whose
    /// records may be damaged.
    pub(super) fn find(
        check: &QuickCheck,
        bytes: &[u8],
        packets: &mut dyn Iterator<Item = Packet>,
        clock: &Clock,
    ) -> (Self, Vec<usize>) {
        let (mut found, mut suspect) = (Self::default(), Vec::new());
        let layout = check.layout();
        for packet in packets {
            let content = (packet.header.content_bits / 8) as usize;
            let content = bytes
                .get(packet.bytes.start..packet.bytes.end.min(packet.bytes.start + content))
                .unwrap_or(&[]);
            match check.walk(&packet, bytes) {
                Found::Whole { wall_clock: false } => continue,
                Found::Whole { wall_clock: true } => {}
                Found::Suspect => {
                    suspect.push(packet.bytes.start);
                    // Damage is reported later, when the packet is read.
                    if records::check(layout, &packet.header, content).1.is_some() {
                        continue;
                    }
                }
            }
            let mut walk = Walk::new(layout, &packet.header, content);
            while let Ok(Some(id)) = walk.next() {
                if id != EventId::WallClock {
                    continue;
                }
                if walk.clock > packet.header.end {
                    break;
                }
                let field = |from: usize, to: usize| {
                    let bytes = walk.payload.get(from..to).unwrap_or(&[]);
                    number(layout.order, bytes)
                };
                if let Some(time) = clock.nanoseconds(walk.clock)
                    && let Ok(unix_ns) = i64::try_from(field(0, 8))
                {
                    found.push(Recorded {
                        moment: Moment {
                            time: Time(time),
                            unix_ns,
                        },
                        uncertainty: field(8, 12),
                    });
                }
            }
        }
        found.0.sort_by_key(|recorded| recorded.moment.time);
        found.0.dedup_by_key(|recorded| recorded.moment.time);
        (found, suspect)
    }

    /// Appends later moments.
    pub(super) fn append(&mut self, later: Self) {
        for recorded in later.0 {
            self.push(recorded);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, recorded: Recorded) {
        if self.0.len() >= MOST {
            let mut keep = false;
            self.0.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.0.push(recorded);
    }

    /// Compares the clock with the time of day. The time of day may be set during the recording, so only moments
    /// between which it was not set are compared.
    fn check(&self) -> Option<ClockCheck> {
        let by = |one: &Recorded, other: &Recorded| {
            let own = other.moment.time.0.saturating_sub(one.moment.time.0);
            let wall = other.moment.unix_ns.saturating_sub(one.moment.unix_ns);
            let worth = |recorded: &Recorded| match recorded.uncertainty {
                0 => SUPPOSED_NS,
                uncertainty => uncertainty,
            };
            let uncertainty = worth(one).saturating_add(worth(other));
            ClockCheck::by_clock(
                ClockReference::TimeOfDay,
                own as f64,
                wall as f64,
                uncertainty as f64,
            )
        };
        let in_step =
            |one: &Recorded, other: &Recorded| WallClock::in_step(one.moment, other.moment);
        let runs = self.0.chunk_by(in_step);
        let checks =
            runs.filter_map(|run| Some(by(run.first()?, run.last().filter(|_| run.len() > 1)?)));
        let agrees = |check: &ClockCheck| check.verdict() == ClockVerdict::Agrees;
        checks.into_iter().find(agrees).or_else(|| {
            let [first, .., last] = &self.0[..] else {
                return None;
            };
            Some(by(first, last))
        })
    }

    fn moments(&self) -> impl Iterator<Item = Moment> {
        self.0.iter().map(|recorded| recorded.moment)
    }

    /// The last moments between which the time of day was not set: only these are suited to
    /// compare two processors.
    fn last_run(&self) -> Run<'_> {
        let steps = self.0.windows(2).rev();
        let in_step = steps.take_while(
            |pair| matches!(pair, [one, other] if WallClock::in_step(one.moment, other.moment)),
        );
        let first = self.0.len().saturating_sub(in_step.count() + 1);
        Run(self.0.get(first..).unwrap_or(&[]))
    }
}

/// The time of tick 0 of a dump's clock, in nanoseconds since 1970 in UTC, from the first processor with
/// wall-clock records; `None` without any.
pub(super) fn origin(dump: &Dump<'_>) -> Option<i64> {
    let Identity {
        layout, clock_hz, ..
    } = *dump.identity;
    let clock = Clock::new("", clock_hz);
    let heads = || dump.pieces().heads_only();
    find_streams(heads())
        .into_iter()
        .filter(|stream| stream.kind != StreamKind::Items)
        .find_map(|stream| {
            let mut packets = heads().filter_map(|piece| match piece {
                Piece::Packet(packet) if StreamNumber::of(&packet.header) == stream.number => {
                    Some(packet)
                }
                _ => None,
            });
            let check = QuickCheck::new(layout);
            let (found, _) = Moments::find(&check, dump.bytes, &mut packets, &clock);
            let Moment { time, unix_ns } = found.last_run().0.first()?.moment;
            unix_ns.checked_sub(time.0)
        })
}

/// Moments of a processor between which the time of day was not set.
struct Run<'a>(&'a [Recorded]);

impl Run<'_> {
    /// The uncertainty of either clock's reading, in nanoseconds.
    fn uncertainty(&self) -> u64 {
        let printed = self.0.iter().map(|recorded| recorded.uncertainty);
        match self.scatter() {
            // All of them may share an error as large as the smallest recorded uncertainty.
            Some(scatter) => scatter.max(printed.min().unwrap_or(0)),
            None => match printed.max() {
                None | Some(0) => SUPPOSED_NS,
                Some(printed) => printed,
            },
        }
    }

    /// The deviation of the moments from a straight line; `None` for fewer than three.
    fn scatter(&self) -> Option<u64> {
        let [first, _, _, ..] = self.0 else {
            return None;
        };
        // Distances from the first moment: their differences are small, so exact in floating point.
        let points: Vec<(f64, f64)> = self
            .0
            .iter()
            .map(|recorded| {
                let own = i128::from(recorded.moment.time.0) - i128::from(first.moment.time.0);
                let wall = i128::from(recorded.moment.unix_ns) - i128::from(first.moment.unix_ns);
                (own as f64, (wall - own) as f64)
            })
            .collect();
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let product: f64 = points
            .iter()
            .map(|(x, y)| (x - mean_x) * (y - mean_y))
            .sum();
        let slope = product / spread;
        let strays = points
            .iter()
            .map(|(x, y)| (y - mean_y - slope * (x - mean_x)).abs());
        Some(strays.fold(0.0, f64::max).round() as u64)
    }

    /// The time on this processor's clock at a time of day.
    fn time(&self, unix_ns: i64) -> Option<i64> {
        let points = self
            .0
            .iter()
            .map(|recorded| (recorded.moment.unix_ns, recorded.moment.time.0));
        Line(points.collect()).at(unix_ns)
    }

    /// Whether both runs cover about the same period: times of day far from those of the other run
    /// cannot be compared with it.
    fn meets(&self, other: &Self) -> bool {
        let ends = |run: &Self| {
            let (first, last) = (run.0.first()?, run.0.last()?);
            Some((
                i128::from(first.moment.unix_ns),
                i128::from(last.moment.unix_ns),
            ))
        };
        let (Some((a, b)), Some((c, d))) = (ends(self), ends(other)) else {
            return false;
        };
        let between = (c - b).max(a - d);
        between <= (b - a + d - c).max(60_000_000_000)
    }
}

/// Piecewise linear function through points that rise in both coordinates; extrapolates with the outer segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line(Vec<(i64, i64)>);

impl Line {
    fn at(&self, x: i64) -> Option<i64> {
        let points = &self.0;
        let behind = points.partition_point(|point| point.0 <= x);
        let from = behind.saturating_sub(1).min(points.len().saturating_sub(2));
        let one = points.get(from)?;
        let distance = i128::from(x) - i128::from(one.0);
        let rise = match points.get(from + 1) {
            Some(other) => {
                let run = i128::from(other.0) - i128::from(one.0);
                let rise = i128::from(other.1) - i128::from(one.1);
                (distance * rise).div_euclid(run.max(1))
            }
            None => distance,
        };
        i64::try_from(i128::from(one.1) + rise).ok()
    }
}

/// Conversion of one processor's times to another processor's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Correction(Line);

impl Correction {
    /// Converts a time of this processor to the other processor's clock.
    pub(super) fn apply(&self, time: Time) -> Time {
        Time(self.0.at(time.0).unwrap_or(time.0))
    }
}

/// Results from the times of day in a recording.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// The dates of the events, by their corrected times.
    pub(super) wall: Option<WallClock>,
    /// The corrections, for display.
    pub(super) printed: Vec<ClockCorrection>,
    /// The correction of each stream.
    pub(super) corrections: Vec<Option<Correction>>,
    /// Comparison of the clock with the time of day, if there are at least two moments.
    pub(super) check: Option<ClockCheck>,
}

impl Clocks {
    /// Compares the clocks of streams, each with its kind, its processor and its moments.
    pub(super) fn compare(streams: &[(StreamKind, u16, Moments)]) -> Self {
        let mut clocks = Self {
            corrections: streams.iter().map(|_| None).collect(),
            ..Self::default()
        };
        let reference = streams
            .iter()
            .filter(|(kind, _, moments)| *kind == StreamKind::Cpu && !moments.0.is_empty())
            .min_by_key(|(_, number, _)| *number);
        let Some((_, reference, theirs)) = reference else {
            // The threads of a process share one clock.
            let all = streams.iter().flat_map(|(.., moments)| moments.moments());
            clocks.wall = WallClock::new(all);
            let moments = streams.iter().map(|(.., moments)| moments);
            clocks.check = moments.filter_map(Moments::check).next();
            return clocks;
        };
        clocks.wall = WallClock::new(theirs.moments());
        clocks.check = theirs.check();
        let theirs = theirs.last_run();
        for ((kind, number, moments), correction) in streams.iter().zip(&mut clocks.corrections) {
            let own = moments.last_run();
            if *kind != StreamKind::Cpu || number == reference || !own.meets(&theirs) {
                continue;
            }
            let points = own.0.iter().filter_map(|recorded| {
                let Moment { time, unix_ns } = recorded.moment;
                Some((time.0, theirs.time(unix_ns)?))
            });
            let points: Vec<_> = points.collect();
            let added = |point: Option<&(i64, i64)>| {
                point.map_or(0, |(own, theirs)| theirs.saturating_sub(*own))
            };
            let uncertainty = own.uncertainty().saturating_add(theirs.uncertainty());
            let differs = |point: &(i64, i64)| added(Some(point)).unsigned_abs() > uncertainty;
            if !points.iter().any(differs) {
                continue;
            }
            clocks.printed.push(ClockCorrection {
                cpu: Cpu((*number).into()),
                reference: Cpu((*reference).into()),
                moments: points.len() as u64,
                first_ns: added(points.first()),
                last_ns: added(points.last()),
                uncertainty_ns: uncertainty,
            });
            *correction = Some(Correction(Line(points)));
        }
        clocks
    }

    /// Copies the correction of its leader to each stream without moments that follows another stream.
    pub(super) fn follow(&mut self, leaders: impl Iterator<Item = Option<usize>>) {
        for (index, leader) in leaders.enumerate() {
            let correction = leader.and_then(|leader| self.corrections.get(leader)?.clone());
            if let Some(own) = self.corrections.get_mut(index).filter(|own| own.is_none()) {
                *own = correction;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// Moments of a processor at these wall-clock seconds, on the processor's own clock.
    fn moments(seconds: impl IntoIterator<Item = i64>, own: impl Fn(i64) -> i64) -> Moments {
        let recorded = seconds.into_iter().map(|second| Recorded {
            moment: Moment {
                time: Time(own(second)),
                unix_ns: (1_700_000_000 + second) * S,
            },
            uncertainty: 0,
        });
        Moments(recorded.collect())
    }

    fn compare(one: Moments, other: Moments) -> Clocks {
        Clocks::compare(&[
            (StreamKind::Cpu, 0, one),
            (StreamKind::Cpu, 1, other),
            (StreamKind::Metadata, 0xFFFF, Moments::default()),
        ])
    }

    #[test]
    fn a_clock_that_is_ahead_and_drifts_is_corrected() {
        // Two seconds ahead, and 50 ppm fast.
        let fast = |second: i64| second * S + 2 * S + second * 50_000;
        let clocks = compare(moments(0..10, |second| second * S), moments(0..10, fast));
        let correction = clocks.corrections[1].as_ref().unwrap();
        for second in [0, 4, 9, 100] {
            assert_eq!(correction.apply(Time(fast(second))), Time(second * S));
        }
        let half = Time(fast(4) + 500_025_000);
        assert_eq!(correction.apply(half), Time(4 * S + S / 2));
        assert_eq!(clocks.corrections[0], None);
        assert_eq!(clocks.corrections[2], None);
        let wanted = ClockCorrection {
            cpu: Cpu(1),
            reference: Cpu(0),
            moments: 10,
            first_ns: -2 * S,
            last_ns: -2 * S - 9 * 50_000,
            uncertainty_ns: 0,
        };
        assert_eq!(clocks.printed, [wanted]);
        assert_eq!(clocks.wall.unwrap().unix_ns(Time(3 * S)), 1_700_000_003 * S);
    }

    #[test]
    fn one_clock_in_common_is_left_alone_however_it_is_read() {
        let jitter = |second: i64| second * S + (second * 7919) % 5_000;
        let other = |second: i64| second * S + (second * 104_729) % 5_000;
        let clocks = compare(moments(0..50, jitter), moments(0..50, other));
        assert_eq!(clocks.printed, []);
        // Too few moments to estimate their uncertainty: a millisecond does not count as a difference.
        let clocks = compare(
            moments([1], |second| second * S),
            moments([5], |second| second * S + 900_000),
        );
        assert_eq!(clocks.printed, []);
        let clocks = compare(
            moments([1], |second| second * S),
            moments([5], |second| second * S + 9_000_000),
        );
        assert_eq!(clocks.printed[0].first_ns, -9_000_000);
        assert_eq!(clocks.printed[0].uncertainty_ns, 2 * SUPPOSED_NS);
        let correction = clocks.corrections[1].as_ref().unwrap();
        assert_eq!(correction.apply(Time(9_000_000)), Time(0));
    }

    #[test]
    fn what_is_said_of_a_moment_counts() {
        let mut one = moments([1, 2], |second| second * S);
        let mut other = moments([1, 2], |second| second * S + 9_000_000);
        for recorded in one.0.iter_mut().chain(&mut other.0) {
            recorded.uncertainty = 5_000_000;
        }
        assert_eq!(compare(one.clone(), other.clone()).printed, []);
        for recorded in one.0.iter_mut().chain(&mut other.0) {
            recorded.uncertainty = 4_000_000;
        }
        assert_eq!(compare(one, other).printed[0].uncertainty_ns, 8_000_000);
    }

    #[test]
    fn a_time_of_day_that_was_set_is_no_drift() {
        // Both learn at second 5 that it is 2023 and not 1970.
        let set = |offset: i64| {
            let mut all = moments(0..10, |second| second * S + offset);
            for recorded in all.0.iter_mut().take(5) {
                recorded.moment.unix_ns -= 1_700_000_000 * S;
            }
            all
        };
        let clocks = compare(set(0), set(3 * S));
        assert_eq!(
            (clocks.printed[0].moments, clocks.printed[0].first_ns),
            (5, -3 * S)
        );
        let wall = clocks.wall.unwrap();
        assert_eq!(wall.unix_ns(Time(S)), S);
        assert_eq!(wall.unix_ns(Time(6 * S)), 1_700_000_006 * S);
        // One of them never learns it: their clocks cannot be compared.
        let mut never = set(3 * S);
        never.0.truncate(5);
        assert_eq!(compare(set(0), never).printed, []);
    }

    #[test]
    fn only_processors_are_compared() {
        let ahead = moments(0..5, |second| second * S + 7 * S);
        let streams = [
            (StreamKind::Thread, 0, moments(0..5, |second| second * S)),
            (StreamKind::Thread, 1, ahead.clone()),
        ];
        let clocks = Clocks::compare(&streams);
        assert_eq!((clocks.printed.len(), clocks.corrections.len()), (0, 2));
        assert!(clocks.wall.is_some());
        let alone = [
            (StreamKind::Cpu, 0, Moments::default()),
            (StreamKind::Cpu, 1, ahead),
        ];
        assert_eq!(Clocks::compare(&alone).printed, []);
        assert!(Clocks::compare(&[]).wall.is_none());
    }

    #[test]
    fn moments_are_bounded() {
        let mut all = Moments::default();
        for recorded in moments(0..100_000, |second| second).0 {
            all.push(recorded);
        }
        assert!(all.0.len() <= MOST && all.0.len() > MOST / 2);
        assert_eq!(all.0[0].moment.time, Time(0));
    }
}
