//! Where the frames of a buffer in memory begin, if that is not at offset 0: a capture that was cut anywhere.

use super::TraceId;

/// Where frames seem to begin in the first bytes of a buffer in memory: the offset below 16 with which nearly all new IDs
/// are among these. `None` if that holds for no offset, or for 0.
pub fn alignment(head: &[u8], ids: &[TraceId]) -> Option<usize> {
    /// New IDs that decide.
    const LEAST: usize = 8;
    let count = |skip: usize| {
        let (frames, _) = head.get(skip..).unwrap_or_default().as_chunks::<16>();
        let even = frames.iter().flat_map(|frame| frame.iter().step_by(2));
        let new = even
            .filter(|byte| **byte & 1 == 1)
            .map(|byte| TraceId(byte >> 1));
        new.fold((0, 0), |(known, others), id| match id {
            id if ids.contains(&id) => (known + 1, others),
            TraceId::NONE => (known, others),
            _ => (known, others + 1),
        })
    };
    let fits = |skip: &usize| {
        let (known, others) = count(*skip);
        known >= LEAST && known > 16 * others
    };
    (0..16).find(fits).filter(|skip| *skip > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of the IDs 1 and 2 by turns, with data of odd bytes that would be many other IDs.
    fn frames(count: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..count {
            let id = 1 + number % 2;
            let mut frame = [0x10 + 2 * (number % 50); 16];
            frame[0] = id << 1 | 1;
            for place in [1, 3, 5, 7, 9, 11, 13] {
                frame[place] = number.wrapping_mul(29) | 1;
            }
            bytes.extend(frame);
        }
        bytes
    }

    #[test]
    fn frames_are_found_behind_a_cut_one() {
        let ids = [TraceId(1), TraceId(2)];
        let whole = frames(64);
        assert_eq!(alignment(&whole, &ids), None);
        assert_eq!(alignment(&whole[11..], &ids), Some(5));
        assert_eq!(alignment(&whole[1..], &ids), Some(15));
        assert_eq!(alignment(&whole[11..], &[TraceId(3)]), None);
        assert_eq!(alignment(&whole[11..60], &ids), None);
    }
}
