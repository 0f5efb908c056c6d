//! Conditions of trigger and stopper, which several CPUs call at once.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::device::Device;

const TRIGGER: usize = 0x1200;
const STOPPER: usize = 0x1300;

/// Of two CPUs one turns recording on or off, which counts once.
#[test]
fn what_two_cpus_call_at_once_acts_once() {
    const ROUNDS: u32 = 1000;
    let device = Device::new(0, 16);
    assert!(device.start(0));
    let sets = (Some(TRIGGER), Some(STOPPER));
    device.cpus.set_sets(device.gate, sets.0, sets.1);
    let conditions = device.gate.conditions().expect("the part");
    conditions.trigger.set(0, 0, 0, ROUNDS);
    conditions.stopper.set(0, 0, 0, ROUNDS);
    let met = AtomicU32::new(0);
    let meet = |place: u32| {
        met.fetch_add(1, Ordering::SeqCst);
        let mut looks = 0;
        while met.load(Ordering::SeqCst) < 2 * place {
            looks += 1;
            match looks % 1000 {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    };
    device.run(|cpu| {
        for round in (0..ROUNDS).take_while(|_| cpu < 2) {
            let place = round * 4;
            meet(place + 1);
            device.enter(TRIGGER);
            meet(place + 2);
            assert!(device.gate.state().on());
            device.enter(STOPPER);
            meet(place + 3);
            device.exit(STOPPER);
            meet(place + 4);
            assert!(!device.gate.state().on());
        }
    });
    for condition in [&conditions.trigger, &conditions.stopper] {
        let (_, [_, _, _, acted]) = condition.get();
        assert_eq!(acted, ROUNDS);
    }
}
