//! Mapping from positions in a stream to offsets in its buffer.

/// Consecutive bytes of a stream that were consecutive in the buffer, or the data of consecutive 16-byte frames with 15
/// bytes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub start: usize,
    pub offset: u64,
    pub is_frames: bool,
}

impl Run {
    /// Returns the buffer offset of the byte at a position of the stream.
    pub fn offset_of(&self, position: usize) -> u64 {
        let bytes = position.saturating_sub(self.start) as u64;
        let last_bytes = if self.is_frames { bytes / 15 } else { 0 };
        self.offset + bytes + last_bytes
    }
}

/// Translates positions of a stream into offsets of its buffer. Ascending positions are fast.
#[derive(Clone, Debug)]
pub struct Offsets<'a> {
    runs: &'a [Run],
    at: usize,
}

impl<'a> Offsets<'a> {
    pub(super) fn new(runs: &'a [Run]) -> Self {
        Offsets { runs, at: 0 }
    }

    /// Returns the buffer offset of the byte at `position`; after the end, the offset of the byte that would follow.
    pub fn of(&mut self, position: usize) -> u64 {
        let is_here = |at: usize| {
            self.runs.get(at).is_some_and(|run| run.start <= position)
                && self
                    .runs
                    .get(at + 1)
                    .is_none_or(|next| next.start > position)
        };
        if !is_here(self.at) {
            self.at = if is_here(self.at + 1) {
                self.at + 1
            } else {
                self.runs
                    .partition_point(|run| run.start <= position)
                    .saturating_sub(1)
            };
        }
        let run = self.runs.get(self.at);
        run.map_or(position as u64, |run| run.offset_of(position))
    }
}
