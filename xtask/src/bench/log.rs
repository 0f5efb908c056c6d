//! QEMU's execution log: the instructions that a processor executed, in order.
//!
//! With `-singlestep -d exec,nochain` QEMU writes a line before every instruction. An instruction that turns out to
//! access a device, or is deferred because of other work, is logged again; the log reports that in a separate line, and
//! the instruction counts once here. `device/bench/step.c` writes such a log too.

/// The addresses of the executed instructions, in order.
pub fn executed(log: &str) -> Vec<u64> {
    let mut executed = Vec::new();
    for line in log.lines() {
        if let Some(address) = address(line) {
            executed.push(address);
        } else if line.starts_with("cpu_io_recompile:") || line.starts_with("Stopped execution") {
            executed.pop();
        }
    }
    executed
}

/// The address in a line `Trace 0: 0x7f48fc000100 [00800408/00000100/00000110/ff020201] name`: the
/// second of the four.
fn address(line: &str) -> Option<u64> {
    let fields = line.strip_prefix("Trace ")?.split_once('[')?.1;
    let field = fields.split(['/', ']']).nth(1)?;
    u64::from_str_radix(field, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_is_written_twice_counts_once() {
        let log = "Trace 0: 0x7f48fc000100 [00800408/00000100/00000110/ff020201] \n\
                   Trace 0: 0x7f48fc000380 [00800408/00000108/00000110/ff020201] name\n\
                   cpu_io_recompile: rewound execution of TB to 00000108\n\
                   Trace 0: 0x7f48fc000500 [00800408/00000108/00000110/ff038201] \n\
                   Trace 0: 0x7f071c009300 [0000000000004000/0000000040080134/00000021/ff020201] main\n\
                   Stopped execution of TB chain before 0x7f071c009300 [0000000040080134] main\n\
                   Trace 0: 0 [0/40112f]\n\
                   something else\n";
        assert_eq!(executed(log), [0x100, 0x108, 0x40_112f]);
    }
}
