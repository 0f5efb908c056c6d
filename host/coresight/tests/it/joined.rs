//! Trace that perf divided into several AUX records or AUXTRACE records, and the time base of sources with few
//! timestamps.

use kymo_coresight::clock::{Measure, measure};
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::memory::{Images, Memory};
use kymo_coresight::{Protocol, Source, etmv4, perf, remarks};
use kymo_fixtures::perf_data::{AUX_TRUNCATED, Magic, PerfData, Unit};

use crate::misfits;
use crate::recordings::framed;

const ID: TraceId = TraceId(0x10);

/// A recording of CPU 0 with two AUX records, of `first` bytes and the rest, `gap` bytes apart.
fn recording(trace: &[u8], first: usize, (flags, gap): (u64, u64), is_one_buffer: bool) -> Vec<u8> {
    let mut file = PerfData::new(true);
    let registers = vec![
        0xc1,
        u64::from(ID.0),
        0x2800_0ea1,
        0x4100_f403,
        0x488,
        0,
        0,
        0,
    ];
    let unit = Unit {
        cpu: 0,
        magic: Magic::EtmV4,
        registers,
    };
    file.info(1, false, &[unit]);
    let (one, two) = trace.split_at(first);
    let second = first as u64 + gap;
    file.aux(0, 0, 0, one.len() as u64, flags);
    file.aux(0, 0, second, two.len() as u64, 0);
    if is_one_buffer {
        let gap = vec![0; gap as usize];
        file.buffer(None, 0, 0, &[one, &gap, two].concat());
    } else {
        file.buffer(None, 0, 0, one);
        file.buffer(None, 0, second, two);
    }
    file.file()
}

/// The formatter carries on where perf has read the buffer, without its ID.
#[test]
fn frames_go_on_in_the_next_record_and_buffer() {
    let bytes: Vec<u8> = (0..104).map(|byte| byte | 0x40).collect();
    let trace = framed(ID, &bytes);
    for is_one_buffer in [true, false] {
        // Records of two and five frames. The first has 29 bytes of the source.
        for (flags, gap, expected, left_out) in [
            (0, 0, &bytes[..], 0),
            (AUX_TRUNCATED, 0, &bytes[..29], 75),
            (0, 64, &bytes[..29], 75),
        ] {
            let file = recording(&trace, 32, (flags, gap), is_one_buffer);
            let recording = perf::read(&file).expect("a recording");
            let streams = recording.buffers.iter().flat_map(|it| &it.frames.streams);
            let streams: Vec<_> = streams.filter(|it| !it.bytes.is_empty()).collect();
            let case = format!("{is_one_buffer}, {flags}, {gap}");
            let [stream] = streams.as_slice() else {
                panic!("{case}: {streams:?}");
            };
            assert_eq!(&*stream.bytes, expected, "{case}");
            let unnamed = recording.buffers.iter().map(|it| it.frames.unnamed_bytes);
            assert_eq!(unnamed.sum::<u64>(), left_out, "{case}");
            let all = remarks::of_buffers(&recording.buffers);
            let mut texts = all.iter().map(|remark| remark.text.as_str());
            let about =
                "75 bytes left out: before the first trace ID, which would say whose they are";
            assert_eq!(
                texts.any(|text| text == about),
                left_out > 0,
                "{case}: {all:?}"
            );
        }
    }
}

/// A buffer without frames, of an ETMv4 that is configured to send timestamps.
fn source(name: &str, rest: &[u8]) -> Buffer {
    let (_, trace) = misfits::etmv4(0x8000, rest);
    let config = etmv4::Config {
        configr: 1 << 11,
        ..etmv4::Config::default()
    };
    let source = Source {
        id: TraceId::NONE,
        name: name.to_owned(),
        cpu: None,
        protocol: Protocol::EtmV4(config),
    };
    Buffer {
        name: name.to_owned(),
        sources: vec![source],
        code: vec![Memory::from(Images::default())],
        frames: frames::split(&trace, FrameFormat::Unformatted, TraceId::NONE).into_owned(),
        thread: None,
    }
}

/// A core that ran only briefly does not take the times of the others away.
#[test]
fn few_timestamps_of_a_source_leave_those_of_others() {
    let time = |ticks: u8| [0x02, ticks];
    let clock = [&time(1)[..], &[0xf7], &time(9)].concat();
    let base = |sources: &[&[u8]]| {
        let buffers = sources.iter().zip(["a", "b"]);
        let buffers: Vec<_> = buffers.map(|(rest, name)| source(name, rest)).collect();
        measure(&buffers, &input::traces(&buffers)).0
    };
    let brief = [&time(5)[..], &[0xf7]].concat();
    for other in [&[0xf7][..], &brief, &clock] {
        assert_eq!(base(&[&clock, other]), Measure::Timestamps);
    }
    assert_eq!(base(&[&brief, &brief]), Measure::Instructions);
    // A source that goes on and on without timestamps has no clock.
    assert_eq!(base(&[&clock, &[0xf7; 70_000]]), Measure::Instructions);
}
