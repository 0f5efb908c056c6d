//! User-defined events with typed fields: declared once, written in place, described in the ELF file. The counterpart
//! of `kymo_event.h`.
//!
//! ```no_run
//! kymo::event! {
//!     /// A measurement of a sensor.
//!     pub struct Sensor = 7 {
//!         channel: u8,
//!         volts: f32,
//!     }
//! }
//!
//! # fn main() {
//! Sensor { channel: 3, volts: 1.5 }.record();
//! # }
//! ```
//!
//! The bytes of a record are the packed fields. Their description is in a section of the ELF file that is not loaded;
//! `kymo` decodes the records with `--elf`.

/// Type of a field.
pub trait Field: Copy {
    /// Size in bytes.
    const BYTES: usize;

    /// Writes the value to the start of `to`, in the machine's own byte order, and returns the rest of `to`.
    fn put(self, to: &mut [u8]) -> &mut [u8];
}

macro_rules! fields {
    ($($type:ty),+) => {
        $(
            impl Field for $type {
                const BYTES: usize = size_of::<Self>();

                #[inline(always)]
                fn put(self, to: &mut [u8]) -> &mut [u8] {
                    match to.split_first_chunk_mut() {
                        Some((here, behind)) => {
                            *here = self.to_ne_bytes();
                            behind
                        }
                        None => &mut [],
                    }
                }
            }
        )+
    };
}

fields!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// Declares an event: a structure with the type of its records (a number from 1 to 65535) and fields of the types `u8`
/// to `u64`, `i8` to `i64`, `f32` and `f64`. Its method `record` records it, if recording is on.
#[macro_export]
macro_rules! event {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $name:ident = $kind:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ident),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name {
            $($(#[$field_doc])* pub $field: $type),+
        }

        impl $name {
            /// Records the event, if recording is on.
            #[inline]
            pub fn record(self) {
                const { assert!($kind >= 1 && $kind <= 65535, "the type must be from 1 to 65535") };
                const BYTES: usize = 0 $(+ <$type as $crate::events::Field>::BYTES)+;
                if let Some(mut record) = $crate::blocks::reserve(BYTES) {
                    let rest: &mut [u8] = &mut record;
                    $(let rest = $crate::events::Field::put(self.$field, rest);)+
                    let _ = rest;
                    record.commit($kind);
                }
            }
        }

        ::core::arch::global_asm!(
            ".pushsection .kymo.events,\"\",%progbits",
            concat!(
                ".asciz \"",
                stringify!($kind),
                " ",
                stringify!($name),
                $(" ", stringify!($type), " ", stringify!($field),)+
                "\""
            ),
            ".popsection",
        );
    };
}
