//! JSON objects that are written directly to an output, one a line: [`kymo_export::json`] formats them.

use std::io::{self, Write};

pub use kymo_export::json::Json;
use kymo_export::json::string;

/// An object under construction. [`end`](Self::end) closes and flushes it.
pub struct Object<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        Ok(Self {
            out,
            line: vec![b'{'],
        })
    }

    /// Writes a member.
    pub fn member(&mut self, name: &str, value: impl Json) -> io::Result<&mut Self> {
        if self.line.len() > 1 {
            self.line.push(b',');
        }
        string(&mut self.line, name);
        self.line.push(b':');
        value.write(&mut self.line);
        Ok(self)
    }

    /// Closes the object.
    pub fn end(mut self) -> io::Result<()> {
        self.line.push(b'}');
        self.out.write_all(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_value_with_its_members_in_order() {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out).unwrap();
        object.member("text", "\"quoted\" \u{1}\u{9b}\n").unwrap();
        object.member("none", None::<u64>).unwrap();
        object.member("list", [1u64, 2].as_slice()).unwrap();
        object.end().unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!({"text": "\"quoted\" \u{1}\u{9b}\n", "none": null, "list": [1, 2]})
        );
        assert!(out.starts_with(b"{\"text\""), "order is kept");
        assert!(out.is_ascii(), "no control character is in it as it is");
    }
}
