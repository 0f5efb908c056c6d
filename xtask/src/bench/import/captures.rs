//! Input of the bench: captures from `KYMO_DATA`, each in a short and a long version, and streams of RTEMS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_ftrace::{Compression, Records, Step, Trace};
use kymo_targets::run::{self, Context, Error, Result};

/// A file, and its number of records.
#[derive(Clone, Debug)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
    /// Number of records.
    pub records: u64,
}

/// A short input and a long one.
#[derive(Clone, Debug)]
pub struct Pair(pub [Input; 2]);

impl Pair {
    /// Cost per record: the difference of the counts divided by the difference of the records.
    ///
    /// # Errors
    /// If counting fails.
    pub fn each(&self, count: impl Fn(&Path) -> Result<u64>) -> Result<f64> {
        let [few, many] = &self.0;
        let more = count(&many.path)?.saturating_sub(count(&few.path)?);
        Ok(more as f64 / (many.records - few.records) as f64)
    }
}

/// The folder of a capture below `KYMO_DATA`, if it exists.
pub fn data(name: &str) -> Option<PathBuf> {
    let data = match std::env::var_os("KYMO_DATA") {
        Some(data) => PathBuf::from(data),
        None => run::root().join("../shared/data"),
    };
    Some(data.join(name)).filter(|path| path.exists())
}

/// Folder into which inputs are written.
fn folder() -> Result<PathBuf> {
    let folder = run::target_dir().join("bench-import");
    fs::create_dir_all(&folder).context(folder.display())?;
    Ok(folder)
}

/// The bytes of a capture, which may be compressed with xz.
fn read(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|it| it != "xz") {
        return fs::read(path).context(path.display());
    }
    let mut xz = Command::new("xz");
    let output = xz.arg("-dc").arg(path).stderr(Stdio::inherit()).output();
    let output = output.context(path.display())?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Error::new(format!("{}: xz failed", path.display()))),
    }
}

/// Writes a trace.dat with only the first pages of each CPU: `numerator` of `denominator`.
///
/// # Errors
/// If it can't be read or written.
pub fn part(capture: &Path, (numerator, denominator): (u64, u64)) -> Result<Input> {
    let name = capture.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".xz").trim_end_matches(".dat");
    let path = folder()?.join(format!("{name}-{numerator}-{denominator}.dat"));
    let whole = read(capture)?;
    let trace = Trace::parse(&whole).map_err(|error| Error::new(error.to_string()))?;
    let mut bytes = whole.clone();
    for buffer in &trace.buffers {
        for cpu in &buffer.cpus {
            let fewer = |count: u64| (count * numerator / denominator).max(1);
            let changed = match cpu.compression {
                // The size follows the offset in a table.
                Compression::None => {
                    let page = buffer.page_size as u64;
                    let size = fewer(cpu.size / page) * page;
                    let entry = [cpu.offset.to_le_bytes(), cpu.size.to_le_bytes()].concat();
                    let table = bytes.windows(16).position(|it| it == entry);
                    table.map(|at| (at + 8, size.to_le_bytes().to_vec()))
                }
                // The compressed data begins with the number of chunks.
                _ => usize::try_from(cpu.offset).ok().and_then(|at| {
                    let count = whole.get(at..at + 4)?.try_into().ok()?;
                    let count = fewer(u32::from_le_bytes(count).into()) as u32;
                    Some((at, count.to_le_bytes().to_vec()))
                }),
            };
            let place =
                changed.and_then(|(at, new)| Some((bytes.get_mut(at..at + new.len())?, new)));
            let (place, new) = place.ok_or_else(|| {
                let shown = capture.display();
                Error::new(format!(
                    "{shown}: where the pages of CPU {} end is not found",
                    cpu.cpu
                ))
            })?;
            place.copy_from_slice(&new);
        }
    }
    fs::write(&path, &bytes).context(path.display())?;
    Ok(Input {
        records: records(&bytes)?,
        path,
    })
}

/// The number of records of a trace.dat.
fn records(bytes: &[u8]) -> Result<u64> {
    let trace = Trace::parse(bytes).map_err(|error| Error::new(error.to_string()))?;
    let (mut records, mut count) = (Records::new(&trace, bytes), 0);
    while let Some((_, step)) = records.next(&trace, bytes) {
        count += u64::from(matches!(step, Step::Record(_)));
    }
    Ok(count)
}

/// Writes a recording of SystemView with repeated packets.
///
/// # Errors
/// If it can't be read or written.
pub fn systemview(kymo: &Path, capture: &Path, times: usize) -> Result<Input> {
    /// Size in bytes of the text before the packets.
    const HEAD: usize = 65;
    let path = folder()?.join(format!("systemview-{times}.SVDat"));
    let whole = read(capture)?;
    let (head, packets) = whole
        .split_at_checked(HEAD)
        .ok_or_else(|| Error::new(format!("{}: too short", capture.display())))?;
    fs::write(&path, [head, &packets.repeat(times)].concat()).context(path.display())?;
    let mut info = Command::new(kymo);
    let info = run::output(info.args(["info", "--format", "json"]).arg(&path))?;
    let events = info
        .split_once(r#""events":"#)
        .and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
    Ok(Input {
        records: events.ok_or_else(|| Error::new(format!("expected events, found {info}")))?,
        path,
    })
}

/// Writes a stream of RTEMS of about this number of items, with the bench's own program.
///
/// # Errors
/// If it can't be written.
pub fn rtems(program: &Path, layout: &str, items: u64) -> Result<Input> {
    let path = folder()?.join(format!("rtems-{layout}-{items}"));
    run::quietly(
        Command::new(program)
            .args(["write", layout, &items.to_string()])
            .arg(&path),
    )?;
    let reported = run::output(Command::new(program).arg("read").arg(&path))?;
    let records = reported
        .split(' ')
        .next()
        .and_then(|items| items.parse().ok());
    Ok(Input {
        records: records.ok_or_else(|| Error::new(format!("expected items, found {reported}")))?,
        path,
    })
}
