//! What events mean that are no functions.

use kymo_event::{Batch, Cpu, EventKind, Field, InterruptKind, Irq, RowKind, Wanted};
use kymo_ftrace::text::{self, Task};

use super::{At, TextSource};
use crate::formats::ftrace::meaning::SOFTIRQS;
use crate::formats::ftrace::output::Out;

impl TextSource {
    /// An event of any other name.
    pub(super) fn other(&mut self, name: &str, body: &str, at: &At<'_>, batch: &mut Batch) {
        let time = self.now(at);
        let fields = text::fields(body);
        let number = |name: &str| {
            let (_, value) = fields.iter().find(|(field, _)| *field == name)?;
            value.split_whitespace().next()?.parse::<i32>().ok()
        };
        let text_of = |name: &str| Some(fields.iter().find(|(field, _)| *field == name)?.1);
        let row = |kind| at.row(kind, time);
        let show = |_: &mut Self| shown(body, &fields);
        match name {
            "sched_switch" => {
                if let (Some(previous), Some(next)) = (number("prev_pid"), number("next_pid")) {
                    let tasks = [(previous, "prev_comm"), (next, "next_comm")];
                    let threads = tasks.map(|(pid, comm)| {
                        let comm = text_of(comm).unwrap_or_default();
                        self.met(Task { comm, pid })
                    });
                    let cpu = at.cpu.map(Cpu);
                    let [left, entered] = threads;
                    let mut out = row(RowKind::SwitchedOut).at(cpu, left);
                    if left.is_some() {
                        out.record = entered.is_none();
                        match out.record {
                            true => self.put(out, at, "sched_switch", batch, show),
                            false => self.output.put(
                                Out {
                                    row: out,
                                    pid: None,
                                    event: None,
                                },
                                batch,
                            ),
                        }
                    }
                    match entered {
                        Some(_) => {
                            let into = row(RowKind::SwitchedIn).at(cpu, entered);
                            self.put(into, at, "sched_switch", batch, show);
                        }
                        None if left.is_none() => {
                            self.put(row(RowKind::Other), at, name, batch, show);
                        }
                        None => {}
                    }
                    if let Some(cpu) = at.cpu.filter(|_| !self.output.is_sorted()) {
                        self.output.switched(cpu, next);
                    }
                    return;
                }
            }
            "sched_wakeup" | "sched_wakeup_new" => {
                let pid = number("pid");
                let comm = text_of("comm").unwrap_or_default();
                if let Some(thread) = pid.and_then(|pid| self.met(Task { comm, pid })) {
                    let event = match self.wanted {
                        Wanted::Meaning => (String::new(), Vec::new()),
                        _ => (name.to_owned(), shown(body, &fields)),
                    };
                    let out = Out {
                        row: row(RowKind::Rare),
                        pid: at.pid,
                        event: Some((EventKind::Ready { thread }, event.0.into(), event.1)),
                    };
                    return self.output.put(out, batch);
                }
            }
            "irq_handler_entry" | "irq_handler_exit" | "softirq_entry" | "softirq_exit" => {
                let (kind, field) = match name.starts_with("irq") {
                    true => (InterruptKind::Hard, "irq"),
                    false => (InterruptKind::Soft, "vec"),
                };
                if let Some(irq) = number(field).and_then(|irq| u32::try_from(irq).ok()) {
                    let space = self.output.space;
                    let id = self.info.identities.interrupt(space, kind, Irq(irq));
                    let called = match kind {
                        InterruptKind::Soft => SOFTIRQS
                            .get(irq as usize)
                            .map(|name| format!("softirq {name}")),
                        _ => text_of("name").map(str::to_owned),
                    };
                    if let Some(called) = called
                        && self.info.identities.interrupt_name(id).is_none()
                    {
                        self.info.identities.name_interrupt(id, &called);
                    }
                    let kind = match name.ends_with("entry") {
                        true => RowKind::IsrEnter,
                        false => RowKind::IsrExit,
                    };
                    return self.put(row(kind).interrupt(Some(id)), at, name, batch, show);
                }
            }
            _ => {
                let exit = name.strip_prefix("sys_exit_");
                let entry = name
                    .strip_prefix("sys_enter_")
                    .or(name.strip_prefix("sys_"));
                let call = exit
                    .or(entry)
                    .filter(|_| !self.has_graph && !matches!(name, "sys_enter" | "sys_exit"));
                if let Some(call) = call {
                    let function = self.function(call);
                    let kind = if exit.is_some() {
                        RowKind::Exit
                    } else {
                        RowKind::Enter
                    };
                    let mut row = row(kind).function(Some(function));
                    row.named = exit.is_some();
                    return self.put(row, at, name, batch, show);
                }
            }
        }
        self.put(row(RowKind::Other), at, name, batch, show);
    }
}

/// The fields of an event's text; all of it if it has none.
fn shown(body: &str, fields: &[(&str, &str)]) -> Vec<Field> {
    if fields.is_empty() && !body.is_empty() {
        return vec![Field::new("text", body)];
    }
    let number = |value: &str| value.parse::<i64>().ok();
    fields
        .iter()
        .map(|(name, value)| match number(value) {
            Some(value) => Field::new((*name).to_owned(), value),
            None => Field::new((*name).to_owned(), *value),
        })
        .collect()
}
