//! Results of comparing a target's clock with other clocks.

use kymo_event::{ClockCheck, ClockReference, ClockVerdict};
use kymo_export::json::{Json, Object, list};

/// Formats the results for people, as clauses that follow the description of the clock.
pub fn checked(checks: &[ClockCheck]) -> String {
    if checks.is_empty() {
        return "unverified: there is nothing to compare it with".to_owned();
    }
    let unverified = match ClockCheck::overall(checks) {
        ClockVerdict::Unverified => "unverified: ",
        ClockVerdict::Agrees | ClockVerdict::Differs => "",
    };
    let clauses: Vec<_> = checks.iter().map(ToString::to_string).collect();
    format!("{unverified}{}", clauses.join(", "))
}

/// Formats the results for programs: a list.
pub struct Checks<'a>(pub &'a [ClockCheck]);

impl Json for Checks<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        list(out, self.0, |out, check| {
            let (least, most) = check.rate;
            let mut object = Object::begin(out);
            object
                .member("reference", reference(check.reference))
                .member("verdict", check.verdict().name())
                .member("rate_min", least)
                .member("rate_max", most);
            object.end();
        });
    }
}

/// The name of the clock that was compared with.
const fn reference(reference: ClockReference) -> &'static str {
    match reference {
        ClockReference::Tick { .. } => "tick",
        ClockReference::Host => "host",
        ClockReference::TimeOfDay => "time_of_day",
    }
}
