//! Text builder for the target's replies. Replaces Rust's formatting, which is several kilobytes of code on a
//! microcontroller.

/// Text in a fixed piece of memory. Excess text is cut off.
#[derive(Debug)]
pub struct Text<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl<'a> Text<'a> {
    /// Creates an empty text.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, length: 0 }
    }

    /// Returns the bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(..self.length).unwrap_or(&[])
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends a byte.
    #[inline(never)]
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.room.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    /// Appends a string.
    pub fn add(&mut self, text: &str) -> &mut Self {
        self.add_bytes(text.as_bytes())
    }

    /// Appends bytes.
    #[inline(never)]
    pub fn add_bytes(&mut self, text: &[u8]) -> &mut Self {
        for byte in text {
            self.byte(*byte);
        }
        self
    }

    /// Appends a number in decimal.
    #[inline(never)]
    pub fn decimal(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            let (rest, digit) = by_ten(number);
            first -= 1;
            if let Some(place) = digits.get_mut(first) {
                *place = b'0' + digit;
            }
            number = rest;
            if number == 0 {
                return self.add_bytes(digits.get(first..).unwrap_or(&[]));
            }
        }
    }

    /// Appends a number in hexadecimal, with at least `digits` digits.
    #[inline(never)]
    pub fn hexadecimal(&mut self, number: u64, digits: u32) -> &mut Self {
        let used = (64 - number.leading_zeros()).div_ceil(4);
        for digit in (0..used.max(digits)).rev() {
            let digit = (number >> (digit * 4)) as u8 & 15;
            self.byte(digit + if digit < 10 { b'0' } else { b'a' - 10 });
        }
        self
    }

    /// Appends a key and a number, after a space unless the text is empty.
    #[inline(never)]
    pub fn word(&mut self, key: &str, number: u64) -> &mut Self {
        self.key(key).decimal(number)
    }

    /// Appends a key and a value.
    #[inline(never)]
    pub fn word_of(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key).add(value)
    }

    /// Appends a key and an address.
    #[inline(never)]
    pub fn address(&mut self, key: &str, address: u64) -> &mut Self {
        self.key(key).add("0x").hexadecimal(address, 1)
    }

    /// Appends a key and the equals sign before its value.
    #[inline(never)]
    pub fn key(&mut self, key: &str) -> &mut Self {
        if !self.is_empty() {
            self.byte(b' ');
        }
        self.add(key).add("=")
    }

    /// Appends an end of line of two bytes, overwriting the last bytes if there is no room.
    pub fn end_line(&mut self) {
        self.length = self.length.min(self.room.len().saturating_sub(2));
        self.add("\r\n");
    }
}

/// Divides a number by ten; returns quotient and remainder. (The processors that this is made for have no 64-bit
/// division, and the library function for it is larger than this whole module.)
fn by_ten(number: u64) -> (u64, u8) {
    let (mut quotient, mut rest) = (0, 0);
    for part in (0..4).rev() {
        let part = rest << 16 | (number >> (part * 16)) as u32 & 0xFFFF;
        quotient = quotient << 16 | u64::from(part / 10);
        rest = part % 10;
    }
    (quotient, rest as u8)
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    fn text(make: impl FnOnce(&mut Text<'_>)) -> String {
        let mut room = [0; 64];
        let mut text = Text::new(&mut room);
        make(&mut text);
        String::from_utf8(text.bytes().to_vec()).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_library_does() {
        let mut number = 1u64;
        for _ in 0..2000 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            for number in [number, number >> 33, number >> 60] {
                assert_eq!(text(|text| _ = text.decimal(number)), number.to_string());
                let hexadecimal = std::format!("{number:08x}");
                assert_eq!(text(|text| _ = text.hexadecimal(number, 8)), hexadecimal);
            }
        }
        for number in [0, 9, 10, 0xFFFF, 0x1_0000, u64::MAX] {
            assert_eq!(text(|text| _ = text.decimal(number)), number.to_string());
            let address = std::format!("at={number:#x}");
            assert_eq!(text(|text| _ = text.address("at", number)), address);
        }
    }

    #[test]
    fn words_stand_apart_and_what_does_not_fit_is_cut_off() {
        let words = text(|text| _ = text.word("a", 1).word_of("b", "c").key("d"));
        assert_eq!(words, "a=1 b=c d=");
        let mut room = [0; 6];
        let mut text = Text::new(&mut room);
        text.add("123").add("45678");
        assert_eq!(text.bytes(), b"123456");
        text.end_line();
        assert_eq!(text.bytes(), b"1234\r\n");
        Text::new(&mut []).add("x").end_line();
    }
}
