//! Names with wildcards, and what is to be kept and dropped by them.

/// A name in which `*` stands for any number of characters, and `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern; any text is one.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for `name` as a whole. Takes at most the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.chars(), name.chars());
        // Behind the last `*`, and where in the name what it stands for may end next.
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

/// What is wanted by its name. Nothing said means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only what one of these stands for; everything if there are none ...
    pub keep: Vec<Pattern>,
    /// ... without what one of these stands for.
    pub drop: Vec<Pattern>,
}

impl Choice {
    /// Whether something of this name is wanted.
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
        // Many wildcards take no exponential time.
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
