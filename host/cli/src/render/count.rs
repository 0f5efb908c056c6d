//! Counts with nouns for people: `1 packet`, `2 packets`.

/// A number and what it counts, which forms its plural with an s.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A number, what it counts, and the verb: `1 function is`, `2 functions are`.
pub fn are(count: u64, what: &str) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(count, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(0, "packet"), "0 packets");
        assert_eq!(counted(1, "packet"), "1 packet");
        assert_eq!(are(1, "call"), "1 call is");
        assert_eq!(are(27, "call"), "27 calls are");
    }
}
