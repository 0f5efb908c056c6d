//! Data samples in SystemView recordings: their types, and those whose registration is missing.

use kymo_event::{Event, EventKind, Quantity, Value};
use kymo_systemview::{MAX_VARINT, Packet, Text, encode_number};

use crate::systemview::{read, recording};

/// The name and value of every sample.
fn samples(events: &[Event]) -> Vec<(&str, Quantity)> {
    let counters = events.iter().filter_map(|event| match &event.kind {
        EventKind::Counter { name, value, .. } => Some((name.as_str(), *value)),
        _ => None,
    });
    counters.collect()
}

/// The part of a registration after the name.
fn registration(numbers: [u32; 5], unit: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut varint = [0; MAX_VARINT];
        let size = encode_number(number, &mut varint).unwrap();
        bytes.extend(&varint[..size]);
    }
    bytes.push(unit.len() as u8);
    bytes.extend(unit.as_bytes());
    bytes
}

#[test]
fn values_without_registration_are_unsigned_and_said_to_be() {
    let value = 1.0f32.to_bits();
    let (all, source) = read(recording(&[
        Packet::DataSample { id: 77, value: 5 },
        Packet::DataSample { id: 77, value },
    ]));
    let name = "value 77 (unregistered)";
    let values = [5, value.into()].map(|it| (name, Quantity::Unsigned(it)));
    assert_eq!(samples(&all), values);
    let remarks = &source.info().remarks;
    let printed = remarks.iter().filter(|it| it.contains("registration"));
    assert_eq!(printed.count(), 1, "{remarks:?}");
}

#[test]
fn registered_values_have_their_type_and_are_not_scaled() {
    let float = 0.5f32.to_bits();
    let rest = [0, 1, 2].map(|kind| registration([kind, 3, -4i32 as u32, 9, float], "mV"));
    let names = ["u", "i", "f"];
    let mut packets = Vec::new();
    for (id, (name, rest)) in (1u32..).zip(names.iter().zip(&rest)) {
        let name = Text(name.as_bytes());
        packets.push(Packet::RegisterData { id, name, rest });
    }
    for (id, value) in [(1, u32::MAX), (2, -5i32 as u32), (3, 23.5f32.to_bits())] {
        packets.push(Packet::DataSample { id, value });
    }
    let (all, source) = read(recording(&packets));
    assert_eq!(
        samples(&all),
        [
            ("u", Quantity::Unsigned(u32::MAX.into())),
            ("i", Quantity::Signed(-5)),
            ("f", Quantity::Real(23.5)),
        ]
    );
    assert!(
        source
            .info()
            .remarks
            .iter()
            .all(|it| !it.contains("registration"))
    );
    let registered = all.iter().filter(|it| it.name == "register_data");
    let fields: Vec<_> = registered.map(|it| it.fields.clone()).collect();
    let of = |place: usize| {
        let values = fields[place].iter().skip(2);
        let values: Vec<_> = values.map(|it| (&*it.name, it.value.clone())).collect();
        values
    };
    assert_eq!(
        of(1),
        [
            ("type", Value::from("i32")),
            ("offset", Value::Signed(3)),
            ("range_min", Value::Signed(-4)),
            ("range_max", Value::Signed(9)),
            ("scaling_factor", Value::Real(0.5)),
            ("unit", Value::from("mV")),
        ]
    );
    assert_eq!(of(0)[0].1, Value::from("u32"));
    assert_eq!(of(2)[0].1, Value::from("float"));
}
