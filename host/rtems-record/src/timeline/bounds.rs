//! What the order of chunks says of times: a chunk was read from its ring after all in it was recorded, and before what
//! the rings of others show in the next chunks.

/// The times of the last records that are known in chunks; the oldest are forgotten when nobody needs them. Chunks of one
/// processor behind each other are one here.
#[derive(Debug)]
pub(super) struct Bounds {
    /// The number of the first chunk that is kept.
    first: u64,
    /// [`i64::MIN`] where no time is known.
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
    /// The number of the chunk that is being read.
    pub fn current(&self) -> u64 {
        (self.first + self.latest.len() as u64).saturating_sub(1)
    }

    /// A chunk of another processor begins. Of those before `oldest` nobody asks.
    pub fn begin_chunk(&mut self, oldest: Option<u64>) {
        let keep = oldest.unwrap_or(self.current());
        // Rarely, as it moves all others.
        if keep > self.first + (1 << 12) {
            let count = usize::try_from(keep - self.first).unwrap_or(0);
            self.latest.drain(..count.min(self.latest.len()));
            self.first = keep;
        }
        self.latest.push(i64::MIN);
    }

    /// A chunk has a record of this time.
    pub fn raise(&mut self, chunk: u64, latest: i64) {
        let place = chunk.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(known) = place.and_then(|place| self.latest.get_mut(place)) {
            *known = (*known).max(latest);
        }
    }

    /// About when a chunk was read: the last time that is known in the nearest one, at most `within` away. Older knowledge
    /// says nothing.
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
