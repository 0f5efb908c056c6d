//! Records that the program fills in place ([`crate::block`]), on one processor.

use super::{Single, SinglePort};
use crate::config::Config;
use crate::hot::Hot;
use kymo_wire::event::EventId;

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
        loop {
            if !self.is_allowed(hot) {
                return core::ptr::null_mut();
            }
            let stream = self.writer.stream();
            if hot.gate.open()
                && let Ok(data) = stream.reserve_block_by(&self.steps(hot), length)
            {
                return data;
            }
            if !self.closed(hot, config, EventId::Block, 0) {
                return core::ptr::null_mut();
            }
        }
    }

    /// Finishes a reserved record, with this type; 0 is none: it is taken back, or where something was
    /// recorded since stays as unfinished.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&'static self, hot: &'static Hot, data: *mut u8, kind: u16) {
        let steps = self.steps(hot);
        // SAFETY: by this function's contract.
        unsafe { self.writer.stream().finish_block_by(&steps, data, kind) };
    }
}
