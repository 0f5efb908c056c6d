//! Conversion of STM, ITM and DWT messages to events.

use kymo_event::{Event, EventKind, Field, Gap, InterruptKind, Irq, RowKind, Value};

use super::super::meaning::cortex_m;
use super::super::software::{From, Message};
use super::At;

impl At<'_> {
    pub(super) fn message(&mut self, message: Message) {
        let from = |from: From| match from {
            From::Port(port) => vec![Field::new("port", Value::Unsigned(port.into()))],
            From::Channel { master, channel } => vec![
                Field::new("master", Value::Unsigned(master.into())),
                Field::new("channel", Value::Unsigned(channel.into())),
            ],
        };
        let number = |from: From| match from {
            From::Port(port) => port.into(),
            From::Channel { channel, .. } => channel.into(),
        };
        match message {
            Message::Text { from: by, text } => {
                let mut fields = from(by);
                fields.push(Field::new("text", Value::Text(text.clone())));
                let kind = EventKind::Marker {
                    label: Some(text),
                    value: number(by),
                };
                self.batch.push_event(Event {
                    name: "text".into(),
                    fields,
                    ..self.reader.event(self.time, kind, true)
                });
            }
            Message::Value {
                from: by,
                value,
                bits,
                is_marker,
            } => {
                let mut fields = from(by);
                fields.push(Field::new("value", Value::Hex(value)));
                fields.push(Field::new("bits", Value::Unsigned(bits.into())));
                match is_marker {
                    true => self.named("marker", fields),
                    false => self.named("value", fields),
                }
            }
            Message::InterruptEnter(number) if self.reader.has_exceptions => {
                let number = Field::new("number", Value::Unsigned(number.into()));
                self.named("exception_entry", vec![number]);
            }
            Message::InterruptExit(number) if self.reader.has_exceptions => {
                let number = Field::new("number", Value::Unsigned(number.into()));
                self.named("exception_exit", vec![number]);
            }
            Message::InterruptEnter(number) => {
                let (irq, name) = (Irq(number), cortex_m(number));
                let identities = &mut self.info.identities;
                let irq = identities.interrupt(self.reader.space, InterruptKind::Hard, irq);
                identities.name_interrupt(irq, &name);
                self.row(RowKind::IsrEnter, |row| row.interrupt(Some(irq)));
            }
            Message::InterruptExit(number) => {
                let (hard, irq) = (InterruptKind::Hard, Irq(number));
                let irq = self.info.identities.interrupt(self.reader.space, hard, irq);
                self.row(RowKind::IsrExit, |row| row.interrupt(Some(irq)));
            }
            Message::Named(name, numbers) => {
                let field = |(name, value): (&'static str, u64)| match name {
                    crate::code::FIELD | "address" => Field::new(name, Value::Hex(value)),
                    _ => Field::new(name, Value::Unsigned(value)),
                };
                self.named(name, numbers.into_iter().map(field).collect());
            }
            Message::Overflow => {
                self.doubts.lost += 1;
                self.push(EventKind::Gap(Gap::LostPackets { packets: None }));
            }
            Message::Timeless => self.uncertain_clock(),
            Message::Damage { bytes, message } => {
                self.doubts.lost += 1;
                self.damage(bytes, message.to_owned());
            }
        }
    }
}
