//! Rows of the table: totals with names.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use kymo_analysis::call_tree::{Edge, View};
use kymo_analysis::calls::Callee;
use kymo_analysis::profile::{Bounds, Row};
use kymo_analysis::replay::Replay;
use kymo_analysis::schedule::{RunTime, Schedule};
use kymo_analysis::statistics::Measure;
use kymo_analysis::titles;
use kymo_event::{Duration, Filter, InterruptId, ThreadId, TraceInfo};
use kymo_symbols::Symbols;

use super::by::{By, Key, Within, processor};
use super::entry::{Child, Entry, Place, Relations, Run, describe, object};
use super::replays::TableReplay;
use crate::names::Names;

/// Builds the rows of a table.
pub struct Rows<'r> {
    pub by: &'r [By],
    pub names: &'r Names<'r>,
    pub symbols: &'r Symbols,
    pub info: &'r TraceInfo,
}

impl Rows<'_> {
    /// The rows from calls.
    pub fn of_calls(
        &self,
        table: &TableReplay<'_>,
        bounds: &Bounds,
        measure: Measure,
    ) -> Vec<Entry> {
        let compensation = table.charges.as_ref().and_then(Replay::compensation);
        let row = |(callee, row): (Callee, Row)| {
            // The duration of a call is unknown if it began before the recording, or its end is not recorded.
            let whole = row.without_time() == 0;
            let mut entry = Entry {
                count_max: bounds.count(&row),
                total_max: bounds.total(&row).filter(|_| whole),
                self_max: bounds.self_time(&row).filter(|_| whole),
                ..self.named(table, callee, row)
            };
            if let Some(statistics) = &table.details.statistics
                && let Some(statistic) = statistics.of(callee)
            {
                entry.measure(statistic, measure, bounds.uncertain.is_some());
            }
            if let Some(compensation) = compensation {
                entry.compensate(compensation, callee);
            }
            entry
        };
        let mut entries: Vec<Entry> = table.shown.profile.rows().map(row).collect();
        if let Some(tree) = &table.details.tree {
            let name = |callee| {
                let entry = self.named(table, callee, Row::default());
                entry.labels.last().map(|(_, label)| Rc::clone(label))
            };
            relate(&mut entries, &View::new(tree).edges(), |callee| {
                name(callee).unwrap_or_default()
            });
        }
        if let Some(sites) = &table.details.sites {
            let mut numbers: HashMap<Callee, u64> = HashMap::new();
            for (callee, _) in sites {
                *numbers.entry(*callee).or_default() += 1;
            }
            for entry in &mut entries {
                entry.call_sites = Some(numbers.get(&entry.callee).copied().unwrap_or_default());
            }
        }
        entries
    }

    /// A row with its name and properties.
    fn named(&self, table: &TableReplay<'_>, callee: Callee, row: Row) -> Entry {
        let Some(grouping) = &table.grouping else {
            return self.of_function(callee, row);
        };
        let key = grouping.groups.key(callee).unwrap_or_default();
        let mut entry = match key.callee {
            Some(function) => self.of_function(function, row),
            None => Entry::new(callee, Place::Unknown, Vec::new(), row),
        };
        entry.callee = callee;
        entry.key = key;
        if let Some(Within::Thread(thread)) = key.thread {
            entry.thread = Some(self.number(thread));
        }
        // The name of a row is its last label.
        entry.labels.retain(|(by, _)| !self.by.contains(by));
        let labels = grouping.keys.labels(&key, self.names, self.info);
        entry.labels.extend(labels);
        entry
    }

    fn of_function(&self, callee: Callee, row: Row) -> Entry {
        let identities = &self.info.identities;
        let (place, name, location) = describe(callee, self.names, self.symbols, identities);
        let mut labels = Vec::new();
        if let Some(location) = &location {
            labels.push((By::File, location.file.as_str().into()));
            labels.push((By::Line, location.to_string().into()));
        }
        let space = match callee {
            Callee::Function(id) => identities.function(id).map(|it| it.space),
            _ => None,
        };
        labels.extend(space.map(|it| (By::Space, titles::space(self.info, it).into())));
        labels.push((By::Function, name));
        Entry {
            location,
            object: object(callee, identities),
            ..Entry::new(callee, place, labels, row)
        }
    }

    /// Adds the run times of the selected threads, interrupts or processors, including those without calls.
    pub fn add_runs(&self, entries: &mut Vec<Entry>, schedule: &Schedule, chosen: &Filter) {
        let identities = &self.info.identities;
        match self.by {
            [By::Thread] if schedule.has_switches() => {
                let numbered = (0..).zip(identities.threads());
                for (id, thread) in numbered {
                    let Some(time) = schedule.thread(ThreadId(id)) else {
                        continue;
                    };
                    if !chosen.wants_thread_id(ThreadId(id), identities) {
                        continue;
                    }
                    let key = Key {
                        thread: Some(Within::Thread(ThreadId(id))),
                        ..Key::default()
                    };
                    let title = || titles::thread(self.info, ThreadId(id));
                    let entry = self.row(entries, key, title);
                    let number = self.number(ThreadId(id));
                    entry.thread = Some(number.clone());
                    let run = entry.run_mut();
                    run.time = *time;
                    run.number = Some(number);
                    run.at_least = schedule.unknown() > Duration(0);
                    let span = schedule.span(thread.space);
                    run.span = (!identities.is_idle(ThreadId(id))).then_some(span);
                    (run.priority, run.stack) = (thread.priority, thread.stack);
                }
                let key = Key {
                    thread: Some(Within::Interrupts),
                    ..Key::default()
                };
                let all = self.interrupts(schedule).map(|(_, time)| time);
                let all = all.fold(RunTime::default(), |sum, time| sum.with(time));
                if (all.count > 0 || all.run > Duration(0)) && !chosen.chooses_threads() {
                    let title = || "(interrupts)".to_owned();
                    let run = self.row(entries, key, title).run_mut();
                    run.time = all;
                    run.at_least = schedule.gaps() > 0;
                    let known =
                        |(id, _): (InterruptId, _)| identities.interrupts().get(id.0 as usize);
                    let machines = self.interrupts(schedule).filter_map(known);
                    let machines: BTreeSet<_> = machines.map(|it| it.space).collect();
                    let spans = machines.into_iter().map(|it| schedule.span(it));
                    run.span = Some(spans.fold(Duration(0), |sum, span| sum + span));
                }
            }
            [By::Irq] => {
                entries.retain(|entry| entry.key.irq != Some(None));
                for (id, time) in self.interrupts(schedule) {
                    let key = Key {
                        irq: Some(Some(id)),
                        ..Key::default()
                    };
                    let name = || {
                        let name = self.names.callee(identities, Callee::Interrupt(id));
                        name.to_string()
                    };
                    let run = self.row(entries, key, name).run_mut();
                    run.time = *time;
                    run.number = Some(identities.irq(id).to_string());
                    // Its handlers may have run among the lost events.
                    run.at_least = schedule.gaps() > 0;
                    let interrupt = identities.interrupts().get(id.0 as usize);
                    let machine = interrupt.map(|interrupt| interrupt.space);
                    run.span = Some(schedule.span(machine.unwrap_or_default()));
                }
            }
            [By::Cpu] => {
                for (machine, cpu, time) in schedule.cpus() {
                    let key = Key {
                        cpu: Some((machine, cpu)),
                        ..Key::default()
                    };
                    let name = || processor(self.info, (machine, cpu));
                    let run = self.row(entries, key, name).run_mut();
                    run.time = *time;
                    run.at_least = time.unknown > Duration(0);
                    let known = time.idle.map(|idle| time.run + idle + time.switching);
                    run.span = known.map(|known| known + time.unknown);
                }
            }
            _ => {}
        }
        // Exits without a begin belong to no known thread or processor. The run times of interrupts in selected
        // threads are unknown.
        let all = !chosen.chooses_threads();
        let took_time = |entry: &Entry| {
            let row = entry.row;
            all && row.ends() > row.without_time() && entry.row.self_max > Duration(0)
        };
        entries.retain(|entry| entry.run.is_some() || took_time(entry));
    }

    /// A thread's number on its target.
    fn number(&self, thread: ThreadId) -> String {
        let tid = self.info.identities.tid(thread);
        match self.info.numbered_threads {
            true => tid.0.to_string(),
            false => tid.to_string(),
        }
    }

    fn interrupts<'s>(
        &self,
        schedule: &'s Schedule,
    ) -> impl Iterator<Item = (InterruptId, &'s RunTime)> {
        let number = u32::try_from(self.info.identities.interrupts().len()).unwrap_or(u32::MAX);
        let known = (0..number).map(InterruptId);
        known.filter_map(|id| Some((id, schedule.interrupt(id)?)))
    }

    /// The row of a key, created if missing.
    fn row<'e>(
        &self,
        entries: &'e mut Vec<Entry>,
        key: Key,
        name: impl FnOnce() -> String,
    ) -> &'e mut Entry {
        let place = entries.iter().position(|entry| entry.key == key);
        let place = place.unwrap_or_else(|| {
            let by = self.by.first().copied().unwrap_or_default();
            let labels = vec![(by, name().into())];
            let mut entry = Entry::new(Callee::Unknown, Place::Unknown, labels, Row::default());
            entry.key = key;
            (entry.count_max, entry.total_max) = (Some(0), Some(Duration(0)));
            entry.self_max = Some(Duration(0));
            entry.run = Some(Run::default());
            entries.push(entry);
            entries.len() - 1
        });
        &mut entries[place]
    }
}

/// Fills in callers and callees.
fn relate(entries: &mut [Entry], edges: &[Edge], name: impl Fn(Callee) -> Rc<str>) {
    let mut relations: HashMap<Callee, Relations> = HashMap::new();
    for edge in edges {
        relations.entry(edge.callee).or_default().callers += 1;
        let caller = relations.entry(edge.caller).or_default();
        caller.callees += 1;
        if caller
            .child
            .as_ref()
            .is_none_or(|child| child.time < edge.total)
        {
            caller.child = Some(Child {
                name: name(edge.callee),
                time: edge.total,
                count: edge.count,
            });
        }
    }
    for entry in entries {
        entry.relations = relations.remove(&entry.callee).unwrap_or_default();
    }
}
