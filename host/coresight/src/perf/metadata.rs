//! AUXTRACE_INFO: registers of each CPU's trace unit, in every version of the layout.

use super::fields::{number, word};
use crate::Error;
use crate::source::Protocol;
use crate::{etmv3, etmv4, ptm};

/// Contents of AUXTRACE_INFO.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// Trace units, by CPU.
    pub units: Vec<Unit>,
}

/// Trace unit of a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub cpu: u32,
    pub protocol: Protocol,
    /// Whether its timestamps are of the virtual counter, which is the kernel's clock source.
    pub has_virtual_time: bool,
}

const CS_ETM: u32 = 3;
const MAGIC_ETMV3: u64 = 0x3030_3030_3030_3030;
const MAGIC_ETMV4: u64 = 0x4040_4040_4040_4040;
const MAGIC_ETE: u64 = 0x5050_5050_5050_5050;

impl Metadata {
    /// Whether the timestamps of all units are of the virtual counter.
    pub fn has_virtual_time(&self) -> bool {
        !self.units.is_empty() && self.units.iter().all(|unit| unit.has_virtual_time)
    }

    /// Reads the record's body, which ends at `end` of the file.
    pub fn read(record: &[u8], end: u64) -> Result<Self, Error> {
        let kind = word(record, 0).unwrap_or_default();
        if kind != CS_ETM {
            let name = match kind {
                1 => "Intel PT",
                2 => "Intel BTS",
                4 => "Arm SPE",
                5 => "s390 CPUMSF",
                6 => "HiSilicon PTT",
                _ => {
                    return Err(Error::OtherTrace {
                        kind: format!("type {kind}"),
                    });
                }
            };
            return Err(Error::OtherTrace { kind: name.into() });
        }
        let offset = |at: usize| end - (record.len() - at.min(record.len())) as u64;
        let cut = |at: usize| Error::Format {
            offset: offset(at),
            expected: "registers of a trace unit",
            found: "the end of AUXTRACE_INFO".into(),
        };
        let field = |at: usize| number(record, at).ok_or_else(|| cut(at));
        let version = field(8)?;
        let cpus = field(16)? as u32;
        let mut at = 32;
        let mut metadata = Metadata::default();
        for _ in 0..cpus {
            let (magic, cpu) = (field(at)?, field(at + 8)? as u32);
            at += 16;
            let usual = if magic == MAGIC_ETMV3 { 4 } else { 7 };
            let count = if version == 0 {
                usual
            } else {
                let count = field(at)?;
                at += 8;
                usize::try_from(count)
                    .ok()
                    .filter(|count| *count <= record.len() / 8)
                    .ok_or_else(|| cut(at))?
            };
            // Newer kernels add registers at the end; older ones lack some.
            let register = |index: usize| -> Result<u32, Error> {
                if index < count {
                    field(at + 8 * index).map(|value| value as u32)
                } else {
                    Ok(0)
                }
            };
            let protocol = match magic {
                MAGIC_ETMV4 | MAGIC_ETE => Protocol::EtmV4(etmv4::Config {
                    configr: register(0)?,
                    trace_idr: register(1)?,
                    idr0: register(2)?,
                    idr1: register(3)?,
                    idr2: register(4)?,
                    idr8: register(5)?,
                    devarch: if magic == MAGIC_ETE { register(7)? } else { 0 },
                    is_ete: magic == MAGIC_ETE,
                    ..etmv4::Config::default()
                }),
                MAGIC_ETMV3 => {
                    let (cr, trace_idr, ccer, idr) =
                        (register(0)?, register(1)?, register(2)?, register(3)?);
                    if idr >> 8 & 0xf == 3 {
                        Protocol::Ptm(ptm::Config {
                            cr,
                            ccer,
                            idr,
                            trace_idr,
                        })
                    } else {
                        Protocol::EtmV3(etmv3::Config {
                            cr,
                            ccer,
                            idr,
                            trace_idr,
                            is_m_profile: false,
                        })
                    }
                }
                _ => {
                    return Err(Error::Format {
                        offset: offset(at - 16),
                        expected: "the magic number of a trace unit",
                        found: format!("{magic:#x}"),
                    });
                }
            };
            // Bits TS of TRFCR_EL1: 1 is the virtual counter.
            let source = match magic {
                MAGIC_ETMV4 => register(7)?,
                MAGIC_ETE => register(8)?,
                _ => 0,
            };
            metadata.units.push(Unit {
                cpu,
                protocol,
                has_virtual_time: source == 1,
            });
            at += 8 * count;
        }
        Ok(metadata)
    }
}
