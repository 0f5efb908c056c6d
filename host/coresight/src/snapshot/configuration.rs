//! Configuration files in TOML that describe raw trace buffers of an ETB, ETF, ETR or TPIU.
//!
//! ```toml
//! buffer = "etb.bin"              # or a list of files, one behind the other
//! frames = "memory"               # "memory" (ETB, ETF, ETR), "tpiu", "dstream", or "none": one source, no frames
//!
//! [[source]]
//! protocol = "ETMv4"              # ETMv4, ETE, ETMv3, PTM, STM, ITM
//! id = 0x10                       # the trace ID, if the registers do not have it
//! cpu = 0
//! core = "Cortex-A53"             # for M profile cores: exceptions are numbered otherwise
//! registers = { TRCCONFIGR = 0xc1, TRCIDR0 = 0x28000ea1, TRCIDR1 = 0x4100f403, TRCIDR2 = 0x488 }
//!
//! [[image]]                       # the memory of all cores
//! file = "kernel.bin"
//! address = 0x80080000            # that of a linked ELF file's segments if absent
//! offset = 0                      # where in the file it begins
//! length = 0x400000               # to the end of the file if absent
//! space = "EL1N"                  # all spaces if absent
//! ```

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{Buffer, Device, Dump, Snapshot};
use crate::Error;
use crate::frames::FrameFormat;
use crate::memory::MemorySpace;

/// Size limit of a configuration, in bytes.
pub(super) const LARGEST: u64 = 1 << 20;

/// Whether a text is a configuration.
pub(super) fn is_one(text: &str) -> bool {
    text.parse::<Table>()
        .is_ok_and(|table| table.contains_key("source") && table.contains_key("buffer"))
}

/// Reads a configuration. `place` is its name in errors; its paths are relative to `directory`.
pub(super) fn read(directory: &Path, place: &str, text: &str) -> Result<Snapshot, Error> {
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| Error::Value {
            place: place.to_owned(),
            expected: "a configuration in TOML",
            found: error.message().to_owned(),
        })?;
    let reader = Reader { place };
    reader.only(&table, &["buffer", "frames", "source", "image"])?;
    let files = match table.get("buffer") {
        Some(Value::Array(files)) => files
            .iter()
            .map(|file| reader.text("buffer", file))
            .collect(),
        Some(file) => reader.text("buffer", file).map(|file| vec![file]),
        None => Err(reader.wrong("buffer", "the file of the trace buffer", String::new())),
    }?;
    let format = match reader.optional_text(&table, "frames")?.as_deref() {
        None | Some("memory") => FrameFormat::Memory,
        Some("tpiu") => FrameFormat::Tpiu,
        Some("dstream") => FrameFormat::Dstream,
        Some("none") => FrameFormat::Unformatted,
        Some(found) => {
            let expected = "memory, tpiu, dstream or none";
            return Err(reader.wrong("frames", expected, found.to_owned()));
        }
    };
    let buffer = Buffer {
        name: "buffer".to_owned(),
        files: files.into_iter().map(PathBuf::from).collect(),
        format,
    };
    let mut snapshot = Snapshot {
        directory: directory.to_owned(),
        is_own: false,
        devices: Vec::new(),
        buffers: vec![buffer],
        source_buffers: Vec::new(),
        core_sources: Vec::new(),
    };
    let images = reader.tables(&table, "image")?;
    let images: Vec<Dump> = images
        .into_iter()
        .map(|image| reader.image(image))
        .collect::<Result<_, _>>()?;
    for (number, source) in reader.tables(&table, "source")?.into_iter().enumerate() {
        let (source_device, core) = reader.source(number, source, &images)?;
        let name = source_device.name.clone();
        snapshot
            .source_buffers
            .push((name.clone(), "buffer".to_owned()));
        snapshot.core_sources.push((core.name.clone(), name));
        snapshot.devices.extend([source_device, core]);
    }
    Ok(snapshot)
}

/// Parses a source in the syntax of `--trace-source`: `ETMv4,id=0x10,cpu=0,TRCCONFIGR=0xc1`. Returns it with its core.
pub(crate) fn source_of(place: &str, number: usize, text: &str) -> Result<(Device, Device), Error> {
    let (mut table, mut registers) = (Table::new(), Table::new());
    for (index, part) in text.split(',').map(str::trim).enumerate() {
        let (key, value) = match part.split_once('=') {
            None if index == 0 => ("protocol", part),
            None => return Err(wrong(place, part, "KEY=VALUE", part)),
            Some((key, value)) => (key.trim(), value.trim()),
        };
        let table = match key {
            "protocol" | "id" | "cpu" | "core" => &mut table,
            _ => &mut registers,
        };
        let before = table.insert(key.to_owned(), Value::String(value.to_owned()));
        if before.is_some() {
            return Err(wrong(place, key, "each key once", text));
        }
    }
    table.insert("registers".to_owned(), Value::Table(registers));
    Reader { place }.source(number, &table, &[])
}

/// Parses an image in the syntax of `--trace-image`: `FILE@ADDRESS`, with `,offset=N`, `,length=N` and `,space=NAME`;
/// the address is optional for files that contain load addresses.
pub(crate) fn image_of(place: &str, text: &str) -> Result<Dump, Error> {
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (file, address) = match first.rsplit_once('@') {
        Some((file, address)) => (file, Some(address)),
        None => (first, None),
    };
    let mut table = Table::new();
    let mut insert = |key: &str, value: &str| {
        table.insert(key.to_owned(), Value::String(value.to_owned()));
    };
    insert("file", file);
    if let Some(address) = address {
        insert("address", address);
    }
    for part in parts {
        match part.split_once('=') {
            Some((key, value)) if address.is_some() => insert(key.trim(), value.trim()),
            Some(_) => return Err(wrong(place, part, "FILE@ADDRESS before it", text)),
            None => return Err(wrong(place, part, "KEY=VALUE", part)),
        }
    }
    Reader { place }.image(&table)
}

fn wrong(place: &str, key: &str, expected: &'static str, found: &str) -> Error {
    Reader { place }.wrong(key, expected, found.to_owned())
}

/// Registers that the decoder of a kind of source reads.
fn registers_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "ETM4" | "ETE" => &[
            "TRCCONFIGR",
            "TRCTRACEIDR",
            "TRCIDR0",
            "TRCIDR1",
            "TRCIDR2",
            "TRCIDR8",
            "TRCIDR12",
            "TRCIDR13",
            "TRCDEVARCH",
        ],
        "ETM3" | "PTM" => &["ETMCR", "ETMCCER", "ETMIDR", "ETMTRACEIDR"],
        "STM" => &["STMTCSR"],
        _ => &["ITMTCR"],
    }
}

struct Reader<'a> {
    place: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, key: &str, expected: &'static str, found: String) -> Error {
        Error::Value {
            place: format!("{}: {key}", self.place),
            expected,
            found,
        }
    }

    fn only(&self, table: &Table, known: &[&str]) -> Result<(), Error> {
        let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let found = format!("{key} (known are {})", known.join(", "));
        Err(self.wrong(key, "a key that is known here", found))
    }

    fn text(&self, key: &str, value: &Value) -> Result<String, Error> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.wrong(key, "a text", value.type_str().to_owned()))
    }

    fn optional_text(&self, table: &Table, key: &str) -> Result<Option<String>, Error> {
        table
            .get(key)
            .map(|value| self.text(key, value))
            .transpose()
    }

    /// Reads a number. Numbers of more than 63 bits are written as strings.
    fn number(&self, key: &str, value: &Value) -> Result<u64, Error> {
        let number = match value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) => super::parse_number(text),
            _ => None,
        };
        let found = || value.as_str().unwrap_or(value.type_str()).to_owned();
        number.ok_or_else(|| self.wrong(key, "a number", found()))
    }

    fn optional_number(&self, table: &Table, key: &str) -> Result<Option<u64>, Error> {
        table
            .get(key)
            .map(|value| self.number(key, value))
            .transpose()
    }

    fn tables<'t>(&self, table: &'t Table, key: &str) -> Result<Vec<&'t Table>, Error> {
        match table.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(tables)) => tables
                .iter()
                .map(|value| {
                    let found = || self.wrong(key, "a table", value.type_str().to_owned());
                    value.as_table().ok_or_else(found)
                })
                .collect(),
            Some(other) => Err(self.wrong(key, "a list of tables", other.type_str().to_owned())),
        }
    }

    fn image(&self, table: &Table) -> Result<Dump, Error> {
        self.only(table, &["file", "address", "offset", "length", "space"])?;
        let file = self.optional_text(table, "file")?;
        let file = file.ok_or_else(|| self.wrong("image.file", "a file", String::new()))?;
        let address = self.optional_number(table, "address")?;
        let mut parts = ["offset", "length"].into_iter();
        if address.is_none()
            && let Some(key) = parts.find(|key| table.contains_key(*key))
        {
            let expected = "an address, as a part of the file is chosen";
            return Err(self.wrong("image.address", expected, format!("{key} alone")));
        }
        let space = self.optional_text(table, "space")?;
        if let Some(name) = &space
            && MemorySpace::of_name(name).is_none()
        {
            let expected = "EL1N, EL1S, EL1R, EL2 or EL2N, EL2S, EL2R, EL3, ROOT, N, S, R or ANY";
            return Err(self.wrong("image.space", expected, name.clone()));
        }
        Ok(Dump {
            file: PathBuf::from(file),
            address,
            length: self.optional_number(table, "length")?,
            offset: self.optional_number(table, "offset")?.unwrap_or_default(),
            space,
        })
    }

    /// Reads a source and its core.
    fn source(
        &self,
        number: usize,
        table: &Table,
        images: &[Dump],
    ) -> Result<(Device, Device), Error> {
        self.only(table, &["protocol", "id", "cpu", "core", "registers"])?;
        let protocol = self.optional_text(table, "protocol")?.unwrap_or_default();
        let (kind, id_register) = match protocol.to_ascii_lowercase().as_str() {
            "etmv4" => ("ETM4", "TRCTRACEIDR"),
            "ete" => ("ETE", "TRCTRACEIDR"),
            "etmv3" => ("ETM3", "ETMTRACEIDR"),
            "ptm" => ("PTM", "ETMTRACEIDR"),
            "stm" => ("STM", "STMTCSR"),
            "itm" => ("ITM", "ITMTCR"),
            _ => {
                let expected = "ETMv4, ETE, ETMv3, PTM, STM or ITM";
                return Err(self.wrong("source.protocol", expected, protocol));
            }
        };
        let mut source = Device {
            name: format!("{protocol}_{number}"),
            class: "trace_source".to_owned(),
            kind: kind.to_owned(),
            ..Device::default()
        };
        if let Some(registers) = table.get("registers") {
            let found = || {
                self.wrong(
                    "source.registers",
                    "a table",
                    registers.type_str().to_owned(),
                )
            };
            for (name, value) in registers.as_table().ok_or_else(found)? {
                let value = self.number(name, value)?;
                let name = name.to_ascii_uppercase();
                if !registers_of(kind).contains(&name.as_str()) {
                    let expected = "a register that decoding of this protocol needs";
                    let known = registers_of(kind).join(", ");
                    return Err(self.wrong(&name, expected, format!("{name} (it needs {known})")));
                }
                source.registers.insert(name, value);
            }
        }
        if let Some(id) = self.optional_number(table, "id")? {
            if id >= 0x70 {
                return Err(self.wrong("source.id", "a trace ID below 0x70", format!("{id:#x}")));
            }
            // STM and ITM have the ID in bits 22:16 of a register with other fields.
            let shift = if matches!(kind, "STM" | "ITM") { 16 } else { 0 };
            let register = source.registers.entry(id_register.to_owned());
            let value = register.or_default();
            *value = *value & !(0x7f << shift) | id << shift;
        }
        let cpu = self.optional_number(table, "cpu")?.unwrap_or(number as u64);
        let core = Device {
            name: format!("cpu_{cpu}"),
            class: "core".to_owned(),
            kind: self.optional_text(table, "core")?.unwrap_or_default(),
            dumps: images.to_vec(),
            ..Device::default()
        };
        Ok((source, core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Protocol, Source};

    #[test]
    fn sources_buffers_and_images_are_those_of_a_snapshot() {
        let text = r#"
            buffer = ["a.bin", "b.bin"]
            frames = "tpiu"
            source = [{ protocol = "ETMv4", id = 0x12, cpu = 3, registers = { trcconfigr = 0xc1 } },
                      { protocol = "ITM", id = 2 }]
            image = [{ file = "code", address = "0xffffffc000000000", length = 16 }]
        "#;
        assert!(is_one(text));
        let snapshot = read(Path::new("/there"), "x.toml", text).unwrap();
        let buffer = &snapshot.buffers[0];
        assert_eq!((buffer.files.len(), buffer.format), (2, FrameFormat::Tpiu));
        let sources = Source::of_buffer(&snapshot, buffer);
        let ids: Vec<_> = sources.iter().map(|source| source.id.0).collect();
        assert_eq!(ids, [0x12, 2]);
        assert_eq!(sources[0].cpu, Some(3));
        let Protocol::EtmV4(config) = sources[0].protocol else {
            panic!("{sources:?}");
        };
        assert_eq!(config.configr, 0xc1);
        let core = snapshot.core_of(&snapshot.devices[0]).unwrap();
        assert_eq!(core.dumps[0].address, Some(0xffff_ffc0_0000_0000));
    }

    #[test]
    fn a_core_implies_the_etm_that_it_has() {
        let id = |text: &str| {
            let (device, core) = source_of("--trace-source", 0, text).unwrap();
            match Protocol::of_device(&device, Some(&core)) {
                Some(Protocol::EtmV3(config)) => (config.idr, config.is_m_profile),
                other => panic!("{other:?}"),
            }
        };
        let source = "ETMv3,id=2,ETMCR=0xd90,core=";
        assert_eq!(id(&format!("{source}Cortex-M3")), (0x4114_f242, true));
        assert_eq!(id(&format!("{source}cortex-m4")), (0x4114_f250, true));
        assert_eq!(id(&format!("{source}Cortex-A8")), (0x4100_f250, false));
        let stated = format!("{source}Cortex-M3,ETMIDR=0x4114f250");
        assert_eq!(id(&stated), (0x4114_f250, true));
    }

    #[test]
    fn keys_of_a_source_are_known_and_once_there() {
        for (text, expected) in [
            ("ETMv4,id=0x10,cpuu=1", "CPUU"),
            ("PTM,TRCCONFIGR=1", "needs ETMCR"),
            ("ITM,id=1,id=2", "each key once"),
        ] {
            let error = source_of("--trace-source", 0, text).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(source_of("--trace-source", 0, "ETE,trcconfigr=0xc1,cpu=1").is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("", "expected the file of the trace buffer"),
            ("buffer = 3", "buffer: expected a text, found \"integer\""),
            ("buffer = 'x'\nframe = 'y'", "x.toml: frame: expected"),
            (
                "buffer = 'x'\nframe = 'y'",
                "frame (known are buffer, frames, source, image)",
            ),
            (
                "buffer = 'x'\nimage = [{ file = 'y', address = 0, space = 'EL9' }]",
                "image.space: expected EL1N",
            ),
            (
                "buffer = 'x'\nframes = 'y'",
                "memory, tpiu, dstream or none",
            ),
            (
                "buffer = 'x'\nsource = [{ protocol = 'ETM' }]",
                "ETMv4, ETE",
            ),
            (
                "buffer = 'x'\nsource = [{ protocol = 'ETE', id = 0x70 }]",
                "below 0x70",
            ),
            (
                "buffer = 'x'\nimage = [{ file = 'y', length = 1 }]",
                "image.address",
            ),
            ("buffer = ", "a configuration in TOML"),
            (
                "buffer = 'x'\nsource = [{ protocol = 'ETE', registers = { ETMCRR = 1 } }]",
                "ETMCRR: expected a register",
            ),
        ] {
            let error = read(Path::new("/"), "x.toml", text).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
