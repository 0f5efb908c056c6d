//! Checksums of packets, with interrupts in between, and with records that are filled while packets close.

use kymo_recorder::sums::{Sum, Sums, Verdict};
use kymo_wire::event::PacketHeader;

use super::*;

const SLOTS: usize = 16;

/// A recorder with memory for checksums.
fn summed() -> (Device, Sums) {
    let device = Device::on();
    device.enter(MAIN);
    let memory: &'static [[u32; 2]; SLOTS] = leak([[0; 2]; SLOTS]);
    // SAFETY: a sum is two such words, and only the recorder uses them from now on.
    let sums = unsafe { Sums::new(memory.as_ptr().cast::<Sum>(), SLOTS as u32) };
    device.single.give_sums(sums);
    (device, sums)
}

impl Device {
    /// Packets of each verdict but for the newest: verified, unverified.
    fn verdicts(self, sums: Sums) -> (usize, usize) {
        let stream = self.single.writer().stream();
        stream.seal();
        let kept = stream.buffer().kept();
        let verdict = |n: u32| {
            // SAFETY: the stream is sealed, and nobody writes.
            let content = unsafe { stream.buffer().packet(n) }.unwrap();
            let header = PacketHeader::read(Mock::<Small>::LAYOUT, content).unwrap();
            sums.check(header.sequence as usize % SLOTS, header.sequence, content)
        };
        let of = |wanted| (0..kept - 1).filter(|n| verdict(*n) == wanted).count();
        assert_eq!(of(Verdict::Damaged), 0);
        assert_eq!(verdict(kept - 1), Verdict::Unverified);
        (of(Verdict::Verified), of(Verdict::Unverified))
    }

    fn work(self, times: u32) {
        for n in 0..times {
            self.enter(WORK);
            self.exit(WORK);
            self.hook(Event::Marker(n));
        }
    }

    fn begun(self) -> u32 {
        self.single.writer().stream().buffer().begun()
    }
}

#[test]
fn each_packet_but_the_newest_is_verified() {
    let (device, sums) = summed();
    device.work(5000);
    assert!(device.begun() > 2 * SLOTS as u32);
    assert_eq!(device.verdicts(sums), (SLOTS - 1, 0));
    // Losses that the newest packet reports later change nothing that is verified.
    device.single.clear(device.hot, device.config);
    device.work(1000);
    let (verified, unverified) = device.verdicts(sums);
    assert!(verified > 3);
    assert_eq!(unverified, 0);
}

#[test]
fn interrupts_that_close_packets_meanwhile_do_no_harm() {
    let (device, sums) = summed();
    let count = Cell::new(0u32);
    device.preempt(move |place| {
        // (At `counter` it would be a hook within a hook.)
        if place == "counter" {
            return;
        }
        let n = count.get() + 1;
        count.set(n);
        // Now and then more than the buffer holds.
        let times = if n.is_multiple_of(997) { 2500 } else { n % 3 };
        for value in 0..times {
            device.hook(Event::Marker(value));
        }
    });
    device.work(3000);
    *device.port.preempt.borrow_mut() = None;
    device.work(5000);
    assert_eq!(device.verdicts(sums), (SLOTS - 1, 0));
}

#[test]
fn packets_closed_while_a_record_is_filled_are_not_verified() {
    let (device, sums) = summed();
    device.work(200);
    let before = device.begun();
    let data = device.single.reserve(device.hot, device.config, 8);
    assert!(!data.is_null());
    while device.begun() < before + 3 {
        device.work(1);
    }
    // SAFETY: it was reserved, and is not used again.
    unsafe { device.single.commit(device.hot, data, 7) };
    while device.begun() < before + 6 {
        device.work(1);
    }
    let (verified, unverified) = device.verdicts(sums);
    assert_eq!(unverified, 3);
    assert_eq!(verified + unverified, device.begun() as usize - 1);
}
