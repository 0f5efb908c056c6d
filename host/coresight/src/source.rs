//! Trace sources: protocol, configuration and traced core.

use crate::element::Context;
use crate::frames::TraceId;
use crate::snapshot::{Device, Snapshot};
use crate::{etmv3, etmv4, ptm};

/// A trace source.
#[derive(Clone, Debug)]
pub struct Source {
    /// The trace ID of its bytes.
    pub id: TraceId,
    /// Its name in the snapshot or recording.
    pub name: String,
    /// The number of the traced CPU, if known.
    pub cpu: Option<u32>,
    /// Its protocol and configuration.
    pub protocol: Protocol,
}

/// A protocol with its configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Protocol {
    /// ETMv4 or ETE.
    EtmV4(etmv4::Config),
    /// ETMv3.
    EtmV3(etmv3::Config),
    /// PTM.
    Ptm(ptm::Config),
    /// STM, with its trace ID.
    Stm(TraceId),
    /// ITM and DWT, with their trace ID.
    Itm(TraceId),
}

impl Protocol {
    /// Whether a trace unit of instructions is set up to send timestamps.
    pub fn has_timestamps(&self) -> bool {
        match self {
            Protocol::EtmV4(config) => config.configr >> 11 & 1 == 1,
            Protocol::EtmV3(config) => config.has_timestamps(),
            Protocol::Ptm(config) => config.cr >> 28 & 1 == 1,
            Protocol::Stm(_) | Protocol::Itm(_) => false,
        }
    }

    /// Returns the trace ID from the configuration.
    pub fn trace_id(&self) -> TraceId {
        match self {
            Protocol::EtmV4(config) => TraceId(config.trace_id()),
            Protocol::EtmV3(config) => TraceId(config.trace_id()),
            Protocol::Ptm(config) => TraceId(config.trace_id()),
            Protocol::Stm(id) | Protocol::Itm(id) => *id,
        }
    }

    /// Returns the protocol's name in the reference tool's output.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::EtmV4(config) if config.is_ete => "ETE",
            Protocol::EtmV4(_) => "ETMV4I",
            Protocol::EtmV3(_) => "ETMV3",
            Protocol::Ptm(_) => "PTM",
            Protocol::Stm(_) => "STM",
            Protocol::Itm(_) => "ITM",
        }
    }

    /// Returns the protocol's name for messages and options.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Protocol::EtmV4(config) if config.is_ete => "ETE",
            Protocol::EtmV4(_) => "ETMv4",
            Protocol::EtmV3(_) => "ETMv3",
            Protocol::Ptm(_) => "PTM",
            Protocol::Stm(_) => "STM",
            Protocol::Itm(_) => "ITM",
        }
    }

    /// Returns a readable summary of the configuration: `ETMv4.2 with context IDs, timestamps; without cycle counts
    /// (TRCCONFIGR 0x8c1)`. `None` if the protocol does not trace instructions.
    pub fn about(&self) -> Option<String> {
        let (name, register, parts) = match self {
            Protocol::EtmV4(config) => {
                let minor = config.version() & 0xf;
                let name = match config.is_ete {
                    true => format!("ETE 1.{minor}"),
                    false => format!("ETMv{}.{minor}", config.version() >> 4),
                };
                let parts = vec![
                    ("cycle counts", config.counts_cycles()),
                    ("timestamps", config.has_timestamps()),
                    ("context IDs", config.traces_context_ids()),
                    ("VMIDs", config.traces_vmids()),
                    ("return stack", config.uses_return_stack()),
                    ("branch broadcast", config.broadcasts_branches()),
                ];
                (name, ("TRCCONFIGR", config.configr), parts)
            }
            Protocol::EtmV3(config) => {
                let parts = vec![
                    ("cycle counts", config.is_cycle_accurate()),
                    ("timestamps", config.has_timestamps()),
                    ("context IDs", config.context_id_bytes() > 0),
                    ("data", config.traces_data()),
                    ("branch broadcast", config.cr >> 8 & 1 == 1),
                ];
                let name = format!("ETMv3.{}", config.minor_version());
                (name, ("ETMCR", config.cr), parts)
            }
            Protocol::Ptm(config) => {
                let parts = vec![
                    ("cycle counts", config.is_cycle_accurate()),
                    ("timestamps", config.has_timestamps()),
                    ("context IDs", config.context_id_bytes() > 0),
                    ("return stack", config.uses_return_stack()),
                    ("branch broadcast", config.cr >> 8 & 1 == 1),
                ];
                let name = format!("PFTv1.{}", config.idr >> 4 & 0xf);
                (name, ("ETMCR", config.cr), parts)
            }
            Protocol::Stm(_) | Protocol::Itm(_) => return None,
        };
        let list = |wanted: bool| {
            let parts = parts.iter().filter(|(_, is_on)| *is_on == wanted);
            parts.map(|(part, _)| *part).collect::<Vec<_>>().join(", ")
        };
        let (with, without) = (list(true), list(false));
        let parts = [("with", with), ("without", without)];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<_> = parts.map(|(word, list)| format!("{word} {list}")).collect();
        let (register, value) = register;
        Some(format!(
            "{name} {} ({register} {value:#x})",
            parts.join("; ")
        ))
    }

    /// Whether it traces a processor's instructions and not messages of software.
    pub fn traces_instructions(&self) -> bool {
        !matches!(self, Protocol::Stm(_) | Protocol::Itm(_))
    }

    /// Returns the Linux thread ID of a context: its context ID, or the VMID if the configuration makes that
    /// CONTEXTIDR_EL2.
    pub fn thread_of(&self, context: &Context) -> Option<u32> {
        match self {
            Protocol::EtmV4(config) if config.vmid_is_thread() => context.vmid,
            Protocol::EtmV4(_) | Protocol::EtmV3(_) | Protocol::Ptm(_) => context.context_id,
            Protocol::Stm(_) | Protocol::Itm(_) => None,
        }
    }

    /// Returns the protocol of a snapshot's device; `None` if the device is not a supported trace source.
    pub fn of_device(device: &Device, core: Option<&Device>) -> Option<Self> {
        let is_m_profile = core.is_some_and(|core| is_m_profile(&core.kind));
        let kind = device.kind.to_ascii_uppercase();
        if kind.starts_with("ETM4") || kind.starts_with("ETMV4") || kind.starts_with("ETE") {
            let default = etmv4::Config::default();
            return Some(Protocol::EtmV4(etmv4::Config {
                configr: device.register("TRCCONFIGR", default.configr),
                trace_idr: device.register("TRCTRACEIDR", default.trace_idr),
                idr0: device.register("TRCIDR0", default.idr0),
                idr1: device.register("TRCIDR1", default.idr1),
                idr2: device.register("TRCIDR2", default.idr2),
                idr8: device.register("TRCIDR8", default.idr8),
                idr12: device.register("TRCIDR12", default.idr12),
                idr13: device.register("TRCIDR13", default.idr13),
                devarch: device.register("TRCDEVARCH", default.devarch),
                is_ete: kind.starts_with("ETE"),
                is_m_profile,
            }));
        }
        if kind.starts_with("ETM3") || kind.starts_with("ETMV3") {
            return Some(Protocol::EtmV3(etmv3::Config {
                cr: device.register("ETMCR", 0),
                ccer: device.register("ETMCCER", 0),
                idr: device.register("ETMIDR", etmv3_id(core)),
                trace_idr: device.register("ETMTRACEIDR", 0),
                is_m_profile,
            }));
        }
        if kind.starts_with("PTM") || kind.starts_with("PFT") {
            return Some(Protocol::Ptm(ptm::Config {
                cr: device.register("ETMCR", 0),
                ccer: device.register("ETMCCER", 0),
                idr: device.register("ETMIDR", 0x4100_f310),
                trace_idr: device.register("ETMTRACEIDR", 0),
            }));
        }
        // Bits 22:16 of the control register, in STM and ITM.
        let id_in = |name| TraceId((device.register(name, 0) >> 16 & 0x7f) as u8);
        match kind.as_str() {
            "STM" => Some(Protocol::Stm(id_in("STMTCSR"))),
            "ITM" => Some(Protocol::Itm(id_in("ITMTCR"))),
            _ => None,
        }
    }
}

/// Returns the default ETMIDR of a core's ETMv3: for Cortex-M3 and Cortex-M4 the value in their technical reference
/// manuals, otherwise ETMv3.5 without options.
fn etmv3_id(core: Option<&Device>) -> u32 {
    match core.map(|core| core.kind.to_ascii_lowercase()).as_deref() {
        Some("cortex-m3") => 0x4114_f242,
        Some("cortex-m4") => 0x4114_f250,
        _ => 0x4100_f250,
    }
}

/// Whether a core's type is of the M profile: `Cortex-M4`, `STAR-MC1`, `ARMv7-M`, `ARMv8.1-M.main`, `V8M`, in any spelling.
fn is_m_profile(kind: &str) -> bool {
    let letters = kind.chars().filter(char::is_ascii_alphanumeric);
    let kind = letters.collect::<String>().to_ascii_lowercase();
    if ["cortexm", "star", "sc000", "sc300"]
        .iter()
        .any(|it| kind.starts_with(it))
    {
        return true;
    }
    let version = kind.strip_prefix("arm").unwrap_or(&kind).strip_prefix('v');
    let profile = version.map(|it| it.trim_start_matches(|it: char| it.is_ascii_digit()));
    profile.is_some_and(|it| it.starts_with('m') || it.starts_with("em"))
}

/// Returns the number at the end of a core's name: 2 of `cpu_2`.
fn number_at_end(name: &str) -> Option<u32> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[digits..].parse().ok()
}

impl Source {
    /// Returns the sources of a snapshot's buffer whose protocol is known.
    pub fn of_buffer(snapshot: &Snapshot, buffer: &crate::snapshot::Buffer) -> Vec<Source> {
        snapshot
            .sources(buffer)
            .filter_map(|device| {
                let core = snapshot.core_of(device);
                let protocol = Protocol::of_device(device, core)?;
                Some(Source {
                    id: protocol.trace_id(),
                    name: device.name.clone(),
                    cpu: core.and_then(|core| number_at_end(&core.name)),
                    protocol,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::is_m_profile;

    #[test]
    fn cores_of_the_m_profile_have_many_names() {
        for kind in [
            "Cortex-M33",
            "cortex_m0+",
            "CortexM4",
            "STAR-MC1",
            "ARMv7-M",
            "ARMv7E-M",
        ] {
            assert!(is_m_profile(kind), "{kind}");
        }
        for kind in ["ARMv8.1-M", "ARMv8-M.main", "V7M", "v8m", "SC300"] {
            assert!(is_m_profile(kind), "{kind}");
        }
        for kind in [
            "Cortex-A53",
            "Cortex-R52",
            "ARMv8-A",
            "ARMv7-R",
            "Neoverse-N1",
            "V8A",
            "",
        ] {
            assert!(!is_m_profile(kind), "{kind}");
        }
    }
}
