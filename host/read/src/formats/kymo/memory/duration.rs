//! Duration mode in a dump of memory: the calls that are open stand on shadow stacks, in variables of the program whose
//! places its ELF file does not tell.

use kymo_wire::event::{Layout, METADATA_STREAM, PacketHeader};

/// What is to be said of packets in which calls are records at their ends; nothing of others.
pub(super) fn remark(layout: Layout, mut packets: &[u8]) -> Option<String> {
    while let Some(header) = PacketHeader::read(layout, packets) {
        if header.cpu != METADATA_STREAM && header.flags & PacketHeader::FLAG_CALLS != 0 {
            return Some(
                "calls that had not ended are missing: in duration mode they stand in the program's KYMO_DURATION, which is not \
                 read from memory; `kymo trace` of the running target has them"
                    .to_owned(),
            );
        }
        let length = (header.content_bits as usize / 8).max(1);
        packets = packets.get(length..)?;
    }
    None
}
