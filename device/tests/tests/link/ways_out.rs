//! What the console and a polled UART wait for, and what waits for them: cells of the documentation's table of
//! transports.

use kymo_wire::link::console::{BEGIN, END};

use super::*;

/// `kymo_dump_text()` takes no lock: interrupts come between any two pieces of text, and record nothing. What they
/// would have recorded is counted.
#[test]
fn a_dump_to_a_console_locks_nothing_and_all_else_waits() {
    let device = Device::new(config(16, 1024));
    (0..50).for_each(|_| device.call(0x1100));
    let discarded = || {
        let status = device.frame("status").1;
        let count = status
            .split_once(" discarded=")
            .and_then(|(_, rest)| rest.split_once(' '));
        count
            .and_then(|(count, _)| count.parse::<u32>().ok())
            .expect(&status)
    };
    let before = discarded();
    let (mut text, mut pieces) = (Vec::new(), 0);
    let dumped = device
        .single
        .dump_text(device.hot, device.config, &mut |piece| {
            assert_eq!(device.single.port().masked.get(), 0);
            text.extend_from_slice(piece);
            pieces += 1;
            device.call(0x1200);
        });
    assert!(dumped);
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains(BEGIN) && text.contains(END), "{text}");
    assert_eq!(discarded() - before, 2 * pieces);
    // Afterwards recording goes on, and nothing of the handlers is in it.
    let mut host = Host::default();
    host.hear(&device.talk(&Host::command(9, "dump_trace")).concat());
    device.talk(&Host::command(9, "done"));
    assert_eq!(calls(&host.dump()), 100);
    device.call(0x1300);
    assert_eq!(discarded() - before, 2 * pieces);
}

/// `send` of a polled UART is called without a lock, by the one thread that polls: a second one that polls meanwhile
/// sends nothing.
#[test]
fn a_polled_uart_locks_nothing_and_one_thread_polls() {
    let device = Device::new(config(16, 1024));
    (0..50).for_each(|_| device.call(0x1100));
    device.receive(b"ping\r");
    let polled = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = polled.clone();
    BESIDE.set(Some(Box::new(move || {
        assert_eq!(device.single.port().masked.get(), 0);
        count.set(count.get() + 1);
        if count.get() > 1 {
            return;
        }
        let sent = SENT.with_borrow(Vec::len);
        device.receive(b"status\r");
        device.poll();
        assert_eq!(SENT.with_borrow(Vec::len), sent, "it sends nothing");
    })));
    device.poll();
    BESIDE.set(None);
    assert!(polled.get() > 0);
    device.poll();
    let answers = String::from_utf8(SENT.take().concat()).expect("text");
    let first = answers.split("\r\n").next().expect("a line");
    assert_eq!(first, "kymo ping: pong");
    assert!(answers.contains("kymo status: enabled=1"), "{answers}");
}
