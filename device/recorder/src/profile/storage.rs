//! Inline or external storage of the profile table's state.
//!
//! Microcontrollers have little RAM, and many programs have no table: so there the state is in the table's own memory,
//! in its last slots, and a writer holds only its address. Elsewhere the state is in the writer.

use kymo_wire::link::SetupError;

use super::{Frame, Pool, Profile, Slot};
use crate::Target;

#[cfg(all(target_os = "none", target_pointer_width = "32"))]
use external::State;
#[cfg(not(all(target_os = "none", target_pointer_width = "32")))]
use inline::State;

/// A writer's profile table, if it has one.
#[derive(Debug)]
pub(crate) struct Storage<T>(State<T>);

impl<T: Target> Storage<T> {
    /// Location of the state: the number of the table's last slots that hold it; if that is 0, it is in the writer, at
    /// this offset in `Storage`.
    pub const PLACE: (u8, usize) = State::<T>::PLACE;

    /// No table. All zero.
    pub const fn new() -> Self {
        Self(State::new())
    }

    /// The table's state, if there is any.
    #[inline(always)]
    pub fn get(&self) -> Option<&Profile<T>> {
        if !cfg!(feature = "profile") {
            return None;
        }
        self.0.get()
    }

    /// The table, if there is one.
    #[inline(always)]
    pub fn table(&self) -> Option<&Profile<T>> {
        self.get().filter(|table| table.exists())
    }

    /// Whether there is a table that is not being cleared.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        self.get().is_some_and(Profile::is_kept)
    }

    /// Gives the writer a table in this memory ([`Profile::set_up`]).
    ///
    /// # Errors
    /// When the sizes are unusable.
    ///
    /// # Safety
    /// As of [`Profile::set_up`].
    pub unsafe fn set_up(
        &self,
        (slots, slot_count): (*mut Slot, u32),
        frames: *const Frame,
        stacks: u32,
        depth: u32,
    ) -> Result<(), SetupError> {
        // SAFETY: by this function's contract.
        unsafe {
            let (table, left) = self.0.place(slots, slot_count)?;
            table.set_up(slots, left, frames, stacks, depth)?;
            self.0.keep(table);
        }
        Ok(())
    }
}

impl<T: Target> Storage<T> {
    /// Gives the writer of one of several CPUs a table with these slots ([`Profile::set_up_on_cpu`]).
    ///
    /// # Errors
    /// When their number is unusable.
    ///
    /// # Safety
    /// As of [`Profile::set_up_on_cpu`].
    pub unsafe fn set_up_on_cpu(
        &self,
        (slots, slot_count): (*mut Slot, u32),
        (pool, cpu): (&'static Pool, u16),
    ) -> Result<(), SetupError> {
        // SAFETY: by this function's contract.
        unsafe {
            let (table, left) = self.0.place(slots, slot_count)?;
            table.set_up_on_cpu(slots, left, pool, cpu)?;
            self.0.keep(table);
        }
        Ok(())
    }
}

/// External storage: in the table's memory.
#[cfg(all(target_os = "none", target_pointer_width = "32"))]
mod external {
    #[cfg(feature = "profile")]
    use core::cell::Cell;
    use core::ptr::null;

    use kymo_wire::link::Fault;

    use super::{Profile, SetupError, Slot, Target};

    #[cfg(not(feature = "profile"))]
    use crate::compiled_out::CompiledOut as Place;
    #[cfg(feature = "profile")]
    type Place<V> = Cell<V>;

    /// Address of the state.
    #[derive(Debug)]
    pub struct State<T>(Place<*const Profile<T>>);

    impl<T: Target> State<T> {
        pub const fn new() -> Self {
            Self(Place::new(null()))
        }

        #[inline(always)]
        pub fn get(&self) -> Option<&Profile<T>> {
            // SAFETY: it is in memory that is ours for good.
            unsafe { self.0.get().as_ref() }
        }

        /// In the last slots.
        pub const PLACE: (u8, usize) = (Self::SLOTS as u8, 0);

        /// Number of slots that the state takes.
        const SLOTS: u32 = size_of::<Profile<T>>().div_ceil(size_of::<Slot>()) as u32;

        /// Places an empty state into the last of these slots; returns it and the number of remaining slots.
        ///
        /// # Errors
        /// No slot remains.
        ///
        /// # Safety
        /// As for the slots in [`Profile::set_up`].
        pub unsafe fn place(
            &self,
            slots: *mut Slot,
            slot_count: u32,
        ) -> Result<(&Profile<T>, u32), SetupError> {
            const {
                assert!(align_of::<Profile<T>>() <= align_of::<Slot>());
                assert!(size_of::<Profile<T>>() % 4 == 0);
            }
            if slots.is_null() || !slots.is_aligned() {
                return Err(Fault::Slots.of(slots.addr()));
            }
            let left = slot_count.saturating_sub(Self::SLOTS);
            if left == 0 {
                return Err(Fault::SlotCount.of(slot_count as usize));
            }
            // SAFETY: there are those slots, which are ours for good, and the state, of which all bits are zero, is not
            // longer. (Volatile, because otherwise the compiler calls a function that the recorder needs for nothing
            // else.)
            let table = unsafe {
                let place = slots.add(left as usize);
                for word in 0..size_of::<Profile<T>>() / 4 {
                    place.cast::<u32>().add(word).write_volatile(0);
                }
                &*place.cast::<Profile<T>>()
            };
            Ok((table, left))
        }

        /// Stores the address of the state.
        pub fn keep(&self, table: &Profile<T>) {
            self.0.set(table);
        }
    }
}

/// Inline storage: in the writer.
#[cfg(not(all(target_os = "none", target_pointer_width = "32")))]
mod inline {
    use kymo_wire::link::Fault;

    use super::{Profile, SetupError, Slot, Target};

    #[cfg(not(feature = "profile"))]
    type Place<V> = core::marker::PhantomData<V>;
    #[cfg(feature = "profile")]
    type Place<V> = V;

    /// The state itself.
    #[derive(Debug)]
    pub struct State<T>(Place<Profile<T>>);

    impl<T: Target> State<T> {
        /// In this structure.
        pub const PLACE: (u8, usize) = (0, core::mem::offset_of!(Self, 0));

        #[cfg(feature = "profile")]
        pub const fn new() -> Self {
            Self(Profile::new())
        }

        #[cfg(not(feature = "profile"))]
        pub const fn new() -> Self {
            Self(core::marker::PhantomData)
        }

        #[cfg(feature = "profile")]
        #[inline(always)]
        pub const fn get(&self) -> Option<&Profile<T>> {
            Some(&self.0)
        }

        #[cfg(not(feature = "profile"))]
        #[inline(always)]
        pub const fn get(&self) -> Option<&Profile<T>> {
            None
        }

        /// Returns the state, and the number of all slots.
        ///
        /// # Errors
        /// This build has no tables.
        ///
        /// # Safety
        /// No requirements here; there are some for external storage.
        pub unsafe fn place(
            &self,
            _: *mut Slot,
            slot_count: u32,
        ) -> Result<(&Profile<T>, u32), SetupError> {
            let table = self
                .get()
                .ok_or(Fault::ProfileLeftOut.of(slot_count as usize))?;
            Ok((table, slot_count))
        }

        /// Does nothing: the state is here already.
        pub const fn keep(&self, _: &Profile<T>) {}
    }
}
