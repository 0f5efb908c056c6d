//! Printer of names, types and expressions.

use super::{DEEPEST, Id, LONGEST, Node, Qualifiers};

/// Maximum number of nodes printed: some print nothing.
const MOST_NODES: u32 = 200_000;

/// Prints a name. Exceeding the limits sets `failed`, and the name is not shown.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    nodes: &'a [Node<'a>],
    pub(super) out: String,
    /// The arguments of the templates whose functions are being printed, the innermost last.
    pub(super) templates: Vec<Id>,
    /// Index of the pack element being printed.
    pack: Option<usize>,
    /// Number of lambdas whose parameters are being printed; there a template parameter is `auto:1`.
    pub(super) lambdas: u32,
    depth: u32,
    count: u32,
    failed: bool,
}

impl<'a> Printer<'a> {
    pub fn new(nodes: &'a [Node<'a>]) -> Self {
        Self {
            nodes,
            out: String::new(),
            templates: Vec::new(),
            pack: None,
            lambdas: 0,
            depth: 0,
            count: 0,
            failed: false,
        }
    }

    /// Prints the whole name.
    pub fn finish(mut self, root: Id) -> Option<String> {
        self.print(root);
        (!self.failed).then_some(self.out)
    }

    pub(super) fn get(&self, id: Id) -> Option<&'a Node<'a>> {
        self.nodes.get(id as usize)
    }

    pub(super) fn put(&mut self, text: &str) {
        if self.out.len() + text.len() > LONGEST {
            self.failed = true;
        } else {
            self.out.push_str(text);
        }
    }

    /// Calls `work` one nesting level deeper, unless a limit is exceeded.
    pub(super) fn deeper(&mut self, work: impl FnOnce(&mut Self)) {
        self.count += 1;
        if self.failed || self.depth >= 2 * DEEPEST || self.count > MOST_NODES {
            self.failed = true;
            return;
        }
        self.depth += 1;
        work(self);
        self.depth -= 1;
    }

    pub(super) fn print(&mut self, id: Id) {
        self.left(id);
        self.right(id);
    }

    /// The argument for a parameter, and the number of templates that enclose it.
    fn argument(&self, number: usize) -> Option<Id> {
        let arguments = *self.templates.last()?;
        let Some(Node::List(arguments)) = self.get(arguments) else {
            return None;
        };
        let argument = *arguments.get(number)?;
        match (self.get(argument), self.pack) {
            (Some(Node::List(pack)), Some(element)) => pack.get(element).copied(),
            _ => Some(argument),
        }
    }

    /// Calls `work` with the argument for a parameter, outside of its template.
    pub(super) fn with_argument(&mut self, number: usize, work: impl FnOnce(&mut Self, Id)) {
        if self.lambdas > 0 {
            let text = format!("auto:{}", number + 1);
            return self.put(&text);
        }
        let Some(argument) = self.argument(number) else {
            self.failed = true;
            return;
        };
        let own = self.templates.pop();
        let pack = self.pack.take();
        work(self, argument);
        self.pack = pack;
        self.templates.extend(own);
    }

    /// Prints the part of a type before the declared name.
    pub(super) fn left(&mut self, id: Id) {
        self.deeper(|it| it.left_inside(id));
    }

    fn left_inside(&mut self, id: Id) {
        let Some(node) = self.get(id) else {
            self.failed = true;
            return;
        };
        match node {
            Node::TemplateParameter(number) => self.with_argument(*number, |it, id| it.left(id)),
            Node::Qualified(kind, qualifiers) => {
                self.left(*kind);
                // Qualifiers that the argument already has are not repeated.
                let own = self.qualifiers_of(*kind);
                self.qualifiers(Qualifiers {
                    restrict: qualifiers.restrict && !own.restrict,
                    volatile: qualifiers.volatile && !own.volatile,
                    constant: qualifiers.constant && !own.constant,
                    reference: None,
                });
            }
            Node::VendorQualified(kind, name) => {
                self.left(*kind);
                self.put(" ");
                self.print(*name);
            }
            Node::Pointer(sign, kind) => {
                let (sign, kind, scopes) = self.collapse(sign, *kind);
                self.within(scopes, |it| {
                    it.left(kind);
                    it.open(kind);
                    it.put(sign);
                });
            }
            Node::MemberPointer(class, member) => {
                self.left(*member);
                if self.open(*member) == Declarator::Plain {
                    self.put(" ");
                }
                self.print(*class);
                self.put("::*");
            }
            Node::FunctionType { returns, .. } => {
                self.left(*returns);
                self.put(" ");
            }
            Node::Array(_, kind) => self.left(*kind),
            Node::Suffixed(kind, word) => {
                self.left(*kind);
                self.put(word);
            }
            Node::Vector(size, kind) => {
                self.left(*kind);
                self.put(" __vector(");
                self.print(*size);
                self.put(")");
            }
            _ => self.whole(node),
        }
    }

    /// Prints the part of a type after the declared name.
    pub(super) fn right(&mut self, id: Id) {
        self.deeper(|it| it.right_inside(id));
    }

    fn right_inside(&mut self, id: Id) {
        match self.get(id) {
            Some(Node::TemplateParameter(number)) if self.lambdas == 0 => {
                self.with_argument(*number, |it, id| it.right(id));
            }
            Some(
                Node::Qualified(kind, _)
                | Node::VendorQualified(kind, _)
                | Node::Suffixed(kind, _)
                | Node::Vector(_, kind),
            ) => self.right(*kind),
            Some(Node::Pointer(sign, kind)) => {
                let (_, kind, scopes) = self.collapse(sign, *kind);
                self.within(scopes, |it| {
                    it.close(kind);
                    it.right(kind);
                });
            }
            Some(Node::MemberPointer(_, kind)) => {
                self.close(*kind);
                self.right(*kind);
            }
            Some(Node::FunctionType {
                returns,
                parameters,
                qualifiers,
                exceptions,
            }) => {
                self.put("(");
                self.list(*parameters);
                self.put(")");
                self.qualifiers(*qualifiers);
                if let Some(exceptions) = exceptions {
                    self.put(" ");
                    self.print(*exceptions);
                }
                self.right(*returns);
            }
            Some(Node::Array(size, kind)) => {
                if !self.out.ends_with(']') {
                    self.put(" ");
                }
                self.put("[");
                if let Some(size) = size {
                    self.print(*size);
                }
                self.put("]");
                self.right(*kind);
            }
            _ => {}
        }
    }

    /// Collapses a reference to a reference; returns also the number of templates to leave for the referenced type.
    fn collapse(&self, sign: &'static str, kind: Id) -> (&'static str, Id, usize) {
        let (mut sign, mut kind, mut scopes) = (sign, kind, 0);
        for _ in 0..DEEPEST {
            match self.get(kind) {
                Some(Node::TemplateParameter(number)) if sign != "*" && self.lambdas == 0 => {
                    let Some(argument) = self.argument_beyond(*number, scopes) else {
                        break;
                    };
                    if !matches!(
                        self.get(argument),
                        Some(Node::Pointer("&" | "&&", _) | Node::TemplateParameter(_))
                    ) {
                        break;
                    }
                    (kind, scopes) = (argument, scopes + 1);
                }
                Some(Node::Pointer(inner @ ("&" | "&&"), inside)) if sign != "*" => {
                    if *inner == "&" {
                        sign = "&";
                    }
                    kind = *inside;
                }
                _ => break,
            }
        }
        (sign, kind, scopes)
    }

    /// Calls `work` outside of this many templates.
    fn within(&mut self, scopes: usize, work: impl FnOnce(&mut Self)) {
        let at = self.templates.len().saturating_sub(scopes);
        let inner = self.templates.split_off(at);
        let pack = if scopes > 0 {
            self.pack.take()
        } else {
            self.pack
        };
        work(self);
        self.pack = pack;
        self.templates.extend(inner);
    }

    /// The argument for a template parameter, `scopes` templates further out.
    fn argument_beyond(&self, number: usize, scopes: usize) -> Option<Id> {
        let at = self.templates.len().checked_sub(scopes + 1)?;
        let Some(Node::List(arguments)) = self.get(*self.templates.get(at)?) else {
            return None;
        };
        let argument = *arguments.get(number)?;
        match (self.get(argument)?, self.pack) {
            (Node::List(pack), Some(element)) if scopes == 0 => pack.get(element).copied(),
            (Node::List(_), _) => None,
            _ => Some(argument),
        }
    }

    /// The declarator category of a type.
    fn declarator(&self, id: Id) -> Declarator {
        let (mut id, mut scopes) = (id, 0);
        for _ in 0..DEEPEST {
            id = match self.get(id) {
                Some(Node::FunctionType { .. }) => return Declarator::Function,
                Some(Node::Array(..)) => return Declarator::Array,
                Some(Node::Qualified(kind, _)) => *kind,
                Some(Node::TemplateParameter(number)) if self.lambdas == 0 => {
                    let Some(argument) = self.argument_beyond(*number, scopes) else {
                        break;
                    };
                    scopes += 1;
                    argument
                }
                _ => break,
            }
        }
        Declarator::Plain
    }

    /// The qualifiers of a type itself.
    fn qualifiers_of(&self, id: Id) -> Qualifiers {
        let (mut id, mut scopes) = (id, 0);
        for _ in 0..DEEPEST {
            id = match self.get(id) {
                Some(Node::Qualified(_, qualifiers)) => return *qualifiers,
                Some(Node::TemplateParameter(number)) if self.lambdas == 0 => {
                    let Some(argument) = self.argument_beyond(*number, scopes) else {
                        break;
                    };
                    scopes += 1;
                    argument
                }
                _ => break,
            }
        }
        Qualifiers::default()
    }

    /// Prints the parenthesis that separates a sign from the type's suffix.
    fn open(&mut self, kind: Id) -> Declarator {
        let declarator = self.declarator(kind);
        match declarator {
            Declarator::Function => self.put("("),
            Declarator::Array => self.put(" ("),
            Declarator::Plain => {}
        }
        declarator
    }

    fn close(&mut self, kind: Id) {
        if self.declarator(kind) != Declarator::Plain {
            self.put(")");
        }
    }

    pub(super) fn qualifiers(&mut self, qualifiers: Qualifiers) {
        if qualifiers.constant {
            self.put(" const");
        }
        if qualifiers.volatile {
            self.put(" volatile");
        }
        if qualifiers.restrict {
            self.put(" __restrict");
        }
        if let Some(reference) = qualifiers.reference {
            self.put(" ");
            self.put(reference);
        }
    }

    /// Prints a node that has no part after the declared name.
    fn whole(&mut self, node: &'a Node<'a>) {
        match node {
            Node::Text(text) => self.put(text),
            Node::Operator(sign) => {
                self.put("operator");
                self.put(sign);
            }
            Node::Conversion(kind) => {
                self.put("operator ");
                self.print(*kind);
            }
            Node::LiteralOperator(name) => {
                self.put("operator\"\" ");
                self.put(name);
            }
            Node::Nested(scope, name) => {
                self.print(*scope);
                self.put("::");
                self.print(*name);
            }
            Node::Template(name, arguments) => self.template(*name, *arguments),
            Node::List(_) => self.list_of(node),
            Node::Constructor { class, destructor } => {
                if *destructor {
                    self.put("~");
                }
                self.class_name(*class);
            }
            Node::Local { function, entity } => {
                self.local_function(*function);
                self.put("::");
                self.print(*entity);
            }
            Node::DefaultArgument(number) => self.put(&format!("{{default arg#{number}}}")),
            Node::Lambda { parameters, number } => {
                self.put("{lambda(");
                self.lambdas += 1;
                self.list(*parameters);
                self.lambdas -= 1;
                self.put(&format!(")#{number}}}"));
            }
            Node::Unnamed(number) => self.put(&format!("{{unnamed type#{number}}}")),
            Node::Binding(names) => {
                self.put("[");
                self.list(*names);
                self.put("]");
            }
            Node::Tagged(name, tag) => {
                self.print(*name);
                self.put("[abi:");
                self.put(tag);
                self.put("]");
            }
            Node::InModule(name, module) => {
                self.print(*name);
                self.put(module);
            }
            Node::Function { .. } => self.function(node, true),
            Node::Special(words, what) => {
                self.put(words);
                self.print(*what);
            }
            Node::Construction(base, whole) => {
                self.put("construction vtable for ");
                self.print(*base);
                self.put("-in-");
                self.print(*whole);
            }
            Node::Clone(name, what) => {
                self.print(*name);
                self.clones(what);
            }
            _ => self.expression(node),
        }
    }

    pub(super) fn list(&mut self, id: Id) {
        match self.get(id) {
            Some(node @ Node::List(_)) => self.list_of(node),
            _ => self.print(id),
        }
    }

    /// Prints elements separated by commas, up to the last one with output.
    fn list_of(&mut self, node: &'a Node<'a>) {
        let Node::List(list) = node else { return };
        let mut end = self.out.len();
        for (index, id) in list.iter().enumerate() {
            if index > 0 {
                self.put(", ");
            }
            let before = self.out.len();
            self.print(*id);
            if self.out.len() != before {
                end = self.out.len();
            }
        }
        // Removes trailing empty packs.
        self.out.truncate(end);
    }

    /// The length of the pack within an expansion.
    pub(super) fn pack_length(&mut self, id: Id) -> Option<usize> {
        self.count += 1;
        if self.count > MOST_NODES || self.lambdas > 0 {
            return None;
        }
        match self.get(id)? {
            Node::TemplateParameter(number) => {
                let Some(Node::List(arguments)) = self.get(*self.templates.last()?) else {
                    return None;
                };
                match self.get(*arguments.get(*number)?) {
                    Some(Node::List(pack)) => Some(pack.len()),
                    _ => None,
                }
            }
            Node::Expansion(_) | Node::Local { .. } => None,
            node => {
                let inside = node.inside();
                inside.into_iter().find_map(|id| self.pack_length(id))
            }
        }
    }

    /// Prints an expansion, once for each element.
    pub(super) fn expand(&mut self, what: Id) {
        let Some(length) = self.pack_length(what) else {
            self.operand(what);
            return self.put("...");
        };
        let before = self.pack;
        for element in 0..length {
            if element > 0 {
                self.put(", ");
            }
            self.pack = Some(element);
            self.print(what);
        }
        self.pack = before;
    }

    /// Number of elements of an argument of the innermost template; 1 unless it is a pack.
    pub(super) fn elements(&self, number: usize) -> Option<usize> {
        let Some(Node::List(arguments)) = self.get(*self.templates.last()?) else {
            return None;
        };
        match self.get(*arguments.get(number)?) {
            Some(Node::List(pack)) => Some(pack.len()),
            _ => Some(1),
        }
    }
}

/// Declarator category of a type: what a pointer to it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declarator {
    Plain,
    Function,
    Array,
}
