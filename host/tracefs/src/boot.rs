//! Tracing of a boot: the kernel command line for it, and access to the buffer afterwards.
//!
//! Sources: `admin-guide/kernel-parameters.txt` (`ftrace`, `ftrace_filter`, `ftrace_notrace`, `ftrace_graph_max_depth`, `trace_buf_size`, `trace_clock`,
//! `trace_event`, `tracing_thresh`) and `trace/boottime-trace.rst` (boot configurations).

use std::path::Path;

use crate::drain::{Drain, Pages};
use crate::pages::Directory;
use crate::plan::{self, Place, Request};
use crate::recording::{Left, Recording, page_size};
use crate::state::Restore;
use crate::{Result, Tracefs, TracefsError};

/// Tracer of some kernels whose stop function can be set on the command line.
const DURATION: &str = "function_duration";

/// Parameters for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The kernel command line.
    pub command_line: String,
    /// The boot configuration, if the command line alone is not sufficient.
    pub configuration: Option<String>,
}

/// Returns the parameters with which a kernel traces its boot according to the request. Initcalls are always recorded.
pub fn parameters(request: &Request) -> Parameters {
    // The global clock from the beginning: kernels empty the buffer when they change to it later.
    let mut words = vec!["trace_clock=global".to_owned()];
    if let Some(clock) = &request.clock {
        words = vec![format!("trace_clock={clock}")];
    }
    let tracer = request.tracer.as_deref().unwrap_or("function_graph");
    let has_tracer = tracer != "nop" && (request.wants_functions() || request.tracer.is_some());
    if has_tracer {
        words.push(format!("ftrace={tracer}"));
        if let Some(microseconds) = request.threshold_us {
            words.push(format!("tracing_thresh={microseconds}"));
        }
        if !request.functions.is_empty() {
            words.push(format!("ftrace_filter={}", request.functions.join(",")));
        }
        if !request.hidden.is_empty() {
            words.push(format!("ftrace_notrace={}", request.hidden.join(",")));
        }
        if let Some(depth) = request.depth {
            words.push(format!("ftrace_graph_max_depth={depth}"));
        }
    }
    words.push(format!("trace_buf_size={}k", request.buffer_kb));
    let events = request.events.iter().map(ToString::to_string);
    let events: Vec<String> = std::iter::once("initcall:*".to_owned())
        .chain(events)
        .collect();
    words.push(format!("trace_event={}", events.join(",")));
    let mut configuration = None;
    match &request.stop_at {
        Some(function) if tracer == DURATION => words.push(format!("trace_stop_fn={function}")),
        Some(function) => {
            words.push("bootconfig".to_owned());
            configuration = Some(format!(
                "ftrace.event.kprobes.kymo_stop {{\n\tprobes = \"{function}\"\n\tactions = \"traceoff\"\n}}\n"
            ));
        }
        None => {}
    }
    Parameters {
        command_line: words.join(" "),
        configuration,
    }
}

/// Moves the recording of the boot from the top buffer to a directory of pages beside `output`. Recording pauses
/// meanwhile, and then continues with the same settings.
///
/// The second value lists what could not be restored.
///
/// # Errors
/// When the buffer is empty, or can't be read.
pub fn save(
    tracefs: &Tracefs,
    output: &Path,
    state: &Path,
) -> (Result<Recording>, Vec<TracefsError>) {
    let (restore, _) = Restore::begin(tracefs, state);
    // Which events the boot has recorded is unknown by now: copy all formats.
    let systems = tracefs.names("events");
    let taken = take(tracefs, output, &systems, &restore);
    let failed = restore.restore();
    let recording = taken.and_then(|(entries, taken)| {
        let mut recording = Recording::explain(tracefs, &systems, taken)?;
        // The kernel's count includes those that were read before.
        recording.events = entries;
        Ok(recording)
    });
    (recording, failed)
}

/// The number of events that the buffer held, and its pages and texts.
type Taken = (u64, (Vec<Pages>, Left, Directory));

/// Moves the pages out of the buffer.
fn take(tracefs: &Tracefs, output: &Path, systems: &[String], restore: &Restore) -> Result<Taken> {
    let place = Place::Top;
    if plan::entries(tracefs, &place) == 0 {
        return Err(TracefsError::Empty);
    }
    restore.set("tracing_on", "0")?;
    let entries = plan::entries(tracefs, &place);
    let mut directory = Directory::create(output)?;
    directory.explain(tracefs, &place, systems)?;
    let drain = Drain::start(tracefs, &place, page_size(tracefs)?, &mut directory)?;
    let left = (drain.finish(), Left::of(tracefs, &place)?, directory);
    Ok((entries, left))
}

/// The tracer that still runs after a boot, and costs time.
///
/// # Errors
/// When tracefs can't be read.
pub fn tracer_left(tracefs: &Tracefs) -> Result<Option<String>> {
    let tracer = tracefs.read("current_tracer")?;
    let tracer = tracer.trim();
    Ok((tracer != "nop").then(|| tracer.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_says_what_is_asked_for() {
        let request = Request {
            threshold_us: Some(200),
            functions: vec!["acpi_*".into(), "pci_*".into()],
            events: vec!["sched:sched_switch".parse().unwrap()],
            buffer_kb: 8192,
            ..Request::default()
        };
        let parameters = super::parameters(&request);
        assert_eq!(
            parameters.command_line,
            "trace_clock=global ftrace=function_graph tracing_thresh=200 ftrace_filter=acpi_*,pci_* \
             trace_buf_size=8192k trace_event=initcall:*,sched:sched_switch"
        );
        assert_eq!(parameters.configuration, None);

        let hidden = Request {
            hidden: vec!["mem*".into(), "rcu_read_lock".into()],
            depth: Some(4),
            buffer_kb: 1024,
            ..Request::default()
        };
        assert_eq!(
            super::parameters(&hidden).command_line,
            "trace_clock=global ftrace=function_graph ftrace_notrace=mem*,rcu_read_lock ftrace_graph_max_depth=4 \
             trace_buf_size=1024k trace_event=initcall:*"
        );
    }

    #[test]
    fn events_alone_need_no_tracer() {
        let request = Request {
            events: vec!["sched".parse().unwrap()],
            buffer_kb: 1024,
            ..Request::default()
        };
        assert_eq!(
            super::parameters(&request).command_line,
            "trace_clock=global trace_buf_size=1024k trace_event=initcall:*,sched:*"
        );
    }

    #[test]
    fn the_stop_function_is_said_as_the_kernel_takes_it() {
        let mut request = Request {
            stop_at: Some("pty_init".into()),
            buffer_kb: 1024,
            ..Request::default()
        };
        let mainline = super::parameters(&request);
        assert!(mainline.command_line.ends_with(" bootconfig"));
        assert_eq!(
            mainline.configuration.unwrap(),
            "ftrace.event.kprobes.kymo_stop {\n\tprobes = \"pty_init\"\n\tactions = \"traceoff\"\n}\n"
        );
        request.tracer = Some("function_duration".into());
        let other = super::parameters(&request);
        assert!(
            other.command_line.ends_with(" trace_stop_fn=pty_init"),
            "{other:?}"
        );
        assert_eq!(other.configuration, None);
    }
}
