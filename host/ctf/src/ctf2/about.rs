//! Facts in fragments besides the layout: identities, and attributes as text.
//!
//! Attributes can contain anything, so their text is preserved, and parsed only to find or add LTTng's.

use super::json::{self, Data, Json, quoted};
use super::{LEVELS, Object};
use crate::error::{MetadataError, MetadataErrorKind as Kind};
use crate::metadata::About;

/// Namespace of LTTng's attributes.
const LTTNG: &str = "lttng.org,2009";

/// Namespace of babeltrace2's attributes, in the traces that it writes.
const BABELTRACE: &str = "babeltrace.org,2020";

/// The text of the attributes, if there are any.
pub(super) fn attributes(json: &Json) -> Option<String> {
    let mut text = String::new();
    json.write(&mut text);
    (text != "{}").then_some(text)
}

/// LTTng's attributes of an event: log level and EMF URI, and the remaining attributes. Babeltrace2 states the same two
/// among its own, which remain as they are.
pub(super) fn lttng(about: &Object<'_>) -> (Option<i64>, Option<String>, Option<String>) {
    let (mut level, mut uri) = (None, None);
    let Some(mut json) = about.get("attributes").cloned() else {
        return (None, None, None);
    };
    if let Data::Object(all) = &mut json.data {
        all.retain_mut(|(name, own)| match &mut own.data {
            Data::Object(own) if name == LTTNG => {
                own.retain(|(name, value)| match (name.as_str(), &value.data) {
                    ("log-level", Data::Text(text)) => {
                        level = level_of(text);
                        level.is_none()
                    }
                    ("emf-uri", Data::Text(text)) => {
                        uri = Some(text.clone());
                        false
                    }
                    _ => true,
                });
                !own.is_empty()
            }
            Data::Object(own) if name == BABELTRACE => {
                for (name, value) in own.iter() {
                    match (name.as_str(), &value.data) {
                        ("log-level", Data::Text(text)) => level = level.or(level_of(text)),
                        ("emf-uri", Data::Text(text)) => {
                            uri.get_or_insert_with(|| text.clone());
                        }
                        _ => {}
                    }
                }
                true
            }
            _ => true,
        });
    }
    (level, uri, attributes(&json))
}

/// The number of a log level.
fn level_of(name: &str) -> Option<i64> {
    let index = LEVELS.iter().position(|level| level == &name)?;
    i64::try_from(index).ok()
}

/// The properties that identify the object of a fragment.
pub(super) fn properties(about: &About) -> Result<Vec<String>, MetadataError> {
    let names = [
        ("namespace", &about.namespace),
        ("name", &about.name),
        ("uid", &about.uid),
    ];
    let names = names.into_iter();
    let names =
        names.filter_map(|(key, text)| Some(format!("\"{key}\": {}", quoted(text.as_ref()?))));
    let mut properties: Vec<String> = names.collect();
    if let Some(text) = &about.attributes {
        properties.push(property(text)?);
    }
    Ok(properties)
}

/// The property for attributes.
pub(super) fn property(text: &str) -> Result<String, MetadataError> {
    let mut value = String::new();
    parse(text)?.write(&mut value);
    Ok(format!("\"attributes\": {value}"))
}

/// Parses the text of attributes, which must be an object: anything else would change the enclosing fragment.
fn parse(text: &str) -> Result<Json, MetadataError> {
    let json = json::read(text, 0, text.len()).map_err(|error| error.kind.nowhere())?;
    match json.data {
        Data::Object(_) => Ok(json),
        _ => Err(Kind::Unsupported("attributes that are no JSON object").nowhere()),
    }
}

/// Adds LTTng's attributes to others.
pub(super) fn with_lttng(
    text: Option<&str>,
    more: Vec<(&str, String)>,
) -> Result<String, MetadataError> {
    let mut json = parse(text.unwrap_or("{}"))?;
    if let Data::Object(all) = &mut json.data {
        if !all.iter().any(|(name, _)| name == LTTNG) {
            let (data, offset) = (Data::Object(Vec::new()), 0);
            all.push((LTTNG.to_owned(), Json { data, offset }));
        }
        let own = all.iter_mut().find(|(name, _)| name == LTTNG);
        let Some(Data::Object(own)) = own.map(|(_, own)| &mut own.data) else {
            return Err(Kind::Unsupported("attributes of LTTng that are no JSON object").nowhere());
        };
        let more = more.into_iter().map(|(name, text)| {
            let (data, offset) = (Data::Text(text), 0);
            (name.to_owned(), Json { data, offset })
        });
        own.extend(more);
    }
    let mut text = String::new();
    json.write(&mut text);
    Ok(text)
}
