//! Failures of opening an input.

use crate::diagnostic::Report;

/// Why an input is no trace.
pub struct Refused {
    /// For the user.
    pub report: Report,
    /// Where in the input the fault lies, in bytes from its start; 0 where it is the whole input.
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
