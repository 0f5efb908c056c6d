//! Base64 (RFC 4648, section 4), a piece at a time: the groups of four characters may go across lines.

/// The value of each character; [`NOT`] for those that are none.
const VALUES: [u8; 256] = values();

/// No character of the alphabet.
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

/// Whether a byte is of the alphabet, or the padding.
pub(crate) const fn is_base64(byte: u8) -> bool {
    VALUES[byte as usize] != NOT || byte == b'='
}

/// What is kept between two pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decoder {
    bits: u32,
    count: u8,
    padding: bool,
}

impl Decoder {
    /// Decodes characters, white space aside; the place of the first one that cannot be there.
    pub fn push(&mut self, mut text: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
        let length = text.len();
        if self.count == 0 && !self.padding {
            text = groups(text, out);
        }
        for (place, byte) in text.iter().enumerate() {
            let at = length - text.len() + place;
            match (VALUES[usize::from(*byte)], byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => {}
                // One or two of them, where a group needs them.
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
        Ok(())
    }

    /// Gives the bytes of a group that is not whole; whether a lone character is left over.
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

/// Decodes whole groups up to the first other character; the rest.
fn groups<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    let (all, _) = text.as_chunks::<4>();
    out.reserve(all.len() * 3);
    let mut done = 0;
    for group in all {
        let [a, b, c, d] = group.map(|byte| VALUES[usize::from(byte)]);
        // No value has the bits of `NOT`.
        if (a | b | c | d) & 0xC0 != 0 {
            break;
        }
        let bits = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
        let [_, bytes @ ..] = bits.to_be_bytes();
        out.extend_from_slice(&bytes);
        done += 4;
    }
    text.get(done..).unwrap_or(&[])
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
