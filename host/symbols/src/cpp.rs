//! Demangler for C++ names of the Itanium ABI (GCC and Clang), with the output format of `c++filt`.
//!
//! A mangled name is parsed into nodes ([`parse`]), which are then printed ([`print`]). Template parameters are
//! resolved when they are printed, in the template whose function is being printed.
//!
//! Names are compressed by references to their own parts, so that a short one can expand to fill all memory, or nest
//! endlessly: names beyond the length or depth limits are not demangled.

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

/// Maximum length in bytes of a mangled or demangled name.
const LONGEST: usize = 16 * 1024;

/// Maximum depth of nesting.
const DEEPEST: u32 = 400;

/// Index of a node.
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
    /// Text that is printed unchanged.
    Text(&'a str),
    /// An operator's sign after the word `operator`.
    Operator(&'static str),
    /// A conversion to a type.
    Conversion(Id),
    /// `operator"" _km`.
    LiteralOperator(&'a str),
    /// `scope::name`.
    Nested(Id, Id),
    /// A name with template arguments, which are [`Node::List`]s.
    Template(Id, Id),
    /// Arguments, one of which may be a list: a pack.
    List(Vec<Id>),
    /// A parameter of the template whose function is being printed.
    TemplateParameter(usize),
    /// The constructor or destructor of a class.
    Constructor {
        class: Id,
        destructor: bool,
    },
    /// An entity inside a function.
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
    /// A function: its name, its return type if that is part of its name, and its parameters.
    Function {
        name: Id,
        returns: Option<Id>,
        parameters: Id,
        qualifiers: Qualifiers,
    },
    /// An entity that the compiler generated for another one.
    Special(&'static str, Id),
    /// `construction vtable for a-in-b`.
    Construction(Id, Id),
    /// A name with the suffix of a copy of it.
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
    /// An expansion: one instance for each element of a pack.
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
    /// The number of elements of a pack.
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

/// Demangles a C++ name that begins with `_Z`; `None` if it is invalid, or beyond the limits.
pub(crate) fn demangle(mangled: &str) -> Option<String> {
    // Some object formats prefix every C name with additional underscores.
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
