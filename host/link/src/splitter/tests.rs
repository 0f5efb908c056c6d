//! The splitter against lines that a target could send, whole, damaged and mixed.

use proptest::prelude::*;

use super::*;

/// What came out, owned.
#[derive(Debug, Default, PartialEq, Eq)]
struct Out {
    text: Vec<u8>,
    /// The numbers of the data frames.
    frames: Vec<u32>,
    damaged: usize,
}

fn split_all(bytes: &[u8], cut: usize) -> Out {
    let mut out = Out::default();
    let mut sink = |piece: Piece<'_>| match piece {
        Piece::Text(text) => out.text.extend_from_slice(text),
        Piece::Frame(Frame::Data { number, .. }) => out.frames.push(number),
        Piece::Frame(other) => panic!("not sent: {other:?}"),
        Piece::Damaged(_) => out.damaged += 1,
    };
    let mut splitter = Splitter::new();
    for bytes in bytes.chunks(cut) {
        splitter.push(bytes, &mut sink);
    }
    splitter.flush(&mut sink);
    splitter.give_up_frame(&mut sink);
    out
}

/// A data frame as it goes over the line.
fn data(number: u32, bytes: &[u8]) -> Vec<u8> {
    let frame = Frame::Data {
        request: 7,
        number,
        bytes,
    };
    let mut wire = [0; MAX_WIRE];
    let length = frame.encode(&mut wire).unwrap();
    wire[..length].to_vec()
}

/// Bytes as a buffer full of events has them: any value.
fn noise(seed: u32) -> Vec<u8> {
    (0..240u32)
        .map(|i| (i ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn text_and_frames_alternate() {
    let line = join(&[
        b"boot\r\n",
        &data(0, &noise(1)),
        b"half",
        &data(1, b"x"),
        b"!\n",
    ]);
    for cut in [1, 2, 3, 100, 10_000] {
        let out = split_all(&line, cut);
        assert_eq!(out.text, b"boot\r\nhalf!\n");
        assert_eq!(out.frames, [0, 1]);
        assert_eq!(out.damaged, 0);
    }
}

#[test]
fn text_in_the_middle_of_a_frame_is_taken_out() {
    for bytes in [&noise(5)[..], b"short", &[b'a'; 240]] {
        let frame = data(3, bytes);
        for at in 1..frame.len() {
            let (front, back) = frame.split_at(at);
            let out = split_all(&join(&[front, b"value\t= 42\r\n", back]), 64);
            assert_eq!(out.frames, [3], "at {at}");
            assert_eq!(out.text, b"value\t= 42\r\n", "at {at}");
        }
    }
}

#[test]
fn any_byte_may_be_lost() {
    let (first, second, third) = (data(0, &noise(1)), data(1, &noise(2)), data(2, &noise(3)));
    let line = join(&[
        b"on\n", &first, b"one\n", &second, b"two\n", &third, b"off\n",
    ]);
    for at in 0..line.len() {
        let mut line = line.clone();
        line.remove(at);
        let out = split_all(&line, 50);
        let kept = out.frames.len();
        assert!(kept >= 2, "at {at}: {:?}", out.frames);
        if kept == 3 {
            // A zero byte, or a byte of the text.
            let text = String::from_utf8(out.text).unwrap();
            assert!(text.len() >= 14, "at {at}: {text:?}");
        }
    }
}

#[test]
fn any_bit_may_turn_over() {
    let line = join(&[
        &data(0, &noise(1)),
        &data(1, &noise(2)),
        &data(2, &noise(3)),
    ]);
    for at in 0..line.len() {
        for bit in 0..8 {
            let mut line = line.clone();
            line[at] ^= 1 << bit;
            let frames = split_all(&line, 50).frames;
            assert!(frames.len() >= 2, "at {at}, bit {bit}: {frames:?}");
        }
    }
}

#[test]
fn a_frame_that_stops_gives_way_to_text() {
    let frame = data(0, &noise(1));
    let line = join(&[&frame[..100], b"\x01\r\nbooting again\r\nready\r\n"]);
    let out = split_all(&line, 30);
    assert!(out.text.ends_with(b"booting again\r\nready\r\n"));
    assert_eq!((out.frames.len(), out.damaged), (0, 1));

    let text = b"all work and no play\n".repeat(400);
    let out = split_all(&join(&[&frame[..100], &text]), 30);
    assert!(out.text.len() > text.len() - MAX_SEGMENT);
    assert_eq!(out.damaged, 1);
}

#[test]
fn text_does_not_wait_for_more_than_its_line() {
    let mut splitter = Splitter::new();
    let mut seen = Vec::new();
    let mut sink = |piece: Piece<'_>| {
        if let Piece::Text(text) = piece {
            seen.extend_from_slice(text);
        }
    };
    splitter.push(b"line\npar", &mut sink);
    splitter.flush(&mut sink);
    splitter.push(b"tial", &mut sink);
    splitter.flush(&mut sink);
    assert_eq!(seen, b"line\npartial");
}

#[test]
fn what_a_host_sends_is_not_taken_for_an_answer() {
    let frame = Frame::Command {
        request: 1,
        text: b"status",
    };
    let mut wire = [0; MAX_WIRE];
    let length = frame.encode(&mut wire).unwrap();
    let out = split_all(&wire[..length], 10);
    assert_eq!((out.frames.len(), out.damaged), (0, 1));
}

proptest! {
    #[test]
    fn nothing_panics_and_no_byte_is_lost(data in prop::collection::vec(any::<u8>(), 0..3000)) {
        fuzz_splitter(&data);
    }

    #[test]
    fn nothing_panics_where_zeros_are_many(data in prop::collection::vec(0u8..40, 0..3000)) {
        fuzz_splitter(&data);
    }

    #[test]
    fn nothing_panics_on_a_bad_line(
        parts in prop::collection::vec(("[ -~\\n]{0,20}", any::<u32>(), 0usize..240), 1..6),
        faults in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 0..6),
    ) {
        let mut line = vec![7];
        for (words, number, length) in parts {
            line.extend_from_slice(words.as_bytes());
            line.extend(data(number, &noise(number)[..length]));
        }
        for (at, byte, fault) in faults {
            let at = at.index(line.len());
            match fault {
                0 => line[at] ^= byte,
                1 => line.insert(at, byte),
                _ => {
                    line.drain(at..(at + usize::from(byte) % 40).min(line.len()));
                    line.push(7);
                }
            }
        }
        fuzz_splitter(&line);
    }

    #[test]
    fn text_is_kept_whole_and_in_order(
        parts in prop::collection::vec(("[ -~\\n\\u{e4}-\\u{17f}]{0,60}", any::<u32>(), 0usize..240), 0..12),
        cut in 1usize..300,
    ) {
        let (mut line, mut text, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (words, number, length) in parts {
            line.extend_from_slice(words.as_bytes());
            text.extend_from_slice(words.as_bytes());
            line.extend(data(number, &noise(number)[..length]));
            numbers.push(number);
        }
        let out = split_all(&line, cut);
        prop_assert_eq!(out.text, text);
        prop_assert_eq!(out.frames, numbers);
        prop_assert_eq!(out.damaged, 0);
    }
}
