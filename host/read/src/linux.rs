//! Names of the Linux kernel that its tracers do not record.

/// Names of softirqs, by number (`include/linux/interrupt.h`).
pub(crate) const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// System calls that return 0 in the new thread, which has not called them.
pub(crate) const SPAWN: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
