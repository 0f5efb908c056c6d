//! Layout of event records.
//!
//! A *packet* is a self-contained run of events of one stream (one CPU, or one thread of a Linux process): a
//! [`PacketHeader`], then event records without padding between them. A *record* is an event header (the kind of event,
//! and the low bits of the clock) followed by its payload. Nearly all records are enters and exits. Most of these come
//! soon after the previous record, and an exit is nearly always that of the function entered last. So there are several
//! [forms](Form) of header, distinguished by their first bits, and the usual records are a few bytes long:
//!
//! | first bits | form | compact: bytes (time, function bits) | wide |
//! |---|---|---|---|
//! | 1 | exit, short | 1 (7, -) | 2 (15, -) |
//! | 0, 0 | enter, short | 3 (8, 13) | 6 (21, 24) |
//! | 0, 1 | exit, long | 2 (13, -) | 4 (29, -) |
//! | 0, 2 | enter, long | 4 (12, 17) | 8 (29, 32) |
//! | 0, 3, id | other | 3 (16, -) + payload | 3 (16, -) + payload |
//! | 0, 3, 31 | time | 8 (56, -) | 8 (56, -) |
//!
//! The first bit, the next two and the next five are each a field `id` of CTF; the last one that is read is the event's
//! ([`EventId`]).
//!
//! A timestamp is the low bits of the stream's clock, as CTF defines partial clock updates: the reader takes the next
//! time at which the clock has these low bits. So a record may only use a form whose time field is wider than the
//! distance from the previous record. If there is none, the encoder puts an [`EventId::Time`] record in between.
//!
//! Bit fields fill a record from its least significant bit on little-endian targets and from its most significant bit
//! on big-endian ones (CTF 1.8, section 4.1.2), so that on either a record of a [`Shape`] is one integer store. Every
//! record starts at a byte.
//!
//! A *function* is not an address but its distance from the start of the program's text, in units of the alignment of
//! code addresses ([`Layout::function`]). A function whose number is too large for the short form takes the long one;
//! beyond its range the whole address is recorded ([`EventId::EnterFar`]).
//!
//! # Exits without a function
//!
//! A reader knows the function of an exit if it has seen the enter. So the target counts the open calls that were
//! entered *in this packet, in this run of one thread*. The exit of one of these is unnamed; any other exit records its
//! function ([`EventId::ExitNamed`]). The count restarts at 0 in every packet, at every change of the thread
//! ([`EventId::SwitchedIn`], [`EventId::SwitchedOut`], [`EventId::Context`] with another thread), at a
//! [`EventId::Longjmp`] and when recording is turned on. A reader keeps a stack that it clears at the same points: an
//! enter pushes, an unnamed exit pops. Interrupt handlers nest, and change nothing.
//!
//! # Duration mode
//!
//! Packets with [`PacketHeader::FLAG_CALLS`] have no enters and exits: a call is one record, at its end
//! ([`EventId::Call`]), if it took long enough. So calls are in the order of their ends, a callee before its caller,
//! and a reader that needs them nested sorts them by their starts.
//!
//! In packets with [`PacketHeader::FLAG_NESTED`] no exit is named: the reader keeps a stack for each thread, across
//! packets, and an exit that finds it empty has no name.

pub use crate::layout::{ByteOrder, Layout, WordSize};
pub use crate::packet::{METADATA_STREAM, PACKET_MAGIC, PacketHeader};

/// Alignment of the type and the data of an [`EventId::Block`], in bytes.
pub const BLOCK_ALIGN: usize = 4;

/// Type of an [`EventId::Block`] that the program has not finished, or has discarded.
pub const UNFINISHED: u16 = 0;

/// Form of a record: the meaning of its first bits, and its bit layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// An exit soon after the previous record.
    ExitShort,
    /// An enter of a near function soon after the previous record.
    EnterShort,
    /// An exit long after the previous record.
    ExitLong,
    /// An enter long after the previous record, or of a function farther away.
    EnterLong,
    /// Any other event: its [`EventId`] and a payload.
    Other,
    /// Only a timestamp, of 56 bits: at 1 GHz it wraps around in two years.
    Time,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 6] = [
        Self::ExitShort,
        Self::EnterShort,
        Self::ExitLong,
        Self::EnterLong,
        Self::Other,
        Self::Time,
    ];

    /// Returns the form of the record that begins with the byte `first`.
    pub const fn of(order: ByteOrder, first: u8) -> Self {
        let (exit, tag) = match order {
            ByteOrder::Little => (first & 1, first >> 1 & 3),
            ByteOrder::Big => (first >> 7, first >> 5 & 3),
        };
        match (exit, tag) {
            (1, _) => Self::ExitShort,
            (_, 0) => Self::EnterShort,
            (_, 1) => Self::ExitLong,
            (_, 2) => Self::EnterLong,
            _ if Self::other_id(order, first) == EventId::Time as u8 => Self::Time,
            _ => Self::Other,
        }
    }

    /// Returns the [`EventId`], as a number, of a record of the form [`Other`](Self::Other) or [`Time`](Self::Time)
    /// that begins with the byte `first`.
    pub const fn other_id(order: ByteOrder, first: u8) -> u8 {
        match order {
            ByteOrder::Little => first >> 3,
            ByteOrder::Big => first & 31,
        }
    }
}

/// Bit layout of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// For microcontrollers: clocks up to some hundred MHz with an event every few microseconds. The short form has
    /// 8192 function numbers (128 KiB of code, if functions are aligned to 16 bytes), the long form 131072 (256 KiB of
    /// Thumb code without alignment).
    Compact,
    /// For processors with a GHz clock and megabytes of code.
    Wide,
}

impl Shape {
    /// Shape that suits the machine that this is compiled for.
    pub const NATIVE: Self = match WordSize::NATIVE {
        WordSize::Bits32 => Self::Compact,
        WordSize::Bits64 => Self::Wide,
    };

    /// Returns the size of a record's header in bytes; enters and exits have nothing else.
    #[inline(always)]
    pub const fn bytes(self, form: Form) -> usize {
        match (self, form) {
            (Self::Compact, Form::ExitShort) => 1,
            (Self::Compact, Form::EnterShort) => 3,
            (Self::Compact, Form::ExitLong) => 2,
            (Self::Compact, Form::EnterLong) => 4,
            (Self::Wide, Form::ExitShort) => 2,
            (Self::Wide, Form::EnterShort) => 6,
            (Self::Wide, Form::ExitLong) => 4,
            (Self::Wide, Form::EnterLong) => 8,
            (_, Form::Other) => OTHER_BYTES,
            (_, Form::Time) => 8,
        }
    }

    /// Returns the width of the clock in a record in bits.
    #[inline(always)]
    pub const fn time_bits(self, form: Form) -> u32 {
        match form {
            Form::ExitShort => self.bytes(form) as u32 * 8 - 1,
            Form::EnterShort | Form::ExitLong | Form::EnterLong => {
                self.bytes(form) as u32 * 8 - 3 - self.function_bits(form)
            }
            Form::Other => OTHER_BITS,
            Form::Time => TIME_BITS,
        }
    }

    /// Returns the width of the function in a record in bits; 0 if there is none.
    #[inline(always)]
    pub const fn function_bits(self, form: Form) -> u32 {
        match (self, form) {
            (Self::Compact, Form::EnterShort) => 13,
            (Self::Compact, Form::EnterLong) => 17,
            (Self::Wide, Form::EnterShort) => 24,
            (Self::Wide, Form::EnterLong) => 32,
            _ => 0,
        }
    }

    /// Returns the width in bits of a function that is a field of its own ([`EventId::ExitNamed`],
    /// [`EventId::EnterFrom`]).
    pub const fn named_bits(self) -> u32 {
        match self {
            Self::Compact => 24,
            Self::Wide => 32,
        }
    }

    /// Returns `compact` or `wide`, as in metadata and on the link.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Wide => "wide",
        }
    }

    /// Parses a [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "compact" => Some(Self::Compact),
            "wide" => Some(Self::Wide),
            _ => None,
        }
    }

    /// Encodes an enter or exit as the integer of [`bytes`](Self::bytes) bytes that the target stores in its own byte
    /// order.
    ///
    /// `time` may have more bits than fit, `function` may not; it is 0 in an exit.
    #[inline(always)]
    pub const fn call_record(self, order: ByteOrder, form: Form, time: u64, function: u32) -> u64 {
        let (tag, tag_bits) = match form {
            Form::ExitShort => (1, 1),
            Form::EnterShort => (0, 3),
            Form::ExitLong => (1, 3),
            Form::EnterLong => (2, 3),
            Form::Other | Form::Time => (3, 3),
        };
        let time = time & mask(self.time_bits(form));
        match order {
            // The two bits follow the first one, which is the lowest.
            ByteOrder::Little => {
                let tag = if tag_bits == 1 { 1 } else { tag << 1 };
                tag | time << tag_bits | (function as u64) << (tag_bits + self.time_bits(form))
            }
            ByteOrder::Big => {
                let total = self.bytes(form) as u32 * 8;
                tag << (total - tag_bits) | time << self.function_bits(form) | function as u64
            }
        }
    }

    /// Encodes the header of any other record ([`Form::Other`]) as such an integer, of [`OTHER_BYTES`] bytes in any
    /// shape.
    #[inline(always)]
    pub const fn other_header(order: ByteOrder, id: EventId, time: u64) -> u64 {
        header(order, id, time, OTHER_BITS)
    }

    /// Encodes a [`Form::Time`] record: 8 bytes in any shape.
    #[inline(always)]
    pub const fn time_record(order: ByteOrder, time: u64) -> u64 {
        header(order, EventId::Time, time, TIME_BITS)
    }
}

/// Size of the header of a record of the form [`Form::Other`] in bytes, in any shape. Three more bytes of time would
/// avoid the 8 bytes of a `time` record before a late one. But that would pay only if more than three in eight came
/// late, and most come among calls, even with a fast clock.
pub const OTHER_BYTES: usize = 3;

/// Width of the clock in such a header in bits: the rest after the id.
pub const OTHER_BITS: u32 = OTHER_BYTES as u32 * 8 - 8;

/// Width of the clock in a [`Form::Time`] record in bits.
pub const TIME_BITS: u32 = 56;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[inline(always)]
const fn header(order: ByteOrder, id: EventId, time: u64, time_bits: u32) -> u64 {
    let time = time & mask(time_bits);
    match order {
        ByteOrder::Little => 6 | (id as u64) << 3 | time << 8,
        ByteOrder::Big => (3 << 5 | id as u64) << time_bits | time,
    }
}

/// Kinds of events, with their `id` in the metadata. Some have the same name and differ in form.
///
/// The payload is given in the order of its fields; `word` is 4 or 8 bytes ([`WordSize`]), `function` has
/// [`Shape::named_bits`], every field starts at a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventId {
    /// Entry to a function ([`Form::EnterShort`]): `function`, in the bits after the time.
    Enter = 0,
    /// Exit from the function entered last ([`Form::ExitShort`], [`Form::ExitLong`]). No payload.
    Exit = 1,
    /// Like [`Enter`](Self::Enter), in the form [`Form::EnterLong`].
    EnterLong = 2,
    /// Exit from a function whose enter is not in this packet: `function`.
    ExitNamed = 4,
    /// Entry to a function outside the range of `function`. `word address`: run-time address.
    EnterFar = 5,
    /// Exit from such a function, whose enter is not in this packet. `word address`.
    ExitFar = 6,
    /// Entry to a function with its call site. `function, word caller`: the return address.
    EnterFrom = 7,
    /// Likewise outside the range of `function`. `word address, word caller`.
    EnterFarFrom = 8,
    /// Change of thread or priority without a recorded switch. `word thread, i16 priority, u16 mode`.
    Context = 9,
    /// A thread got the CPU. `word thread`.
    SwitchedIn = 10,
    /// Likewise for a thread near the one in the packet's header, if that is not 0. `i16 thread_offset`: the distance
    /// from there in units of 4 bytes.
    SwitchedInNear = 11,
    /// The running thread lost the CPU. No payload.
    SwitchedOut = 12,
    /// A thread other than the running one lost the CPU. `word thread`. In the stream of a thread, with that thread: it
    /// has ended.
    SwitchedOutNamed = 13,
    /// An interrupt handler began. `u8 irq`: the architecture's number (on Cortex-M the exception number, 15 = SysTick,
    /// 16 = IRQ 0; on Linux the signal).
    IsrEnter = 14,
    /// Likewise with a number above 255. `u16 irq`.
    IsrEnterWide = 15,
    /// The innermost interrupt handler ended. No payload.
    IsrExit = 16,
    /// An interrupt handler ended whose start is unknown, or that is not the innermost. `u16 irq`.
    IsrExitNamed = 17,
    /// A marker of the program. `u32 value`.
    Marker = 18,
    /// A marker with a name. `word name, u32 value`: `name` is the address of a constant, NUL-terminated string in the
    /// program's image.
    NamedMarker = 19,
    /// Data that is recorded once. `u16 type, u16 length, u8 value[length]`: a [`MetadataType`].
    Metadata = 20,
    /// The clock's extension to 64 bits is uncertain between the previous record and this one: at least this time
    /// passed, maybe plus whole wraparounds of the counter. `u64 ticks`: the minimum time.
    ClockGap = 21,
    /// Recording was turned on or off. `u8 on, u8 cause`: a [`Cause`].
    Recording = 22,
    /// `setjmp` is about to be called. `word jmp_buf`: the address of its buffer.
    Setjmp = 23,
    /// `longjmp` is about to be called: it abandons the calls entered since the last [`Setjmp`](Self::Setjmp) of this
    /// thread with the same buffer. `word jmp_buf`.
    Longjmp = 24,
    /// The wall-clock time at this record's timestamp. `u64 ns, u32 uncertainty`: nanoseconds since 1970 UTC, and their
    /// uncertainty in either direction; 0 if that is unknown.
    WallClock = 25,
    /// A record of the program's own. `u16 type, u16 length, u8 data[length]`, where `type` is aligned to
    /// [`BLOCK_ALIGN`] bytes in the packet. With type [`UNFINISHED`] the program was still writing it, or discarded it;
    /// its data is invalid.
    Block = 26,
    /// A whole call that ends here, in duration mode: `function, u32 duration, u32 self_time, word thread`, times in
    /// ticks. The self time is the duration minus that of all callees, recorded or not.
    Call = 27,
    /// Likewise for a function outside the range of `function`, or for a longer call: `word address, u64 duration, u64
    /// self_time, word thread`.
    CallFar = 28,
    /// A call that has not ended yet, with its duration so far; written when a reader requests the recording. The
    /// payload is that of [`CallFar`](Self::CallFar).
    CallOpen = 29,
    /// A call that was found to be over, although its exit was never seen (a jump abandoned it, for example). The
    /// payload is that of [`CallFar`](Self::CallFar).
    CallLost = 30,
    /// Timestamp record: the time to the next record is longer than that record's time field covers. No payload.
    Time = 31,
}

impl EventId {
    /// All kinds, by id.
    pub const ALL: [Self; 31] = [
        Self::Enter,
        Self::Exit,
        Self::EnterLong,
        Self::ExitNamed,
        Self::EnterFar,
        Self::ExitFar,
        Self::EnterFrom,
        Self::EnterFarFrom,
        Self::Context,
        Self::SwitchedIn,
        Self::SwitchedInNear,
        Self::SwitchedOut,
        Self::SwitchedOutNamed,
        Self::IsrEnter,
        Self::IsrEnterWide,
        Self::IsrExit,
        Self::IsrExitNamed,
        Self::Marker,
        Self::NamedMarker,
        Self::Metadata,
        Self::ClockGap,
        Self::Recording,
        Self::Setjmp,
        Self::Longjmp,
        Self::WallClock,
        Self::Block,
        Self::Call,
        Self::CallFar,
        Self::CallOpen,
        Self::CallLost,
        Self::Time,
    ];

    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|id| *id as u8 == number)
    }

    /// Returns the name in the metadata and in every output. Kinds that differ only in form share it; their fields have
    /// different names if they mean different things.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enter | Self::EnterLong => "enter",
            Self::Exit | Self::ExitNamed => "exit",
            Self::EnterFar => "enter_far",
            Self::ExitFar => "exit_far",
            Self::EnterFrom => "enter_from",
            Self::EnterFarFrom => "enter_far_from",
            Self::Context => "context",
            Self::SwitchedIn | Self::SwitchedInNear => "switched_in",
            Self::SwitchedOut | Self::SwitchedOutNamed => "switched_out",
            Self::IsrEnter | Self::IsrEnterWide => "isr_enter",
            Self::IsrExit | Self::IsrExitNamed => "isr_exit",
            Self::Marker => "marker",
            Self::NamedMarker => "named_marker",
            Self::Metadata => "metadata",
            Self::ClockGap => "clock_gap",
            Self::Recording => "recording",
            Self::Setjmp => "setjmp",
            Self::Longjmp => "longjmp",
            Self::WallClock => "wall_clock",
            Self::Block => "block",
            Self::Call | Self::CallFar => "call",
            Self::CallOpen => "call_open",
            Self::CallLost => "call_lost",
            Self::Time => "time",
        }
    }
}

/// Content of an [`EventId::Metadata`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MetadataType {
    /// The name of a thread: `word thread`, then the name in UTF-8.
    ThreadName = 1,
    /// The build id of the program (the ELF note of that name), usually 20 bytes.
    BuildId = 2,
    /// The clock: `u64` frequency in ticks per second, `u32` width in bits of the counter that is extended to 64.
    Clock = 3,
    /// The name of an interrupt: `u16 irq, u16 reserved`, then the name in UTF-8.
    IsrName = 4,
    /// The overhead of recording, in the encoding before [`Measured`](Self::Measured): a sequence of
    /// [`Cost`](crate::cost::Cost)s.
    Cost = 5,
    /// The target's measurement of two of its own hooks: a [`Measured`](crate::cost::Measured).
    Measured = 6,
    /// An ELF file (a program or a shared library) is in memory from here on: `word image`, a number that is unique
    /// among records of this type; `word start`, the lowest address of its segments; `word bytes`, the size up to the
    /// highest; then its build id, if it has one. Of libraries only those with functions that were called.
    Image = 7,
    /// A part of an image's path: `word image`, `u8 part`, counting from 0, then bytes of the path.
    ImagePath = 8,
    /// An image was found to be unloaded: `word image`.
    ImageUnloaded = 9,
    /// Comparison of the target's clock with its periodic tick: a [`TickCheck`](crate::clock_check::TickCheck). The
    /// target updates the record in place.
    TickCheck = 10,
    /// Comparison of the target's clock with a host's: a [`HostCheck`](crate::clock_check::HostCheck), which that host
    /// adds.
    HostCheck = 11,
}

impl MetadataType {
    /// Returns the type with this number.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::ThreadName),
            2 => Some(Self::BuildId),
            3 => Some(Self::Clock),
            4 => Some(Self::IsrName),
            5 => Some(Self::Cost),
            6 => Some(Self::Measured),
            7 => Some(Self::Image),
            8 => Some(Self::ImagePath),
            9 => Some(Self::ImageUnloaded),
            10 => Some(Self::TickCheck),
            11 => Some(Self::HostCheck),
            _ => None,
        }
    }
}

/// Reason why recording was turned on or off ([`EventId::Recording`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The configuration: on from the start.
    Build = 0,
    /// Entry to the trigger, or exit from the stopper.
    Function = 1,
    /// A command over the link, or a call by the program.
    Command = 2,
}

impl Cause {
    /// Returns the cause with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Build),
            1 => Some(Self::Function),
            2 => Some(Self::Command),
            _ => None,
        }
    }

    /// Returns the name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Function => "function",
            Self::Command => "command",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Shape; 2] = [Shape::Compact, Shape::Wide];
    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    #[test]
    fn forms_have_the_bits_of_the_table() {
        let table = Form::ALL.map(|form| {
            SHAPES.map(|shape| {
                (
                    shape.bytes(form),
                    shape.time_bits(form),
                    shape.function_bits(form),
                )
            })
        });
        assert_eq!(
            table,
            [
                [(1, 7, 0), (2, 15, 0)],
                [(3, 8, 13), (6, 21, 24)],
                [(2, 13, 0), (4, 29, 0)],
                [(4, 12, 17), (8, 29, 32)],
                [(3, 16, 0), (3, 16, 0)],
                [(8, 56, 0), (8, 56, 0)],
            ]
        );
    }

    #[test]
    fn records_fill_their_bits_from_the_right_end() {
        use ByteOrder::{Big, Little};
        let compact =
            |order, form, time, function| Shape::Compact.call_record(order, form, time, function);
        assert_eq!(compact(Little, Form::ExitShort, 0x1FF, 0), 0xFF);
        assert_eq!(compact(Little, Form::ExitShort, 0x101, 0), 3);
        assert_eq!(compact(Big, Form::ExitShort, 0x101, 0), 0x81);
        assert_eq!(compact(Little, Form::EnterShort, 0x1FF, 0x1FFF), 0xFF_FFF8);
        assert_eq!(compact(Little, Form::EnterShort, 1, 1), 0x808);
        assert_eq!(compact(Big, Form::EnterShort, 1, 1), 0x2001);
        assert_eq!(compact(Little, Form::ExitLong, 0x2001, 0), 0xA);
        assert_eq!(compact(Big, Form::ExitLong, 0x2001, 0), 0x2001);
        assert_eq!(compact(Little, Form::EnterLong, 1, 1), 0x800C);
        assert_eq!(compact(Big, Form::EnterLong, 1, 1), 0x4002_0001);
        let record = Shape::Wide.call_record(Big, Form::EnterLong, 1, 1);
        assert_eq!(record, 0x4000_0001_0000_0001);
        let header = Shape::other_header(Little, EventId::Marker, 0x1AB_CDEF);
        assert_eq!(header, 0xCD_EF96);
        let header = Shape::other_header(Big, EventId::Marker, 0x1AB_CDEF);
        assert_eq!(header, 0x72_CDEF);
        assert_eq!(Shape::time_record(Little, 5), 0x5FE);
        assert_eq!(Shape::time_record(Big, 5), 0x7F00_0000_0000_0005);
    }

    #[test]
    fn the_first_byte_tells_the_form() {
        for (shape, order) in SHAPES.into_iter().flat_map(|s| ORDERS.map(|o| (s, o))) {
            let first = |value: u64, bytes: usize| match order {
                ByteOrder::Little => value as u8,
                ByteOrder::Big => (value >> (8 * bytes - 8)) as u8,
            };
            for form in Form::ALL {
                let bytes = shape.bytes(form);
                for time in [0, u64::MAX] {
                    let record = match form {
                        Form::Other => Shape::other_header(order, EventId::Block, time),
                        Form::Time => Shape::time_record(order, time),
                        _ => shape.call_record(order, form, time, 0),
                    };
                    let first = first(record, bytes);
                    assert_eq!(Form::of(order, first), form);
                    if form == Form::Other {
                        assert_eq!(Form::other_id(order, first), EventId::Block as u8);
                    }
                }
            }
        }
    }

    #[test]
    fn ids_are_their_numbers() {
        for id in EventId::ALL {
            assert_eq!(EventId::from_number(id as u8), Some(id));
        }
        for free in [3, 32] {
            assert_eq!(EventId::from_number(free), None);
        }
    }
}
