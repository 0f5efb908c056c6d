//! Cells of comma-separated values (RFC 4180), with escapes for control characters.

/// Appends a text, quoted where necessary, with escapes for control characters.
pub fn cell(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'"');
    if text.as_bytes().iter().all(plain) {
        return out.extend_from_slice(text.as_bytes());
    }
    let quoted = text.contains([',', '"', '\n']);
    if quoted {
        out.push(b'"');
    }
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\"\""),
            // Plain text in a quoted cell.
            '\n' | '\t' => out.push(character as u8),
            _ if character.is_control() => {
                let escape = character.escape_default();
                out.extend(escape.map(|character| character as u8));
            }
            _ => {
                let mut bytes = [0; 4];
                out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
            }
        }
    }
    if quoted {
        out.push(b'"');
    }
}
