//! Records that the program fills in place ([`crate::encode::block`]), on one processor.

use super::{Single, SinglePort};
use crate::Event;
use crate::config::Config;
use crate::hot::{Hot, low};
use kymo_wire::event::EventId;

impl<P: SinglePort + 'static> Single<P> {
    /// Reserves a record of `length` bytes and returns the address of its data; null if nothing is to be recorded now,
    /// or if it is not possible (which is counted).
    #[inline(always)]
    pub fn reserve(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        length: usize,
    ) -> *mut u8 {
        self.reserve_direct(hot, length)
            .unwrap_or_else(|| self.reserve_slowly(hot, config, length))
    }

    /// The same with interrupts masked once, if there is room and nothing else to do.
    #[inline(always)]
    fn reserve_direct(&'static self, hot: &'static Hot, length: usize) -> Option<*mut u8> {
        // (Like a marker, it needs nothing but a record.)
        let is_direct = self.writer.is_direct(Event::Marker(0));
        if !is_direct || length >> 16 != 0 || !self.is_allowed(hot) {
            return None;
        }
        let cursor = P::somewhere(&hot.cursor);
        let was = self.port.mask();
        let data = if P::GUARDED && self.inside.get() {
            None
        } else {
            // SAFETY: the counter exists, and the cursor is the stream's: its limit is 0 whenever nothing is to be
            // recorded.
            unsafe {
                let now = low::<P>(self.port.read(cursor.counter.get()).into());
                self.writer.stream().put_block(cursor, now, length)
            }
        };
        self.port.unmask(was);
        data
    }

    #[cold]
    #[inline(never)]
    fn reserve_slowly(
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
            if !self.closed(hot, config, EventId::Block, 0, hot.gate.site(0)) {
                return core::ptr::null_mut();
            }
        }
    }

    /// Finishes a reserved record, with this type; 0 discards it: it is removed, or remains unfinished if something was
    /// recorded since.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&'static self, hot: &'static Hot, data: *mut u8, kind: u16) {
        let steps = self.steps(hot);
        // SAFETY: by this function's contract.
        unsafe { self.writer.stream().finish_block_by(&steps, data, kind) };
    }
}
