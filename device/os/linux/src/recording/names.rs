//! The names of files that processes record into, and what becomes of files that have them already.
//!
//! Programs begin at once with one name, and each must get a file of its own. A file is made under a name
//! that only its process uses, locked (`flock`) and given its header, and gets its real name by a link, which
//! fails where there is one: nobody sees it before it is locked. An older file is renamed by who holds its
//! lock, after a look at whether the name is still that file's. The lock is gone where a program closes all its
//! descriptors, so the header counts too, which says which process records.

use core::ffi::c_int;
use core::fmt::Write as _;

use kymo_wire::process_file::{MAGIC, header};

use crate::save::Text;
use crate::sys::files::{self, EEXIST, ENOENT, Kind};
use crate::sys::{self, Errno};

/// The longest path, with its zero byte.
const PATH: usize = 4096;

/// How many names are tried where files exist.
const NAMES: u32 = 10_000;

/// How many links are followed, as the kernel has it.
const LINKS: u32 = 40;

/// Room for paths, in memory of its own: hooks may run on small stacks. All zero is none.
pub(super) struct Names {
    /// What `KYMO_OUTPUT` says, made absolute.
    pub pattern: Text<PATH>,
    /// The same for this process, links followed.
    base: Text<PATH>,
    /// The file of this process, with a zero byte.
    path: Text<PATH>,
    /// What it is called before it has that name.
    temporary: Text<PATH>,
    /// What an older one is called.
    old: Text<PATH>,
    /// The name is this process's own: older files of that name stay.
    own: bool,
}

impl Names {
    /// The path of the file, with a zero byte.
    pub fn path(&self) -> &[u8] {
        self.path.bytes()
    }

    /// The path that the file has before.
    pub fn temporary(&self) -> &[u8] {
        self.temporary.bytes()
    }

    /// Finds the path of the process's file: the pattern with `%p` replaced by the number of the process (`%%`
    /// is one `%`); without `%p` a fork adds its number. Links are followed. False if what has the name is
    /// no file but a device, a pipe, or a link of `/dev` or `/proc` to an open file: it is written to at the
    /// end, and neither replaced nor renamed.
    ///
    /// # Errors
    /// The system's.
    pub fn resolve(&mut self, child: bool) -> Result<bool, Errno> {
        let with_process = expand(self.pattern.bytes(), &mut self.base);
        if child && !with_process {
            let _ = write!(self.base, ".{}", sys::process());
        }
        self.base.end();
        self.own = with_process || child;
        let found = follow(&mut self.base, &mut self.path);
        self.number(0);
        found
    }

    /// Has a number, if it is not 0, added to the path.
    fn number(&mut self, number: u32) {
        let Self { base, path, .. } = self;
        put_before_zero(path, base);
        if number != 0 {
            let _ = write!(path, ".{number}");
        }
        path.end();
    }

    /// A name for the file of this process that no other one uses, with a number if that is not 0.
    pub fn choose_temporary(&mut self, ending: &str, number: u32) {
        let Self {
            base, temporary, ..
        } = self;
        put_before_zero(temporary, base);
        let _ = write!(temporary, ".{}.{ending}", sys::process());
        if number != 0 {
            let _ = write!(temporary, "{number}");
        }
        temporary.end();
    }

    /// Makes a new file, locked, under a temporary name.
    ///
    /// # Errors
    /// The system's.
    pub fn create(&mut self) -> Result<c_int, Errno> {
        let mut result = Err(EEXIST);
        for number in 0..16 {
            self.choose_temporary("new", number);
            result = files::create_new(self.temporary());
            if result != Err(EEXIST) {
                break;
            }
        }
        let file = result?;
        // Where the file system has no locks the header has to do.
        let _ = files::lock(file);
        Ok(file)
    }

    /// Gives the file with the temporary name a name that no other process has.
    ///
    /// # Errors
    /// The system's.
    pub fn claim(&mut self) -> Result<(), Errno> {
        let mut kept = 0;
        let mut number = 0;
        while number < NAMES {
            self.number(number);
            match files::rename_new(self.temporary(), self.path()) {
                Err(EEXIST) => {}
                other => return other,
            }
            // Those of a tree of processes stay; so does that of one that still records, as of this
            // process before it called exec.
            if !self.own && number == 0 && kept < 4 && self.keep_old() {
                kept += 1;
            } else {
                number += 1;
            }
        }
        Err(EEXIST)
    }

    /// Renames an older recording; false if it has to stay.
    fn keep_old(&mut self) -> bool {
        let Self { path, old, .. } = self;
        put_before_zero(old, path);
        old.put(b".old");
        old.end();
        // What is replaced may be another process's too.
        let replaced = match files::status(old.bytes()) {
            Err(ENOENT) => None,
            _ => match lock_unused(old.bytes()) {
                Ok(file) => Some(file),
                Err(_) => return false,
            },
        };
        let gone = match lock_unused(path.bytes()) {
            Ok(file) => {
                let renamed = files::rename(path.bytes(), old.bytes()).is_ok();
                files::close(file);
                renamed
            }
            // Somebody else has renamed it.
            Err(error) => error == ENOENT,
        };
        if let Some(file) = replaced {
            files::close(file);
        }
        gone
    }
}

/// Opens a regular file that no process records into, and locks it.
fn lock_unused(path: &[u8]) -> Result<c_int, Errno> {
    let status = files::status(path)?;
    if status.kind != Kind::File {
        return Err(EEXIST);
    }
    let file = files::open_to_lock(path)?;
    let own = match files::lock(file) {
        Err(files::EAGAIN) => Err(EEXIST),
        _ if is_in_use(file) => Err(EEXIST),
        _ if files::status(path) == Ok(status) && files::status_of(file) == Ok(status) => Ok(()),
        // The name is another file's by now.
        _ => Err(ENOENT),
    };
    if let Err(error) = own {
        files::close(file);
        return Err(error);
    }
    Ok(file)
}

/// Whether the process that records into a file still runs.
fn is_in_use(file: c_int) -> bool {
    let mut head = [0; header::LOST];
    if !files::read_at_start(file, &mut head) || !head.starts_with(&MAGIC) {
        return false;
    }
    let field = |at: usize| head.get(at..);
    let process = field(header::PROCESS).and_then(|it| it.first_chunk());
    let started = field(header::STARTED).and_then(|it| it.first_chunk());
    let (Some(process), Some(started)) = (process, started) else {
        return false;
    };
    files::started(u32::from_ne_bytes(*process)) == Some(u64::from_ne_bytes(*started))
}

/// Writes what is in `from`, but for its zero byte.
fn put_before_zero(to: &mut Text<PATH>, from: &Text<PATH>) {
    to.clear();
    let bytes = from.bytes();
    to.put(bytes.strip_suffix(&[0]).unwrap_or(bytes));
}

/// Writes the pattern with `%p` replaced; whether there is one.
pub(crate) fn expand<const N: usize>(pattern: &[u8], path: &mut Text<N>) -> bool {
    path.clear();
    let mut with_process = false;
    let mut rest = pattern;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind.first()) {
            (b'%', Some(b'p')) => {
                let _ = write!(path, "{}", sys::process());
                with_process = true;
                rest = behind.get(1..).unwrap_or(&[]);
            }
            (b'%', Some(b'%')) => {
                path.put(b"%");
                rest = behind.get(1..).unwrap_or(&[]);
            }
            _ => path.put(&[*first]),
        }
    }
    with_process
}

/// Follows links from a path, which becomes that of a file, or of none; false if it is something else.
fn follow(path: &mut Text<PATH>, room: &mut Text<PATH>) -> Result<bool, Errno> {
    for _ in 0..LINKS {
        match files::status(path.bytes()).map(|status| status.kind) {
            Ok(Kind::Link) => {}
            Ok(Kind::Folder) => return Err(files::EISDIR),
            Ok(Kind::Other) => return Ok(false),
            // Nothing there yet; or the kernel does not say, and making the file does.
            Ok(Kind::File) | Err(_) => return Ok(true),
        }
        // Such a link stands for what is open: a terminal, a pipe, a file that somebody else writes.
        if [&b"/proc/"[..], b"/dev/"]
            .iter()
            .any(|it| path.bytes().starts_with(it))
        {
            return Ok(false);
        }
        let mut target = [0; 1024];
        let target = files::link_target(path.bytes(), &mut target)?;
        room.clear();
        if !target.starts_with(b"/") {
            let folder = path.bytes().iter().rposition(|byte| *byte == b'/');
            room.put(
                path.bytes()
                    .get(..folder.map_or(0, |at| at + 1))
                    .unwrap_or(&[]),
            );
        }
        room.put(target);
        put_before_zero(path, room);
        path.end();
    }
    Err(files::ELOOP)
}
