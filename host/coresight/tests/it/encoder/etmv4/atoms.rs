//! Encoder of atoms in packets of every format, including mispredicted ones.

use super::Encoder;

impl Encoder<'_> {
    /// Counts more elements that a cancel could revoke.
    pub(super) fn p0(&mut self, count: u32) {
        self.uncommitted = (self.uncommitted + count).min(self.options.speculation);
    }

    /// Sends the atoms, in packets of random formats.
    pub(super) fn flush(&mut self) {
        let atoms = std::mem::take(&mut self.atoms);
        let mut rest = &atoms[..];
        while !rest.is_empty() {
            let is_last = |count: usize| count == rest.len();
            let mut forms: Vec<(u8, usize)> = Vec::new();
            forms.push((0xf6 | u8::from(rest[0]), 1));
            for (count, header) in [(2, 0xd8), (3, 0xf8)] {
                if let Some(bits) = rest.get(..count) {
                    let bits = bits
                        .iter()
                        .rev()
                        .fold(0, |all, bit| all << 1 | u8::from(*bit));
                    forms.push((header | bits, count));
                }
            }
            let (e, n) = (true, false);
            for (header, pattern) in [
                (0xdc, &[n, e, e, e][..]),
                (0xdd, &[n, n, n, n]),
                (0xde, &[n, e, n, e]),
                (0xdf, &[e, n, e, n]),
                (0xf5, &[n, e, e, e, e]),
                (0xd5, &[n, n, n, n, n]),
                (0xd6, &[n, e, n, e, n]),
                (0xd7, &[e, n, e, n, e]),
            ] {
                if rest.starts_with(pattern) {
                    forms.push((header, pattern.len()));
                }
            }
            let taken = rest.iter().take_while(|atom| **atom).count();
            if taken >= 4 {
                let count = taken.min(24);
                forms.push((0xc0 + (count - 4) as u8, count));
            }
            if (3..24).contains(&taken) && !is_last(taken) {
                forms.push((0xe0 + (taken - 3) as u8, taken + 1));
            }
            // With speculation, an atom may be sent with the wrong value and be corrected afterwards.
            if self.options.speculation > 0 && self.random.once_in(6) {
                self.mistake(rest[0]);
                rest = &rest[1..];
                continue;
            }
            let form = match self.random.once_in(3) {
                true => self.random.below(forms.len()),
                false => forms.len() - 1,
            };
            let (header, count) = forms[form];
            self.bytes.push(header);
            self.p0(count as u32);
            rest = &rest[count..];
        }
    }

    /// Sends a mispredicted atom, or elements of a path that was not executed.
    fn mistake(&mut self, atom: bool) {
        let depth = self.options.speculation;
        let right = 0xf6 | u8::from(atom);
        let wrong = 0xf6 | u8::from(!atom);
        self.p0(1);
        match self.random.below(6) {
            // Corrected by the next packet, or by one packet that contains the atom as well.
            0 => self.bytes.extend([wrong, 0x30]),
            1 => self.bytes.push(if atom { 0x33 } else { 0x31 }),
            2 if depth >= 2 => {
                let count = 1 + self.random.below(depth.min(9) as usize - 1) as u8;
                self.bytes.push(wrong);
                self.wrong_path(count);
                self.bytes.extend([0x2f, count]);
            }
            3 if depth >= 2 => {
                self.bytes.push(wrong);
                self.wrong_path(1);
                self.bytes.push(0x34);
            }
            4 if depth >= 6 => {
                let count = 2 + self.random.below(4) as u8;
                self.bytes.push(wrong);
                self.wrong_path(count);
                self.bytes.push(0x38 | (count - 2) << 1);
            }
            _ => {
                let count = (1 + self.random.below(depth.min(7) as usize) as u8).min(depth as u8);
                self.bytes.push(right);
                // The preceding atom counts towards the maximum of speculative elements.
                let count = count.min(depth as u8 - u8::from(depth > 1));
                self.wrong_path(count);
                self.bytes.extend([0x2e, count]);
            }
        }
    }

    /// Sends atoms of a path that was not executed. They count as speculative elements until they are cancelled.
    fn wrong_path(&mut self, count: u8) {
        for _ in 0..count {
            let atom = self.random.below(2) as u8;
            self.bytes.push(0xf6 | atom);
        }
        let room = self.options.speculation - u32::from(count);
        self.uncommitted = self.uncommitted.min(room);
    }
}
