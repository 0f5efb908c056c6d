//! What a recording says about itself, however it says it.
//!
//! A raw file's identity becomes CTF metadata, the same text that a trace directory has; so there
//! is one way from there on.

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

/// All that is needed to read packets.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) dialect: Dialect,
    pub(crate) build_id: Vec<u8>,
    /// The events that it says the program declares.
    pub(crate) declared: Declarations,
    /// The functions that the metadata names, by address.
    functions: Vec<(Addr, String)>,
}

/// Why what a recording says of itself cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It is of this format of packets and metadata, which is not read here.
    Version(u32),
    /// What was expected, and what is there.
    Other(String),
}

impl<S: Into<String>> From<S> for Unusable {
    fn from(message: S) -> Self {
        Self::Other(message.into())
    }
}

impl Unusable {
    /// The error of the input at `path`; `other` makes it where the format is the right one.
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

    /// [`of`](Self::of) an input that begins with an identity.
    pub(crate) fn of_identity(self, path: PathBuf) -> OpenError {
        self.of(path, |path, message| OpenError::Identity { path, message })
    }
}

/// Refuses recordings of another format of packets and metadata: `found` is `tracer_minor` of a trace
/// directory, or the protocol that an identity tells, which goes with it.
pub(super) fn check_version(found: u32, shape: Option<Shape>) -> Result<(), Unusable> {
    if found == PROTOCOL || shape.is_some_and(|shape| is_understood(found, shape)) {
        return Ok(());
    }
    Err(Unusable::Version(found))
}

/// Whether this is the metadata of one of our own recordings.
pub(crate) fn is_native(metadata: &Metadata) -> bool {
    env_text(metadata, "tracer_name") == Some("kymo")
}

impl Description {
    /// What `metadata` says.
    ///
    /// # Errors
    /// What is missing in it, or wrong.
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

    /// What is known of the trace from its description alone.
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

/// The events that the metadata says the program declares.
fn declared(metadata: &Metadata, layout: Layout) -> Declarations {
    let texts = (0..).map_while(|number| env_text(metadata, &format!("kymo_event_{number}")));
    let texts: Vec<_> = texts.map(str::as_bytes).collect();
    let mut declarations = Declarations::default();
    // (What is not understood is shown as it was recorded.)
    declarations.add(&texts.join(&0), layout.order == ByteOrder::Big);
    declarations
}

/// The names of markers that the metadata tells, by address.
fn markers(metadata: &Metadata) -> HashMap<u64, String> {
    let labels = labels(metadata, "named_marker", "name").into_iter();
    labels
        .map(|(address, name)| (address, name.to_owned()))
        .collect()
}

/// The functions that the metadata names: the labels of the field `function` where it is widest.
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
