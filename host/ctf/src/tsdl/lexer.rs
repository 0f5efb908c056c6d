//! Lexer: splits text into tokens.
//!
//! Keywords are ordinary words here: TSDL allows most of them as attribute names, attribute values and enumeration
//! labels, so only the parser can distinguish them.

use crate::error::{MetadataError, MetadataErrorKind as Kind};

/// A token with its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub kind: TokenKind,
    /// Offset in bytes from the start of the text.
    pub offset: usize,
}

/// Kinds of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    /// An identifier or keyword.
    Word(String),
    /// The content of a quoted text, with escapes replaced.
    Text(String),
    /// An integer constant or the code of a character; signs are separate tokens.
    Number(u64),
    /// A punctuator.
    Mark(&'static str),
    /// After the last token.
    End,
}

impl TokenKind {
    /// Its description for error messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Word(_) => "a word",
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Mark(mark) => mark,
            Self::End => "the end",
        }
    }
}

/// Punctuators; a longer one precedes its prefixes.
const MARKS: [&str; 20] = [
    "...", ":=", "->", "[", "]", "(", ")", "{", "}", ".", "*", "+", "-", "<", ">", ":", ";", "=",
    ",", "?",
];

/// Splits `text` into tokens, the last of which is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, MetadataError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let offset = lexer.at;
        let kind = lexer.token()?;
        let end = kind == TokenKind::End;
        tokens.push(Token { kind, offset });
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn error<T>(&self, offset: usize, kind: Kind) -> Result<T, MetadataError> {
        Err(kind.at(self.text, offset))
    }

    /// Consumes the longest run of characters that satisfy `accept`, and returns it.
    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or("")
    }

    fn skip_blank(&mut self) -> Result<(), MetadataError> {
        loop {
            self.take_while(|c| c.is_ascii_whitespace() || c == '\u{b}');
            let start = self.at;
            if self.rest().starts_with("/*") {
                match self.rest().get(2..).and_then(|rest| rest.find("*/")) {
                    Some(length) => self.at += length + 4,
                    None => return self.error(start, Kind::Unterminated("comment")),
                }
            } else if self.rest().starts_with("//") {
                self.take_while(|c| c != '\n');
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<TokenKind, MetadataError> {
        let start = self.at;
        let rest = self.rest();
        let Some(first) = self.peek() else {
            return Ok(TokenKind::End);
        };
        // `L"..."` and `L'...'` are wide in C; metadata is always UTF-8, so the prefix has no effect.
        let quote = rest.strip_prefix('L').unwrap_or(rest).chars().next();
        if let Some(quote @ ('"' | '\'')) = quote {
            self.take_while(|c| c == 'L');
            return self.quoted(quote, start);
        }
        match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Ok(TokenKind::Word(word.to_owned()))
            }
            '0'..='9' => self.number(start),
            _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                Some(mark) => {
                    self.at += mark.len();
                    Ok(TokenKind::Mark(mark))
                }
                None => self.error(start, Kind::Character(first)),
            },
        }
    }

    fn number(&mut self, start: usize) -> Result<TokenKind, MetadataError> {
        const WANTED: &str = "a decimal, octal or hexadecimal constant of at most 64 bits";
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let lower = word.to_ascii_lowercase();
        let (digits, radix) = if let Some(digits) = lower.strip_prefix("0x") {
            (digits, 16)
        } else if let Some(digits) = lower.strip_prefix("0b") {
            (digits, 2)
        } else if lower.len() > 1 && lower.starts_with('0') {
            (lower.get(1..).unwrap_or(""), 8)
        } else {
            (lower.as_str(), 10)
        };
        let end = digits
            .find(|c: char| !c.is_digit(radix))
            .unwrap_or(digits.len());
        let (digits, suffix) = digits.split_at(end);
        // `0u`: the octal prefix was the whole number.
        let digits = if digits.is_empty() && radix == 8 {
            "0"
        } else {
            digits
        };
        let known = matches!(suffix, "" | "u" | "l" | "ll" | "ul" | "ull" | "lu" | "llu");
        match u64::from_str_radix(digits, radix) {
            // A decimal point occurs only where the parser would reject it with a less clear error.
            Ok(_) if self.rest().starts_with('.') && radix == 10 && self.digit_follows() => {
                self.error(start, Kind::Number(WANTED))
            }
            Ok(number) if known => Ok(TokenKind::Number(number)),
            _ => self.error(start, Kind::Number(WANTED)),
        }
    }

    fn digit_follows(&self) -> bool {
        self.rest()
            .chars()
            .nth(1)
            .is_some_and(|c| c.is_ascii_digit())
    }

    fn quoted(&mut self, quote: char, start: usize) -> Result<TokenKind, MetadataError> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return self.error(start, Kind::Unterminated("text")),
                Some('\\') => text.push(self.escape()),
                Some(c) if c == quote => break,
                Some(c) => text.push(c),
            }
        }
        if quote == '"' {
            return Ok(TokenKind::Text(text));
        }
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(TokenKind::Number(u64::from(u32::from(c)))),
            _ => self.error(start, Kind::Number("one character")),
        }
    }

    /// The character of an escape sequence; an unknown sequence means the character after the backslash.
    fn escape(&mut self) -> char {
        let start = self.at;
        let Some(letter) = self.next() else {
            return '\\';
        };
        let code = match letter {
            'a' => return '\u{7}',
            'b' => return '\u{8}',
            'f' => return '\u{c}',
            'n' => return '\n',
            'r' => return '\r',
            't' => return '\t',
            'v' => return '\u{b}',
            'x' => self.code(16, 2),
            'u' => self.code(16, 4),
            'U' => self.code(16, 8),
            '0'..='7' => {
                self.at = start;
                self.code(8, 3)
            }
            _ => None,
        };
        code.unwrap_or_else(|| {
            self.at = start + letter.len_utf8();
            letter
        })
    }

    /// A character given by up to `most` digits.
    fn code(&mut self, radix: u32, most: usize) -> Option<char> {
        let rest = self.rest();
        let length = rest
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .count();
        let digits = rest.get(..length)?;
        self.at += length;
        u32::from_str_radix(digits, radix)
            .ok()
            .and_then(char::from_u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokens(text)
            .expect("lexes")
            .into_iter()
            .map(|token| token.kind)
            .collect()
    }

    #[test]
    fn words_numbers_texts_and_marks() {
        let expected = vec![
            TokenKind::Word("a_1".into()),
            TokenKind::Mark(":="),
            TokenKind::Number(31),
            TokenKind::Mark("..."),
            TokenKind::Number(0x1f),
            TokenKind::Mark("-"),
            TokenKind::Number(8),
            TokenKind::Text("q\"\n\u{e9}A".into()),
            TokenKind::Number(65),
            TokenKind::Number(0),
            TokenKind::End,
        ];
        assert_eq!(
            kinds("a_1 := 31u ... 0x1FULL/* */- 010 // rest\r\n \"q\\\"\\n\\u00e9\\101\" L'A' 0"),
            expected
        );
    }

    #[test]
    fn faults_are_placed() {
        let error = tokens("abc\n  \"open").expect_err("unterminated");
        assert_eq!((error.offset, error.line, error.column), (6, 2, 3));
        assert_eq!(error.kind, Kind::Unterminated("text"));
        for bad in [
            "/* open",
            "@",
            "0x",
            "08",
            "1.5",
            "99999999999999999999",
            "'ab'",
            "12abc",
        ] {
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }
}
