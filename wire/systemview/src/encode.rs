//! Encodes one packet.

use core::fmt;

use crate::decode::core_bit;
use crate::packet::{FIRST_WITH_LENGTH, Form, Length, Packet, Text, TextOrder};
use crate::varint;

/// The buffer is too small for the packet, or the format cannot represent the packet's id, text or payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected room for a whole packet, found less")
    }
}

impl core::error::Error for NoRoom {}

/// Encodes a packet to the start of `out` and returns its size. [`decode`](crate::decode()) is the inverse.
///
/// # Errors
/// [`NoRoom`].
pub fn encode(
    packet: &Packet<'_>,
    delta: u32,
    form: Form,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let body = encode_body(packet, form, out)?;
    let behind = out.get_mut(body..).ok_or(NoRoom)?;
    Ok(body + encode_number(delta, behind)?)
}

/// Encodes a number to the start of `out` and returns its size: the ticks after a packet's body, or a field of an
/// event.
///
/// # Errors
/// [`NoRoom`].
#[inline]
pub fn encode_number(mut value: u32, out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut at = 0;
    loop {
        let byte = out.get_mut(at).ok_or(NoRoom)?;
        at += 1;
        if value < 0x80 {
            *byte = value as u8;
            return Ok(at);
        }
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
}

/// Encodes the body of a packet that consists only of numbers, like most packets of targets. Writes the same as
/// [`encode_body`] in the default [`Form`], with a third of the instructions. At most 25 numbers.
///
/// # Errors
/// [`NoRoom`].
#[inline]
pub fn encode_numbers(id: u32, numbers: &[u32], out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut at = encode_number(id, out)?;
    let length = at;
    if id >= FIRST_WITH_LENGTH {
        at += 1;
    }
    for number in numbers {
        at += encode_number(*number, out.get_mut(at..).ok_or(NoRoom)?)?;
    }
    if id >= FIRST_WITH_LENGTH {
        let size = at - length - 1;
        let byte = out.get_mut(length).ok_or(NoRoom)?;
        *byte = u8::try_from(size)
            .ok()
            .filter(|size| *size < 0x80)
            .ok_or(NoRoom)?;
    }
    Ok(at)
}

/// Encodes a packet like [`encode()`], but without the ticks at its end. A target encodes the body before it excludes
/// other contexts. It then reads its clock under the lock, and appends the ticks with [`encode_number`].
///
/// # Errors
/// [`NoRoom`].
pub fn encode_body(packet: &Packet<'_>, form: Form, out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = Writer {
        out: Some(out),
        at: 0,
        form,
    };
    let id = packet.id();
    match form.second_core {
        Some(second) => {
            let bit = core_bit(id);
            if id & bit != 0 || id >= 2 * bit {
                return Err(NoRoom);
            }
            writer.number(if second { id | bit } else { id })?;
        }
        None => writer.header_number(id, form.wide_id)?,
    }
    if id >= FIRST_WITH_LENGTH {
        let size = payload_size(packet, form)?;
        match form.length {
            Length::Id if size < 127 => writer.byte(id as u8)?,
            Length::Bytes => writer.header_number(size, false)?,
            Length::Wide | Length::Id => writer.header_number(size, true)?,
        }
    }
    writer.fields(packet)?;
    Ok(writer.at)
}

/// Returns the size of a packet's fields in bytes.
fn payload_size(packet: &Packet<'_>, form: Form) -> Result<u32, NoRoom> {
    let mut counter = Writer {
        out: None,
        at: 0,
        form,
    };
    counter.fields(packet)?;
    u32::try_from(counter.at).map_err(|_| NoRoom)
}

struct Writer<'a> {
    /// `None`: bytes are only counted.
    out: Option<&'a mut [u8]>,
    at: usize,
    form: Form,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let end = self.at.checked_add(bytes.len()).ok_or(NoRoom)?;
        if let Some(out) = &mut self.out {
            let room = out.get_mut(self.at..end).ok_or(NoRoom)?;
            room.copy_from_slice(bytes);
        }
        self.at = end;
        Ok(())
    }

    fn byte(&mut self, byte: u8) -> Result<(), NoRoom> {
        self.bytes(&[byte])
    }

    fn number(&mut self, value: u32) -> Result<(), NoRoom> {
        let (bytes, size) = varint::encoded(value);
        self.bytes(bytes.get(..size).unwrap_or_default())
    }

    /// Writes an id or a length; the value 127 may take two bytes.
    fn header_number(&mut self, value: u32, wide: bool) -> Result<(), NoRoom> {
        match wide && value == 127 {
            true => self.bytes(&[0xFF, 0]),
            false => self.number(value),
        }
    }

    fn text(&mut self, text: Text<'_>) -> Result<(), NoRoom> {
        match u8::try_from(text.0.len()) {
            Ok(length) if length < 255 => self.byte(length)?,
            _ => {
                let length = u16::try_from(text.0.len()).map_err(|_| NoRoom)?;
                self.byte(255)?;
                self.bytes(&match self.form.text {
                    TextOrder::Little => length.to_le_bytes(),
                    TextOrder::Big => length.to_be_bytes(),
                })?;
            }
        }
        self.bytes(text.0)
    }

    fn numbers<const N: usize>(&mut self, values: [u32; N]) -> Result<(), NoRoom> {
        values.into_iter().try_for_each(|value| self.number(value))
    }

    fn fields(&mut self, packet: &Packet<'_>) -> Result<(), NoRoom> {
        match *packet {
            Packet::Nop
            | Packet::IsrExit
            | Packet::TaskStopExec
            | Packet::TraceStart
            | Packet::TraceStop
            | Packet::Idle
            | Packet::IsrToScheduler
            | Packet::TimerExit => Ok(()),
            Packet::Overflow { total: value }
            | Packet::IsrEnter { irq: value }
            | Packet::TaskStartExec { task: value }
            | Packet::TaskStartReady { task: value }
            | Packet::TaskCreate { task: value }
            | Packet::SystemTimeCycles { cycles: value }
            | Packet::MarkStart { id: value }
            | Packet::MarkStop { id: value }
            | Packet::TimerEnter { timer: value }
            | Packet::ModuleCount { count: value }
            | Packet::TaskTerminate { task: value } => self.number(value),
            Packet::TaskStopReady { task, cause } => self.numbers([task, cause]),
            Packet::TaskInfo {
                task,
                priority,
                name,
            } => {
                self.numbers([task, priority])?;
                self.text(name)
            }
            Packet::SystemTimeUs { us } => self.numbers([us as u32, (us >> 32) as u32]),
            Packet::SystemDescription { text } => self.text(text),
            Packet::StackInfo {
                task,
                base,
                size,
                usage,
            } => self.numbers([task, base, size, usage]),
            Packet::ModuleDescription {
                module,
                offset,
                text,
            } => {
                self.numbers([module, offset])?;
                self.text(text)
            }
            Packet::DataSample { id, value } => self.numbers([id, value]),
            Packet::Init {
                frequency,
                cpu_frequency,
                ids,
            } => self.numbers([frequency, cpu_frequency, ids.base, ids.shift]),
            Packet::NameResource { resource, name } => {
                self.number(resource)?;
                self.text(name)
            }
            Packet::Print {
                format,
                options,
                count,
                arguments,
            } => {
                self.text(format)?;
                self.numbers([options, count])?;
                self.bytes(arguments)
            }
            Packet::EndCall { id, value } => {
                self.number(id)?;
                value.map_or(Ok(()), |value| self.number(value))
            }
            Packet::Mark { id } => self.numbers([0, id]),
            Packet::NameMarker { id, name } => {
                self.numbers([1, id])?;
                self.text(name)
            }
            Packet::HeapDefine {
                heap,
                base,
                size,
                metadata,
            } => self.numbers([2, heap, base, size, metadata]),
            Packet::HeapAlloc {
                heap,
                block,
                size,
                tag,
            } => {
                let id = if tag.is_some() { 4 } else { 3 };
                self.numbers([id, heap, block, size])?;
                tag.map_or(Ok(()), |tag| self.number(tag))
            }
            Packet::HeapFree { heap, block } => self.numbers([5, heap, block]),
            Packet::RegisterData { id, name, rest } => {
                self.numbers([6, id])?;
                self.text(name)?;
                self.bytes(rest)
            }
            Packet::Extended { id, payload } => {
                self.number(id)?;
                self.bytes(payload)
            }
            Packet::Event { payload, .. } => self.bytes(payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Payload, decode};

    #[test]
    fn every_form_of_127_reads_back() {
        let payload = &[1; 127][..];
        for length in [Length::Bytes, Length::Wide, Length::Id] {
            for wide_id in [false, true] {
                let form = Form {
                    length,
                    wide_id,
                    ..Form::default()
                };
                let mut out = [0; 200];
                let packet = Packet::Event { id: 127, payload };
                let size = encode(&packet, 1, form, &mut out).unwrap();
                let read = decode(&out[..size], form, Payload::default()).unwrap();
                assert_eq!((read.packet, read.bytes), (packet, size), "{form:?}");
            }
        }
    }

    #[test]
    fn packets_of_numbers_are_the_same_without_a_packet() {
        let mut values = [0, 1, 127, 128, 0x3FFF, 0x4000, 1 << 28, u32::MAX];
        for _ in 0..values.len() {
            values.rotate_left(1);
            let [a, b, ..] = values;
            let (mut payload, mut size) = ([0; 64], 0);
            for value in values {
                size += encode_number(value, &mut payload[size..]).unwrap();
            }
            let payload = &payload[..size];
            for (packet, numbers) in [
                (Packet::IsrExit, &[][..]),
                (Packet::IsrEnter { irq: a }, &[a]),
                (Packet::TaskStopReady { task: a, cause: b }, &[a, b]),
                (Packet::Mark { id: a }, &[0, a]),
                (Packet::Event { id: 512, payload }, &values),
            ] {
                let (mut one, mut other) = ([0; 64], [0; 64]);
                let size = encode_body(&packet, Form::default(), &mut one).unwrap();
                assert_eq!(encode_numbers(packet.id(), numbers, &mut other), Ok(size));
                assert_eq!(one, other, "{packet:?}");
                let room = &mut other[..size - 1];
                assert_eq!(encode_numbers(packet.id(), numbers, room), Err(NoRoom));
            }
        }
        let mut out = [0; 200];
        assert!(encode_numbers(512, &[u32::MAX; 25], &mut out).is_ok());
        assert_eq!(encode_numbers(512, &[u32::MAX; 26], &mut out), Err(NoRoom));
    }

    #[test]
    fn a_buffer_that_is_too_small_is_refused() {
        let packet = Packet::TaskStartExec { task: 1 << 30 };
        let mut out = [0; 7];
        assert_eq!(encode(&packet, 5, Form::default(), &mut out), Ok(7));
        assert_eq!(
            encode(&packet, 5, Form::default(), &mut out[..6]),
            Err(NoRoom)
        );
    }
}
