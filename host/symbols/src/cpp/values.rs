//! Printer of expressions.

use super::print::Printer;
use super::{Id, Node};

impl<'a> Printer<'a> {
    pub(super) fn expression(&mut self, node: &'a Node<'a>) {
        match node {
            Node::FunctionParameter(0) => self.put("this"),
            Node::FunctionParameter(number) => self.put(&format!("{{parm#{number}}}")),
            Node::Literal {
                kind,
                negative,
                value,
            } => self.literal(*kind, *negative, value),
            Node::Unary(sign, operand) => self.unary(sign, *operand),
            Node::Postfix(operand, sign) => {
                self.operand(*operand);
                self.put(sign);
            }
            Node::Binary(left, sign, right) => {
                // It would end the template arguments.
                let enclosed = *sign == ">";
                if enclosed {
                    self.put("(");
                }
                self.operand(*left);
                self.put(sign);
                self.operand(*right);
                if enclosed {
                    self.put(")");
                }
            }
            Node::Index(array, index) => {
                self.operand(*array);
                self.put("[");
                self.print(*index);
                self.put("]");
            }
            Node::Conditional(condition, yes, no) => {
                self.operand(*condition);
                self.put("?");
                self.operand(*yes);
                self.put(" : ");
                self.operand(*no);
            }
            Node::Call(function, values) => {
                match self.get(*function) {
                    Some(Node::Function { name, .. }) => self.operand(*name),
                    _ => self.operand(*function),
                }
                self.put("(");
                self.list(*values);
                self.put(")");
            }
            Node::Cast(kind, value) => {
                self.put("(");
                self.print(*kind);
                self.put(")");
                self.operand(*value);
            }
            Node::NamedCast(word, kind, value) => {
                self.put(word);
                self.put("<");
                self.print(*kind);
                self.put(">(");
                self.print(*value);
                self.put(")");
            }
            Node::Braces(kind, values) => {
                if let Some(kind) = kind {
                    self.print(*kind);
                }
                self.put("{");
                self.list(*values);
                self.put("}");
            }
            Node::New {
                word,
                placement,
                kind,
                initializer,
            } => {
                self.put(word);
                if matches!(self.get(*placement), Some(Node::List(list)) if !list.is_empty()) {
                    self.put("(");
                    self.list(*placement);
                    self.put(") ");
                }
                self.print(*kind);
                if let Some(initializer) = initializer {
                    self.operand(*initializer);
                }
            }
            Node::PackSize(pack) => self.pack_size(*pack),
            Node::Fold { sign, left, right } => self.fold(sign, *left, *right),
            Node::Parenthesized(word, value) => {
                self.put(word);
                self.put("(");
                self.print(*value);
                self.put(")");
            }
            Node::Expansion(what) => self.expand(*what),
            Node::Designated(field, value) => {
                self.put(".");
                self.print(*field);
                self.designated(*value);
            }
            Node::DesignatedIndex(index, value) => {
                self.put("[");
                self.print(*index);
                self.put("]");
                self.designated(*value);
            }
            _ => {}
        }
    }

    fn designated(&mut self, value: Id) {
        let more = matches!(
            self.get(value),
            Some(Node::Designated(..) | Node::DesignatedIndex(..))
        );
        if !more {
            self.put("=");
        }
        self.print(value);
    }

    /// Prints an operand: in parentheses unless it is a name.
    pub(super) fn operand(&mut self, id: Id) {
        let is_name = matches!(
            self.get(id),
            Some(Node::Text(_) | Node::Nested(..) | Node::Braces(..) | Node::FunctionParameter(_))
        );
        if is_name {
            return self.print(id);
        }
        self.put("(");
        self.print(id);
        self.put(")");
    }

    fn unary(&mut self, sign: &str, operand: Id) {
        // The address of a function in a namespace or class is printed without parameters.
        if let ("&", Some(Node::Function { name, .. })) = (sign, self.get(operand))
            && matches!(self.get(*name), Some(Node::Nested(..)))
        {
            self.put(sign);
            return self.print(*name);
        }
        self.put(sign);
        match sign {
            "::" | "~"
                if matches!(self.get(operand), Some(Node::Template(..) | Node::Call(..))) =>
            {
                self.print(operand);
            }
            _ => self.operand(operand),
        }
    }

    fn literal(&mut self, kind: Id, negative: bool, value: &str) {
        let name = match self.get(kind) {
            Some(Node::Text(name)) => *name,
            _ => "",
        };
        let suffix = match (name, value) {
            ("int", _) => Some(""),
            ("unsigned int", _) => Some("u"),
            ("long", _) => Some("l"),
            ("unsigned long", _) => Some("ul"),
            ("long long", _) => Some("ll"),
            ("unsigned long long", _) => Some("ull"),
            ("bool", "0") if !negative => return self.put("false"),
            ("bool", "1") if !negative => return self.put("true"),
            _ => None,
        };
        if value.is_empty() {
            return self.print(kind);
        }
        if suffix.is_none() {
            self.put("(");
            self.print(kind);
            self.put(")");
        }
        if negative {
            self.put("-");
        }
        let is_float = matches!(name, "float" | "double" | "long double" | "__float128");
        if is_float {
            self.put("[");
        }
        self.put(value);
        if is_float {
            self.put("]");
        }
        self.put(suffix.unwrap_or(""));
    }

    fn pack_size(&mut self, pack: Id) {
        let count = match self.get(pack) {
            Some(Node::TemplateParameter(number)) => self.elements(*number),
            Some(Node::List(list)) => {
                let list = list.iter();
                list.map(|id| match self.get(*id) {
                    Some(Node::Expansion(what)) => self.pack_length(*what),
                    Some(Node::TemplateParameter(number)) => self.elements(*number),
                    _ => Some(1),
                })
                .sum()
            }
            _ => None,
        };
        match count {
            Some(count) => self.put(&count.to_string()),
            None => {
                self.put("sizeof...(");
                self.print(pack);
                self.put(")");
            }
        }
    }

    fn fold(&mut self, sign: &str, left: Option<Id>, right: Option<Id>) {
        self.put("(");
        match left {
            Some(left) => {
                self.operand(left);
                self.put(sign);
                self.put("...");
            }
            None => self.put("..."),
        }
        if let Some(right) = right {
            self.put(sign);
            self.operand(right);
        }
        self.put(")");
    }
}

impl Node<'_> {
    /// The nodes that may contain the pack of an expansion.
    pub(super) fn inside(&self) -> Vec<Id> {
        match self {
            Self::Conversion(a)
            | Self::Qualified(a, _)
            | Self::Pointer(_, a)
            | Self::Suffixed(a, _)
            | Self::Unary(_, a)
            | Self::Postfix(a, _)
            | Self::Parenthesized(_, a)
            | Self::PackSize(a)
            | Self::Tagged(a, _)
            | Self::InModule(a, _) => vec![*a],
            Self::Nested(a, b)
            | Self::Template(a, b)
            | Self::VendorQualified(a, b)
            | Self::Vector(a, b)
            | Self::MemberPointer(a, b)
            | Self::Binary(a, _, b)
            | Self::Index(a, b)
            | Self::Call(a, b)
            | Self::Cast(a, b)
            | Self::NamedCast(_, a, b)
            | Self::Designated(a, b)
            | Self::DesignatedIndex(a, b) => vec![*a, *b],
            Self::Conditional(a, b, c) => vec![*a, *b, *c],
            Self::List(list) => list.clone(),
            Self::Array(size, kind) => size.iter().copied().chain([*kind]).collect(),
            Self::Braces(kind, values) => kind.iter().copied().chain([*values]).collect(),
            Self::FunctionType {
                returns,
                parameters,
                ..
            } => vec![*returns, *parameters],
            Self::New {
                placement,
                kind,
                initializer,
                ..
            } => [*placement, *kind]
                .into_iter()
                .chain(*initializer)
                .collect(),
            Self::Fold { left, right, .. } => left.iter().chain(right).copied().collect(),
            _ => Vec::new(),
        }
    }
}
