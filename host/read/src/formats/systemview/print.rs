//! Host-side `printf`: the target sends the format and its arguments as 32-bit words.

/// Formats a text with its arguments.
///
/// Arguments of `%s` are addresses of texts that are not in the stream, and shown as addresses.
pub(super) fn rendered(format: &str, count: u32, arguments: impl Iterator<Item = u32>) -> String {
    let mut arguments = arguments.fuse();
    // Some targets count each percent sign as an argument.
    let signs = format.bytes().filter(|byte| *byte == b'%').count();
    let counts_signs = format.contains("%%") && signs == count as usize;
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, behind)) = rest.split_once('%') {
        text.push_str(before);
        if let Some(behind) = behind.strip_prefix('%') {
            text.push('%');
            rest = behind;
            if counts_signs {
                arguments.by_ref().take(2).for_each(drop);
            }
            continue;
        }
        let Some(spec) = Spec::parse(behind) else {
            text.push('%');
            rest = behind;
            continue;
        };
        rest = behind.get(spec.bytes..).unwrap_or_default();
        match arguments.next() {
            Some(value) => spec.push(value, &mut text),
            None => text.push_str("<?>"),
        }
    }
    text.push_str(rest);
    text
}

/// Conversion behind a percent sign.
#[derive(Clone, Copy, Debug, Default)]
struct Spec {
    left: bool,
    zeros: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    conversion: char,
    bytes: usize,
}

/// Largest field width.
const WIDEST: usize = 200;

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let mut spec = Self::default();
        let mut in_precision = false;
        for (at, c) in text.char_indices() {
            match c {
                '-' => spec.left = true,
                '+' => spec.plus = true,
                ' ' => spec.blank = true,
                '#' => spec.alternate = true,
                '0' if spec.width == 0 && !in_precision => spec.zeros = true,
                '0'..='9' => {
                    let digit = c as usize - '0' as usize;
                    let number = match in_precision {
                        true => spec.precision.get_or_insert(0),
                        false => &mut spec.width,
                    };
                    *number = (*number * 10 + digit).min(WIDEST);
                }
                '.' => {
                    in_precision = true;
                    spec.precision = Some(0);
                }
                'l' | 'h' | 'z' | 'j' | 't' => {}
                c if c.is_ascii_alphabetic() => {
                    spec.conversion = c;
                    spec.bytes = at + 1;
                    return Some(spec);
                }
                _ => return None,
            }
        }
        None
    }

    fn push(&self, value: u32, out: &mut String) {
        let digits = |digits: String| match self.precision {
            Some(least) => format!("{digits:0>least$}"),
            None => digits,
        };
        let (sign, body) = match self.conversion {
            'd' | 'i' => {
                let signed = value.cast_signed();
                let sign = match signed {
                    ..0 => "-",
                    _ if self.plus => "+",
                    _ if self.blank => " ",
                    _ => "",
                };
                (sign, digits(signed.unsigned_abs().to_string()))
            }
            'x' => (
                if self.alternate { "0x" } else { "" },
                digits(format!("{value:x}")),
            ),
            'X' => (
                if self.alternate { "0X" } else { "" },
                digits(format!("{value:X}")),
            ),
            'o' => ("", digits(format!("{value:o}"))),
            'c' => ("", char::from(value as u8).to_string()),
            'p' => ("", format!("{value:08X}")),
            's' => ("", format!("<text at {value:#x}>")),
            'u' => ("", digits(value.to_string())),
            _ => ("", format!("{value:#x}")),
        };
        let missing = self.width.saturating_sub(sign.len() + body.chars().count());
        let is_number = "diuxXo".contains(self.conversion);
        if self.left {
            out.push_str(sign);
            out.push_str(&body);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if self.zeros && is_number && self.precision.is_none() {
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(&body);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(sign);
            out.push_str(&body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_applied_as_c_does() {
        let text = |format: &str, arguments: &[u32]| {
            rendered(format, arguments.len() as u32, arguments.iter().copied())
        };
        assert_eq!(
            text("a %d b %u", &[u32::MAX, u32::MAX]),
            "a -1 b 4294967295"
        );
        assert_eq!(
            text("[%5d|%-5d|%05d|%+d]", &[42, 42, 42, 42]),
            "[   42|42   |00042|+42]"
        );
        assert_eq!(
            text("%x %#X %08x %.4u", &[255, 255, 255, 7]),
            "ff 0XFF 000000ff 0007"
        );
        assert_eq!(text("%c%c %p %lu", &[72, 105, 0x2000, 3]), "Hi 00002000 3");
        assert_eq!(text("%s", &[0x0800_0000]), "<text at 0x8000000>");
        // Targets send two arguments for a percent sign, or none.
        assert_eq!(text("%d %% of %u", &[1, 9, 9, 2]), "1 % of 2");
        assert_eq!(text("%d %% of %u", &[1, 2]), "1 % of 2");
        assert_eq!(text("%d and %d", &[1]), "1 and <?>");
        assert_eq!(text("100%", &[]), "100%");
        assert_eq!(text("%", &[1]), "%");
    }
}
