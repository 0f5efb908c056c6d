//! Parts of a hardware trace that are missing from a result: bytes in no packet, and code that is missing or does not
//! match.
//!
//! Messages and exit codes are the same as in subcommands that read the trace as events.

use std::process::ExitCode;

use kymo_coresight::doubts::Doubts;
use kymo_coresight::remarks::{self, Remark};

use super::Opened;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::damaged;

/// Findings to report after the result.
#[derive(Debug)]
pub struct Findings {
    /// The name of the input in messages.
    name: String,
    /// Damage of the input and its buffers.
    damage: Vec<Remark>,
    /// Damage within streams, with the index of the buffer.
    of_streams: Vec<(usize, Remark)>,
}

impl Findings {
    /// Reports parts of an input that are skipped, and collects its damage.
    pub fn of(opened: &Opened, context: &Context) -> Self {
        let buffers = remarks::of_buffers(&opened.buffers);
        let all = opened.remarks.iter().cloned().chain(buffers);
        let (damage, odd): (Vec<_>, Vec<_>) = all.partition(|remark| remark.is_damage);
        for remark in odd {
            let text = format!("{}: {remark}", opened.name);
            match remark.is_note {
                true => context.note(text),
                false => context.warn(text),
            }
        }
        Findings {
            name: opened.name.clone(),
            damage,
            of_streams: Vec::new(),
        }
    }

    /// Reports parts of a buffer's source that were not decoded, and collects its damage. Offsets are those of the
    /// buffer.
    pub fn add(
        &mut self,
        doubts: &Doubts,
        opened: &Opened,
        (buffer, source): (usize, usize),
        context: &Context,
    ) {
        let Some(of) = opened.buffers.get(buffer) else {
            return;
        };
        for remark in remarks::of_doubts(doubts, of, source, &opened.missing) {
            match remark.is_damage {
                true => self.of_streams.push((buffer, remark)),
                false => context.warn(format_args!("{}: {remark}", self.name)),
            }
        }
    }

    /// The subcommand's exit status.
    ///
    /// # Errors
    /// The first damage.
    pub fn verdict(mut self) -> Result<ExitCode, Report> {
        self.of_streams
            .sort_by_key(|(buffer, remark)| (*buffer, remark.offset));
        let of_streams = self.of_streams.iter().map(|(_, remark)| remark);
        let mut all = self.damage.iter().chain(of_streams);
        match all.next() {
            None => Ok(ExitCode::SUCCESS),
            Some(first) => {
                let place = (first.stream.as_str(), first.offset);
                let more = all.count() as u64;
                Err(damaged(&self.name, place, &first.text, more))
            }
        }
    }
}
