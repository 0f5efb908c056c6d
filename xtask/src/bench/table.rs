//! Result table: a line for each row on each processor, its figures, and their checks.
//!
//! A figure is compared with its demand. If it has none, or does not meet it, the figure is compared with the limit
//! reached before (`device/bench/limits.txt`), so that it can't get worse. The table still shows the demand beside it,
//! and lists unmet demands again at its end. A demand that is met needs no limit, and a limit beyond it would let the
//! figure grow back unseen: such a limit is an error.

use std::fmt::Write as _;

use crate::bench::reached::Reached;

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Executed instructions of the row's representative call (see `Pick`), including the return.
    Instructions,
    /// The longest run of instructions with interrupts masked.
    Masked,
    /// Average bytes per event in the buffer, in hundredths.
    Bytes,
    /// Bytes of code and constants: of the executed functions, or of a whole recorder.
    Code,
    /// Bytes of RAM beside buffers and tables.
    Ram,
}

impl Kind {
    /// All of them, in the order of the columns.
    pub const ALL: [Self; 5] = [
        Self::Instructions,
        Self::Masked,
        Self::Bytes,
        Self::Code,
        Self::Ram,
    ];

    /// Its name in the table and the file of limits.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Masked => "masked",
            Self::Bytes => "bytes",
            Self::Code => "code",
            Self::Ram => "RAM",
        }
    }

    /// Formats a figure.
    pub fn show(self, figure: u64) -> String {
        match self {
            Self::Bytes => format!("{}.{:02}", figure / 100, figure % 100),
            _ => figure.to_string(),
        }
    }
}

/// A figure and its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The measured value.
    pub found: u64,
    /// The demand.
    pub demand: Option<u64>,
    /// Whether it must not exceed its previous limit.
    pub watched: bool,
}

/// A line of the table.
#[derive(Debug)]
pub struct Line {
    /// The processor.
    pub target: &'static str,
    /// The row's name in the file of limits.
    pub name: &'static str,
    /// The row's name in the table.
    pub title: &'static str,
    /// The most expensive of the row's calls, if they differ.
    pub most: Option<u64>,
    /// The figures, by [`Kind::ALL`].
    pub figures: [Option<Figure>; 5],
}

/// Tolerance of a limit: a figure may exceed it by this fraction (one part in 32), plus one.
const SLACK: u64 = 32;

/// The largest figure that a limit tolerates.
const fn tolerated(limit: u64) -> u64 {
    limit + limit / SLACK + 1
}

impl Line {
    /// A figure.
    pub fn figure(&self, kind: Kind) -> Option<Figure> {
        self.figures[kind as usize]
    }

    /// Reports figures that exceed both the demand and the limit, and limits beyond a demand that is met. Another compiler generates other code, so an excess
    /// of up to 3 % (plus one) is tolerated.
    pub fn excesses(&self, reached: &Reached) -> Vec<String> {
        let excess = |kind: Kind| {
            let figure = self.figure(kind).filter(|figure| figure.watched)?;
            let (what, found) = (kind.name(), kind.show(figure.found));
            let whose = format!("{}, {}: {found} ({what})", self.target, self.title);
            if let Some(demand) = figure.demand
                && figure.found <= demand
            {
                let limit = reached.get(self.target, self.name, kind);
                let limit = limit.filter(|limit| *limit > tolerated(demand))?;
                return Some(format!(
                    "{whose}, and the limit of {} is beyond the {} that are allowed: --tighten",
                    kind.show(limit),
                    kind.show(demand)
                ));
            }
            match reached.get(self.target, self.name, kind) {
                None => Some(format!("{whose}, and nobody has said what was reached")),
                Some(most) if figure.found > tolerated(most) => {
                    Some(format!("{whose}, and {} was reached", kind.show(most)))
                }
                Some(_) => None,
            }
        };
        Kind::ALL.into_iter().filter_map(excess).collect()
    }

    /// Reports demands that are not met.
    pub fn wanting(&self) -> Vec<String> {
        let beyond = |kind: Kind| {
            let figure = self.figure(kind)?;
            let demand = figure.demand.filter(|demand| figure.found > *demand)?;
            let (found, demand) = (kind.show(figure.found), kind.show(demand));
            let (target, title) = (self.target, self.title);
            Some(format!(
                "{target}, {title}: {found} ({}), {demand} are allowed",
                kind.name()
            ))
        };
        Kind::ALL.into_iter().filter_map(beyond).collect()
    }
}

/// Figure and demand, as `594 > 20` or `12 / 12`.
fn cell(line: &Line, kind: Kind) -> String {
    let Some(figure) = line.figure(kind) else {
        return "-".to_owned();
    };
    let mut cell = match (kind, line.most) {
        (Kind::Instructions, Some(most)) => format!("{} to {most}", figure.found),
        (Kind::Masked, _) if figure.found == 0 => "-".to_owned(),
        _ => kind.show(figure.found),
    };
    if let Some(demand) = figure.demand {
        let sign = if figure.found > demand { '>' } else { '/' };
        let demand = match kind {
            Kind::Bytes => format!("{}", demand / 100),
            _ => demand.to_string(),
        };
        // Writing to a string can't fail.
        let _ = write!(cell, " {sign} {demand}");
    }
    cell
}

/// The whole table as text, a block for each processor.
pub fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut row = |cells: [&str; 6]| {
        let [what, instructions, masked, bytes, code, ram] = cells;
        let line =
            format!("{what:30} {instructions:>14} {masked:>10} {bytes:>9} {code:>13} {ram:>10}\n");
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let mut target = "";
    for line in lines {
        if line.target != target {
            if !target.is_empty() {
                row([""; 6]);
            }
            target = line.target;
            let [instructions, masked, bytes, code, ram] = Kind::ALL.map(Kind::name);
            row([target, instructions, masked, bytes, code, ram]);
        }
        let cells = Kind::ALL.map(|kind| cell(line, kind));
        let [instructions, masked, bytes, code, ram] = cells.each_ref().map(String::as_str);
        row([line.title, instructions, masked, bytes, code, ram]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(found: u64, demand: Option<u64>) -> Line {
        let figure = Figure {
            found,
            demand,
            watched: true,
        };
        Line {
            target: "thumbv7em-none-eabihf",
            name: "enter",
            title: "enter, stopper, depth",
            most: None,
            figures: [Some(figure), None, None, None, None],
        }
    }

    #[test]
    fn what_is_beyond_the_demand_may_not_get_worse() {
        let reached = Reached::parse("thumbv7em-none-eabihf enter instructions 64\n").unwrap();
        let nothing = Reached::parse("").unwrap();
        assert!(line(24, Some(30)).excesses(&nothing).is_empty());
        assert_eq!(line(31, Some(30)).excesses(&nothing).len(), 1);
        assert_eq!(line(31, None).excesses(&nothing).len(), 1);
        for demand in [None, Some(30)] {
            assert!(line(67, demand).excesses(&reached).is_empty());
            assert_eq!(line(68, demand).excesses(&reached).len(), 1);
        }
        // What meets its demand may not have a limit up to which it could grow again.
        assert_eq!(line(24, Some(30)).excesses(&reached).len(), 1);
        assert!(line(24, Some(64)).excesses(&reached).is_empty());
        assert_eq!(line(67, Some(30)).wanting().len(), 1);
        assert!(line(30, Some(30)).wanting().is_empty());
        assert!(line(67, None).wanting().is_empty());
    }

    #[test]
    fn the_demand_stands_beside_the_figure() {
        let table = text(&[line(67, Some(30)), line(24, Some(30)), line(5, None)]);
        assert!(table.contains(" 67 > 30 "), "{table}");
        assert!(table.contains(" 24 / 30 "), "{table}");
        assert_eq!(table.matches("thumbv7em").count(), 1);
    }
}
