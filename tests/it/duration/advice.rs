//! The predictions of `kymo advise`, on a board.

use std::io::Write;
use std::time::Duration;

use kymo_targets::run;
use serde_json::Value;

use super::{Board, PATIENCE, address, of};

/// The predictions of `kymo advise` hold after the advice is applied: the buffer covers the predicted time within 15 %.
/// On four kinds of programs: loops, an interpreter, blocks of data with pauses, two threads with markers.
#[test]
fn advice_is_true_once_it_is_applied() {
    for (name, begin, short) in [
        ("steps", b'+', "small_step"),
        ("interpret", b'*', "leaf"),
        ("compress", b'/', "get"),
        ("threads", b'=', "lock"),
    ] {
        advice_is_true(name, begin, short);
    }
}

fn advice_is_true(name: &str, begin: u8, short: &str) {
    let board = Board::spin(&format!("advice-{name}"));
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", board.port)).unwrap();
    stream
        .write_all(&[begin, begin, begin, begin, begin, begin, b'\r'])
        .unwrap();
    drop(stream);
    let advise = |options: &[&str]| -> Value {
        let mut command = board.command("advise");
        command.args(["--format", "json", "--elf"]).arg(&board.elf);
        serde_json::from_str(&run::output(command.args(options)).unwrap()).unwrap()
    };
    let until_it_is_full = || {
        let began = std::time::Instant::now();
        loop {
            let status = run::output(board.command("status").args(["--format", "json"])).unwrap();
            let status: Value = serde_json::from_str(&status).unwrap();
            // Packets were overwritten.
            if status["needed_bytes"].as_u64() > status["buffer_bytes"].as_u64() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let number = |advice: &Value, name: &str| advice[name].as_u64().unwrap();
    let record = |threshold: &str| {
        board.trace("nothing", &["--threshold", threshold, "--wait", "0"]);
        until_it_is_full();
    };
    record("0");
    if name == "steps" {
        // A threshold has the buffer hold at least as long as predicted.
        let advice = advise(&[]);
        let held = number(&advice, "held_ns");
        let thresholds = advice["thresholds"].as_array().unwrap();
        let gains = |it: &&Value| (2 * held..20 * held).contains(&number(it, "holds_ns"));
        let chosen = thresholds
            .iter()
            .find(gains)
            .expect("a threshold that gains");
        record(&format!("{}ns", number(chosen, "threshold_ns")));
        let now = number(&advise(&[]), "held_ns");
        let promised = number(chosen, "holds_ns");
        assert!(now * 100 >= promised * 85, "{held} {now}: {chosen}");
        record("0");
    }
    let before = advise(&["--apply"]);
    let commands = before["filter_commands"].as_array().unwrap();
    let address = address(&board.elf, short);
    assert!(
        commands.contains(&format!("duration filter {address:#x} skip").into()),
        "{before}"
    );
    let (held, holds) = (number(&before, "held_ns"), number(&before, "holds_ns"));
    assert!(holds * 5 > held * 6, "there is something to gain: {before}");
    until_it_is_full();
    let after = advise(&[]);
    let now = number(&after, "held_ns");
    assert!(
        now.abs_diff(holds) * 100 <= holds * 15,
        "{name}: {held} ns were held, {holds} promised, {now} are: {before} {after}"
    );
    let functions = before["functions"].as_array().unwrap();
    assert!(
        functions.iter().any(|it| it["function"] == short),
        "{before}"
    );
    // The named function no longer exists.
    let trace = board.trace("after", &[]);
    let calls = board.calls(&trace);
    for function in functions {
        let name = function["function"].as_str().unwrap();
        assert!(of(&calls, name).is_empty(), "{name}");
    }
}
