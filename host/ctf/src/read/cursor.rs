//! Source of one merged stream: decoded on demand, or ahead by other threads.

use std::mem;
use std::sync::Arc;

use super::messages::Origin;
use super::pool::{Block, Pool, block_bytes};
use super::stream::{Frames, Message, Next, Run, Skipped, StreamReader};
use crate::error::DecodeError;

impl Block for Frames {
    fn clear(&mut self) {
        self.clear();
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// A merged stream.
#[derive(Debug)]
pub(super) enum Cursor {
    /// Decoded on demand.
    Here(Box<StreamReader>),
    /// Decoded by the threads of a pool.
    Ahead(Ahead),
}

/// A stream that is decoded ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    pool: Arc<Pool<Frames>>,
    /// Its index in the pool.
    index: usize,
    frames: Frames,
    /// Index of the current frame.
    at: usize,
    /// Skipped part after the damage that was reported last.
    skipped: Option<Result<Option<Skipped>, DecodeError>>,
    /// Set after damage: nothing follows unless it is skipped.
    failed: bool,
}

impl Cursor {
    pub(super) fn here(reader: StreamReader) -> Self {
        Self::Here(Box::new(reader))
    }

    /// Creates cursors for streams decoded by `threads` threads, including the caller's.
    pub(super) fn all(
        readers: Vec<(Origin, StreamReader)>,
        threads: usize,
    ) -> (Vec<(Origin, Self)>, usize) {
        let others = threads.saturating_sub(1).min(readers.len());
        if others == 0 {
            let cursors = readers.into_iter();
            let cursors = cursors.map(|(origin, reader)| (origin, Self::here(reader)));
            return (cursors.collect(), 1);
        }
        let (origins, readers): (Vec<_>, Vec<_>) = readers.into_iter().unzip();
        let bytes = block_bytes(readers.len());
        let make =
            move |_, reader: &mut StreamReader, frames: &mut Frames| frames.fill(reader, bytes);
        let pool = Arc::new(Pool::new(readers, others, make));
        let cursors = origins.into_iter().enumerate().map(|(index, origin)| {
            let ahead = Ahead {
                pool: Arc::clone(&pool),
                index,
                frames: Frames::default(),
                at: 0,
                skipped: None,
                failed: false,
            };
            (origin, Self::Ahead(ahead))
        });
        (cursors.collect(), pool.threads())
    }

    /// As [`StreamReader::ready`].
    #[inline]
    pub(super) fn ready(&mut self) -> Result<Option<i64>, DecodeError> {
        match self {
            Self::Here(reader) => reader.ready(),
            Self::Ahead(ahead) => ahead.ready(),
        }
    }

    /// As [`StreamReader::next_time`].
    #[inline(always)]
    pub(super) fn next_time(&self) -> Option<i64> {
        match self {
            Self::Here(reader) => reader.next_time(),
            Self::Ahead(ahead) => ahead.frames.get(ahead.at)?.next_time(),
        }
    }

    /// As [`StreamReader::take`].
    #[inline(always)]
    pub(super) fn take(&mut self, limit: i64) -> Option<Run<'_>> {
        match self {
            Self::Here(reader) => reader.take(limit),
            Self::Ahead(ahead) => ahead.frames.get_mut(ahead.at)?.take(limit),
        }
    }

    /// As [`StreamReader::take_one`].
    #[inline(always)]
    pub(super) fn take_one(&mut self) -> Option<Message<'_>> {
        match self {
            Self::Here(reader) => reader.take_one(),
            Self::Ahead(ahead) => ahead.frames.get_mut(ahead.at)?.take_one(),
        }
    }

    /// As [`StreamReader::skip`].
    pub(super) fn skip(&mut self) -> Result<Option<Skipped>, DecodeError> {
        match self {
            Self::Here(reader) => reader.skip(),
            Self::Ahead(ahead) => {
                let skipped = ahead.skipped.take().unwrap_or(Ok(None))?;
                ahead.failed &= skipped.is_none_or(|skipped| skipped.to.is_none());
                Ok(skipped)
            }
        }
    }
}

impl Ahead {
    fn ready(&mut self) -> Result<Option<i64>, DecodeError> {
        while !self.failed {
            let Some(frame) = self.frames.get_mut(self.at) else {
                self.at = 0;
                match self.pool.next(self.index, mem::take(&mut self.frames)) {
                    Some(frames) => self.frames = frames,
                    None => self.failed = true,
                }
                continue;
            };
            match frame.next() {
                Next::Time(time) => return Ok(Some(time)),
                Next::Nothing => self.at += 1,
                Next::Damage(error, skipped) => {
                    (self.skipped, self.failed) = (Some(skipped), true);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }
}
