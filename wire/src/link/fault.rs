//! Set-up faults of a recorder: the rules of `kymo_config` that a program can break.
//!
//! A target reports `error=NAME value=NUMBER` in its `status`. The sentences for the names are here, for the host and
//! for `kymo_status()` on the target.

use core::ffi::CStr;

/// Defines the faults, each with a name and a rule.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident = $number:literal $name:literal $rule:literal;)*) => {
        /// Rule that a program's configuration breaks. (No number is 0, so that a recorder without a fault is all
        /// zero.)
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $fault = $number,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &[Self] = &[$(Self::$fault),*];

            /// Name in `status`: usually the field of `kymo_config` that is wrong.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$fault => $name,)*
                }
            }

            /// The rule, in words.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$fault => $rule,)*
                }
            }

            /// Name and rule, for C.
            pub const fn text(self) -> &'static CStr {
                let text: &'static [u8] = match self {
                    $(Self::$fault => concat!($name, ": ", $rule, "\0").as_bytes(),)*
                };
                match CStr::from_bytes_with_nul(text) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }
        }
    };
}

faults! {
    /// The configuration was compiled with the header of another release.
    Version = 1 "version" "must be the KYMO_CONFIG_VERSION of this library: compile with the kymo.h beside it";
    /// There is no event buffer.
    NoBuffer = 2 "buffer" "must not be NULL";
    /// The buffer is not aligned.
    BufferAlignment = 3 "buffer_alignment" "the address of buffer must be a multiple of 8";
    /// A packet is too small, too large, or not aligned.
    PacketSize = 4 "packet_size" "must be a multiple of 8, from 128 to 524288";
    /// The buffer has no room for whole packets, or for two.
    BufferSize = 5 "buffer_size" "must be a multiple of packet_size, at least twice that";
    /// The buffers of several CPUs share cache lines.
    CpuBuffers = 6 "cpu_buffers" "with several CPUs the address of buffer and buffer_size must be multiples of 128";
    /// The memory for metadata is not aligned.
    MetadataAlignment = 7 "metadata_alignment" "the address of metadata must be a multiple of 8";
    /// The memory for metadata is too small or too large.
    MetadataSize = 8 "metadata_size" "must be at least 128 and less than 524288";
    /// There are too few slots.
    SlotCount = 9 "slot_count" "must be at least 3";
    /// There is no memory for slots, or it is not aligned.
    Slots = 10 "slots" "must not be NULL, and its address must be a multiple of 8";
    /// There is no memory for shadow stacks, or it is not aligned.
    Frames = 11 "frames" "must not be NULL, and its address must be a multiple of 8";
    /// There are too few shadow stacks, or too many.
    ShadowStacks = 12 "shadow_stacks" "must be from 2 to 32; with several CPUs from cpu_count + 1 to 65535";
    /// The shadow stacks have too few frames, or too many.
    ShadowDepth = 13 "shadow_depth" "must be from 2 to 65535; with several CPUs from 3 on";
    /// The program requests a profile table of a library without one.
    ProfileLeftOut = 14 "profile_left_out" "slot_count must be 0: this library was built without the profile table";
    /// The program requests a profile table for several CPUs, of a library from before these could have one: later ones
    /// do not report this.
    ProfileOnCpus = 15 "profile_on_cpus" "slot_count must be 0 where cpu_count is more than 1";
    /// No clock counts (yet).
    NoClock = 16 "no_clock" "a counter must run: give counter or clock, or start DWT_CYCCNT or SysTick";
    /// The clock function's width is out of range.
    ClockBits = 17 "clock_bits" "must be from 8 to 32 where clock is given";
    /// The clock's frequency is unknown.
    ClockHz = 18 "clock_hz" "must not be 0";
    /// The unit of function numbers is larger than readers support.
    FunctionShift = 19 "function_shift" "must be from 0 to 7";
    /// A thread that cannot mask interrupts called a hook.
    Unprivileged = 20 "unprivileged" "threads that run unprivileged must not be instrumented: they cannot mask interrupts";
    /// There are more CPUs than the library was built for.
    Cpus = 21 "cpu_count" "must be at most 16";
    /// The program requests several CPUs of a library for one.
    OneCpu = 22 "only_one_cpu" "cpu_count must be 0 or 1 with this library";
}

/// Maximum of [`function_shift`](crate::event::Layout::function_shift).
pub const MAX_FUNCTION_SHIFT: u32 = 7;

impl Fault {
    /// Returns the number of the fault, from 1 on: 0 means no fault.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the fault with this number; `None` if it is 0 or unknown.
    pub fn from_number(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// Returns the fault with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|fault| fault.name() == name).copied()
    }
}

/// A fault, and the value of the configuration that breaks the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupError {
    /// The rule that is broken.
    pub fault: Fault,
    /// The offending value in the configuration: a number, or an address.
    pub value: usize,
}

impl Fault {
    /// Combines this fault with the offending value.
    pub const fn of(self, value: usize) -> SetupError {
        SetupError { fault: self, value }
    }
}

impl core::fmt::Display for SetupError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { fault, value } = self;
        write!(f, "{} is {value}: {}", fault.name(), fault.rule())
    }
}

impl core::error::Error for SetupError {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn names_are_words_and_numbers_come_back() {
        for (n, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(Fault::from_number(n as u8 + 1), Some(*fault));
            assert_eq!(usize::from(fault.number()), n + 1);
            assert_eq!(Fault::from_name(fault.name()), Some(*fault));
            assert!(!fault.name().contains([' ', '=']), "{fault:?}");
            assert!(fault.text().to_bytes().starts_with(fault.name().as_bytes()));
            assert!(fault.text().to_bytes().ends_with(fault.rule().as_bytes()));
        }
        assert_eq!(Fault::from_number(0), None);
        assert_eq!(Fault::from_number(200), None);
        assert_eq!(
            Fault::PacketSize.of(500).to_string(),
            "packet_size is 500: must be a multiple of 8, from 128 to 524288"
        );
    }
}
