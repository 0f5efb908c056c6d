//! Environment variables that control recording, so that a program need not be relinked.
//!
//! | variable | value |
//! |---|---|
//! | `KYMO_OUTPUT` | the file to record into; `%p` in it is the process id, `%%` a `%` |
//! | `KYMO_BUFFER` | bytes of each thread's buffer, with an optional suffix `k`, `M` or `G` (units of 1024); `0`: 4 MiB |
//! | `KYMO_MODE` | `overwrite`, `fixed` or `stream` |
//! | `KYMO_ON` | `1`: record from the start, `0`: wait for the trigger or `kymo_on()` |
//! | `KYMO_EXITS` | `named`: each exit names its function |
//! | `KYMO_THRESHOLD` | duration mode: record only calls that take at least this time: `100us`, `1ms`, `0`; or `off` |
//! | `KYMO_ENDED_THREADS` | the number of exited threads whose buffers are kept |
//! | `KYMO_SOCKET` | the socket on which the process serves `kymo`; `%p` as in `KYMO_OUTPUT` |
//!
//! They are ignored in a program that runs with privileges which its user does not have.

use core::fmt::Write as _;

use kymo_wire::link::Mode;

use crate::sys::{self, files};

fn variable(name: &[u8]) -> Option<&'static [u8]> {
    if files::is_privileged() {
        return None;
    }
    sys::environment(name).filter(|value| !value.is_empty())
}

/// `KYMO_OUTPUT`.
pub(crate) fn output() -> Option<&'static [u8]> {
    variable(b"KYMO_OUTPUT\0")
}

/// `KYMO_SOCKET`.
pub(crate) fn socket() -> Option<&'static [u8]> {
    variable(b"KYMO_SOCKET\0")
}

/// `KYMO_BUFFER`, rounded down to whole packets of this size. 0: the default size.
pub(crate) fn buffer_bytes(packet: u32) -> Option<u32> {
    let value = variable(b"KYMO_BUFFER\0")?;
    let least = packet.max(1).saturating_mul(2);
    match size(value) {
        Some(0) => Some(0),
        Some(bytes) if bytes >= least => Some(bytes - bytes % packet.max(1)),
        _ => {
            let mut expected = crate::text::Text::<120>::new();
            let _ = write!(
                expected,
                "0 (4 MiB), or {least} to {} bytes, such as 65536, 256k, 4M or 1G",
                u32::MAX
            );
            complain(b"KYMO_BUFFER", expected.bytes());
            None
        }
    }
}

/// `KYMO_MODE`.
pub(crate) fn mode() -> Option<Mode> {
    let value = variable(b"KYMO_MODE\0")?;
    let mode = core::str::from_utf8(value).ok().and_then(Mode::from_name);
    if mode.is_none() {
        complain(b"KYMO_MODE", b"overwrite, fixed or stream");
    }
    mode
}

/// `KYMO_ON`.
pub(crate) fn on() -> Option<bool> {
    match variable(b"KYMO_ON\0")? {
        b"1" => Some(true),
        b"0" => Some(false),
        _ => {
            complain(b"KYMO_ON", b"0 or 1");
            None
        }
    }
}

/// `KYMO_EXITS`.
pub(crate) fn names_exits() -> bool {
    match variable(b"KYMO_EXITS\0") {
        None => false,
        Some(b"named") => true,
        Some(_) => {
            complain(b"KYMO_EXITS", b"named");
            false
        }
    }
}

/// `KYMO_THRESHOLD`, in nanoseconds.
#[cfg(feature = "duration")]
pub(crate) fn threshold() -> Option<u64> {
    const EXPECTED: &[u8] = b"a time, such as 500ns, 100us, 1ms, 2s or 0, or off";
    let value = variable(b"KYMO_THRESHOLD\0")?;
    if value == b"off" {
        return None;
    }
    let time = time(value);
    if time.is_none() {
        complain(b"KYMO_THRESHOLD", EXPECTED);
    } else if usize::BITS < 64 {
        complain(b"KYMO_THRESHOLD", b"a program of 64 bits");
        return None;
    }
    time
}

/// Reports that `KYMO_THRESHOLD` is ignored, if it is set.
#[cfg(not(feature = "duration"))]
pub(crate) fn refuse_threshold() {
    if variable(b"KYMO_THRESHOLD\0").is_some_and(|value| value != b"off") {
        complain(b"KYMO_THRESHOLD", b"a library with the part duration");
    }
}

/// `KYMO_ENDED_THREADS`.
pub(crate) fn ended_threads() -> Option<u32> {
    let value = variable(b"KYMO_ENDED_THREADS\0")?;
    let number = size(value);
    if number.is_none() {
        complain(b"KYMO_ENDED_THREADS", b"a number of threads");
    }
    number
}

/// Parses a number with an optional suffix `k`, `M` or `G`.
fn size(value: &[u8]) -> Option<u32> {
    let (digits, unit) = match value.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        (b'g' | b'G', digits) => (digits, 1 << 30),
        _ => (value, 1),
    };
    let number: u32 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(unit)
}

/// Parses a time with its unit, or 0. Returns nanoseconds.
#[cfg(feature = "duration")]
fn time(value: &[u8]) -> Option<u64> {
    let value = core::str::from_utf8(value).ok()?;
    let end = value
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Reports on standard error what value a variable should have.
fn complain(name: &[u8], expected: &[u8]) {
    let mut message = crate::text::Text::<160>::new();
    message.put(b"kymo: ");
    message.put(name);
    message.put(b" is not used: expected ");
    message.put(expected);
    message.put(b"\n");
    sys::print(message.bytes());
}

#[cfg(test)]
mod tests {
    use super::size;
    #[cfg(feature = "duration")]
    use super::time;

    #[cfg(feature = "duration")]
    #[test]
    fn times_have_units() {
        assert_eq!(time(b"0"), Some(0));
        assert_eq!(time(b"500ns"), Some(500));
        assert_eq!(time(b"100us"), Some(100_000));
        assert_eq!(time(b"20ms"), Some(20_000_000));
        assert_eq!(time(b"2s"), Some(2_000_000_000));
        for wrong in [
            &b"5"[..],
            b"us",
            b"1.5ms",
            b"5 us",
            b"-1us",
            b"99999999999999s",
        ] {
            assert_eq!(time(wrong), None);
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(b"4096"), Some(4096));
        assert_eq!(size(b"64k"), Some(65536));
        assert_eq!(size(b"4M"), Some(4 << 20));
        assert_eq!(size(b"1G"), Some(1 << 30));
        assert_eq!(size(b"4096M"), None);
        assert_eq!(size(b"x"), None);
        assert_eq!(size(b""), None);
    }
}
