//! Fields of system calls with LTTng's names, which analyses use.
//!
//! A source numbers the arguments. For calls that do input and output, analyses require a file descriptor and a count,
//! by name, and fail without them ([`unknown`]). Other values that were not recorded are omitted.

use kymo_event::{Event, Field, TraceInfo, Value};

use super::classes::Type;

/// Field that identifies Linux's events of system calls.
pub(super) const NUMBER: &str = "__syscall_nr";

/// The arguments in a Linux event: all fields except the call's number, and those that all events have.
pub(super) fn own_fields(event: &Event) -> impl Iterator<Item = &Field> {
    let is_argument = |field: &&Field| ![NUMBER, "context"].contains(&field.name.as_ref());
    event.fields.iter().filter(is_argument)
}

/// Whether LTTng has a text in the system call field of this name.
pub(super) fn is_text(name: &str) -> bool {
    matches!(
        name,
        "filename" | "pathname" | "oldname" | "newname" | "path" | "name"
    )
}

/// The fields of a call's entry, in the order of its arguments; `None` for a call that is not listed here.
pub(super) fn fields(call: &str) -> Option<&'static [(&'static str, Type)]> {
    use Type::{Hex64, Int32, Int64, Text, Uint32, Uint64};
    Some(match call {
        "read" | "write" => &[("fd", Uint32), ("buf", Hex64), ("count", Uint64)],
        "readv" | "writev" => &[("fd", Uint32), ("vec", Hex64), ("vlen", Uint64)],
        "close" | "fsync" | "fdatasync" => &[("fd", Uint32)],
        "ftruncate" => &[("fd", Uint32), ("length", Uint64)],
        "lseek" => &[("fd", Uint32), ("offset", Int64), ("whence", Uint32)],
        "fstat" => &[("fd", Uint32), ("statbuf", Hex64)],
        "ioctl" | "fcntl" => &[("fd", Uint32), ("cmd", Uint32), ("arg", Hex64)],
        "open" => &[("filename", Text), ("flags", Int32), ("mode", Uint32)],
        "socket" => &[("family", Int32), ("type", Int32), ("protocol", Int32)],
        "accept" => &[
            ("fd", Int32),
            ("upeer_sockaddr", Hex64),
            ("upeer_addrlen", Hex64),
        ],
        "bind" | "connect" => &[("fd", Int32), ("uservaddr", Hex64), ("addrlen", Int32)],
        "recv" | "recvfrom" => &[
            ("fd", Int32),
            ("ubuf", Hex64),
            ("size", Uint64),
            ("flags", Uint32),
        ],
        "send" | "sendto" => &[
            ("fd", Int32),
            ("buff", Hex64),
            ("len", Uint64),
            ("flags", Uint32),
        ],
        "recvmsg" | "sendmsg" => &[("fd", Int32), ("msg", Hex64), ("flags", Uint32)],
        "poll" => &[("ufds", Hex64), ("nfds", Uint32), ("timeout_msecs", Int32)],
        "select" => &[
            ("n", Int32),
            ("inp", Hex64),
            ("outp", Hex64),
            ("exp", Hex64),
            ("tvp", Hex64),
        ],
        "mmap" => &[
            ("addr", Hex64),
            ("len", Uint64),
            ("prot", Uint64),
            ("flags", Uint64),
            ("fd", Uint64),
            ("offset", Uint64),
        ],
        _ => return None,
    })
}

/// A recorded argument or return value, by its index.
pub(super) fn argument(event: &Event, kind: &str, place: usize) -> Option<u64> {
    event.fields.iter().find_map(|field| match field.value {
        Value::Hex(value) | Value::Unsigned(value) => {
            let number = field.name.strip_prefix(kind)?;
            (number.parse() == Ok(place)).then_some(value)
        }
        _ => None,
    })
}

/// Default for a field that was not recorded, where lttnganalyses fails without one (`linuxautomaton/io.py`, `sv.py`):
/// an invalid file descriptor, nothing read or written. `None` for all other fields, which are optional.
pub(super) fn unknown(call: &str, field: &str) -> Option<u64> {
    const NONE: u64 = u64::MAX;
    let needs_file = matches!(
        call,
        "read"
            | "write"
            | "readv"
            | "writev"
            | "recvfrom"
            | "sendto"
            | "recvmsg"
            | "sendmsg"
            | "close"
    ) || matches!(call, "fsync" | "fdatasync" | "fcntl");
    match (call, field) {
        (_, "fd") if needs_file => Some(NONE),
        ("fcntl", "cmd") => Some(NONE),
        ("open", "filename" | "flags") | ("read" | "write", "count") => Some(0),
        ("readv" | "writev", "vlen") | ("recvfrom", "size") | ("sendto", "len") => Some(0),
        // lttnganalyses compares the return value of any call with 0.
        (_, "ret") => Some(0),
        _ => None,
    }
}

/// Whether the name of a function without an address is that of a call: names of other spans contain blanks.
pub(super) fn is_call(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(fits)
}

/// Whether an event is from ftrace's function tracers, whose text has no addresses, or a span that a program marks in
/// its trace; of complete calls only the exits are records.
pub(super) fn is_graph(info: &TraceInfo, event: &Event) -> bool {
    match &*event.name {
        "" => info.format == "ftrace",
        "function" | "print" | "tracing_mark_write" => true,
        name => name.starts_with("funcgraph_"),
    }
}
