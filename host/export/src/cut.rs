//! Which events a format that lists events is given: those in the window that the filter wants.

use std::borrow::Cow;
use std::sync::Arc;

use kymo_analysis::replay::{self, Window};
use kymo_event::{
    Addr, Batch, Cpu, Duration, Event, EventKind, EventRef, Filter, FunctionId, Operand, Space,
    StreamId, StreamInfo, Subject, Tid, Time, TraceInfo,
};
use kymo_symbols::Symbols;

use crate::ExportError;

/// Leaves events out.
pub(crate) struct Cut {
    window: Window,
    filter: Filter,
    symbols: Arc<Symbols>,
    /// Which streams are wanted, by [`StreamId`], as far as they have been asked for.
    streams: Vec<Option<bool>>,
}

impl Cut {
    /// Leaves out what `options` do not ask for.
    ///
    /// # Errors
    /// [`ExportError::Selection`] if they ask for what only calls have.
    pub fn new(
        format: &'static str,
        options: &replay::Options,
        symbols: &Arc<Symbols>,
    ) -> Result<Self, ExportError> {
        let selection = &options.selection;
        for (asked, option) in [
            (!selection.functions.is_empty(), "functions"),
            (!selection.hide.is_empty(), "hidden functions"),
            (selection.depth.is_some(), "depth"),
            (selection.min_duration > Duration(0), "duration"),
            (options.compensate, "times without recording overhead"),
        ] {
            if asked {
                return Err(ExportError::Selection { format, option });
            }
        }
        Ok(Self {
            window: options.window,
            filter: selection.events.clone(),
            symbols: Arc::clone(symbols),
            streams: Vec::new(),
        })
    }

    /// Whether nothing is left out.
    pub fn keeps_all(&self) -> bool {
        self.window == Window::default() && self.filter.is_everything()
    }

    /// Adds the events that are wanted to `kept`.
    pub fn take(&mut self, info: &TraceInfo, batch: &Batch, kept: &mut Batch) {
        for event in batch.iter() {
            if self.keeps(info, event) {
                kept.push_ref(event);
            }
        }
    }

    fn keeps(&mut self, info: &TraceInfo, seen: EventRef<'_>) -> bool {
        let row = seen.row;
        if !within(self.window, row.time) || !self.wants_stream(info, row.stream) {
            return false;
        }
        if let Some(event) = seen.event {
            if matches!(event.kind, EventKind::Gap(_)) {
                return self.filter.keeps_gap(Some(row.time), row.cpu());
            }
            return self.filter.wants(&Asked {
                event,
                info,
                symbols: &self.symbols,
            });
        }
        let event = &seen.to_event();
        self.filter.wants(&Asked {
            event,
            info,
            symbols: &self.symbols,
        })
    }

    fn wants_stream(&mut self, info: &TraceInfo, stream: StreamId) -> bool {
        let index = stream.0 as usize;
        if let Some(Some(known)) = self.streams.get(index) {
            return *known;
        }
        let Some(found) = info.stream(stream) else {
            // An undescribed stream has no name.
            return self.filter.wants_stream(&StreamInfo::default());
        };
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
        }
        let wanted = self.filter.wants_stream(found);
        if let Some(place) = self.streams.get_mut(index) {
            *place = Some(wanted);
        }
        wanted
    }
}

/// Whether a time lies in a window.
pub(crate) fn within(window: Window, time: Time) -> bool {
    (window.begin..=window.end).contains(&time)
}

/// An event together with what is known of its thread and its function.
struct Asked<'a> {
    event: &'a Event,
    info: &'a TraceInfo,
    symbols: &'a Symbols,
}

impl Asked<'_> {
    /// The thread that the event is about.
    fn about(&self) -> Option<kymo_event::ThreadId> {
        match &self.event.kind {
            EventKind::ThreadName { thread, .. } => Some(*thread),
            _ => self.event.thread,
        }
    }

    /// The function that the event enters or leaves.
    fn function(&self) -> Option<FunctionId> {
        match self.event.kind {
            EventKind::Enter { function, .. } => Some(function),
            EventKind::Exit { function } => function,
            _ => None,
        }
    }
}

impl Subject for Asked<'_> {
    fn time(&self) -> Option<Time> {
        // The window has been checked.
        None
    }

    fn name(&self) -> &str {
        &self.event.name
    }

    fn cpu(&self) -> Option<Cpu> {
        self.event.cpu
    }

    fn thread(&self) -> Option<Tid> {
        Some(self.info.identities.tid(self.about()?))
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        Some(self.info.identities.thread_name(self.about()?)?.into())
    }

    fn space(&self) -> Option<&Space> {
        self.info.identities.thread_space(self.about()?)
    }

    /// A function has the name that is shown, and its address as its value.
    fn field(&self, path: &str) -> Option<Operand<'_>> {
        if path == "function"
            && let Some(id) = self.function()
            && let Some(function) = self.info.identities.function(id)
            && let Some(name) = self.symbols.name_of(function)
        {
            let Addr(address) = function.address.unwrap_or_default();
            return Some(Operand::Label(name, address.into()));
        }
        self.event.field(path)
    }
}
