//! Facts in metadata about a trace, a clock or a class, besides the layout.
//!
//! In CTF 2 each of them may have names and attributes without effect on decoding. Readers that know the writer use
//! them, so they are preserved, and written by conversions. CTF 1.8 cannot represent them.

/// User attributes of a field class, or of its member or option, in CTF 2: an index into
/// [`Metadata::attributes`](super::Metadata::attributes).
///
/// An index keeps field classes small and copyable; it belongs to one metadata, as a [`ClockId`](super::ClockId) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributesId(pub u32);

/// Identity and attributes of a trace, a clock, a stream class or an event class, in CTF 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Namespace of the names: `lttng.org,2009`.
    pub namespace: Option<String>,
    /// Its name. For a clock, only if it differs from its [id](super::Clock::name); an event class has its
    /// [own](super::EventClass::name).
    pub name: Option<String>,
    /// Unique id within the namespace and name. For a clock, only if it differs from its [UUID](super::Clock::uuid).
    pub uid: Option<String>,
    /// User attributes: the text of a JSON object. Those of LTTng for which an [event class](super::EventClass) has
    /// fields are excluded.
    pub attributes: Option<String>,
}

impl About {
    /// No facts.
    pub const NONE: Self = Self {
        namespace: None,
        name: None,
        uid: None,
        attributes: None,
    };

    /// Whether there are no facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

/// An origin of clocks other than 1970-01-01, in CTF 2: clocks with the same origin can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockOrigin {
    /// Namespace of the names.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Unique id within the name.
    pub uid: String,
}
