//! Streams for a text, which has none itself: one for each CPU, or for each thread.

use kymo_event::{Cpu, StreamInfo, ThreadId};

use super::TextSource;
use super::state::State;

impl TextSource {
    /// Returns the index of a CPU's stream.
    pub(super) fn stream(&mut self, cpu: Option<u32>) -> usize {
        let number = cpu.unwrap_or(u32::MAX);
        if let Some(known) = self.streams.get(&number) {
            return *known;
        }
        let place = self.info.streams.len();
        self.streams.insert(number, place);
        self.info.streams.push(StreamInfo {
            name: cpu.map_or_else(|| "text".to_owned(), |cpu| format!("cpu{cpu}")),
            space: self.output.space,
            cpu: cpu.map(Cpu),
            whole_calls: self.exits_alone == Some(true) || self.has_functions,
            marks_missing_exits: self.marks_missing_exits,
            without_switches: self.without_switches,
            ..StreamInfo::default()
        });
        self.states.push(State {
            task: cpu.and_then(|cpu| self.first_tasks.get(&cpu).copied()),
            ..State::default()
        });
        place
    }

    /// Returns the index of the stream for an event on a CPU. Without times, each thread has its own clock, and so its
    /// own stream. Events without a thread are in the CPU's stream.
    pub(super) fn place(
        &mut self,
        of_cpu: usize,
        pid: Option<i32>,
        thread: Option<ThreadId>,
    ) -> usize {
        let (Some(pid), Some(thread), true) = (pid, thread, self.is_untimed) else {
            return of_cpu;
        };
        if let Some(known) = self.of_threads.get(&pid) {
            return *known;
        }
        let place = self.info.streams.len();
        let comm = self.info.identities.thread_name(thread);
        self.info.streams.push(StreamInfo {
            name: format!("{}-{pid}", comm.unwrap_or("<...>")),
            space: self.output.space,
            thread: Some(thread),
            ..StreamInfo::default()
        });
        self.of_threads.insert(pid, place);
        self.states.push(State::default());
        place
    }
}
