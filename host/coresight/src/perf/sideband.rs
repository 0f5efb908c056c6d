//! Kernel records beside the trace, in the order of time: processes, their mappings, and context switches.

use std::collections::HashMap;

use super::Mapping;
use crate::memory::{History, HistoryBuilder, Image, MemorySpace, Running};

/// Event that the kernel recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Mapping, by its index.
    Map(usize),
    /// Thread of a process.
    Thread { process: u32, thread: u32 },
    /// Start of a process, with the memory of its parent.
    Fork { process: u32, parent: Option<u32> },
    /// Exec of another program.
    Exec { process: u32 },
    /// New name of a process, as an index of `names`.
    Name { process: u32, name: usize },
    /// Switch of a CPU to a thread; `before` is the previous one, if known.
    Switch {
        cpu: u32,
        thread: Running,
        before: Option<Running>,
    },
    /// Loss of records of a CPU, or of all CPUs if `None`.
    Lost { cpu: Option<u32> },
    /// Start of a thread's trace, on this CPU.
    TraceStart { thread: u32, cpu: Option<u32> },
    /// Start of a thread.
    Begin { thread: u32 },
    /// Exit of a thread. Another thread can get its number from here on.
    End { thread: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    time: Option<u64>,
    /// Offset of the record.
    at: u64,
    event: Event,
}

/// All kernel events of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Sideband {
    reported: Vec<Reported>,
    names: Vec<String>,
    /// Whether times are of perf's clock; otherwise they are offsets of records, which are roughly in the order of
    /// time.
    has_times: bool,
}

impl Sideband {
    pub fn push(&mut self, time: Option<u64>, at: u64, event: Event) {
        self.reported.push(Reported { time, at, event });
    }

    /// Adds a new name of a process.
    pub fn name(&mut self, time: Option<u64>, at: u64, process: u32, name: String) {
        let event = Event::Name {
            process,
            name: self.names.len(),
        };
        self.names.push(name);
        self.push(time, at, event);
    }

    /// Sorts all events by time. `has_times` tells that AUX records have times.
    pub fn sort(&mut self, has_times: bool) {
        self.has_times = has_times && self.reported.iter().all(|reported| reported.time.is_some());
        let has_times = self.has_times;
        self.reported
            .sort_by_key(|reported| (Self::time_of(has_times, reported), reported.at));
    }

    fn time_of(has_times: bool, reported: &Reported) -> u64 {
        match reported.time {
            Some(time) if has_times => time,
            _ => reported.at,
        }
    }

    /// Whether times are of perf's clock.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Start times of each thread's trace.
    pub fn trace_starts(&self) -> HashMap<u32, Vec<u64>> {
        let mut starts: HashMap<u32, Vec<u64>> = HashMap::new();
        for reported in &self.reported {
            if let Event::TraceStart { thread, .. } = reported.event {
                let time = Self::time_of(self.has_times, reported);
                starts.entry(thread).or_default().push(time);
            }
        }
        starts
    }

    /// First start time of trace on each CPU.
    pub fn first_starts(&self) -> HashMap<u32, u64> {
        let mut starts = HashMap::new();
        for reported in &self.reported {
            if let Event::TraceStart { cpu: Some(cpu), .. } = reported.event {
                let time = Self::time_of(self.has_times, reported);
                starts.entry(cpu).or_insert(time);
            }
        }
        starts
    }

    /// Times from which thread numbers belong to new threads, if the records have times: between the exit of the old
    /// thread and the start of the new one, if the exit was recorded.
    pub fn begins(&self) -> Vec<(u64, u32)> {
        let (mut ends, mut begins) = (HashMap::new(), Vec::new());
        for reported in &self.reported {
            let Some(time) = reported.time else { continue };
            match reported.event {
                Event::End { thread } => {
                    ends.insert(thread, time);
                }
                Event::Begin { thread } => {
                    let end = ends.remove(&thread).unwrap_or(time);
                    begins.push((end.midpoint(time), thread));
                }
                _ => {}
            }
        }
        begins
    }

    /// Builds the memory history. `images` has the images of each mapping by its index. A mapping without images hides
    /// the addresses that it covers.
    pub fn history(&self, mappings: &[Mapping], mut images: Vec<Vec<Image>>) -> History {
        let mut builder = HistoryBuilder::default();
        for reported in &self.reported {
            let time = Self::time_of(self.has_times, reported);
            match reported.event {
                Event::Thread { process, thread } => builder.thread(time, thread, process),
                Event::Fork { process, parent } => builder.fork(time, process, parent),
                Event::Exec { process } => builder.exec(time, process),
                Event::Name { process, name } => {
                    if let Some(name) = self.names.get(name) {
                        builder.name(process, name);
                    }
                }
                Event::Switch {
                    cpu,
                    thread,
                    before,
                } => builder.switch(time, cpu, thread, before),
                Event::Lost { cpu } => builder.lose_switches(time, cpu),
                Event::TraceStart { .. } | Event::Begin { .. } | Event::End { .. } => {}
                Event::Map(index) => {
                    let Some(mapping) = mappings.get(index) else {
                        continue;
                    };
                    let images = images.get_mut(index).map(std::mem::take);
                    let mut images: Vec<_> = images
                        .unwrap_or_default()
                        .into_iter()
                        .map(|image| (image.bytes.len() as u64, image))
                        .map(|(length, image)| (image, length))
                        .collect();
                    match images.as_mut_slice() {
                        [] => images.push((Self::nothing(mapping), mapping.length)),
                        // A file can end before its mapping does.
                        [(image, length)] if image.address == mapping.address => {
                            *length = (*length).max(mapping.length);
                        }
                        _ => {}
                    }
                    builder.map(time, mapping.process, images);
                }
            }
        }
        builder.build()
    }

    /// Empty image that stands for a missing file.
    fn nothing(mapping: &Mapping) -> Image {
        Image {
            name: mapping.path.clone(),
            address: mapping.address,
            file_offset: mapping.offset,
            bytes: Vec::new().into(),
            space: MemorySpace::ANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_another_thread_s_from_between_its_end_and_its_next_begin() {
        let mut reported = Sideband::default();
        reported.push(Some(10), 0, Event::Begin { thread: 7 });
        reported.push(Some(40), 1, Event::End { thread: 7 });
        reported.push(Some(60), 2, Event::Begin { thread: 7 });
        // Its exit was not recorded.
        reported.push(Some(90), 3, Event::Begin { thread: 7 });
        reported.push(None, 4, Event::Begin { thread: 8 });
        reported.sort(true);
        assert_eq!(reported.begins(), [(10, 7), (50, 7), (90, 7)]);
    }
}
