//! Warnings of a trace with the texts of `kymo`: missing files, bytes without a source, lost trace.

use std::cell::{Ref, RefCell};
use std::collections::BTreeSet;
use std::ffi::CString;

use kymo_coresight::doubts::Doubts;
use kymo_coresight::input::Buffer;
use kymo_coresight::perf::Missing;
use kymo_coresight::remarks::{self, Remark};

/// Warnings of a trace.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Warnings about the input as a whole.
    opened: Vec<Remark>,
    /// Missing files of a perf.data recording.
    absent: Vec<Missing>,
    /// Warnings found while the trace was decoded, once each.
    followed: RefCell<(BTreeSet<String>, Vec<Remark>)>,
    /// Cached texts of all warnings, cleared when warnings can change.
    texts: RefCell<Option<Vec<CString>>>,
}

impl Warnings {
    /// Creates the warnings of an input as a whole, with the missing files of a recording.
    pub fn of(opened: Vec<Remark>, absent: Vec<Missing>) -> Self {
        Warnings {
            opened,
            absent,
            ..Warnings::default()
        }
    }

    /// Clears the warnings found so far, after a change of sources or memory.
    pub fn forget(&mut self) {
        self.followed.take();
        self.texts.take();
    }

    /// Adds the warnings of a decoded source, given by its index in the buffer. Their addresses are
    /// [located](Doubts::locate) in the images.
    pub fn follow(&self, doubts: &Doubts, buffer: &Buffer, source: usize) {
        let found = remarks::of_doubts(doubts, buffer, source, &self.absent);
        let mut followed = self.followed.borrow_mut();
        let (known, all) = &mut *followed;
        for remark in found {
            if known.insert(remark.to_string()) {
                all.push(remark);
            }
        }
        self.texts.take();
    }

    /// Adds the warnings of a buffer's software messages, about which elements contain less than packets.
    pub fn messages(&self, buffer: &Buffer) {
        for (place, stream) in buffer.streams() {
            let Some(source) = buffer.sources.get(place) else {
                continue;
            };
            let mut doubts = Doubts::default();
            doubts.messages(&source.protocol, stream);
            self.follow(&doubts, buffer, place);
        }
    }

    /// The texts of all warnings. Damage is first, because `kymo` ends with an error for it.
    pub fn texts(&self, buffers: &[Buffer]) -> Ref<'_, [CString]> {
        let mut texts = self.texts.borrow_mut();
        if texts.is_none() {
            let (followed, all) = (self.followed.borrow(), self.opened.iter().cloned());
            let all = all.chain(remarks::of_buffers(buffers));
            let all = all.chain(remarks::of_images(buffers));
            let mut all: Vec<_> = all.chain(followed.1.iter().cloned()).collect();
            all.sort_by_key(|remark| !remark.is_damage);
            let text = |remark: &Remark| {
                let at = match remark.is_damage {
                    true => format!(" (offset {})", remark.offset),
                    false => String::new(),
                };
                super::text(&format!("{remark}{at}"))
            };
            *texts = Some(all.iter().map(text).collect());
        }
        drop(texts);
        Ref::map(self.texts.borrow(), |texts| {
            texts.as_deref().unwrap_or_default()
        })
    }
}
