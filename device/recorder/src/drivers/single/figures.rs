//! What the recorder says of itself.

use kymo_wire::link::{Fault, SetupError};

use super::{Single, SinglePort};
use crate::sync::Ordering;

impl<P: SinglePort + 'static> Single<P> {
    /// Why the recorder is not set up.
    pub fn fault(&self) -> Option<SetupError> {
        Fault::from_number(self.fault.get()).map(|fault| fault.of(self.culprit.get()))
    }

    /// How many hooks from inside a hook there were.
    pub fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The function that the last of them was for; 0: none, or not known.
    pub fn refused_function(&self) -> usize {
        match self.fault.get() {
            0 => self.culprit.get(),
            _ => 0,
        }
    }

    /// How many of them the stream has not been told of.
    pub fn untold(&self) -> u32 {
        self.refused().wrapping_sub(self.refused_told.get())
    }
}
