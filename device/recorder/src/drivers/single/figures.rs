//! Status of the recorder.

use kymo_wire::link::{Fault, SetupError};

use super::{Single, SinglePort};
use crate::sync::Ordering;

impl<P: SinglePort + 'static> Single<P> {
    /// Why the recorder is not set up.
    pub fn fault(&self) -> Option<SetupError> {
        Fault::from_number(self.fault.get()).map(|fault| fault.of(self.culprit.get()))
    }

    /// Number of hooks within hooks.
    pub fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The function of the last one; 0: none, or unknown.
    pub fn refused_function(&self) -> usize {
        match self.fault.get() {
            0 => self.culprit.get(),
            _ => 0,
        }
    }

    /// How many of them the stream's count of losses does not include yet.
    pub fn unreported(&self) -> u32 {
        self.refused().wrapping_sub(self.refused_reported.get())
    }
}
