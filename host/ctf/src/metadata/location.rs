//! Locations of fields: scopes, and paths to lengths and selectors.

/// The six parts of a packet and its events that hold fields, in decoding order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `trace.packet.header`, once per packet.
    PacketHeader,
    /// `stream.packet.context`, once per packet.
    PacketContext,
    /// `stream.event.header`, in every event.
    EventHeader,
    /// `stream.event.context`, in every event of a stream class.
    StreamEventContext,
    /// `event.context`, in every event of an event class.
    EventContext,
    /// `event.fields`: the payload.
    EventFields,
}

impl Scope {
    /// All six in decoding order.
    pub const ALL: [Self; 6] = [
        Self::PacketHeader,
        Self::PacketContext,
        Self::EventHeader,
        Self::StreamEventContext,
        Self::EventContext,
        Self::EventFields,
    ];

    /// The absolute path by which CTF 1.8 metadata names the scope.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::PacketHeader => "trace.packet.header",
            Self::PacketContext => "stream.packet.context",
            Self::EventHeader => "stream.event.header",
            Self::StreamEventContext => "stream.event.context",
            Self::EventContext => "event.context",
            Self::EventFields => "event.fields",
        }
    }
}

/// Location of the length of a sequence, or of a selector.
///
/// It is a text, resolved where the class is used: the same class may refer to a different field in each of its uses.
#[derive(Debug, Clone, Eq)]
pub struct Location {
    /// The path as written: names separated by dots, absolute (see [`Scope::path`]) or relative to the nearest
    /// enclosing structure that has an earlier member of that name.
    pub path: String,
    /// The path as CTF 2 states it, step by step. Then no search is needed, and `path` is for messages only.
    pub route: Option<Route>,
    /// Its position in bytes from the start of the metadata text; for messages only, 0 when built by hand.
    pub offset: usize,
    /// The fields found, once [`Metadata::resolve`](super::Metadata::resolve) has run: several when the path leads
    /// through a variant, any of whose options may contain the value.
    pub targets: Vec<Target>,
}

impl Location {
    /// Creates a location that is not yet resolved.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            route: None,
            offset: 0,
            targets: Vec::new(),
        }
    }
}

impl PartialEq for Location {
    /// Two locations are equal if they refer to the same field, wherever they were written.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.route, &self.targets) == (&other.path, &other.route, &other.targets)
    }
}

/// A path from one field to an earlier one in CTF 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The scope at whose root it starts; `None`: the structure that contains the field.
    pub origin: Option<Scope>,
    /// Names of members, or `None` for a step to the enclosing structure.
    pub path: Vec<Option<String>>,
}

/// A field that a [`Location`] leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The scope that holds the field.
    pub scope: Scope,
    /// The path from the root of the scope: the index of the member in a structure, or of the option in a variant;
    /// arrays (the current element is meant) and optional fields take no step.
    pub steps: Vec<u32>,
}
