//! Conditions of trigger and stopper, in a native program that writes them itself.

use std::process::Command;

use kymo_device_tests::Kind;

use super::common::{build_with, compilers, conditional_library, raw_file};

#[test]
fn trigger_and_stopper_act_as_their_words_in_memory_say() {
    for compiler in compilers() {
        let hooks = ["-finstrument-functions"];
        let program = build_with(conditional_library(), compiler, "conditions", &hooks);
        let file = program.with_extension("kymo");
        let status = Command::new(&program).env("KYMO_OUTPUT", &file).status();
        assert_eq!(status.expect("it runs").code(), Some(0), "{compiler}");
        let (_, packets) = raw_file(&file);
        let kinds = packets.iter().flat_map(|packet| &packet.records);
        let markers: Vec<u32> = kinds
            .filter_map(|record| match record.kind {
                Kind::Marker(value) => Some(value),
                _ => None,
            })
            .collect();
        // From the second call out of `second` on, until the third return of `leaf`.
        assert_eq!(markers, [3, 4, 5], "{compiler}");
    }
}
