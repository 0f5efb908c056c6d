//! Input from the host: a greeting, and commands of one byte.

use kymo_systemview::{Command, SERIAL_HELLO, TCP_HELLO};

use crate::{Greeting, Part, Port, Recorder};

/// Bit of a greeting among the pending requests. (The bit of a command is its number.)
const HELLO: u32 = 1 << 31;

const fn bit(command: Command) -> u32 {
    1 << (command as u32)
}

impl<P: Port> Recorder<P> {
    /// Begins a connection (TCP): the greeting comes next. Discards pending requests.
    pub fn connected(&self) {
        self.port().locked(|| {
            let state = &self.state;
            for word in [
                &state.requested,
                &state.greeted,
                &state.message,
                &state.parameter,
            ] {
                word.set(0);
            }
            // Packets recorded for the previous connection would precede the greeting.
            state.on.set(0);
        });
    }

    /// Takes a byte that arrived from the host. Callable from any context, interrupt handlers included;
    /// [`Recorder::poll`] executes the request.
    pub fn receive(&self, byte: u8) {
        let greeting = self.port().system().greeting;
        self.port().locked(|| {
            let is_command = match greeting {
                Greeting::None => true,
                Greeting::Serial => self.is_behind_serial_greeting(byte),
                Greeting::Tcp => self.is_in_message(byte),
            };
            if is_command {
                self.command(byte);
            }
        });
    }

    /// A serial line can restart at any time: no command has the bytes of the greeting.
    fn is_behind_serial_greeting(&self, byte: u8) -> bool {
        let seen = self.state.greeted.get();
        let (next, is_command) = match (seen, byte) {
            (0 | 1, b'S') => (1, false),
            (1, b'V') => (2, false),
            (0 | 1, _) => (0, true),
            (2, _) => (3, false),
            _ => {
                self.request(HELLO);
                (0, false)
            }
        };
        self.state.greeted.set(next);
        is_command
    }

    fn is_in_message(&self, byte: u8) -> bool {
        let state = &self.state;
        let greeted = state.greeted.get();
        if greeted < TCP_HELLO.len() as u32 {
            state.greeted.set(greeted + 1);
            if greeted + 1 == TCP_HELLO.len() as u32 {
                self.request(HELLO);
            }
            return false;
        }
        match state.message.get() {
            0 => {
                state.message.set(byte.into());
                false
            }
            left => {
                state.message.set(left - 1);
                true
            }
        }
    }

    fn command(&self, byte: u8) {
        if self.state.parameter.get() != 0 {
            // The parameter is the number of a module. All modules are described at once.
            self.state.parameter.set(0);
            return;
        }
        self.state.parameter.set((byte >= 128).into());
        // Of start and stop the last one counts.
        let [start, stop] = [Command::Start, Command::Stop].map(bit);
        let requested = self.state.requested.get();
        if let 1..=7 = byte
            && (start | stop) & 1 << byte != 0
        {
            self.state.requested.set(requested & !(start | stop));
        }
        match byte {
            1..=7 => self.request(1 << byte),
            128 => self.request(bit(Command::ModuleDescriptions)),
            _ => {}
        }
    }

    fn request(&self, bits: u32) {
        self.state.requested.set(self.state.requested.get() | bits);
    }

    /// Returns whether [`Recorder::poll`] has work to do.
    pub fn is_requested(&self) -> bool {
        self.state.requested.get() != 0
    }

    /// Executes the host's requests. Call it from one context that may block.
    pub fn poll(&self) {
        let requested = self.port().locked(|| {
            let requested = self.state.requested.get();
            self.state.requested.set(0);
            requested
        });
        let is = |command| requested & bit(command) != 0;
        if requested & HELLO != 0 {
            let hello: &[u8] = match self.port().system().greeting {
                Greeting::Serial => &SERIAL_HELLO,
                _ => &TCP_HELLO,
            };
            // Earlier packets belong to another recording, and would be in the middle of the new one's start.
            self.state.on.set(0);
            if !self.port().locked(|| self.write(hello)) {
                self.port().locked(|| self.request(requested));
                return;
            }
        }
        if is(Command::Stop) {
            self.stop();
        }
        // The start includes everything else that can be requested.
        if is(Command::Start) {
            if !self.start() {
                self.port().locked(|| self.request(bit(Command::Start)));
            }
            return;
        }
        if is(Command::SystemTime) {
            self.send_time();
        }
        if is(Command::TaskList) {
            self.port().describe(self, Part::Tasks);
        }
        if is(Command::SystemDescription) {
            self.port().describe(self, Part::System);
        }
        if is(Command::ModuleCount) || is(Command::ModuleDescriptions) {
            self.send_modules();
        }
    }
}
