//! Rust part of a program for a Cortex-M3: its recorder, made with the builder, and its events.
#![no_std]

use core::hint::black_box;
use core::panic::PanicInfo;

use kymo::{Buffer, Packets, Recorder, Table};
// The functions of kymo.h, for the part in C.
use kymo_abi as _;

static EVENTS: Packets<512, 16> = Packets::new();
static NAMES: Buffer<256> = Buffer::new();
static TABLE: Table<18, 2, 8> = Table::new();

// SAFETY: the part in C defines it so.
unsafe extern "C" {
    fn board_send(bytes: *const u8, count: usize);
}

kymo::recorder!(
    Recorder::new(&EVENTS)
        .names(&NAMES)
        .table(&TABLE)
        .clock_hz(25_000_000)
        .tick_hz(100)
        .send(board_send)
);

fn leaf(n: u32) -> u32 {
    let _call = kymo::call(leaf as *const () as usize);
    black_box(n) + 1
}

/// Ten calls within one, between two markers.
#[unsafe(no_mangle)]
extern "C" fn work() {
    kymo::on();
    kymo::marker(1);
    {
        let _call = kymo::call(work as *const () as usize);
        for n in 0..10 {
            leaf(n);
        }
    }
    kymo::named_marker(c"done", 2);
    kymo::off();
}

#[panic_handler]
fn stop(_: &PanicInfo<'_>) -> ! {
    loop {}
}
