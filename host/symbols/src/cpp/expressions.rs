//! Parser of expressions.

use super::operators::{self, Kind};
use super::parse::Parser;
use super::{Id, Node};

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Option<Id> {
        self.deeper(Self::expression_inside)
    }

    fn expression_inside(&mut self) -> Option<Id> {
        match self.peek()? {
            b'L' => return self.literal(),
            b'T' => return self.template_parameter(),
            b'0'..=b'9' => return self.simple_name(),
            _ => {}
        }
        let code = self.code()?;
        if let Some(word) = operators::cast(code) {
            self.skip(2)?;
            let kind = self.kind()?;
            let value = self.expression()?;
            return Some(self.node(Node::NamedCast(word, kind, value)));
        }
        match code {
            "fp" | "fL" if self.function_parameter_follows() => self.function_parameter(),
            "fl" | "fr" | "fL" | "fR" => self.fold(code),
            "sr" => self.resolved(),
            "gs" => {
                self.skip(2)?;
                match self.code()? {
                    "nw" | "na" => self.new_expression(true),
                    _ => {
                        let value = self.expression()?;
                        Some(self.node(Node::Unary("::", value)))
                    }
                }
            }
            "on" => {
                self.skip(2)?;
                let name = self.operator_name()?;
                self.with_arguments(name)
            }
            "nw" | "na" => self.new_expression(false),
            "cl" => {
                self.skip(2)?;
                let function = self.expression()?;
                let values = self.expressions("E")?;
                Some(self.node(Node::Call(function, values)))
            }
            "cp" => {
                self.skip(2)?;
                let function = self.expression()?;
                let values = self.expressions("E")?;
                Some(self.node(Node::Call(function, values)))
            }
            "cv" => {
                self.skip(2)?;
                let kind = self.kind()?;
                let value = match self.take("_") {
                    true => self.expressions("E")?,
                    false => self.expression()?,
                };
                Some(self.node(Node::Cast(kind, value)))
            }
            "tl" | "il" => {
                self.skip(2)?;
                let kind = match code {
                    "tl" => Some(self.kind()?),
                    _ => None,
                };
                let values = self.expressions("E")?;
                Some(self.node(Node::Braces(kind, values)))
            }
            "di" => {
                self.skip(2)?;
                let field = self.source_name()?;
                let field = self.node(Node::Text(field));
                let value = self.expression()?;
                Some(self.node(Node::Designated(field, value)))
            }
            "dx" => {
                self.skip(2)?;
                let index = self.expression()?;
                let value = self.expression()?;
                Some(self.node(Node::DesignatedIndex(index, value)))
            }
            "dt" | "pt" => {
                self.skip(2)?;
                let left = self.expression()?;
                let right = self.member_name()?;
                let sign = if code == "dt" { "." } else { "->" };
                Some(self.node(Node::Binary(left, sign, right)))
            }
            "qu" => {
                self.skip(2)?;
                let (condition, yes, no) =
                    (self.expression()?, self.expression()?, self.expression()?);
                Some(self.node(Node::Conditional(condition, yes, no)))
            }
            "ix" => {
                self.skip(2)?;
                let (array, index) = (self.expression()?, self.expression()?);
                Some(self.node(Node::Index(array, index)))
            }
            "sp" => {
                self.skip(2)?;
                let value = self.expression()?;
                Some(self.node(Node::Expansion(value)))
            }
            "sZ" => {
                self.skip(2)?;
                let pack = match self.peek()? {
                    b'T' => self.template_parameter()?,
                    _ => self.function_parameter()?,
                };
                Some(self.node(Node::PackSize(pack)))
            }
            "sP" => {
                self.skip(2)?;
                let mut arguments = Vec::new();
                while !self.take("E") {
                    arguments.push(self.argument()?);
                }
                let arguments = self.node(Node::List(arguments));
                Some(self.node(Node::PackSize(arguments)))
            }
            "tr" => {
                self.skip(2)?;
                Some(self.text("throw"))
            }
            _ => self.operation(code),
        }
    }

    fn operation(&mut self, code: &str) -> Option<Id> {
        let (sign, kind) = operators::find(code)?;
        self.skip(2)?;
        match kind {
            Kind::OfType => {
                let operand = self.kind()?;
                Some(self.node(Node::Unary(sign, operand)))
            }
            Kind::Unary => {
                let operand = self.expression()?;
                let sign = match sign {
                    " delete" => "delete ",
                    " delete[]" => "delete[] ",
                    " co_await" => "co_await ",
                    _ => sign,
                };
                Some(self.node(Node::Unary(sign, operand)))
            }
            Kind::Step => {
                let before = self.take("_");
                let operand = self.expression()?;
                Some(match before {
                    true => self.node(Node::Unary(sign, operand)),
                    false => self.node(Node::Postfix(operand, sign)),
                })
            }
            Kind::Binary => {
                let (left, right) = (self.expression()?, self.expression()?);
                Some(self.node(Node::Binary(left, sign, right)))
            }
            Kind::Name => None,
        }
    }

    /// Parses expressions up to an end mark.
    fn expressions(&mut self, end: &str) -> Option<Id> {
        let mut values = Vec::new();
        while !self.take(end) {
            values.push(self.expression()?);
        }
        Some(self.node(Node::List(values)))
    }

    fn new_expression(&mut self, global: bool) -> Option<Id> {
        let array = self.take("na");
        if !array {
            self.need("nw")?;
        }
        let word = match (global, array) {
            (false, false) => "new ",
            (false, true) => "new[] ",
            (true, false) => "::new ",
            (true, true) => "::new[] ",
        };
        let placement = self.expressions("_")?;
        let kind = self.kind()?;
        let initializer = if self.take("E") {
            None
        } else if self.take("pi") {
            Some(self.expressions("E")?)
        } else {
            let braces = self.expression()?;
            self.need("E")?;
            Some(braces)
        };
        Some(self.node(Node::New {
            word,
            placement,
            kind,
            initializer,
        }))
    }

    /// `fL` begins both a parameter of an outer function and a fold.
    fn function_parameter_follows(&self) -> bool {
        self.starts_with("fp")
            || self.starts_with("fL")
                && self
                    .rest_after(2)
                    .starts_with(|it: char| it.is_ascii_digit())
    }

    fn function_parameter(&mut self) -> Option<Id> {
        if self.take("fL") {
            self.digits()?;
            self.need("p")?;
        } else {
            self.need("fp")?;
        }
        if self.take("T") {
            return Some(self.node(Node::FunctionParameter(0)));
        }
        self.qualifiers();
        let number = self.counted()? + 1;
        Some(self.node(Node::FunctionParameter(number)))
    }

    fn fold(&mut self, code: &str) -> Option<Id> {
        self.skip(2)?;
        let (sign, _) = operators::find(self.code()?)?;
        self.skip(2)?;
        let first = self.expression()?;
        let (left, right) = match code {
            "fl" => (None, Some(first)),
            "fr" => (Some(first), None),
            _ => (Some(first), Some(self.expression()?)),
        };
        Some(self.node(Node::Fold { sign, left, right }))
    }

    /// Parses a name in a type: `srT_3foo`, or with several levels: `sr3foo3barE3baz`. In the output of older compilers
    /// a type may look like a level, and the end of another construct like the end of the levels.
    fn resolved(&mut self) -> Option<Id> {
        self.need("sr")?;
        let before = self.clone_position();
        let in_levels = match self.peek()? {
            b'0'..=b'9' => self.levels().zip(self.base_name()),
            _ => None,
        };
        let (scope, name) = match in_levels {
            Some(found) => found,
            None => {
                self.go_back(before);
                (self.kind()?, self.base_name()?)
            }
        };
        let name = self.node(Node::Nested(scope, name));
        self.with_arguments(name)
    }

    fn levels(&mut self) -> Option<Id> {
        let mut scope = self.simple_name()?;
        while !self.take("E") {
            let name = self.simple_name()?;
            scope = self.node(Node::Nested(scope, name));
        }
        Some(scope)
    }

    fn base_name(&mut self) -> Option<Id> {
        if self.take("on") {
            return self.operator_name();
        }
        if self.take("dn") {
            let name = match self.peek()? {
                b'0'..=b'9' => self.simple_name()?,
                _ => self.kind()?,
            };
            return Some(self.node(Node::Unary("~", name)));
        }
        match self.peek()? {
            b'0'..=b'9' => {
                let name = self.source_name()?;
                Some(self.node(Node::Text(name)))
            }
            _ => self.operator_name(),
        }
    }

    /// Parses the name after `.` and `->`.
    fn member_name(&mut self) -> Option<Id> {
        match self.code() {
            Some("sr" | "gs") => self.expression(),
            _ => {
                let name = self.base_name()?;
                self.with_arguments(name)
            }
        }
    }

    fn simple_name(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        let name = self.node(Node::Text(name));
        self.with_arguments(name)
    }

    fn with_arguments(&mut self, name: Id) -> Option<Id> {
        if self.peek() != Some(b'I') {
            return Some(name);
        }
        let arguments = self.arguments()?;
        Some(self.node(Node::Template(name, arguments)))
    }

    /// Parses a literal: `L`, a type, a value; or the name of a function or variable.
    pub(super) fn literal(&mut self) -> Option<Id> {
        self.need("L")?;
        if self.take("_Z") || self.take("Z") {
            let name = self.encoding()?;
            self.need("E")?;
            return Some(name);
        }
        let kind = self.kind()?;
        let negative = self.take("n");
        let value: &'a str = self.until('E')?;
        Some(self.node(Node::Literal {
            kind,
            negative,
            value,
        }))
    }
}
