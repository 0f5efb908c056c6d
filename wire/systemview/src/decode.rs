//! Decodes one packet.

use crate::error::{DecodeError, Problem};
use crate::packet::{FIRST_WITH_LENGTH, Form, Ids, Length, Packet, Payload, Text, TextOrder};
use crate::varint;

/// Maximum size of a payload that is read, in bytes. Targets without `SUPPORT_LONG_DATA` can write 16 KiB.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 16;

/// A packet with its timestamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoded<'a> {
    /// The packet.
    pub packet: Packet<'a>,
    /// Ticks since the previous packet in its stream.
    pub delta: u32,
    /// The form in which it was written: the given form, corrected by this packet.
    pub form: Form,
    /// Its size in bytes.
    pub bytes: usize,
}

/// Decodes the packet at the start of `bytes`. `form` is what is known of the target so far.
///
/// With [`Length::Id`], the payload's length is unknown for events that a description names: such a packet is read as
/// if it had `arguments` numbers.
///
/// # Errors
/// [`DecodeError`] if bytes are missing, or if they are not a packet.
pub fn decode(bytes: &[u8], form: Form, payload: Payload) -> Result<Decoded<'_>, DecodeError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        form,
        long_text: false,
        far: false,
    };
    let packet = reader.packet(payload)?;
    let delta = reader.number()?;
    Ok(Decoded {
        packet,
        delta,
        form: reader.form,
        bytes: reader.at,
    })
}

/// Returns the bit of an id that identifies the core: bit 6 of its last byte.
pub(crate) const fn core_bit(id: u32) -> u32 {
    match id {
        0..128 => 1 << 6,
        _ => 1 << 13,
    }
}

/// Limit above which a text's length is more likely written in the other byte order.
const FAR: u16 = 4096;

#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    form: Form,
    /// Whether a text of 255 bytes or more was found, and one that is longer than targets send.
    long_text: bool,
    far: bool,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    const fn error(&self, problem: Problem) -> DecodeError {
        DecodeError {
            offset: self.at,
            problem,
        }
    }

    #[inline]
    fn number(&mut self) -> Result<u32, DecodeError> {
        let (value, size) = varint::read(self.rest()).map_err(|problem| self.error(problem))?;
        self.at += size;
        Ok(value)
    }

    /// Reads an id or a length. 127 may take two bytes; also returns whether it did.
    fn header_number(&mut self) -> Result<(u32, bool), DecodeError> {
        let (value, size) =
            varint::read_loose(self.rest()).map_err(|problem| self.error(problem))?;
        let needed = varint::encoded(value).1;
        if size != needed && (value, size) != (127, 2) {
            return Err(self.error(Problem::Number));
        }
        self.at += size;
        Ok((value, size != needed))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest().get(..count);
        let taken = taken.ok_or(self.error(Problem::Incomplete))?;
        self.at += count;
        Ok(taken)
    }

    fn text(&mut self) -> Result<Text<'a>, DecodeError> {
        let [first] = *self.take(1)? else {
            return Err(self.error(Problem::Incomplete));
        };
        if first < 255 {
            return self.take(first.into()).map(Text);
        }
        let [low, high] = *self.take(2)? else {
            return Err(self.error(Problem::Incomplete));
        };
        let length = match self.form.text {
            TextOrder::Little => u16::from_le_bytes([low, high]),
            TextOrder::Big => u16::from_be_bytes([low, high]),
        };
        self.long_text = true;
        self.far |= length > FAR;
        // No target writes a length this way if it fits into one byte.
        if length < 255 {
            return Err(self.error(Problem::Number));
        }
        self.take(length.into()).map(Text)
    }

    fn packet(&mut self, payload: Payload) -> Result<Packet<'a>, DecodeError> {
        let (id, wide) = self.header_number()?;
        let id = self.without_core(id);
        if id == 127 {
            self.form.wide_id = wide;
        }
        if id < FIRST_WITH_LENGTH {
            return self.in_either_order(|reader| reader.fields(id, None));
        }
        let first = self.rest().first().copied();
        // The payload of this packet is never as long as its id.
        if id == 24 && first == Some(24) {
            self.form.length = Length::Id;
        }
        if self.form.length == Length::Id && first == Some(id as u8) {
            self.at += 1;
            return self.without_length(id, payload);
        }
        let (length, wide) = self.header_number()?;
        match self.form.length {
            Length::Id if length < 127 || length == 127 && !wide => {
                return Err(self.error(Problem::Implausible));
            }
            Length::Bytes | Length::Wide if length == 127 => {
                self.form.length = match wide {
                    true => Length::Wide,
                    false => Length::Bytes,
                };
            }
            _ => {}
        }
        if length > MAX_PAYLOAD {
            return Err(self.error(Problem::Length { found: length }));
        }
        let (start, length) = (self.at, length as usize);
        let payload = self.take(length)?;
        if id == 30 || id > 31 {
            return Ok(Packet::Event { id, payload });
        }
        let bytes = self.bytes;
        self.bytes = bytes.get(..self.at).unwrap_or_default();
        self.at = start;
        let packet = self.in_either_order(|reader| {
            let packet = reader.fields(id, Some(length))?;
            match reader.rest().is_empty() {
                true => Ok(packet),
                false => Err(reader.error(Problem::Fields {
                    expected: length,
                    found: reader.at - start,
                })),
            }
        });
        self.bytes = bytes;
        // The whole payload is present: fields that need more are wrong.
        packet.map_err(|error| match error.problem {
            Problem::Incomplete => DecodeError {
                offset: start,
                problem: Problem::Fields {
                    expected: length,
                    found: length + 1,
                },
            },
            _ => error,
        })
    }

    /// Removes the core bit from an id, if it has one.
    fn without_core(&mut self, id: u32) -> u32 {
        if self.form.second_core.is_none() {
            return id;
        }
        let bit = core_bit(id);
        self.form.second_core = Some(id & bit != 0);
        id & !bit
    }

    /// Reads the rest of a packet with its id instead of its length: it is shorter than 127 bytes.
    fn without_length(&mut self, id: u32, payload: Payload) -> Result<Packet<'a>, DecodeError> {
        let start = self.at;
        let packet = match id {
            24..=29 | 31 => self.in_either_order(|reader| reader.fields(id, None))?,
            _ => {
                match payload {
                    Payload::Bytes(bytes) => _ = self.take(bytes)?,
                    Payload::Parameters { count, texts } => {
                        for place in 0..count {
                            match texts.checked_shr(place).is_some_and(|texts| texts & 1 == 1) {
                                true => _ = self.text()?,
                                false => _ = self.number()?,
                            }
                        }
                    }
                }
                let payload = self.bytes.get(start..self.at).unwrap_or_default();
                Packet::Event { id, payload }
            }
        };
        match self.at - start < 127 {
            true => Ok(packet),
            false => Err(self.error(Problem::Implausible)),
        }
    }

    /// Retries with the other byte order of long texts if the assumed one does not fit.
    fn in_either_order(
        &mut self,
        read: impl Fn(&mut Self) -> Result<Packet<'a>, DecodeError>,
    ) -> Result<Packet<'a>, DecodeError> {
        let before = self.clone();
        let first = read(self);
        match first {
            Err(error) if self.long_text && (error.problem != Problem::Incomplete || self.far) => {}
            _ => return first,
        }
        let mut other = before;
        other.form.text = match other.form.text {
            TextOrder::Little => TextOrder::Big,
            TextOrder::Big => TextOrder::Little,
        };
        match read(&mut other) {
            Ok(packet) => {
                *self = other;
                Ok(packet)
            }
            Err(_) => first,
        }
    }

    /// Reads the fields of a packet with an id below 32; `length` is that of its payload, if known.
    fn fields(&mut self, id: u32, length: Option<usize>) -> Result<Packet<'a>, DecodeError> {
        Ok(match id {
            0 => Packet::Nop,
            1 => Packet::Overflow {
                total: self.number()?,
            },
            2 => Packet::IsrEnter {
                irq: self.number()?,
            },
            3 => Packet::IsrExit,
            4 => Packet::TaskStartExec {
                task: self.number()?,
            },
            5 => Packet::TaskStopExec,
            6 => Packet::TaskStartReady {
                task: self.number()?,
            },
            7 => Packet::TaskStopReady {
                task: self.number()?,
                cause: self.number()?,
            },
            8 => Packet::TaskCreate {
                task: self.number()?,
            },
            9 => Packet::TaskInfo {
                task: self.number()?,
                priority: self.number()?,
                name: self.text()?,
            },
            10 => Packet::TraceStart,
            11 => Packet::TraceStop,
            12 => Packet::SystemTimeCycles {
                cycles: self.number()?,
            },
            13 => Packet::SystemTimeUs {
                us: u64::from(self.number()?) | u64::from(self.number()?) << 32,
            },
            14 => Packet::SystemDescription { text: self.text()? },
            15 => Packet::MarkStart { id: self.number()? },
            16 => Packet::MarkStop { id: self.number()? },
            17 => Packet::Idle,
            18 => Packet::IsrToScheduler,
            19 => Packet::TimerEnter {
                timer: self.number()?,
            },
            20 => Packet::TimerExit,
            21 => Packet::StackInfo {
                task: self.number()?,
                base: self.number()?,
                size: self.number()?,
                usage: self.number()?,
            },
            22 => Packet::ModuleDescription {
                module: self.number()?,
                offset: self.number()?,
                text: self.text()?,
            },
            23 => Packet::DataSample {
                id: self.number()?,
                value: self.number()?,
            },
            24 => Packet::Init {
                frequency: self.number()?,
                cpu_frequency: self.number()?,
                ids: Ids {
                    base: self.number()?,
                    shift: self.number()?,
                },
            },
            25 => Packet::NameResource {
                resource: self.number()?,
                name: self.text()?,
            },
            26 => {
                let (format, options, count) = (self.text()?, self.number()?, self.number()?);
                let arguments = self.numbers_or_all(count, length)?;
                Packet::Print {
                    format,
                    options,
                    count,
                    arguments,
                }
            }
            27 => Packet::ModuleCount {
                count: self.number()?,
            },
            28 => Packet::EndCall {
                id: self.number()?,
                value: match length {
                    // It is unknown whether a number or the delta follows; calls without a value are common.
                    None => None,
                    Some(_) if self.rest().is_empty() => None,
                    Some(_) => Some(self.number()?),
                },
            },
            29 => Packet::TaskTerminate {
                task: self.number()?,
            },
            _ => return self.extended(length),
        })
    }

    /// Reads `count` numbers, as bytes; or all of a payload with a length.
    fn numbers_or_all(
        &mut self,
        count: u32,
        length: Option<usize>,
    ) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        if length.is_some() {
            return self.take(self.rest().len());
        }
        for _ in 0..count {
            self.number()?;
        }
        Ok(self.bytes.get(start..self.at).unwrap_or_default())
    }

    fn extended(&mut self, length: Option<usize>) -> Result<Packet<'a>, DecodeError> {
        let id = self.number()?;
        Ok(match id {
            0 => Packet::Mark { id: self.number()? },
            1 => Packet::NameMarker {
                id: self.number()?,
                name: self.text()?,
            },
            2 => Packet::HeapDefine {
                heap: self.number()?,
                base: self.number()?,
                size: self.number()?,
                metadata: self.number()?,
            },
            3 | 4 => Packet::HeapAlloc {
                heap: self.number()?,
                block: self.number()?,
                size: self.number()?,
                tag: match id {
                    4 => Some(self.number()?),
                    _ => None,
                },
            },
            5 => Packet::HeapFree {
                heap: self.number()?,
                block: self.number()?,
            },
            6 => Packet::RegisterData {
                id: self.number()?,
                name: self.text()?,
                rest: match length {
                    Some(_) => self.take(self.rest().len())?,
                    None => &[],
                },
            },
            _ => Packet::Extended {
                id,
                payload: match length {
                    Some(_) => self.take(self.rest().len())?,
                    None => return Err(self.error(Problem::Implausible)),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Decoded<'_> {
        decode(bytes, Form::default(), Payload::default()).unwrap()
    }

    #[test]
    fn packets_of_a_real_target() {
        let info = read(b"\x09\xa0\xda\xec\x05\x16\x09esp_timer\xbd\x0a");
        let expected = Packet::TaskInfo {
            task: 0x00bb_2d20,
            priority: 22,
            name: Text(b"esp_timer"),
        };
        assert_eq!((info.packet, info.delta), (expected, 0x53d));
        let init = read(b"\x18\x0d\xc0\x84\x3d\x80\xd0\xa5\x4c\x80\x80\x80\xfa\x03\x00\x1a");
        let ids = Ids {
            base: 0x3f40_0000,
            shift: 0,
        };
        let expected = Packet::Init {
            frequency: 1_000_000,
            cpu_frequency: 160_000_000,
            ids,
        };
        assert_eq!((init.packet, init.bytes), (expected, 16));
        assert_eq!(ids.address(0x00bb_2d20), 0x3ffb_2d20);
        assert_eq!(ids.id(0x3ffb_2d20), 0x00bb_2d20);
    }

    #[test]
    fn a_length_that_is_the_id_is_noticed_at_the_first_packet_that_tells() {
        let init = read(b"\x18\x18\xc0\x84\x3d\x80\xd0\xa5\x4c\x80\x80\x80\xfa\x03\x02\x1a");
        assert_eq!(init.form.length, Length::Id);
        assert_eq!((init.delta, init.bytes), (0x1a, 16));
        let event = decode(b"\x22\x22\x05\x06\x07", init.form, Payload::numbers(2)).unwrap();
        let payload = &[5, 6][..];
        assert_eq!(event.packet, Packet::Event { id: 34, payload });
        let error = decode(b"\x22\x03\x05\x06\x07", init.form, Payload::numbers(2)).unwrap_err();
        assert_eq!(error.problem, Problem::Implausible);
        // A number, a text and a number.
        let parameters = Payload::Parameters {
            count: 3,
            texts: 0b010,
        };
        let event = decode(b"\x81\x04\x01\x05\x02hi\x80\x01\x07", init.form, parameters);
        let payload = b"\x05\x02hi\x80\x01";
        let event = event.unwrap();
        assert_eq!(event.packet, Packet::Event { id: 513, payload });
        assert_eq!((event.delta, event.bytes), (7, 10));
        let same = decode(
            b"\x81\x04\x01\x05\x02hi\x80\x01\x07",
            init.form,
            Payload::Bytes(6),
        );
        assert_eq!(same.unwrap(), event);
    }

    #[test]
    fn long_texts_have_their_length_in_either_order() {
        for (order, length) in [(TextOrder::Little, [44, 1]), (TextOrder::Big, [1, 44])] {
            let mut bytes = [b'x'; 306];
            bytes[..4].copy_from_slice(&[14, 255, length[0], length[1]]);
            bytes[305] = 0;
            bytes[304] = 9;
            let read = read(&bytes);
            let text = Text(&bytes[4..304]);
            assert_eq!(read.packet, Packet::SystemDescription { text }, "{order:?}");
            assert_eq!((read.form.text, read.delta), (order, 9));
        }
    }

    #[test]
    fn what_is_no_packet_is_told_with_its_place() {
        let error = |bytes| decode(bytes, Form::default(), Payload::default()).unwrap_err();
        assert_eq!(error(b"").problem, Problem::Incomplete);
        assert_eq!(error(b"\x04\x80\x00\x01").problem, Problem::Number);
        assert_eq!(error(b"\x04\xff\xff\xff\xff\x1f").problem, Problem::Number);
        let long = error(b"\x22\xff\xff\xff\x0f\x00");
        assert_eq!(long.problem, Problem::Length { found: 0x01ff_ffff });
        let fields = Problem::Fields {
            expected: 2,
            found: 1,
        };
        let short = error(b"\x1b\x02\x00\x00\x05");
        assert_eq!((short.offset, short.problem), (3, fields));
    }
}
