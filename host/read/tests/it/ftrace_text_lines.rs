//! Lines of ftrace's text that say who a task is, and lines that are none of it.

use crate::ftrace_text::read_lines;

#[test]
fn lines_of_a_console_are_no_calls_in_a_graph_with_columns() {
    let graph = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n \
                 0)               |  vfs_read() {\n \
                 0)   1.500 us    |    rw_verify_area();\n";
    let end = " 0) + 12.000 us   |  }\n";
    let (expected, info) = read_lines(&format!("{graph}{end}"));
    assert_eq!(info.damaged_places(), 0);
    let (found, info) = read_lines(&format!("{graph}some_console_text();\n}}\n{end}"));
    assert_eq!(info.damaged_places(), 2);
    assert_eq!(found, expected);
}

#[test]
fn a_task_has_the_name_that_it_was_given_last() {
    let line = |comm: &str, time: u32, event: &str| {
        format!("{comm:>16}-8       [000] .....     1.{time:06}: {event}\n")
    };
    let wakeup = "sched_wakeup: comm=x pid=10 prio=120 target_cpu=000";
    let rename = "task_rename: pid=8 oldcomm=sh newcomm=ls oom_score_adj=0";
    let exec = "sched_process_exec: filename=/usr/bin/with-a-long-name pid=8 old_pid=8";
    for (second, third, name) in [
        (rename, wakeup, "ls"),
        (wakeup, exec, "with-a-long-nam"),
        (wakeup, rename, "ls"),
    ] {
        let third = line(if third == wakeup { "ls" } else { "sh" }, 3, third);
        let text = [line("sh", 1, wakeup), line("sh", 2, second), third].concat();
        let (_, info) = read_lines(&format!("# tracer: nop\n{text}"));
        let threads = info.identities.threads().iter();
        let mut named = threads.filter(|thread| thread.tid.0 == 8);
        assert_eq!(named.next().unwrap().name.as_deref(), Some(name), "{text}");
    }
}
