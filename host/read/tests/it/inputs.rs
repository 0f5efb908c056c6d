//! Recognition of inputs by their content: other files are refused at once, with their kind, and no input is waited for
//! forever.
#![cfg(unix)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use kymo_event::{Event, TraceInfo};
use kymo_read::{Events, OpenError, OpenOptions, open, saved};

const METADATA: &str = "/* CTF 1.8 */
    trace { major = 1; minor = 8; byte_order = le; };
    clock { name = c; freq = 1000000000; };
    stream { event.header := struct { integer { size = 8; } id;
        integer { size = 32; map = clock.c.value; } timestamp; }; };
    event { id = 1; name = one; };";

/// A stream of this number of events.
fn stream(events: u32) -> Vec<u8> {
    let event = |time: u32| [&[1u8][..], &time.to_le_bytes()].concat();
    (0..events).flat_map(event).collect()
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The kind of file that was found instead of a trace.
fn found(path: &Path, options: &OpenOptions) -> String {
    match open(path, options).err() {
        Some(OpenError::Unknown { found, .. }) => found,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn read(path: &Path, options: &OpenOptions) -> (TraceInfo, Vec<Event>) {
    let mut source = open(path, options).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

#[test]
fn what_is_no_trace_is_refused_by_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let options = OpenOptions::default();
    let own = std::env::current_exe().unwrap();
    assert_eq!(found(&own, &options), "an ELF executable");
    let picture = file("picture", b"\x89PNG\r\n\x1a\n and so on");
    assert_eq!(found(&picture, &options), "a PNG picture");
    let zeros = file("zeros", &[0; 10_000]);
    assert_eq!(found(&zeros, &options), "zeros");
    for magic in [0xc1fc_1fc1_u32.to_le_bytes(), 0xc1fc_1fc1_u32.to_be_bytes()] {
        let stream = file("stream", &[&magic[..], &[0; 60]].concat());
        assert!(found(&stream, &options).starts_with("a CTF stream without metadata"));
    }
    // Endless input from a device.
    assert_eq!(found(Path::new("/dev/zero"), &options), "zeros");
    assert!(found(Path::new("/dev/urandom"), &options).starts_with("bytes that begin with"));
    assert!(matches!(
        saved(Path::new("/dev/zero")).err(),
        Some(OpenError::Unknown { found, .. }) if found == "zeros"
    ));
    let empty = file("empty", b"");
    assert!(matches!(
        open(&empty, &options).err(),
        Some(OpenError::Empty { .. })
    ));
    // Also if the metadata of a trace is beside it.
    file("metadata", METADATA.as_bytes());
    assert_eq!(found(&picture, &options), "a PNG picture");
}

#[test]
fn a_fifo_in_the_place_of_metadata_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fifo(&folder.path().join("metadata"));
    fs::write(folder.path().join("stream"), stream(3)).unwrap();
    let options = OpenOptions::default();
    let refused = found(folder.path(), &options);
    assert_eq!(refused, "a pipe");
    assert!(kymo_read::ctf_traces(folder.path(), &options).is_err());
    let above = tempfile::tempdir().unwrap();
    fs::rename(folder.path(), above.path().join("below")).unwrap();
    let refused = open(above.path(), &options).err().unwrap();
    let expected = "found a pipe, expected a regular file in a trace directory";
    assert!(refused.to_string().ends_with(expected), "{refused}");
}

#[test]
fn a_stream_comes_through_a_pipe_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = folder.path().join("metadata");
    fs::write(&metadata, METADATA).unwrap();
    let options = OpenOptions {
        metadata: Some(metadata),
        ..OpenOptions::default()
    };
    let file = folder.path().join("stream");
    fs::write(&file, stream(100_000)).unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let writer = thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut pipe = File::create(pipe).unwrap();
            pipe.write_all(&stream(100_000)).unwrap();
        }
    });
    let (info, events) = read(&pipe, &options);
    writer.join().unwrap();
    assert_eq!(info.streams[0].name, "pipe");
    assert_eq!(events.len(), 100_000);
    assert_eq!(events, read(&file, &options).1);
}

#[test]
fn nothing_is_kept_of_a_stream_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = folder.path().join("metadata");
    // Every byte is an event.
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { integer { size = 8; } id; }; };
        event { id = 0; name = zero; };";
    fs::write(&metadata, text).unwrap();
    let options = OpenOptions {
        metadata: Some(metadata),
        ..OpenOptions::default()
    };
    let mut source = open(Path::new("/dev/zero"), &options).unwrap();
    let events = Events::new(&mut *source);
    assert_eq!(events.take(100_000).filter(Result::is_ok).count(), 100_000);
}

#[test]
fn a_directory_of_uftrace_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("uftrace.data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("info"), b"Ftrace!\0\x04\0\0\0").unwrap();
    std::fs::write(data.join("default.opts"), b"").unwrap();
    std::fs::write(data.join("100.dat"), [0; 64]).unwrap();
    for path in [folder.path(), &data] {
        let error = kymo_read::open(path, &kymo_read::OpenOptions::default());
        let error = error.err().unwrap().to_string();
        assert!(error.contains("uftrace's data"), "{error}");
    }
}

#[test]
fn other_inputs_are_not_taken_for_recordings_of_systemview() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("ini", &b"; a comment\n[section]\nkey=1\n"[..]),
        ("zeros", &[0; 300][..]),
        ("text.SVDat", &[b'a'; 300][..]),
    ] {
        let path: &Path = &folder.path().join(name);
        std::fs::write(path, content).unwrap();
        assert!(
            matches!(
                open(path, &OpenOptions::default()).err(),
                Some(OpenError::Unknown { .. })
            ),
            "{name}"
        );
    }
}
