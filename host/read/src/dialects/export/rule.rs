//! Rules: the meaning of each event class.

use kymo_ctf::metadata::EventClass;

/// Name of the field with the duration of a call.
const DURATION: &str = "duration";

/// Meaning of the events of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    Enter,
    /// Entry of a call that was already open when it was found.
    EnterFound,
    Exit,
    /// Exit whose entry was not recorded, with the duration of the call.
    ExitStated,
    /// Exit of a call that a jump left.
    ExitLeft,
    /// Call whose end the source does not record.
    Called,
    SpanBegin,
    SpanEnd,
    SwitchedIn,
    SwitchedOut,
    /// The thread may run elsewhere meanwhile, and nothing determines the order.
    SwitchedOutUnseen,
    /// Last time that the source records.
    LastTime,
    /// A function runs behind a gap.
    Runs,
    IsrEnter,
    IsrExit,
    /// Event of a kind that a row cannot represent, or with its own name.
    Rare,
    Other,
}

/// Name of the field that marks a call as found open.
const FOUND: &str = "found";

/// Name of the field that marks a call as left by a jump.
const LEFT: &str = "left";

/// Name of the field that marks a thread as maybe running elsewhere.
const UNSEEN: &str = "unseen";

/// Returns whether an event class has a field.
fn has(class: &EventClass, field: &str) -> bool {
    let fields = class.fields.as_ref();
    fields.is_some_and(|fields| fields.member(field).is_some())
}

impl Rule {
    /// Returns the rule of an event class.
    pub(super) fn of(class: &EventClass) -> Self {
        match class.name.as_str() {
            "enter" if has(class, FOUND) => Self::EnterFound,
            "enter" => Self::Enter,
            "called" => Self::Called,
            "span_begin" => Self::SpanBegin,
            "span_end" => Self::SpanEnd,
            "exit" if has(class, DURATION) => Self::ExitStated,
            "exit" if has(class, LEFT) => Self::ExitLeft,
            "exit" => Self::Exit,
            "switched_in" => Self::SwitchedIn,
            "switched_out" if has(class, UNSEEN) => Self::SwitchedOutUnseen,
            "last_time" => Self::LastTime,
            "runs" => Self::Runs,
            "switched_out" => Self::SwitchedOut,
            "isr_enter" => Self::IsrEnter,
            "isr_exit" => Self::IsrExit,
            "marker" | "counter" | "thread_name" | "isr_name" | "context" | "recording"
            | "setjmp" | "longjmp" | "wall_clock" | "gap" | "ready" | "other" => Self::Rare,
            _ => Self::Other,
        }
    }

    /// Returns the names of the numbers that the rule needs from the payload.
    pub(super) const fn fields(self) -> [&'static str; 2] {
        match self {
            Self::Enter | Self::EnterFound => ["function", "call_site"],
            Self::Exit | Self::ExitLeft | Self::Runs => ["function", ""],
            Self::Called => ["function", "caller"],
            Self::SpanBegin | Self::SpanEnd => ["span", "per_cpu"],
            Self::ExitStated => ["function", DURATION],
            Self::IsrEnter | Self::IsrExit => ["irq", ""],
            Self::SwitchedIn
            | Self::SwitchedOut
            | Self::SwitchedOutUnseen
            | Self::LastTime
            | Self::Rare
            | Self::Other => [""; 2],
        }
    }
}
