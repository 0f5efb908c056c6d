//! A program that crashes, and saves its recording up to then.

use super::*;

#[test]
fn a_program_that_crashes_saves_what_it_did() {
    for compiler in compilers() {
        let options = ["-finstrument-functions", "-fno-delete-null-pointer-checks"];
        let program = build(compiler, "crash", &options);
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .env("KYMO_FILE", &file)
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(128 + 11), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        let crash = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        let crash = crash.expect("an address");
        // Of the thread that crashed, the function is the one that is open innermost.
        let (_, packets) = raw_file(&file);
        let of = |kind: &Kind| *kind == Kind::Enter(crash);
        let entered = |packet: &&_| {
            let packet: &kymo_device_tests::Packet = packet;
            packet.records.iter().any(|record| of(&record.kind))
        };
        let stream = packets.iter().find(entered).expect("it was called").cpu;
        let records = packets.iter().filter(|packet| packet.cpu == stream);
        let records = records.flat_map(|packet| &packet.records);
        let mut open = Vec::new();
        for record in records {
            match record.kind {
                Kind::Enter(function) => open.push(function),
                Kind::Exit(function) => assert_eq!(open.pop(), Some(function)),
                _ => {}
            }
        }
        assert_eq!(open.last(), Some(&crash), "{compiler}");
    }
}
