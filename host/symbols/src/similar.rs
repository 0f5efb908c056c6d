//! Suggestions for misspelt names.

/// Returns the names nearest to `wanted`, best first, at most `limit`.
///
/// Near names differ by few typing mistakes (one for every three letters), only in case, or contain `wanted`. `names`
/// may repeat; the result does not.
pub(crate) fn similar<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
    limit: usize,
) -> Vec<&'n str> {
    let folded: Vec<char> = fold(wanted);
    if folded.is_empty() {
        return Vec::new();
    }
    let most = (folded.len() / 3).max(1);
    let mut scratch = Rows::default();
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let other: Vec<char> = fold(name);
        let score = match scratch.distance(&folded, &other, most) {
            Some(distance) => distance,
            // Ranks after every misspelling: a part of a longer name.
            None if contains(&other, &folded) => most + other.len() - folded.len(),
            None => continue,
        };
        found.push((score, name));
    }
    found.sort_unstable();
    found.dedup_by(|a, b| a.1 == b.1);
    found.truncate(limit);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Lower case, without characters that are often omitted.
fn fold(name: &str) -> Vec<char> {
    // Names are short; longer ones are truncated so that a hostile table cannot cost quadratic time.
    name.chars()
        .take(256)
        .flat_map(char::to_lowercase)
        .collect()
}

fn contains(name: &[char], part: &[char]) -> bool {
    part.len() >= 3 && name.windows(part.len()).any(|window| window == part)
}

/// Rows of the distance table, reused for each pair of names.
#[derive(Default)]
struct Rows {
    before: Vec<usize>,
    last: Vec<usize>,
    this: Vec<usize>,
}

impl Rows {
    /// How many letters have to be inserted, removed, replaced or swapped with their neighbour to
    /// turn `a` into `b`; `None` if more than `most`.
    fn distance(&mut self, a: &[char], b: &[char], most: usize) -> Option<usize> {
        if a.len().abs_diff(b.len()) > most {
            return None;
        }
        self.last.clear();
        self.last.extend(0..=b.len());
        self.before.clear();
        self.before.resize(b.len() + 1, 0);
        for (i, x) in a.iter().enumerate() {
            self.this.clear();
            self.this.push(i + 1);
            for (j, y) in b.iter().enumerate() {
                let replaced = self.last[j] + usize::from(x != y);
                let mut best = replaced.min(self.last[j + 1] + 1).min(self.this[j] + 1);
                if i > 0 && j > 0 && a[i - 1] == *y && b[j - 1] == *x {
                    best = best.min(self.before[j - 1] + 1);
                }
                self.this.push(best);
            }
            if self.this.iter().min()? > &most {
                return None;
            }
            std::mem::swap(&mut self.before, &mut self.last);
            std::mem::swap(&mut self.last, &mut self.this);
        }
        let distance = *self.last.last()?;
        (distance <= most).then_some(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let mut rows = Rows::default();
        let mut distance = |a: &str, b: &str| rows.distance(&fold(a), &fold(b), 5);
        assert_eq!(distance("kitten", "sitting"), Some(3));
        assert_eq!(distance("main", "mian"), Some(1));
        assert_eq!(distance("main", "main"), Some(0));
        assert_eq!(distance("", "abc"), Some(3));
        assert_eq!(distance("", "abcdef"), None);
        assert_eq!(distance("abcdefgh", "ijklmnop"), None);
    }

    #[test]
    fn the_nearest_come_first() {
        let names = [
            "luaV_execute",
            "luaV_finishget",
            "luaD_call",
            "main",
            "luaV_execute",
        ];
        let near = |wanted| similar(wanted, names.into_iter(), 3);
        assert_eq!(near("luav_exceute"), ["luaV_execute"]);
        assert_eq!(near("luaD_cal"), ["luaD_call"]);
        assert_eq!(near("execute"), ["luaV_execute"]);
        assert_eq!(near("luaV"), ["luaV_execute", "luaV_finishget"]);
        assert!(near("zzz").is_empty());
        assert!(near("").is_empty());
    }
}
