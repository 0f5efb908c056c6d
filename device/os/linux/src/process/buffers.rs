//! Thread buffer of each thread: found by a thread-local word, created at the thread's first event.

use core::sync::atomic::Ordering;

use kymo_recorder::WriterMemory;
use kymo_recorder::profile::{Frame, Slot};
use kymo_recorder::threads::ThreadBuffer;
use kymo_wire::process_file::region;

use super::Process;
use super::regions::describe;
use super::set_up::numbering;
use crate::port::Linux;
use crate::{sys, thread};

impl Process {
    /// Returns the calling thread's buffer, if it has one.
    #[inline(always)]
    pub(crate) fn existing_buffer(&self) -> Option<&'static ThreadBuffer<Linux>> {
        let thread_buffer = thread::get().cast::<ThreadBuffer<Linux>>();
        if thread_buffer as usize > thread::BUSY as usize {
            // SAFETY: the word is null, busy, or the thread buffer that `attach` put there for good.
            Some(unsafe { &*thread_buffer })
        } else {
            None
        }
    }

    /// Returns the calling thread's buffer, creating it if necessary.
    #[inline(always)]
    pub(crate) fn thread_buffer(&self) -> Option<&'static ThreadBuffer<Linux>> {
        match self.existing_buffer() {
            Some(thread_buffer) => Some(thread_buffer),
            None => self.attach(),
        }
    }

    /// Creates the calling thread's buffer, with signals blocked: events of their handlers cannot be recorded before it
    /// exists.
    #[cold]
    fn attach(&self) -> Option<&'static ThreadBuffer<Linux>> {
        sys::without_signals(|| {
            // A signal handler may have run before the signals were blocked, and have created the buffer. Or the code
            // that creates it called a hook.
            if let Some(thread_buffer) = self.existing_buffer() {
                return Some(thread_buffer);
            }
            if thread::get() == thread::BUSY {
                self.lose(1);
                return None;
            }
            thread::set(thread::BUSY);
            self.begin_child();
            let thread_buffer = self
                .inherit(false)
                .or_else(|| self.new_buffer())
                .or_else(|| self.inherit(true));
            match thread_buffer {
                Some(thread_buffer) => thread::set(core::ptr::from_ref(thread_buffer).cast()),
                None => {
                    self.lose(1);
                    thread::set(core::ptr::null());
                }
            }
            thread_buffer
        })
    }

    /// Creates a thread buffer in a region of its own: the region's header, the thread buffer, its profile table, its
    /// packets.
    fn new_buffer(&self) -> Option<&'static ThreadBuffer<Linux>> {
        let config = self.config.get()?;
        let sizes = self.sizes.get();
        let thread_buffer_bytes =
            region::BYTES + size_of::<ThreadBuffer<Linux>>().next_multiple_of(64);
        let slot_bytes = (config.slot_count as usize * size_of::<Slot>()).next_multiple_of(64);
        let frames = (config.shadow_stacks as usize).checked_mul(config.shadow_depth as usize)?;
        let frame_bytes = frames.checked_mul(size_of::<Frame>())?.next_multiple_of(64);
        let calls = thread_buffer_bytes + slot_bytes + frame_bytes;
        let front = calls + self.duration_bytes();
        let bytes = front.checked_add(sizes.buffer as usize)?;
        // Before the memory, so that no memory is allocated in vain; an unused number is assigned again.
        let number = self.new_number()?;
        let Ok(memory) = self.recording.take(bytes) else {
            self.thread_buffers.return_number(number);
            return None;
        };
        // SAFETY: the memory is new, large enough, aligned to a page, and never given back.
        let thread_buffer = unsafe {
            let place = memory.add(region::BYTES).cast::<ThreadBuffer<Linux>>();
            place.write(ThreadBuffer::new());
            &*place
        };
        let writer = thread_buffer.writer();
        let room = WriterMemory {
            buffer: (memory.wrapping_add(front), sizes.buffer),
            packet_bytes: sizes.packet,
            slots: memory.wrapping_add(thread_buffer_bytes).cast(),
            frames: memory.wrapping_add(thread_buffer_bytes + slot_bytes).cast(),
            pool: None,
        };
        // SAFETY: these parts are this stream's and this table's alone; all zero is an empty table. The program
        // describes its promotions truly.
        let set_up = unsafe {
            let numbers = (number, numbering(config));
            writer.set_up(config, thread_buffer.cursor(), numbers, room)
        };
        set_up.ok()?;
        writer.stream().clear();
        writer.stream().set_mode(self.mode());
        writer.stream().belong_to(sys::thread() as usize);
        if self.names_exits.load(Ordering::Relaxed) {
            writer.stream().name_exits();
        }
        writer.allow_fast(self.port.is_fast(numbering(config)));
        // SAFETY: this part is the shadow stack's alone, and all zero.
        #[cfg(feature = "duration")]
        unsafe {
            self.give_duration(thread_buffer, memory, calls)
        };
        thread_buffer.set_owner(sys::process(), sys::thread());
        self.numbers.set(number, thread_buffer);
        self.port.clock.begin(memory);
        describe(memory, thread_buffer, front, (sizes.buffer, sizes.packet));
        self.thread_buffers.add(thread_buffer);
        #[cfg(feature = "duration")]
        self.set_duration(thread_buffer);
        Some(thread_buffer)
    }
}
