//! A target whose link is RTT (`kymo_rtt.h`), through a debug probe's TCP server: `rtt:HOST:PORT`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::run::{self, Background};
use kymo_targets::tools::{self, Need};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn a_target_is_read_through_rings_in_its_memory() {
    tools::require(&[Need::Native]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let folder = run::target_dir().join("rtt-test");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("rtt");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-pthread", "-finstrument-functions", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg(run::root().join("device/tests/programs/rtt.c"))
        .arg(library::for_this_machine().unwrap())
        .arg("-o")
        .arg(&program);
    run::run(&mut compiler).unwrap();
    let mut process = Command::new(&program);
    let mut process = Background::start(process.stdout(Stdio::piped())).unwrap();
    let mut port = String::new();
    let mut printed = BufReader::new(process.take_stdout().unwrap());
    printed.read_line(&mut port).unwrap();
    let port: u16 = port.trim().parse().unwrap();

    // Hosts that disconnect while the target answers: data that they left in the ring does no harm.
    for _ in 0..3 {
        let mut host = TcpStream::connect(("127.0.0.1", port)).unwrap();
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        host.write_all(b"identify\rstatus\rlistsets\r").unwrap();
        host.read_exact(&mut [0; 10]).unwrap();
    }
    let target = format!("rtt:127.0.0.1:{port}");
    let command = |subcommand: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([subcommand, "--target", &target]);
        command
    };
    let status = run::output(command("status").args(["--format", "json"])).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["target"], *target, "{status}");

    // 50,000 bytes through a ring of 47.
    for name in ["first", "second"] {
        let trace = folder.join(name);
        let mut fetch = command("trace");
        fetch.arg("--elf").arg(&program).arg("-o").arg(&trace);
        run::run(&mut fetch).unwrap();
        let mut report = Command::new(&kymo);
        report.args(["report", "--format", "json", "--elf"]);
        let report = run::output(report.arg(&program).arg(&trace)).unwrap();
        let count = |function: &str| {
            let rows = report
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            let mut rows = rows.filter(|row| row["function"] == function);
            rows.next()
                .map(|row| (row["count"].clone(), row["count_max"].clone()))
        };
        assert_eq!(count("leaf"), Some((5000.into(), 5000.into())), "{report}");
        assert_eq!(count("work"), Some((1.into(), 1.into())));
    }
}
