//! What metadata says of a trace, a clock or a class besides the layout.
//!
//! CTF 2 lets each of them carry names and attributes that have no effect on decoding. They are of use to readers that know the
//! writer, so they are kept, and written again by a conversion. CTF 1.8 has no words for them.

/// User attributes of a field class, or of what holds one, in CTF 2: which of
/// [`Metadata::attributes`](super::Metadata::attributes) they are.
///
/// A number, so that classes of fields stay small and may be copied; it belongs to one metadata, as a
/// [`ClockId`](super::ClockId) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributesId(pub u32);

/// Identity and attributes of a trace, a clock, a class of streams or a class of events, in CTF 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Whose names these are: `lttng.org,2009`.
    pub namespace: Option<String>,
    /// Its name. Of a clock, where that is not its [id](super::Clock::name); an event class has its
    /// [own](super::EventClass::name).
    pub name: Option<String>,
    /// What tells it from all others with the namespace and name. Of a clock, where that is not its
    /// [UUID](super::Clock::uuid).
    pub uid: Option<String>,
    /// User attributes: the text of a JSON object. Those of LTTng that an [event class](super::EventClass) has fields for
    /// are not among them.
    pub attributes: Option<String>,
}

impl About {
    /// Nothing is said.
    pub const NONE: Self = Self {
        namespace: None,
        name: None,
        uid: None,
        attributes: None,
    };

    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

/// An origin of clocks that is not 1970-01-01, in CTF 2: clocks that have the same one can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockOrigin {
    /// Whose names these are.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What tells it from all others of the name.
    pub uid: String,
}
