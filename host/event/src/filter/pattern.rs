//! Name patterns with wildcards, and selection by them.

/// Name pattern: `*` matches any number of characters, `?` exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern; any text is valid.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches all of `name`. The time is at most proportional to the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.chars(), name.chars());
        // The pattern after the last `*`, and the next position in the name at which the text matched by `*` may end.
        let mut again = None;
        loop {
            let before = name.clone();
            match (pattern.next(), name.next()) {
                (Some('*'), _) => {
                    name = before.clone();
                    again = Some((pattern.clone(), before));
                    continue;
                }
                (None, None) => return true,
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => continue,
                (_, None) => return false,
                _ => {}
            }
            let Some((behind, from)) = &mut again else {
                return false;
            };
            if from.next().is_none() {
                return false;
            }
            (pattern, name) = (behind.clone(), from.clone());
        }
    }
}

/// Selection by name. The default accepts all names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Accept only names that match one of these; all names if empty ...
    pub keep: Vec<Pattern>,
    /// ... except those that match one of these.
    pub drop: Vec<Pattern>,
}

impl Choice {
    /// Whether it accepts this name.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        (self.keep.is_empty() || any(&self.keep)) && !any(&self.drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_what_they_should() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("*b*b*", "abab", true),
            ("*b*b*", "aba", false),
            ("*ab", "aab", true),
            ("a?c", "aäc", true),
            ("a?c", "ac", false),
            ("lttng_ust:*", "lttng_ust:tracef", true),
            ("a**", "a", true),
        ];
        for (pattern, name, expected) in cases {
            let found = Pattern::new(pattern).matches(name);
            assert_eq!(found, expected, "{pattern} {name}");
        }
        // Many wildcards do not take exponential time.
        assert!(!Pattern::new("*a".repeat(200)).matches(&"a".repeat(199)));
    }

    #[test]
    fn what_is_dropped_is_not_kept() {
        let patterns = |list: &[&str]| list.iter().map(|it| Pattern::new(*it)).collect();
        let choice = Choice {
            keep: patterns(&["a*", "b"]),
            drop: patterns(&["*z"]),
        };
        let kept = ["a", "abz", "b", "c"].map(|name| choice.wants(name));
        assert_eq!(kept, [true, false, true, false]);
        assert!(Choice::default().wants("anything"));
    }
}
