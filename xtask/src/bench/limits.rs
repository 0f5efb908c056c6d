//! Gates of a benchmark that counts instructions, read from a file in `xtask`: one line per row, with the greatest
//! number of instructions per record, the minimum ratio of the peer's instructions to ours, and the greatest number of
//! bytes per event; `-` for no gate.

use kymo_targets::run::{self, Context, Error, Result};

/// Measured figures of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Instructions per record.
    pub instructions: f64,
    /// The peer's instructions per record.
    pub peer: Option<f64>,
    /// Output bytes per event, of an export.
    pub bytes: Option<f64>,
}

impl Found {
    /// The ratio of the peer's instructions to ours.
    pub fn ratio(self) -> Option<f64> {
        self.peer.map(|peer| peer / self.instructions.max(1.0))
    }
}

/// The gates of all rows.
pub struct Limits(Vec<(String, Limit)>);

/// The gates of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Greatest number of instructions per record.
    pub instructions: Option<f64>,
    /// Minimum ratio of the peer's instructions to ours.
    pub ratio: Option<f64>,
    /// Greatest number of output bytes per event.
    pub bytes: Option<f64>,
}

impl Limits {
    /// Reads a file of `xtask`.
    ///
    /// # Errors
    /// When the file can't be read, or a line is invalid.
    pub fn load(name: &str) -> Result<Self> {
        let path = run::root().join("xtask").join(name);
        Self::parse(&std::fs::read_to_string(&path).context(path.display())?)
            .context(path.display())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("");
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let limit = |word: &str| match word {
                "-" => Some(None),
                number => Some(Some(number.parse().ok()?)),
            };
            let parsed =
                match words[..] {
                    [name, a, b, c] => limit(a).zip(limit(b)).zip(limit(c)).map(
                        |((instructions, ratio), bytes)| {
                            let limit = Limit {
                                instructions,
                                ratio,
                                bytes,
                            };
                            (name.to_owned(), limit)
                        },
                    ),
                    _ => None,
                };
            rows.push(parsed.ok_or_else(|| {
                Error::new(format!(
                    "line {}: expected a row and three gates, found {line:?}",
                    n + 1
                ))
            })?);
        }
        Ok(Self(rows))
    }

    /// The gates of a row.
    ///
    /// # Errors
    /// When there are none.
    pub fn get(&self, row: &str) -> Result<&Limit> {
        let found = self.0.iter().find(|(name, _)| name == row);
        found
            .map(|(_, limit)| limit)
            .ok_or_else(|| Error::new(format!("there are no gates for the row {row}")))
    }

    /// The number of rows.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Limit {
    /// Reports the gates that the figures exceed.
    pub fn exceeded(&self, row: &str, found: Found) -> Vec<String> {
        let mut exceeded = Vec::new();
        let mut at_most = |what: &str, found: Option<f64>, most: Option<f64>| {
            if let (Some(found), Some(most)) = (found, most)
                && found > most
            {
                exceeded.push(format!("{row}: {found:.1} {what}, at most {most} allowed"));
            }
        };
        at_most(
            "instructions a record",
            Some(found.instructions),
            self.instructions,
        );
        at_most("bytes an event", found.bytes, self.bytes);
        if let (Some(ratio), Some(least)) = (found.ratio(), self.ratio)
            && ratio < least
        {
            exceeded.push(format!(
                "{row}: {ratio:.2} times fewer instructions than the peer, at least {least} required"
            ));
        }
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_and_held() {
        let limits = Limits::parse("# why\nshow 450 5 -  # more\n\nfolded 200 - 15\n").unwrap();
        let show = limits.get("show").unwrap();
        assert_eq!((show.ratio, show.bytes), (Some(5.0), None));
        let found = |instructions: f64, peer: f64| Found {
            instructions,
            peer: Some(peer),
            bytes: Some(16.0),
        };
        assert!(show.exceeded("show", found(450.0, 2_250.0)).is_empty());
        assert_eq!(show.exceeded("show", found(451.0, 2_250.0)).len(), 2);
        let folded = limits.get("folded").unwrap();
        assert_eq!(folded.exceeded("folded", found(1.0, 1.0)).len(), 1);
        assert!(limits.get("info").is_err());
        assert!(Limits::parse("show 450\n").is_err());
        assert!(Limits::parse("show 450 many -\n").is_err());
    }

    #[test]
    fn the_ratio_is_how_many_times_fewer() {
        let found = Found {
            instructions: 150.0,
            peer: Some(1_200.0),
            bytes: None,
        };
        assert_eq!(found.ratio(), Some(8.0));
        assert_eq!(Found::default().ratio(), None);
    }
}
