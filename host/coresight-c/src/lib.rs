//! C interface of `kymo-coresight`; `include/kymo_coresight.h` documents each function.
//!
//! Each function checks its pointers, calls the crate, and converts the results to C structs. A panic, which would be a
//! defect of the decoder, becomes an error and does not reach C. All unsafe code of the decoder is in this crate.

mod values;
mod warnings;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::doubts::Doubts;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::{self, TraceId};
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::memory::{Bytes, Image, MemorySpace};
use kymo_coresight::selection::Selection;
use kymo_coresight::snapshot::Snapshot;
use kymo_coresight::{Source, perf, remarks};

use values::{Element, Packet, Run, SourceValue, Totals};
use warnings::Warnings;

/// Trace with its sources and their memory.
#[derive(Debug)]
pub struct Trace {
    buffers: Vec<Buffer>,
    missing: Vec<CString>,
    warnings: Warnings,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Converts a text to a C string, with NUL bytes replaced by spaces.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

fn fail(message: impl ToString) {
    ERROR.with_borrow_mut(|error| *error = text(&message.to_string()));
}

/// Runs `work`. Returns 0, or -1 after storing the error.
fn status(work: impl FnOnce() -> Result<(), String>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(message)) => {
            fail(message);
            -1
        }
        Err(_) => {
            fail("a defect of the decoder; please report it with the trace");
            -1
        }
    }
}

/// Runs `work`. Returns its trace, owned by the caller, or NULL if it failed.
fn make(work: impl FnOnce() -> Result<Trace, String>) -> *mut Trace {
    let mut made = std::ptr::null_mut();
    status(|| {
        made = Box::into_raw(Box::new(work()?));
        Ok(())
    });
    made
}

/// # Safety
/// `text` is NULL, or a string that ends with a zero byte.
unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, String> {
    if text.is_null() {
        return Err("expected a path, found NULL".into());
    }
    // SAFETY: it is not NULL, and the caller guarantees that it is a string.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| "expected a path in UTF-8")?;
    Ok(Path::new(text))
}

/// # Safety
/// `bytes` is NULL, or points to `size` bytes.
unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> Result<&'a [u8], String> {
    match (bytes.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(format!("expected {size} bytes, found NULL")),
        // SAFETY: it is not NULL, and the caller guarantees `size` bytes.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes, size) }),
    }
}

/// # Safety
/// `trace` is NULL, or a trace of this library that no other thread uses meanwhile.
unsafe fn reference<'a>(trace: *const Trace) -> Result<&'a Trace, String> {
    // SAFETY: the caller guarantees that it is NULL or a trace.
    unsafe { trace.as_ref() }.ok_or_else(|| "expected a trace, found NULL".into())
}

/// # Safety
/// As [`reference`], and nothing else refers to the trace.
unsafe fn reference_mut<'a>(trace: *mut Trace) -> Result<&'a mut Trace, String> {
    // SAFETY: the caller guarantees that it is NULL, or a trace that only the caller refers to.
    unsafe { trace.as_mut() }.ok_or_else(|| "expected a trace, found NULL".into())
}

fn open(path: &Path, root: &Path) -> Result<Trace, String> {
    let printed = |error: kymo_coresight::Error| error.to_string();
    if Snapshot::is_at(path) {
        let (buffers, missing) =
            input::open_snapshot(path, &Default::default()).map_err(printed)?;
        let files = missing.iter().map(|error| text(&error.to_string()));
        return Ok(Trace {
            buffers,
            missing: files.collect(),
            warnings: Warnings::of(remarks::of_snapshot(missing.iter()), Vec::new()),
        });
    }
    let mut recording = perf::open(path).map_err(printed)?;
    let mut files = perf::Files::below(vec![root.to_owned()]);
    let missing = recording.load(|mapping| files.images(mapping));
    let mut opened = remarks::of_recording(&recording, &missing);
    opened.extend(files.remarks());
    let names = missing.iter().map(|missing| text(&missing.mapping.path));
    Ok(Trace {
        missing: names.collect(),
        warnings: Warnings::of(opened, missing),
        buffers: recording.buffers,
    })
}

/// See the header.
///
/// # Safety
/// `path` is a string, `root` a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_open(
    file: *const c_char,
    root: *const c_char,
) -> *mut Trace {
    make(|| {
        // SAFETY: the caller guarantees that it is a string.
        let file = unsafe { path(file) }?;
        let root = match root.is_null() {
            true => Path::new("/"),
            // SAFETY: the caller guarantees that it is a string.
            false => unsafe { path(root) }?,
        };
        open(file, root)
    })
}

/// See the header.
///
/// # Safety
/// `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_of_bytes(
    data: *const u8,
    size: usize,
    layout: u32,
) -> *mut Trace {
    make(|| {
        // SAFETY: the caller guarantees `size` bytes.
        let data = unsafe { bytes(data, size) }?;
        let frames = frames::split(data, values::layout(layout)?, TraceId::NONE).into_owned();
        let buffer = Buffer {
            name: "memory".into(),
            sources: Vec::new(),
            code: Vec::new(),
            frames,
            thread: None,
        };
        Ok(Trace {
            buffers: vec![buffer],
            missing: Vec::new(),
            warnings: Warnings::default(),
        })
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `source` points to one; NULL is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_add_source(
    trace: *mut Trace,
    source: *const SourceValue,
) -> c_int {
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference_mut(trace) }?;
        // SAFETY: NULL, or a source.
        let source = unsafe { source.as_ref() }.ok_or("expected a source, found NULL")?;
        let protocol = source.protocol()?;
        trace.warnings.forget();
        for buffer in &mut trace.buffers {
            let code = buffer.code.first().cloned().unwrap_or_default();
            buffer.sources.push(Source {
                id: protocol.trace_id(),
                name: format!("source{}", buffer.sources.len()),
                cpu: None,
                protocol,
            });
            buffer.code.push(code);
        }
        Ok(())
    })
}

fn add(
    trace: &mut Trace,
    name: String,
    address: u64,
    bytes: Bytes,
    file_offset: u64,
    space: u8,
) -> Result<(), String> {
    if trace.buffers.iter().any(|buffer| buffer.code.is_empty()) {
        return Err("expected a source before the memory of its core".into());
    }
    let image = Image {
        name,
        address,
        file_offset,
        bytes,
        space: if space == 0 {
            MemorySpace::ANY
        } else {
            MemorySpace(space)
        },
    };
    trace.warnings.forget();
    let buffers = trace.buffers.iter_mut();
    for code in buffers.flat_map(|buffer| &mut buffer.code) {
        code.add(image.clone());
    }
    Ok(())
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_add_memory(
    trace: *mut Trace,
    address: u64,
    data: *const u8,
    size: usize,
    space: u8,
) -> c_int {
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference_mut(trace) }?;
        // SAFETY: the caller guarantees `size` bytes.
        let data = unsafe { bytes(data, size) }?.to_vec();
        add(trace, "memory".into(), address, data.into(), 0, space)
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `file` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_add_file(
    trace: *mut Trace,
    address: u64,
    file: *const c_char,
    offset: u64,
    size: u64,
    space: u8,
) -> c_int {
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference_mut(trace) }?;
        // SAFETY: the caller guarantees that it is a string.
        let file = unsafe { path(file) }?;
        let name = file.display().to_string();
        let all = std::fs::read(file).map_err(|error| format!("{name}: {error}"))?;
        let part = Bytes::from(all).part(offset, size);
        add(trace, name, address, part, offset, space)
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_buffers(trace: *const Trace) -> usize {
    // SAFETY: the caller's trace.
    unsafe { reference(trace) }.map_or(0, |trace| trace.buffers.len())
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_missing(trace: *const Trace) -> usize {
    // SAFETY: the caller's trace.
    unsafe { reference(trace) }.map_or(0, |trace| trace.missing.len())
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_missing_file(
    trace: *const Trace,
    index: usize,
) -> *const c_char {
    // SAFETY: the caller's trace.
    let trace = unsafe { reference(trace) };
    let name = trace.ok().and_then(|trace| trace.missing.get(index));
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_warnings(trace: *const Trace) -> usize {
    let mut count = 0;
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference(trace) }?;
        count = trace.warnings.texts(&trace.buffers).len();
        Ok(())
    });
    count
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_warning(
    trace: *const Trace,
    index: usize,
) -> *const c_char {
    let mut found = std::ptr::null();
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference(trace) }?;
        let texts = trace.warnings.texts(&trace.buffers);
        if let Some(text) = texts.get(index) {
            found = text.as_ptr();
        }
        Ok(())
    });
    found
}

/// Callback with its user pointer.
#[derive(Clone, Copy)]
struct Callback<T> {
    function: Option<unsafe extern "C" fn(*mut c_void, *const T) -> c_int>,
    user: *mut c_void,
}

impl<T> Callback<T> {
    fn check(&self) -> Result<(), String> {
        self.function
            .map(drop)
            .ok_or_else(|| "expected a callback, found NULL".into())
    }

    /// Calls the function. Returns whether to continue.
    fn take(&self, value: &T) -> bool {
        match self.function {
            // SAFETY: the caller guarantees a function of this type; the value lives until it returns.
            Some(function) => unsafe { function(self.user, value) == 0 },
            None => false,
        }
    }
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `on_packet` a function that takes `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_packets(
    trace: *const Trace,
    on_packet: Option<unsafe extern "C" fn(*mut c_void, *const Packet) -> c_int>,
    user: *mut c_void,
) -> c_int {
    let callback = Callback {
        function: on_packet,
        user,
    };
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference(trace) }?;
        callback.check()?;
        for (number, buffer) in (0..).zip(&trace.buffers) {
            let mut text = String::new();
            for line in Listing::new(&buffer.sources, &buffer.frames.streams) {
                let Line::Packet(entry) = line else { continue };
                text.clear();
                entry
                    .describe(&mut text)
                    .map_err(|error| error.to_string())?;
                text.push('\0');
                if !callback.take(&Packet::new(number, &entry, &text)) {
                    return Ok(());
                }
            }
            trace.warnings.messages(buffer);
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `on_element` a function that takes `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_elements(
    trace: *const Trace,
    on_element: Option<unsafe extern "C" fn(*mut c_void, *const Element) -> c_int>,
    user: *mut c_void,
) -> c_int {
    let callback = Callback {
        function: on_element,
        user,
    };
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference(trace) }?;
        callback.check()?;
        for (number, buffer) in (0..).zip(&trace.buffers) {
            let options = EtmV4Options::default();
            let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
            let mut doubts = vec![Doubts::default(); sources.len()];
            let mut goes_on = true;
            for line in Listing::decoding(sources, streams, &buffer.code, options) {
                let Line::Element {
                    source,
                    offset,
                    element,
                    view,
                    ..
                } = line
                else {
                    continue;
                };
                let place = sources.iter().position(|known| std::ptr::eq(known, source));
                if let Some(doubts) = place.and_then(|place| doubts.get_mut(place))
                    && source.protocol.traces_instructions()
                {
                    doubts.view = view;
                    doubts.any(offset as usize, &element);
                }
                goes_on = callback.take(&Element::new(number, source, offset, &element));
                if !goes_on {
                    break;
                }
            }
            for (place, doubts) in doubts.iter().enumerate() {
                trace.warnings.follow(doubts, buffer, place);
            }
            if goes_on {
                trace.warnings.messages(buffer);
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, `on_run` a function that takes `user` or NULL, `totals` writable or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_runs(
    trace: *const Trace,
    threads: c_uint,
    on_run: Option<unsafe extern "C" fn(*mut c_void, *const Run) -> c_int>,
    user: *mut c_void,
    totals: *mut Totals,
) -> c_int {
    let callback = Callback {
        function: on_run,
        user,
    };
    status(|| {
        // SAFETY: the caller's trace.
        let trace = unsafe { reference(trace) }?;
        let (options, all) = (EtmV4Options::default(), Selection::default());
        let mut total = Counts::default();
        for buffer in &trace.buffers {
            let threads = usize::try_from(threads).unwrap_or(1);
            for (place, counts) in counts::of_buffer(buffer, options, &all, threads, |_| true) {
                trace.warnings.follow(&counts.doubts, buffer, place);
                total.add(counts);
            }
        }
        // SAFETY: the caller guarantees that it is NULL or writable.
        if let Some(totals) = unsafe { totals.as_mut() } {
            *totals = Totals::new(&total);
        }
        let mut runs = total.runs.iter();
        if callback.function.is_some() {
            runs.all(|run| callback.take(&Run::new(run)));
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `trace` is one of this library, not freed before, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_coresight_free(trace: *mut Trace) {
    if !trace.is_null() {
        // SAFETY: `make` has created it, and the caller no longer uses it.
        drop(unsafe { Box::from_raw(trace) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_coresight_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}
