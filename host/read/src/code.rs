//! Symbols for code addresses in the fields of events.

use kymo_event::{Addr, Batch, Field, TraceInfo, Value};

use crate::{ReadError, Source};

/// Name of the field that holds a code address.
pub(crate) const FIELD: &str = "code";

/// Adds the function and line to events with a code address. `function_at` returns `function at file:line`, or `None`.
///
/// Affects only sources that have such fields, which are RTEMS recordings and Arm hardware trace.
pub fn resolve_code<S: Source>(
    source: S,
    function_at: impl Fn(Addr) -> Option<String> + Send,
) -> impl Source {
    ResolveCode {
        source,
        function_at,
    }
}

struct ResolveCode<S, F> {
    source: S,
    function_at: F,
}

impl<S: Source, F: Fn(Addr) -> Option<String> + Send> Source for ResolveCode<S, F> {
    fn threads(&self) -> usize {
        self.source.threads()
    }

    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let more = self.source.fill(batch)?;
        let info = self.source.info();
        if ![crate::rtems_record::FORMAT, crate::coresight::FORMAT]
            .iter()
            .any(|format| info.is_of(format))
        {
            return Ok(more);
        }
        let address = |fields: &[Field]| match fields.first() {
            Some(Field {
                name,
                value: Value::Hex(address),
            }) if name == FIELD => Some(Addr(*address)),
            _ => None,
        };
        for event in batch.events_mut() {
            if let Some(named) = address(&event.fields).and_then(&self.function_at) {
                event.fields.insert(1, Field::new("at", named));
            }
        }
        Ok(more)
    }
}
