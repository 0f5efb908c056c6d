//! Filter for lists of events as recorded.

use std::borrow::Cow;
use std::rc::Rc;

use kymo_analysis::calls::Callee;
use kymo_analysis::replay::Window;
use kymo_event::{
    Addr, Choice, Cpu, EventKind, EventRef, Filter, Operand, RowKind, Space, StreamInfo, Subject,
    ThreadId, Tid, Time, TraceInfo, Unmet,
};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::names::Names;
use crate::span::{Span, check_fields, has_time, remark_nothing_chosen};

/// Decides for each event of a trace, in order, whether it is listed.
pub struct Chooser {
    filter: Filter,
    everything: bool,
    /// Whether conditions need fields.
    conditional: bool,
    /// Whether each stream is wanted, cached.
    streams: Vec<Option<bool>>,
    /// Number of wanted events, without gaps and events without a time.
    kept: u64,
    /// Number of other events.
    left_out: u64,
    /// The fields in conditions that no event has.
    unmet: Unmet,
    /// Whether an event has a chosen name, if there are conditions.
    any_named: bool,
}

/// An event, with the trace's names.
struct Named<'a> {
    event: EventRef<'a>,
    thread: Option<ThreadId>,
    info: &'a TraceInfo,
    /// The function or interrupt that it enters or exits, if conditions need it.
    function: Option<(Addr, Rc<str>)>,
}

impl Chooser {
    /// A chooser for a filter whose bounds are all absolute times.
    pub fn new(filter: Filter) -> Self {
        Self {
            everything: filter.is_everything(),
            conditional: !filter.conditions.is_empty(),
            unmet: Unmet::new(&filter.conditions),
            any_named: false,
            filter,
            streams: Vec::new(),
            kept: 0,
            left_out: 0,
        }
    }

    /// Whether an event is listed. Must be called for all events of a trace in order. Events without a time (names
    /// that a stream holds beside the others) are listed only with the whole trace.
    pub fn keeps(&mut self, event: EventRef<'_>, info: &TraceInfo, names: &Names<'_>) -> bool {
        if !has_time(info, event.row.stream) {
            return self.everything;
        }
        let wanted = self.wants(event, info, names);
        if !is_gap(event) {
            self.kept += u64::from(wanted);
            self.left_out += u64::from(!wanted);
        }
        wanted
    }

    /// Reports if there are events but none was chosen.
    ///
    /// # Errors
    /// If that is because conditions refer to fields that no event has.
    pub fn remark(&self, span: Span, context: &Context) -> Result<(), Report> {
        if self.kept > 0 || self.left_out == 0 {
            return Ok(());
        }
        let (begin, end) = self.filter.span();
        remark_nothing_chosen(Window { begin, end }, self.left_out, span, context);
        match self.any_named {
            true => check_fields(&self.unmet, self.filter.events != Choice::default()),
            false => Ok(()),
        }
    }

    fn wants(&mut self, event: EventRef<'_>, info: &TraceInfo, names: &Names<'_>) -> bool {
        let row = event.row;
        let index = row.stream.0 as usize;
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
        }
        let filter = &self.filter;
        let wants = || match info.stream(row.stream) {
            Some(stream) => filter.wants_stream(stream),
            None => filter.wants_stream(&StreamInfo::default()),
        };
        if !*self.streams[index].get_or_insert_with(wants) {
            return false;
        }
        if is_gap(event) {
            return self.filter.keeps_gap(Some(row.time), row.cpu());
        }
        // An event that names a thread belongs to that thread.
        let thread = match event.event.map(|event| &event.kind) {
            Some(EventKind::ThreadName { thread, .. }) => Some(*thread),
            _ => row.thread(),
        };
        let identities = &info.identities;
        let callee = match row.kind {
            _ if !self.conditional => None,
            kind if kind.is_of_call() => row.of_function().map(Callee::Function),
            RowKind::IsrEnter | RowKind::IsrExit => row.of_interrupt().map(Callee::Interrupt),
            _ => None,
        };
        let address = |callee: Callee| match callee {
            Callee::Function(id) => identities.function(id)?.address,
            Callee::Interrupt(_) | Callee::Unknown => None,
        };
        let named = Named {
            event,
            thread,
            info,
            function: callee.map(|callee| {
                let name = names.callee(identities, callee);
                (address(callee).unwrap_or_default(), name)
            }),
        };
        let fields = event.event.map_or(&[][..], |event| &event.fields);
        // Of others, the source need not have read the fields.
        if self.conditional && self.filter.wants_name(&named) {
            self.any_named = true;
            self.unmet.meet(&named, fields);
        }
        self.filter.wants(&named)
    }
}

/// Whether an event is a gap.
pub fn is_gap(event: EventRef<'_>) -> bool {
    matches!(
        event.event.map(|event| &event.kind),
        Some(EventKind::Gap(_))
    )
}

impl Subject for Named<'_> {
    fn time(&self) -> Option<Time> {
        Some(self.event.row.time)
    }

    fn name(&self) -> &str {
        self.event.event.map_or("", |event| &event.name)
    }

    fn label(&self) -> Option<&str> {
        self.event.event?.label()
    }

    fn cpu(&self) -> Option<Cpu> {
        self.event.row.cpu()
    }

    fn thread(&self) -> Option<Tid> {
        Some(self.info.identities.tid(self.thread?))
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        let name = self.info.identities.thread_name(self.thread?)?;
        Some(name.into())
    }

    fn space(&self) -> Option<&Space> {
        self.info.identities.thread_space(self.thread?)
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        // By name or address, whatever the source's own field is named.
        if let ("function", Some((address, name))) = (path, &self.function) {
            return Some(Operand::Label(name, address.0.into()));
        }
        let recorded = self.event.event.and_then(|event| event.field(path));
        // The number as in `report --by irq`, where the source has no field of that name.
        recorded.or_else(|| {
            let is_interrupt = matches!(self.event.row.kind, RowKind::IsrEnter | RowKind::IsrExit);
            let id = self.event.row.of_interrupt();
            let id = id.filter(|_| path == "irq" && is_interrupt)?;
            Some(Operand::Integer(self.info.identities.irq(id).0.into()))
        })
    }
}
