//! Expected content of a target's profile table, computed from the list of a run's calls.
//!
//! The table counts calls when they end, by a return or a longjmp. `kymo report` also counts calls that were open at
//! the end and those whose beginning was not recorded, and averages only calls that returned. Both have the same
//! figures for functions that have only ordinary calls. For other functions this module computes the figures of the
//! target's table.

use std::collections::BTreeMap;

use serde_json::Value;

/// A function's figures in a table, durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub count: u64,
    /// The total time of its calls; that of a call within another one of the same function is contained in the outer
    /// one's.
    pub total: u64,
    pub self_time: u64,
    pub min: u64,
    pub max: u64,
}

/// A call in the list of calls.
struct Call {
    begin: u64,
    end: u64,
    depth: u64,
    duration: u64,
    self_time: u64,
    ended: bool,
}

/// The figures of all functions with an ended call, by their address, from `kymo calls --format json`.
pub fn of(calls: &[Value]) -> BTreeMap<u64, Figures> {
    let mut by_function: BTreeMap<(u64, Option<u64>), Vec<Call>> = BTreeMap::new();
    for call in calls {
        let number = |name: &str| call[name].as_u64();
        let (Some(address), Some(begin)) = (number("address"), number("begin_ns")) else {
            continue;
        };
        // Calls in an interrupt between two threads belong to neither.
        by_function
            .entry((address, number("thread")))
            .or_default()
            .push(Call {
                begin,
                end: number("end_ns").unwrap(),
                depth: number("depth").unwrap(),
                duration: number("duration_ns").unwrap(),
                self_time: number("self_ns").unwrap(),
                ended: matches!(call["ended"].as_str(), Some("returned" | "longjmp")),
            });
    }
    let mut figures: BTreeMap<u64, Figures> = BTreeMap::new();
    for ((address, _), mut calls) in by_function {
        calls.sort_by_key(|call| (call.begin, call.depth));
        // The calls of this function and thread that contain the current one.
        let mut around: Vec<&Call> = Vec::new();
        for call in &calls {
            while around
                .last()
                .is_some_and(|outer| outer.depth >= call.depth || outer.end < call.end)
            {
                around.pop();
            }
            if call.ended {
                let row = figures.entry(address).or_insert(Figures {
                    min: u64::MAX,
                    ..Figures::default()
                });
                row.count += 1;
                row.self_time += call.self_time;
                row.min = row.min.min(call.duration);
                row.max = row.max.max(call.duration);
                if around.is_empty() {
                    row.total += call.duration;
                }
            }
            around.push(call);
        }
    }
    figures
}
