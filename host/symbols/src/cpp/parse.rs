//! Parser of names.

use super::operators;
use super::{DEEPEST, Id, Node, Qualifiers};

/// Parser of a mangled name.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    rest: &'a str,
    pub nodes: Vec<Node<'a>>,
    /// Components that can be referred to, in order.
    substitutions: Vec<Id>,
    depth: u32,
    /// Whether the type of a conversion is being parsed; its parameters follow it.
    pub(super) in_conversion: bool,
}

impl<'a> Parser<'a> {
    pub fn new(rest: &'a str) -> Self {
        Self {
            rest,
            nodes: Vec::new(),
            substitutions: Vec::new(),
            depth: 0,
            in_conversion: false,
        }
    }

    /// Parses a whole name, with its suffixes.
    pub fn symbol(&mut self) -> Option<Id> {
        let name = self.encoding()?;
        match self.rest {
            "" => Some(name),
            rest if rest.starts_with('.') => {
                self.rest = "";
                Some(self.node(Node::Clone(name, rest)))
            }
            _ => None,
        }
    }

    pub(super) fn node(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    pub(super) fn get(&self, id: Id) -> Option<&Node<'a>> {
        self.nodes.get(id as usize)
    }

    pub(super) fn text(&mut self, text: &'static str) -> Id {
        self.node(Node::Text(text))
    }

    /// Records a node as a substitution candidate.
    pub(super) fn keep(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }

    /// Calls `work` one nesting level deeper.
    pub(super) fn deeper<R>(&mut self, work: impl FnOnce(&mut Self) -> Option<R>) -> Option<R> {
        if self.depth >= DEEPEST {
            return None;
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.bytes().next()
    }

    pub(super) fn starts_with(&self, text: &str) -> bool {
        self.rest.starts_with(text)
    }

    /// Consumes a text, if it follows.
    pub(super) fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(super) fn need(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    /// The next two bytes.
    pub(super) fn code(&self) -> Option<&'a str> {
        self.rest.get(..2)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Consumes up to and including a byte.
    pub(super) fn until(&mut self, end: char) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(text)
    }

    /// The rest after this many bytes.
    pub(super) fn rest_after(&self, count: usize) -> &'a str {
        self.rest.get(count..).unwrap_or("")
    }

    /// The current position, for [`Self::go_back`].
    pub(super) fn clone_position(&self) -> (&'a str, usize) {
        (self.rest, self.substitutions.len())
    }

    /// Returns to an earlier position.
    pub(super) fn go_back(&mut self, (rest, substitutions): (&'a str, usize)) {
        self.rest = rest;
        self.substitutions.truncate(substitutions);
    }

    pub(super) fn digits(&mut self) -> Option<&'a str> {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        self.skip(length).filter(|it| !it.is_empty())
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.digits()?.parse().ok()
    }

    /// `_`: 0, `0_`: 1, ...
    pub(super) fn counted(&mut self) -> Option<u64> {
        if self.take("_") {
            return Some(0);
        }
        let number = self.number()?;
        self.need("_")?;
        number.checked_add(1)
    }

    /// Parses a function or variable, or an entity that the compiler generated for one.
    pub(super) fn encoding(&mut self) -> Option<Id> {
        self.deeper(Self::encoding_inside)
    }

    fn encoding_inside(&mut self) -> Option<Id> {
        if matches!(self.peek(), Some(b'T' | b'G')) {
            return self.special();
        }
        let (name, qualifiers) = self.name()?;
        if matches!(self.peek(), None | Some(b'E' | b'.')) {
            return Some(name);
        }
        let returns = match self.has_return_type(name) {
            true => Some(self.kind()?),
            false => None,
        };
        let parameters = self.parameters()?;
        Some(self.node(Node::Function {
            name,
            returns,
            parameters,
            qualifiers,
        }))
    }

    /// Whether a function's type begins with its return type: if it has template arguments, and is not a constructor,
    /// destructor or conversion.
    fn has_return_type(&self, name: Id) -> bool {
        match self.get(name) {
            Some(Node::Template(name, _)) => !self.is_without_return_type(*name),
            Some(Node::Local { entity, .. }) => self.has_return_type(*entity),
            Some(Node::Tagged(name, _) | Node::InModule(name, _)) => self.has_return_type(*name),
            _ => false,
        }
    }

    fn is_without_return_type(&self, name: Id) -> bool {
        match self.get(name) {
            Some(Node::Constructor { .. } | Node::Conversion(_)) => true,
            Some(Node::Nested(_, name) | Node::Tagged(name, _) | Node::InModule(name, _)) => {
                self.is_without_return_type(*name)
            }
            Some(Node::Local { entity, .. }) => self.is_without_return_type(*entity),
            _ => false,
        }
    }

    /// Parses the types of a function's parameters.
    pub(super) fn parameters(&mut self) -> Option<Id> {
        let mut types = Vec::new();
        let end = |it: &Self| matches!(it.peek(), None | Some(b'E' | b'.'));
        let reference = |it: &Self| it.starts_with("RE") || it.starts_with("OE");
        while !end(self) && !reference(self) {
            types.push(self.kind()?);
        }
        if let [only] = types[..]
            && self.get(only) == Some(&Node::Text("void"))
        {
            types.clear();
        }
        Some(self.node(Node::List(types)))
    }

    /// Parses a name, and the qualifiers if it is a member function.
    pub(super) fn name(&mut self) -> Option<(Id, Qualifiers)> {
        self.deeper(|it| match it.peek()? {
            b'N' => it.nested(),
            b'Z' => it.local(),
            _ => it.unscoped().map(|name| (name, Qualifiers::default())),
        })
    }

    /// Parses a name that is not in a named scope.
    fn unscoped(&mut self) -> Option<Id> {
        let mut name = if self.starts_with("St") {
            self.skip(2)?;
            let scope = self.text("std");
            let name = self.unqualified(Some(scope))?;
            self.node(Node::Nested(scope, name))
        } else if self.peek() == Some(b'S') && self.code() != Some("St") {
            let name = self.substitution()?;
            // Without arguments it is a whole name only if it is a type.
            if self.peek() != Some(b'I') {
                return Some(name);
            }
            let arguments = self.arguments()?;
            return Some(self.node(Node::Template(name, arguments)));
        } else {
            self.unqualified(None)?
        };
        if self.peek() == Some(b'I') {
            self.keep(name);
            let arguments = self.arguments()?;
            name = self.node(Node::Template(name, arguments));
        }
        Some(name)
    }

    fn nested(&mut self) -> Option<(Id, Qualifiers)> {
        self.need("N")?;
        let mut qualifiers = self.qualifiers();
        if self.take("R") {
            qualifiers.reference = Some("&");
        } else if self.take("O") {
            qualifiers.reference = Some("&&");
        }
        let prefix = self.prefix()?;
        Some((prefix, qualifiers))
    }

    /// Parses nested components up to the `E`.
    pub(super) fn prefix(&mut self) -> Option<Id> {
        let mut whole: Option<Id> = None;
        while !self.take("E") {
            whole = Some(match self.peek()? {
                b'I' => {
                    let name = whole?;
                    let arguments = self.arguments()?;
                    self.node(Node::Template(name, arguments))
                }
                b'S' if self.code() == Some("St") => {
                    self.skip(2)?;
                    let std = self.text("std");
                    // It is not a substitution candidate by itself.
                    whole = Some(std);
                    continue;
                }
                b'S' => {
                    if whole.is_some() {
                        return None;
                    }
                    whole = Some(self.substitution()?);
                    continue;
                }
                b'T' => self.template_parameter()?,
                b'D' if matches!(self.code(), Some("Dt" | "DT")) => self.decltype()?,
                // The scope of a lambda in the initializer of a member.
                b'M' => {
                    self.skip(1)?;
                    continue;
                }
                _ => {
                    let name = self.unqualified(whole)?;
                    match whole {
                        Some(scope) => self.node(Node::Nested(scope, name)),
                        None => name,
                    }
                }
            });
            if self.peek() != Some(b'E') {
                let id = whole?;
                self.keep(id);
            }
        }
        whole
    }

    fn local(&mut self) -> Option<(Id, Qualifiers)> {
        self.need("Z")?;
        let function = self.encoding()?;
        self.need("E")?;
        if self.take("s") {
            self.discriminator();
            let entity = self.text("string literal");
            return Some((
                self.node(Node::Local { function, entity }),
                Qualifiers::default(),
            ));
        }
        let function = match self.take("d") {
            true => {
                let number = self.counted()?;
                let argument = self.node(Node::DefaultArgument(number + 1));
                self.node(Node::Local {
                    function,
                    entity: argument,
                })
            }
            false => function,
        };
        let (entity, qualifiers) = self.name()?;
        self.discriminator();
        Some((self.node(Node::Local { function, entity }), qualifiers))
    }

    /// Parses a discriminator, which distinguishes entities of the same name and is not shown.
    fn discriminator(&mut self) {
        let rest = self.rest;
        let found = if self.take("__") {
            self.digits().is_some() && self.take("_")
        } else if self.take("_") {
            self.skip(1)
                .is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()))
        } else {
            false
        };
        if !found {
            self.rest = rest;
        }
    }

    /// Parses the modules and partitions of a name, with their separators.
    pub(super) fn module(&mut self) -> Option<String> {
        let mut module = String::new();
        while self.take("W") {
            module.push(match (self.take("P"), module.is_empty()) {
                (true, _) => ':',
                (false, true) => '@',
                (false, false) => '.',
            });
            let name = match self.peek()? {
                b'S' => return None,
                _ => self.source_name()?,
            };
            module.push_str(name);
        }
        Some(module)
    }

    /// Parses a name within `scope`.
    fn unqualified(&mut self, scope: Option<Id>) -> Option<Id> {
        let module = self.module()?;
        let _ = self.take("L");
        let mut name = match self.peek()? {
            b'0'..=b'9' => {
                let name = self.source_name()?;
                let unnamed = name
                    .strip_prefix("_GLOBAL_")
                    .and_then(|it| it.as_bytes().first());
                let name = match unnamed {
                    Some(b'_' | b'.' | b'$') if name.as_bytes().get(9) == Some(&b'N') => {
                        "(anonymous namespace)"
                    }
                    _ => name,
                };
                self.node(Node::Text(name))
            }
            b'C' => {
                self.skip(1)?;
                let inherited = self.take("I");
                self.skip(1)?;
                let class = match inherited {
                    // It has the name of the base class whose it was.
                    true => self.kind()?,
                    false => scope?,
                };
                self.node(Node::Constructor {
                    class,
                    destructor: false,
                })
            }
            b'D' if self.starts_with("DC") => {
                self.skip(2)?;
                let mut names = Vec::new();
                while !self.take("E") {
                    let name = self.source_name()?;
                    names.push(self.node(Node::Text(name)));
                }
                let names = self.node(Node::List(names));
                self.node(Node::Binding(names))
            }
            b'D' => {
                self.skip(2)?;
                let class = scope?;
                self.node(Node::Constructor {
                    class,
                    destructor: true,
                })
            }
            b'U' => {
                let lambda = self.take("Ul");
                if lambda {
                    let parameters = self.parameters()?;
                    self.need("E")?;
                    let number = self.counted()? + 1;
                    self.node(Node::Lambda { parameters, number })
                } else {
                    self.need("Ut")?;
                    let number = self.counted()? + 1;
                    self.node(Node::Unnamed(number))
                }
            }
            _ => self.operator_name()?,
        };
        while self.take("B") {
            let tag = self.source_name()?;
            name = self.node(Node::Tagged(name, tag));
        }
        if !module.is_empty() {
            name = self.node(Node::InModule(name, module));
        }
        Some(name)
    }

    pub(super) fn source_name(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok().filter(|it| *it > 0)?;
        self.skip(length)
    }

    pub(super) fn operator_name(&mut self) -> Option<Id> {
        if self.take("li") {
            let name = self.source_name()?;
            return Some(self.node(Node::LiteralOperator(name)));
        }
        if self.take("cv") {
            let before = std::mem::replace(&mut self.in_conversion, true);
            let kind = self.kind();
            self.in_conversion = before;
            return kind.map(|kind| self.node(Node::Conversion(kind)));
        }
        let (sign, _) = operators::find(self.code()?)?;
        self.skip(2)?;
        Some(self.node(Node::Operator(sign)))
    }

    /// Parses template arguments: `I...E`, or a pack `J...E`.
    pub(super) fn arguments(&mut self) -> Option<Id> {
        self.deeper(|it| {
            if !it.take("I") {
                it.need("J")?;
            }
            let mut arguments = Vec::new();
            while !it.take("E") {
                arguments.push(it.argument()?);
            }
            Some(it.node(Node::List(arguments)))
        })
    }

    pub(super) fn argument(&mut self) -> Option<Id> {
        match self.peek()? {
            b'X' => {
                self.skip(1)?;
                let value = self.expression()?;
                self.need("E")?;
                Some(value)
            }
            b'L' => self.literal(),
            b'J' | b'I' => self.arguments(),
            _ => self.kind(),
        }
    }

    /// Parses a template parameter; the caller records it as a substitution candidate.
    pub(super) fn template_parameter(&mut self) -> Option<Id> {
        self.need("T")?;
        let number = usize::try_from(self.counted()?).ok()?;
        Some(self.node(Node::TemplateParameter(number)))
    }

    /// Parses a reference to an earlier component.
    pub(super) fn substitution(&mut self) -> Option<Id> {
        self.need("S")?;
        let usual = match self.peek()? {
            b'a' => "std::allocator",
            b'b' => "std::basic_string",
            b's' => "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            b'i' => "std::basic_istream<char, std::char_traits<char> >",
            b'o' => "std::basic_ostream<char, std::char_traits<char> >",
            b'd' => "std::basic_iostream<char, std::char_traits<char> >",
            _ => {
                let number = self.base_36()?;
                return self.substitutions.get(number).copied();
            }
        };
        self.skip(1)?;
        let mut id = self.text(usual);
        while self.take("B") {
            let tag = self.source_name()?;
            id = self.node(Node::Tagged(id, tag));
            self.keep(id);
        }
        Some(id)
    }

    /// `_`: 0, `0_`: 1, ... `Z_`: 36, `10_`: 37.
    fn base_36(&mut self) -> Option<usize> {
        let text = self.until('_')?;
        if text.is_empty() {
            return Some(0);
        }
        let digit = |it: u8| match it {
            b'0'..=b'9' => Some(usize::from(it - b'0')),
            b'A'..=b'Z' => Some(usize::from(it - b'A') + 10),
            _ => None,
        };
        let number = text.bytes().try_fold(0_usize, |all, it| {
            all.checked_mul(36)?.checked_add(digit(it)?)
        });
        number?.checked_add(1)
    }
}
