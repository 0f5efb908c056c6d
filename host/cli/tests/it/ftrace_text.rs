//! Texts of ftrace on the command line.

use std::process::Command;

/// Calls of a shell and of an idle CPU; the last one of the shell has not ended.
const TEXT: &str = "\
# tracer: function_graph
#
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
  100.000010 |   0)    sh-7      |               |  vfs_read() {
  100.000020 |   0)    sh-7      |   5.000 us    |    leaf();
  100.000040 |   0)    sh-7      | + 30.000 us   |  }
 ------------------------------------------
 0)      sh-7      =>   <idle>-0    
 ------------------------------------------
  100.000050 |   0)   <idle>-0   |   4.000 us    |  tick_irq_exit();
  100.000060 |   0)   <idle>-0   |   3.000 us    |  tick_irq_exit();
 ------------------------------------------
 0)   <idle>-0     =>      sh-7    
 ------------------------------------------
  100.000070 |   0)    sh-7      |               |  vfs_write() {
  100.000080 |   0)    sh-7      |   5.000 us    |    leaf();
";

/// What `kymo` prints, and what it says besides.
fn kymo(arguments: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, TEXT).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let output = command.args(arguments).arg(path).output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{errors}");
    (text, errors)
}

fn rows(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn task_0_is_what_a_cpu_does_without_a_task() {
    for thread in ["0", "<idle>"] {
        let (text, _) = kymo(&["report", "--format", "json", "--thread", thread]);
        let rows = rows(&text);
        assert_eq!(rows.len(), 1, "{text}");
        assert_eq!(rows[0]["function"], "tick_irq_exit");
        assert_eq!(rows[0]["count"], 2);
    }
    let (text, _) = kymo(&["show", "--thread", "0"]);
    assert_eq!(text.matches("tick_irq_exit").count(), 2, "{text}");
    assert!(!text.contains("leaf"), "{text}");
    let (text, _) = kymo(&["show", "--thread", "7"]);
    assert!(
        text.contains("leaf") && !text.contains("tick_irq_exit"),
        "{text}"
    );
}

#[test]
fn times_of_open_calls_are_marked_in_the_tree() {
    let (text, errors) = kymo(&["graph", "--thread", "7"]);
    let line = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap();
    assert_eq!(line(" vfs_write").matches('≥').count(), 2, "{text}");
    assert!(!line(" vfs_read").contains('≥'), "{text}");
    assert!(
        errors.contains("times marked ≥ are at least that"),
        "{errors}"
    );
    let (text, _) = kymo(&["graph", "--format", "json", "--thread", "7"]);
    for row in rows(&text).iter().filter(|row| row["depth"] == 0) {
        assert_eq!(row["at_least"], row["function"] == "vfs_write", "{row}");
    }
    // Nothing to mark, and no column for it.
    let (text, errors) = kymo(&["graph", "--thread", "0"]);
    assert!(
        !text.contains('≥') && !errors.contains('≥'),
        "{text}{errors}"
    );
    assert!(text.starts_with("     TOTAL"), "{text}");
}

#[test]
fn a_function_that_was_not_called_is_named() {
    let (text, errors) = kymo(&["graph", "--callers-of", "kfree"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(errors.contains("there is no call of kfree"), "{errors}");
}
