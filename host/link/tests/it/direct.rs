//! Fake devices without a connection, with a simulated clock: waits take no time.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kymo_fixtures::server::{Direct, Passed, Speaks};
use kymo_link::{Address, Clock, Target, Timeouts, Transport};

/// Clock that advances only in waits.
struct ByWaits {
    start: Instant,
    passed: Passed,
}

impl Clock for ByWaits {
    fn now(&self) -> Instant {
        self.start + self.passed.total()
    }

    fn sleep(&self, duration: Duration) {
        self.passed.pass(duration);
    }
}

/// The connection to a device.
struct Line<D: Speaks> {
    device: Direct<D>,
    clock: Arc<ByWaits>,
}

impl<D: Speaks + Send> Transport for Line<D> {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        self.device.read(buffer, timeout)
    }

    fn write(&mut self, bytes: &[u8], _: Duration) -> io::Result<()> {
        self.device.write(bytes)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }
}

/// A fake device, to which each target has its own connection.
pub struct Fake<D: Speaks> {
    state: Arc<Mutex<D::State>>,
    clock: Arc<ByWaits>,
}

impl<D: Speaks + Send + 'static> Fake<D> {
    pub fn start(state: D::State) -> Self {
        let clock = ByWaits {
            start: Instant::now(),
            passed: Passed::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            clock: Arc::new(clock),
        }
    }

    /// A copy of the current state.
    pub fn state(&self) -> D::State {
        self.state.lock().expect("the device lives").clone()
    }

    /// Changes the state.
    pub fn change(&self, change: impl FnOnce(&mut D::State)) {
        change(&mut self.state.lock().expect("the device lives"));
    }

    /// A target with a new connection.
    pub fn open(&self, timeouts: Timeouts) -> Target {
        // Nothing listens at this address. Only targets whose connection ends at a reboot would use it.
        let address: Address = "tcp:127.0.0.1:1".parse().expect("an address");
        let line = Line {
            device: Direct::<D>::new(&self.state, &self.clock.passed),
            clock: Arc::clone(&self.clock),
        };
        Target::over(Box::new(line), address, timeouts)
    }
}
