//! Description of a recording, from CTF metadata or from a raw file's identity.
//!
//! An identity is first converted to CTF metadata, the same text that a trace directory has, so that
//! both are read by the same code.

use std::collections::HashMap;
use std::path::PathBuf;

use kymo_ctf::metadata::{ByteOrder as CtfOrder, EnvValue, Metadata};
use kymo_event::{Addr, Identities, Space, SpaceId, TraceInfo, Wanted};
use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::link::{PROTOCOL, is_understood};

use super::images::MovedImages;
use crate::dialects::kymo::{Dialect, event_ids};
use crate::dialects::{env_text, hex_bytes, labels};
use crate::{Declarations, OpenError};

/// Properties of a recording that are needed to read its packets.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) dialect: Dialect,
    pub(crate) build_id: Vec<u8>,
    /// The program's event declarations.
    pub(crate) declared: Declarations,
    /// The functions in the metadata, with their addresses.
    functions: Vec<(Addr, String)>,
}

/// The reason why a recording's description cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// This version of the format of packets and metadata is not supported.
    Version(u32),
    /// Message with the expected and the actual content.
    Other(String),
}

impl<S: Into<String>> From<S> for Unusable {
    fn from(message: S) -> Self {
        Self::Other(message.into())
    }
}

impl Unusable {
    /// The error for the input at `path`; `other` creates it where the version is supported.
    pub(crate) fn of(
        self,
        path: PathBuf,
        other: impl FnOnce(PathBuf, String) -> OpenError,
    ) -> OpenError {
        match self {
            Self::Version(found) => OpenError::Version {
                path,
                expected: PROTOCOL,
                found,
            },
            Self::Other(message) => other(path, message),
        }
    }

    /// [`of`](Self::of) for an input that begins with an identity.
    pub(crate) fn of_identity(self, path: PathBuf) -> OpenError {
        self.of(path, |path, message| OpenError::Identity { path, message })
    }
}

/// Rejects recordings with another version of the format of packets and metadata: `found` is `tracer_minor`
/// of a trace directory, or the protocol of an identity, which corresponds to it.
pub(super) fn check_version(found: u32, shape: Option<Shape>) -> Result<(), Unusable> {
    if found == PROTOCOL || shape.is_some_and(|shape| is_understood(found, shape)) {
        return Ok(());
    }
    Err(Unusable::Version(found))
}

/// Whether this is the metadata of one of Kymo's own recordings.
pub(crate) fn is_native(metadata: &Metadata) -> bool {
    env_text(metadata, "tracer_name") == Some("kymo")
}

impl Description {
    /// Reads the description from `metadata`.
    ///
    /// # Errors
    /// [`Unusable`] if something in it is missing or wrong.
    pub(crate) fn new(metadata: &Metadata, wanted: Wanted) -> Result<Self, Unusable> {
        let missing =
            |name: &str| format!("expected {name} in the environment, found none that is known");
        let number = |name| match metadata.env(name) {
            Some(EnvValue::Integer(value)) => u32::try_from(*value).ok(),
            _ => None,
        };
        let shape = env_text(metadata, "kymo_shape").and_then(Shape::from_name);
        check_version(number("tracer_minor").unwrap_or(0), shape)?;
        let layout = Layout {
            shape: shape.ok_or_else(|| missing("kymo_shape"))?,
            word: number("kymo_word")
                .and_then(WordSize::from_bits)
                .ok_or_else(|| missing("kymo_word"))?,
            order: match metadata.byte_order {
                CtfOrder::Little => ByteOrder::Little,
                CtfOrder::Big => ByteOrder::Big,
            },
            function_shift: number("kymo_function_shift")
                .and_then(|shift| u8::try_from(shift).ok())
                .filter(|shift| *shift < 8)
                .ok_or_else(|| missing("kymo_function_shift (0 to 7)"))?,
        };
        let text_base = env_text(metadata, "kymo_text_base")
            .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
            .ok_or_else(|| missing("kymo_text_base"))?;
        let clock = metadata
            .clocks
            .first()
            .ok_or("expected a clock, found none")?;
        if clock.frequency == 0 {
            return Err("expected a clock with a frequency, found 0".into());
        }
        let functions = functions(metadata, layout, text_base);
        Ok(Self {
            build_id: env_text(metadata, "kymo_build_id")
                .and_then(hex_bytes)
                .unwrap_or_default(),
            dialect: Dialect {
                layout,
                text_base,
                clock_hz: clock.frequency,
                ids: event_ids(metadata),
                space: SpaceId(0),
                labelled: u32::try_from(functions.len()).unwrap_or(u32::MAX),
                markers: markers(metadata),
                wanted,
                moved: MovedImages::default(),
            },
            declared: declared(metadata, layout),
            functions,
        })
    }

    /// Facts about the trace that follow from its description alone.
    pub(crate) fn info(&self) -> TraceInfo {
        let build_id = (!self.build_id.is_empty()).then(|| self.build_id.clone());
        let text_base = Some(Addr(self.dialect.text_base));
        let mut identities = Identities::default();
        let space = identities.add_space(Space {
            build_id: build_id.clone(),
            text_base,
            ..Space::default()
        });
        for (address, name) in &self.functions {
            let function = identities.function_at(space, *address);
            identities.name_function(function, name);
        }
        TraceInfo {
            format: "kymo".to_owned(),
            build_id,
            text_base,
            clock_hz: Some(self.dialect.clock_hz),
            identities,
            ..TraceInfo::default()
        }
    }
}

/// Reads the program's event declarations from the metadata.
fn declared(metadata: &Metadata, layout: Layout) -> Declarations {
    let texts = (0..).map_while(|number| env_text(metadata, &format!("kymo_event_{number}")));
    let texts: Vec<_> = texts.map(str::as_bytes).collect();
    let mut declarations = Declarations::default();
    // Events with invalid declarations are shown as recorded.
    declarations.add(&texts.join(&0), layout.order == ByteOrder::Big);
    declarations
}

/// The names of markers in the metadata, by address.
fn markers(metadata: &Metadata) -> HashMap<u64, String> {
    let labels = labels(metadata, "named_marker", "name").into_iter();
    labels
        .map(|(address, name)| (address, name.to_owned()))
        .collect()
}

/// The functions in the metadata: the labels of the widest `function` field.
fn functions(metadata: &Metadata, layout: Layout, text_base: u64) -> Vec<(Addr, String)> {
    let mut functions: Vec<_> = labels(metadata, "exit", "function")
        .into_iter()
        .filter_map(|(number, label)| {
            let number = u32::try_from(number).ok()?;
            let address = Addr(layout.address(number, text_base));
            Some((address, label.to_owned()))
        })
        .collect();
    functions.sort_by_key(|(address, _)| *address);
    functions.dedup_by_key(|(address, _)| *address);
    functions
}
