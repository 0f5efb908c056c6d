//! Folds repeated messages, so that a warning that occurs a thousand times is printed a few times.

/// Number of distinct messages that are counted. Beyond it the oldest is forgotten, and would be printed again.
const MOST: usize = 64;

/// Counts repeated messages.
#[derive(Debug, Default)]
pub struct Fold {
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    message: String,
    count: u64,
    /// The count at which it was last printed.
    printed: u64,
}

impl Fold {
    /// Counts a message. Returns the text if it must be printed now: for the first occurrence, and then at every
    /// power of ten.
    pub fn count(&mut self, message: &str) -> Option<String> {
        let Some(seen) = self.seen.iter_mut().find(|seen| seen.message == message) else {
            if self.seen.len() >= MOST {
                self.seen.remove(0);
            }
            self.seen.push(Seen {
                message: message.to_owned(),
                count: 1,
                printed: 1,
            });
            return Some(message.to_owned());
        };
        seen.count += 1;
        if seen.count < seen.printed.saturating_mul(10) {
            return None;
        }
        seen.printed = seen.count;
        Some(format!("{message} ({} times so far)", seen.count))
    }

    /// The messages that occurred more often than was printed, for the end.
    pub fn rest(&mut self) -> Vec<String> {
        let seen = std::mem::take(&mut self.seen);
        let unsaid = seen.into_iter().filter(|seen| seen.count > seen.printed);
        unsaid
            .map(|seen| format!("{} ({} times)", seen.message, seen.count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counted_and_said_in_the_end() {
        let mut fold = Fold::default();
        let mut printed = Vec::new();
        for n in 0..25 {
            printed.extend(fold.count("lost"));
            if n == 0 {
                printed.extend(fold.count("back"));
            }
        }
        assert_eq!(printed, ["lost", "back", "lost (10 times so far)"]);
        assert_eq!(fold.rest(), ["lost (25 times)"]);
        assert!(fold.rest().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut fold = Fold::default();
        for n in 0..10_000 {
            assert!(fold.count(&n.to_string()).is_some());
        }
        assert_eq!(fold.seen.len(), MOST);
    }
}
