//! Packet properties given by the ID and control registers of a trace unit.

/// Configuration of an ETMv4 or ETE trace unit, from its registers.
///
/// The defaults are OpenCSD's for registers that a snapshot does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// TRCCONFIGR.
    pub configr: u32,
    /// TRCTRACEIDR.
    pub trace_idr: u32,
    /// TRCIDR0.
    pub idr0: u32,
    /// TRCIDR1.
    pub idr1: u32,
    /// TRCIDR2.
    pub idr2: u32,
    /// TRCIDR8.
    pub idr8: u32,
    /// TRCIDR12: keys of conditional instructions.
    pub idr12: u32,
    /// TRCIDR13: number of special keys among these.
    pub idr13: u32,
    /// TRCDEVARCH; only an ETE needs it.
    pub devarch: u32,
    /// Whether the unit is an ETE.
    pub is_ete: bool,
    /// Whether the core is of the M profile.
    pub is_m_profile: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            configr: 0xc1,
            trace_idr: 0x10,
            idr0: 0x2800_0ea1,
            idr1: 0x4100_f403,
            idr2: 0x488,
            idr8: 0,
            idr12: 0,
            idr13: 0,
            devarch: 0x4770_5a13,
            is_ete: false,
            is_m_profile: false,
        }
    }
}

impl Config {
    /// The trace ID that the unit's bytes carry.
    pub fn trace_id(&self) -> u8 {
        (self.trace_idr & 0x7f) as u8
    }

    /// Version as major * 16 + minor: 0x40 to 0x4F for ETMv4, 0x50 and more for ETE.
    pub fn version(&self) -> u32 {
        if self.is_ete {
            0x50 | (self.devarch >> 16 & 0xf)
        } else {
            self.idr1 >> 4 & 0xff
        }
    }

    /// TRCIDR0.COMMOPT: cycle count packets have no commit count; each one commits the elements before it.
    pub fn commit_option(&self) -> bool {
        self.idr0 >> 29 & 1 == 1
    }

    /// Whether a transaction's start is a P0 element (TRCIDR0.COMMTRANS is 0).
    pub fn transaction_start_is_p0(&self) -> bool {
        self.idr0 >> 30 & 1 == 0
    }

    /// TRCIDR8: maximum number of speculative P0 elements.
    pub fn max_speculation(&self) -> u32 {
        self.idr8
    }

    /// Bytes of a context ID in a packet (TRCIDR2.CIDSIZE).
    pub fn context_id_bytes(&self) -> usize {
        if self.idr2 >> 5 & 0x1f == 4 { 4 } else { 0 }
    }

    /// Bytes of a virtual context ID in a packet (TRCIDR2.VMIDSIZE).
    pub fn vmid_bytes(&self) -> usize {
        match self.idr2 >> 10 & 0x1f {
            1 => 1,
            2 => 2,
            4 => 4,
            _ => 0,
        }
    }

    /// Bits of a cycle count (TRCIDR2.CCSIZE).
    pub fn cycle_count_bits(&self) -> u32 {
        12 + (self.idr2 >> 25 & 0xf)
    }

    /// Whether addresses have 64 bits (TRCIDR2.IASIZE).
    pub fn has_64_bit_addresses(&self) -> bool {
        self.idr2 & 0x1f == 8
    }

    /// Whether WFI and WFE are branches in the trace (TRCIDR2.WFXMODE).
    pub fn wfx_is_branch(&self) -> bool {
        self.idr2 >> 31 == 1
    }

    /// Whether the unit has Q elements (TRCIDR0.QSUPP).
    pub fn has_q_elements(&self) -> bool {
        self.idr0 >> 15 & 3 != 0
    }

    /// Whether conditional non-branch instructions are traced (TRCIDR0.TRCCOND, TRCCONFIGR.COND).
    pub fn traces_conditionals(&self) -> bool {
        self.idr0 >> 6 & 1 == 1 && self.configr >> 8 & 7 != 0
    }

    /// Whether results of conditional instructions are condition flags instead of pass or fail (TRCIDR0.CONDTYPE).
    pub fn has_condition_flags(&self) -> bool {
        self.idr0 >> 12 & 3 == 1
    }

    /// Number of conditional instruction keys that are not special (TRCIDR12, TRCIDR13); 0 if unknown.
    pub fn conditional_keys(&self) -> u32 {
        self.idr12.saturating_sub(self.idr13)
    }

    /// Whether loads have atoms as branches do (TRCIDR0.INSTP0, TRCCONFIGR.INSTP0).
    pub fn has_load_atoms(&self) -> bool {
        self.idr0 >> 1 & 3 == 3 && self.configr >> 1 & 1 != 0
    }

    /// Whether stores have atoms as branches do (TRCIDR0.INSTP0, TRCCONFIGR.INSTP0).
    pub fn has_store_atoms(&self) -> bool {
        self.idr0 >> 1 & 3 == 3 && self.configr >> 2 & 1 != 0
    }

    /// Whether returns from a function of another security state have a packet: the M profile of Armv8, ETMv4.2 on.
    pub fn has_function_returns(&self) -> bool {
        self.is_m_profile && !self.is_ete && self.version() >= 0x42
    }

    /// Whether data is traced (TRCIDR0.TRCDATA, TRCCONFIGR.DA and DV).
    pub fn traces_data(&self) -> bool {
        self.idr0 >> 3 & 3 == 3 && self.configr >> 16 & 3 != 0
    }

    /// Whether the VMID is CONTEXTIDR_EL2, in which Linux at EL2 keeps the thread (TRCCONFIGR.VMID and VMIDOPT).
    pub fn vmid_is_thread(&self) -> bool {
        self.configr >> 7 & 1 == 1 && self.configr >> 15 & 1 == 1
    }

    /// Whether context IDs are traced (TRCCONFIGR.CID).
    pub fn traces_context_ids(&self) -> bool {
        self.configr >> 6 & 1 == 1
    }

    /// Whether VMIDs are traced (TRCCONFIGR.VMID).
    pub fn traces_vmids(&self) -> bool {
        self.configr >> 7 & 1 == 1
    }

    /// Whether direct branches also have address packets (TRCCONFIGR.BB).
    pub fn broadcasts_branches(&self) -> bool {
        self.configr >> 3 & 1 == 1
    }

    /// Whether timestamps are traced (TRCCONFIGR.TS).
    pub fn has_timestamps(&self) -> bool {
        self.configr >> 11 & 1 == 1
    }

    /// Whether cycles are counted (TRCCONFIGR.CCI).
    pub fn counts_cycles(&self) -> bool {
        self.configr >> 4 & 1 == 1
    }

    /// Whether the return stack is enabled, so that predicted returns have no address packet (TRCCONFIGR.RS).
    pub fn uses_return_stack(&self) -> bool {
        self.configr >> 12 & 1 == 1
    }
}
