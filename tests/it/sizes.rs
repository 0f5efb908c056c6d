//! Limits for the recorder's size. (`cargo xtask bench recorder` measures it on every processor.)

use kymo_targets::tools::{self, Need};
use xtask::bench::machine::MACHINES;
use xtask::bench::reached::Reached;
use xtask::bench::sizes;
use xtask::bench::table::{self, Line};

#[test]
fn the_recorder_is_no_larger_than_it_may_be() {
    tools::require(&[Need::Firmware]).unwrap();
    let mut machines = MACHINES.iter();
    let machine = machines.find(|machine| machine.target.starts_with("thumbv7em"));
    let lines = sizes::measure(machine.unwrap()).unwrap();
    println!("{}", table::text(&lines));
    let wanting: Vec<String> = lines.iter().flat_map(Line::wanting).collect();
    println!("beyond the budget: {wanting:#?}");
    let reached = Reached::load().unwrap();
    let excesses = lines.iter().flat_map(|line| line.excesses(&reached));
    assert_eq!(excesses.collect::<Vec<_>>(), Vec::<String>::new());
}
