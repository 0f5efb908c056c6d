//! Set-up of a writer: memory for its stream and its table, promotions and `current_thread`. The same for all drivers.

use kymo_wire::link::{Fault, SetupError};

use super::{Threads, Writer};
use crate::Target;
use crate::config::{CALL_SITES, Config};
use crate::encode::Functions;
use crate::hot::Cursor;
use crate::profile::{Frame, Pool, Slot};

/// Memory for one stream and for its profile table. All of it is the writer's alone, for good.
#[derive(Clone, Copy, Debug)]
pub struct WriterMemory {
    /// The stream's buffer: address and size in bytes.
    pub buffer: (*mut u8, u32),
    /// Size of the stream's packets in bytes.
    pub packet_bytes: u32,
    /// The table's slots, as many as the configuration has.
    pub slots: *mut Slot,
    /// Frames of its shadow stacks, as many as the configuration has.
    pub frames: *const Frame,
    /// On several CPUs: the stacks of all, in the place of `frames`.
    pub pool: Option<&'static Pool>,
}

impl WriterMemory {
    /// The memory that the configuration names.
    pub const fn of(config: &Config) -> Self {
        Self {
            buffer: (config.buffer.cast(), config.buffer_size),
            packet_bytes: config.packet_size,
            slots: config.slots.cast(),
            frames: config.frames.cast(),
            pool: None,
        }
    }
}

impl<T: Target> Writer<T> {
    /// Sets up the stream, as number `stream`, and the table, if the configuration has one. Call
    /// [`allow_fast`](Self::allow_fast) afterwards.
    ///
    /// # Errors
    /// When the sizes are unusable, or this build has no tables.
    ///
    /// # Safety
    /// `memory` is as it says, its buffer initialized. `config.promotions` points to `config.promotion_count` of them,
    /// for good, and `config.current_thread` may be called from any context.
    #[inline(always)]
    pub unsafe fn set_up(
        &self,
        config: &'static Config,
        cursor: &'static Cursor,
        (stream, functions): (u16, Functions),
        memory: WriterMemory,
    ) -> Result<(), SetupError> {
        // SAFETY: by this function's contract.
        unsafe {
            self.stream.set_up(
                cursor,
                memory.buffer,
                memory.packet_bytes,
                stream,
                functions,
            )?;
        }
        self.config.set(Some(config));
        self.sites.set(config.flags & CALL_SITES != 0);
        if config.current_thread.is_some() && self.threads.get() == Threads::Unreported {
            self.threads.set(Threads::Queried);
        }
        self.choose_path();
        let slots = config.slot_count;
        if slots == 0 {
            return Ok(());
        }
        if !cfg!(feature = "profile") {
            return Err(Fault::ProfileLeftOut.of(slots as usize));
        }
        let (stacks, depth) = (config.shadow_stacks, config.shadow_depth);
        // SAFETY: by this function's contract.
        unsafe {
            if T::MIGRATES
                && let Some(pool) = memory.pool
            {
                return self
                    .profile
                    .set_up_on_cpu((memory.slots, slots), (pool, stream));
            }
            self.profile
                .set_up((memory.slots, slots), memory.frames, stacks, depth)
        }
    }
}
