//! Incremental base64 decoder (RFC 4648, section 4). Groups of four characters may span lines.

/// Value of each character; [`NOT`] for bytes that are not in the alphabet.
const VALUES: [u8; 256] = values();

/// Marks a byte that is not in the alphabet.
const NOT: u8 = 0xFF;

const fn values() -> [u8; 256] {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [NOT; 256];
    let mut place = 0;
    while place < alphabet.len() {
        table[alphabet[place] as usize] = place as u8;
        place += 1;
    }
    table
}

/// Flag of a byte that is not in the alphabet.
const OTHER: u32 = 1 << 31;

/// Value of each character in each position of a group, shifted to its place in the group's 24 bits.
static PLACED: [[u32; 256]; 4] = placed();

const fn placed() -> [[u32; 256]; 4] {
    let mut tables = [[OTHER; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            if VALUES[byte] != NOT {
                tables[place][byte] = (VALUES[byte] as u32) << (18 - 6 * place);
            }
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Returns whether a byte is in the alphabet or the padding character.
pub(crate) const fn is_base64(byte: u8) -> bool {
    VALUES[byte as usize] != NOT || byte == b'='
}

/// State between two pieces of text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decoder {
    bits: u32,
    count: u8,
    padding: bool,
}

impl Decoder {
    /// Decodes characters and skips white space. Fails with the index of the first invalid character.
    pub fn push(&mut self, mut text: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
        let length = text.len();
        // Lines usually end at the end of a group, so all but their ends is decoded by groups.
        let mut between = true;
        loop {
            if between && self.count == 0 && !self.padding {
                text = groups(text, out);
            }
            let Some((byte, rest)) = text.split_first() else {
                return Ok(());
            };
            let at = length - text.len();
            text = rest;
            between = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            match (VALUES[usize::from(*byte)], byte) {
                _ if between => {}
                // One or two padding characters are valid where a group needs them.
                (NOT, b'=') if self.padding || self.count >= 2 => {
                    if !self.padding {
                        self.finish(out);
                        self.padding = true;
                    }
                }
                (NOT, _) => return Err(at),
                _ if self.padding => return Err(at),
                (value, _) => {
                    self.bits = self.bits << 6 | u32::from(value);
                    self.count += 1;
                    if self.count == 4 {
                        let [_, bytes @ ..] = self.bits.to_be_bytes();
                        out.extend(bytes);
                        (self.bits, self.count) = (0, 0);
                    }
                }
            }
        }
    }

    /// Appends the bytes of an incomplete group. Returns whether a single character is left over.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> bool {
        let (bits, count) = (self.bits, self.count);
        (self.bits, self.count) = (0, 0);
        match count {
            2 => out.push((bits >> 4) as u8),
            3 => out.extend([(bits >> 10) as u8, (bits >> 2) as u8]),
            _ => {}
        }
        count == 1
    }
}

/// Decodes complete groups up to the first other character or the end of the line. Returns the rest.
fn groups<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    // Stops at the end of the line, because the output for all of the text is reserved at once.
    let line = memchr::memchr(b'\n', text).and_then(|end| text.get(..end));
    let (all, _) = line.unwrap_or(text).as_chunks::<4>();
    let start = out.len();
    out.resize(start + all.len() * 3, 0);
    let (room, _) = out.get_mut(start..).unwrap_or(&mut []).as_chunks_mut::<3>();
    let mut done = 0;
    for (group, bytes) in all.iter().zip(room) {
        let [a, b, c, d] = group.map(usize::from);
        let bits = PLACED[0][a] | PLACED[1][b] | PLACED[2][c] | PLACED[3][d];
        if bits & OTHER != 0 {
            break;
        }
        let [_, group @ ..] = bits.to_be_bytes();
        *bytes = group;
        done += 1;
    }
    out.truncate(start + done * 3);
    text.get(done * 4..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_however_it_is_cut() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9v\r\nYm\n Fy", b"foobar"),
            ("Zm8", b"fo"),
        ] {
            for cut in 0..=text.len() {
                let (mut decoder, mut out) = (Decoder::default(), Vec::new());
                let (first, rest) = text.as_bytes().split_at(cut);
                decoder.push(first, &mut out).unwrap();
                decoder.push(rest, &mut out).unwrap();
                assert!(!decoder.finish(&mut out));
                assert_eq!(out, bytes, "{text} cut at {cut}");
            }
        }
        for (text, place) in [("Zm9v*", 4), ("Zg==Zg==", 4), ("Z=", 1), ("Zm9vYm\0", 6)] {
            let found = Decoder::default().push(text.as_bytes(), &mut Vec::new());
            assert_eq!(found, Err(place), "{text}");
        }
        assert!({
            let mut decoder = Decoder::default();
            decoder.push(b"Zm9vY", &mut Vec::new()).unwrap();
            decoder.finish(&mut Vec::new())
        });
    }
}
