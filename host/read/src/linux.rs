//! Names of the Linux kernel that its tracers do not record.

/// Names of softirqs, by number (`include/linux/interrupt.h`).
pub(crate) const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Returns whether a task that has begun to exit will not run again after a switch that leaves it in this state:
/// `EXIT_DEAD`, `EXIT_ZOMBIE`, or `TASK_DEAD` with any of the numbers that it has had (`include/linux/sched.h`).
pub(crate) const fn is_dead(state: u64) -> bool {
    state & 0xF0 != 0
}

/// Letters of these states in the text of a switch.
pub(crate) const DEAD: [char; 3] = ['X', 'Z', 'x'];

/// System calls that return 0 in the new thread, which has not called them.
pub(crate) const SPAWN: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
