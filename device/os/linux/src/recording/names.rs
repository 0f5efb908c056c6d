//! Names of the files that processes record into, and the renaming of older files with the same name.
//!
//! Several programs may start at once with one name, and each must get a file of its own. A file is created under a
//! name that only its process uses, locked (`flock`), and its header is written. Then it gets its real name by a link,
//! which fails if the name exists: no other process sees the file before it is locked. A process renames an older file
//! while holding its lock, and after checking that the name still refers to that file. The lock is lost if a program
//! closes all its descriptors, so the header counts as well, which identifies the recording process.

use core::ffi::c_int;
use core::fmt::Write as _;

use kymo_wire::process_file::{MAGIC, header};

use crate::sys::files::{self, EEXIST, ENOENT, Kind};
use crate::sys::{self, Errno};
use crate::text::Text;

/// Maximum length of a path, with its zero byte.
const PATH: usize = 4096;

/// Number of names that are tried if files exist.
const NAMES: u32 = 10_000;

/// Maximum number of symbolic links followed; the kernel's limit.
const LINKS: u32 = 40;

/// Buffers for paths, in memory of their own, because hooks may run on small stacks. All zero means none.
pub(super) struct Names {
    /// `KYMO_OUTPUT`, made absolute.
    pub pattern: Text<PATH>,
    /// The path for this process, after following links.
    base: Text<PATH>,
    /// The path of this process's file, with a zero byte.
    path: Text<PATH>,
    /// The temporary path before the file gets that name.
    temporary: Text<PATH>,
    /// The path to which an older file is renamed.
    old: Text<PATH>,
    /// Whether the name belongs to this process alone: older files of that name are not renamed.
    own: bool,
}

impl Names {
    /// Returns the path of the file, with a zero byte.
    pub fn path(&self) -> &[u8] {
        self.path.bytes()
    }

    /// Returns the temporary path, with a zero byte.
    pub fn temporary(&self) -> &[u8] {
        self.temporary.bytes()
    }

    /// Determines the path of the process's file: the pattern with `%p` replaced by the process id (`%%` is one `%`);
    /// without `%p` a fork appends its process id. Links are followed. Returns false if the name is not that of a
    /// regular file, but of a device, a pipe, or a link in `/dev` or `/proc` to an open file. Such a file is written to
    /// at the end, and neither replaced nor renamed.
    ///
    /// # Errors
    /// The system's error.
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

    /// Appends a number to the path, if it is not 0.
    fn number(&mut self, number: u32) {
        let Self { base, path, .. } = self;
        put_before_zero(path, base);
        if number != 0 {
            let _ = write!(path, ".{number}");
        }
        path.end();
    }

    /// Chooses a name for this process's file that no other process uses, with a number if that is not 0.
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

    /// Creates a new, locked file under a temporary name.
    ///
    /// # Errors
    /// The system's error.
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
        // If the file system has no locks, the header has to suffice.
        let _ = files::lock(file);
        Ok(file)
    }

    /// Renames the file with the temporary name to a name that no other process has.
    ///
    /// # Errors
    /// The system's error.
    pub fn claim(&mut self) -> Result<(), Errno> {
        let mut kept = 0;
        let mut number = 0;
        while number < NAMES {
            self.number(number);
            match files::rename_new(self.temporary(), self.path()) {
                Err(EEXIST) => {}
                other => return other,
            }
            // Files of a tree of processes are not renamed. Nor is that of a process that still records, such as this
            // process before it called exec.
            if !self.own && number == 0 && kept < 4 && self.keep_old() {
                kept += 1;
            } else {
                number += 1;
            }
        }
        Err(EEXIST)
    }

    /// Renames an older recording; returns false if it must not be renamed.
    fn keep_old(&mut self) -> bool {
        let Self { path, old, .. } = self;
        put_before_zero(old, path);
        old.put(b".old");
        old.end();
        // The file to be replaced may be another process's, too.
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
            // Another process has renamed it.
            Err(error) => error == ENOENT,
        };
        if let Some(file) = replaced {
            files::close(file);
        }
        gone
    }
}

/// Opens and locks a regular file that no process records into.
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
        // The name refers to another file by now.
        _ => Err(ENOENT),
    };
    if let Err(error) = own {
        files::close(file);
        return Err(error);
    }
    Ok(file)
}

/// Returns whether the process that records into a file still runs.
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

/// Copies the bytes of `from`, except its zero byte.
fn put_before_zero(to: &mut Text<PATH>, from: &Text<PATH>) {
    to.clear();
    let bytes = from.bytes();
    to.put(bytes.strip_suffix(&[0]).unwrap_or(bytes));
}

/// Expands `%p` and `%%` in the pattern; returns whether it contains `%p`.
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

/// Follows links from a path, which becomes that of a file, or of none; returns false if it is something else.
fn follow(path: &mut Text<PATH>, room: &mut Text<PATH>) -> Result<bool, Errno> {
    for _ in 0..LINKS {
        match files::status(path.bytes()).map(|status| status.kind) {
            Ok(Kind::Link) => {}
            Ok(Kind::Folder) => return Err(files::EISDIR),
            Ok(Kind::Other | Kind::Socket) => return Ok(false),
            // Nothing there yet. Or the kernel does not tell, and the creation of the file will.
            Ok(Kind::File) | Err(_) => return Ok(true),
        }
        // Such a link refers to something that is open: a terminal, a pipe, a file that another process writes.
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
