//! Host side of the link, over cables that damage and lose bytes.

use std::collections::BTreeMap;

use kymo_wire::link::crc::crc32;
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{DATA_BYTES, Frame};

/// Parser for a target's output.
#[derive(Debug, Default)]
pub struct Host {
    /// Text outside frames.
    pub text: String,
    /// Replies in frames: request, success, text.
    pub replies: Vec<(u8, bool, String)>,
    /// Pieces of a dump by their number.
    pub pieces: BTreeMap<u32, Vec<u8>>,
    /// The ends that arrived: frames, bytes, checksum.
    pub ends: Vec<(u32, u32, u32)>,
    /// Frames that were damaged.
    pub damaged: usize,
    frame: Option<Vec<u8>>,
}

impl Host {
    /// Processes received bytes.
    pub fn hear(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match (&mut self.frame, byte) {
                (None, 0) => self.frame = Some(Vec::new()),
                (None, byte) => self.text.push(byte.into()),
                (Some(frame), 0) if frame.is_empty() => {}
                (Some(_), 0) => {
                    let mut frame = self.frame.take().unwrap_or_default();
                    self.take(&mut frame);
                }
                (Some(frame), byte) => frame.push(byte),
            }
        }
    }

    fn take(&mut self, frame: &mut [u8]) {
        match Frame::decode(frame) {
            Some(Frame::Reply { request, ok, text }) => {
                let text = String::from_utf8(text.to_vec()).expect("replies are text");
                self.replies.push((request, ok, text));
            }
            Some(Frame::Data { number, bytes, .. }) => {
                self.pieces.insert(number, bytes.to_vec());
            }
            Some(Frame::End {
                frames, bytes, crc, ..
            }) => self.ends.push((frames, bytes, crc)),
            Some(Frame::Command { .. }) => panic!("a target does not command"),
            None => self.damaged += 1,
        }
    }

    /// A command in its encoding on the line.
    pub fn command(request: u8, text: &str) -> Vec<u8> {
        let mut wire = [0; MAX_WIRE];
        let text = text.as_bytes();
        let length = Frame::Command { request, text }
            .encode(&mut wire)
            .expect("a command fits a frame");
        wire[..length].to_vec()
    }

    /// The missing pieces, out of this many.
    pub fn missing(&self, frames: u32) -> Vec<u32> {
        (0..frames)
            .filter(|n| !self.pieces.contains_key(n))
            .collect()
    }

    /// The complete dump.
    ///
    /// # Panics
    /// When a piece or the end is missing, or the checksum is wrong.
    pub fn dump(&self) -> Vec<u8> {
        let &(frames, bytes, crc) = self.ends.last().expect("the end has arrived");
        assert_eq!(self.missing(frames), []);
        let dump: Vec<u8> = self.pieces.values().flatten().copied().collect();
        for (n, piece) in &self.pieces {
            assert!(piece.len() == DATA_BYTES || n + 1 == frames);
        }
        assert_eq!(dump.len(), bytes as usize);
        assert_eq!(crc32(&dump), crc);
        dump
    }
}
