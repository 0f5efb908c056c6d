//! Consistent overhead byte stuffing (Cheshire and Baker, 1999): encodes bytes without zeros.
//!
//! A run of up to 254 non-zero bytes is preceded by its length plus one; a length below 255 implies a zero after the
//! run. A frame of data is shorter than 254 bytes, so that its overhead is one byte; the code accepts any length.

/// Encodes `source` into the start of `out` and returns the length; `None` if `out` is too short (`source.len() +
/// source.len() / 254 + 1` always suffices).
pub fn encode(source: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut code_at = 0;
    let mut at = 1;
    let mut code = 1u8;
    *out.first_mut()? = 1;
    for &byte in source {
        if code == 0xFF {
            *out.get_mut(code_at)? = code;
            code_at = at;
            *out.get_mut(at)? = 1;
            at += 1;
            code = 1;
        }
        if byte == 0 {
            *out.get_mut(code_at)? = code;
            code_at = at;
            *out.get_mut(at)? = 1;
            at += 1;
            code = 1;
        } else {
            *out.get_mut(at)? = byte;
            at += 1;
            code += 1;
        }
    }
    *out.get_mut(code_at)? = code;
    Some(at)
}

/// Decodes the first `length` bytes of `bytes` in place and returns the length of the result; `None` if the encoding is
/// invalid: a zero byte in it, or a run beyond the end.
pub fn decode_in_place(bytes: &mut [u8], length: usize) -> Option<usize> {
    let bytes = bytes.get_mut(..length)?;
    let (mut from, mut to) = (0, 0);
    while from < length {
        let code = usize::from(bytes[from]);
        if code == 0 || from + code > length {
            return None;
        }
        // Byte by byte, because code that moves them at once takes a kilobyte on a microcontroller.
        for at in from + 1..from + code {
            if bytes[at] == 0 {
                return None;
            }
            bytes[to] = bytes[at];
            to += 1;
        }
        from += code;
        if code < 0xFF && from < length {
            bytes[to] = 0;
            to += 1;
        }
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn encoded(source: &[u8]) -> Vec<u8> {
        let mut out = vec![0; source.len() + source.len() / 254 + 1];
        let length = encode(source, &mut out).unwrap();
        out.truncate(length);
        out
    }

    #[test]
    fn the_examples_of_the_paper() {
        assert_eq!(encoded(&[]), [1]);
        assert_eq!(encoded(&[0]), [1, 1]);
        assert_eq!(encoded(&[0x11, 0x22, 0, 0x33]), [3, 0x11, 0x22, 2, 0x33]);
        assert_eq!(encoded(&[0x11, 0, 0, 0]), [2, 0x11, 1, 1, 1]);
        let long: Vec<u8> = (1..=255).collect();
        let mut expected = vec![255];
        expected.extend(1..=254);
        expected.extend([2, 255]);
        assert_eq!(encoded(&long), expected);
        assert_eq!(encoded(&long[..254]), &expected[..255]);
    }

    #[test]
    fn every_length_and_zero_pattern_reads_back() {
        for length in 0..600usize {
            for every in [1, 2, 7, 253, 254, 255, 1000] {
                let source: Vec<u8> = (0..length)
                    .map(|i| {
                        if i % every == every - 1 {
                            0
                        } else {
                            (i % 255 + 1) as u8
                        }
                    })
                    .collect();
                let mut bytes = encoded(&source);
                assert!(!bytes.contains(&0));
                let length = bytes.len();
                let decoded = decode_in_place(&mut bytes, length).unwrap();
                assert_eq!(bytes[..decoded], source[..]);
            }
        }
    }

    #[test]
    fn what_is_no_encoding_is_refused() {
        for bad in [&[0u8][..], &[2], &[3, 1], &[2, 0], &[1, 0, 1]] {
            let mut bytes = bad.to_vec();
            assert_eq!(decode_in_place(&mut bytes, bad.len()), None, "{bad:?}");
        }
        assert_eq!(decode_in_place(&mut [1], 2), None);
        assert_eq!(encode(&[1, 2, 3], &mut [0; 3]), None);
    }
}
