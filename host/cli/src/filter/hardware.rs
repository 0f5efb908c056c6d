//! Options that select a part of a hardware trace.

use kymo_coresight::frames::TraceId;
use kymo_event::TraceInfo;

use super::FilterArgs;
use crate::diagnostic::Report;
use crate::hardware::part;

impl FilterArgs {
    /// Refuses options that only hardware trace supports; `what` reads something else.
    ///
    /// # Errors
    /// If such an option was given.
    pub fn refuse_hardware_options(&self, what: &str) -> Result<(), Report> {
        let given = [
            (
                !self.id.is_empty(),
                "--id",
                "--stream chooses streams by name",
            ),
            (
                !self.process.is_empty(),
                "--process",
                "--thread chooses threads",
            ),
        ];
        match given.into_iter().find(|(given, ..)| *given) {
            None => Ok(()),
            Some((_, option, instead)) => Err(Report::new(format_args!(
                "{option} is for hardware trace, which {what} is not"
            ))
            .help(format!("leave it out; {instead}"))),
        }
    }

    /// Refuses trace ids and processes that the trace does not have.
    pub(super) fn check_places(&self, info: &TraceInfo) -> Result<(), Report> {
        let ids: Vec<u8> = info.streams.iter().filter_map(|it| it.trace_id).collect();
        if ids.is_empty() && !(info.has_processes && self.id.is_empty()) {
            self.refuse_hardware_options("this trace")?;
        }
        part::check_ids(&self.id, ids.into_iter().map(TraceId))?;
        if !self.process.is_empty() && !info.has_processes {
            return Err(part::no_processes());
        }
        Ok(())
    }

    /// The options that apply to counts of instructions in hardware trace.
    ///
    /// # Errors
    /// If any other option is given.
    pub fn part_of_counts(&self, what: &str) -> Result<(part::PartArgs, part::CodeArgs), Report> {
        let others = [
            (!self.event.is_empty(), "--event"),
            (!self.drop_event.is_empty(), "--drop-event"),
            (!self.stream.is_empty(), "--stream"),
            (!self.drop_stream.is_empty(), "--drop-stream"),
            (!self.condition.is_empty(), "--where"),
        ];
        let others = others.into_iter().find(|(given, _)| *given);
        let option = others.map(|(_, option)| option);
        if let Some(option) = option.or(self.level_option()).or(self.looks_ahead()) {
            return Err(Report::new(format_args!(
                "{option} chooses events or calls, and {what} has counts"
            ))
            .help(
                "--id, --cpu, --process, --thread, --function, --address, --begin and --end choose a part of it",
            ));
        }
        let code = part::CodeArgs {
            address: self.address.clone(),
            function: self.function.clone(),
        };
        let part = part::PartArgs {
            sources: part::SourceArgs {
                id: self.id.clone(),
                buffer: Vec::new(),
                cpu: self.cpu.clone(),
            },
            process: self.process.clone(),
            thread: self.thread.clone(),
            begin: self.begin.clone(),
            end: self.end.clone(),
        };
        Ok((part, code))
    }
}
