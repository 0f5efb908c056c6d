//! How records are laid out.
//!
//! A *packet* is a self-contained run of events of one stream (one CPU, or one thread of a Linux
//! process): a [`PacketHeader`], then event records without padding between them. A *record* is an
//! event header (which kind, and the low bits of the clock) followed by its payload. Enters and
//! exits are nearly all there is, most of them come soon after the record before, and an exit is
//! nearly always that of the function entered last; so there are several [forms](Form) of header,
//! told apart by their first bits, and the usual records are a few bytes long:
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
//! The first bit, the next two and the next five are CTF's `id`, each of them; the last that is read
//! is the event's ([`EventId`]).
//!
//! A time is the low bits of the stream's clock, as CTF defines partial clock updates: the reader
//! takes the next moment at which the clock had these low bits. So a record may only use a form
//! whose time field is wider than the distance from the record before it; the encoder puts an
//! [`EventId::Time`] record in between where none is.
//!
//! Bit fields fill a record from its least significant bit on little-endian targets and from its
//! most significant bit on big-endian ones (CTF 1.8, section 4.1.2), so that on either a record of
//! a [`Shape`] is one integer store. Every record starts at a byte.
//!
//! A *function* is not an address but its distance from the start of the program's text, in
//! multiples of the granularity of code addresses ([`Layout::function`]). One whose number is too
//! large for the short form takes the long one; what lies outside of that is recorded with its whole
//! address ([`EventId::EnterFar`]).
//!
//! # Exits without a function
//!
//! A reader knows which function an exit leaves when it has seen the enter. So the target counts
//! the calls that were entered *in this packet, in this run of one thread* and have not been left:
//! an exit of one of these is unnamed, any other exit says which function it leaves
//! ([`EventId::ExitNamed`]). The count begins at 0 in every packet, at every change of the thread
//! ([`EventId::SwitchedIn`], [`EventId::SwitchedOut`], [`EventId::Context`] with another thread), at a
//! [`EventId::Longjmp`] and when recording is turned on. A reader keeps a stack that it clears at the
//! same places: an enter pushes, an unnamed exit pops. Interrupt handlers nest, and change nothing.
//!
//! # Duration mode
//!
//! In packets with [`PacketHeader::FLAG_CALLS`] there are no enters and exits: a call is one record, at its end
//! ([`EventId::Call`]), if it took long enough. So calls stand in the order of their ends, a callee before its caller,
//! and a reader who wants them nested sorts them by their beginnings.
//!
//! In packets with [`PacketHeader::FLAG_NESTED`] no exit is named: the reader keeps a stack for each
//! thread, over packets, and an exit that finds it empty has no name.

pub use crate::layout::{ByteOrder, Layout, WordSize};
pub use crate::packet::{METADATA_STREAM, PACKET_MAGIC, PacketHeader};

/// What the type and the data of an [`EventId::Block`] are aligned to, in bytes.
pub const BLOCK_ALIGN: usize = 4;

/// The type of an [`EventId::Block`] that is not, or not yet, what the program meant it to be.
pub const UNFINISHED: u16 = 0;

/// How a record begins: what its first bits say, and how it shares its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// An exit soon after the record before.
    ExitShort,
    /// An enter of a near function soon after the record before.
    EnterShort,
    /// An exit later.
    ExitLong,
    /// An enter later, or of a function further off.
    EnterLong,
    /// Any other event: its [`EventId`] and a payload.
    Other,
    /// Only a time, of 56 bits: at 1 GHz these turn over in two years.
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

    /// The form of the record that begins with the byte `first`.
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

    /// The [`EventId`], as a number, of a record of the form [`Other`](Self::Other) or
    /// [`Time`](Self::Time) that begins with the byte `first`.
    pub const fn other_id(order: ByteOrder, first: u8) -> u8 {
        match order {
            ByteOrder::Little => first >> 3,
            ByteOrder::Big => first & 31,
        }
    }
}

/// How records share their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// For microcontrollers: clocks up to some hundred MHz with an event every few microseconds;
    /// 8192 places for functions in the short form (128 KiB of code, if functions are aligned to 16
    /// bytes), 131072 in the long one (256 KiB of Thumb code that is not aligned).
    Compact,
    /// For processors with a GHz clock and megabytes of code.
    Wide,
}

impl Shape {
    /// The shape that suits the machine this is compiled for.
    pub const NATIVE: Self = match WordSize::NATIVE {
        WordSize::Bits32 => Self::Compact,
        WordSize::Bits64 => Self::Wide,
    };

    /// The bytes of a record's header, which of enters and exits is all there is.
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

    /// The bits of the clock in a record.
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

    /// The bits of the function in a record; 0 where there is none.
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

    /// The bits of the function where it is a field of its own ([`EventId::ExitNamed`],
    /// [`EventId::EnterFrom`]).
    pub const fn named_bits(self) -> u32 {
        match self {
            Self::Compact => 24,
            Self::Wide => 32,
        }
    }

    /// `compact` or `wide`, as metadata and the link write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Wide => "wide",
        }
    }

    /// The opposite of [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "compact" => Some(Self::Compact),
            "wide" => Some(Self::Wide),
            _ => None,
        }
    }

    /// An enter or exit as the integer of [`bytes`](Self::bytes) bytes that the target stores in its
    /// own byte order.
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
            // The two bits stand behind the first one, which is the lowest.
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

    /// The header of any other record ([`Form::Other`]) as such an integer, of [`OTHER_BYTES`] bytes in
    /// any shape.
    #[inline(always)]
    pub const fn other_header(order: ByteOrder, id: EventId, time: u64) -> u64 {
        header(order, id, time, OTHER_BITS)
    }

    /// A [`Form::Time`] record: 8 bytes in any shape.
    #[inline(always)]
    pub const fn time_record(order: ByteOrder, time: u64) -> u64 {
        header(order, EventId::Time, time, TIME_BITS)
    }
}

/// The bytes of the header of a record of the form [`Form::Other`], in any shape. Three bytes more of time
/// would spare those that come late the 8 of a `time` record; but more than three in eight would have to
/// come late for that to pay, and on a fast clock, too, most stand among calls.
pub const OTHER_BYTES: usize = 3;

/// The bits of the clock in such a header: what the id leaves.
pub const OTHER_BITS: u32 = OTHER_BYTES as u32 * 8 - 8;

/// The bits of the clock in a [`Form::Time`] record.
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

/// The kinds of events, as their `id` in the metadata. Some have the same name and differ in form.
///
/// The payload is given in the order of its fields; `word` is 4 or 8 bytes ([`WordSize`]), `function`
/// has [`Shape::named_bits`], every field starts at a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventId {
    /// A function was entered ([`Form::EnterShort`]): `function`, in the bits behind the time.
    Enter = 0,
    /// The function entered last was left ([`Form::ExitShort`], [`Form::ExitLong`]). No payload.
    Exit = 1,
    /// As [`Enter`](Self::Enter), in the form [`Form::EnterLong`].
    EnterLong = 2,
    /// A function was left whose enter is not in this packet: `function`.
    ExitNamed = 4,
    /// A function outside the range of `function` was entered. `word address`: run-time address.
    EnterFar = 5,
    /// One such was left whose enter is not in this packet. `word address`.
    ExitFar = 6,
    /// A function was entered from a known place. `function, word caller`: the return address.
    EnterFrom = 7,
    /// The same outside the range of `function`. `word address, word caller`.
    EnterFarFrom = 8,
    /// Thread or priority changed without a recorded switch. `word thread, i16 priority, u16 mode`.
    Context = 9,
    /// A thread got the CPU. `word thread`.
    SwitchedIn = 10,
    /// The same for a thread near to the one that the packet's header names, if it names one.
    /// `i16 thread_offset`: the distance from there in units of 4 bytes.
    SwitchedInNear = 11,
    /// The thread that ran lost the CPU. No payload.
    SwitchedOut = 12,
    /// Another thread than the one that is known to run lost the CPU. `word thread`. In the stream of a thread, of
    /// that thread: it has ended.
    SwitchedOutNamed = 13,
    /// An interrupt handler began. `u8 irq`: the number as the architecture counts (on Cortex-M the
    /// exception number, 15 = SysTick, 16 = IRQ 0; on Linux the signal).
    IsrEnter = 14,
    /// The same with a number above 255. `u16 irq`.
    IsrEnterWide = 15,
    /// The innermost interrupt handler ended. No payload.
    IsrExit = 16,
    /// An interrupt handler ended whose beginning is not known, or not as the innermost. `u16 irq`.
    IsrExitNamed = 17,
    /// The program says something. `u32 value`.
    Marker = 18,
    /// The same with a name. `word name, u32 value`: `name` is the address of a constant,
    /// NUL-terminated string in the program's image.
    NamedMarker = 19,
    /// Something to know once. `u16 type, u16 length, u8 value[length]`: a [`MetadataType`].
    Metadata = 20,
    /// The clock's extension to 64 bits is uncertain from here back to the record before: at
    /// least this time passed, maybe whole turns of the counter more. `u64 ticks`: the least time.
    ClockGap = 21,
    /// Recording was turned on or off. `u8 on, u8 cause`: a [`Cause`].
    Recording = 22,
    /// `setjmp` is about to be called. `word jmp_buf`: the address of its buffer.
    Setjmp = 23,
    /// `longjmp` is about to be called: the calls that were entered since the last
    /// [`Setjmp`](Self::Setjmp) of this thread with the same buffer are left. `word jmp_buf`.
    Longjmp = 24,
    /// The time of day at this record's time. `u64 ns, u32 uncertainty`: nanoseconds since 1970 in
    /// UTC, and by how many they may be wrong, either way; 0 if that is not known.
    WallClock = 25,
    /// What the program itself put into the stream. `u16 type, u16 length, u8 data[length]`, where
    /// `type` is aligned to [`BLOCK_ALIGN`] bytes in the packet. Of type [`UNFINISHED`]: what the
    /// program was still writing, or gave up; its data means nothing.
    Block = 26,
    /// A whole call that ends here, in duration mode: `function, u32 duration, u32 self_time, word thread`, times in
    /// ticks. The self time is the duration less that of all calls that it made, recorded or not.
    Call = 27,
    /// The same of a function outside the range of `function`, or of a longer call: `word address, u64 duration, u64
    /// self_time, word thread`.
    CallFar = 28,
    /// A call that has not ended yet, as far as it has come; a reader of the recording asked for it. The payload is
    /// that of [`CallFar`](Self::CallFar).
    CallOpen = 29,
    /// A call that was found to be over: its exit was never seen (a jump left it, say). The payload is that of
    /// [`CallFar`](Self::CallFar).
    CallLost = 30,
    /// Only a time: what follows lies further away than its own time field reaches. No payload.
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

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|id| *id as u8 == number)
    }

    /// The name in the metadata and in every output. Kinds that differ in form alone share it; their
    /// fields have different names where they mean different things.
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

/// What a [`EventId::Metadata`] record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MetadataType {
    /// The name of a thread: `word thread`, then the name in UTF-8.
    ThreadName = 1,
    /// The build id of the program (the ELF note of that name), 20 bytes as a rule.
    BuildId = 2,
    /// The clock: `u64` ticks a second, `u32` bits of the counter that is extended to 64.
    Clock = 3,
    /// The name of an interrupt: `u16 irq, u16 reserved`, then the name in UTF-8.
    IsrName = 4,
    /// What recording costs, as targets told it before they told [`Measured`](Self::Measured): one
    /// [`Cost`](crate::cost::Cost) after the other.
    Cost = 5,
    /// What the target measured of two of its own hooks: a [`Measured`](crate::cost::Measured).
    Measured = 6,
    /// An ELF file (a program or a shared library) lies in memory from here on: `word image`, a number that no
    /// other record of this type has, `word start`, the lowest address of its segments, `word bytes` up to
    /// the highest, then its build id, if it has one. Of libraries only those with functions that were called.
    Image = 7,
    /// A part of an image's path: `word image`, `u8 part`, counting from 0, then bytes of the path.
    ImagePath = 8,
    /// An image has been found to be unloaded: `word image`.
    ImageUnloaded = 9,
    /// The target's clock compared with its periodic tick: a [`TickCheck`](crate::clock_check::TickCheck). The
    /// target brings it up to date in its place.
    TickCheck = 10,
    /// The target's clock compared with a host's: a [`HostCheck`](crate::clock_check::HostCheck), which that host
    /// adds.
    HostCheck = 11,
}

impl MetadataType {
    /// The type with this number.
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

/// Why recording was turned on or off ([`EventId::Recording`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The build says so.
    Build = 0,
    /// The trigger was entered, or the stopper was left.
    Function = 1,
    /// A command over the link, or a call of the program's.
    Command = 2,
}

impl Cause {
    /// The cause with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Build),
            1 => Some(Self::Function),
            2 => Some(Self::Command),
            _ => None,
        }
    }

    /// The name in every output.
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
