//! Places of fields: the scopes, and how a length or selector is found in them.

/// The six places in which the fields of a packet and its events live, in the order in which they are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `trace.packet.header`, once a packet.
    PacketHeader,
    /// `stream.packet.context`, once a packet.
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

/// Where the length of a sequence, or the field that selects, is.
///
/// It is written as text and resolved against the place where the class is used: the same class may find a different field
/// in each of its uses.
#[derive(Debug, Clone, Eq)]
pub struct Location {
    /// The path as written: names separated by dots, absolute (see [`Scope::path`]) or relative to the nearest enclosing
    /// structure that has an earlier member of that name.
    pub path: String,
    /// The way as CTF 2 states it, step by step. With it, nothing is looked up and `path` is for messages only.
    pub route: Option<Route>,
    /// Where it was written, in bytes from the start of the metadata text; for messages only, 0 when built by hand.
    pub offset: usize,
    /// The fields found, once [`Metadata::resolve`](super::Metadata::resolve) has run: several when the way leads through
    /// a variant, any one of whose options may hold the value.
    pub targets: Vec<Target>,
}

impl Location {
    /// A location that still has to be resolved.
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
    /// Two locations are equal when they mean the same field, wherever they were written.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.route, &self.targets) == (&other.path, &other.route, &other.targets)
    }
}

/// The way from one field to an earlier one in CTF 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The scope at whose root it starts; without one, at the structure that holds the field.
    pub origin: Option<Scope>,
    /// Names of members, or `None` for a step to the structure around.
    pub path: Vec<Option<String>>,
}

/// A field that a [`Location`] leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The scope that holds the field.
    pub scope: Scope,
    /// The way from the root of the scope: in a structure the index of the member, in a variant the index of the option;
    /// an array takes no step, it means the element at hand, and an optional field takes none either.
    pub steps: Vec<u32>,
}
