//! A target that exists only in a test: it speaks the protocol over TCP, and goes wrong in the ways
//! it is told to.
//!
//! It is written from the description of the protocol in `kymo-wire`, without anything of the
//! code under test.

mod connection;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::link::{Capabilities, Command, Identity, Mode, PROTOCOL};

use crate::server::Server;
use connection::Connection;

/// What goes wrong. Frames are counted from 1 over the whole connection.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Nothing is ever answered.
    pub silent: bool,
    /// So many answers to `identify` have text of the program's in their middle.
    pub torn_identities: u32,
    /// By so much the clock is faster each time it is measured, which is for each identity.
    pub clock_scatter: u64,
    /// What is answered to a line instead of an identity.
    pub stranger: Option<&'static str>,
    /// Every frame with such a number has a bit turned over.
    pub damage_every: Option<u32>,
    /// Every frame with such a number is not sent.
    pub lose_every: Option<u32>,
    /// The frames with these numbers are not sent.
    pub lose: Vec<u32>,
    /// Every frame with such a number has a line of the program's in its middle.
    pub console_inside_every: Option<u32>,
    /// Every frame with such a number has a line of the program's behind it.
    pub console_after_every: Option<u32>,
    /// Everything is sent in pieces of so many bytes, with a pause in between.
    pub fragments: Option<usize>,
    /// From this data frame on nothing is sent.
    pub hang_at: Option<u32>,
    /// At this data frame the connection is closed.
    pub close_at: Option<u32>,
    /// A pause after each data frame.
    pub slow: Option<Duration>,
    /// A reboot ends the connection, as with a board whose serial port is its own.
    pub reboot_disconnects: bool,
    /// The command of which it refuses the first word, and why.
    pub refuse: Option<(&'static str, &'static str)>,
    /// Its dumps end with a wrong checksum, so many times.
    pub wrong_sums: u32,
    /// When so many packets of a stream have been acknowledged, the connection is closed, once.
    pub close_after: Option<usize>,
    /// When so many packets of a stream have been acknowledged, the stream is forgotten, once.
    pub forget_after: Option<usize>,
    /// When so many packets of a stream have been acknowledged, nothing more is heard or said on this
    /// connection, which stays open; once.
    pub mute_after: Option<usize>,
    /// What it says behind the end of a stream.
    pub end: &'static str,
}

/// What a fake target has, and what was done to it.
#[derive(Clone, Debug)]
pub struct State {
    /// Who it says it is.
    pub identity: Identity,
    /// What `dump_trace` gives.
    pub trace: Vec<u8>,
    /// What `dump_profile` gives.
    pub profile: Vec<u8>,
    /// What it does wrong.
    pub faults: Faults,
    /// The reply to `status`.
    pub status: String,
    /// The trigger.
    pub trigger: u64,
    /// The stopper.
    pub stopper: u64,
    /// Every byte that came from the host.
    pub received: Vec<u8>,
    /// The commands that were carried out.
    pub commands: Vec<Command>,
    /// What the program has written to the console.
    pub console: String,
    /// The packets that wait to be streamed, and those that are on their way: none is taken out before
    /// it is acknowledged.
    pub packets: VecDeque<Vec<u8>>,
    /// How many of them are on their way at most.
    pub window: usize,
    /// How many packets have been acknowledged.
    pub released: usize,
    /// How many pieces of dumps have been sent, or were meant to be.
    pub sent: u32,
}

impl Faults {
    /// Whether all that is sent arrives: then one may wait for it as long as it takes, and what is
    /// asked for twice, or given up, on a machine that is slow, is not the target's fault.
    #[allow(dead_code, reason = "not every test waits")]
    pub fn nothing_is_missing(&self) -> bool {
        let loses = [
            self.damage_every,
            self.lose_every,
            self.hang_at,
            self.close_at,
        ];
        loses.iter().all(Option::is_none)
            && self.lose.is_empty()
            && self.close_after.is_none()
            && self.forget_after.is_none()
            && self.mute_after.is_none()
            && self.torn_identities == 0
            && !self.reboot_disconnects
            && !self.silent
            && self.stranger.is_none()
    }
}

impl State {
    /// A target with these dumps and no faults.
    pub fn new(trace: Vec<u8>, profile: Vec<u8>) -> Self {
        Self {
            identity: identity(),
            trace,
            profile,
            faults: Faults::default(),
            status: "enabled=1 on=1 mode=overwrite used=2048 needed=2048 bytes=2000 discarded=0 \
                     packets=2 functions=3 slots=64 no_slot=0 damaged=0"
                .to_owned(),
            trigger: 0,
            stopper: 0,
            received: Vec::new(),
            commands: Vec::new(),
            console: String::new(),
            packets: VecDeque::new(),
            window: 4,
            released: 0,
            sent: 0,
        }
    }
}

/// A Cortex-M3 at 25 MHz.
pub fn identity() -> Identity {
    let mut build_id = ([0; 32], 20);
    build_id.0[..20].fill(0xB1);
    Identity {
        protocol: PROTOCOL,
        layout: Layout {
            shape: Shape::Compact,
            word: WordSize::Bits32,
            order: ByteOrder::Little,
            function_shift: 1,
        },
        clock_hz: 25_000_000,
        clock_bits: 32,
        buffer_bytes: 65_536,
        packet_bytes: 1024,
        streams: 1,
        mode: Mode::Overwrite,
        text_base: 0,
        capabilities: Capabilities {
            trace: true,
            profile: true,
            reboot: true,
            retained: true,
            sure_clock: true,
            stream: true,
        },
        build_id,
    }
}

/// Bytes of any value, the same each time.
pub fn noise(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// When the clock showed 0, in nanoseconds since 1970; it counts at 25 MHz.
pub const STARTED: u64 = 1_700_000_000_000_000_000;

/// A running fake target. It ends when this is dropped.
pub type Fake = Server<State>;

impl Fake {
    /// Starts a target on a free port of this machine.
    pub fn start(state: State) -> Self {
        Self::serve::<Connection>(state)
    }

    /// Has a packet to be streamed.
    #[allow(dead_code, reason = "not every test streams")]
    pub fn record(&self, packet: Vec<u8>) {
        self.change(|state| state.packets.push_back(packet));
    }
}

/// Waits until `condition` holds; panics if it does not within ten minutes.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
