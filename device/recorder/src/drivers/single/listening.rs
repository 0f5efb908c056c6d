//! The link of the recorder of one processor. In a file of its own, so that a program that never calls a function of
//! the link contains none of its code and memory.

use super::{Single, SinglePort};
use crate::config::Config;
use crate::hot::Hot;

/// The part of the link that other functions call: handles a tick, if this is one. Returns whether a host is reading a
/// stream.
pub(super) type Listen<P> = fn(&'static Single<P>, &'static Hot, &'static Config, bool) -> bool;

impl<P: SinglePort> Single<P> {
    /// Enables the link's handling of ticks.
    fn listen(&self) {
        self.listening.set(Some(Self::tick_link));
    }

    fn tick_link(&'static self, hot: &'static Hot, config: &'static Config, ticks: bool) -> bool {
        let link = self.port.link();
        let streaming = link.is_streaming();
        if ticks {
            self.watch_stopper(hot);
        }
        if ticks && (hot.gate.state().frozen() || streaming) {
            let now = self.outer_now();
            link.tick(now, config.tick_hz, &self.handle(hot, config));
        }
        streaming
    }

    /// Whether a host is reading a stream.
    pub(super) fn is_streaming(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        let listening = self.listening.get();
        listening.is_some_and(|listen| listen(self, hot, config, false))
    }

    /// Notes whether recording waits for a thread to leave the stopper; returns the thread, and for how many ticks it has
    /// been seen there. (At each tick of the program's, so that the hooks need neither code nor memory for it.)
    pub(super) fn watch_stopper(&self, hot: &Hot) -> Option<(usize, u64)> {
        let since = &self.port.link().in_stopper_since;
        let within = self.masked(|| {
            let Some(thread) = self
                .writer
                .within_stopper()
                .filter(|_| hot.gate.state().on())
            else {
                since.set(0);
                return None;
            };
            let now = self.now();
            if since.get() == 0 {
                since.set(now);
            }
            Some((thread, now.saturating_sub(since.get())))
        });
        within.flatten()
    }

    /// Passes a byte from the host to the link.
    pub fn receive(&self, hot: &'static Hot, byte: u8) {
        if hot.gate.state().alive() {
            self.listen();
            self.port.link().receive(byte);
        }
    }

    /// Executes the host's requests.
    pub fn poll(&'static self, hot: &'static Hot, config: &'static Config) {
        if self.wake(hot, config) {
            self.listen();
            self.port.link().poll(&self.handle(hot, config));
        }
    }

    /// Whether a [poll](Self::poll) would have work to do.
    pub fn pending(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        hot.gate.state().alive() && self.port.link().is_pending(&self.handle(hot, config))
    }
}
