//! Tests of the layout of Kymo's own traces: bit-packed headers with a variant, partial times, function names as
//! labels.

use std::fmt::Write;

use kymo_ctf::metadata::{ByteOrder, EnvValue};
use kymo_ctf::{GapKind, Message, Trace};

/// Writes bits like the target's encoder, one at a time.
struct Bits {
    bytes: Vec<u8>,
    at: usize,
    order: ByteOrder,
}

impl Bits {
    fn put(&mut self, value: u64, size: u32) {
        for index in 0..size {
            if self.bytes.len() <= self.at / 8 {
                self.bytes.push(0);
            }
            let (bit, place) = match self.order {
                ByteOrder::Little => (value >> index & 1, self.at % 8),
                ByteOrder::Big => (value >> (size - 1 - index) & 1, 7 - self.at % 8),
            };
            self.bytes[self.at / 8] |= (bit as u8) << place;
            self.at += 1;
        }
    }
}

fn metadata(order: &str, functions: u32) -> String {
    let mut labels = String::new();
    for function in 0..functions {
        let _ = write!(labels, "\"function_{function}\" = {}, ", function * 16);
    }
    format!(
        r#"/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = {order};
            packet.header := struct {{ integer {{ size = 32; align = 8; }} magic; }}; }};
        env {{ tracer_name = "kymo"; }};
        clock {{ name = monotonic; freq = 1000000; }};
        typealias integer {{ size = 64; align = 8; map = clock.monotonic.value; }} := time;
        typealias integer {{ size = 32; align = 8; }} := word;
        typealias integer {{ size = 8; align = 8; }} := byte;
        typealias enum : integer {{ size = 17; align = 1; }} {{ {labels} }} := function;
        stream {{
            packet.context := struct {{ word packet_seq_num; time timestamp_begin; time timestamp_end; word content_size;
                word packet_size; word events_discarded; integer {{ size = 16; align = 8; }} cpu_id; byte kind; byte flags;
                word thread; }};
            event.header := struct {{
                enum : integer {{ size = 2; align = 1; }} {{ enter = 0, exit = 1, event = 2, event_at = 3 }} id;
                variant <id> {{
                    struct {{ integer {{ size = 13; align = 1; map = clock.monotonic.value; }} timestamp; }} enter;
                    struct {{ integer {{ size = 13; align = 1; map = clock.monotonic.value; }} timestamp; }} exit;
                    struct {{ integer {{ size = 6; align = 1; }} id;
                        integer {{ size = 24; align = 1; map = clock.monotonic.value; }} timestamp; }} _event;
                    struct {{ integer {{ size = 6; align = 1; }} id;
                        integer {{ size = 56; align = 1; map = clock.monotonic.value; }} timestamp; }} event_at;
                }} v;
            }};
        }};
        event {{ id = 0; name = enter; fields := struct {{ function function; }}; }};
        event {{ id = 1; name = exit; fields := struct {{ function function; }}; }};
        event {{ id = 5; name = marker; fields := struct {{ integer {{ size = 32; align = 1; }} value; }}; }};"#
    )
}

/// A packet with an entry, an exit after a wraparound of the partial time, and a marker with a full time.
fn packet(order: ByteOrder, number: u64, discarded: u64, thread: u64) -> Vec<u8> {
    let mut bits = Bits {
        bytes: Vec::new(),
        at: 0,
        order,
    };
    bits.put(0xc1fc_1fc1, 32);
    bits.put(number, 32);
    bits.put(100_000, 64);
    bits.put(200_000, 64);
    let content = (32 * 6 + 64 * 2 + 32) + (2 + 13 + 17) * 2 + 2 + 6 + 56 + 32;
    bits.put(content, 32);
    bits.put(content, 32);
    bits.put(discarded, 32);
    bits.put(2, 16);
    bits.put(1, 8);
    bits.put(0, 8);
    bits.put(thread, 32);
    for (id, time) in [(0, 100_007u64), (1, 108_190)] {
        bits.put(id, 2);
        bits.put(time & 0x1fff, 13);
        bits.put(3 * 16, 17);
    }
    bits.put(3, 2);
    bits.put(5, 6);
    bits.put(150_000, 56);
    bits.put(0xdead_beef, 32);
    assert_eq!(bits.at as u64, content);
    bits.bytes
}

#[test]
fn both_byte_orders() {
    for (name, order) in [("le", ByteOrder::Little), ("be", ByteOrder::Big)] {
        let dump = [
            packet(order, 7, 0, 41),
            packet(order, 8, 2, 42),
            packet(order, 10, 2, 42),
        ]
        .concat();
        let text = metadata(name, 5_000);
        let trace = Trace::from_memory(text.as_bytes(), [("dump", dump)]).expect("metadata");
        assert_eq!(
            trace.metadata().env("tracer_name"),
            Some(&EnvValue::Text("kymo".into()))
        );
        let mut seen = Vec::new();
        let mut messages = trace.messages().expect("opens");
        while let Some((_, message)) = messages.next_message().expect("decodes") {
            match message {
                Message::Packet(packet) => {
                    let thread = packet.field("thread").and_then(|thread| thread.as_u64());
                    assert_eq!(packet.info().cpu_id, Some(2));
                    seen.push(format!("packet {:?} {thread:?}", packet.info().seq_num));
                }
                Message::Gap(gap) => {
                    let what = if gap.kind == GapKind::Packets {
                        "packets"
                    } else {
                        "events"
                    };
                    seen.push(format!("lost {:?} {what}", gap.count));
                }
                Message::Event(event) => {
                    let function = event.field("function");
                    let label = function.and_then(|function| function.label());
                    let value = function
                        .or(event.field("value"))
                        .and_then(|value| value.as_u64());
                    seen.push(format!(
                        "{} {:?} {label:?} {value:?}",
                        event.name(),
                        event.ticks()
                    ));
                }
            }
        }
        let events = [
            r#"enter Some(100007) Some("function_3") Some(48)"#,
            r#"exit Some(108190) Some("function_3") Some(48)"#,
            "marker Some(150000) None Some(3735928559)",
        ];
        let mut expected = vec!["packet Some(7) Some(41)"];
        expected.extend(events);
        expected.push("packet Some(8) Some(42)");
        expected.extend(events);
        // (Packets of Kymo count losses before them; its own reader asks for that order.)
        expected.extend(["lost Some(2) events", "lost Some(1) packets"]);
        expected.push("packet Some(10) Some(42)");
        expected.extend(events);
        assert_eq!(seen, expected, "{name}");
    }
}
