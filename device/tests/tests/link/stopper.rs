//! What a status says of the stopper.

use super::*;

#[test]
fn the_status_says_which_thread_is_within_the_stopper_and_for_how_long() {
    let device = Device::new(config(16, 1024));
    device.line("stopper 1300\r");
    let edge = |edge| {
        device
            .single
            .call(device.hot, device.config, edge, 0x1300, 0);
    };
    device
        .single
        .hook(device.hot, device.config, Event::SwitchedIn(0x5000));
    assert!(!device.frame("status").1.contains("stopper_"));
    edge(Edge::Enter);
    device.single.tick(device.hot, device.config);
    device.passes(1500);
    let status = device.frame("status").1;
    let since = status.split_once(" stopper_thread=0x5000 stopper_ticks=");
    let ticks = since.expect(&status).1.trim_end();
    assert!(
        (1_500_000..1_501_000).contains(&ticks.parse::<u64>().expect(ticks)),
        "{status}"
    );
    device.single.end_thread(device.hot, 0x5000);
    device.single.tick(device.hot, device.config);
    assert!(!device.frame("status").1.contains("stopper_"));
    // The time is that of the next call, not of the last.
    edge(Edge::Enter);
    let status = device.frame("status").1;
    let since = status.split_once(" stopper_ticks=").expect(&status).1;
    assert!(
        since.trim_end().parse::<u64>().expect(since) < 1000,
        "{status}"
    );
    edge(Edge::Exit);
    assert!(!device.frame("status").1.contains("stopper_"));
}
