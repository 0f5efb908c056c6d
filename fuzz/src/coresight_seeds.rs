//! Seeds of the CoreSight targets: small traces with packets of every kind.

use kymo_fixtures::perf_data::{AUX_OVERWRITE, Magic, PerfData, Unit};

use crate::coresight::protocols;

/// A loop of A64: `add`, `cbz` forward, `bl` to itself, `ret`, `b` back, `isb`, `eret`.
const CODE: [u32; 8] = [
    0x9100_0400,
    0xb400_0060,
    0x9400_0003,
    0x17ff_fffd,
    0xd503_3fdf,
    0xd65f_03c0,
    0xd69f_03e0,
    0x1400_0000,
];

/// Address with context, atoms, an exception with its address, a cancel, a commit, cycles, a Q element.
const ETMV4: [u8; 41] = [
    0x85, 0, 0, 0, 0, 0, 0, 0, 0, 0x31, 0xf7, 0xdd, 0xf9, 0x06, 0x0a, 0x95, 0x04, 0x2e, 0x01, 0x2d,
    0x02, 0x0f, 0x05, 0xf7, 0x9a, 0x02, 0, 0, 0, 0xf7, 0xa0, 0x04, 0x90, 0xc5, 0x02, 0x81, 0x01,
    0x02, 0x30, 0x34, 0x04,
];

fn code() -> Vec<u8> {
    CODE.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A frame of one source that begins with these bytes.
fn frame(id: u8, bytes: &[u8]) -> [u8; 16] {
    let mut frame = [0x20; 16];
    frame[..bytes.len().min(15)].copy_from_slice(&bytes[..bytes.len().min(15)]);
    (frame[0], frame[15]) = (id << 1 | 1, 0);
    frame
}

/// The seeds of a target; empty if it is not a CoreSight target.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let full = [0xff, 0xff, 0xff, 0x7f];
    let frames = [frame(0x10, &[0; 15]), frame(0x11, &ETMV4), frame(0, &[])];
    match target {
        "coresight_frames" => {
            let reset = full.repeat(4);
            let memory = [&[0], &frames.concat()[..], &reset, &frames[1]].concat();
            let halves = [&full[..], &frames[0][..6], &[0xff, 0x7f], &frames[0][6..]].concat();
            let port = [&[1, 7, 7], &halves[..], &frames[1], &full, &frames[2]].concat();
            vec![memory, port]
        }
        // Every header with a possible body. With an odd first byte the trace begins synchronized.
        "coresight_packets" => (0..protocols().len() as u8)
            .map(|index| {
                let headers = (0..=255).flat_map(|header| [header, 0x85]);
                [2 * index + 1].into_iter().chain(headers).collect()
            })
            .collect(),
        "coresight_flow" => (0..protocols().len() as u8)
            .map(|index| {
                let code = code();
                // Headers of branches, P-headers and I-syncs of the 32-bit protocols, and atoms.
                let old = [
                    0x08, 0, 0, 0, 0, 0x21, 0x84, 0x88, 0x9d, 0x05, 0x76, 0x96, 0x80,
                ];
                let length = [2 * index + index % 2, code.len() as u8, 0];
                [&length[..], &code, &ETMV4, &old].concat()
            })
            .collect(),
        "coresight_perf" => {
            let unit = |cpu, magic, registers: &[u64]| Unit {
                cpu,
                magic,
                registers: registers.to_vec(),
            };
            let units = [
                unit(
                    0,
                    Magic::EtmV4,
                    &[0xc1, 0x10, 0x2800_0ea1, 0x4100_f403, 0x488, 0, 0],
                ),
                unit(
                    1,
                    Magic::Ete,
                    &[
                        0xc1,
                        0x11,
                        0x2800_0ea1,
                        0x4100_fff0,
                        0x488,
                        0,
                        0,
                        0x4770_5a13,
                    ],
                ),
                unit(2, Magic::EtmV3, &[0, 0x12, 0, 0x4100_f310]),
            ];
            let trace = [&[0; 11], &[0x80, 1, 1, 0, 4][..], &ETMV4].concat();
            let framed: Vec<u8> = trace
                .chunks(14)
                .flat_map(|part| frame(0x10, &[&[0], part].concat()))
                .collect();
            let mut seeds = Vec::new();
            for version in 0..3 {
                let mut perf = PerfData::new(version > 0);
                perf.info(version, version == 2, &units);
                perf.comm(7, "fuzz");
                perf.mapping(7, 0, 0x1000, 0, "/bin/fuzz");
                perf.hardware_id(0, 0x10);
                let size = framed.len() as u64;
                let (at, flags) = if version == 2 {
                    (size, AUX_OVERWRITE)
                } else {
                    (0, 0)
                };
                perf.aux(7, 0, at, size, flags);
                perf.buffer((version == 0).then_some(7), 0, 0, &framed);
                seeds.push(if version == 1 {
                    perf.pipe()
                } else {
                    perf.file()
                });
            }
            seeds
        }
        "coresight_snapshot" => {
            let device = "[device]\nname=ETM\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0xc1\n\
                TRCTRACEIDR=0x10\n[dump1]\nfile=buffer.bin\naddress=0x0\nlength=64\nspace=EL1N\n";
            let metadata = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=buffer.bin\nformat=source_data\n\
                [source_buffers]\nETM=B\n[core_trace_sources]\nETM=ETM\n";
            let main = "[snapshot]\nversion=1.0\n[device_list]\ndevice0=device.ini\n[trace]\nmetadata=trace.ini\n";
            let trace = [&[0; 11], &[0x80, 1, 1, 0, 4][..], &ETMV4].concat();
            let texts = [main, metadata, device].join("\0").into_bytes();
            vec![[&texts[..], &[0], &trace].concat()]
        }
        _ => Vec::new(),
    }
}
