//! Parser of names of compiler-generated entities.

use super::parse::Parser;
use super::{Id, Node};

impl Parser<'_> {
    pub(super) fn special(&mut self) -> Option<Id> {
        const OF_TYPES: [(&str, &str); 6] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TF", "typeinfo fn for "),
            ("TA", "template parameter object for "),
        ];
        const OF_NAMES: [(&str, &str); 3] = [
            ("TH", "TLS init function for "),
            ("TW", "TLS wrapper function for "),
            ("GV", "guard variable for "),
        ];
        const OF_ENCODINGS: [(&str, &str); 4] = [
            ("GA", "hidden alias for "),
            ("GTn", "non-transaction clone for "),
            ("GTt", "transaction clone for "),
            ("GI", "initializer for module "),
        ];
        for (code, words) in OF_TYPES {
            if self.take(code) {
                let kind = match code {
                    "TA" => self.argument()?,
                    _ => self.kind()?,
                };
                return Some(self.node(Node::Special(words, kind)));
            }
        }
        for (code, words) in OF_NAMES {
            if self.take(code) {
                let (name, _) = self.name()?;
                return Some(self.node(Node::Special(words, name)));
            }
        }
        for (code, words) in OF_ENCODINGS {
            if self.take(code) {
                let what = match code {
                    "GI" => {
                        let module = self.module()?;
                        let nothing = self.text("");
                        let name = module.trim_start_matches(['.', '@']).to_owned();
                        self.node(Node::InModule(nothing, name))
                    }
                    _ => self.encoding()?,
                };
                return Some(self.node(Node::Special(words, what)));
            }
        }
        if self.take("GR") {
            let (name, _) = self.name()?;
            let _ = self.counted();
            return Some(self.node(Node::Special("reference temporary #0 for ", name)));
        }
        if self.take("TC") {
            let whole = self.kind()?;
            self.number()?;
            self.need("_")?;
            let base = self.kind()?;
            return Some(self.node(Node::Construction(base, whole)));
        }
        let words = match self.code()? {
            "Th" => "non-virtual thunk to ",
            "Tv" => "virtual thunk to ",
            "Tc" => "covariant return thunk to ",
            _ => return None,
        };
        self.skip(1)?;
        self.offset()?;
        if words.starts_with("cov") {
            self.offset()?;
        }
        let what = self.encoding()?;
        Some(self.node(Node::Special(words, what)))
    }

    /// Parses the offset between two objects.
    fn offset(&mut self) -> Option<()> {
        let virtual_too = self.peek() == Some(b'v');
        // In covariant thunks `c` precedes these, too.
        if !(self.take("h") || self.take("v")) {
            self.need("c")?;
            return self.offset();
        }
        let _ = self.take("n");
        self.digits()?;
        self.need("_")?;
        if virtual_too {
            let _ = self.take("n");
            self.digits()?;
            self.need("_")?;
        }
        Some(())
    }
}
