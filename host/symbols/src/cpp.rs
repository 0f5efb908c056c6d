//! C++ names of the Itanium ABI (GCC and Clang) as `c++filt` writes them.
//!
//! A mangled name is read into nodes ([`parse`]), and these are written ([`print`]). Parameters of templates are resolved
//! when they are written, in the template whose function is written at that moment.
//!
//! Names are compressed by reference to their own parts, so that a short one can be made to fill all memory, or to nest
//! without end: what is longer or deeper than a limit is not demangled.

mod expressions;
mod functions;
mod operators;
mod parse;
mod print;
mod special;
mod types;
mod values;

use parse::Parser;
use print::Printer;

/// The most bytes of a mangled or demangled name.
const LONGEST: usize = 16 * 1024;

/// How deep a name may nest.
const DEEPEST: u32 = 400;

/// The number of a node.
type Id = u32;

/// Qualifiers of a type or of a member function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Qualifiers {
    restrict: bool,
    volatile: bool,
    constant: bool,
    /// `&` or `&&` of a member function.
    reference: Option<&'static str>,
}

/// A part of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node<'a> {
    /// What is written as it is.
    Text(&'a str),
    /// An operator's sign behind the word `operator`.
    Operator(&'static str),
    /// A conversion to a type.
    Conversion(Id),
    /// `operator"" _km`.
    LiteralOperator(&'a str),
    /// `scope::name`.
    Nested(Id, Id),
    /// A name with arguments, which are [`Node::List`]s.
    Template(Id, Id),
    /// Arguments, of which one may be a list: a pack.
    List(Vec<Id>),
    /// A parameter of the template whose function is written.
    TemplateParameter(usize),
    /// The constructor or destructor of a class.
    Constructor {
        class: Id,
        destructor: bool,
    },
    /// What is inside of a function.
    Local {
        function: Id,
        entity: Id,
    },
    /// The n-th default argument from the right.
    DefaultArgument(u64),
    Lambda {
        parameters: Id,
        number: u64,
    },
    Unnamed(u64),
    /// `[a, b]`.
    Binding(Id),
    /// `name[abi:tag]`.
    Tagged(Id, &'a str),
    /// `name@module`.
    InModule(Id, String),
    /// A function: its name, what it returns where that is part of its name, and its parameters.
    Function {
        name: Id,
        returns: Option<Id>,
        parameters: Id,
        qualifiers: Qualifiers,
    },
    /// Something that the compiler made for something else.
    Special(&'static str, Id),
    /// `construction vtable for a-in-b`.
    Construction(Id, Id),
    /// A name and what was appended to a copy of it.
    Clone(Id, &'a str),

    Qualified(Id, Qualifiers),
    /// `type name`.
    VendorQualified(Id, Id),
    /// `*`, `&`, `&&`.
    Pointer(&'static str, Id),
    /// `_Complex`.
    Suffixed(Id, &'static str),
    FunctionType {
        returns: Id,
        parameters: Id,
        qualifiers: Qualifiers,
        /// `noexcept` and the like.
        exceptions: Option<Id>,
    },
    Array(Option<Id>, Id),
    Vector(Id, Id),
    MemberPointer(Id, Id),
    /// What stands for as many as a pack has.
    Expansion(Id),

    /// The n-th parameter of the function; 0: `this`.
    FunctionParameter(u64),
    Literal {
        kind: Id,
        negative: bool,
        value: &'a str,
    },
    Unary(&'static str, Id),
    Postfix(Id, &'static str),
    Binary(Id, &'static str, Id),
    Index(Id, Id),
    Conditional(Id, Id, Id),
    Call(Id, Id),
    Cast(Id, Id),
    /// `static_cast<type>(value)`.
    NamedCast(&'static str, Id, Id),
    Braces(Option<Id>, Id),
    New {
        word: &'static str,
        placement: Id,
        kind: Id,
        initializer: Option<Id>,
    },
    /// How many a pack has.
    PackSize(Id),
    Fold {
        sign: &'static str,
        left: Option<Id>,
        right: Option<Id>,
    },
    Parenthesized(&'static str, Id),
    Designated(Id, Id),
    DesignatedIndex(Id, Id),
}

/// A C++ name as the source has it, from the mangled one that begins with `_Z`; `None` if it is none, or beyond the limits.
pub(crate) fn demangle(mangled: &str) -> Option<String> {
    // Leading underscores more are how some object formats mark every C name.
    let prefixes = ["_Z", "__Z", "___Z"].iter();
    let name = prefixes
        .filter_map(|prefix| mangled.strip_prefix(prefix))
        .next()?;
    if mangled.len() > LONGEST {
        return None;
    }
    let mut parser = Parser::new(name);
    let root = parser.symbol()?;
    Printer::new(&parser.nodes).finish(root)
}
