//! Converts the files of a trace one after the other, packet by packet.
//!
//! An output packet begins at its first selected event, so that a part of a trace has no empty packets; a packet that
//! was empty in the source is preserved, as it shows that nothing happened. Losses before a packet are reported by the
//! next packet that is written.

use super::adapt::Extras;
use super::tokens::{Collect, Tokens};
use super::{Conversion, ConvertError, Damage, Select, Summary};
use crate::error::{FieldError, WriteError};
use crate::metadata::Scope;
use crate::read::{Event, Gap, GapKind, Message, Packet, PacketInfo, Skipped, StreamReader};
use crate::write::{StreamFile, StreamWriter, TraceWriter};

/// Size in bytes at which a packet is ended: readers hold one in memory, and so does the writer.
const MAX_PACKET: u64 = 1 << 20;

/// Maximum number of output streams of one file at a time: each has an open file.
const MAX_OUTPUTS: usize = 256;

/// Maximum number of places of damage stored individually.
const MAX_DAMAGE: usize = 1_000;

/// State shared by all streams.
pub(super) struct Converter<'c> {
    pub conversion: Conversion,
    pub writer: &'c mut TraceWriter,
    pub extras: &'c [[Extras; 3]],
    pub summary: Summary,
    /// The first and last selected time of the current file.
    pub span: (i64, i64),
    /// Whether there was any event after it.
    pub beyond: bool,
    /// Whether the packets of the source have sequence numbers.
    pub numbered: bool,
    /// For each stream class, whether the result has a stream of it.
    pub used: Vec<bool>,
}

/// Identity of a stream within a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    class: usize,
    instance: Option<u64>,
    cpu: Option<u64>,
}

impl Key {
    const fn of(info: &PacketInfo) -> Self {
        Self {
            class: info.stream_class,
            instance: info.stream_instance,
            cpu: info.cpu_id,
        }
    }
}

/// An output stream.
struct Output {
    key: Key,
    writer: StreamWriter<StreamFile>,
    /// The fields of the last packet's context that the writer does not fill in.
    context: Tokens<'static>,
    /// Whether it has any content.
    begun: bool,
    /// Whether a packet is open, and the last time written.
    open: bool,
    last: u64,
    /// The end that the last packet states. It is written only when the begin of the next packet is known: packets of
    /// some tracers overlap.
    end: Option<u64>,
    /// Number of discarded events so far.
    discarded: u64,
    /// Lost packets to report in the next packet.
    waiting_packets: u64,
    /// Whether there is an unreported loss after its last packet.
    unreported: bool,
}

/// State of the packet that is being read.
struct Current {
    output: usize,
    info: PacketInfo,
    /// Whether its events may be selected, and whether its time is.
    selected: bool,
    in_time: bool,
    /// Whether any of its events has been written, and the number of events read.
    written: bool,
    read: u64,
    /// Number of selected events.
    kept: u64,
    /// Packets lost before its first event, for the writer and for the summary.
    lost: [u64; 2],
    /// The times of the last event read, or of its begin, and of its end.
    last_ns: Option<i64>,
    end_ns: Option<i64>,
    /// Its end, as far as it is within the selection.
    end: Option<u64>,
}

/// Output streams of one file.
#[derive(Default)]
struct Outputs {
    list: Vec<Output>,
    current: Option<Current>,
    /// Losses that were reported before their packet.
    gaps: Vec<Gap>,
    /// Number of packets lost to damage, and the damaged stream.
    damaged: u64,
    last: Option<usize>,
}

impl Converter<'_> {
    /// Converts a file.
    pub fn stream(
        &mut self,
        name: &str,
        mut reader: StreamReader,
        select: &mut dyn Select,
    ) -> Result<(), ConvertError> {
        let mut outputs = Outputs::default();
        let mut tokens = Tokens::default();
        let result = loop {
            let message = match reader.next_message() {
                Ok(Some(message)) => message,
                Ok(None) => break self.finish(&mut outputs),
                Err(error) => {
                    let skipped = reader.skip().ok().flatten();
                    if let Some(remark) = skipped.and_then(|skipped| skipped.unused(name)) {
                        self.summary.unused.push(remark);
                        break self.finish(&mut outputs);
                    }
                    let skipped = skipped.filter(|_| self.conversion.repair);
                    let begun = outputs.current.as_ref();
                    let begun = begun.filter(|it| it.info.number == error.packet);
                    let kept = begun.map_or(0, |it| it.kept);
                    // A packet that had not begun shows as a gap in the sequence numbers, if there are any and another
                    // packet follows.
                    let reported = begun.is_none() && self.numbered;
                    if let Err(error) = self.end_packet(&mut outputs) {
                        break Err(error);
                    }
                    let goes_on = matches!(skipped, Some(Skipped { to: Some(_), .. }));
                    outputs.damaged += u64::from(!(reported && goes_on));
                    self.summary.damaged += 1;
                    if self.summary.damage.len() < MAX_DAMAGE {
                        self.summary.damage.push(Damage {
                            stream: name.to_owned(),
                            error,
                            skipped,
                            kept,
                        });
                    }
                    if !goes_on {
                        break self.finish(&mut outputs);
                    }
                    continue;
                }
            };
            let result = match message {
                Message::Gap(gap) if gap.kind == GapKind::Events => {
                    self.discarded(&mut outputs, &gap)
                }
                Message::Gap(gap) => self
                    .end_packet(&mut outputs)
                    .map(|()| outputs.gaps.push(gap)),
                Message::Packet(packet) => self.packet(&mut outputs, name, &packet, select),
                Message::Event(event) => {
                    let room = std::mem::take(&mut tokens);
                    match self.event(&mut outputs, &event, room.recycle(), select) {
                        Ok(used) => {
                            tokens = used.recycle();
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            if result.is_err() {
                break result;
            }
        };
        result.map_err(|source| ConvertError::Write {
            stream: name.to_owned(),
            source,
        })
    }

    /// Whether any time in a range is selected; either end may be unknown.
    fn wants(&self, from: Option<i64>, to: Option<i64>) -> bool {
        let (begin, end) = self.span;
        from.is_none_or(|from| from <= end) && to.is_none_or(|to| to >= begin)
    }

    fn packet(
        &mut self,
        outputs: &mut Outputs,
        name: &str,
        packet: &Packet<'_>,
        select: &mut dyn Select,
    ) -> Result<(), WriteError> {
        self.end_packet(outputs)?;
        let info = *packet.info();
        let key = Key::of(&info);
        let index = match outputs.list.iter().position(|it| it.key == key) {
            Some(index) => index,
            None => {
                if outputs.list.len() == MAX_OUTPUTS {
                    // If the stream continues, that makes another file.
                    let oldest = outputs.list.remove(0);
                    self.finish_output(oldest)?;
                }
                let mut writer = self.writer.stream(key.class, name)?;
                if let Some(instance) = key.instance {
                    writer = writer.instance(instance);
                }
                outputs.list.push(Output {
                    key,
                    writer,
                    context: Tokens::default(),
                    begun: false,
                    open: false,
                    last: info.begin_ticks.unwrap_or(0),
                    end: None,
                    discarded: 0,
                    // Sequence numbers that do not begin at 0 mean that packets were overwritten.
                    waiting_packets: info.seq_num.unwrap_or(0),
                    unreported: false,
                });
                outputs.list.len() - 1
            }
        };
        let ns = |ticks: Option<u64>| packet.clock()?.nanoseconds(ticks?);
        let selected = select.packet(packet);
        let in_time = self.wants(packet.begin_ns(), packet.end_ns());
        outputs.last = Some(index);
        let damaged = std::mem::take(&mut outputs.damaged);
        let Some(output) = outputs.list.get_mut(index) else {
            return Ok(());
        };
        let left_out = !selected || !in_time;
        if left_out && !output.begun {
            output.waiting_packets = 0;
        }
        if selected && damaged > 0 {
            output.lose(damaged);
        }
        let mut lost = [0u64; 2];
        for gap in outputs.gaps.drain(..) {
            if !selected || !self.wants(ns(gap.from_ticks), ns(gap.to_ticks)) {
                continue;
            }
            if gap.kind == GapKind::EarlierEvents {
                let events = gap.count.unwrap_or(1);
                self.summary.discarded = self.summary.discarded.saturating_add(events);
                output.discard(events);
                continue;
            }
            // Readers interpret half of the range as a number that went back.
            lost[0] = lost[0].wrapping_add(gap.count.unwrap_or(1 << 63));
            lost[1] = lost[1].saturating_add(gap.count.unwrap_or(1));
        }
        if lost != [0; 2] {
            output.lose(lost[0]);
            self.summary.lost_packets = self.summary.lost_packets.saturating_add(lost[1]);
        }
        let mut collect = Collect::new(Tokens::default(), self.conversion.version);
        if let Some([header, context, _]) = self.extras.get(key.class) {
            collect.scope(Some(header));
            packet.visit(Scope::PacketHeader, &mut collect);
            collect.scope(Some(context));
            packet.visit(Scope::PacketContext, &mut collect);
        }
        let within = packet.end_ns().is_none_or(|end| end <= self.span.1);
        output.context = collect.finish().into_owned();
        outputs.current = Some(Current {
            output: index,
            info,
            selected,
            in_time,
            written: false,
            read: 0,
            kept: 0,
            lost,
            last_ns: packet.begin_ns(),
            end_ns: packet.end_ns(),
            end: info.end_ticks.filter(|_| within),
        });
        Ok(())
    }

    /// Writes an event if it is selected. `tokens` is memory for its fields.
    fn event<'e>(
        &mut self,
        outputs: &mut Outputs,
        event: &Event<'e>,
        tokens: Tokens<'e>,
        select: &mut dyn Select,
    ) -> Result<Tokens<'e>, WriteError> {
        let Some(current) = &mut outputs.current else {
            return Ok(tokens);
        };
        current.read += 1;
        let time = event.time_ns();
        current.last_ns = time.or(current.last_ns);
        self.beyond |= time.is_some_and(|time| time > self.span.1);
        let outside = select.outside(event);
        let within = current.selected && self.wants(time, time);
        let wanted = outside || (within && select.event(event));
        if current.read == 1 && time.is_some_and(|time| time < self.span.0) {
            // Losses before this event precede the selected part.
            let [packets, counted] = std::mem::take(&mut current.lost);
            self.summary.lost_packets = self.summary.lost_packets.saturating_sub(counted);
            if let Some(output) = outputs.list.get_mut(current.output) {
                output.unlose(packets);
            }
        }
        if !wanted {
            self.summary.left_out += 1;
            return Ok(tokens);
        }
        self.summary.outside += u64::from(!within);
        let Some(output) = outputs.list.get_mut(current.output) else {
            return Ok(tokens);
        };
        current.kept += 1;
        let mut collect = Collect::new(tokens, self.conversion.version);
        if let Some([.., header]) = self.extras.get(output.key.class) {
            collect.scope(Some(header));
            event.visit(Scope::EventHeader, &mut collect);
        }
        for scope in [
            Scope::StreamEventContext,
            Scope::EventContext,
            Scope::EventFields,
        ] {
            collect.scope(None);
            event.visit(scope, &mut collect);
        }
        let tokens = collect.finish();
        let ticks = event.ticks().unwrap_or(0);
        if output.begun && ticks < output.last {
            self.summary.backward += 1;
        }
        if output.open && output.writer.packet_size() >= MAX_PACKET {
            output.end_packet(output.last);
        }
        if !output.open {
            // The first event may precede the packet's begin (barectf before 2.3.1); the begin may be excluded.
            let first = !current.written;
            let begin = current
                .info
                .begin_ticks
                .filter(|_| first && !self.is_cut(event));
            if begin.is_some_and(|begin| begin > ticks) {
                self.summary.mended_times += 1;
            }
            output.begin_packet(begin.map_or(ticks, |begin| begin.min(ticks)))?;
        }
        current.written = true;
        self.mark(output.key.class);
        match output
            .writer
            .event_with(event.class_index(), ticks, tokens.items())
        {
            Err(WriteError::Field {
                error: FieldError::Time { .. },
                ..
            }) => {
                // Too long after the last time, or before it: start another packet.
                output.end_packet(output.last.max(ticks));
                output.begin_packet(ticks)?;
                let class = event.class_index();
                output.writer.event_with(class, ticks, tokens.items())?;
            }
            result => result?,
        }
        output.last = ticks;
        self.summary.events += 1;
        Ok(tokens)
    }

    /// Whether the packet of an event begins before the selection.
    fn is_cut(&self, event: &Event<'_>) -> bool {
        let begin = event.packet().begin_ns();
        begin.is_some_and(|begin| begin < self.span.0)
    }

    fn mark(&mut self, class: usize) {
        if let Some(used) = self.used.get_mut(class) {
            *used = true;
        }
    }

    /// Ends the packet that is being read, and counts the events that were discarded when it was full.
    fn discarded(&mut self, outputs: &mut Outputs, gap: &Gap) -> Result<(), WriteError> {
        let Some(current) = &outputs.current else {
            return Ok(());
        };
        let index = current.output;
        let wanted = current.selected && self.wants(current.last_ns, current.end_ns);
        self.end_packet(outputs)?;
        if let Some(output) = outputs.list.get_mut(index).filter(|_| wanted) {
            let events = gap.count.unwrap_or(1);
            self.summary.discarded = self.summary.discarded.saturating_add(events);
            output.discard(events);
        }
        Ok(())
    }

    /// Ends the packet that is being read.
    fn end_packet(&mut self, outputs: &mut Outputs) -> Result<(), WriteError> {
        let Some(current) = outputs.current.take() else {
            return Ok(());
        };
        let Some(output) = outputs.list.get_mut(current.output) else {
            return Ok(());
        };
        if current.selected && current.in_time && current.read == 0 {
            let begin = current.info.begin_ticks.unwrap_or(output.last);
            output.begin_packet(begin.max(output.last))?;
            self.mark(output.key.class);
        }
        if output.open {
            // Events after the end (LTTng before 2.11), or an end of 0 (a crash): use the time of the last event.
            let end = current.end.unwrap_or(output.last);
            if end < output.last {
                self.summary.mended_times += 1;
            }
            output.end_packet(end.max(output.last));
        }
        Ok(())
    }

    /// Ends all streams of a file. A loss after the last event is reported by a packet without events.
    fn finish(&mut self, outputs: &mut Outputs) -> Result<(), WriteError> {
        self.end_packet(outputs)?;
        let damaged = outputs.last.and_then(|last| outputs.list.get_mut(last));
        if let Some(output) = damaged
            && outputs.damaged > 0
        {
            output.lose(outputs.damaged);
        }
        let mut outputs = outputs.list.drain(..);
        outputs.try_for_each(|output| self.finish_output(output))
    }

    fn finish_output(&mut self, mut output: Output) -> Result<(), WriteError> {
        if output.unreported {
            output.begin_packet(output.end.unwrap_or(output.last))?;
            output.end_packet(output.last);
            self.mark(output.key.class);
        }
        output.write_packet(None)?;
        self.summary.streams += u64::from(output.begun);
        output.writer.finish().map(|_| ())
    }
}

impl Output {
    /// Records lost packets behind the last one.
    const fn lose(&mut self, packets: u64) {
        self.waiting_packets = self.waiting_packets.wrapping_add(packets);
        self.unreported = true;
    }

    /// Undoes the record of lost packets.
    const fn unlose(&mut self, packets: u64) {
        self.waiting_packets = self.waiting_packets.wrapping_sub(packets);
        self.unreported = self.waiting_packets != 0;
    }

    /// Counts discarded events behind those written. The last packet reports them; without one, the first.
    fn discard(&mut self, events: u64) {
        self.discarded = self.discarded.wrapping_add(events);
        self.unreported |= !self.begun;
    }

    /// Begins a packet, which reports the losses before it.
    fn begin_packet(&mut self, ticks: u64) -> Result<(), WriteError> {
        self.write_packet(Some(ticks))?;
        self.writer
            .skip_packets(std::mem::take(&mut self.waiting_packets));
        self.writer.begin_packet_with(ticks, self.context.items())?;
        (self.open, self.begun, self.unreported, self.last) = (true, true, false, ticks);
        Ok(())
    }

    /// Ends the packet.
    const fn end_packet(&mut self, ticks: u64) {
        (self.open, self.end) = (false, Some(ticks));
    }

    /// Writes the ended packet; its end is at most the begin of the next one.
    fn write_packet(&mut self, next: Option<u64>) -> Result<(), WriteError> {
        let Some(end) = self.end.take() else {
            return Ok(());
        };
        let end = next.map_or(end, |next| end.min(next)).max(self.last);
        self.writer.end_packet(end, self.discarded)
    }
}
