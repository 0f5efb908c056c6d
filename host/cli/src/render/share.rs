//! Shares in percent.

use kymo_event::Duration;

/// Formats a share in percent with two decimals, rounded to the nearest. A whole of 0 counts as 1 ns.
pub fn percent(part: Duration, whole: Duration) -> String {
    let whole = u128::from(whole.0.max(1));
    let hundredths = (u128::from(part.0) * 10_000 + whole / 2) / whole;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_to_the_nearest() {
        let shown = |part, whole| percent(Duration(part), Duration(whole));
        assert_eq!(shown(1, 3), "33.33");
        assert_eq!(shown(2, 3), "66.67");
        assert_eq!(shown(5, 5), "100.00");
        assert_eq!(shown(0, 0), "0.00");
        assert_eq!(shown(u64::MAX, u64::MAX), "100.00");
    }
}
