//! Parser of types.

use super::parse::Parser;
use super::{Id, Node, Qualifiers};

impl Parser<'_> {
    pub(super) fn qualifiers(&mut self) -> Qualifiers {
        Qualifiers {
            restrict: self.take("r"),
            volatile: self.take("V"),
            constant: self.take("K"),
            reference: None,
        }
    }

    /// Parses a type.
    pub(super) fn kind(&mut self) -> Option<Id> {
        self.deeper(Self::kind_inside)
    }

    fn kind_inside(&mut self) -> Option<Id> {
        if let Some(builtin) = self.builtin() {
            return Some(builtin);
        }
        let pointer = match self.peek()? {
            b'r' | b'V' | b'K' => {
                let qualifiers = self.qualifiers();
                if self.starts_with("F") || self.starts_with("Do") {
                    return self.function_type(qualifiers).map(|it| self.keep(it));
                }
                let kind = self.kind()?;
                let id = self.node(Node::Qualified(kind, qualifiers));
                return Some(self.keep(id));
            }
            b'P' => "*",
            b'R' => "&",
            b'O' => "&&",
            _ => return self.other_kind(),
        };
        self.skip(1)?;
        let kind = self.kind()?;
        let id = self.node(Node::Pointer(pointer, kind));
        Some(self.keep(id))
    }

    fn other_kind(&mut self) -> Option<Id> {
        let id = match self.peek()? {
            b'C' | b'G' => {
                let word = if self.take("C") {
                    " _Complex"
                } else {
                    self.skip(1)?;
                    " _Imaginary"
                };
                let kind = self.kind()?;
                self.node(Node::Suffixed(kind, word))
            }
            b'F' => self.function_type(Qualifiers::default())?,
            b'A' => self.array()?,
            b'M' => {
                self.skip(1)?;
                let class = self.kind()?;
                let member = self.kind()?;
                self.node(Node::MemberPointer(class, member))
            }
            b'U' => {
                self.skip(1)?;
                let name = self.source_name()?;
                let mut name = self.node(Node::Text(name));
                if self.peek() == Some(b'I') {
                    let arguments = self.arguments()?;
                    name = self.node(Node::Template(name, arguments));
                }
                let kind = self.kind()?;
                self.node(Node::VendorQualified(kind, name))
            }
            b'T' if matches!(self.code(), Some("Ts" | "Tu" | "Te")) => {
                self.skip(2)?;
                self.name()?.0
            }
            b'T' => return self.parameter_kind(),
            b'S' if self.code() != Some("St") => return self.referred_kind(),
            b'D' => return self.special_kind(),
            _ => self.name()?.0,
        };
        Some(self.keep(id))
    }

    /// Parses a template parameter, or a template template parameter with arguments.
    fn parameter_kind(&mut self) -> Option<Id> {
        let mut id = self.template_parameter()?;
        self.keep(id);
        if self.peek() == Some(b'I') && !self.in_conversion {
            let arguments = self.arguments()?;
            id = self.node(Node::Template(id, arguments));
            self.keep(id);
        } else if self.peek() == Some(b'I') {
            // Arguments after the parameter may be its own, or those of the conversion: the last ones are the
            // conversion's.
            let before = self.clone_position();
            let arguments = self.arguments()?;
            if self.peek() == Some(b'I') {
                id = self.node(Node::Template(id, arguments));
                self.keep(id);
            } else {
                self.go_back(before);
            }
        }
        Some(id)
    }

    fn referred_kind(&mut self) -> Option<Id> {
        let mut id = self.substitution()?;
        if self.peek() == Some(b'I') {
            let arguments = self.arguments()?;
            id = self.node(Node::Template(id, arguments));
            self.keep(id);
        }
        Some(id)
    }

    /// Parses a type that begins with `D` and is not a builtin type.
    fn special_kind(&mut self) -> Option<Id> {
        let id = match self.code()? {
            "Dt" | "DT" => self.decltype()?,
            "Dp" => {
                self.skip(2)?;
                let kind = self.kind()?;
                self.node(Node::Expansion(kind))
            }
            "Dv" => {
                self.skip(2)?;
                let size = if self.take("_") {
                    self.expression()?
                } else {
                    let size = self.digits()?;
                    self.node(Node::Text(size))
                };
                self.need("_")?;
                let kind = self.kind()?;
                self.node(Node::Vector(size, kind))
            }
            "Do" | "DO" | "Dw" | "Dx" => self.function_type(Qualifiers::default())?,
            _ => return None,
        };
        Some(self.keep(id))
    }

    pub(super) fn decltype(&mut self) -> Option<Id> {
        self.skip(2)?;
        let value = self.expression()?;
        self.need("E")?;
        Some(self.node(Node::Parenthesized("decltype ", value)))
    }

    fn function_type(&mut self, mut qualifiers: Qualifiers) -> Option<Id> {
        let exceptions = if self.take("Do") {
            Some(self.text("noexcept"))
        } else if self.take("DO") {
            let value = self.expression()?;
            self.need("E")?;
            Some(self.node(Node::Parenthesized("noexcept", value)))
        } else if self.take("Dw") {
            let mut types = Vec::new();
            while !self.take("E") {
                types.push(self.kind()?);
            }
            let types = self.node(Node::List(types));
            Some(self.node(Node::Parenthesized("throw", types)))
        } else {
            None
        };
        let _ = self.take("Dx");
        self.need("F")?;
        let _ = self.take("Y");
        let returns = self.kind()?;
        let parameters = self.parameters()?;
        if self.take("R") {
            qualifiers.reference = Some("&");
        } else if self.take("O") {
            qualifiers.reference = Some("&&");
        }
        self.need("E")?;
        Some(self.node(Node::FunctionType {
            returns,
            parameters,
            qualifiers,
            exceptions,
        }))
    }

    fn array(&mut self) -> Option<Id> {
        self.need("A")?;
        let size = match self.peek()? {
            b'_' => None,
            b'0'..=b'9' => {
                let size = self.digits()?;
                Some(self.node(Node::Text(size)))
            }
            _ => Some(self.expression()?),
        };
        self.need("_")?;
        let kind = self.kind()?;
        Some(self.node(Node::Array(size, kind)))
    }

    fn builtin(&mut self) -> Option<Id> {
        let short = match self.peek()? {
            b'v' => "void",
            b'w' => "wchar_t",
            b'b' => "bool",
            b'c' => "char",
            b'a' => "signed char",
            b'h' => "unsigned char",
            b's' => "short",
            b't' => "unsigned short",
            b'i' => "int",
            b'j' => "unsigned int",
            b'l' => "long",
            b'm' => "unsigned long",
            b'x' => "long long",
            b'y' => "unsigned long long",
            b'n' => "__int128",
            b'o' => "unsigned __int128",
            b'f' => "float",
            b'd' => "double",
            b'e' => "long double",
            b'g' => "__float128",
            b'z' => "...",
            b'u' => {
                self.skip(1)?;
                let name = self.source_name()?;
                let id = self.node(Node::Text(name));
                return Some(self.keep(id));
            }
            b'D' => return self.newer_builtin(),
            _ => return None,
        };
        self.skip(1)?;
        Some(self.text(short))
    }

    fn newer_builtin(&mut self) -> Option<Id> {
        let name = match self.code()? {
            "Da" => "auto",
            "Dc" => "decltype(auto)",
            "Dn" => "decltype(nullptr)",
            "Dd" => "decimal64",
            "De" => "decimal128",
            "Df" => "decimal32",
            "Dh" => "half",
            "Di" => "char32_t",
            "Ds" => "char16_t",
            "Du" => "char8_t",
            "DF" => {
                const FLOATS: [(&str, &str); 7] = [
                    ("DF16_", "_Float16"),
                    ("DF32_", "_Float32"),
                    ("DF64_", "_Float64"),
                    ("DF128_", "_Float128"),
                    ("DF32x", "_Float32x"),
                    ("DF64x", "_Float64x"),
                    ("DF16b", "std::bfloat16_t"),
                ];
                let (_, name) = FLOATS.into_iter().find(|(code, _)| self.take(code))?;
                return Some(self.text(name));
            }
            _ => return None,
        };
        self.skip(2)?;
        Some(self.text(name))
    }
}
