//! Plain list of events: one line each, with the fields as recorded.
//!
//! ```text
//!        TIME [s]  CPU  THREAD  EVENT
//!     0.000012000    0  main    enter: lua_pcall (function = 0x8001230)
//!     0.000012400    0  main    isr_enter: irq = 15
//! ```

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use kymo_event::{Cpu, Event, EventKind, Identities, ThreadId, TraceInfo, push_fields};

use super::duration::push_padded;
use super::escape::escape_from;
use super::palette::{Palette, paint};
use super::threads::{ThreadNames, cell};
use super::times::Times;
use crate::names::Names;

/// Maximum width of the thread column.
const WIDEST: usize = 20;

/// Writes events as lines. See the [module](self).
pub struct Listing<'a> {
    out: &'a mut dyn Write,
    palette: Palette,
    functions: &'a Names<'a>,
    names: ThreadNames,
    /// The thread column's text, indexed by [`ThreadId`], cached.
    threads: Vec<Option<String>>,
    width: usize,
    cpus: bool,
    times: Times,
    /// The thread column's text without a thread.
    nobody: String,
    /// The current line, composed in one buffer because writing parts would be slower.
    line: String,
}

impl<'a> Listing<'a> {
    /// A listing that writes to `out`; `info` describes the threads and processors, and `times` formats times.
    pub fn new(
        out: &'a mut dyn Write,
        palette: &Palette,
        info: &TraceInfo,
        functions: &'a Names<'a>,
        times: Times,
    ) -> Self {
        let names = ThreadNames::new(info);
        let width = names.widest().clamp(6, WIDEST);
        Self {
            threads: Vec::new(),
            width,
            cpus: info.shows_cpus(),
            out,
            palette: *palette,
            functions,
            names,
            times,
            nobody: cell("-", width),
            line: String::new(),
        }
    }

    /// Writes the headings of the columns.
    ///
    /// # Errors
    /// Those of writing.
    pub fn heading(&mut self) -> io::Result<()> {
        let heading = self.palette.heading;
        let cpu = if self.cpus { "  CPU" } else { "" };
        let width = self.width;
        let (time, thread) = (self.times.heading(), "THREAD");
        writeln!(
            self.out,
            "{heading}{time}{cpu}  {thread:<width$}  EVENT{heading:#}"
        )
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Those of writing.
    pub fn event(&mut self, identities: &Identities, event: &Event) -> io::Result<()> {
        if let EventKind::ThreadName { thread, name } = &event.kind {
            let name = self.names.name(identities.tid(*thread), Some(name));
            *self.thread(*thread) = Some(cell(&name, self.width));
        }
        // Events derived from records, such as a thread's name, are not listed.
        if !event.record && !matches!(event.kind, EventKind::Gap(_)) {
            return Ok(());
        }
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = self.line(identities, event);
        self.out.write_all(self.line.as_bytes())
    }

    /// The thread column's text.
    fn thread(&mut self, thread: ThreadId) -> &mut Option<String> {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, None);
        }
        &mut self.threads[index]
    }

    fn line(&mut self, identities: &Identities, event: &Event) -> fmt::Result {
        if let Some(thread) = event.thread
            && self.thread(thread).is_none()
        {
            let name = identities.thread_name(thread);
            let name = self.names.name(identities.tid(thread), name);
            *self.thread(thread) = Some(cell(&name, self.width));
        }
        let line = &mut self.line;
        self.times.push(event.time, line);
        if self.cpus {
            match event.cpu {
                Some(Cpu(cpu)) => {
                    line.push_str("  ");
                    push_padded(line, cpu.into(), 3);
                }
                None => line.push_str("    -"),
            }
        }
        let known = event
            .thread
            .and_then(|thread| self.threads.get(thread.0 as usize)?.as_ref());
        let thread = known.unwrap_or(&self.nobody);
        line.push_str("  ");
        paint(line, self.palette.actor, thread);
        line.push_str("  ");
        if let EventKind::Gap(gap) = &event.kind {
            let warning = self.palette.warning;
            write!(line, "{warning}~~~~~~ {gap} ~~~~~~{warning:#}")?;
            // A gap without a record has nothing more to show.
            if event.name.is_empty() {
                line.push('\n');
                return Ok(());
            }
            line.push_str("  ");
        }
        let name = line.len();
        line.push_str(&event.name);
        escape_from(line, name);
        let function = event.kind.function();
        let style = self.palette.function;
        match (function, event.fields.as_slice()) {
            (None, []) => {}
            (None, _) => line.push_str(": "),
            (Some(function), []) => {
                line.push_str(": ");
                paint(line, style, &self.functions.function(identities, function));
            }
            (Some(function), _) => {
                line.push_str(": ");
                paint(line, style, &self.functions.function(identities, function));
                line.push_str(" (");
            }
        }
        let fields = line.len();
        push_fields(&event.fields, line);
        escape_from(line, fields);
        line.push_str(match (function, event.fields.as_slice()) {
            (Some(_), [_, ..]) => ")\n",
            _ => "\n",
        });
        Ok(())
    }
}
