//! The time that the packets of a stream cover.

use super::trace::{Source, Trace};

/// The time that the packets of a stream cover ([`Trace::covered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Index of the class of its first packet in [`Metadata::streams`](crate::metadata::Metadata::streams).
    pub stream_class: usize,
    /// Begin of the first packet, in nanoseconds from the clock's origin.
    pub begin_ns: i64,
    /// End of the last packet, in nanoseconds from the clock's origin.
    pub end_ns: i64,
}

impl Trace {
    /// The time that the packets of a stream cover, from their heads; `None` if it is not known before they are read,
    /// or if they do not state it.
    #[must_use]
    pub fn covered(&self, index: usize) -> Option<Covered> {
        let (_, source) = self.streams.get(index)?;
        let (first, from, last, length) = match source {
            Source::File(_) | Source::Memory(_) => (source, 0, source, source.length()?),
            Source::Ring(ring, turn) => (&**ring, *turn, &**ring, *turn),
            Source::Joined(files) => {
                let ((_, first), (_, last)) = (files.first()?, files.last()?);
                (first, 0, last, last.length()?)
            }
        };
        let begin = |source, at| {
            self.packet_with(source, at, |packet| {
                (packet.info().stream_class, packet.begin_ns())
            })
        };
        let end = |at| self.packet_with(last, at, |packet| packet.end_ns());
        let (stream_class, begin_ns) = begin(first, from)?;
        let begin_ns = begin_ns?;
        let end_ns = end(self.last_packet(last, length)?)??;
        (begin_ns <= end_ns).then_some(Covered {
            stream_class,
            begin_ns,
            end_ns,
        })
    }

    /// The offset of the last packet among the first `length` bytes of a file.
    fn last_packet(&self, source: &Source, length: u64) -> Option<u64> {
        let first = self.packet_at(source, 0)?;
        // Tracers write packets of one size, as a rule.
        let size = first.size.filter(|bits| bits % 8 == 0)? / 8;
        if let Some(at) = length.checked_sub(size)
            && length.checked_rem(size) == Some(0)
            && let Some(last) = self.packet_at(source, at)
            && last.size == first.size
            && first
                .seq_num
                .zip(last.seq_num)
                .is_some_and(|(first, last)| {
                    first
                        .checked_add(at / size)
                        .is_some_and(|least| last >= least)
                })
        {
            return Some(at);
        }
        let heads = self.heads(source).map(|(at, _)| at);
        heads.take_while(|at| *at < length).last()
    }
}
