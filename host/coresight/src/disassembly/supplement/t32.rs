//! T32. Coprocessor instructions share the code of A32.

use std::fmt::Write as _;

use super::a32::insertion;
use super::{
    barrier, bit, bits, checksum, halves, neon, ordered, reg, store_return_state, vfp, write_all,
};

/// Whether the upper byte of the first halfword is that of a coprocessor or floating-point instruction.
pub(super) const fn is_of_coprocessor(upper: u8) -> bool {
    matches!(upper, 0xec..=0xee | 0xfc..=0xfe)
}

/// Writes an instruction of T32; `second` is its second halfword, if any.
pub(super) fn write(first: u32, second: Option<u32>, out: &mut String) -> Option<()> {
    match first {
        0xbf50 => return write_all(out, "sevl"),
        _ if first & 0xffc0 == 0xba80 => return write!(out, "hlt {:#x}", first & 0x3f).ok(),
        _ if first & 0xff87 == 0x4704 => return write!(out, "bxns {}", reg(first, 3)).ok(),
        _ if first & 0xff87 == 0x4784 => return write!(out, "blxns {}", reg(first, 3)).ok(),
        _ if first < 0xe800 => return None,
        _ => {}
    }
    let second = second?;
    if is_of_coprocessor((first >> 8) as u8) {
        return vfp::write(first << 16 | second, out);
    }
    if let Some(word) = neon::as_a32(first << 16 | second) {
        return neon::write(word, out);
    }
    let (n, d, m) = (reg(first, 0), reg(second, 8), reg(second, 0));
    let added = reg(second, 12);
    let operands = [d, n, m, added];
    let is_other = bit(second, 4);
    if let Some(name) = special(bits(second, 0, 8)) {
        if first == 0xf3ef && second & 0xf000 == 0x8000 {
            return write!(out, "mrs {d}, {name}").ok();
        }
        if first & 0xfff0 == 0xf380 && second & 0xf300 == 0x8000 {
            return write!(out, "msr {name}, {n}").ok();
        }
    }
    match first & 0xfff0 {
        0xe970 if first == 0xe97f && second == 0xe97f => write_all(out, "sg"),
        0xe890 if first == 0xe89f => clear(second, out),
        0xf3b0 if first == 0xf3bf && second == 0x8f2f => write_all(out, "clrex"),
        0xf3b0 if first == 0xf3bf && second & 0xff00 == 0x8f00 => barrier(second, out),
        0xf360 if second & 0x8020 == 0 => {
            let low = bits(second, 12, 3) << 2 | bits(second, 6, 2);
            insertion(out, "", [d, n], low, bits(second, 0, 5))
        }
        0xfac0 | 0xfad0 if second & 0xf0c0 == 0xf080 => {
            checksum(out, bit(first, 4), bits(second, 4, 2), [d, n, m])
        }
        0xfb20 if second & 0xe0 == 0 => {
            halves(out, ["smlad", "smuad", ""], is_other, "x", operands)
        }
        0xfb40 if second & 0xe0 == 0 => {
            halves(out, ["smlsd", "smusd", ""], is_other, "x", operands)
        }
        0xfb50 if second & 0xe0 == 0 => {
            halves(out, ["smmla", "smmul", ""], is_other, "r", operands)
        }
        0xfb60 if second & 0xe0 == 0 && added != "pc" => {
            halves(out, ["smmls", "", ""], is_other, "r", operands)
        }
        0xfb70 if second & 0xf0 == 0 => halves(out, ["usada8", "usad8", ""], false, "", operands),
        0xfbc0 | 0xfbd0 if second & 0xe0 == 0xc0 => {
            let name = if bit(first, 4) { "smlsld" } else { "smlald" };
            let x = if is_other { "x" } else { "" };
            write!(out, "{name}{x} {added}, {d}, {n}, {m}").ok()
        }
        0xe8c0 | 0xe8d0 => acquire_or_release(first, second, out),
        0xe800 | 0xe820 | 0xe980 | 0xe9a0 if n == "sp" && second & 0xffe0 == 0xc000 => {
            let when = if bit(first, 8) { "ia" } else { "db" };
            store_return_state(out, when, bit(first, 5), bits(second, 0, 5))
        }
        0xf8b0 if added == "pc" => match bits(second, 0, 12) {
            0 => write!(out, "pldw [{n}]").ok(),
            offset => write!(out, "pldw [{n}, {offset:#x}]").ok(),
        },
        0xf830 if second & 0xff00 == 0xfc00 && n != "pc" => {
            write!(out, "pldw [{n}, -{:#x}]", second & 0xff).ok()
        }
        0xf830 if second & 0xffc0 == 0xf000 && n != "pc" => match bits(second, 4, 2) {
            0 => write!(out, "pldw [{n}, {m}]").ok(),
            amount => write!(out, "pldw [{n}, {m}, lsl {amount}]").ok(),
        },
        _ => None,
    }
}

/// Special register of the M profile, by its number (Arm DDI 0553, MRS). Number 0 is also used by the A profile.
fn special(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "iapsr",
        2 => "eapsr",
        3 => "xpsr",
        5 => "ipsr",
        6 => "epsr",
        7 => "iepsr",
        8 => "msp",
        9 => "psp",
        10 => "msplim",
        11 => "psplim",
        16 => "primask",
        17 => "basepri",
        18 => "basepri_max",
        19 => "faultmask",
        20 => "control",
        0x88 => "msp_ns",
        0x89 => "psp_ns",
        0x8a => "msplim_ns",
        0x8b => "psplim_ns",
        0x90 => "primask_ns",
        0x91 => "basepri_ns",
        0x93 => "faultmask_ns",
        0x94 => "control_ns",
        0x98 => "sp_ns",
        _ => return None,
    })
}

/// Writes `clrm`, which clears registers.
fn clear(list: u32, out: &mut String) -> Option<()> {
    if list == 0 || bit(list, 13) {
        return None;
    }
    let name = |at: u32| match at {
        15 => "apsr",
        _ => reg(at, 0),
    };
    let names: Vec<_> = (0..16).filter(|at| bit(list, *at)).map(name).collect();
    write!(out, "clrm {{{}}}", names.join(", ")).ok()
}

fn acquire_or_release(first: u32, second: u32, out: &mut String) -> Option<()> {
    let kind = bits(second, 4, 4);
    let size = ["b", "h", "", "d"].get((kind & 3) as usize)?;
    let is_exclusive = kind & 4 != 0;
    if kind & 8 == 0 || *size == "d" && !is_exclusive {
        return None;
    }
    ordered(
        out,
        "",
        size,
        (bit(first, 4), is_exclusive),
        [
            reg(second, 0),
            reg(second, 12),
            reg(second, 8),
            reg(first, 0),
        ],
    )
}
