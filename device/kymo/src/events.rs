//! User-defined events with typed fields: declared once, written in place, described in the ELF file. The counterpart
//! of `kymo_event.h`.
//!
//! ```no_run
//! use kymo::events::Text;
//!
//! kymo::event! {
//!     /// What the sensor does.
//!     pub enum State: u8 { Idle = 0, Busy = 1 }
//! }
//!
//! kymo::event! {
//!     /// A measurement of a sensor.
//!     pub struct Sensor = 7 {
//!         channel: u8,
//!         state: State,
//!         volts: [f32; 2],
//!         name: Text<8>,
//!     }
//! }
//!
//! # fn main() {
//! let name = Text::new("left");
//! Sensor { channel: 3, state: State::Busy, volts: [1.5, 3.3], name }.record();
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

impl<T: Field, const N: usize> Field for [T; N] {
    const BYTES: usize = N * T::BYTES;

    #[inline(always)]
    fn put(self, mut to: &mut [u8]) -> &mut [u8] {
        for element in self {
            to = element.put(to);
        }
        to
    }
}

/// A text of at most `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// The text, or as many of its characters as `N` bytes of UTF-8 hold.
    #[inline]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let mut length = text.len().min(N);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        for (to, from) in bytes.iter_mut().zip(text.bytes().take(length)) {
            *to = from;
        }
        Self(bytes)
    }
}

impl<const N: usize> Field for Text<N> {
    const BYTES: usize = N;

    #[inline(always)]
    fn put(self, to: &mut [u8]) -> &mut [u8] {
        self.0.put(to)
    }
}

/// Declares an event, or a type of fields.
///
/// An event is a structure with the type of its records (a number from 1 to 65535). Types of fields are `u8` to `u64`,
/// `i8` to `i64`, `f32` and `f64`, arrays of them, [`Text<N>`](crate::events::Text), and declared types of fields. A field has at
/// most 1024 bytes. The event's method `record` records it, if recording is on.
///
/// A type of fields is an enum with an integer type and a number for each value; trace views show the values' names.
/// In one program such types have different names.
#[macro_export]
macro_rules! event {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $name:ident = $kind:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:tt $(<$length:literal>)?),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name {
            $($(#[$field_doc])* pub $field: $crate::event!(@type $type $($length)?)),+
        }

        impl $name {
            /// Records the event, if recording is on.
            #[inline]
            pub fn record(self) {
                const { assert!($kind >= 1 && $kind <= 65535, "the type must be from 1 to 65535") };
                $(const {
                    let size = <$crate::event!(@type $type $($length)?) as $crate::events::Field>::BYTES;
                    assert!(size >= 1 && size <= 1024, "a field must have 1 to 1024 bytes");
                })+
                const BYTES: usize =
                    0 $(+ <$crate::event!(@type $type $($length)?) as $crate::events::Field>::BYTES)+;
                if let Some(mut record) = $crate::blocks::reserve(BYTES) {
                    let rest: &mut [u8] = &mut record;
                    $(let rest = $crate::events::Field::put(self.$field, rest);)+
                    let _ = rest;
                    record.commit($kind);
                }
            }
        }

        $crate::event!(@describe stringify!($kind), " ", stringify!($name),
            $($crate::event!(@text $field $type $($length)?),)+);
    };
    (
        $(#[$doc:meta])*
        $visibility:vis enum $name:ident: $numbers:ident {
            $($(#[$value_doc:meta])* $value:ident = $number:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($numbers)]
        $visibility enum $name {
            $($(#[$value_doc])* $value = $number),+
        }

        impl $crate::events::Field for $name {
            const BYTES: usize = size_of::<$numbers>();

            #[inline(always)]
            fn put(self, to: &mut [u8]) -> &mut [u8] {
                $crate::events::Field::put(self as $numbers, to)
            }
        }

        $crate::event!(@describe "enum ", stringify!($name), " ", stringify!($numbers),
            $(" ", $number, "=", stringify!($value),)+);
    };
    (@type Text $length:literal) => { $crate::events::Text<$length> };
    (@type $type:tt) => { $type };
    (@text $field:ident Text $length:literal) => { concat!(" text", $length, " ", stringify!($field)) };
    (@text $field:ident [u8; $length:literal]) => { concat!(" bytes", $length, " ", stringify!($field)) };
    (@text $field:ident [$type:ident; $length:literal]) => {
        concat!(" ", stringify!($type), " ", stringify!($field), "[", $length, "]")
    };
    (@text $field:ident $type:ident) => { concat!(" ", stringify!($type), " ", stringify!($field)) };
    (@describe $($text:expr),+ $(,)?) => {
        ::core::arch::global_asm!(
            ".pushsection .kymo.events,\"\",%progbits",
            concat!(".asciz \"", $($text,)+ "\""),
            ".popsection",
        );
    };
}
