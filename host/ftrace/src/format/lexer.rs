//! Lexer for the C source in a print format.

/// Token of the C source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(u64),
    Text(String),
    /// Operator or bracket.
    Sign(&'static str),
}

/// Operators and brackets. Longer ones come first, because the first match is taken.
const SIGNS: [&str; 32] = [
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "(", ")", "[", "]", "{", "}", ",", "?",
    ":", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", ".", ";",
];

/// Splits a text into tokens; `None` if a part of it is not a token.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Some(tokens);
        };
        if first == '"' {
            let (text, behind) = text_token(rest)?;
            tokens.push(Token::Text(text));
            rest = behind;
        } else if first == '\'' {
            let (character, behind) = character(rest)?;
            tokens.push(Token::Number(character));
            rest = behind;
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
            tokens.push(match first.is_ascii_digit() {
                true => Token::Number(number(word)?),
                false => Token::Word(word.to_owned()),
            });
            rest = behind;
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
            tokens.push(Token::Sign(sign));
            rest = rest.get(sign.len()..)?;
        }
    }
}

/// Parses a C number: decimal, octal or hexadecimal, with an optional type suffix.
pub(super) fn number(word: &str) -> Option<u64> {
    let plain = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if plain.len() > 1 && plain.starts_with('0') => u64::from_str_radix(plain, 8).ok(),
        None => plain.parse().ok(),
    }
}

/// Parses a string, replaces its escapes, and returns the rest of the source behind it.
fn text_token(source: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = source.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, source.get(at + 1..)?)),
            '\\' => text.push(match characters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '0' => '\0',
                other => other,
            }),
            other => text.push(other),
        }
    }
    None
}

/// Parses a character constant, and returns its number and the rest of the source behind it.
fn character(source: &str) -> Option<(u64, &str)> {
    let mut characters = source.char_indices().skip(1);
    let (_, mut character) = characters.next()?;
    if character == '\\' {
        character = match characters.next()?.1 {
            'n' => '\n',
            't' => '\t',
            '0' => '\0',
            other => other,
        };
    }
    let (at, end) = characters.next()?;
    (end == '\'').then_some((u64::from(u32::from(character)), source.get(at + 1..)?))
}
