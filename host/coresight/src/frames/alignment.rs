//! Detection of frames at an odd offset, in a capture in memory that was cut at an arbitrary byte.

use super::TraceId;

/// Whether the frames in the first bytes of a buffer in memory begin at an odd offset: nearly all new IDs at odd
/// offsets are in `ids`, and those at even offsets are not. The IDs do not show which odd offset it is.
pub fn is_odd(head: &[u8], ids: &[TraceId]) -> bool {
    /// Known IDs needed for a decision.
    const LEAST: usize = 8;
    let fits = |skip: usize| {
        let bytes = head.get(skip..).unwrap_or_default().iter().step_by(2);
        let new = bytes.filter(|byte| **byte & 1 == 1);
        let count = |(known, others), byte: &u8| match TraceId(byte >> 1) {
            id if ids.contains(&id) => (known + 1, others),
            TraceId::NONE => (known, others),
            _ => (known, others + 1),
        };
        let (known, others): (usize, usize) = new.fold((0, 0), count);
        known >= LEAST && known > 16 * others
    };
    !fits(0) && fits(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_behind_an_odd_cut_are_noticed() {
        let mut whole = Vec::new();
        // Data at odd offsets, read as IDs, would give many other IDs.
        for number in 0..64u8 {
            let mut frame = [0x10; 16];
            frame[0] = (1 + number % 2) << 1 | 1;
            for place in [1, 3, 5, 7, 9, 11, 13] {
                frame[place] = number.wrapping_mul(29) | 1;
            }
            whole.extend(frame);
        }
        let ids = [TraceId(1), TraceId(2)];
        let odd = [0, 1, 2, 11].map(|cut| is_odd(&whole[cut..], &ids));
        assert_eq!(odd, [false, true, false, true]);
        assert!(!is_odd(&whole[11..], &[TraceId(3)]));
        assert!(!is_odd(&whole[11..60], &ids));
    }
}
