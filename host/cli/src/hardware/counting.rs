//! Counts of executed instructions per source of an input, for subcommands that show no order.

use kymo_coresight::counts::{self, Counts, Run};
use kymo_coresight::instruction::{self, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::{Memory, MemorySpace, Scene};

use super::findings::Findings;
use super::part::PartArgs;
use super::{DecodeArgs, Opened};
use crate::context::Context;
use crate::diagnostic::Report;

/// Counts of one source of a buffer.
pub struct Counted<'a> {
    /// The memory of its core.
    pub code: &'a Memory,
    /// The CPU that it traces, if known.
    pub cpu: Option<u32>,
    /// The executed runs and branches.
    pub counts: Counts,
}

/// Counts the instructions of the selected sources, and reports missing parts. Returns the subcommand's exit status
/// as well.
///
/// # Errors
/// When no thread is selected.
pub fn count<'a>(
    opened: &'a Opened,
    part: &PartArgs,
    decode: DecodeArgs,
    context: &Context,
) -> Result<(Vec<Counted<'a>>, Findings), Report> {
    let selections = part.selection(opened, decode)?;
    let mut findings = Findings::of(opened, context);
    let mut all: Vec<Counted<'a>> = Vec::new();
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        let wants = |source| part.sources.has(buffer, source);
        let threads = context.threads();
        let of_buffer = counts::of_buffer(buffer, decode.options(), selection, threads, wants);
        for (source, counts) in of_buffer {
            let place = (buffer.code.get(source), buffer.sources.get(source));
            findings.add(&counts.doubts, opened, (number, source), context);
            let (Some(code), Some(source)) = place else {
                continue;
            };
            // Buffers of the same processor are counted together, because there can be thousands of them.
            let same = all
                .iter_mut()
                .find(|known| known.cpu == source.cpu && known.code.is_of(code));
            match same {
                Some(known) => known.counts.add(counts),
                None => all.push(Counted {
                    code,
                    cpu: source.cpu,
                    counts,
                }),
            }
        }
    }
    if all.iter().all(|counted| counted.counts.instructions == 0) {
        part.remark_nothing(opened, None, context)?;
    }
    remark_total(&all, opened.buffers.len(), context);
    Ok((all, findings))
}

fn remark_total(all: &[Counted<'_>], buffers: usize, context: &Context) {
    let sum = |part: fn(&Counts) -> u64| all.iter().map(|counted| part(&counted.counts)).sum();
    let (instructions, ranges): (u64, u64) = (sum(|it| it.instructions), sum(|it| it.ranges));
    let (packets, without_path): (u64, u64) = (sum(|it| it.packets), sum(|it| it.without_path));
    let distinct = counts::distinct(all.iter().map(|counted| &counted.counts));
    context.note(format_args!(
        "{instructions} instructions in {ranges} ranges, {distinct} of them distinct; {packets} packets in {buffers} buffers"
    ));
    if without_path > 0 {
        context.warn(format_args!(
            "{without_path} instructions ran on an unknown path (Q elements): they are not counted"
        ));
    }
}

/// The addresses of the instructions of a part of the code.
pub fn steps(code: Scene<'_>, isa: Isa, start: u64, end: u64) -> impl Iterator<Item = u64> {
    let mut address = start;
    std::iter::from_fn(move || {
        if address >= end {
            return None;
        }
        let size = match isa {
            Isa::T32 => {
                let bytes = code.at(MemorySpace::ANY, address)?;
                let found = instruction::decode(isa, address, bytes, Waypoints::default())?;
                u64::from(found.size)
            }
            _ => 4,
        };
        let step = address;
        address = address.checked_add(size)?;
        Some(step)
    })
}

/// The addresses of the instructions of a run.
pub fn steps_of(code: &Memory, run: &Run) -> impl Iterator<Item = u64> {
    steps(code.seen(run.view), run.isa, run.start, run.end)
}
