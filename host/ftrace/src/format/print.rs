//! Parser for print formats: `printf` arguments in C, as the kernel's macros expand to them.

use std::sync::OnceLock;

use super::lexer::{self, Token};
use super::printf::{self, Piece};
use super::{EventFormat, FieldFormat};

/// Print format of an event: a format string and its arguments.
#[derive(Clone, Debug)]
pub struct PrintFormat {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) arguments: Vec<Expr>,
}

/// Entry of a table in `__print_flags` or `__print_symbolic`: number and text.
pub(crate) type Pair = (u64, String);

/// Argument expression.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Number(u64),
    Text(String),
    Field(Box<FieldFormat>),
    Cast(String, Box<Expr>),
    Unary(char, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Flags(Box<Expr>, String, Vec<Pair>),
    Symbolic(Box<Expr>, Vec<Pair>),
    /// Bytes in hexadecimal: the bytes, their number, and whether spaces separate them.
    Hex(Box<Expr>, Box<Expr>, bool),
    /// Numbers in braces: the array, the number of elements, and the size of each in bytes.
    Numbers(Box<Expr>, Option<Box<Expr>>, Box<Expr>),
    /// Text or array whose location the field holds.
    Located(Box<FieldFormat>),
    /// Size in bytes of the data whose location the field holds.
    Length(Box<FieldFormat>),
    Bitmask(Box<FieldFormat>),
    Cpumask(Box<FieldFormat>),
    /// Address of a kernel variable, looked up at its first use.
    Variable(String, OnceLock<u64>),
}

/// Largest nesting depth of expressions.
const DEEPEST: u32 = 200;

impl PrintFormat {
    /// Parses the text behind `print fmt:`; `None` if a part of it is not supported.
    pub(crate) fn parse(text: &str, event: &EventFormat) -> Option<Self> {
        let tokens = lexer::tokens(text)?;
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
            depth: 0,
            event,
            is_computed: false,
        };
        let format = parser.text()?;
        let mut arguments = Vec::new();
        while parser.sign(",") {
            arguments.push(parser.expression()?);
        }
        (parser.at == tokens.len()).then(|| Self {
            pieces: printf::pieces(&format),
            arguments,
        })
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    event: &'a EventFormat,
    /// Whether the parser is in a value of a table of flags or names that is not a single name.
    is_computed: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn is_sign(&self, ahead: usize, sign: &str) -> bool {
        matches!(self.tokens.get(self.at + ahead), Some(Token::Sign(found)) if *found == sign)
    }

    /// Consumes a sign if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        let is_next = self.is_sign(0, sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.sign(sign).then_some(())
    }

    /// Parses a string. Adjacent strings are concatenated.
    fn text(&mut self) -> Option<String> {
        let mut all: Option<String> = None;
        while let Some(Token::Text(text)) = self.peek() {
            all.get_or_insert_default().push_str(text);
            self.at += 1;
        }
        all
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else {
            return None;
        };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn expression(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let condition = self.binary(0)?;
        let parsed = if self.sign("?") {
            let yes = self.expression()?;
            self.expect(":")?;
            let no = self.expression()?;
            Expr::Choice(condition.into(), yes.into(), no.into())
        } else {
            condition
        };
        self.depth -= 1;
        Some(parsed)
    }

    /// Parses operators that bind more strongly than `least`.
    fn binary(&mut self, least: u8) -> Option<Expr> {
        let mut left = self.unary()?;
        while let Some(Token::Sign(sign)) = self.peek() {
            let sign = *sign;
            let strength = match sign {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | ">" | "<=" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => break,
            };
            if strength <= least {
                break;
            }
            self.at += 1;
            let right = self.binary(strength)?;
            left = Expr::Binary(sign, left.into(), right.into());
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let parsed = self.unary_inside();
        self.depth -= 1;
        parsed
    }

    fn unary_inside(&mut self) -> Option<Expr> {
        for sign in ["-", "!", "~", "+"] {
            if self.sign(sign) {
                let sign = sign.chars().next()?;
                return Some(Expr::Unary(sign, self.unary()?.into()));
            }
        }
        // Data behind a pointer is in the record, and an array is its own address.
        if self.sign("*") || self.sign("&") {
            return self.unary();
        }
        if self.is_sign(0, "(")
            && let Some((type_name, length)) = self.cast()
        {
            self.at += length;
            return Some(Expr::Cast(type_name, self.unary()?.into()));
        }
        let inner = self.primary()?;
        self.behind(inner)
    }

    /// Returns the type in parentheses that is next and its number of tokens, if the token behind it can be cast.
    fn cast(&self) -> Option<(String, usize)> {
        let mut name = String::new();
        let mut length = 1;
        loop {
            match self.tokens.get(self.at + length)? {
                Token::Word(word) if word != "REC" => {
                    if !name.is_empty() {
                        name.push(' ');
                    }
                    name.push_str(word);
                }
                Token::Sign("*") if !name.is_empty() => name.push('*'),
                Token::Sign(")") if !name.is_empty() => break,
                _ => return None,
            }
            length += 1;
        }
        length += 1;
        let follows = match self.tokens.get(self.at + length)? {
            Token::Word(_) | Token::Number(_) | Token::Text(_) => true,
            Token::Sign(sign) => {
                matches!(*sign, "(" | "!" | "~")
                    || *sign == "-" && is_type(&name)
                    || matches!(*sign, "*" | "&") && is_type(&name)
            }
        };
        follows.then_some((name, length))
    }

    /// Parses indices behind an expression.
    fn behind(&mut self, inner: Expr) -> Option<Expr> {
        let mut inner = inner;
        while self.sign("[") {
            let index = self.expression()?;
            self.expect("]")?;
            inner = Expr::Index(inner.into(), index.into());
        }
        Some(inner)
    }

    fn primary(&mut self) -> Option<Expr> {
        if self.sign("(") {
            let inside = self.expression()?;
            self.expect(")")?;
            return Some(inside);
        }
        match self.peek()? {
            Token::Number(number) => {
                let number = *number;
                self.at += 1;
                Some(Expr::Number(number))
            }
            Token::Text(_) => self.text().map(Expr::Text),
            Token::Word(_) => {
                let word = self.word()?;
                if word == "REC" {
                    return match self.sign("->") || self.sign(".") {
                        true => Some(Expr::Field(self.field()?.into())),
                        false => None,
                    };
                }
                if self.sign("(") {
                    let parsed = self.call(&word)?;
                    self.expect(")")?;
                    return Some(parsed);
                }
                // A name that the kernel did not replace with its number.
                match &*word {
                    "true" => Some(Expr::Number(1)),
                    "false" | "NULL" => Some(Expr::Number(0)),
                    // Base of all `struct page`. trace-cmd uses its address, too, and adds the number of the page.
                    "vmemmap_base" => Some(Expr::Variable(word, OnceLock::new())),
                    // trace-cmd computes with 0 for an unknown name: `1 << NAME` is 1.
                    _ => timer_mode(&word)
                        .or(self.is_computed.then_some(0))
                        .map(Expr::Number),
                }
            }
            Token::Sign(_) => None,
        }
    }

    /// Parses the name of a field of the event.
    fn field(&mut self) -> Option<FieldFormat> {
        let name = self.word()?;
        self.event.field(&name).cloned()
    }

    fn call(&mut self, name: &str) -> Option<Expr> {
        let located = |parser: &mut Self| parser.field().map(Box::new);
        Some(match name {
            "__print_flags" | "__print_flags_u64" => {
                let value = self.expression()?;
                self.expect(",")?;
                let between = match self.text() {
                    Some(text) => text,
                    // NULL.
                    None => {
                        self.expression()?;
                        String::new()
                    }
                };
                Expr::Flags(value.into(), between, self.pairs()?)
            }
            "__print_symbolic" | "__print_symbolic_u64" => {
                let value = self.expression()?;
                Expr::Symbolic(value.into(), self.pairs()?)
            }
            "__print_hex" | "__print_hex_str" => {
                let bytes = self.expression()?;
                self.expect(",")?;
                let count = self.expression()?;
                Expr::Hex(bytes.into(), count.into(), name == "__print_hex")
            }
            "__print_array" => {
                let numbers = self.expression()?;
                self.expect(",")?;
                let count = self.expression()?;
                self.expect(",")?;
                let size = self.expression()?;
                Expr::Numbers(numbers.into(), Some(Box::new(count)), size.into())
            }
            "__print_dynamic_array" => {
                let field = located(self)?;
                self.expect(",")?;
                let size = self.expression()?;
                Expr::Numbers(Expr::Located(field).into(), None, size.into())
            }
            "__get_str" | "__get_rel_str" | "__get_dynamic_array" | "__get_rel_dynamic_array" => {
                Expr::Located(located(self)?)
            }
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => {
                Expr::Length(located(self)?)
            }
            "__get_bitmask" | "__get_rel_bitmask" => Expr::Bitmask(located(self)?),
            "__get_cpumask" | "__get_rel_cpumask" => Expr::Cpumask(located(self)?),
            "__builtin_expect" => {
                let value = self.expression()?;
                self.expect(",")?;
                self.expression()?;
                value
            }
            "sizeof" => Expr::Number(self.size()?),
            _ => return None,
        })
    }

    /// Parses the operand of `sizeof`.
    fn size(&mut self) -> Option<u64> {
        let mut type_name = Vec::new();
        if self.peek() == Some(&Token::Word("REC".to_owned())) {
            let Expr::Field(field) = self.expression()? else {
                return None;
            };
            return Some(field.size as u64);
        }
        while let Some(word) = self.word() {
            type_name.push(word);
        }
        super::element_size(&type_name.join(" ")).map(|size| size as u64)
    }

    /// `, { 0x1, "S" }, { 0x2, "D" }`
    fn pairs(&mut self) -> Option<Vec<Pair>> {
        let mut pairs = Vec::new();
        while self.sign(",") {
            if !self.sign("{") {
                // Some lists end with a comma, or with a macro that expands to nothing.
                break;
            }
            self.is_computed = !matches!(self.peek(), Some(Token::Word(_)));
            let value = self.expression();
            self.is_computed = false;
            let value = value?;
            self.expect(",")?;
            let text = match self.text() {
                Some(text) => Some(text),
                // NULL, which newer kernels print as `((void *)0)`.
                None => {
                    let mut end = self.expression()?;
                    while let Expr::Cast(_, inner) = end {
                        end = *inner;
                    }
                    match end {
                        Expr::Number(0) => None,
                        _ => return None,
                    }
                }
            };
            self.expect("}")?;
            pairs.extend(text.map(|text| (super::eval::constant(&value), text)));
        }
        Some(pairs)
    }
}

/// Returns the value of a constant `HRTIMER_MODE_...` (`include/linux/hrtimer.h`). The formats of many kernels contain
/// these names.
fn timer_mode(name: &str) -> Option<u64> {
    let parts = name.strip_prefix("HRTIMER_MODE_")?.split('_');
    parts
        .map(|part| match part {
            "ABS" => Some(0),
            "REL" => Some(1),
            "PINNED" => Some(2),
            "SOFT" => Some(4),
            "HARD" => Some(8),
            _ => None,
        })
        .sum()
}

/// Returns whether a name is that of a type, not of a value in parentheses.
fn is_type(name: &str) -> bool {
    let plain = name.trim_end_matches('*').trim();
    name.ends_with('*')
        || super::element_size(plain).is_some()
        || ["struct ", "union ", "enum ", "unsigned"]
            .iter()
            .any(|it| plain.starts_with(it))
        || plain.ends_with("_t")
        || matches!(plain, "long" | "unsigned long" | "size_t" | "void")
}

impl PrintFormat {
    /// Returns the bits and first letters of the first flag table, ordered by bit. The table of `sched_switch` holds
    /// the task states, whose numbers differ between kernels.
    pub(crate) fn flag_letters(&self) -> Option<Vec<(u32, char)>> {
        fn find(expr: &Expr) -> Option<&[Pair]> {
            match expr {
                Expr::Flags(_, _, pairs) => Some(pairs),
                Expr::Choice(_, yes, no) => find(yes).or_else(|| find(no)),
                Expr::Cast(_, inner) => find(inner),
                _ => None,
            }
        }
        let pairs = self.arguments.iter().find_map(find)?;
        let letter = |(value, name): &Pair| Some((value.trailing_zeros(), name.chars().next()?));
        let mut letters: Vec<_> = pairs.iter().filter_map(letter).collect();
        letters.retain(|(bit, _)| *bit < 32);
        letters.sort_by_key(|(bit, _)| *bit);
        Some(letters)
    }
}
