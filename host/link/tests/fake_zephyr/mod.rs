//! A device that exists only in a test: it runs Zephyr's instrumentation subsystem, answers byte for
//! byte as a real one did (a test holds it against captures), and goes wrong in the ways it is told to.
//!
//! It is written from the description of the protocol, without anything of the code under test.

mod device;
pub mod recorded;

use std::collections::VecDeque;

use crate::server::Server;
use device::Device;

/// What a device says when it starts.
pub const BANNER: &str = "*** Booting Zephyr OS build  ***\r\n";

/// What a device has, what it does wrong, and what was done to it.
#[derive(Clone, Debug)]
pub struct State {
    /// The reply to `status`, without its line end.
    pub status: &'static str,
    /// Whether it takes `instr_` before a command.
    pub takes_prefix: bool,
    /// Whether it leaves lines without it to somebody else, who says nothing.
    pub needs_prefix: bool,
    /// What it says when it starts.
    pub banner: &'static str,
    /// Whether it was built to trace; then the records of the dumps, each until the next reboot.
    pub trace: Option<Vec<u8>>,
    /// The entries of its table, if it was built to have one.
    pub profile: Option<Vec<u8>>,
    /// What it is set to.
    pub trigger: u32,
    /// What it is set to.
    pub stopper: u32,
    /// Whether trigger and stopper survive a reboot.
    pub retained: bool,
    /// Everything is sent in pieces of so many bytes, with a pause behind each.
    pub fragments: Option<usize>,
    /// Text that the program prints again and again, also before the first question.
    pub chatter: Option<&'static str>,
    /// Commands of which the first byte gets lost.
    pub torn_commands: u32,
    /// Commands that get lost whole.
    pub lost_commands: u32,
    /// Behind so many bytes of its records a dump breaks off, and this happens.
    pub cut: Option<(usize, Cut)>,
    /// Dumps of which it sends one before each answer, as when its buffer is full.
    pub unasked: VecDeque<Vec<u8>>,
    /// What it answers `identify` with instead of a complaint.
    pub stranger: Option<&'static str>,

    /// Every byte that came.
    pub received: Vec<u8>,
    /// The lines that it understood, complete.
    pub lines: Vec<String>,
    /// How often it started again.
    pub reboots: u32,
    /// How many trace dumps have been sent since it started.
    pub dumped: u32,
}

/// How a dump breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The device says nothing any more.
    Dead,
    /// It starts again.
    Reboot,
    /// The connection ends.
    Close,
    /// The rest comes, but for these bytes.
    Lost(usize),
}

impl State {
    /// A device with the default configuration, which has recorded this.
    pub fn new(trace: Vec<u8>, profile: Vec<u8>) -> Self {
        Self {
            status: "1 1 1",
            takes_prefix: false,
            needs_prefix: false,
            banner: BANNER,
            trace: Some(trace),
            profile: Some(profile),
            trigger: 0x829,
            stopper: 0x829,
            retained: true,
            fragments: None,
            chatter: None,
            torn_commands: 0,
            lost_commands: 0,
            cut: None,
            unasked: VecDeque::new(),
            stranger: None,
            received: Vec::new(),
            lines: Vec::new(),
            reboots: 0,
            dumped: 0,
        }
    }
}

/// A running fake device. It ends when this is dropped.
pub type Fake = Server<State>;

impl Fake {
    /// Starts a device on a free port of this machine.
    pub fn start(state: State) -> Self {
        Self::serve::<Device>(state)
    }
}
