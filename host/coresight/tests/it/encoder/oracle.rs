//! Oracle for packets and elements: a C program that uses Debian's libopencsd and prints them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kymo_coresight::element::{StmKind, StmMessage};
use kymo_coresight::frames::Stream;
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::{Protocol, Source};

use super::Case;

/// Packets and elements that the oracle printed for a trace.
#[derive(Default)]
pub struct Theirs {
    /// Offset, bytes and kind of each packet.
    pub packets: Vec<String>,
    pub elements: Vec<String>,
}

/// Offset, bytes and kind of each packet of this crate, except those before a synchronization, which the library splits
/// at arbitrary positions.
pub fn packets(case: &Case) -> Vec<String> {
    let id = case.protocol.trace_id();
    let sources = [Source {
        id,
        name: String::new(),
        cpu: None,
        protocol: case.protocol,
    }];
    let streams = [Stream::unformatted(id, &case.trace, 0)];
    let packet = |line: Line<'_>| {
        let Line::Packet(entry) = line else {
            return None;
        };
        let mut text = String::new();
        entry.describe(&mut text).expect("text");
        let kind = text.split([' ', ':']).next().unwrap_or_default();
        let is_synced = !kind.contains("NOTSYNC");
        is_synced.then(|| format!("{} {} {kind}", entry.offset, entry.bytes.len()))
    };
    Listing::new(&sources, &streams)
        .filter_map(packet)
        .collect()
}

/// A message of an STM as the oracle prints it.
pub fn message(message: &StmMessage) -> String {
    let mut text = "message".to_owned();
    let has_place = message.kind != StmKind::GlobalError;
    match message.place.filter(|_| has_place) {
        Some((master, channel)) => text += &format!(" {master:x}:{channel:x}"),
        None => text += " ?",
    }
    text += &format!(" {} {:x}", message.bits, message.value);
    let kind = match message.kind {
        StmKind::Data => "",
        StmKind::Trigger => " trigger",
        StmKind::Frequency => " frequency",
        StmKind::MasterError => " master-error",
        StmKind::GlobalError => " global-error",
    };
    text += kind;
    if message.is_marker {
        text += " marker";
    }
    if let Some(timestamp) = message.timestamp {
        text += &format!(" t{timestamp:x}");
    }
    text
}

/// The compiled oracle; `None`, with a message, if Debian's development package is not installed.
fn oracle() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/opencsd/c_api/opencsd_c_api.h").is_file() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: no libopencsd-dev: cargo xtask setup installs it"
            );
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "CI has all tools"
            );
            return None;
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("opencsd-oracle");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/it/encoder/oracle.c"
            ))
            .arg("-lopencsd_c_api")
            .status();
        assert!(status.expect("a C compiler").success());
        Some(program)
    });
    program.as_deref()
}

/// Runs the oracle on traces; `None` if it is not available.
pub fn theirs(cases: &[Case]) -> Option<Vec<Theirs>> {
    let mut child = Command::new(oracle()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle");
    let mut input = child.stdin.take().expect("a pipe");
    let mut bytes = Vec::new();
    for case in cases {
        let (registers, is_m) = match &case.protocol {
            Protocol::EtmV4(config) => (
                [
                    config.configr,
                    config.trace_idr,
                    config.idr0,
                    config.idr1,
                    config.idr2,
                    config.idr8,
                    config.devarch,
                ],
                config.is_m_profile,
            ),
            Protocol::EtmV3(config) => (
                [
                    config.cr,
                    config.trace_idr,
                    config.idr,
                    config.ccer,
                    0,
                    0,
                    0,
                ],
                config.is_m_profile,
            ),
            Protocol::Ptm(config) => (
                [
                    config.cr,
                    config.trace_idr,
                    config.idr,
                    config.ccer,
                    0,
                    0,
                    0,
                ],
                false,
            ),
            // Bits 22:16 contain the ID.
            Protocol::Stm(id) => ([u32::from(id.0) << 16 | 1, 0x7f, 0xff, 0, 0, 0, 0], false),
            _ => unreachable!("it decodes no other"),
        };
        write!(bytes, "{} ", case.protocol.name()).expect("text");
        for register in registers {
            write!(bytes, "{register:x} ").expect("text");
        }
        let (base, code, size) = (case.base, case.code.len(), case.trace.len());
        writeln!(bytes, "{base:x} {code:x} {size:x} {:x}", u8::from(is_m)).expect("text");
        bytes.extend(&case.code);
        bytes.extend(&case.trace);
    }
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("the oracle");
    writer.join().expect("a thread").expect("it reads all");
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut all = vec![Theirs::default()];
    for line in text.lines() {
        let last = all.last_mut().expect("a trace");
        match line.strip_prefix('#') {
            _ if line == "." => all.push(Theirs::default()),
            Some(packet) => last.packets.push(packet.to_owned()),
            None => last.elements.push(line.to_owned()),
        }
    }
    all.pop();
    Some(all)
}
