//! Body of the fuzz target `input`, on fixtures and on mutations of them.

use std::fs;
use std::path::Path;

use kymo_read::fuzz_open;

/// Changes, removes or duplicates bytes; the same in every run.
fn accident(bytes: &mut Vec<u8>, random: &mut u64) {
    let mut below = |limit: usize| {
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*random >> 33) as usize % limit.max(1)
    };
    let at = below(bytes.len());
    let end = (at + below(64)).min(bytes.len());
    match below(4) {
        0 => bytes[at] ^= 1 << below(8),
        1 => bytes[at..end].fill(0),
        2 => drop(bytes.drain(at..end)),
        _ => {
            let twice = bytes[at..end].to_vec();
            bytes.splice(at..at, twice);
        }
    }
}

fn survives(way: u8, seed: &[u8], rounds: u64) {
    for round in 0..rounds {
        let mut bytes = seed.to_vec();
        let mut random = round + 1;
        for _ in 0..round.min(8) {
            if !bytes.is_empty() {
                accident(&mut bytes, &mut random);
            }
        }
        fuzz_open(&[&[way][..], &bytes].concat()).expect("a temporary directory");
    }
}

#[test]
fn files_of_every_kind_are_read_or_refused() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data");
    for file in [
        "demo.kymo",
        "threads.kymo",
        "items.kymo",
        "zephyr.dump",
        "zephyr-profile.dump",
        "demo.nm",
        "demo.elf",
        "empty",
    ] {
        let seed = fs::read(data.join(file)).expect("the fixture");
        survives(0, &seed, 6);
    }
}

#[test]
fn metadata_and_streams_of_every_kind_are_read_or_refused() {
    let metadata = "/* CTF 1.8 */\n\
        typealias integer { size = 8; align = 8; } := u8;\n\
        typealias integer { size = 32; align = 8; } := u32;\n\
        trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };\n\
        stream { packet.context := struct { u32 packet_size; u32 content_size; u8 cpu_id; }; \
        event.header := struct { u8 id; u32 timestamp; }; };\n\
        event { id = 0; name = \"a\"; fields := struct { u8 n; u8 list[n]; string s; }; };\n";
    let mut seed = metadata.as_bytes().to_vec();
    seed.push(0);
    for packet in 0..3_u8 {
        let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
        for _ in 0..2 {
            bytes.extend((24_u32 * 8).to_le_bytes());
        }
        bytes.extend([packet, 0, packet, 0, 0, 0, 2, 7, 7, b'x', 0]);
        seed.extend(bytes);
    }
    for way in [1, 2, 3, 4, 11] {
        survives(way, &seed, 25);
    }
    // Without mutations it is a valid trace.
    fuzz_open(&[&[3][..], &seed].concat()).expect("a temporary directory");
}
