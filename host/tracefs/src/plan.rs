//! Translates a request to tracefs settings: tracer, buffer and filters.

use std::fmt;

use crate::state::Restore;
use crate::{EventName, Result, Tracefs, TracefsError};

/// The tracer that records entries and exits of functions.
const GRAPH: &str = "function_graph";

/// A tracer of some kernels that records calls of at least a duration.
const DURATION: &str = "function_duration";

/// No tracer.
const NOP: &str = "nop";

/// Requested number of remembered task names. The kernel's default is 128.
const NAMES: u32 = 16_384;

/// Event system of [`NAMING`].
pub(crate) const NAMING_SYSTEM: &str = "task";

/// Events with the names of new tasks, and of tasks that execute another file. The kernel's own list of names
/// (`saved_cmdlines`) has a task's name as of its last switch, which may be before either.
const NAMING: [&str; 2] = ["task_newtask", "task_rename"];

/// Request for a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The tracer. Defaults to a function tracer, unless only events are requested.
    pub tracer: Option<String>,
    /// Minimum duration of recorded calls in microseconds.
    pub threshold_us: Option<u64>,
    /// Function whose entry stops recording.
    pub stop_at: Option<String>,
    /// Functions to record, as patterns of the kernel (`vfs_*`); empty for all.
    pub functions: Vec<String>,
    /// Functions not to record, in the same form.
    pub hidden: Vec<String>,
    /// Number of levels of calls to record; `None` for all.
    pub depth: Option<u32>,
    /// Events to record.
    pub events: Vec<EventName>,
    /// Threads to record, with the threads and processes that they start; empty for all.
    pub tasks: Vec<u32>,
    /// The size of each CPU's buffer in KiB.
    pub buffer_kb: u64,
    /// The clock of the trace; defaults to the kernel's choice.
    pub clock: Option<String>,
}

impl Request {
    /// Whether functions are recorded, unless the tracer excludes that.
    pub(crate) fn wants_functions(&self) -> bool {
        let chooses_calls = !self.functions.is_empty() || !self.hidden.is_empty();
        let limits_calls = self.threshold_us.is_some() || self.depth.is_some();
        chooses_calls || limits_calls || self.events.is_empty()
    }

    /// The tracer for this request, out of those available in a buffer; `None` if only events are requested.
    ///
    /// # Errors
    /// When the kernel does not have the tracer.
    pub(crate) fn tracer(&self, available: &str) -> Result<Option<String>> {
        let has = |name: &str| available.split_whitespace().any(|it| it == name);
        let tracer = match &self.tracer {
            Some(name) if name == NOP => return Ok(None),
            Some(name) => name,
            None if !self.wants_functions() => return Ok(None),
            None if self.threshold_us.is_some() && has(DURATION) => DURATION,
            None => GRAPH,
        };
        match has(tracer) {
            true => Ok(Some(tracer.to_owned())),
            false => Err(TracefsError::NoTracer {
                tracer: tracer.to_owned(),
                available: available.trim().to_owned(),
            }),
        }
    }
}

/// The kernel buffer of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An instance of this name that was created for the recording. Its settings are separate, so other tracing is not
    /// disturbed.
    Instance(String),
    /// The kernel's first buffer, which always exists, and which is the only one that some tracers can use.
    Top,
}

impl Place {
    /// The path of one of its files.
    pub(crate) fn file(&self, name: &str) -> String {
        match self {
            Self::Instance(instance) => format!("instances/{instance}/{name}"),
            Self::Top => name.to_owned(),
        }
    }

    /// Chooses an instance if the tracer works in one. Also returns the number of events in the top buffer, which will
    /// be lost.
    pub(crate) fn choose(
        tracefs: &Tracefs,
        tracer: Option<&str>,
        restore: &Restore,
    ) -> Result<(Self, u64)> {
        if tracefs.has("instances") {
            let name = format!("kymo-{}", std::process::id());
            restore.make_instance(&name)?;
            let place = Self::Instance(name.clone());
            // The kernel has filled the directory.
            if let Ok(available) = tracefs.read(&place.file("available_tracers"))
                && tracer.is_none_or(|tracer| available.split_whitespace().any(|it| it == tracer))
            {
                return Ok((place, 0));
            }
            restore.remove_instance(&name)?;
        }
        let current = tracefs.read("current_tracer")?;
        let by = match current.trim() {
            NOP if matches!(
                tracefs.read("events/enable").as_deref().map(str::trim),
                Ok("1" | "X")
            ) =>
            {
                "events are on".to_owned()
            }
            NOP => return Ok((Self::Top, entries(tracefs, &Self::Top))),
            tracer => format!("tracer {tracer}"),
        };
        Err(TracefsError::InUse {
            tracer: tracer.unwrap_or("recording").to_owned(),
            by,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(name) => write!(f, "instance {name}"),
            Self::Top => f.write_str("the top buffer"),
        }
    }
}

/// Number of events in a buffer.
pub(crate) fn entries(tracefs: &Tracefs, place: &Place) -> u64 {
    let of_cpu = |cpu: &u32| stat(tracefs, place, *cpu, "entries:");
    tracefs.cpus().iter().filter_map(of_cpu).sum()
}

/// A count from `per_cpu/cpuN/stats`.
pub(crate) fn stat(tracefs: &Tracefs, place: &Place, cpu: u32, name: &str) -> Option<u64> {
    let text = tracefs
        .read(&place.file(&format!("per_cpu/cpu{cpu}/stats")))
        .ok()?;
    number(&text, name)
}

/// The number after a name at the beginning of a line.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// Applies all settings. The buffer does not record yet.
///
/// # Errors
/// When the kernel lacks a feature or rejects a value. `restore` then undoes the changes made before.
pub(crate) fn apply(
    tracefs: &Tracefs,
    request: &Request,
    tracer: Option<&str>,
    place: &Place,
    restore: &Restore,
) -> Result<()> {
    let set = |name: &str, value: &str| match place {
        // Its settings disappear together with the instance.
        Place::Instance(_) => tracefs.write(&place.file(name), value),
        Place::Top => restore.set(name, value),
    };
    let needs = |name: &str, what: &'static str| match tracefs.has(&place.file(name)) {
        true => Ok(()),
        false => Err(TracefsError::Missing {
            what,
            path: tracefs.path(&place.file(name)),
        }),
    };
    set("tracing_on", "0")?;
    if let Some(clock) = &request.clock {
        set("trace_clock", clock)?;
    }
    set("buffer_size_kb", &request.buffer_kb.to_string())?;
    if tracefs.has("saved_cmdlines_size") {
        let kept = tracefs.read("saved_cmdlines_size")?;
        if kept.trim().parse().is_ok_and(|kept: u32| kept < NAMES) {
            restore.set("saved_cmdlines_size", &NAMES.to_string())?;
        }
    }
    let names = naming(tracefs, request, place);
    for (is_used, option, file, without) in [
        (
            tracer.is_some(),
            "options/function-fork",
            "set_ftrace_pid",
            "set_ftrace_notrace_pid",
        ),
        (
            !request.events.is_empty() || !names.is_empty(),
            "options/event-fork",
            "set_event_pid",
            "set_event_notrace_pid",
        ),
    ] {
        if !is_used {
            continue;
        }
        if !request.tasks.is_empty() {
            needs(option, "follow the processes that a process starts")?;
            needs(file, "record some threads alone")?;
            let tasks: Vec<String> = request.tasks.iter().map(u32::to_string).collect();
            set(option, "1")?;
            set(file, &tasks.join(" "))?;
        } else if tracefs.has(&place.file(without)) && tracefs.has(&place.file(option)) {
            // Excludes the recorder from the recording: this process and the threads that it starts.
            set(option, "1")?;
            set(without, &std::process::id().to_string())?;
        }
    }
    if let Some(tracer) = tracer {
        functions(tracefs, request, tracer, place, restore)?;
        set("current_tracer", tracer)?;
    }
    if let Some(function) = &request.stop_at {
        stop_at(tracefs, function, place, restore)?;
    }
    for enable in &names {
        set(enable, "1")?;
    }
    for name in &request.events {
        let events = name.of(tracefs);
        if events.is_empty() {
            return Err(TracefsError::NoEvent {
                name: name.to_string(),
            });
        }
        for (system, event) in events {
            set(&format!("events/{system}/{event}/enable"), "1")?;
        }
    }
    if *place == Place::Top {
        // Truncating the file clears the buffer.
        tracefs.write("trace", "")?;
    }
    Ok(())
}

/// The switches of the events that name tasks: none if the kernel lacks the events, or can't restrict them to the
/// requested tasks.
fn naming(tracefs: &Tracefs, request: &Request, place: &Place) -> Vec<String> {
    let filters = ["options/event-fork", "set_event_pid"];
    let can_filter = filters.iter().all(|name| tracefs.has(&place.file(name)));
    if !request.tasks.is_empty() && !can_filter {
        return Vec::new();
    }
    let enables = NAMING.map(|name| format!("events/{NAMING_SYSTEM}/{name}/enable"));
    let enables = enables.into_iter().filter(|name| tracefs.has(name));
    enables.collect()
}

/// Sets threshold and function filter, which the tracer reads when it starts.
fn functions(
    tracefs: &Tracefs,
    request: &Request,
    tracer: &str,
    place: &Place,
    restore: &Restore,
) -> Result<()> {
    let threshold = "tracing_thresh";
    match request.threshold_us {
        Some(microseconds) => {
            if !tracefs.has(threshold) {
                return Err(TracefsError::Missing {
                    what: "leave out short calls",
                    path: tracefs.path(threshold),
                });
            }
            // All instances share it.
            restore.set(threshold, &microseconds.to_string())?;
        }
        None if tracer == GRAPH && tracefs.has(threshold) => restore.set(threshold, "0")?,
        None => {}
    }
    let file = place.file("set_ftrace_filter");
    for (number, name) in request.functions.iter().enumerate() {
        if !tracefs.has(&file) {
            return Err(TracefsError::Missing {
                what: "record some functions alone",
                path: tracefs.path(&file),
            });
        }
        let done = match (number, place) {
            (0, Place::Top) => restore.set(&file, name),
            (0, Place::Instance(_)) => tracefs.write(&file, name),
            _ => tracefs.append(&file, name),
        };
        done.map_err(|error| unknown(error, name))?;
    }
    hide(tracefs, request, place, restore)
}

/// Sets the excluded functions, besides those that are excluded already, and the number of levels.
fn hide(tracefs: &Tracefs, request: &Request, place: &Place, restore: &Restore) -> Result<()> {
    let missing = |what, file: &str| TracefsError::Missing {
        what,
        path: tracefs.path(file),
    };
    let file = place.file("set_ftrace_notrace");
    for (number, name) in request.hidden.iter().enumerate() {
        if !tracefs.has(&file) {
            return Err(missing("leave functions out", &file));
        }
        let done = match (number, place) {
            (0, Place::Top) => {
                // Registers the earlier list to be restored, and keeps it.
                let listed = tracefs.read(&file)?;
                let kept = listed.lines().filter(|line| !line.starts_with('#'));
                let kept = kept.filter_map(|line| line.split_whitespace().next());
                let all: Vec<&str> = kept.chain([name.as_str()]).collect();
                restore.set(&file, &all.join(" "))
            }
            (0, Place::Instance(_)) => tracefs.write(&file, name),
            _ => tracefs.append(&file, name),
        };
        done.map_err(|error| unknown(error, name))?;
    }
    if let Some(depth) = request.depth {
        // All instances share it.
        let file = "max_graph_depth";
        if !tracefs.has(file) {
            return Err(missing("record some levels of calls alone", file));
        }
        restore.set(file, &depth.to_string())?;
    }
    Ok(())
}

/// Converts the kernel's rejection of a function that does not exist, or can't be traced.
fn unknown(error: TracefsError, name: &str) -> TracefsError {
    let TracefsError::Refused { .. } = error else {
        return error;
    };
    let symbols = std::fs::read("/proc/kallsyms").unwrap_or_default();
    let name = name.to_owned();
    match has_symbol(&symbols, &name) {
        true => TracefsError::NotTraceable { name },
        false => TracefsError::NoFunction { name },
    }
}

/// Whether a list of symbols (`ADDRESS TYPE NAME [MODULE]` per line) has a function of that name.
pub(crate) fn has_symbol(kallsyms: &[u8], name: &str) -> bool {
    kallsyms.split(|byte| *byte == b'\n').any(|line| {
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\t'));
        let kind = words.nth(1);
        matches!(kind, Some(b"t" | b"T" | b"w" | b"W")) && words.next() == Some(name.as_bytes())
    })
}

/// Functions that are excluded from the top buffer by earlier settings, which are kept; an instance has its own lists,
/// which are empty.
pub(crate) fn excluded(tracefs: &Tracefs, place: &Place) -> Vec<String> {
    if *place != Place::Top {
        return Vec::new();
    }
    let lists = ["set_ftrace_notrace", "set_graph_notrace"].map(|name| tracefs.read(name));
    let lines = lists.iter().flatten().flat_map(|text| text.lines());
    let names = lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(str::to_owned).collect()
}

/// Stops recording at the entry of a function.
fn stop_at(tracefs: &Tracefs, function: &str, place: &Place, restore: &Restore) -> Result<()> {
    // Setting of kernels with the tracer function_duration.
    let own = "trace_stop_fn";
    let filter = place.file("set_ftrace_filter");
    if !tracefs.has(&filter) && tracefs.has(own) {
        return restore
            .set(own, function)
            .map_err(|error| unknown(error, function));
    }
    if !tracefs.has(&filter) {
        return Err(TracefsError::Missing {
            what: "stop at a function",
            path: tracefs.path(&filter),
        });
    }
    let command = format!("{function}:traceoff");
    restore
        .command(&filter, &command, &format!("!{command}"))
        .map_err(|error| unknown(error, function))
}
