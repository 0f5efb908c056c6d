//! Lines of events: `task-pid [cpu] flags time: name: text`.

use super::{Line, Task, TextEvent, TextKind, graph, is_flags, microseconds, sched, seconds, task};

/// Number of places of a line in which a column is looked for: more than a thread's name can imitate. (A line may have
/// millions.)
const PLACES: usize = 32;

/// Parses a line of an event; `None` if it has another form.
pub(super) fn event(text: &str) -> Option<TextEvent<'_>> {
    let (before, cpu, rest) = cpu(text)?;
    // `(  99)`: the thread group; `(-----)` if the kernel does not know it.
    let (before, group) = match before.trim_end().strip_suffix(')') {
        Some(inside) => {
            let (before, group) = inside.rsplit_once('(')?;
            (before, group.trim().parse().ok())
        }
        None => (before, None),
    };
    let task = task(before)?;
    let mut flags = "";
    let mut rest = rest.trim_start();
    let (time, is_ticks) = loop {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Some(time) = word.strip_suffix(':').and_then(seconds) {
            rest = behind;
            break (Some(time), false);
        }
        // A clock that does not count seconds.
        if let Some(number) = word.strip_suffix(':')
            && let Ok(ticks) = number.parse()
        {
            rest = behind;
            break (Some(ticks), true);
        }
        if !is_flags(word) || !flags.is_empty() {
            return None;
        }
        flags = word;
        rest = behind.trim_start();
    };
    Some(TextEvent {
        time,
        is_ticks,
        cpu: Some(cpu),
        task: Some(task),
        group,
        flags,
        kind: kind(without_difference(rest).trim())?,
    })
}

/// Parses a line of a latency tracer: `bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule`. Times count from the
/// start of the latency, or from the clock's start with the option `latency-format`. Names may contain `us`.
pub(super) fn latency_event(text: &str) -> Option<TextEvent<'_>> {
    let mut places = memchr::memmem::find_iter(text.as_bytes(), "us").take(PLACES);
    places.find_map(|at| {
        let (marks, rest) = text.get(at + 2..)?.split_once(':')?;
        if !marks.bytes().all(|byte| b" +!#*@$".contains(&byte)) {
            return None;
        }
        let (before, time) = text.get(..at)?.trim_end().rsplit_once(' ')?;
        let time = time.parse::<u64>().ok()?.checked_mul(1000)?;
        with_context(before, (time, false), rest)
    })
}

/// Parses a line of the options `latency-format` and `verbose`, whose columns are name, pid, CPU, flags, depth of
/// preemption, number, clock, time and time to the next event:
/// `ls    9351   1 9 00000001 00000019 [d922a0f30] 58286804.784ms (+0.010ms): sched_switch: ...`.
pub(super) fn verbose_event<'t>(text: &'t str) -> Option<TextEvent<'t>> {
    let is_hex = |text: &str| text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (before, rest) = (text.match_indices(" [").take(PLACES)).find_map(|(at, _)| {
        let (clock, rest) = text.get(at + 2..)?.split_once("] ")?;
        is_hex(clock).then_some((text.get(..at)?, rest))
    })?;
    let (time, rest) = rest.split_once(" (+")?;
    let (_, rest) = rest.split_once("): ")?;
    let (time, is_ticks) = match time.strip_suffix("ms") {
        Some(time) => (microseconds(time)?.checked_mul(1000)?, false),
        None => (time.parse().ok()?, true),
    };
    let column = |before: &'t str| before.trim_end().rsplit_once(' ');
    let (before, number) = column(before)?;
    let (before, depth) = column(before)?;
    let (before, flags) = column(before)?;
    if !is_hex(number) || !is_hex(depth) || flags.parse::<u32>().is_err() {
        return None;
    }
    let (before, cpu) = column(before)?;
    let (comm, pid) = column(before)?;
    Some(TextEvent {
        time: Some(time),
        is_ticks,
        cpu: Some(cpu.parse().ok()?),
        task: Some(Task {
            comm: comm.trim(),
            pid: pid.parse().ok()?,
        }),
        group: None,
        flags,
        kind: kind(rest.trim())?,
    })
}

/// Parses a line of `trace-cmd report -l`: `sh-326     0d.h..   463.263829: function: scheduler_tick`. With `-R` the
/// flags are a number: `0-0x9`. The kernel's latency format has ticks there, of a clock that does not count nanoseconds.
pub(super) fn with_flags_first(text: &str) -> Option<TextEvent<'_>> {
    let (before, rest) = text.split_once(": ")?;
    let (before, time) = before.trim_end().rsplit_once(' ')?;
    let time = (seconds(time).map(|time| (time, false))).or(time.parse().ok().map(|it| (it, true)));
    with_context(before, time?, without_difference(rest))
}

/// Completes an event whose CPU and flags stand in one column: `sh-326     0d.h..`.
fn with_context<'t>(
    before: &'t str,
    (time, is_ticks): (u64, bool),
    rest: &'t str,
) -> Option<TextEvent<'t>> {
    let (before, place) = before.trim_end().rsplit_once(' ')?;
    let digits = place.bytes().take_while(u8::is_ascii_digit).count();
    let (cpu, flags) = place.split_at_checked(digits)?;
    let number = flags.strip_prefix("-0x");
    let is_number = number.is_some_and(|it| u32::from_str_radix(it, 16).is_ok());
    Some(TextEvent {
        time: Some(time),
        is_ticks,
        cpu: Some(cpu.parse().ok()?),
        task: Some(task(before)?),
        group: None,
        flags: (is_number || is_flags(flags)).then_some(flags)?,
        kind: kind(rest.trim())?,
    })
}

/// Removes the time since the line before, as `trace-cmd report --ts-diff` writes it behind the time: `(+170)`. It says
/// nothing that the times do not say.
fn without_difference(text: &str) -> &str {
    let behind = || {
        let (number, behind) = text.trim_start().strip_prefix("(+")?.split_once(')')?;
        number.parse::<i64>().ok()?;
        behind.starts_with(' ').then_some(behind)
    };
    behind().unwrap_or(text)
}

/// Parses `entries-in-buffer/entries-written: 10/15   #P:2`.
pub(super) fn entries(header: &str) -> Option<Line<'_>> {
    let counts = header
        .trim()
        .strip_prefix("entries-in-buffer/entries-written:")?;
    let (kept, written) = counts.split_whitespace().next()?.split_once('/')?;
    Some(Line::Entries {
        kept: kept.parse().ok()?,
        written: written.parse().ok()?,
    })
}

/// Returns the CPU in brackets, and the text before and behind it.
fn cpu(text: &str) -> Option<(&str, u32, &str)> {
    let mut from = 0;
    for _ in 0..PLACES {
        let open = from + text.get(from..)?.find(" [")?;
        let (inside, behind) = text.get(open + 2..)?.split_once(']')?;
        // Kernels before 2.6.30 wrote two digits, NuttX writes one.
        let is_number = !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit());
        // Times that are not seconds (`trace-cmd report --raw-ts`) may follow without a space.
        if is_number && behind.starts_with(|first: char| first == ' ' || first.is_ascii_digit()) {
            return Some((text.get(..open)?, inside.parse().ok()?, behind));
        }
        from = open + 2;
    }
    None
}

/// Parses the text behind the time.
fn kind(text: &str) -> Option<TextKind<'_>> {
    // trace-cmd's form, indented below its caller: `function:   vfs_write <-- ksys_write`.
    if let Some(body) = text.strip_prefix("function: ") {
        let (function, parent) = body.split_once(" <-- ").unwrap_or((body, ""));
        if let Some(function) = name(function) {
            return Some(TextKind::Function {
                function,
                parent: plain(parent),
                calls: 1,
            });
        }
    }
    if let Some((function, parent)) = text.rsplit_once(" <-")
        && let Some(function) = name(function)
    {
        let parent = parent.trim_start_matches('-').trim();
        // `bar (repeats: 3, last_ts: 12.000345)`: number of further calls.
        let (parent, repeats) = parent.split_once(" (repeats: ").unwrap_or((parent, ""));
        let repeats = repeats.split(',').next().and_then(|it| it.parse().ok());
        return Some(TextKind::Function {
            function,
            parent: plain(parent),
            calls: repeats.unwrap_or(1),
        });
    }
    // `sys_read -> 0x1`
    if let Some((name, value)) = text.split_once(" -> ")
        && graph::is_name(name)
        && name.starts_with("sys_")
    {
        return Some(TextKind::Event {
            name: format!("sys_exit_{}", name.trim_start_matches("sys_")).into(),
            body: value,
        });
    }
    // `sys_exit_group(error_code: 0)` is the entry of a call with that name.
    if let Some((name, body)) = text.split_once('(')
        && let Some(call) = name.strip_prefix("sys_exit")
        && graph::is_name(name)
    {
        return Some(TextKind::Event {
            name: format!("sys_enter_exit{call}").into(),
            body: body.trim(),
        });
    }
    let (name, body) = match text.split_once(": ") {
        Some((name, body)) if graph::is_name(name) => (name, body),
        _ => match text.split_once('(') {
            // `sys_read(fd: 3)`
            Some((name, body)) if name.starts_with("sys_") && graph::is_name(name) => (name, body),
            _ => {
                let name = text.strip_suffix(':').filter(|name| graph::is_name(name));
                let unnamed = || sched::unnamed(text).map_or("print", |(name, _)| name);
                (name.unwrap_or_else(unnamed), text)
            }
        },
    };
    // In trace-cmd's output the columns of the graph follow the name.
    if matches!(name, "funcgraph_entry" | "funcgraph_exit") {
        if let Some(found) = graph::line(body) {
            return Some(found.kind);
        }
        if let Some(kind) = graph::plain_line(body.trim()) {
            return Some(kind);
        }
    }
    if matches!(name, "funcgraph_entry" | "funcgraph_exit" | "function")
        && let Some(kind) = raw(name, body)
    {
        return Some(kind);
    }
    Some(TextKind::Event {
        name: name.into(),
        body: body.trim(),
    })
}

/// Parses the fields of a function tracer's record, as `trace-cmd report -R` writes them.
fn raw<'a>(name: &str, body: &'a str) -> Option<TextKind<'a>> {
    let fields = fields(body);
    let field = |name| {
        let field = fields.iter().find(|(field, _)| *field == name);
        field.map(|(_, value)| *value)
    };
    let time = |name| u64::from_str_radix(field(name)?.trim_start_matches("0x"), 16).ok();
    let depth = || field("depth")?.parse().ok();
    Some(match name {
        "funcgraph_entry" => TextKind::Entry {
            function: plain(field("func")?),
            depth: depth()?,
        },
        "funcgraph_exit" => TextKind::Exit {
            function: Some(plain(field("func")?)),
            depth: depth()?,
            duration: time("rettime")
                .zip(time("calltime"))
                .and_then(|(end, begin)| end.checked_sub(begin)),
        },
        _ => TextKind::Function {
            function: plain(field("ip")?),
            parent: plain(field("parent_ip")?),
            calls: 1,
        },
    })
}

/// Returns the name of a function without the suffixes that tracer options add: offset and size (`sym-offset`), address
/// (`sym-addr`), arguments (`func-args`), module. `None` if the text has another form.
pub(super) fn name(text: &str) -> Option<&str> {
    let text = text.trim();
    let name = plain(text);
    let suffix = text.get(name.len()..)?;
    let is_suffix = ["+0x", " <", "(", " ["]
        .iter()
        .any(|it| suffix.starts_with(it));
    let is_name = graph::is_name(name) && !name.ends_with(':');
    (is_name && (suffix.is_empty() || is_suffix)).then_some(name)
}

/// Returns the text in front of such a suffix.
fn plain(text: &str) -> &str {
    let text = text.trim();
    let name = text.split([' ', '(']).next().unwrap_or(text);
    name.split_once("+0x").map_or(name, |(name, _)| name)
}

/// Parses `CPU:1 [LOST 1234 EVENTS]`, or `CPU:1 [1234 EVENTS DROPPED]`, which trace-cmd writes.
pub(super) fn lost(text: &str) -> Option<Line<'_>> {
    let (cpu, rest) = text.strip_prefix("CPU:")?.split_once(' ')?;
    let inside = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    let is_lost =
        inside.contains("EVENTS") && (inside.contains("LOST") || inside.contains("DROPPED"));
    let number = inside.split_whitespace().find_map(|word| word.parse().ok());
    is_lost.then_some(Line::Lost {
        cpu: cpu.parse().ok()?,
        events: number,
    })
}

/// Parses `##### CPU 1 buffer started ####`: earlier events of that CPU are not in the text.
pub(super) fn buffer_started(text: &str) -> Option<Line<'_>> {
    let cpu = text.trim_start_matches('#').trim().strip_prefix("CPU ")?;
    let (cpu, rest) = cpu.split_once(' ')?;
    rest.starts_with("buffer started").then_some(Line::Lost {
        cpu: cpu.parse().ok()?,
        events: None,
    })
}

/// Returns the fields in the text of an event that have the form `name=value`. A value extends to the next name.
/// Numbers of the option `fields`, such as `0x16 (22)`, are decimal.
pub fn fields(body: &str) -> Vec<(&str, &str)> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let mut rest = body;
    let mut open: Option<&str> = None;
    let mut start = 0;
    let mut at = 0;
    // Finds the positions at which a name begins.
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    while let Some(equals) = rest
        .get(at..)
        .and_then(|rest| rest.find('='))
        .map(|it| it + at)
    {
        let head = rest.get(..equals).unwrap_or_default();
        let name_start = head
            .bytes()
            .rposition(|byte| !is_word(byte))
            .map_or(0, |at| at + 1);
        let name = head.get(name_start..).unwrap_or_default();
        let follows_space = name_start == 0
            || head
                .get(..name_start)
                .is_some_and(|it| it.ends_with([' ', '\t']));
        if name.is_empty() || !follows_space {
            at = equals + 1;
            continue;
        }
        if let Some(name) = open.replace(name) {
            fields.push((name, value(rest.get(start..name_start).unwrap_or_default())));
        }
        start = equals + 1;
        at = start;
    }
    if let Some(name) = open {
        rest = rest.get(start..).unwrap_or_default();
        fields.push((name, value(rest)));
    }
    fields
}

/// Returns a value without the signs between it and the next name. Of a number that the option `fields` writes twice,
/// `0x16 (22)`, it is the second.
fn value(text: &str) -> &str {
    let text = text.trim();
    let text = text
        .strip_suffix("==>")
        .unwrap_or(text)
        .trim_end_matches([',', ' ']);
    let decimal = || {
        let (hex, decimal) = text.strip_prefix("0x")?.split_once(" (")?;
        let decimal = decimal.strip_suffix(')')?;
        let hex = u64::from_str_radix(hex, 16).ok()?;
        let number = decimal.parse::<i64>().ok()?;
        // A negative number has as many digits as its field.
        (number < 0 || number.cast_unsigned() == hex).then_some(decimal)
    };
    decimal().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_no_numbers() {
        assert!(is_flags("d..1."));
        assert!(is_flags(".N.."));
        assert!(!is_flags("1234"));
    }

    #[test]
    fn long_lines_take_time_in_proportion() {
        // Each once took the square of its length: hours.
        let count = 2_000_000;
        let cases = [
            format!("{}]", " [".repeat(count)),
            format!("{}] ", " [".repeat(count)),
            format!("{}:", "us".repeat(count)),
            " 1us:".repeat(count),
        ];
        for text in &cases {
            let _ = super::super::line(text);
        }
    }
}
