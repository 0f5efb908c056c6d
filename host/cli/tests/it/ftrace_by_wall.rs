//! Text of function graphs without the begins of calls, or without thread switches, so that times are wall times.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Header of a function graph.
const HEADER: &str = "# tracer: function_graph\n#\n";

/// Lines of Linux 6.1 (amd64, `tracing_thresh` of 1 ms), which has only the exits of calls.
const AT_EXITS: &str = "\
  204.063959 |   0)    <idle>-0    | * 15704.52 us |        } /* amd_e400_idle */
  204.063969 |   0)    <idle>-0    | * 15719.52 us |      } /* arch_cpu_idle */
  204.063972 |   0)    <idle>-0    | * 15726.19 us |    } /* default_idle_call */
 ------------------------------------------
 0)    <idle>-0    =>   rcu_pre-15
 ------------------------------------------

  204.064035 |   0)   rcu_pre-15   | * 15877.45 us |      } /* schedule */
  204.064043 |   0)   rcu_pre-15   | * 15898.61 us |    } /* schedule_timeout */
 ------------------------------------------
 0)   rcu_pre-15   =>    <idle>-0
 ------------------------------------------

";

/// Lines of Linux 6.1 (amd64): an interrupt came before the entry of `unlock_page_memcg` was written.
const LATE: &str = "\
  270.291404 |   1)   sleep-158    |               |                        page_remove_rmap() {
  270.291404 |   1)   sleep-158    |               |                          lock_page_memcg() {
  270.291405 |   1)   sleep-158    |   0.741 us    |                            __rcu_read_lock();
  270.291407 |   1)   sleep-158    |   0.831 us    |                            folio_memcg_lock.part.0();
  270.291408 |   1)   sleep-158    |   3.895 us    |                          }
  270.291409 |   1)   sleep-158    |   0.892 us    |                          PageHuge();
  270.296216 |   1)   sleep-158    |   3.845 us    |                            irq_enter_rcu();
  270.296221 |   1)   sleep-158    |               |                            __sysvec_apic_timer_interrupt() {
  270.296406 |   1)   sleep-158    | ! 185.466 us  |                            }
  270.296408 |   1)   sleep-158    |               |                            irq_exit_rcu() {
  270.296411 |   1)   sleep-158    |   4.176 us    |                            }
  270.296415 |   1)   sleep-158    |               |                          unlock_page_memcg() {
  270.296416 |   1)   sleep-158    |               |                            folio_memcg_unlock() {
  270.296419 |   1)   sleep-158    |   3.295 us    |                            }
  270.296420 |   1)   sleep-158    | # 5009.625 us |                          }
  270.296421 |   1)   sleep-158    | # 5018.088 us |                        }
";

/// Lines of Linux 6.1 (amd64): the line of `_raw_read_unlock` was written behind an interrupt.
const LATE_LEAF: &str = "\
   60.795510 |   1)     sh-103     |               |          wait_consider_task() {
   60.795528 |   1)     sh-103     |               |            from_kuid_munged() {
   60.795530 |   1)     sh-103     |   1.332 us    |              map_id_up();
   60.795532 |   1)     sh-103     |   4.346 us    |            } /* from_kuid_munged */
   60.796451 |   1)     sh-103     |   3.395 us    |              irq_enter_rcu();
   60.796455 |   1)     sh-103     |               |              __sysvec_apic_timer_interrupt() {
   60.796663 |   1)     sh-103     | ! 208.871 us  |              } /* __sysvec_apic_timer_interrupt */
   60.796665 |   1)     sh-103     |               |              irq_exit_rcu() {
   60.796971 |   1)     sh-103     | ! 306.275 us  |              } /* irq_exit_rcu */
   60.796974 |   1)     sh-103     | # 1441.302 us |            _raw_read_unlock();
   60.796979 |   1)     sh-103     |               |            thread_group_cputime_adjusted() {
   60.796981 |   1)     sh-103     |               |              thread_group_cputime() {
   60.796992 |   1)     sh-103     | + 11.527 us   |              } /* thread_group_cputime */
";

/// Runs `kymo` on a text in a file or a pipe, and returns stdout and stderr.
fn kymo(arguments: &[&str], text: &str, is_pipe: bool) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let text = format!("{HEADER}{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match is_pipe {
        true => command.arg("-"),
        false => {
            std::fs::write(&path, &text).unwrap();
            command.arg(&path)
        }
    };
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    if is_pipe {
        input.write_all(text.as_bytes()).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{errors}");
    (text, errors)
}

#[test]
fn times_without_switches_are_said_to_be_by_the_wall() {
    for is_pipe in [false, true] {
        for arguments in [
            &["report"][..],
            &["report", "--by", "cpu"],
            &["report", "--format", "json"],
            &["report", "--begin", "204.0635", "--end", "204.0640"],
            &["graph"],
            &["calls"],
        ] {
            let (_, errors) = kymo(arguments, AT_EXITS, is_pipe);
            assert!(
                errors.contains("all times are by the wall"),
                "{arguments:?}: {errors}"
            );
        }
    }
    // With switches in the trace, the threads on each CPU are known.
    let switch = "  204.064120 |   0)   rcu_pre-15   |               |  /* sched_switch: prev_comm=rcu_preempt prev_pid=15 \
                  prev_prio=120 prev_state=I ==> next_comm=swapper/0 next_pid=0 next_prio=120 */\n";
    let (_, errors) = kymo(&["report"], &format!("{AT_EXITS}{switch}"), false);
    assert!(!errors.contains("by the wall:"), "{errors}");
    assert!(!errors.contains("all times are by the wall"), "{errors}");
}

/// Returns begin, end, wall time and self time of a function's call.
fn call(calls: &str, function: &str) -> [i64; 4] {
    let mut calls = calls
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let call: Value = calls
        .find(|call: &Value| call["function"] == function)
        .unwrap();
    ["begin_ns", "end_ns", "wall_ns", "self_ns"].map(|member| call[member].as_i64().unwrap())
}

#[test]
fn a_call_whose_entry_was_written_behind_an_interrupt_began_before_that() {
    let (calls, errors) = kymo(&["calls", "--format", "json"], LATE, false);
    assert!(!errors.contains("interrupt"), "{errors}");
    assert_eq!(
        call(&calls, "unlock_page_memcg"),
        [270_291_410_375, 270_296_420_000, 5_009_625, 4_812_843]
    );
    let [.., own] = call(&calls, "page_remove_rmap");
    assert_eq!(own, 3_676);
    // A window before the line of its entry also has the call.
    let part = [
        "report",
        "--format",
        "json",
        "--begin",
        "270291909140ns",
        "--end",
        "270292121583ns",
    ];
    let (report, _) = kymo(&part, LATE, false);
    assert!(report.contains("unlock_page_memcg"), "{report}");
    // With a pipe, events before the interrupt have already been passed on, so the call begins late.
    let (calls, errors) = kymo(&["calls", "--format", "json"], LATE, true);
    assert!(
        errors.contains("1 calls began before their lines"),
        "{errors}"
    );
    assert_eq!(call(&calls, "unlock_page_memcg")[2], 5_009_625);
}

#[test]
fn a_leaf_call_written_behind_an_interrupt_does_not_delay_what_follows() {
    let (calls, errors) = kymo(&["calls", "--format", "json"], LATE_LEAF, false);
    assert!(!errors.contains("interrupt"), "{errors}");
    let leaf = call(&calls, "_raw_read_unlock");
    assert_eq!(leaf, [60_795_537_698, 60_796_979_000, 1_441_302, 922_761]);
    // Without an open caller, earlier events are passed on as well, so the call begins late.
    let (_, within) = LATE_LEAF.split_once('\n').unwrap();
    for (text, is_pipe) in [(LATE_LEAF, false), (LATE_LEAF, true), (within, false)] {
        let (calls, errors) = kymo(&["calls", "--format", "json"], text, is_pipe);
        let is_late = is_pipe || text == within;
        assert_eq!(errors.contains("1 calls began before"), is_late, "{errors}");
        let next = call(&calls, "thread_group_cputime");
        assert_eq!(next[..2], [60_796_981_000, 60_796_992_527]);
    }
}
