//! CRC-32 of Ethernet and zlib: polynomial 0x04C11DB7, reflected, initial value and final XOR all ones.
//!
//! Computed four bits at a time with a table of 64 bytes: code that runs once per frame should not cost a target 1 KiB
//! of flash.

const TABLE: [u32; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 4 {
            crc = crc >> 1 ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// Incremental checksum.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Crc32 {
    /// Creates the checksum of no bytes.
    pub const fn new() -> Self {
        Self(!0)
    }

    /// Adds `bytes`.
    #[inline(never)]
    pub fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let mut crc = self.0 ^ u32::from(byte);
            crc = crc >> 4 ^ TABLE[(crc & 15) as usize];
            crc = crc >> 4 ^ TABLE[(crc & 15) as usize];
            self.0 = crc;
        }
    }

    /// Returns the checksum of all added bytes.
    pub const fn value(self) -> u32 {
        !self.0
    }
}

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(bytes);
    crc.value()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(super::crc32(b""), 0);
    }
}
