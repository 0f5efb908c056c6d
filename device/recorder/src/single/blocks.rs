//! Records that the program fills in place ([`crate::block`]), on one processor.

use super::{Single, SinglePort};
use crate::block::Shut;
use crate::config::Config;
use crate::hot::Hot;

impl<P: SinglePort + 'static> Single<P> {
    /// Reserves a record of so many bytes, and returns where they go; null if it is not to be recorded
    /// now, or cannot be (then it is counted).
    #[inline(never)]
    pub fn reserve(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        length: usize,
    ) -> *mut u8 {
        if !hot.gate.open() && !self.wakes(hot, config) {
            return core::ptr::null_mut();
        }
        let stream = self.writer.stream();
        match stream.reserve_block_by(&self.steps(hot), length) {
            Ok(data) => data.unwrap_or(core::ptr::null_mut()),
            Err(Shut) => {
                self.masked(|| self.refuse(hot.gate.state()));
                core::ptr::null_mut()
            }
        }
    }

    /// Finishes a reserved record, with this type; 0 is none, and the record is discarded.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&self, data: *mut u8, kind: u16) {
        if kind == 0 {
            // SAFETY: by this function's contract.
            return unsafe { self.discard(data) };
        }
        let was = self.port.mask();
        // SAFETY: by this function's contract.
        unsafe { self.writer.stream().commit_block(data, kind) };
        self.port.unmask(was);
    }

    /// Takes a reserved record back; where something was recorded since, it stays as unfinished.
    ///
    /// # Safety
    /// As of [`commit`](Self::commit).
    pub unsafe fn discard(&self, data: *mut u8) {
        let was = self.port.mask();
        // SAFETY: by this function's contract.
        unsafe { self.writer.stream().discard_block(data) };
        self.port.unmask(was);
    }
}
