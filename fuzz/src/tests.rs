//! Runs the bodies of the fuzz targets on the corpus, on recordings, and on mutations of both. The mutations are the
//! same in every run.

use std::path::Path;

use crate::{ALL, Body};
use kymo_wire::link::Frame;
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::profile::{Entry, TableHeader};

/// A linear congruential generator: sufficient to reach bytes throughout a file, and reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// Changes, removes or duplicates bytes.
fn accident(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    let end = (at + random.below(64)).min(bytes.len());
    match random.below(5) {
        0 => bytes[at] = random.below(256) as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at..end].fill(0),
        3 => drop(bytes.drain(at..end)),
        _ => {
            let twice = bytes[at..end].to_vec();
            bytes.splice(at..at, twice);
        }
    }
}

fn survives(body: Body, seed: &[u8], rounds: u64) {
    body(seed);
    for round in 0..rounds {
        let mut random = Random(round + 1);
        let mut bytes = seed.to_vec();
        for _ in 0..=random.below(8) {
            accident(&mut bytes, &mut random);
        }
        body(&bytes);
    }
}

/// Seeds of a target: files in its folder of the corpus, and generated ones.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut seeds = vec![Vec::new()];
    for entry in std::fs::read_dir(&folder).into_iter().flatten() {
        seeds.push(std::fs::read(entry.unwrap().path()).unwrap());
    }
    seeds.extend(crate::coresight_seeds::seeds(target));
    let identity = crate::identity();
    let recording = crate::recording();
    match target {
        "raw" => seeds.push([format!("{identity}\n").as_bytes(), &recording].concat()),
        "input" => {
            let raw = [format!("{identity}\n").as_bytes(), &recording].concat();
            seeds.push([&[0][..], &raw].concat());
            // The seeds of the `stream` target, with metadata in each of its forms.
            for stream in self::seeds("stream") {
                seeds.extend((1..5).map(|way| [&[way][..], &stream].concat()));
            }
        }
        "systemview" => seeds.extend([
            crate::systemview_recording(false),
            crate::systemview_recording(true),
        ]),
        "dump" => seeds.push([&[8, 100, 50, 30, 60][..], &recording].concat()),
        "wire" | "receiver" => {
            seeds.push(identity.to_string().into_bytes());
            seeds.push(recording);
        }
        "metadata" | "metadata2" | "stream" => {
            let mut text = String::new();
            let description = kymo_wire::metadata::Description {
                layout: identity.layout,
                clock_hz: identity.clock_hz,
                clock_bits: identity.clock_bits,
                origin_ns: None,
                text_base: identity.text_base,
                build_id: identity.build_id(),
                target: "fuzz",
                events: b"7 sensor u8 channel\0sensor.channel 0=left",
                items: false,
            };
            let names = [(1, "main"), (7, "a \"b\"")].into_iter();
            kymo_wire::metadata::write(&mut text, &description, names).unwrap();
            let markers = [(0x100, "half")].into_iter();
            kymo_wire::metadata::write_markers(&mut text, markers).unwrap();
            let parsed = kymo_ctf::metadata::Metadata::parse(text.as_bytes()).unwrap();
            let fragments = parsed.metadata.to_ctf2().unwrap();
            for (version, text) in [("metadata", text), ("metadata2", fragments)] {
                let mut seed = text.into_bytes();
                if target == "stream" {
                    seed.push(0);
                    seed.extend(&recording);
                }
                if target == version || target == "stream" {
                    seeds.push(seed);
                }
            }
        }
        "splitter" => {
            let mut bytes = format!("boot ok\r\n{identity}\r\n").into_bytes();
            for (request, text) in (0..).zip([&b"pong"[..], b"", b"mode=fixed"]) {
                let mut wire = [0; MAX_WIRE];
                let frame = Frame::Reply {
                    request,
                    ok: true,
                    text,
                };
                let length = frame.encode(&mut wire).unwrap();
                bytes.extend_from_slice(&wire[..length]);
                bytes.extend_from_slice(b"and the program says something\n");
            }
            seeds.push(bytes);
        }
        "profile" => {
            let header = TableHeader {
                order: identity.layout.order,
                word: identity.layout.word,
                entries: 2,
                slots: 64,
                no_slot: 0,
                too_deep: 0,
                unmatched: 1,
                clock_hz: identity.clock_hz,
                recorded: 1_000_000,
                replaced: 0,
                replaced_total: 0,
            };
            let entry = Entry {
                address: 0x0800_0101,
                count: 2,
                total: 100,
                self_time: 60,
                min: 40,
                max: 60,
                recursive: false,
            };
            let entry = entry.to_bytes(header.word, header.order);
            let entry = &entry[..Entry::bytes(header.word)];
            seeds.push([&header.to_bytes()[..], entry, entry].concat());
        }
        "symbols" => seeds.push(
            b"08000100 T main\n08000140 00000020 t _ZN4core3fmt5write17h0123456789abcdefE\n\
              ffffffff81000000 T _text\t[module]\n .text 0x08000000 0x40 main.o\n"
                .to_vec(),
        ),
        "rtems_record" => {
            use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
            for (version, layout) in [9, 10, 10, 10].into_iter().zip(LAYOUTS) {
                let mut stream = Stream::new(layout, version, 2, 16, 1_000_000);
                stream.thread(7, "main");
                for cpu in 0..2 {
                    stream.processor(cpu).uptime(20).item(21, 512, 1);
                    stream.overflow(3).item(90, 513, 2);
                }
                for form in [
                    stream.bytes.clone(),
                    stream.zlib(),
                    stream.log(true, "> ").into_bytes(),
                ] {
                    seeds.push([&[40], &form[..]].concat());
                }
            }
        }
        "zephyr_dump" => {
            let record = |n: u8| {
                let name = *b"main\0\0\0\0\0\0\0\0\0\0\0\0";
                let numbers = [[n, 16, 0, 8], [n ^ 8, 17, 0, 8], [n, n, 1, 0], [0; 4]].concat();
                let thread = [7, 0, 2, 0, 0x20];
                [
                    &[[0, 1, 3, 4][usize::from(n) % 4]][..],
                    &numbers,
                    &thread,
                    &name,
                ]
                .concat()
            };
            let trace: Vec<_> = (1..12).flat_map(record).collect();
            let entry = [2, 1, 16, 0, 8, 9, 9, 0, 0, 0, 0, 0, 0];
            let trace = [b"boot\r\n-*-#", &trace[..], b"-*-!\r\npong\r\n"].concat();
            let profile = [&b"-*-#"[..], &entry, &entry, &entry, b"-*-!\r\n"].concat();
            seeds.push(trace[10..].to_vec());
            seeds.push([trace, profile].concat());
        }
        _ => {}
    }
    seeds
}

/// Runs every target with this many mutations of each of its seeds.
fn accidents(rounds: u64) {
    std::thread::scope(|scope| {
        for (target, body) in ALL {
            scope.spawn(move || {
                let seeds = seeds(target);
                assert!(seeds.len() > 1, "{target} has no seed");
                for seed in &seeds {
                    survives(body, seed, rounds);
                }
            });
        }
    });
}

#[test]
fn every_target_survives_its_corpus_and_accidents() {
    accidents(500);
}

#[test]
#[ignore = "takes minutes"]
fn every_target_survives_many_accidents() {
    accidents(3000);
}

/// Every target is a program that cargo-fuzz finds, and every program has a body.
#[test]
fn targets_and_bodies_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut targets: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    targets.sort();
    let mut bodies: Vec<_> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    bodies.sort();
    assert_eq!(targets, bodies);
}
