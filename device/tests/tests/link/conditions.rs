//! The command `condition`.

use kymo_device_tests::config;
use kymo_recorder::Edge;

use super::Device;

#[test]
fn a_command_sets_conditions_which_go_with_another_function() {
    let device = Device::new(config(16, 1024));
    let none = "trigger_from=0x0 trigger_end=0x0 trigger_hit=0 trigger_times=0 trigger_hits=0 trigger_acted=0 \
                stopper_from=0x0 stopper_end=0x0 stopper_hit=0 stopper_times=0 stopper_hits=0 stopper_acted=0";
    assert_eq!(device.frame("condition"), (true, none.into()));
    device.line("trigger 0x1200\rstopper 0x1300\r");
    let set = none
        .replace(
            "trigger_hit=0 trigger_times=0",
            "trigger_hit=3 trigger_times=2",
        )
        .replace(
            "stopper_from=0x0 stopper_end=0x0",
            "stopper_from=0x1100 stopper_end=0x1180",
        );
    device.line("condition trigger 0 0 3 2\r");
    assert_eq!(
        device.frame("condition stopper 0x1100 1180 0 0"),
        (true, set.clone())
    );
    device.line("off\r");
    device
        .single
        .call(device.hot, device.config, Edge::Enter, 0x1200, 0);
    let counted = set.replace("trigger_hits=0", "trigger_hits=1");
    assert_eq!(device.frame("condition"), (true, counted.clone()));
    // Two addresses more: of the part that the compiler put elsewhere.
    let apart = counted.replace(
        "stopper_end=0x1180",
        "stopper_end=0x1180 stopper_cold=0x1400",
    );
    assert_eq!(
        device.frame("condition stopper 0x1100 1180 0 0 0x1400 0x1410"),
        (true, apart)
    );
    assert_eq!(
        device.frame("condition stopper 0x1100 1180 0 0 0x1400"),
        (false, "an argument is missing".into())
    );
    device.line("trigger 0x1200\rstopper 0x1200\r");
    assert_eq!(device.frame("condition"), (true, none.into()));
    assert_eq!(
        device.frame("condition trigger 0 0 1"),
        (false, "an argument is missing".into())
    );
}
