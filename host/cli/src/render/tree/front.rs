//! Front of a line: time, empty duration column, processor, name, and spaces for the indentation.
//!
//! Consecutive lines of an actor share nearly all of it. It is composed once per millisecond, and then only the last
//! six digits of the time change.

use kymo_event::{Cpu, Time, three};

use super::actors::columns;
use super::line::GAP;
use crate::render::times::Times;

/// Number of levels for which spaces are prepared.
const LEVELS: usize = 64;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Front {
    text: Vec<u8>,
    /// The end of the time.
    time: usize,
    /// The end of the columns, where the spaces begin.
    end: usize,
    /// The begin of the millisecond, if the time has one.
    millisecond: Option<i64>,
    cpu: Option<Option<Cpu>>,
}

impl Front {
    /// Composes it. `cpu` is the processor, if there is a column for it; `cell` is the name, as wide as its column.
    #[cold]
    pub fn new(times: &Times, time: Time, cpu: Option<Option<Cpu>>, cell: &str) -> Self {
        let mut column = String::new();
        times.push(time, &mut column);
        let mut text = column.into_bytes();
        let end_of_time = text.len();
        text.extend_from_slice(columns(cpu, cell).as_bytes());
        let end = text.len();
        text.resize(end + 2 * LEVELS, b' ');
        Self {
            text,
            time: end_of_time,
            end,
            millisecond: times.millisecond(time),
            cpu,
        }
    }

    /// Changes the time; `false` if the front must be composed again.
    #[inline]
    pub fn move_to(&mut self, time: Time, cpu: Option<Option<Cpu>>) -> bool {
        let Some(begin) = self.millisecond.filter(|_| self.cpu == cpu) else {
            return false;
        };
        let within = time.0.wrapping_sub(begin).cast_unsigned();
        let digits = self.text.get_mut(..self.time);
        let digits = digits.and_then(<[u8]>::last_chunk_mut::<6>);
        let Some([a, b, c, d, e, f]) = digits.filter(|_| within < 1_000_000) else {
            return false;
        };
        [*a, *b, *c] = three(within / 1_000);
        [*d, *e, *f] = three(within);
        true
    }

    /// The position of the duration column.
    pub const fn column(&self) -> usize {
        self.time + GAP.len()
    }

    /// Appends it to a text, with this indentation.
    #[inline]
    pub fn push(&self, levels: u32, text: &mut Vec<u8>) {
        let width = 2 * levels as usize;
        match self.text.get(..self.end + width) {
            Some(front) => text.extend_from_slice(front),
            None => {
                text.extend_from_slice(self.text.get(..self.end).unwrap_or_default());
                text.resize(text.len() + width, b' ');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_front_is_the_one_that_is_put_together() {
        let times = Times::default();
        let mut moments: Vec<i64> = (0..4000).map(|step| step * 977).collect();
        moments.extend([5, i64::MIN, -1, 0, i64::MAX, 999_999, 1_000_000, 1_000_001]);
        moments.extend((0..4000).map(|step| 123_456_789_000_000_000 - step * 977));
        let mut front = Front::default();
        let mut moved = 0;
        for (index, time) in moments.into_iter().map(Time).enumerate() {
            // From one processor to the other now and then.
            let cpu = Some(Some(Cpu(index as u32 / 10 % 2)));
            let new = Front::new(&times, time, cpu, "name  ");
            match front.move_to(time, cpu) {
                true => moved += 1,
                false => front = Front::new(&times, time, cpu, "name  "),
            }
            for levels in [0, 1, 64, 65, 100] {
                let (mut found, mut expected) = (Vec::new(), Vec::new());
                front.push(levels, &mut found);
                new.push(levels, &mut expected);
                assert_eq!(found, expected);
                assert_eq!(found.len(), new.end + 2 * levels as usize);
            }
            assert_eq!(front.column(), new.column());
        }
        assert!(moved > 7000, "{moved}");
    }
}
