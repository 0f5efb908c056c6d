//! Description of the target and the recording: header, dumps, remarks, damage.

use kymo_event::{Cpu, Duration, EventKind, Gap, Space, StreamId, StreamInfo};
use kymo_rtems_record::{Fault, Header, WordSize};

use super::{Dump, Processor, RecordSource};

impl RecordSource {
    /// Adds the target's description of itself.
    pub(super) fn describe(&mut self, header: &Header) {
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

    /// Makes another dump the current one.
    pub(super) fn switch_to(&mut self, number: u16) {
        if self.dump.number == number {
            return;
        }
        let known = self.others.iter_mut().find(|dump| dump.number == number);
        if let Some(known) = known {
            return std::mem::swap(&mut self.dump, known);
        }
        let dump = self.begin_dump(number);
        let before = std::mem::replace(&mut self.dump, dump);
        if !before.cpus.is_empty() {
            self.others.push(before);
        }
    }

    /// Creates a dump with one stream for each processor.
    fn begin_dump(&mut self, number: u16) -> Dump {
        let header = self.inputs.header(number).cloned().unwrap_or_default();
        // A restarted target is a separate machine: its uptime and its threads start anew.
        let machine = match (number, self.inputs.dumps()) {
            (0, 0 | 1) => self.space,
            _ => self.info.identities.add_space(Space {
                name: format!("dump {}", u32::from(number) + 1),
                ..Space::default()
            }),
        };
        let mut cpus = Vec::new();
        for cpu in 0..header.cpus {
            let stream = StreamId(u32::try_from(self.info.streams.len()).unwrap_or(u32::MAX));
            let name = match number {
                0 => format!("cpu{cpu}"),
                number => format!("cpu{cpu} of dump {}", u32::from(number) + 1),
            };
            self.info.streams.push(StreamInfo {
                name,
                space: self.space,
                machine,
                cpu: Some(Cpu(cpu)),
                ..StreamInfo::default()
            });
            cpus.push(Processor {
                stream,
                thread: None,
                behind: None,
                block: None,
                created: None,
            });
        }
        Dump {
            number,
            version: header.version,
            format: header.format,
            machine,
            cpus,
            uma: super::blocks::Uma::default(),
        }
    }

    /// Adds a remark that there are several dumps, and which of them is read.
    pub(in super::super) fn remark_dumps(&mut self, dumps: usize, chosen: Option<usize>) {
        let which = match chosen {
            Some(number) => format!("this one is number {number}"),
            None => "each is a machine of its own, as uptimes begin anew".to_owned(),
        };
        self.info.remarks.push(format!(
            "there are {dumps} dumps in the log: {which} (--dump chooses)"
        ));
    }

    /// Adds remarks about conditions that are not damage.
    pub(super) fn remark(&mut self) {
        let dumps = usize::from(self.inputs.dumps());
        // For a file, the number of dumps is known from the start.
        if dumps > 1 && !self.inputs.several() {
            self.remark_dumps(dumps, None);
        }
        let statistics = self.inputs.statistics();
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
        if self.unseen > 0 {
            self.info.remarks.push(format!(
                "behind {} gaps the running thread is unknown up to the next switch, which a live target is not waited for: \
                 the calls there are of no thread (what was recorded shows them)",
                self.unseen
            ));
        }
        match self.inputs.foreign_lines() {
            0 => {}
            lines => self.info.remarks.push(format!(
                "{lines} lines among those of dumps are none of them, and were passed over"
            )),
        }
    }

    /// Reports damage in the input.
    pub(super) fn damage(&mut self, dump: u16, fault: &Fault) {
        self.switch_to(dump);
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
        event.stream = self.dump.cpus.first().map_or(StreamId(0), |cpu| cpu.stream);
        self.ready.push_back(event);
    }
}
