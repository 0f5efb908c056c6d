//! Packets of id 0, which say nothing but that time goes on.

use kymo_systemview::scan::UNKNOWN;
use kymo_systemview::{Form, Ids, Packet, Piece, SYNC, Scan, encode};

#[test]
fn an_empty_packet_lets_time_go_on() {
    let mut stream = SYNC.to_vec();
    let mut scratch = [0; 100];
    let mut put = |packet: Packet<'_>, delta: u32| {
        let size = encode(&packet, delta, Form::default(), &mut scratch).unwrap();
        stream.extend(&scratch[..size]);
    };
    put(Packet::TraceStart, 0);
    let init = Packet::Init {
        frequency: 1_000_000,
        cpu_frequency: 1,
        ids: Ids::default(),
    };
    put(init, 0);
    let (mut packets, mut time) = (2, 0);
    for round in 0..200u32 {
        put(Packet::TaskStartExec { task: 40 }, 10);
        put(Packet::Idle, 3);
        (packets, time) = (packets + 2, time + 13);
        // One, or several that follow each other; also long ones.
        for empty in 0..[0, 1, 0, 3][round as usize % 4] {
            let delta = [5, 300, 100_000][empty];
            put(Packet::Nop, delta);
            (packets, time) = (packets + 1, time + delta);
        }
    }
    let mut scan = Scan::default();
    let (mut read, mut read_time) = (0, 0);
    while let Some(piece) = scan.next(&stream[scan.offset() as usize..], true, UNKNOWN) {
        match piece {
            Piece::Record(record) => (read, read_time) = (read + 1, read_time + record.delta),
            Piece::Sync { .. } => {}
            Piece::Damage { .. } => panic!("{piece:?}"),
        }
    }
    assert_eq!((read, read_time), (packets, time));
}
