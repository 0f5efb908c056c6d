//! Cycle counts between two timestamps: how the time between them is spread over the instructions.

/// Position of the last timestamp on the scale of cycles, so that events before it have positions, too.
pub(super) const BASE: u64 = 1 << 62;

/// Count of the trace unit.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Number of pending events before it.
    place: usize,
    instructions: u64,
    /// Cycles since the last timestamp.
    cycles: i64,
}

/// Cycle counts since the last timestamp, or since a pause.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// In order. Of more than two without an event between them, only the first and the last are kept.
    points: Vec<Count>,
    /// Cycles from the last timestamp to the last count, which precedes it if the timestamp has a count.
    counted: i64,
    /// Whether there is a count since the last timestamp.
    is_counted: bool,
    /// Whether a count since the last timestamp is unknown.
    is_unknown: bool,
    /// Whether there was a count before a pause: the next one may include the pause.
    is_behind_pause: bool,
    /// Whether the trace has any count.
    pub is_in_trace: bool,
}

impl Counts {
    /// Adds a count after this number of instructions and pending events.
    pub fn add(&mut self, place: usize, instructions: u64, cycles: u32) {
        self.is_unknown |= std::mem::take(&mut self.is_behind_pause) && !self.points.is_empty();
        self.is_in_trace = true;
        self.is_counted = true;
        self.counted = self.counted.saturating_add(i64::from(cycles));
        self.point(place, instructions, self.counted);
    }

    /// Adds a count whose value is unknown.
    pub fn unknown(&mut self) {
        self.is_in_trace = true;
        self.is_unknown = true;
        self.is_behind_pause = false;
    }

    fn point(&mut self, place: usize, instructions: u64, cycles: i64) {
        let cycles = self
            .points
            .last()
            .map_or(cycles, |last| cycles.max(last.cycles));
        if let [.., one, other] = self.points.as_slice()
            && one.place == place
            && other.place == place
        {
            self.points.pop();
        }
        self.points.push(Count {
            place,
            instructions,
            cycles,
        });
    }

    /// Adds a timestamp, `since` cycles after the last count if it has one itself. Returns the cycles since the last
    /// timestamp if they are known.
    pub fn timestamp(
        &mut self,
        place: usize,
        instructions: u64,
        since: Option<u32>,
    ) -> Option<u64> {
        let at = match (since, self.points.last()) {
            (Some(since), _) => self.counted.saturating_add(i64::from(since)),
            (None, Some(last)) => self.along(last, instructions),
            (None, None) => self.counted,
        };
        self.point(place, instructions, at);
        let total = self.points.last().map_or(at, |last| last.cycles);
        let is_known = self.is_counted && !self.is_unknown && total > 0;
        is_known.then_some(total.cast_unsigned())
    }

    /// Makes the timestamp that was added the first one: events before it keep their positions.
    pub fn begin(&mut self, since: Option<u32>) {
        let now = self.points.last().map_or(0, |last| last.cycles);
        for point in &mut self.points {
            point.cycles = point.cycles.saturating_sub(now);
        }
        self.counted = -i64::from(since.unwrap_or_default());
    }

    /// Makes the timestamp that was added the last one, without pending events.
    pub fn go_on(&mut self, since: Option<u32>) {
        self.begin(since);
        self.restart();
        self.is_counted = false;
        self.is_unknown = false;
    }

    /// Forgets what was before pending events that got their times.
    pub fn restart(&mut self) {
        if let Some(mut last) = self.points.pop() {
            last.place = 0;
            self.points.clear();
            self.points.push(last);
        }
    }

    /// Makes place for an event that is inserted into the pending ones, after this number of instructions.
    pub fn insert(&mut self, place: usize, instructions: u64) {
        for point in &mut self.points {
            let is_behind = point.place == place && point.instructions > instructions;
            point.place += usize::from(is_behind || point.place > place);
        }
    }

    /// Adds a pause: how many cycles it took is not known.
    pub fn pause(&mut self) {
        *self = Counts {
            is_behind_pause: self.is_in_trace,
            is_in_trace: self.is_in_trace,
            ..Counts::default()
        };
    }

    /// Whether pending events have positions by cycles.
    pub fn are_known(&self) -> bool {
        self.is_counted && !self.is_unknown
    }

    /// Replaces the instructions before each event with its position by cycles.
    pub fn convert<T>(&self, events: &mut [(u64, T)]) {
        let mut next = 0;
        for (place, (at, _)) in events.iter_mut().enumerate() {
            while self
                .points
                .get(next)
                .is_some_and(|point| point.place <= place)
            {
                next += 1;
            }
            let before = next.checked_sub(1).and_then(|index| self.points.get(index));
            let cycles = match (before, self.points.get(next)) {
                (Some(before), Some(after)) => between(before, after, *at),
                (Some(point), None) | (None, Some(point)) => self.along(point, *at),
                (None, None) => 0,
            };
            *at = BASE.saturating_add_signed(cycles);
        }
    }

    /// Position after this number of instructions, by the cycles of an instruction on average.
    fn along(&self, point: &Count, at: u64) -> i64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return 0;
        };
        let executed = last.instructions.saturating_sub(first.instructions).max(1);
        let cycles = last.cycles.saturating_sub(first.cycles);
        let apart = i128::from(at) - i128::from(point.instructions);
        let apart = apart * i128::from(cycles) / i128::from(executed);
        point
            .cycles
            .saturating_add(i64::try_from(apart).unwrap_or_default())
    }
}

/// Position between two counts.
fn between(before: &Count, after: &Count, at: u64) -> i64 {
    let executed = after.instructions.saturating_sub(before.instructions);
    if executed == 0 {
        return before.cycles;
    }
    let ran = at.saturating_sub(before.instructions).min(executed);
    let cycles = after.cycles.saturating_sub(before.cycles);
    let spread = i128::from(cycles) * i128::from(ran) / i128::from(executed);
    before
        .cycles
        .saturating_add(i64::try_from(spread).unwrap_or_default())
}
