//! Names of the Linux kernel's that its tracers do not tell.

/// What softirqs are called, by their numbers (`include/linux/interrupt.h`).
pub(crate) const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// The system calls that return 0 in the thread that they make, which has not called them.
pub(crate) const SPAWN: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
