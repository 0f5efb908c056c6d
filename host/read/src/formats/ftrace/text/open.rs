//! Opening of a text, with the survey before its first line.

use std::collections::{HashMap, VecDeque};

use kymo_event::{Time, TimeUnit, TraceInfo, Wanted};

use super::ahead::{
    Exits, Graph, LINES_LOOKED_AT, TICKS, beginnings, graph, groups, has_cpus, has_switches,
    is_ticks, is_timed, tasks_at_first,
};
use super::input::Input;
use super::system_calls::{self, SystemCalls};
use super::{Caller, TextSource, dump, html, json};
use crate::bytes::Bytes;
use crate::formats::ftrace::marks::Marks;
use crate::formats::ftrace::numbered_calls::{Names, NumberedCalls};
use crate::formats::ftrace::output::Output;
use crate::formats::ftrace::{Beginnings, FORMAT};
use crate::peek::Peek;
use crate::{OpenError, OpenOptions};

/// Remark about a log whose dumps are empty.
const EMPTY: &str =
    "the kernel's trace was empty when it was dumped into the log: (ftrace buffer empty)";

impl TextSource {
    pub(in crate::formats::ftrace) fn new(
        peek: Peek,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let name = peek.path().display().to_string();
        let mut first_tasks = HashMap::new();
        let mut alone = Beginnings::default();
        let mut without_switches = false;
        let mut marks_missing_exits = false;
        let mut names = Names::default();
        let mut of_dump = None;
        let (input, exits_alone) = match peek.file().cloned() {
            Some(bytes) => {
                let bytes = json::text(&bytes).map_or(bytes, Bytes::from);
                let part = html::is_page(&bytes).then(|| html::part(&bytes));
                let dump = dump::find(&bytes).filter(|_| part.is_none());
                of_dump = match &dump {
                    Some(dump) if dump.is_empty => Some(EMPTY.to_owned()),
                    Some(dump) if dump.others > 0 => Some(format!(
                        "the log has {} dumps of the kernel's trace: the first one is read",
                        dump.others + 1
                    )),
                    _ => None,
                };
                let part = part.flatten().or(dump.map(|dump| dump.lines));
                let part = part.unwrap_or(0..bytes.len());
                let text = bytes.get(part.clone()).unwrap_or_default();
                let graph = graph(text);
                let exits_alone = graph == Graph::ExitsAlone;
                marks_missing_exits = graph == Graph::Whole;
                without_switches = exits_alone && !has_switches(text);
                first_tasks = tasks_at_first(text);
                alone = beginnings(text);
                names = system_calls::names(text);
                (Input::of_file(bytes, part), Some(exits_alone))
            }
            None => {
                let path = peek.path().to_owned();
                let reader = peek.into_reader().ok_or(OpenError::Empty { path })?;
                let input = Input::Pipe {
                    reader,
                    buffer: Vec::new(),
                    at: 0,
                    ended: false,
                    lines: 0,
                };
                (input, None)
            }
        };
        let mut info = TraceInfo {
            format: FORMAT.to_owned(),
            // The kernel writes the CPU by default.
            has_cpus: has_cpus(&input).unwrap_or(exits_alone.is_none()),
            numbered_threads: true,
            idle_is_no_thread: true,
            remarks: alone.remark().into_iter().chain(of_dump).collect(),
            ..TraceInfo::default()
        };
        let mut output = Output::new(
            &mut info.identities,
            "",
            HashMap::new(),
            exits_alone == Some(true),
        );
        let mut numbered_calls = NumberedCalls::default();
        numbered_calls.learn_all(&names, Caller::Thread, |name| {
            info.identities.function_named(output.space, name)
        });
        let ahead = input.ahead();
        let groups = groups(ahead.take(LINES_LOOKED_AT));
        info.has_processes = !groups.is_empty();
        output.processes.add_ahead(groups);
        if options.wanted == Wanted::Records {
            output.stay();
        } else if marks_missing_exits && is_timed(&input) {
            output.hold_text();
        }
        if without_switches {
            output.infer_no_switches();
        }
        if input
            .ahead()
            .take(LINES_LOOKED_AT)
            .find_map(|it| is_ticks(&it))
            == Some(true)
        {
            info.unit = TimeUnit::Ticks;
            info.remarks.push(TICKS.to_owned());
        }
        Ok(Self {
            info,
            name,
            input,
            output,
            wanted: options.wanted,
            functions: HashMap::new(),
            streams: HashMap::new(),
            of_threads: HashMap::new(),
            states: Vec::new(),
            stacks: HashMap::new(),
            system_calls: SystemCalls::new(),
            numbered_calls,
            first_tasks,
            latest: Time(0),
            last_place: (0, None),
            exits_alone,
            waiting: VecDeque::new(),
            exits: Exits::default(),
            without_switches,
            says_by_wall: false,
            late_calls: 0,
            says_late: false,
            marks_missing_exits,
            alone,
            marks: Marks::default(),
            has_graph: false,
            is_graph: false,
            unnamed: None,
            is_function: false,
            has_functions: false,
            losses: 0,
            is_untimed: false,
            has_times: false,
            is_cut: false,
            is_print: false,
            ended: false,
        })
    }
}
