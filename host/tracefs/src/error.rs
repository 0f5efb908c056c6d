//! Reasons why a kernel can't be traced as requested, and the next step for the user.

use std::io;
use std::path::PathBuf;

/// Error of a tracefs operation. [`TracefsError::help`] is the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracefsError {
    /// The kernel has no tracefs.
    #[error("this kernel has no tracefs: it was built without tracing (CONFIG_FTRACE)")]
    NoTracefs,
    /// The kernel has tracefs, but it is not mounted.
    #[error("tracefs is not mounted")]
    NotMounted,
    /// This user has no permission.
    #[error("no permission to use {}", path.display())]
    PermissionDenied {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel was built without the tracer.
    #[error("this kernel has no tracer {tracer}; it has: {available}")]
    NoTracer {
        /// The required tracer.
        tracer: String,
        /// The available tracers.
        available: String,
    },
    /// The kernel was built without a feature of a tracer.
    #[error("this kernel cannot {what}: it has no {}", path.display())]
    Missing {
        /// The requested feature.
        what: &'static str,
        /// The missing file.
        path: PathBuf,
    },
    /// Another program uses the top buffer.
    #[error("the kernel's top buffer, which {tracer} needs here, is in use: {by}")]
    InUse {
        /// The requested tracer.
        tracer: String,
        /// What uses it.
        by: String,
    },
    /// No function matches.
    #[error("no function that this kernel can trace matches {name}")]
    NoFunction {
        /// The name or pattern.
        name: String,
    },
    /// The kernel has the function, but can't hook it.
    #[error("this kernel has a function {name} that cannot be traced")]
    NotTraceable {
        /// The name.
        name: String,
    },
    /// No event matches.
    #[error("this kernel has no event {name}")]
    NoEvent {
        /// The name or pattern.
        name: String,
    },
    /// A thread or process to be traced does not exist.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its ID.
        pid: u32,
    },
    /// The kernel rejects a value.
    #[error("the kernel refuses {value:?} in {}", path.display())]
    Refused {
        /// The file of tracefs.
        path: PathBuf,
        /// The value written.
        value: String,
        /// The system's error.
        source: io::Error,
    },
    /// The buffer to be saved is empty.
    #[error("the kernel's top buffer holds no event")]
    Empty,
    /// Another failure.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl TracefsError {
    /// Wraps the error of a file operation.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { path, source },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }

    /// The next step for the user, if known.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::NoTracefs => "boot a kernel with CONFIG_FTRACE and CONFIG_FUNCTION_GRAPH_TRACER".into(),
            Self::NotMounted => "mount it: mount -t tracefs nodev /sys/kernel/tracing".into(),
            Self::PermissionDenied { .. } => {
                "run this as root; a kernel in lockdown (confidentiality) cannot be traced at all".into()
            }
            Self::NoTracer { tracer, available } => {
                match available.split_whitespace().find(|it| *it == "function") {
                    Some(_) if tracer != "function" => {
                        "count calls without their times with --tracer function, or build the kernel with \
                         CONFIG_FUNCTION_GRAPH_TRACER"
                            .into()
                    }
                    _ => "record events instead (--event 'sched:*'), or build the kernel with \
                          CONFIG_FUNCTION_GRAPH_TRACER"
                        .into(),
                }
            }
            Self::Missing { .. } => "build the kernel with CONFIG_DYNAMIC_FTRACE, or do without that option".into(),
            Self::InUse { .. } => {
                "save what it holds with kymo record --ftrace --boot -o boot.dat, or end it: \
                 echo nop > /sys/kernel/tracing/current_tracer; echo 0 > /sys/kernel/tracing/events/enable"
                    .into()
            }
            Self::NoFunction { .. } => {
                "those that it can trace are in /sys/kernel/tracing/available_filter_functions".into()
            }
            Self::NotTraceable { .. } => {
                "it is marked notrace, or is assembly or early boot code: trace a function that calls it; \
                 /sys/kernel/tracing/available_filter_functions has all that can be traced"
                    .into()
            }
            Self::Io { source, .. } if is_full(source) => {
                "the disk is full: record less (--threshold, --function, --event, --duration, --size), or to another \
                 disk with -o; until the end the pages lie in the folder of the output, without a name"
                    .into()
            }
            Self::NoEvent { .. } => {
                "those that it has are in /sys/kernel/tracing/available_events".into()
            }
            Self::Empty => {
                "boot with what kymo record --ftrace --boot prints; saving takes the events out of the buffer".into()
            }
            Self::NoProcess { .. } | Self::Refused { .. } | Self::Io { .. } => return None,
        })
    }
}

/// Whether the disk is full, or the user's quota exceeded.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero
    )
}
