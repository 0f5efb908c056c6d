//! A32.

use std::fmt::Write as _;

use super::{
    barrier, bit, bits, checksum, condition, halves, neon, ordered, reg, store_return_state, three,
    vfp, write_all,
};

/// Writes an instruction of A32.
pub(super) fn write(word: u32, out: &mut String) -> Option<()> {
    if word >> 28 == 15 {
        let written = unconditional(word, out).or_else(|| vfp::write(word, out));
        return written.or_else(|| neon::write(word, out));
    }
    if word & 0x0fff_ff00 == 0x0320_f000 {
        return hint(word, out);
    }
    if word & 0x0fef_0000 == 0x03e0_0000 {
        let s = if bit(word, 20) { "s" } else { "" };
        let number = bits(word, 0, 8).rotate_right(2 * bits(word, 8, 4));
        let (condition, to) = (condition(word), reg(word, 12));
        return write!(out, "mvn{s}{condition} {to}, {number:#x}").ok();
    }
    if word & 0x0fff_ffff == 0x0160_006e {
        return write!(out, "eret{}", condition(word)).ok();
    }
    if word & 0x0e00_0010 == 0x0600_0010 {
        return media(word, out);
    }
    if word & 0x0f80_0000 == 0x0100_0000 {
        return miscellaneous(word, out);
    }
    if word & 0x0f80_00f0 == 0x0180_0090 {
        return acquire_or_release(word, out);
    }
    vfp::write(word, out)
}

fn unconditional(word: u32, out: &mut String) -> Option<()> {
    match word {
        0xf57f_f01f => write_all(out, "clrex"),
        _ if word & 0xffff_ff00 == 0xf57f_f000 => barrier(word, out),
        _ if word & 0xffff_fdff == 0xf101_0000 => write_all(
            out,
            if bit(word, 9) {
                "setend be"
            } else {
                "setend le"
            },
        ),
        _ if word & 0xfff1_fe20 == 0xf100_0000 => change_state(word, out),
        _ if word & 0xfe5f_ffe0 == 0xf84d_0500 => {
            let when = ["da", "ia", "db", "ib"].get(bits(word, 23, 2) as usize)?;
            store_return_state(out, when, bit(word, 21), bits(word, 0, 5))
        }
        _ => preload(word, out),
    }
}

/// Writes `cps`: interrupt masks and mode.
fn change_state(word: u32, out: &mut String) -> Option<()> {
    let mode = bit(word, 17).then_some(bits(word, 0, 5));
    let which = bits(word, 6, 3);
    match (bits(word, 18, 2), mode) {
        (0, Some(mode)) if which == 0 => write!(out, "cps {mode:#x}").ok(),
        (enable @ (2 | 3), mode) if which != 0 => {
            out.push_str(if enable == 2 { "cpsie " } else { "cpsid " });
            for (at, name) in [(8, 'a'), (7, 'i'), (6, 'f')] {
                if bit(word, at) {
                    out.push(name);
                }
            }
            mode.map_or(Some(()), |mode| write!(out, ", {mode:#x}").ok())
        }
        _ => None,
    }
}

/// Writes `pld`, `pldw` and `pli`.
fn preload(word: u32, out: &mut String) -> Option<()> {
    let name = match word & 0xfd70_f000 {
        0xf550_f000 => "pld",
        0xf510_f000 => "pldw",
        0xf450_f000 => "pli",
        _ => return None,
    };
    let sign = if bit(word, 23) { "" } else { "-" };
    write!(out, "{name} [{}", reg(word, 16)).ok()?;
    if !bit(word, 25) {
        let offset = bits(word, 0, 12);
        if offset != 0 || !sign.is_empty() {
            write!(out, ", {sign}{offset:#x}").ok()?;
        }
    } else if bit(word, 4) {
        return None;
    } else {
        write!(out, ", {sign}{}", reg(word, 0)).ok()?;
        match (bits(word, 5, 2), bits(word, 7, 5)) {
            (0, 0) => {}
            (3, 0) => out.push_str(", rrx"),
            (kind, amount) => {
                let amount = if amount == 0 { 32 } else { amount };
                let kind = ["lsl", "lsr", "asr", "ror"].get(kind as usize)?;
                write!(out, ", {kind} {amount}").ok()?;
            }
        }
    }
    write_all(out, "]")
}

fn hint(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let number = bits(word, 0, 8);
    let name = match number {
        0 => "nop",
        1 => "yield",
        2 => "wfe",
        3 => "wfi",
        4 => "sev",
        5 => "sevl",
        0x10 => "esb",
        0x14 => "csdb",
        0xf0.. => return write!(out, "dbg{condition} {:#x}", number & 15).ok(),
        _ => return write!(out, "hint{condition} {number:#x}").ok(),
    };
    write!(out, "{name}{condition}").ok()
}

/// Writes CRC-32, HLT, banked registers, and halfword multiplications.
fn miscellaneous(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let half = |at: u32| if bit(word, at) { 't' } else { 'b' };
    let (to, added, m, n) = (reg(word, 16), reg(word, 12), reg(word, 8), reg(word, 0));
    match word & 0x0ff0_00b0 {
        0x0120_0080 => {
            let y = half(6);
            return write!(out, "smlaw{y}{condition} {to}, {n}, {m}, {added}").ok();
        }
        0x0120_00a0 if bits(word, 12, 4) == 0 => {
            return write!(out, "smulw{}{condition} {to}, {n}, {m}", half(6)).ok();
        }
        _ if word & 0x0ff0_0090 == 0x0140_0080 => {
            let (x, y) = (half(5), half(6));
            return write!(out, "smlal{x}{y}{condition} {added}, {to}, {n}, {m}").ok();
        }
        _ => {}
    }
    if word & 0x0f90_0df0 == 0x0100_0040 && condition.is_empty() {
        let operands = [reg(word, 12), reg(word, 16), reg(word, 0)];
        return checksum(out, bit(word, 9), bits(word, 21, 2), operands);
    }
    if word & 0x0ff0_00f0 == 0x0100_0070 {
        return write!(
            out,
            "hlt{condition} {:#x}",
            bits(word, 8, 12) << 4 | word & 15
        )
        .ok();
    }
    if word & 0x0fb0_0eff == 0x0100_0200 {
        let banked = banked(word)?;
        return write!(out, "mrs{condition} {}, {banked}", reg(word, 12)).ok();
    }
    if word & 0x0fb0_fef0 == 0x0120_f200 {
        let banked = banked(word)?;
        return write!(out, "msr{condition} {banked}, {}", reg(word, 0)).ok();
    }
    None
}

/// Name of a banked register of another mode, by bits 22, 8 and 16 to 19.
fn banked(word: u32) -> Option<&'static str> {
    const USER: [&str; 7] = [
        "r8_usr", "sb_usr", "r10_usr", "fp_usr", "ip_usr", "sp_usr", "lr_usr",
    ];
    const FAST: [&str; 7] = [
        "r8_fiq", "sb_fiq", "r10_fiq", "fp_fiq", "ip_fiq", "sp_fiq", "lr_fiq",
    ];
    const OTHERS: [&str; 16] = [
        "lr_irq", "sp_irq", "lr_svc", "sp_svc", "lr_abt", "sp_abt", "lr_und", "sp_und", "", "", "",
        "", "lr_mon", "sp_mon", "elr_hyp", "sp_hyp",
    ];
    let number = (bits(word, 8, 1) << 4 | bits(word, 16, 4)) as usize;
    if bit(word, 22) {
        return Some(match number {
            14 => "spsr_fiq",
            16 => "spsr_irq",
            18 => "spsr_svc",
            20 => "spsr_abt",
            22 => "spsr_und",
            28 => "spsr_mon",
            30 => "spsr_hyp",
            _ => return None,
        });
    }
    let name = match number {
        0..8 => USER.get(number),
        8..16 => FAST.get(number - 8),
        _ => OTHERS.get(number - 16),
    };
    name.copied().filter(|name| !name.is_empty())
}

fn acquire_or_release(word: u32, out: &mut String) -> Option<()> {
    let is_load = bit(word, 20);
    let is_exclusive = match bits(word, 8, 4) {
        12 => false,
        14 => true,
        _ => return None,
    };
    let size = ["", "d", "b", "h"].get(bits(word, 21, 2) as usize)?;
    let low = if is_load { 12 } else { 0 };
    let second = reg(bits(word, low, 4) + 1, 0);
    if *size == "d" && (bit(word, low) || second == "pc" || !is_exclusive) {
        return None;
    }
    if is_load && word & 15 != 15 || !is_load && !is_exclusive && bits(word, 12, 4) != 15 {
        return None;
    }
    ordered(
        out,
        condition(word),
        size,
        (is_load, is_exclusive),
        [reg(word, 12), reg(word, low), second, reg(word, 16)],
    )
}

/// Writes media instructions: bit fields, parallel bytes and halfwords.
fn media(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let (n, d, m) = (reg(word, 16), reg(word, 12), reg(word, 0));
    let operation = bits(word, 5, 3);
    match bits(word, 20, 5) {
        0..8 => {
            let signs = ["", "s", "q", "sh", "", "u", "uq", "uh"];
            let sign = signs.get(bits(word, 20, 3) as usize)?;
            let names = ["add16", "asx", "sax", "sub16", "add8", "", "", "sub8"];
            let name = names.get(operation as usize)?;
            if sign.is_empty() || name.is_empty() || bits(word, 8, 4) != 15 {
                return None;
            }
            write!(out, "{sign}{name}{condition} {d}, {n}, {m}").ok()
        }
        8..16 => packing(word, out),
        16 | 20 | 21 => multiplication(word, out),
        17 | 19 if operation == 0 && d == "pc" => {
            let name = if bit(word, 21) { "udiv" } else { "sdiv" };
            three(out, [name, condition], [n, m, reg(word, 8)])
        }
        24 if operation == 0 => {
            let operands = [n, m, reg(word, 8), d];
            halves(out, ["usada8", "usad8", condition], false, "", operands)
        }
        26 | 27 | 30 | 31 if operation & 3 == 2 => {
            let name = if bit(word, 22) { "ubfx" } else { "sbfx" };
            let (low, width) = (bits(word, 7, 5), bits(word, 16, 5) + 1);
            (low + width <= 32)
                .then(|| write!(out, "{name}{condition} {d}, {m}, {low:#x}, {width:#x}").ok())?
        }
        28 | 29 if operation & 3 == 0 => {
            let (low, high) = (bits(word, 7, 5), bits(word, 16, 5));
            insertion(out, condition, [d, m], low, high)
        }
        31 if operation == 7 && word >> 28 == 14 => {
            write!(out, "udf {:#x}", bits(word, 8, 12) << 4 | word & 15).ok()
        }
        _ => None,
    }
}

/// Writes `bfi`, or `bfc` if there is no source register.
pub(super) fn insertion(
    out: &mut String,
    condition: &str,
    [to, from]: [&str; 2],
    low: u32,
    high: u32,
) -> Option<()> {
    let width = (high + 1).checked_sub(low).filter(|width| *width > 0)?;
    if from == "pc" {
        return write!(out, "bfc{condition} {to}, {low:#x}, {width:#x}").ok();
    }
    write!(out, "bfi{condition} {to}, {from}, {low:#x}, {width:#x}").ok()
}

/// Writes packing, saturation, extension and reversal.
fn packing(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let (n, d, m) = (reg(word, 16), reg(word, 12), reg(word, 0));
    let amount = bits(word, 7, 5);
    let is_unsigned = bit(word, 22);
    let kind = bits(word, 20, 3);
    match (kind, bits(word, 5, 3)) {
        (0, 0 | 4) => {
            three(out, ["pkhbt", condition], [d, n, m])?;
            match amount {
                0 => Some(()),
                _ => write!(out, ", lsl {amount}").ok(),
            }
        }
        (0, 2 | 6) => {
            let amount = if amount == 0 { 32 } else { amount };
            three(out, ["pkhtb", condition], [d, n, m])?;
            write!(out, ", asr {amount}").ok()
        }
        (2 | 3 | 6 | 7, shift @ (0 | 2 | 4 | 6)) => {
            let name = if is_unsigned { "usat" } else { "ssat" };
            let bound = bits(word, 16, 5) + u32::from(!is_unsigned);
            write!(out, "{name}{condition} {d}, {bound:#x}, {m}").ok()?;
            match (shift & 2 != 0, amount) {
                (false, 0) => Some(()),
                (false, _) => write!(out, ", lsl {amount}").ok(),
                (true, 0) => write_all(out, ", asr 32"),
                (true, _) => write!(out, ", asr {amount}").ok(),
            }
        }
        (2 | 6, 1) if bits(word, 8, 4) == 15 => {
            let name = if is_unsigned { "usat16" } else { "ssat16" };
            let bound = bits(word, 16, 4) + u32::from(!is_unsigned);
            write!(out, "{name}{condition} {d}, {bound:#x}, {m}").ok()
        }
        (0, 5) if bits(word, 8, 4) == 15 => three(out, ["sel", condition], [d, n, m]),
        (3 | 7, operation @ (1 | 5)) if word & 0x000f_0f00 == 0x000f_0f00 => {
            let name = match (is_unsigned, operation) {
                (false, 1) => "rev",
                (false, _) => "rev16",
                (true, 1) => "rbit",
                (true, _) => "revsh",
            };
            write!(out, "{name}{condition} {d}, {m}").ok()
        }
        (kind, 3) if bits(word, 8, 2) == 0 => {
            let names = ["xtab16", "", "xtab", "xtah"];
            let without = ["xtb16", "", "xtb", "xth"];
            let of = (kind & 3) as usize;
            let sign = if is_unsigned { 'u' } else { 's' };
            let name = names.get(of).filter(|name| !name.is_empty())?;
            match n {
                "pc" => write!(out, "{sign}{}{condition} {d}, {m}", without.get(of)?).ok()?,
                _ => write!(out, "{sign}{name}{condition} {d}, {n}, {m}").ok()?,
            }
            match bits(word, 10, 2) {
                0 => Some(()),
                turn => write!(out, ", ror {}", turn * 8).ok(),
            }
        }
        _ => None,
    }
}

/// Writes halfword multiplications, and those whose result is the upper half.
fn multiplication(word: u32, out: &mut String) -> Option<()> {
    let condition = condition(word);
    let (to, added, m, n) = (reg(word, 16), reg(word, 12), reg(word, 8), reg(word, 0));
    let is_other = bit(word, 5);
    match (bits(word, 20, 3), bits(word, 6, 2)) {
        (0, 0) => halves(
            out,
            ["smlad", "smuad", condition],
            is_other,
            "x",
            [to, n, m, added],
        ),
        (0, 1) => halves(
            out,
            ["smlsd", "smusd", condition],
            is_other,
            "x",
            [to, n, m, added],
        ),
        (4, operation @ (0 | 1)) => {
            let name = if operation == 0 { "smlald" } else { "smlsld" };
            let x = if is_other { "x" } else { "" };
            write!(out, "{name}{x}{condition} {added}, {to}, {n}, {m}").ok()
        }
        (5, 0) => halves(
            out,
            ["smmla", "smmul", condition],
            is_other,
            "r",
            [to, n, m, added],
        ),
        (5, 3) if added != "pc" => halves(
            out,
            ["smmls", "", condition],
            is_other,
            "r",
            [to, n, m, added],
        ),
        _ => None,
    }
}
