//! Conditions of trigger and stopper: one caller only, the n-th call, a maximum number of times.

use std::fs;

use kymo_targets::{library, run};

use super::{Board, of};

fn board(name: &str) -> Board {
    Board::spin_with(name, &format!("conditions,{}", library::WITH_DURATION))
}

impl Board {
    fn is_recording(&self) -> bool {
        let status = run::output(self.command("status").args(["--format", "json"])).unwrap();
        status.contains("\"recording\":true")
    }

    /// Sets trigger and stopper, records nothing yet.
    fn between(&self, threshold: &str, trigger: &str, stopper: &str) {
        self.trace(
            "nothing",
            &[
                "--threshold",
                threshold,
                "--trigger",
                trigger,
                "--stopper",
                stopper,
                "--wait",
                "0",
            ],
        );
    }

    /// The output of `kymo trace --list`.
    fn list(&self) -> String {
        run::output(
            self.command("trace")
                .arg("--list")
                .arg("--elf")
                .arg(&self.elf),
        )
        .unwrap()
    }
}

#[test]
fn trigger_and_stopper_act_for_one_caller_the_nth_time() {
    let board = board("conditions");
    // `all` calls `spin` thirteen times and `many` once. Then `outer` calls `spin` twice and `many` once.
    board.between("off", "spin from outer hit 2", "many from outer");
    let set = board.list();
    assert!(
        set.contains(" from outer hit 2 times 1 (called 0, acted 0 so far)"),
        "{set}"
    );
    board.work(1);
    assert!(!board.is_recording());
    let calls = board.calls(&board.trace("second", &[]));
    let count = |function| of(&calls, function).len();
    assert_eq!((count("spin"), count("many"), count("tiny")), (1, 1, 1000));
    assert!(of(&calls, "spin")[0].wall < 50_000, "the one of ten rounds");
    assert_eq!(count("deep") + count("stop_here"), 0);
    // The trigger has acted once, and does not act again.
    board.ask("off");
    board.work(2);
    let set = board.list();
    assert!(
        set.contains(" from outer hit 2 times 1 (called 6, acted 1 so far)"),
        "{set}"
    );
    assert!(
        set.contains(" from outer (called 1, acted 1 so far)"),
        "{set}"
    );
    // It acts again after `clear`.
    board.ask("clear");
    board.work(1);
    assert_eq!(
        of(&board.calls(&board.trace("again", &[])), "spin").len(),
        1
    );

    // After a reboot the counts start at 0.
    let kept = " from outer hit 2 times 1 (called 0, acted 0 so far)";
    run::run(&mut board.command("reboot")).unwrap();
    let set = board.list();
    assert!(set.contains(kept), "{set}");
    board.ask("off");
    board.ask("clear");
    board.work(1);
    let calls = board.calls(&board.trace("rebooted", &[]));
    assert_eq!(of(&calls, "spin").len(), 1);
    // Damaged conditions are discarded.
    board.damage();
    run::run(&mut board.command("reboot")).unwrap();
    assert_eq!(board.list(), "trigger: none\nstopper: none\n");

    // The same in duration mode, where the stopper counts.
    board.between("0", "outer", "spin from outer hit 2");
    board.work(1);
    assert!(!board.is_recording());
    let calls = board.calls(&board.trace("duration", &[]));
    let count = |function| of(&calls, function).len();
    assert_eq!((count("spin"), count("outer"), count("many")), (2, 1, 0));

    // Without a condition they act each time.
    board.between("off", "spin", "many");
    assert!(!board.list().contains("so far"));
    board.work(1);
    assert!(!board.is_recording());
    let calls = board.calls(&board.trace("plain", &[]));
    assert_eq!(
        (of(&calls, "spin").len(), of(&calls, "many").len()),
        (15, 2)
    );
    fs::remove_dir_all(&board.folder).unwrap();
}
