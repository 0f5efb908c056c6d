//! `cargo xtask bench recorder`: recording overhead on targets.
//!
//! Small programs (folder `bench`) call each measured operation from a function of its own, a *row*. An emulator logs
//! every instruction that they execute. The row's figures are counted in that log, which is checked against the
//! disassembly. Results therefore don't depend on the speed or load of this machine, and a budget that is met once is
//! always met: CI checks them. The log must not contain any instruction of the recorder that locks memory, because a
//! recorder needs no atomic read-modify-write; only packet changes under Linux are excepted.

use crate::bench::listing::{Instruction, Listing};
use crate::bench::machine::{MACHINES, Machine};
use crate::bench::reached::Reached;
use crate::bench::rows::{Pick, ROWS, Row};
use crate::bench::table::{Figure, Line};
use crate::bench::walk::Call;
use kymo_targets::run::{Error, Result};

pub mod analyze;
pub mod coresight;
pub mod ctf;
pub mod duration;
pub mod import;
pub mod limits;
pub mod linux;
pub mod listing;
pub mod log;
pub mod machine;
pub mod marks;
pub mod programs;
pub mod reached;
pub mod rows;
pub mod sizes;
pub mod table;
pub mod walk;

/// Measures everything on every processor, or on `only` one, prints the table, and then reports errors. `tighten`
/// lowers the limits to improved figures.
///
/// # Errors
/// If something can't be built or run, is missing in the table, or exceeds its limit.
pub fn recorder(tighten: bool, only: Option<&str>) -> Result<()> {
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    let chosen = |machine: &&Machine| only.is_none_or(|target| target == machine.target);
    let machines: Vec<_> = MACHINES.iter().filter(chosen).collect();
    if machines.is_empty() {
        return Err(Error::new("no processor of this name is measured"));
    }
    for machine in machines {
        match measure(machine) {
            Ok(measured) => lines.extend(measured),
            Err(error) => wrong.push(format!("{}: {error}", machine.target)),
        }
        match sizes::measure(machine) {
            Ok(measured) => lines.extend(measured),
            Err(error) => wrong.push(format!("{}: {error}", machine.target)),
        }
    }
    println!("\n{}", table::text(&lines));
    if !linux::has_steady_counter() {
        println!("SKIPPED: instructions on x86-64 are not judged: its counter is not steady\n");
    }
    let wanting: Vec<String> = lines.iter().flat_map(Line::wanting).collect();
    if !wanting.is_empty() {
        println!("BEYOND THE BUDGET:\n  {}\n", wanting.join("\n  "));
    }
    let reached = Reached::load()?;
    let tightened = reached.tightened(&lines);
    if tighten && wrong.is_empty() {
        tightened.save(&lines)?;
    } else if only.is_none() && tightened != reached {
        println!("Some figures are better than they were: cargo xtask bench recorder --tighten\n");
    }
    let reached = if tighten { tightened } else { reached };
    wrong.extend(lines.iter().flat_map(|line| line.excesses(&reached)));
    if only.is_none()
        && let Err(error) = linux::measure()
    {
        wrong.push(error.to_string());
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::new(wrong.join("\n")))
    }
}

/// Counts all rows on one processor.
///
/// # Errors
/// If a program can't be built or run, or a row is missing.
pub fn measure(machine: &'static Machine) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for program in programs::build_all(machine)? {
        let listing = machine.list(&program)?;
        let run = machine.execute(&program, listing.functions("row_"))?;
        for function in listing.functions("row_") {
            let name = function.name.strip_prefix("row_").unwrap_or("");
            let row = ROWS.iter().find(|row| row.name == name);
            let row = row.ok_or_else(|| Error::new(format!("nobody knows the row {name}")))?;
            let calls = walk::calls(&run.executed, &listing, function)?;
            let events = walk::events(calls, row.calls)?;
            lines.push(line(machine, row, &events, &listing, &run.bytes)?);
        }
    }
    lines.sort_by_key(|line| ROWS.iter().position(|row| row.name == line.name));
    complete(machine.target, &lines)?;
    Ok(lines)
}

/// Checks that exactly the required rows are present, each once.
fn complete(target: &str, lines: &[Line]) -> Result<()> {
    let mut wrong = Vec::new();
    for row in ROWS {
        let there = lines.iter().filter(|line| line.name == row.name).count();
        let wanted = usize::from(row.demand_on(target).is_some());
        if there != wanted {
            let title = row.title;
            wrong.push(format!("{title}: {there} in the table, not {wanted}"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::new(wrong.join("; ")))
    }
}

fn line(
    machine: &'static Machine,
    row: &'static Row,
    events: &[Call],
    listing: &Listing,
    bytes: &[marks::Bytes],
) -> Result<Line> {
    let locks = events.iter().find_map(|event| event.locks(listing));
    match locks {
        // This row must lock memory: it shows that such instructions are detected.
        None if row.name == "rtems_smp" => {
            return Err(Error::new(
                "RTEMS's head is not moved by a read-modify-write",
            ));
        }
        // Under Linux, a thread that begins a packet while a wall-clock record is due writes that record for all
        // threads.
        Some(_) if machine.hosted() && row.pick == Pick::Longest => {}
        Some(lock) if !row.peer => {
            let (title, Instruction { name, operands }) = (row.title, lock);
            let what = format!("{title}: {name} {operands} locks memory");
            return Err(Error::new(what));
        }
        _ => {}
    }
    let pick = match row.pick {
        Pick::Shortest => events.iter().min_by_key(|call| call.instructions()),
        Pick::Longest => events.iter().max_by_key(|call| call.instructions()),
    };
    let event = pick.ok_or_else(|| Error::new(format!("{} called nothing", row.name)))?;
    let most = events.iter().map(Call::instructions).max();
    let most = most.filter(|most| row.pick == Pick::Shortest && *most > event.instructions());
    // Rare paths count for this figure as well.
    let masked = events.iter().map(|call| call.masked(listing, machine));
    let masked = masked.max().unwrap_or(0);
    let demand = row.demand_on(machine.target);
    // Where Kymo must ask the kernel for the time, figures differ from the limits.
    let usual = !machine.hosted() || linux::has_steady_counter();
    let figure = |found: u64, demand: Option<u64>| Figure {
        found,
        demand,
        watched: !row.peer && usual,
    };
    let bytes = bytes.iter().find(|bytes| bytes.row == row.name);
    let hundredths = |bytes: f64| (bytes * 100.0).round() as u64;
    Ok(Line {
        target: machine.target,
        name: row.name,
        title: row.title,
        most: most.map(|most| most as u64),
        figures: [
            Some(figure(
                event.instructions() as u64,
                demand.and_then(|demand| demand.instructions),
            )),
            Some(figure(
                masked as u64,
                demand.and_then(|demand| demand.masked),
            )),
            bytes.map(|bytes| {
                let demand = demand.and_then(|demand| demand.bytes);
                figure(hundredths(bytes.of_an_event()), demand.map(hundredths))
            }),
            // Only some rows of whole recorders are checked against limits.
            Some(Figure {
                watched: false,
                ..figure(event.code(listing), None)
            }),
            None,
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_no_program_provides_is_missed() {
        const TARGET: &str = "thumbv7em-none-eabihf";
        let line = |row: &'static Row| Line {
            target: TARGET,
            name: row.name,
            title: row.title,
            most: None,
            figures: [None; 5],
        };
        let there = |row: &&Row| row.demand_on(TARGET).is_some();
        let mut lines: Vec<Line> = ROWS.iter().filter(there).map(line).collect();
        assert!(complete(TARGET, &lines).is_ok());
        let put = lines.iter().position(|line| line.name == "put").unwrap();
        let put = lines.remove(put);
        let error = complete(TARGET, &lines).unwrap_err().to_string();
        assert!(error.starts_with(put.title), "{error}");
        lines.extend([line(&ROWS[0]), put]);
        let error = complete(TARGET, &lines).unwrap_err().to_string();
        assert!(error.starts_with(ROWS[0].title), "{error}");
    }
}
