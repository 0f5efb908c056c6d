//! Names of threads, in dumps.

use kymo_device_tests::layout::Small;
use kymo_device_tests::{Host, Kind, Mock, config, packets};
use kymo_recorder::Target;
use kymo_recorder::config::Config;
use kymo_wire::event::{MetadataType, PacketHeader};
use kymo_wire::link::Fault;

use super::Device;

#[test]
fn names_that_come_during_a_dump_do_not_change_it() {
    let device = Device::new(config(16, 1024));
    device.call(0x1100);
    let name = |name: &[u8]| {
        device
            .single
            .describe(device.hot, device.config, MetadataType::ThreadName, 5, name);
    };
    name(b"early");
    let mut host = Host::default();
    host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
    let first = host.dump();
    name(b"late");
    host.pieces.clear();
    let frames = host.ends[0].0;
    let resend = format!("resend 0 {}", frames - 1);
    host.hear(&device.talk(&Host::command(1, &resend)).concat());
    assert_eq!(host.dump(), first);
    device.frame("done");
    host.pieces.clear();
    host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
    let names = packets(&host.dump(), Mock::<Small>::LAYOUT, 0x1000)[0]
        .records
        .iter()
        .filter(|record| matches!(&record.kind, Kind::Metadata { kind: 1, .. }))
        .count();
    assert_eq!(names, 2);
}

#[test]
fn names_are_kept_before_there_is_a_clock_and_counted_where_there_is_no_room() {
    let device = Device::new(Config {
        metadata_size: 512,
        ..config(16, 1024)
    });
    let wrap = device.single.port().wrap.replace(0);
    for thread in 1..=40 {
        let name = format!("thread {thread}");
        let kind = MetadataType::ThreadName;
        let (hot, config) = (device.hot, device.config);
        device
            .single
            .describe(hot, config, kind, thread, name.as_bytes());
    }
    assert_eq!(device.single.fault(), Some(Fault::NoClock.of(0)));
    device.single.port().wrap.set(wrap);
    device.call(0x1100);
    assert_eq!(device.single.fault(), None);
    let mut host = Host::default();
    host.hear(&device.talk(&Host::command(1, "dump_trace")).concat());
    let dump = packets(&host.dump(), Mock::<Small>::LAYOUT, 0x1000);
    let metadata = &dump[0];
    let is_name = |kind: &Kind| matches!(kind, Kind::Metadata { kind: 1, .. });
    let records = metadata.records.iter();
    let names = records.filter(|record| is_name(&record.kind)).count();
    assert!((8..40).contains(&names), "{names}");
    // What there is to say of the clock comes with it, and finds no room either.
    assert!(metadata.discarded as usize > 40 - names, "{metadata:?}");
    assert_eq!(metadata.flags, PacketHeader::FLAG_FACTS);
}
