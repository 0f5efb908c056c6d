//! Which class of events means what.

use kymo_ctf::metadata::EventClass;

/// The field with the time that a call took.
const DURATION: &str = "duration";

/// What the events of one class are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    Enter,
    /// An enter of a call that was found open.
    EnterFound,
    Exit,
    /// An exit of which the entry was not recorded, with the time that its call took.
    ExitStated,
    /// A call of which the source does not tell when it ended.
    Called,
    SpanBegin,
    SpanEnd,
    SwitchedIn,
    SwitchedOut,
    /// The thread may run elsewhere meanwhile, of which nothing gives the order.
    SwitchedOutUnseen,
    /// The last time that the source tells.
    LastTime,
    /// A function is seen to run, behind a gap.
    Runs,
    IsrEnter,
    IsrExit,
    /// Of a kind that the event model has and a row can't say, or with a name of its own.
    Rare,
    Other,
}

/// The field that says that a call was found open.
const FOUND: &str = "found";

/// The field that says that a thread may run elsewhere.
const UNSEEN: &str = "unseen";

/// Whether a class of events has a field.
fn has(class: &EventClass, field: &str) -> bool {
    let fields = class.fields.as_ref();
    fields.is_some_and(|fields| fields.member(field).is_some())
}

impl Rule {
    /// What the events of a class are.
    pub(super) fn of(class: &EventClass) -> Self {
        match class.name.as_str() {
            "enter" if has(class, FOUND) => Self::EnterFound,
            "enter" => Self::Enter,
            "called" => Self::Called,
            "span_begin" => Self::SpanBegin,
            "span_end" => Self::SpanEnd,
            "exit" if has(class, DURATION) => Self::ExitStated,
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

    /// The numbers that it needs of the payload.
    pub(super) const fn fields(self) -> [&'static str; 2] {
        match self {
            Self::Enter | Self::EnterFound => ["function", "call_site"],
            Self::Exit | Self::Runs => ["function", ""],
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
