//! Concatenation of the frames of several buffers, or of pieces of one.

use super::*;

impl Frames<'_> {
    /// Appends the streams of one session of the trace unit, whose bytes begin at `offset` of the buffer. Decoders
    /// restart there. `goes_on` means that no trace is missing before it.
    pub(crate) fn append(&mut self, other: Frames<'_>, offset: u64, session: u32, goes_on: bool) {
        for stream in &other.streams {
            let at = self.streams.iter().position(|known| known.id == stream.id);
            let at = at.unwrap_or_else(|| {
                self.streams.push(Stream::new(stream.id));
                self.streams.len() - 1
            });
            let known = &mut self.streams[at];
            let start = known.bytes.len();
            if start > 0 {
                known.resets.push(start);
            }
            // An empty stream continues an earlier buffer only in that buffer's first session.
            if goes_on && (start > 0 || session == 0) {
                known.joins.push(start);
            }
            known.sessions.push((start, session));
            known
                .resets
                .extend(stream.resets.iter().map(|at| start + at));
            known.runs.extend(stream.runs.iter().map(|run| Run {
                start: start + run.start,
                offset: offset + run.offset,
                is_frames: run.is_frames,
            }));
            known.bytes.to_mut().extend_from_slice(&stream.bytes);
        }
        self.frames += other.frames;
        self.skipped_bytes += other.skipped_bytes;
        self.padding_bytes += other.padding_bytes;
        self.unnamed_bytes += other.unnamed_bytes;
        self.reserved_bytes += other.reserved_bytes;
        self.trigger_bytes += other.trigger_bytes;
        if self.rest_bytes == 0 {
            self.rest_offset = offset + other.rest_offset;
        }
        self.rest_bytes += other.rest_bytes;
        self.resets += other.resets;
        if self.resets_within == 0 {
            self.reset_offset = offset + other.reset_offset;
        }
        self.resets_within += other.resets_within;
        if self.port_frames == 0 {
            self.port_offset = offset + other.port_offset;
        }
        self.port_frames += other.port_frames;
        self.is_unsynced |= other.is_unsynced;
    }

    /// Records that the recorder lost trace at the current end of all streams.
    pub(crate) fn lose(&mut self, why: Unsynced) {
        for stream in &mut self.streams {
            let end = stream.bytes.len();
            stream.losses.push((end, why));
        }
    }

    /// Converts to owned bytes.
    pub fn into_owned(self) -> Frames<'static> {
        let own = |stream: Stream<'_>| Stream {
            id: stream.id,
            bytes: Cow::Owned(stream.bytes.into_owned()),
            resets: stream.resets,
            runs: stream.runs,
            sessions: stream.sessions,
            losses: stream.losses,
            joins: stream.joins,
        };
        Frames {
            streams: self.streams.into_iter().map(own).collect(),
            ..self
        }
    }
}

impl Stream<'_> {
    /// Whether its first byte directly follows the last byte of an earlier buffer.
    pub fn follows_another(&self) -> bool {
        self.joins.first() == Some(&0)
    }

    /// Reason for a loss of trace by the recorder after the last byte, if there is one.
    pub fn lost_at_end(&self) -> Option<Unsynced> {
        let (at, why) = self.losses.last()?;
        (*at >= self.bytes.len()).then_some(*why)
    }
}
