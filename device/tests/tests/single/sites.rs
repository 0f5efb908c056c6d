//! Call sites.

use kymo_recorder::config::CALL_SITES;

use super::*;

#[test]
fn an_entry_says_where_it_was_called_from_if_that_is_wanted() {
    for flags in [START_ON, START_ON | CALL_SITES] {
        let device = Device::new(Config {
            flags,
            ..config(16, 1024)
        });
        let far = 0x4000_0000;
        for (function, caller) in [(MAIN, 0x1000), (WORK, 0x1105), (far, 0x1207)] {
            device
                .single
                .call(device.hot, device.config, Edge::Enter, function, caller);
        }
        for function in [far, WORK, MAIN] {
            device.exit(function);
        }
        let from = |function: usize, caller: u64| match flags & CALL_SITES {
            0 => enter(function),
            _ => Kind::EnterFrom {
                function: function as u64,
                caller,
            },
        };
        let expected = [
            recording(true, 0),
            from(MAIN, 0x1000),
            from(WORK, 0x1105),
            from(far, 0x1207),
            exit(far),
            exit(WORK),
            exit(MAIN),
        ];
        assert_eq!(device.kinds(), expected);
        if flags & CALL_SITES != 0 {
            // What the option costs: header, function and call site.
            let bytes = device.single.writer().stream().figures().bytes;
            device
                .single
                .call(device.hot, device.config, Edge::Enter, LEAF, 0x1301);
            let begun = device.single.writer().stream().figures().bytes;
            device
                .single
                .call(device.hot, device.config, Edge::Enter, LEAF, 0x1301);
            let now = device.single.writer().stream().figures().bytes;
            assert_eq!(now - begun, 10, "after {bytes}");
        }
    }
}

#[test]
fn the_trigger_s_entry_has_its_call_site() {
    let device = Device::new(Config {
        flags: CALL_SITES,
        trigger: function(WORK),
        ..config(16, 1024)
    });
    device
        .single
        .call(device.hot, device.config, Edge::Enter, WORK, 0x1105);
    let entry = Kind::EnterFrom {
        function: WORK as u64,
        caller: 0x1105,
    };
    assert_eq!(device.kinds(), [recording(true, 1), entry]);
}
