//! Bounds on times from the order of chunks. A chunk was read from its ring after everything in it was recorded, and
//! before the newest records of other rings in the next chunks.

/// Time of the last known record in each chunk. Old chunks are dropped when no held record needs them. Consecutive
/// chunks of one processor count as one.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Number of the first chunk that is kept.
    first: u64,
    /// [`i64::MIN`] if no time is known.
    latest: Vec<i64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            first: 0,
            latest: vec![i64::MIN],
        }
    }
}

impl Bounds {
    /// Returns the number of the current chunk.
    pub fn current(&self) -> u64 {
        (self.first + self.latest.len() as u64).saturating_sub(1)
    }

    /// Begins a chunk of another processor. Chunks before `oldest` are no longer needed.
    pub fn begin_chunk(&mut self, oldest: Option<u64>) {
        let keep = oldest.unwrap_or(self.current());
        // Rarely, because it moves all others.
        if keep > self.first + (1 << 12) {
            let count = usize::try_from(keep - self.first).unwrap_or(0);
            self.latest.drain(..count.min(self.latest.len()));
            self.first = keep;
        }
        self.latest.push(i64::MIN);
    }

    /// Notes that a chunk has a record of this time.
    pub fn raise(&mut self, chunk: u64, latest: i64) {
        let place = chunk.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(known) = place.and_then(|place| self.latest.get_mut(place)) {
            *known = (*known).max(latest);
        }
    }

    /// Returns the approximate time at which a chunk was read: the last known time in the nearest chunk, at most
    /// `within` chunks away. Times in chunks further away give no information.
    pub fn about(&self, chunk: u64, within: u64) -> Option<i64> {
        let at = |chunk: u64| {
            let place = usize::try_from(chunk.checked_sub(self.first)?).ok()?;
            let latest = self.latest.get(place).copied();
            latest.filter(|latest| *latest > i64::MIN)
        };
        (0..=within).find_map(|away| {
            let before = chunk.checked_sub(away).and_then(at);
            before.or_else(|| at(chunk.saturating_add(away)))
        })
    }
}
