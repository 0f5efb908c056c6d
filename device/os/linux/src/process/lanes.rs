//! The lane of each thread: found by a word of the thread, made at its first event.

use core::sync::atomic::Ordering;

use kymo_recorder::profile::{Frame, Slot};
use kymo_recorder::threads::Lane;
use kymo_wire::process_file::region;

use super::Process;
use super::regions::describe;
use super::set_up::numbering;
use crate::port::Linux;
use crate::{sys, thread};

impl Process {
    /// The calling thread's lane, if it has one.
    #[inline(always)]
    pub(crate) fn existing_lane(&self) -> Option<&'static Lane<Linux>> {
        let lane = thread::get().cast::<Lane<Linux>>();
        if lane as usize > thread::BUSY as usize {
            // SAFETY: the word is null, busy, or the lane that `attach` put there for good.
            Some(unsafe { &*lane })
        } else {
            None
        }
    }

    /// The calling thread's lane; made if it has none.
    #[inline(always)]
    pub(crate) fn lane(&self) -> Option<&'static Lane<Linux>> {
        match self.existing_lane() {
            Some(lane) => Some(lane),
            None => self.attach(),
        }
    }

    /// The calling thread's lane, made now. Signals wait for it: what their handlers call has no place before.
    #[cold]
    fn attach(&self) -> Option<&'static Lane<Linux>> {
        sys::without_signals(|| {
            // A handler has come before that, and has made it; or what makes it has called a hook.
            if let Some(lane) = self.existing_lane() {
                return Some(lane);
            }
            if thread::get() == thread::BUSY {
                self.lose(1);
                return None;
            }
            thread::set(thread::BUSY);
            self.begin_child();
            let lane = self
                .inherit(false)
                .or_else(|| self.new_lane())
                .or_else(|| self.inherit(true));
            match lane {
                Some(lane) => thread::set(core::ptr::from_ref(lane).cast()),
                None => {
                    self.lose(1);
                    thread::set(core::ptr::null());
                }
            }
            lane
        })
    }

    /// A lane in a region of its own: the region's header, the lane, its profile table, its packets.
    fn new_lane(&self) -> Option<&'static Lane<Linux>> {
        let config = self.config.get()?;
        let sizes = self.sizes.get();
        let lane_bytes = region::BYTES + size_of::<Lane<Linux>>().next_multiple_of(64);
        let slot_bytes = (config.slot_count as usize * size_of::<Slot>()).next_multiple_of(64);
        let frames = (config.shadow_stacks as usize).checked_mul(config.shadow_depth as usize)?;
        let frame_bytes = frames.checked_mul(size_of::<Frame>())?.next_multiple_of(64);
        let calls = lane_bytes + slot_bytes + frame_bytes;
        let front = calls + self.duration_bytes();
        let bytes = front.checked_add(sizes.buffer as usize)?;
        // Before the memory, so that none is taken in vain; a number that is not used is given again.
        let number = self.new_number()?;
        let Ok(memory) = self.recording.take(bytes) else {
            self.lanes.return_number(number);
            return None;
        };
        // SAFETY: the memory is new, large enough, aligned to a page, and never given back.
        let lane = unsafe {
            let place = memory.add(region::BYTES).cast::<Lane<Linux>>();
            place.write(Lane::new());
            &*place
        };
        let writer = lane.writer();
        // SAFETY: the part behind `front` is this stream's alone.
        let set_up = unsafe {
            writer.stream().set_up(
                lane.cursor(),
                (memory.add(front), sizes.buffer),
                sizes.packet,
                number,
                numbering(config),
            )
        };
        set_up.ok()?;
        writer.stream().clear();
        writer.stream().set_mode(self.mode());
        writer.stream().belong_to(sys::thread() as usize);
        if self.names_exits.load(Ordering::Relaxed) {
            writer.stream().name_exits();
        }
        // SAFETY: the program describes its promotions truly.
        unsafe { writer.set_up(config) };
        if config.slot_count != 0 {
            // SAFETY: these parts are this table's alone; all zero is an empty table.
            let set_up = unsafe {
                writer.give_table(
                    (memory.add(lane_bytes).cast(), config.slot_count),
                    memory.add(lane_bytes + slot_bytes).cast(),
                    config.shadow_stacks,
                    config.shadow_depth.min(u16::MAX.into()),
                )
            };
            set_up.ok()?;
        }
        writer.allow_fast(self.port.is_fast(numbering(config)));
        // SAFETY: this part is the shadow stack's alone, and all zero.
        #[cfg(feature = "duration")]
        unsafe {
            self.give_duration(lane, memory, calls)
        };
        lane.set_owner(sys::process(), sys::thread());
        self.numbers.set(number, lane);
        self.port.clock.begin(memory);
        describe(memory, lane, front, (sizes.buffer, sizes.packet));
        self.lanes.add(lane);
        #[cfg(feature = "duration")]
        self.set_duration(lane);
        Some(lane)
    }
}
