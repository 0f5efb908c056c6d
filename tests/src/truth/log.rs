//! Log of every instruction that a firmware executes in QEMU: a plugin writes it, and it is read while the firmware
//! runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Command};

use super::code::Code;
use super::replay::{Replay, Truth};
use kymo_targets::run::{self, Context, Error, Result};

/// The compiled plugin.
#[derive(Debug)]
pub struct Plugin {
    file: PathBuf,
}

impl Plugin {
    /// Compiles the plugin with this machine's compiler for the installed QEMU.
    ///
    /// # Errors
    /// When there is no compiler, or QEMU was built without plugins.
    pub fn build() -> Result<Self> {
        let help = run::output(Command::new("qemu-system-arm").arg("--help"))?;
        if !help.contains("-plugin") {
            return Err(Error::new("this QEMU was built without plugins"));
        }
        let version = run::output(Command::new("qemu-system-arm").arg("--version"))?;
        let major = version.split_whitespace().find_map(|word| {
            let (major, _) = word.split_once('.')?;
            major.parse::<u32>().ok()
        });
        let interface = if major.is_some_and(|major| major >= 9) {
            2
        } else {
            1
        };
        let folder = run::target_dir().join("truth");
        fs::create_dir_all(&folder).context(folder.display())?;
        let file = folder.join("executed.so");
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .arg(format!("-DPLUGIN_VERSION={interface}"))
            .arg(run::root().join("tests/src/truth/executed.c"));
        run::make(&mut compiler, &file)?;
        Ok(Self { file })
    }

    /// QEMU's arguments for the plugin. `switch` is the name of the function that switches threads.
    pub fn arguments(&self, code: &Code, switch: &str) -> Result<[String; 2]> {
        let symbol = code.symbol(switch);
        let symbol = symbol.ok_or_else(|| Error::new(format!("the firmware has no {switch}")))?;
        let (from, to) = (symbol.address, symbol.address + symbol.size);
        let file = self.file.display();
        Ok([
            "-plugin".to_owned(),
            format!("{file},from={from:x},to={to:x}"),
        ])
    }
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The instruction at this address was executed.
    Executed(u32),
    /// The function that switches threads loaded from this address.
    Loaded(u32),
}

/// Discards the rest of the plugin's output until QEMU ends. Without a reader the plugin would block QEMU.
pub fn drain(mut log: ChildStdout) {
    // After a read error there is nothing more to discard.
    let _ = io::copy(&mut log, &mut io::sink());
}

/// Passes each entry of the plugin's output to `take` until it returns `true` or fails.
fn read(log: &mut ChildStdout, mut take: impl FnMut(Entry) -> Result<bool>) -> Result<()> {
    let mut bytes = vec![0; 1 << 16];
    let mut have = 0;
    let mut result = Ok(false);
    while let Ok(false) = result {
        let read = log.read(&mut bytes[have..]).context("what QEMU executes")?;
        if read == 0 {
            return Err(Error::new("QEMU ended before the watched function did"));
        }
        have += read;
        let whole = have - have % 4;
        for entry in bytes[..whole].chunks_exact(4) {
            let entry = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
            result = take(match entry & 1 {
                0 => Entry::Executed(entry),
                _ => Entry::Loaded(entry & !1),
            });
            if !matches!(result, Ok(false)) {
                break;
            }
        }
        bytes.copy_within(whole..have, 0);
        have -= whole;
    }
    result.map(drop)
}

/// Reads the plugin's output, and counts the instructions within the function `window`. The caller must [`drain`] the
/// log afterwards.
///
/// # Errors
/// When QEMU ends before `window` was exited, or the instructions contradict the code (see [`Replay::executes`]).
pub fn count(log: &mut ChildStdout, code: &Code, window: u32) -> Result<Truth> {
    let mut replay = Replay::new(code, window);
    read(log, |entry| {
        match entry {
            Entry::Executed(address) => replay.executes(address)?,
            Entry::Loaded(address) => replay.loads(address),
        }
        Ok(replay.done())
    })?;
    Ok(replay.truth())
}

/// Counts the executed instructions of each symbol in a program without hooks, in all threads and handlers, from the
/// call of the function `window` to its return.
///
/// # Errors
/// When QEMU ends before `window` has returned.
pub fn by_symbol(log: &mut ChildStdout, code: &Code, window: u32) -> Result<BTreeMap<String, u64>> {
    let mut counts = vec![0u64; code.symbols.len()];
    let mut last = None;
    // The symbol that called `window`: its next instruction shows that `window` has returned.
    let mut caller = None;
    read(log, |entry| {
        let Entry::Executed(address) = entry else {
            return Ok(false);
        };
        let symbol = code.symbol_index(address);
        if address == window && caller.is_none() {
            caller = last;
        } else if caller.is_some() && symbol == caller {
            return Ok(true);
        }
        last = symbol;
        if let Some(count) = symbol.and_then(|symbol| counts.get_mut(symbol))
            && caller.is_some()
        {
            *count += 1;
        }
        Ok(false)
    })?;
    let symbols = code.symbols.iter().map(|symbol| symbol.name.clone());
    Ok(symbols
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .collect())
}
