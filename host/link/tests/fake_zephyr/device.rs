//! How the device behaves while somebody is connected.

use std::time::Duration;

use super::{Cut, State};
use crate::server::{Line, Speaks};

/// The device while somebody is connected.
pub struct Device {
    line: Line<State>,
    command: Vec<u8>,
    /// It answers nothing any more.
    dead: bool,
    /// Where in its chatter the program is.
    said: usize,
}

impl Speaks for Device {
    type State = State;

    fn new(line: Line<State>) -> Self {
        Self {
            line,
            command: Vec::new(),
            dead: false,
            said: 0,
        }
    }

    fn line(&mut self) -> &mut Line<State> {
        &mut self.line
    }

    fn take(&mut self, bytes: &[u8]) {
        self.with(|state| state.received.extend_from_slice(bytes));
        for &byte in bytes {
            self.byte(byte);
        }
    }

    fn act(&mut self) {
        self.chat();
    }
}

impl Device {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        self.line.with(f)
    }

    /// The program prints a part of a line, so that replies stand in the middle of it.
    fn chat(&mut self) {
        let Some(chatter) = self.with(|state| state.chatter).filter(|_| !self.dead) else {
            return;
        };
        let part: Vec<u8> = chatter.bytes().cycle().skip(self.said).take(7).collect();
        self.said = (self.said + part.len()) % chatter.len();
        self.write(&part);
    }

    /// As the interrupt handler takes it: what is no character is ignored, and 31 are all that fit.
    fn byte(&mut self, byte: u8) {
        if byte == b'\r' {
            let command = std::mem::take(&mut self.command);
            self.understand(&command);
        } else if (b' '..=b'~').contains(&byte) && self.command.len() < 31 {
            self.command.push(byte);
        }
    }

    fn understand(&mut self, command: &[u8]) {
        if self.dead {
            return;
        }
        let lost = self.with(|state| {
            let lost = state.lost_commands > 0;
            state.lost_commands = state.lost_commands.saturating_sub(1);
            lost
        });
        if lost {
            return;
        }
        let torn = self.with(|state| {
            let torn = state.torn_commands > 0;
            state.torn_commands = state.torn_commands.saturating_sub(1);
            torn
        });
        let command = command.get(usize::from(torn)..).unwrap_or_default();
        let text = String::from_utf8(command.to_vec()).expect("characters");
        self.with(|state| state.lines.push(text.clone()));
        let (takes, needs) = self.with(|state| (state.takes_prefix, state.needs_prefix));
        let bare = match text.strip_prefix("instr_") {
            Some(bare) if takes => bare,
            _ if needs => return,
            _ => &text,
        };
        if let Some(dump) = self.with(|state| state.unasked.pop_front()) {
            self.dump(&dump);
        }
        self.handle(bare);
    }

    /// Carries out a command. All but two are compared over the length of what was received.
    fn handle(&mut self, command: &str) {
        let is = |name: &str| name.starts_with(command);
        if is("reboot") {
            self.reboot();
        } else if is("status") {
            let status = self.with(|state| state.status);
            self.say(status);
        } else if is("ping") {
            self.say("pong");
        } else if is("dump_trace") {
            let records = self.with(|state| {
                state.dumped += 1;
                let first = state.dumped == 1;
                let records = state.trace.clone()?;
                Some(if first { records } else { Vec::new() })
            });
            if let Some(records) = records {
                self.dump(&records);
            }
        } else if is("dump_profile") {
            if let Some(entries) = self.with(|state| state.profile.clone()) {
                self.dump(&entries);
            }
        } else if let Some(argument) = command.strip_prefix("trigger") {
            match strtol(argument) {
                Some(address) => self.with(|state| state.trigger = address),
                None => self.say(&format!("trigger: invalid argument in: '{command}'")),
            }
        } else if let Some(argument) = command.strip_prefix("stopper") {
            match strtol(argument) {
                Some(address) => self.with(|state| state.stopper = address),
                None => self.say(&format!("stopper: invalid argument in: '{command}'")),
            }
        } else if is("listsets") {
            let (trigger, stopper) = self.with(|state| (state.trigger, state.stopper));
            for (name, address) in [("trigger", trigger), ("stopper", stopper)] {
                match address {
                    0 => self.say(&format!("{name}: not set.")),
                    address => self.say(&format!("{name}: {address:#x}")),
                }
            }
        } else if let Some(stranger) = self.with(|state| state.stranger) {
            self.say(stranger);
        } else {
            self.say(&format!("invalid command {command}"));
        }
    }

    fn reboot(&mut self) {
        let banner = self.with(|state| {
            state.reboots += 1;
            state.dumped = 0;
            if !state.retained {
                (state.trigger, state.stopper) = (0x829, 0x829);
            }
            state.banner
        });
        self.command.clear();
        self.write(banner.as_bytes());
    }

    /// Sends records between the two marks.
    fn dump(&mut self, records: &[u8]) {
        let cut = self.with(|state| state.cut.take_if(|(at, _)| *at <= records.len()));
        let Some((at, cut)) = cut else {
            let dump = [b"-*-#", records, b"-*-!\r\n"].concat();
            return self.write(&dump);
        };
        self.write(&[b"-*-#", &records[..at]].concat());
        match cut {
            Cut::Dead => self.dead = true,
            Cut::Reboot => self.reboot(),
            Cut::Close => self.line.gone = true,
            Cut::Lost(bytes) => {
                self.write(&[&records[at + bytes..], b"-*-!\r\n"].concat());
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.write(format!("{text}\r\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        let pieces = self.with(|state| state.fragments);
        let sent = self.line.send(bytes, pieces, Duration::from_millis(1));
        self.line.gone |= sent.is_err();
    }
}

/// A number of base 16 as C reads it on a 32-bit target; `None` if there is none.
fn strtol(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let text = text.strip_prefix("0x").unwrap_or(text);
    let end = text
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(text.len());
    let magnitude = i64::from_str_radix(text.get(..end)?, 16).ok()?;
    let number = if negative { -magnitude } else { magnitude };
    let number = number.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    Some(i32::try_from(number).ok()? as u32)
}
