//! The measurement where nothing else records meanwhile: on the first CPU, and in a process with one thread.

use super::Hooks;
use super::probe::{Bench, measure};
use super::tally::Undisturbed;
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::Cursor;
use crate::{Target, Writer};

/// The recorder under measurement.
struct Here<'a, T, C> {
    writer: &'a Writer<T>,
    cursor: &'a Cursor,
    gate: &'a Gate,
    hooks: &'static Hooks,
    clock: C,
}

impl<T: Target, C: Fn() -> u64> Bench for Here<'_, T, C> {
    type Target = T;
    type Tally = Undisturbed;

    fn stream(&self) -> &Stream<T> {
        self.writer.stream()
    }

    fn cursor(&self) -> &Cursor {
        self.cursor
    }

    fn hooks(&self) -> &'static Hooks {
        self.hooks
    }

    fn gate(&self) -> &Gate {
        self.gate
    }

    #[inline(never)]
    fn clock(&self) -> u64 {
        (self.clock)()
    }
}

/// Measures the recording overhead before anything is recorded, and passes the text of each
/// [fact](kymo_wire::event::MetadataType::Measured) to `report`. The profile table counts the measured calls, so it is
/// cleared afterwards.
///
/// The gate is forced open meanwhile: the caller ensures that no other context records.
pub(crate) fn measure_undisturbed<T: Target>(
    (writer, cursor): (&Writer<T>, &Cursor),
    gate: &Gate,
    hooks: &'static Hooks,
    clock: impl Fn() -> u64,
    report: impl Fn(&[u8]),
) {
    let profile = writer.profile();
    if let Some(profile) = profile {
        profile.record(clock(), true);
    }
    let here = Here {
        writer,
        cursor,
        gate,
        hooks,
        clock: &clock,
    };
    measure(here, false, report, || {});
    if let Some(profile) = profile {
        let now = clock();
        profile.record(now, false);
        profile.clear(now);
    }
}
