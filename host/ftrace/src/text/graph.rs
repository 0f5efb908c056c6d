//! Lines of function graphs: columns between bars, then the indented function.

use super::{Line, TextEvent, TextKind, Values, is_flags, microseconds, seconds, task};

/// Parses a line. The columns have a fixed order; each may be missing.
pub(super) fn line(text: &str) -> Option<TextEvent<'_>> {
    let mut event = TextEvent {
        time: None,
        is_ticks: false,
        cpu: None,
        task: None,
        group: None,
        flags: "",
        kind: TextKind::Event {
            name: "".into(),
            body: "",
        },
    };
    let (mut rest, mut duration, mut columns) = (text, None, 0);
    let mut level: Option<u32> = None;
    while let Some((chunk, behind)) = rest.split_once('|') {
        if !column(chunk, &mut event, &mut duration) {
            break;
        }
        // OP-TEE's graph of a trusted application has the depth in a column: ` 43.840 us |   3 |    name()`.
        level = chunk.trim().parse().ok();
        columns += 1;
        rest = behind;
    }
    // Without durations there is no bar behind the CPU: `0) name() {`.
    let mut margin = 2;
    if let Some((cpu, behind)) = rest.split_once(") ")
        && let Ok(cpu) = cpu.trim_start().parse()
    {
        event.cpu = Some(cpu);
        (rest, margin, columns) = (behind, 0, columns + 1);
    }
    if columns == 0 {
        return None;
    }
    event.kind = function(rest, margin, duration, event.time.is_some())?;
    if let Some(level) = level.filter(|_| columns == 2 && event.cpu.is_none()) {
        at_level(&mut event.kind, level);
    }
    Some(event)
}

/// Returns whether `#` at the start of a line is the mark of a duration of more than a millisecond, and not of a
/// header: a number, ` us` and a bar follow. Lines begin with it if no column precedes the duration.
pub(super) fn is_duration(behind: &str) -> bool {
    let column = behind.split_once('|').map(|(column, _)| column.trim());
    column
        .and_then(|column| column.strip_suffix(" us"))
        .is_some_and(|number| microseconds(number.trim_end()).is_some())
}

/// Sets the depth of a call from a column, which counts from 1. The indentation is less than a kernel's then.
const fn at_level(kind: &mut TextKind<'_>, level: u32) {
    if let TextKind::Entry { depth, .. }
    | TextKind::Exit { depth, .. }
    | TextKind::Leaf { depth, .. } = kind
    {
        *depth = level.saturating_sub(1);
    }
}

/// Parses a line of a graph without any column, which only the header distinguishes from other text.
pub fn bare_line(text: &str) -> Option<TextEvent<'_>> {
    let kind = function(text, 0, None, false)?;
    let is_call = !matches!(kind, TextKind::Event { .. });
    is_call.then_some(TextEvent {
        time: None,
        is_ticks: false,
        cpu: None,
        task: None,
        group: None,
        flags: "",
        kind,
    })
}

/// Parses the lines that `trace-cmd report -L` writes without columns: `--> irq_enter (1)`, and
/// `<-- irq_enter (1) (start: 5725baadda  end: 5725babb09) over: 1`.
pub(super) fn plain_line(body: &str) -> Option<TextKind<'_>> {
    let is_entry = body.starts_with("--> ");
    let body = body.strip_prefix("--> ").or(body.strip_prefix("<-- "))?;
    let (function, rest) = body.split_once(" (")?;
    let (depth, rest) = rest.split_once(')')?;
    let (function, depth) = (plain(function), depth.parse().ok()?);
    if !is_name(function) {
        return None;
    }
    if is_entry {
        return Some(TextKind::Entry { function, depth });
    }
    let time = |name: &str| {
        let (_, digits) = rest.split_once(name)?;
        let digits = digits.trim_start().split([' ', ')']).next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let span = time("start:").zip(time("end:"));
    Some(TextKind::Exit {
        function: Some(function),
        depth,
        duration: span.and_then(|(start, end)| end.checked_sub(start)),
    })
}

/// Parses the text between two bars; `false` if it is not a column.
fn column<'a>(chunk: &'a str, event: &mut TextEvent<'a>, duration: &mut Option<u64>) -> bool {
    let mut rest = chunk.trim();
    // `1)`, which has no bar behind it.
    if let Some((cpu, behind)) = rest.split_once(')')
        && let Ok(cpu) = cpu.trim().parse()
    {
        event.cpu = Some(cpu);
        rest = behind.trim();
        // `REL TIME` of latency tracers comes in front and has the form of a duration.
        event.time = event.time.or(duration.take());
    }
    if let Some((first, behind)) = rest.split_once(' ')
        && is_flags(first)
        && (behind.trim().ends_with(" us") || behind.trim().is_empty())
    {
        event.flags = first;
        rest = behind.trim();
    }
    if rest.is_empty() {
        return true;
    }
    if let Some(time) = seconds(rest) {
        event.time = Some(time);
        return true;
    }
    if let Some(number) = rest.strip_suffix(" us") {
        let number = number
            .trim_start_matches(['+', '!', '#', '*', '@', '$', ' '])
            .trim();
        let before = std::mem::replace(duration, microseconds(number));
        event.time = event.time.or(before);
        return duration.is_some();
    }
    // `ls-113` has the form of flags, too.
    let found = task(rest);
    if found.is_some() && event.task.is_none() {
        event.task = found;
        return true;
    }
    if is_flags(rest) {
        event.flags = rest;
        return true;
    }
    // A truncated time.
    rest.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Parses the text behind the last column. Outermost functions begin at `margin`.
fn function(
    text: &str,
    margin: usize,
    duration: Option<u64>,
    is_timed: bool,
) -> Option<TextKind<'_>> {
    let body = text.trim_end();
    let inner = body.trim_start();
    let indent = body.len() - inner.len();
    let depth = u32::try_from(indent.saturating_sub(margin) / 2).unwrap_or(0);
    if let Some(comment) = inner.strip_prefix("/*") {
        let comment = comment.strip_suffix("*/").unwrap_or(comment).trim();
        return Some(match comment.split_once(':') {
            Some((name, body)) if is_name(name) => TextKind::Event {
                name: name.into(),
                body: body.trim(),
            },
            _ => TextKind::Event {
                name: "print".into(),
                body: comment,
            },
        });
    }
    if let Some(behind) = inner.strip_prefix('}') {
        let comment = behind.split_once("/*").map_or("", |(_, comment)| comment);
        // `/* name */`, `/* name ret=0x1 */`, `/* name = 0x1 */`, `/* = 0x1 */`. Names that are not the kernel's have
        // blanks.
        let comment = comment.split_once("*/").map_or(comment, |(own, _)| own);
        let name = [" ret=", "= "].iter().fold(comment, |name, end| {
            name.split_once(end).map_or(name, |(name, _)| name)
        });
        let name = plain(name.trim());
        // `/* name() */` of older kernels.
        let name = name.strip_suffix("()").unwrap_or(name);
        return Some(TextKind::Exit {
            function: Some(name).filter(|name| !name.is_empty()),
            depth,
            duration,
        });
    }
    // `name() {`, `name(x=1) { /* <-caller */`, `name();`, `name(); /* = 0x0 */`.
    for (end, is_leaf) in [("() {", false), ("();", true)] {
        // Names that are not the kernel's have blanks.
        let whole = inner.split_once(" /* ").map_or(inner, |(own, _)| own);
        if let Some(name) = whole.strip_suffix(end).map(plain)
            && (is_name(name) || is_timed && is_title(name))
        {
            let function = name;
            return Some(match is_leaf {
                true => TextKind::Leaf {
                    function,
                    depth,
                    duration,
                },
                false => TextKind::Entry { function, depth },
            });
        }
    }
    // `name` alone: a whole call, printed at its end. Kymo's output may have a comment behind it.
    let whole = inner.split_once(" /* ").map_or(inner, |(own, _)| own);
    if let Some(duration) = duration.filter(|_| is_timed && !whole.ends_with([';', '{', '}']))
        && (is_name(plain(whole)) || is_title(plain(whole)))
    {
        return Some(TextKind::Call {
            function: plain(whole),
            depth,
            duration,
        });
    }
    let open = inner.find('(')?;
    let function = plain(inner.get(..open)?);
    if !is_name(function) {
        return None;
    }
    let close = inner.rfind(')').filter(|close| *close > open)?;
    let behind = inner.get(open..)?;
    // An entry has no duration; OP-TEE writes leaf calls without a semicolon.
    let is_leaf = inner.get(close + 1..)?.trim_start().starts_with(';')
        || behind.contains(");")
        || duration.is_some();
    Some(match is_leaf {
        true => TextKind::Leaf {
            function,
            depth,
            duration,
        },
        false => TextKind::Entry { function, depth },
    })
}

/// Returns further values on the line of a function's entry or exit; see [`TextEvent::values`].
pub(super) fn values<'a>(line: &'a str, kind: &TextKind<'a>) -> Option<Values<'a>> {
    let behind = match kind {
        TextKind::Entry { function, .. } | TextKind::Leaf { function, .. } => {
            // The name of a task is followed by its pid.
            let begins = |(at, _): &(usize, &str)| {
                let behind = line.get(at + function.len()..).unwrap_or("");
                behind.starts_with('(') || behind.starts_with(" [")
            };
            let (at, _) = line.match_indices(function).find(begins)?;
            line.get(at + function.len()..)?
        }
        TextKind::Exit { .. } => line.get(line.rfind('}')?..)?,
        _ => return None,
    };
    let (own, comment) = behind.rsplit_once("/*").unwrap_or((behind, ""));
    // `/* = 0x0 */`, `/* name ret=0x0 */`, and from trace-cmd `(ret=0x0)`.
    let (own, reported) = match (comment, own.rsplit_once("(ret=")) {
        ("", Some((own, reported))) => (own, Some(reported)),
        _ => (
            own,
            comment
                .split_once("ret=")
                .or(comment.split_once("= "))
                .map(|it| it.1),
        ),
    };
    let returned = reported.and_then(|reported| reported.split([' ', ')', '*']).next());
    let arguments = own
        .split_once('(')
        .and_then(|(_, inside)| Some(inside.rsplit_once(')')?.0));
    // `/* <-ksys_read+0x6c/0xe0 ret=0x0 */`
    let caller = comment
        .trim_start()
        .strip_prefix("<-")
        .and_then(|caller| caller.split([' ', '*']).next());
    Some(Values {
        arguments: arguments.unwrap_or_default(),
        returned: returned.unwrap_or_default(),
        caller: caller.unwrap_or_default(),
    })
}

/// Returns the name of a function without its module: `nf_hook [nf]`.
fn plain(name: &str) -> &str {
    name.split_once(" [").map_or(name, |(name, _)| name).trim()
}

/// Returns whether a text can be a name that is not a kernel function's: `irq 48`, `k_sem_take (retry)`.
fn is_title(text: &str) -> bool {
    let fits = |character: char| !character.is_control() && !"{};|".contains(character);
    !text.is_empty() && text.len() < 512 && text.chars().all(fits)
}

/// Returns whether a text can be the name of a function or event.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 512
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.$:<>+".contains(&byte) || byte >= 0x80)
}

/// Parses a switch between separators: ` 0)    <idle>-0    =>   rcu_pre-15`.
pub(super) fn switch(text: &str) -> Option<Line<'_>> {
    let (cpu, rest) = text.split_once(')')?;
    let cpu = cpu.trim().parse().ok()?;
    let (from, to) = rest.split_once("=>")?;
    Some(Line::Switch {
        cpu,
        from: task(from)?,
        to: task(to)?,
    })
}
