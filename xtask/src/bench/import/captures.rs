//! What the bench reads: captures out of `KYMO_DATA`, each once short and once long, and streams of RTEMS's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_ftrace::{Compression, Records, Step, Trace};
use kymo_targets::run::{self, Context, Error, Result};

/// A file with so many records.
#[derive(Clone, Debug)]
pub struct Input {
    /// Where it is.
    pub path: PathBuf,
    /// Its records.
    pub records: u64,
}

/// A short input and a long one.
#[derive(Clone, Debug)]
pub struct Pair(pub [Input; 2]);

impl Pair {
    /// What is counted for each record that the long one has more.
    ///
    /// # Errors
    /// When it can't be counted.
    pub fn each(&self, count: impl Fn(&Path) -> Result<u64>) -> Result<f64> {
        let [few, many] = &self.0;
        let more = count(&many.path)?.saturating_sub(count(&few.path)?);
        Ok(more as f64 / (many.records - few.records) as f64)
    }
}

/// The folder of a capture below `KYMO_DATA`, if it is there.
pub fn data(name: &str) -> Option<PathBuf> {
    let data = match std::env::var_os("KYMO_DATA") {
        Some(data) => PathBuf::from(data),
        None => run::root().join("../shared/data"),
    };
    Some(data.join(name)).filter(|path| path.exists())
}

/// Where inputs are written.
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

/// A trace.dat with the first pages of each CPU alone: `numerator` of `denominator`.
///
/// # Errors
/// When it can't be read or written.
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
                // Its size stands behind its offset in a table.
                Compression::None => {
                    let page = buffer.page_size as u64;
                    let size = fewer(cpu.size / page) * page;
                    let entry = [cpu.offset.to_le_bytes(), cpu.size.to_le_bytes()].concat();
                    let table = bytes.windows(16).position(|it| it == entry);
                    table.map(|at| (at + 8, size.to_le_bytes().to_vec()))
                }
                // Its pages begin with the number of their chunks.
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

/// The records of a trace.dat.
fn records(bytes: &[u8]) -> Result<u64> {
    let trace = Trace::parse(bytes).map_err(|error| Error::new(error.to_string()))?;
    let (mut records, mut count) = (Records::new(&trace, bytes), 0);
    while let Some((_, step)) = records.next(&trace, bytes) {
        count += u64::from(matches!(step, Step::Record(_)));
    }
    Ok(count)
}

/// A recording of SystemView whose packets come so many times.
///
/// # Errors
/// When it can't be read or written.
pub fn systemview(kymo: &Path, capture: &Path, times: usize) -> Result<Input> {
    /// The lines before the packets.
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

/// A stream of RTEMS's of about so many items, written by the bench's own program.
///
/// # Errors
/// When it can't be written.
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
