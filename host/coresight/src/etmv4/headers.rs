//! Tables of packet headers, by first byte.

use super::Config;
use super::packet::{Atoms, Kind};

/// Atoms of each header that carries atoms.
pub(super) const ATOMS: [Atoms; 256] = {
    let mut table = [Atoms { bits: 0, count: 0 }; 256];
    let mut header = 0xc0;
    while header < 256 {
        let low = header as u32;
        let (bits, count) = match header {
            0xf6 | 0xf7 => (low & 1, 1),
            0xd8..=0xdb => (low & 3, 2),
            0xf8..=0xff => (low & 7, 3),
            0xdc => (0b1110, 4),
            0xdd => (0b0000, 4),
            0xde => (0b1010, 4),
            0xdf => (0b0101, 4),
            0xf5 => (0b11110, 5),
            0xd5 => (0b00000, 5),
            0xd6 => (0b01010, 5),
            0xd7 => (0b10101, 5),
            _ => {
                let taken = (low & 0x1f) + 3;
                let all = (1 << taken) - 1;
                (
                    if low & 0x20 == 0 {
                        all | 1 << taken
                    } else {
                        all
                    },
                    taken as u8 + 1,
                )
            }
        };
        table[header] = Atoms { bits, count };
        header += 1;
    }
    table
};

/// Kind that a header would begin if the configuration supported it.
pub(super) fn reserved_kind(header: u8) -> Kind {
    match header {
        0x07 => Kind::ExceptionReturn,
        0x20..=0x27 => Kind::DataSyncNumbered,
        0x28..=0x2c => Kind::DataSyncUnnumbered,
        0x40..=0x42 => Kind::ConditionalF2,
        0x43 => Kind::ConditionalFlush,
        0x44..=0x46 => Kind::ConditionalResultF4,
        0x48..=0x4a | 0x4c..=0x4e => Kind::ConditionalResultF2,
        0x50..=0x5f => Kind::ConditionalResultF3,
        0x68..=0x6b | 0x6e | 0x6f => Kind::ConditionalResultF1,
        0x6c => Kind::ConditionalF1,
        0x6d => Kind::ConditionalF3,
        _ => Kind::Reserved,
    }
}

/// Kind of packet that each first byte begins.
pub(super) fn kinds(config: &Config) -> [Kind; 256] {
    let mut kinds = [Kind::Reserved; 256];
    let is_ete = config.is_ete;
    for (header, kind) in kinds.iter_mut().enumerate() {
        let header = header as u8;
        *kind = match header {
            0x00 => Kind::Extension,
            0x01 => Kind::TraceInfo,
            0x02 | 0x03 => Kind::Timestamp,
            0x04 => Kind::TraceOn,
            0x05 if config.has_function_returns() => Kind::FunctionReturn,
            0x06 => Kind::Exception,
            0x07 if is_ete => Kind::ReservedConfig,
            0x07 => Kind::ExceptionReturn,
            0x09 if is_ete => Kind::Instrumentation,
            0x0a if is_ete => Kind::TransactionStart,
            0x0b if is_ete => Kind::TransactionCommit,
            0x0c | 0x0d => Kind::CycleCountF2,
            0x0e | 0x0f => Kind::CycleCountF1,
            0x10..=0x1f => Kind::CycleCountF3,
            0x20..=0x2c if !config.traces_data() => Kind::ReservedConfig,
            0x20..=0x2c => reserved_kind(header),
            0x2d => Kind::Commit,
            0x2e => Kind::CancelF1,
            0x2f => Kind::CancelF1Mispredict,
            0x30..=0x33 => Kind::Mispredict,
            0x34..=0x37 => Kind::CancelF2,
            0x38..=0x3f => Kind::CancelF3,
            0x40..=0x6f => match reserved_kind(header) {
                Kind::Reserved => Kind::Reserved,
                kind if config.traces_conditionals() => kind,
                _ => Kind::ReservedConfig,
            },
            0x70 if config.version() >= 0x43 => Kind::Ignore,
            0x71..=0x7f => Kind::Event,
            0x80 | 0x81 => Kind::Context,
            0x82 => Kind::AddressContext32Is0,
            0x83 => Kind::AddressContext32Is1,
            0x85 => Kind::AddressContext64Is0,
            0x86 => Kind::AddressContext64Is1,
            0x88 if config.version() >= 0x46 => Kind::TimestampMarker,
            0x90..=0x92 => Kind::AddressMatch,
            0x95 => Kind::AddressShortIs0,
            0x96 => Kind::AddressShortIs1,
            0x9a => Kind::Address32Is0,
            0x9b => Kind::Address32Is1,
            0x9d => Kind::Address64Is0,
            0x9e => Kind::Address64Is1,
            0xa0..=0xa2 | 0xa5 | 0xa6 | 0xaa..=0xac | 0xaf if config.has_q_elements() => Kind::Q,
            0xb0..=0xb2 if is_ete => Kind::SourceMatch,
            0xb4 if is_ete => Kind::SourceShortIs0,
            0xb5 if is_ete => Kind::SourceShortIs1,
            0xb6 if is_ete => Kind::Source32Is0,
            0xb7 if is_ete => Kind::Source32Is1,
            0xb8 if is_ete => Kind::Source64Is0,
            0xb9 if is_ete => Kind::Source64Is1,
            0xc0..=0xd4 | 0xe0..=0xf4 => Kind::AtomF6,
            0xd5..=0xd7 | 0xf5 => Kind::AtomF5,
            0xd8..=0xdb => Kind::AtomF2,
            0xdc..=0xdf => Kind::AtomF4,
            0xf6 | 0xf7 => Kind::AtomF1,
            0xf8..=0xff => Kind::AtomF3,
            _ => Kind::Reserved,
        };
    }
    kinds
}
