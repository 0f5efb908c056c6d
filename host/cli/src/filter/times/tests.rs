use super::*;

#[test]
fn times_are_seconds_or_have_a_unit() {
    let cases = [
        ("12.5", Bound::At(Time(12_500_000_000))),
        ("0.000000001", Bound::At(Time(1))),
        ("-3s", Bound::At(Time(-3_000_000_000))),
        ("80us", Bound::At(Time(80_000))),
        (
            "1700000000.123456789",
            Bound::At(Time(1_700_000_000_123_456_789)),
        ),
        ("+250ms", Bound::AfterStart(Duration(250_000_000))),
        ("+5ns", Bound::AfterStart(Duration(5))),
        (".5", Bound::At(Time(500_000_000))),
    ];
    for (text, expected) in cases {
        assert_eq!(bound(text), Ok(expected), "{text}");
    }
    for text in [
        "",
        "+",
        "ms",
        "1.2.3",
        "--1",
        "+-1",
        "1h",
        "99999999999999",
        "1e9",
        ".",
    ] {
        assert!(bound(text).is_err(), "{text}");
    }
}
