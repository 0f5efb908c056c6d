//! The identity that a target would have reported, from its ELF file and the metadata of its recording.

use kymo_symbols::Program;
use kymo_wire::event::{EventId, Layout, MetadataType, PacketHeader};
use kymo_wire::link::{Capabilities, Identity, Mode, PROTOCOL};

use super::super::records::{Walk, number};
use super::{Found, Recorder};

/// The identity of a program's recorder, as far as its ELF file has it. A frequency of 0 is in the metadata alone.
pub(in super::super) fn identity_of(program: &Program) -> Result<Identity, String> {
    Ok(Recorder::of(program)?.identity(None))
}

impl Recorder {
    /// The identity, with what the metadata says of the clock.
    fn identity(&self, clock: Option<(u64, u32)>) -> Identity {
        Identity {
            protocol: PROTOCOL,
            layout: self.layout,
            clock_hz: match (self.clock_hz, clock) {
                (0, Some((hz, _))) => hz,
                (hz, _) => hz,
            },
            clock_bits: clock.map_or(32, |(_, bits)| bits),
            buffer_bytes: self.buffer_bytes,
            packet_bytes: self.packet_bytes,
            streams: self.cpus,
            mode: Mode::Overwrite,
            text_base: self.text_base,
            capabilities: Capabilities {
                trace: true,
                ..Capabilities::default()
            },
            // The metadata holds the target's own; the ELF file may be of another build.
            build_id: ([0; 32], 0),
        }
    }
}

impl Found<'_> {
    /// The identity that the target would have reported.
    pub(super) fn identity(&self) -> Result<Identity, String> {
        let identity = self.recorder.identity(self.clock());
        match identity.clock_hz {
            0 => Err(
                "expected clock_hz in kymo_config or in the metadata of the recording, found neither"
                    .to_owned(),
            ),
            _ => Ok(identity),
        }
    }

    /// The clock's frequency in Hz and its bits, from the metadata.
    fn clock(&self) -> Option<(u64, u32)> {
        let header = self.header(self.recorder.metadata)?;
        let length = (header.content_bits / 8) as usize;
        let content = self.image.bytes(self.recorder.metadata, length)?;
        clock_of(self.recorder.layout, &header, content)
    }
}

/// The clock's frequency in Hz and its bits, from the content of a packet of metadata.
pub(in super::super) fn clock_of(
    layout: Layout,
    header: &PacketHeader,
    content: &[u8],
) -> Option<(u64, u32)> {
    let mut walk = Walk::new(layout, header, content);
    while let Ok(Some(id)) = walk.next() {
        let kind = walk.payload.get(..2).map(|kind| number(layout.order, kind));
        let value = walk
            .payload
            .get(4..)
            .and_then(|value| value.split_at_checked(8));
        if id == EventId::Metadata
            && kind == Some(MetadataType::Clock as u64)
            && let Some((hz, bits)) = value
        {
            let bits = number(layout.order, bits) as u32;
            return Some((number(layout.order, hz), bits));
        }
    }
    None
}
