use super::*;

fn only(frames: &Frames<'_>) -> (u8, Vec<u8>) {
    assert_eq!(frames.streams.len(), 1);
    (frames.streams[0].id.0, frames.streams[0].bytes.to_vec())
}

#[test]
fn takes_low_bits_from_the_last_byte() {
    let mut frame = [0x20; 16];
    frame[0] = 0x10 << 1 | 1;
    frame[15] = 0b1000_0010;
    let frames = split(&frame, FrameFormat::Memory, TraceId::NONE);
    let mut expected = vec![0x20; 14];
    expected[1] = 0x21;
    expected[13] = 0x21;
    assert_eq!(only(&frames), (0x10, expected));
}

#[test]
fn a_late_id_keeps_the_second_byte_for_the_source_before() {
    let mut frame = [0x20; 16];
    frame[0] = 0x10 << 1 | 1;
    frame[4] = 0x11 << 1 | 1;
    frame[5] = 0x55;
    frame[15] = 0b100;
    let frames = split(&frame, FrameFormat::Memory, TraceId::NONE);
    assert_eq!(frames.streams[0].bytes.as_ref(), [0x20, 0x20, 0x20, 0x55]);
    assert_eq!(frames.streams[1].bytes.len(), 9);
    assert_eq!(frames.streams[1].offsets().of(0), 4);
}

#[test]
fn a_port_begins_anywhere_and_skips_half_synchronization() {
    let mut port = vec![1, 2, 3];
    port.extend(FULL_SYNC);
    port.extend([0x21, 0x42, 0x20, 0x42]);
    port.extend(HALF_SYNC);
    port.extend([0x20; 12]);
    let frames = split(&port, FrameFormat::Tpiu, TraceId::NONE);
    assert_eq!(frames.skipped_bytes, 3);
    assert_eq!(only(&frames).1.len(), 14);
}

#[test]
fn parts_of_any_size_give_the_same() {
    // Frames with changing IDs, synchronizations of both kinds at odd offsets, and a reset.
    let mut bytes: Vec<u8> = vec![1, 2, 3];
    for number in 0..90_u8 {
        if number % 7 == 0 {
            bytes.extend(FULL_SYNC);
        }
        bytes.extend([number % 5 * 2 + 1, number, 0x20, number]);
        if number % 9 == 0 {
            bytes.extend(HALF_SYNC);
        }
        bytes.extend([number & 0x7e; 12]);
    }
    bytes.extend(RESET);
    bytes.extend([0x33; 600]);
    for format in [
        FrameFormat::Unformatted,
        FrameFormat::Memory,
        FrameFormat::Tpiu,
        FrameFormat::Dstream,
    ] {
        let whole = format!("{:?}", split(&bytes, format, TraceId::NONE).into_owned());
        for size in [1, 2, 3, 7, 16, 500, 513] {
            let mut splitter = Splitter::new(format);
            for part in bytes.chunks(size) {
                splitter.push(part);
            }
            let parts = format!("{:?}", splitter.finish());
            assert_eq!(parts, whole, "{format:?} in parts of {size}");
        }
    }
}

#[test]
fn four_full_words_reset() {
    let mut buffer = vec![0x20; 16];
    buffer[0] = 0x21;
    buffer.extend(RESET);
    let frames = split(&buffer, FrameFormat::Memory, TraceId::NONE);
    assert_eq!(frames.resets, 1);
    assert_eq!(frames.streams[0].resets, [14]);
    assert_eq!((frames.resets_within, frames.reset_offset), (1, 16));
    // A reset before all trace causes no loss.
    let frames = split(&buffer[16..], FrameFormat::Memory, TraceId::NONE);
    assert_eq!((frames.resets, frames.resets_within), (1, 0));
}

#[test]
fn triggers_are_no_bytes_of_a_reserved_id() {
    // ID 0x10, two bytes, then a trigger and padding.
    let mut frame = vec![0x21, 1, 2, 3, 0xfb, 0xaa, 0x01, 0];
    frame.resize(16, 0);
    let frames = split(&frame, FrameFormat::Memory, TraceId::NONE);
    assert_eq!(frames.trigger_bytes, 1, "{frames:?}");
    assert_eq!(frames.reserved_bytes, 0, "{frames:?}");
}
