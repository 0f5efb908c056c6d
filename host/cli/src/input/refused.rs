//! Errors of opening an input.

use std::io;
use std::path::Path;

use kymo_read::OpenError;

use crate::diagnostic::Report;

/// Why an input is no trace.
pub struct Refused {
    /// The report for the user.
    pub report: Report,
    /// Offset of the fault in the input, in bytes; 0 if it is the whole input.
    pub offset: u64,
}

/// A fault of the whole input.
impl From<Report> for Refused {
    fn from(report: Report) -> Self {
        Self { report, offset: 0 }
    }
}

impl From<Refused> for Report {
    fn from(refused: Refused) -> Self {
        refused.report
    }
}

/// Whether the process has reached its limit of open files (EMFILE).
fn is_out_of_files(error: &io::Error) -> bool {
    cfg!(unix) && error.raw_os_error() == Some(24)
}

/// Whether the data of a pipe was too large.
fn is_too_large(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// Why an input is refused, with advice.
pub fn refused(error: &OpenError) -> Report {
    let report = Report::caused_by(error);
    match error {
        OpenError::Version { .. } => report.help(
            "another version of Kymo made it, and can read it; to record anew for this one, link the \
             program with its library (`cargo xtask lib`)",
        ),
        OpenError::Io { path, source } if is_too_large(source) || path == Path::new("-") => {
            report.help("save it to a file, and give that as INPUT; TMPDIR names another place for copies")
        }
        OpenError::Io { path, .. } if !path.exists() => report.help(
            "give a trace directory or a raw file; `kymo trace -o DIR` makes one from a target",
        ),
        OpenError::Io { source, .. } if is_out_of_files(source) => {
            report.help("`ulimit -n` tells how many files may be open at once; `ulimit -n 1024` allows more")
        }
        OpenError::LiveTracefs { .. } => report.help("`kymo record --ftrace` records what it traces"),
        OpenError::Io { .. } => report.help("check the path and its permissions"),
        OpenError::Mapping(_) => {
            report.help("`kymo show --events` lists the events of the trace with their fields")
        }
        OpenError::Empty { .. } => report.help("was the recording stopped before it was written?"),
        OpenError::Identity { .. } => report.help(
            "the first line of a raw file is the target's answer to `identify`; transfer the file \
             again, in binary mode",
        ),
        OpenError::Console { .. } => {
            report.help("`--dump N` chooses one of several; the first lines of each say who recorded")
        }
        OpenError::Together { .. } => report.help(
            "--align EVENT names events that all of them have, by which their times go together",
        ),
        OpenError::Memory { .. } | OpenError::HardwareTrace { .. } => report,
        OpenError::Metadata { .. } => report.help(
            "a CTF trace has a file `metadata`, in text (TSDL) or JSON, beside its streams; --metadata names one that lies \
             elsewhere",
        ),
        OpenError::Unknown { path, .. } if path.is_dir() => {
            report.help("if the trace is one of the files in this directory, give that file")
        }
        OpenError::Unknown { found, .. } if found.contains("an ELF") => {
            report.help("INPUT is a trace; the program that it is of is given with --elf")
        }
        OpenError::Record { .. } => {
            report.help("what it begins with is damaged: transfer the file again, in binary mode, or record anew")
        }
        _ => report.help(
            "kymo reads CTF (directories, or streams beside their metadata), ftrace (trace.dat, raw pages, text), event \
             recordings of RTEMS, SystemView's recordings, Arm hardware trace (perf.data, snapshots), dumps of \
             Zephyr's instrumentation, the raw files of its targets and, with --elf, dumps of their memory; symbols are \
             given with --elf",
        ),
    }
}
