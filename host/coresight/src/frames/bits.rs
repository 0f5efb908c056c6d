//! Low bits of a frame's bytes: its last byte has those of the even ones, which mark new IDs.

/// The lowest bits of a frame's even bytes, which mark a new ID.
const EVEN_LOW_BITS: u128 = 0x0001_0001_0001_0001_0001_0001_0001_0001;

/// Bits of a frame's last byte, spread to the lowest bits of its even bytes.
pub(super) static LOW_BITS: [u128; 256] = {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut bit = 0;
        while bit < 8 {
            if value >> bit & 1 == 1 {
                table[value] |= 1 << (16 * bit);
            }
            bit += 1;
        }
        value += 1;
    }
    table
};

/// Whether a frame contains only data and no new ID.
#[inline]
pub(super) fn is_plain(frame: &[u8; 16]) -> bool {
    u128::from_le_bytes(*frame) & EVEN_LOW_BITS == 0
}
