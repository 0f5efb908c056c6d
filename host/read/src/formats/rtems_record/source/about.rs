//! What a recording says of its target and of itself: header, dumps, remarks, damage.

use kymo_event::{Cpu, Duration, EventKind, Gap, StreamId, StreamInfo};
use kymo_rtems_record::{Fault, WordSize};

use super::{Processor, RecordSource};

impl RecordSource {
    /// What the target says of itself.
    pub(super) fn describe(&mut self) {
        let header = self.reader.header();
        let word = match header.format.word {
            WordSize::Bits32 => 32,
            WordSize::Bits64 => 64,
        };
        let order = match header.format.order {
            kymo_rtems_record::ByteOrder::Little => "little",
            kymo_rtems_record::ByteOrder::Big => "big",
        };
        let version = format!(
            "{} of the record format, {word} bits, {order} endian",
            header.version
        );
        let texts = [
            ("arch", header.arch.clone()),
            ("bsp", header.bsp.clone()),
            ("multilib", header.multilib.clone()),
            ("tools", header.tools.clone()),
            ("revision", header.version_control_key.clone()),
            ("version", version),
            ("cpus", header.cpus.to_string()),
            ("ring", format!("{} records", header.ring_items)),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        self.info.about = texts.map(|(name, text)| (name.to_owned(), text)).collect();
    }

    /// The streams of a dump: one for each processor.
    pub(super) fn begin_dump(&mut self, dump: u16) {
        let before = std::mem::take(&mut self.cpus);
        self.dump = Some(dump);
        self.version = self.reader.header().version;
        for cpu in 0..self.reader.header().cpus {
            let stream = StreamId(u32::try_from(self.info.streams.len()).unwrap_or(u32::MAX));
            let name = match dump {
                0 => format!("cpu{cpu}"),
                dump => format!("cpu{cpu} of dump {}", u32::from(dump) + 1),
            };
            self.info.streams.push(StreamInfo {
                name,
                space: self.space,
                cpu: Some(Cpu(cpu)),
                ..StreamInfo::default()
            });
            self.cpus.push(Processor {
                stream,
                thread: None,
                masks: Vec::new(),
                block: None,
            });
        }
        // Between two dumps anything may have happened.
        for cpu in before {
            let mut gap = self.event(EventKind::Gap(Gap::Discarded { events: None }), self.latest);
            gap.stream = cpu.stream;
            gap.record = false;
            self.ready.push_back(gap);
        }
    }

    /// Says what is odd without being damage.
    pub(super) fn remark(&mut self) {
        let statistics = self.reader.statistics();
        if statistics.uncertain > 0 {
            self.info.remarks.push(format!(
                "{} records of processors without uptime are placed by what others show: whole turns of the \
                 counter may be missing",
                statistics.uncertain
            ));
        }
        if statistics.put_back > 0 {
            self.info.remarks.push(format!(
                "the uptime went back by up to {}: {} records are held at the time before",
                Duration(statistics.put_back_most_ns).with_unit(),
                statistics.put_back
            ));
        }
        match self.reader.foreign_lines() {
            0 => {}
            lines => self.info.remarks.push(format!(
                "{lines} lines among those of dumps are none of them, and were passed over"
            )),
        }
    }

    /// Something of the input cannot be read.
    pub(super) fn damage(&mut self, fault: &Fault) {
        let message = match fault.decoded {
            true => format!("{} (the offset is of the decoded bytes)", fault.message),
            false => fault.message.clone(),
        };
        self.info.add_damage(kymo_event::Damage {
            stream: self.name.clone(),
            offset: fault.offset,
            message: message.clone(),
        });
        let gap = Gap::Damage {
            offset: fault.offset,
            bytes: None,
            message,
        };
        let mut event = self.event(EventKind::Gap(gap), self.latest);
        event.record = false;
        event.stream = self.cpus.first().map_or(StreamId(0), |cpu| cpu.stream);
        self.ready.push_back(event);
    }
}
