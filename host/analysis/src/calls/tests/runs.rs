//! Runs of calls, and the straight path, give what events one by one do.

use kymo_event::{Batch, RowKind};
use proptest::prelude::*;

use super::*;
use crate::replay::{self, Replay};

/// What an event does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Enter(u32),
    /// The function, if the exit names it.
    Exit(Option<u32>),
    Other,
}

/// The steps of events, each with the time since the one before. `runs`: those of calls are told of; `whole`: whole
/// events stand beside those of no meaning, which have to take the long way.
fn steps(acts: &[(i64, Act)], in_order: bool, runs: bool, whole: bool) -> Vec<String> {
    let info = TraceInfo {
        streams: vec![StreamInfo::default()],
        in_order,
        ..TraceInfo::default()
    };
    let place = Row::new(RowKind::Other, Time(0), StreamId(0)).at(None, Some(ThreadId(1)));
    let mut batch = Batch::default();
    let mut time = Time(0);
    let mut rest = acts;
    while let Some(((passed, act), behind)) = rest.split_first() {
        time = Time(time.0 + passed);
        rest = behind;
        let row = |kind| {
            let row = Row::new(kind, time, StreamId(0));
            row.at(None, Some(ThreadId(1)))
        };
        match *act {
            Act::Enter(_) | Act::Exit(_) if runs => {
                let mut run = batch.run(&place);
                let mut call = |act: Act, time| match act {
                    Act::Enter(function) => run.enter_from(FunctionId(function), Addr(7), time),
                    Act::Exit(function) => run.exit_of(function.map(FunctionId), time),
                    Act::Other => {}
                };
                call(*act, time);
                while let Some(((passed @ 0.., act @ (Act::Enter(_) | Act::Exit(_))), behind)) =
                    rest.split_first()
                {
                    time = Time(time.0 + passed);
                    call(*act, time);
                    rest = behind;
                }
                run.end();
            }
            Act::Enter(function) => {
                let row = row(RowKind::Enter).function(Some(FunctionId(function)));
                batch.push(row.word(Addr(7)));
            }
            Act::Exit(function) => {
                batch.push(row(RowKind::Exit).function(function.map(FunctionId)))
            }
            Act::Other if whole => {
                let row = row(RowKind::Other);
                let event = EventRef {
                    row: &row,
                    event: None,
                };
                batch.push_event(event.to_event());
            }
            Act::Other => batch.push(row(RowKind::Other)),
        }
    }
    let mut steps = Vec::new();
    let mut take = |step: Step<'_>| {
        steps.push(match step {
            Step::Event { track, event } => format!("event {track:?} {:?}", event.row.time),
            step => format!("{step:?}"),
        });
    };
    let options = replay::Options {
        repair_clock: false,
        ..replay::Options::default()
    };
    let symbols = std::sync::Arc::default();
    let mut replay = Replay::new(&info, &symbols, options);
    replay.batch(&info, &batch, &mut |_, step| take(step));
    replay.finish(&info, &mut |_, step| take(step));
    steps
}

fn acts(earliest: i64) -> impl Strategy<Value = Vec<(i64, Act)>> {
    let function = 0_u32..3;
    let act = prop_oneof![
        5 => function.clone().prop_map(Act::Enter),
        3 => function.prop_map(|function| Act::Exit(Some(function))),
        2 => Just(Act::Exit(None)),
        1 => Just(Act::Other),
    ];
    let passed = prop_oneof![6 => 0_i64..20, 1 => earliest..0];
    prop::collection::vec((passed, act), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn runs_are_what_their_events_are(acts in acts(-30)) {
        let alone = steps(&acts, false, false, true);
        prop_assert_eq!(&steps(&acts, false, false, false), &alone);
        prop_assert_eq!(&steps(&acts, false, true, false), &alone);
        prop_assert_eq!(&steps(&acts, false, true, true), &alone);
    }

    #[test]
    fn so_they_are_where_no_clock_steps_back(acts in acts(-1)) {
        let acts: Vec<_> = acts.into_iter().map(|(passed, act)| (passed.max(0), act)).collect();
        let alone = steps(&acts, false, false, true);
        prop_assert_eq!(&steps(&acts, true, true, false), &alone);
    }
}
