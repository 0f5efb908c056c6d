//! Parser for ftrace's text: lines of `trace` and `trace_pipe` of all tracers.
//!
//! The form of a line determines its kind, whatever columns were chosen, so text without its header can be read. Facts
//! that a line does not state (such as the task of a function graph without that column) need code that keeps a state.

mod event;
mod graph;
mod prefix;
mod sched;

use std::borrow::Cow;

pub use event::fields;
pub use graph::bare_line;
pub use sched::{Scheduled, scheduled};

/// Parsed line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line<'a> {
    /// An event.
    Event(TextEvent<'a>),
    /// A CPU switches from one task to another, as a function graph shows it.
    Switch {
        /// The CPU.
        cpu: u32,
        /// The task before the switch.
        from: Task<'a>,
        /// The task behind the switch.
        to: Task<'a>,
    },
    /// Events of a CPU are missing here.
    Lost {
        /// The CPU.
        cpu: u32,
        /// Their number, if the line has it.
        events: Option<u64>,
    },
    /// Name of the tracer, from the header.
    Tracer(&'a str),
    /// Numbers of events from the header: in the text, and written into the buffer.
    Entries {
        /// Number of events in the text.
        kept: u64,
        /// Number of events written into the buffer.
        written: u64,
    },
    /// Caller in the stack of the event before.
    Caller(&'a str),
    /// Header line, separator or empty line.
    Nothing,
    /// Line of another form.
    Unknown,
}

/// Task with its name, which may be truncated, and its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// The name.
    pub comm: &'a str,
    /// The pid; 0 is the idle task of a CPU.
    pub pid: i32,
}

/// Event, with the facts that its line states.
#[derive(Clone, Debug, PartialEq)]
pub struct TextEvent<'a> {
    /// Timestamp in nanoseconds, or in [ticks](Self::is_ticks).
    pub time: Option<u64>,
    /// Whether the time is a number without a point. The kernel writes such times for clocks that do not count
    /// nanoseconds (`counter`, `uptime`, `x86-tsc`), and `trace-cmd report --raw-ts` writes them for any clock.
    pub is_ticks: bool,
    /// CPU.
    pub cpu: Option<u32>,
    /// Task.
    pub task: Option<Task<'a>>,
    /// Thread group of the task, which is the pid of its process, if the line has it (option `record-tgid`).
    pub group: Option<i32>,
    /// Flags as the line has them: `d..1.`; empty if it has none.
    pub flags: &'a str,
    /// Kind of the event.
    pub kind: TextKind<'a>,
}

/// Values that the tracer's options add to a function's entry or exit; empty if the line does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values<'a> {
    /// Arguments (`funcgraph-args`): `fd=3, count=2`.
    pub arguments: &'a str,
    /// Return value of the call (`funcgraph-retval`): `0x0`.
    pub returned: &'a str,
    /// Return address of the call (`funcgraph-retaddr`): `ksys_read+0x6c/0xe0`.
    pub caller: &'a str,
}

impl<'a> TextEvent<'a> {
    /// Returns the values on the line of a function's entry or exit.
    pub fn values(&self, line: &'a str) -> Values<'a> {
        graph::values(line, &self.kind).unwrap_or_default()
    }
}

/// Kind of an event in text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextKind<'a> {
    /// Entry of a function.
    Entry {
        /// Its name.
        function: &'a str,
        /// Depth of the call.
        depth: u32,
    },
    /// Exit of a function.
    Exit {
        /// Its name, if the line has it.
        function: Option<&'a str>,
        /// Depth of the call.
        depth: u32,
        /// Duration of the call in nanoseconds.
        duration: Option<u64>,
    },
    /// Entry and exit of a function that calls no other traced function.
    Leaf {
        /// Its name.
        function: &'a str,
        /// Depth of the call.
        depth: u32,
        /// Duration of the call in nanoseconds.
        duration: Option<u64>,
    },
    /// Whole call, printed at its end (`function_duration`). The timestamp is that of its entry.
    Call {
        /// Its name.
        function: &'a str,
        /// Depth of the call.
        depth: u32,
        /// Duration of the call in nanoseconds.
        duration: u64,
    },
    /// Call of a function.
    Function {
        /// Its name.
        function: &'a str,
        /// Name of its caller; empty if the line does not have it.
        parent: &'a str,
        /// Number of calls on the line: more than one if the kernel counts repeated calls (`func-no-repeats`).
        calls: u32,
    },
    /// Event with its name and its print format's output.
    Event {
        /// The name; `print` for text that a program wrote into the trace.
        name: Cow<'a, str>,
        /// The text behind the name.
        body: &'a str,
    },
}

/// Parses a line without its line end.
pub fn line(text: &str) -> Line<'_> {
    let text = prefix::without_prefix(text);
    let trimmed = text.trim();
    if let Some(header) = trimmed.strip_prefix('#')
        && !graph::is_duration(header)
    {
        return match header.trim().strip_prefix("tracer:") {
            Some(tracer) => Line::Tracer(tracer.trim()),
            None => event::buffer_started(header)
                .or(event::entries(header))
                .unwrap_or(Line::Nothing),
        };
    }
    let is_separator = trimmed.bytes().all(|byte| byte == b'-');
    if trimmed.is_empty() || is_separator || is_report_header(trimmed) {
        return Line::Nothing;
    }
    if let Some(caller) = trimmed.strip_prefix("=> ") {
        return Line::Caller(caller.trim());
    }
    // Start and end of an interrupt in a function graph, which its functions show as well, and calls that were too
    // deep.
    if trimmed.contains("==========>")
        || trimmed.contains("<==========")
        || trimmed.starts_with("(Overruns: ")
    {
        return Line::Nothing;
    }
    if let Some(lost) = event::lost(trimmed) {
        return lost;
    }
    if let Some(found) = event::event(text)
        .or(event::latency_event(text))
        .or(event::with_flags_first(text))
        .or(event::verbose_event(text))
    {
        return Line::Event(found);
    }
    if let Some(switch) = graph::switch(trimmed) {
        return switch;
    }
    graph::line(text).map_or(Line::Unknown, Line::Event)
}

/// Returns the function on a line of the function tracer that lacks the caller (`noprint-parent`). `body` is the text
/// behind the time. `None` if it cannot be a function's name.
pub fn lone_function(body: &str) -> Option<&str> {
    event::name(body)
}

/// Returns whether a line is one that `trace-cmd report` writes around the events: in front of them, about its plugins
/// with `-V`, or about wakeup latencies with `-w`.
fn is_report_header(text: &str) -> bool {
    const BEGINNINGS: [&str; 11] = [
        // OP-TEE.
        "TEE load address @ ",
        "Function graph for TA: ",
        // Android's `atrace`, which ends the line with dots and later with `done`.
        "capturing trace...",
        "cpus=",
        "version = ",
        "registering plugin: ",
        "overriding event (",
        "removing override handler for event (",
        "Average wakeup latency: ",
        "Maximum Latency: ",
        "Minimum Latency: ",
    ];
    let is_empty_cpu = || {
        let cpu = text.strip_prefix("CPU ")?.strip_suffix(" is empty")?;
        cpu.parse::<u32>().ok()
    };
    // `atrace` writes `TRACE:` in front.
    BEGINNINGS.iter().any(|begin| text.starts_with(begin))
        || text == "TRACE:"
        || is_empty_cpu().is_some()
}

/// Parses `ls-113`, `<idle>-0`. The name may contain spaces and dashes.
fn task(text: &str) -> Option<Task<'_>> {
    let (comm, pid) = text.trim().rsplit_once('-')?;
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    let pid = is_number.then(|| pid.parse().ok()).flatten()?;
    (!comm.is_empty()).then_some(Task { comm, pid })
}

/// Parses seconds with a fraction of 6 or 9 digits, and returns nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let unit = match fraction.len() {
        6 => 1000,
        9 => 1,
        _ => return None,
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    whole
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * unit)
}

/// Parses `++ 19.960`, `17505.92`: microseconds with up to three fractional digits. Returns nanoseconds.
fn microseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let mut nanoseconds: u64 = match fraction {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    for _ in fraction.len()..3 {
        nanoseconds *= 10;
    }
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(nanoseconds)
}

/// Returns whether a text is a flag column: four to eight characters such as `d..1.`. (`*` and `~` are Dovetail's, for
/// its out-of-band stage.)
fn is_flags(text: &str) -> bool {
    (4..=8).contains(&text.len())
        && text.bytes().all(|byte| {
            byte == b'.' || b"dDbXNnpBLlhHszZ-#*~".contains(&byte) || byte.is_ascii_hexdigit()
        })
        && text
            .bytes()
            .any(|byte| byte == b'.' || !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> TextKind<'_> {
        match line(text) {
            Line::Event(event) => event.kind,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn function_graphs_are_read_in_every_layout() {
        let leaf = |duration| TextKind::Leaf {
            function: "idle_cpu",
            depth: 2,
            duration,
        };
        let all = [
            " 1)   1.002 us    |      idle_cpu();",
            "   60.702480 |   1)     ls-113     |   1.002 us    |      idle_cpu();",
            "   60.702480 |   1)  |      idle_cpu();",
            " 1)     ls-113     | d..1. |   1.002 us    |      idle_cpu();",
            " 1)     ls-113    |  d..1.  1.002 us    |      idle_cpu(); /* = 0x0 */",
            "  1.002 us    |      idle_cpu() { } /* idle_cpu ret=0x1 */",
        ];
        for (place, text) in all.into_iter().enumerate() {
            match kind(text) {
                TextKind::Leaf { function, .. } => assert_eq!(function, "idle_cpu", "{text}"),
                TextKind::Entry { .. } if place == 5 => {}
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(kind(all[0]), leaf(Some(1002)));
        assert_eq!(kind(all[3]), leaf(Some(1002)));
        assert_eq!(kind(all[4]), leaf(Some(1002)));
        let Line::Event(event) = line(all[1]) else {
            panic!()
        };
        assert_eq!(event.time, Some(60_702_480_000));
        assert_eq!(event.cpu, Some(1));
        assert_eq!(
            event.task,
            Some(Task {
                comm: "ls",
                pid: 113
            })
        );
        assert_eq!(
            kind(" 0) * 16139.40 us |  } /* switch_ldt */"),
            TextKind::Exit {
                function: Some("switch_ldt"),
                depth: 0,
                duration: Some(16_139_400),
            }
        );
        assert_eq!(
            kind("  270.29 |   0)    <idle>-0    |               |  vfs [x]() {"),
            TextKind::Entry {
                function: "vfs",
                depth: 0,
            }
        );
        assert!(matches!(line("vfs_read() {"), Line::Unknown));
        let bare = |text| bare_line(text).map(|event| event.kind);
        let function = "vfs_read";
        let entry = TextKind::Entry { function, depth: 1 };
        assert_eq!(bare("  vfs_read [x](file=0x1, count=2) {"), Some(entry));
        assert_eq!(bare("some words"), None);
        assert_eq!(bare("/* a remark */"), None);
        // Without durations.
        for (text, depth) in [
            ("  162.460118 |   0) idle_cpu();", 0),
            ("  162.460198 |   0)     idle_cpu();", 2),
            (" 0)   idle_cpu();", 1),
        ] {
            let (function, duration) = ("idle_cpu", None);
            let leaf = TextKind::Leaf {
                function,
                depth,
                duration,
            };
            assert_eq!(kind(text), leaf, "{text}");
        }
        let switch = kind(
            "  270.295992 |   0)    <idle>-0    |               |        /* sched_switch: prev_comm=a|b prev_pid=0 */",
        );
        let TextKind::Event { name, body } = switch else {
            panic!("{switch:?}")
        };
        assert_eq!((&*name, body), ("sched_switch", "prev_comm=a|b prev_pid=0"));
    }

    #[test]
    fn a_duration_over_a_millisecond_is_no_line_of_a_header() {
        let (function, duration) = ("filp_close", Some(1_100_250));
        let leaf = TextKind::Leaf {
            function,
            depth: 1,
            duration,
        };
        assert_eq!(kind("# 1100.250 us |    filp_close();"), leaf);
        for header in [
            "# latency: 1100 us, #4/4, CPU#0 | (M:server VP:0, KP:0, SP:0 HP:0 #P:4)",
            "#     DURATION                  FUNCTION CALLS",
            "#      |   |                     |   |   |   |",
            "# 1100.250 us",
            "# us |",
        ] {
            assert_eq!(line(header), Line::Nothing, "{header}");
        }
    }

    #[test]
    fn flags_of_dovetail_are_read() {
        for flags in ["d.~.", "*.~."] {
            let text = format!(" timer-234   [001] {flags}   135.363265: evl_timer_shot: at 1");
            let Line::Event(event) = line(&text) else {
                panic!("{text}")
            };
            assert_eq!((event.cpu, event.flags), (Some(1), flags));
        }
    }

    #[test]
    fn events_are_read_with_and_without_flags() {
        let text =
            "              ls-175     [001] .....   310.670951: __legitimize_path <-try_to_unlazy";
        let Line::Event(event) = line(text) else {
            panic!()
        };
        assert_eq!((event.cpu, event.flags), (Some(1), "....."));
        assert_eq!(
            event.kind,
            TextKind::Function {
                function: "__legitimize_path",
                parent: "try_to_unlazy",
                calls: 1,
            }
        );
        let text = " Web Content-1-2 ( 99) [012] 5.000001: sys_read(fd: 3, buf: 0)";
        let Line::Event(event) = line(text) else {
            panic!()
        };
        assert_eq!(
            event.task,
            Some(Task {
                comm: "Web Content-1",
                pid: 2
            })
        );
        assert_eq!(event.group, Some(99));
        let TextKind::Event { name, .. } = event.kind else {
            panic!()
        };
        assert_eq!(name, "sys_read");
        let Line::Event(event) = line("  <idle>-0     (-------) [001] 5.000001: foo <-bar") else {
            panic!()
        };
        assert_eq!(event.group, None);
        let report = "  sh-288   [001]   374.295147: funcgraph_entry:        3.375 us   |    irq_enter_rcu();";
        assert_eq!(
            kind(report),
            TextKind::Leaf {
                function: "irq_enter_rcu",
                depth: 1,
                duration: Some(3375),
            }
        );
    }

    #[test]
    fn arguments_and_returned_values_are_found() {
        let header = " 0)   1.200 us    |    ";
        for (text, expected) in [
            ("idle_cpu();", ("", "")),
            (
                "open(fd=-1, name=0x7f \"a);b\") {",
                ("fd=-1, name=0x7f \"a);b\"", ""),
            ),
            ("open [ext4](fd=3) { /* <-open */", ("fd=3", "")),
            ("open(fd=3); /* = 0x0 */", ("fd=3", "0x0")),
            ("open(fd=3); /* open ret=-22 */", ("fd=3", "-22")),
            ("idle_cpu(); (ret=0x1)", ("", "0x1")),
            ("} /* open ret=0xffff */", ("", "0xffff")),
            ("} /* open = 0x7 */", ("", "0x7")),
            ("} /* = 0x7 */", ("", "0x7")),
            ("} (ret=-2)", ("", "-2")),
            ("} /* open */", ("", "")),
            ("}", ("", "")),
        ] {
            let text = format!("{header}{text}");
            let Line::Event(event) = line(&text) else {
                panic!("{text}")
            };
            let values = event.values(&text);
            assert_eq!((values.arguments, values.returned), expected, "{text}");
        }
    }

    #[test]
    fn callers_stand_behind_entries() {
        let header = " 0)   1.200 us    |    ";
        let caller = "ksys_read+0x6c/0xe0";
        for (text, expected) in [
            ("vfs_read(file=0xff) { /* <-ksys_read+0x6c/0xe0 */", caller),
            (
                "vfs_read() { /* <-ksys_read+0x6c/0xe0 <ffffffff81> */",
                caller,
            ),
            ("idle_cpu(); /* <-ksys_read+0x6c/0xe0 ret=0x0 */", caller),
            ("idle_cpu(); /* = 0x0 */", ""),
            ("idle_cpu();", ""),
        ] {
            let text = format!("{header}{text}");
            let Line::Event(event) = line(&text) else {
                panic!("{text}")
            };
            assert_eq!(event.values(&text).caller, expected, "{text}");
        }
    }

    #[test]
    fn whole_calls_losses_and_switches_are_read() {
        assert_eq!(
            kind(" 1)    find-298    |   394.450323327 |  + 12.669 us  |    mutex_unlock"),
            TextKind::Call {
                function: "mutex_unlock",
                depth: 1,
                duration: 12_669,
            }
        );
        for (written, function) in [
            ("irq 48", "irq 48"),
            ("k_sem_take (no wait)", "k_sem_take (no wait)"),
            ("vfs_read /* 2 exits missing */", "vfs_read"),
        ] {
            assert_eq!(
                kind(&format!(
                    " 1)    find-298    |   394.450323327 |    2.669 us  |  {written}"
                )),
                TextKind::Call {
                    function,
                    depth: 0,
                    duration: 2669,
                }
            );
        }
        for (time, ticks) in [("123456789", true), ("0.123456789", false)] {
            let text = format!("  sh-7  [001] .....  {time}: sched_yield: x=1");
            let Line::Event(event) = line(&text) else {
                panic!("{text}")
            };
            assert_eq!((event.time, event.is_ticks), (Some(123_456_789), ticks));
        }
        assert_eq!(
            line("CPU:1 [LOST 1234 EVENTS]"),
            Line::Lost {
                cpu: 1,
                events: Some(1234),
            }
        );
        assert_eq!(
            line(" 0)    <idle>-0    =>   rcu_pre-15  "),
            Line::Switch {
                cpu: 0,
                from: Task {
                    comm: "<idle>",
                    pid: 0
                },
                to: Task {
                    comm: "rcu_pre",
                    pid: 15
                },
            }
        );
        assert_eq!(
            line("# tracer: function_graph"),
            Line::Tracer("function_graph")
        );
        assert_eq!(line("Hello, world"), Line::Unknown);
        assert_eq!(line(" 0)   ==========> |"), Line::Nothing);
        assert_eq!(line(" => do_idle"), Line::Caller("do_idle"));
        assert_eq!(
            line("# entries-in-buffer/entries-written: 10/15   #P:2"),
            Line::Entries {
                kept: 10,
                written: 15
            }
        );
        let Line::Event(event) = line("   bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule")
        else {
            panic!()
        };
        assert_eq!(
            event.task,
            Some(Task {
                comm: "bash",
                pid: 1977
            })
        );
        assert_eq!(
            (event.time, event.cpu, event.flags),
            (Some(12_000), Some(0), "d..1.")
        );
        assert_eq!(
            event.kind,
            TextKind::Function {
                function: "_raw_spin_lock",
                parent: "schedule",
                calls: 1,
            }
        );
        assert_eq!(
            fields("prev_comm=a b prev_pid=0 ==> next_comm=c"),
            [("prev_comm", "a b"), ("prev_pid", "0"), ("next_comm", "c")]
        );
    }
}
