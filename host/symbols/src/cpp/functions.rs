//! Printer of function and template names.

use super::print::Printer;
use super::{Id, Node};

impl<'a> Printer<'a> {
    /// Prints suffixes such as `.constprop.0.cold`: each is a word with the numbers after it.
    pub(super) fn clones(&mut self, what: &str) {
        let mut open = false;
        for part in what.split('.').skip(1) {
            let is_number = part.starts_with(|it: char| it.is_ascii_digit());
            if open && !is_number {
                self.put("]");
                open = false;
            }
            if !open {
                self.put(" [clone ");
                open = true;
            }
            self.put(".");
            self.put(part);
        }
        if open {
            self.put("]");
        }
    }

    pub(super) fn template(&mut self, name: Id, arguments: Id) {
        self.print(name);
        if self.out.ends_with('<') {
            self.put(" ");
        }
        self.put("<");
        self.list(arguments);
        if self.out.ends_with('>') && !self.ends_with_nothing(arguments) {
            self.put(" ");
        }
        self.put(">");
    }

    /// Whether the last of several arguments is an empty pack: then `c++filt` prints no space before the end.
    fn ends_with_nothing(&self, arguments: Id) -> bool {
        match self.get(arguments) {
            Some(Node::List(list)) if list.len() > 1 => {
                let last = list.last().and_then(|last| self.get(*last));
                matches!(last, Some(Node::List(pack)) if pack.is_empty())
            }
            _ => false,
        }
    }

    /// Prints a function that encloses another entity: without its return type.
    pub(super) fn local_function(&mut self, id: Id) {
        match self.get(id) {
            Some(node @ Node::Function { .. }) => self.deeper(|it| it.function(node, false)),
            _ => self.print(id),
        }
    }

    pub(super) fn function(&mut self, node: &'a Node<'a>, with_return: bool) {
        let Node::Function {
            name,
            returns,
            parameters,
            qualifiers,
        } = node
        else {
            return;
        };
        // The arguments of a template also apply to its function's type.
        let arguments = self.template_of(*name);
        let returns = returns.filter(|_| with_return);
        let lambdas = std::mem::take(&mut self.lambdas);
        let push = |it: &mut Self| it.templates.extend(arguments);
        let pop = |it: &mut Self| {
            if arguments.is_some() {
                it.templates.pop();
            }
        };
        push(self);
        if let Some(returns) = returns {
            self.left(returns);
            if !self.out.ends_with("(*") && !self.out.ends_with("(&") {
                self.put(" ");
            }
        }
        self.print(*name);
        self.put("(");
        self.list(*parameters);
        self.put(")");
        self.qualifiers(*qualifiers);
        if let Some(returns) = returns {
            self.right(returns);
        }
        pop(self);
        self.lambdas = lambdas;
    }

    /// The arguments of a name, if it is a template's.
    fn template_of(&self, name: Id) -> Option<Id> {
        match self.get(name)? {
            Node::Template(_, arguments) => Some(*arguments),
            Node::Local { entity, .. } => self.template_of(*entity),
            Node::Tagged(name, _) | Node::InModule(name, _) => self.template_of(*name),
            _ => None,
        }
    }

    /// Prints the name of a class within itself.
    pub(super) fn class_name(&mut self, id: Id) {
        self.deeper(|it| match it.get(id) {
            Some(Node::Nested(_, name) | Node::Template(name, _) | Node::Tagged(name, _)) => {
                it.class_name(*name);
            }
            Some(Node::Local { entity, .. }) => it.class_name(*entity),
            Some(Node::Text(text)) => {
                // Abbreviations for classes of the standard library.
                let name = text.split('<').next().unwrap_or(text);
                let name = name.rsplit("::").next().unwrap_or(name);
                it.put(name);
            }
            Some(Node::TemplateParameter(number)) => {
                it.with_argument(*number, |it, id| it.class_name(id));
            }
            _ => it.print(id),
        });
    }
}
