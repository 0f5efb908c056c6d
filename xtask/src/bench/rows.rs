//! Rows of the table: names, processors, and demands.

/// Which of a row's calls represents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The one with the fewest instructions: the fast path.
    Shortest,
    /// The one with the most: for an event that occurs once in many calls.
    Longest,
}

/// Processors of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All.
    All,
    /// All but Armv6-M, which has no exclusive loads and stores.
    NotArmv6,
    /// Armv7-M only: the assembly is written for it.
    Armv7,
    /// Any Cortex-M.
    CortexM,
    /// Armv7-M and bare AArch64: with duration mode.
    Duration,
    /// Bare metal.
    Bare,
    /// Bare metal with one processor.
    Single,
    /// All but bare AArch64, whose recorder is made for several processors.
    NotSeveral,
}

/// Demands on a row; `None`: no demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Instructions, on an Armv7-M.
    pub instructions: Option<u64>,
    /// Instructions with interrupts masked, on all processors that mask them.
    pub masked: Option<u64>,
    /// Average bytes per event.
    pub bytes: Option<f64>,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    /// Its name in the programs in `bench`.
    pub name: &'static str,
    /// Its name in the table.
    pub title: &'static str,
    /// The call that counts.
    pub pick: Pick,
    /// Number of consecutive calls that make one event.
    pub calls: usize,
    /// Processors on which it is required.
    pub on: On,
    /// Its demands.
    pub demand: Demand,
    /// For comparison with another recorder; it has no limit.
    pub peer: bool,
}

/// Greatest number of instructions with interrupts masked while one event is recorded. It was 20 before, which made a
/// thread switch take 500 instructions and an interrupt 240. A short masked encode delays pending interrupts by less
/// time than it saves elsewhere.
const MASKED: u64 = 100;

/// The same while a packet is closed and another one begins (it was 80 before).
const MASKED_PACKET: u64 = 170;

const NOTHING: Demand = Demand {
    instructions: None,
    masked: None,
    bytes: None,
};

/// A row for comparison.
const fn peer(name: &'static str, title: &'static str) -> Row {
    Row {
        name,
        title,
        pick: Pick::Shortest,
        calls: 1,
        on: On::All,
        demand: NOTHING,
        peer: true,
    }
}

/// A row for one recorded event.
const fn event(name: &'static str, title: &'static str) -> Row {
    Row {
        demand: Demand {
            masked: Some(MASKED),
            ..NOTHING
        },
        peer: false,
        ..peer(name, title)
    }
}

impl Row {
    /// With at most this number of instructions.
    const fn within(mut self, instructions: u64) -> Self {
        self.demand.instructions = Some(instructions);
        self
    }

    /// With at most this number of bytes.
    const fn bytes(mut self, bytes: f64) -> Self {
        self.demand.bytes = Some(bytes);
        self
    }

    const fn on(mut self, on: On) -> Self {
        self.on = on;
        self
    }

    const fn calls(mut self, calls: usize) -> Self {
        self.calls = calls;
        self
    }

    /// For beginning a packet, which occurs in one of many calls.
    const fn packet(mut self) -> Self {
        self.pick = Pick::Longest;
        self.demand.masked = Some(MASKED_PACKET);
        self
    }

    /// Its demand on this processor; `None` if the row is not required there.
    pub fn demand_on(&self, target: &str) -> Option<Demand> {
        let armv6 = target.starts_with("thumbv6m");
        let cortex_m = target.starts_with("thumb");
        let (hosted, several) = (target.contains("linux"), target.starts_with("aarch64"));
        let there = match self.on {
            On::All => true,
            On::NotArmv6 => !armv6,
            On::Armv7 => cortex_m && !armv6,
            On::CortexM => cortex_m,
            On::Duration => several || (cortex_m && !armv6),
            On::Bare => !hosted,
            On::Single => !hosted && !several,
            On::NotSeveral => !several,
        };
        there.then_some(Demand {
            instructions: self.demand.instructions.filter(|_| cortex_m && !armv6),
            masked: self.demand.masked.filter(|_| !hosted),
            bytes: self.demand.bytes,
        })
    }
}

/// All rows, in the order of the table.
pub const ROWS: &[Row] = &[
    peer("empty", "empty hook"),
    peer("rtems_up", "RTEMS 2018, one CPU"),
    peer("rtems_smp", "RTEMS, several CPUs").on(On::NotArmv6),
    event("put", "item, interrupts masked")
        .within(12)
        .on(On::Single),
    event("produce", "item, any clock, gate looked at").on(On::NotSeveral),
    event("put_packet", "item, packet change")
        .packet()
        .on(On::Single),
    event("produce_packet", "the same, any clock")
        .packet()
        .on(On::NotSeveral),
    event("enter_least", "enter, smallest library")
        .within(24)
        .on(On::CortexM),
    event("exit_least", "exit, smallest library")
        .within(24)
        .on(On::CortexM),
    event("enter_minimal", "enter, no parts")
        .within(24)
        .on(On::Armv7),
    event("exit_minimal", "exit, no parts")
        .within(24)
        .on(On::Armv7),
    event("enter", "enter, stopper, depth").within(30),
    event("exit", "exit, stopper, depth").within(30),
    event("exit_named", "exit, its enter elsewhere").within(30),
    event("enter_everything", "enter, table and filter").within(90),
    event("exit_everything", "exit, table and filter").within(110),
    event("evict", "enter or exit, table full")
        .packet()
        .on(On::Bare),
    event("enter_sites", "enter, call sites"),
    event("exit_sites", "exit, call sites"),
    event("enter_filtered", "enter, duration mode, filtered")
        .within(19)
        .on(On::Duration),
    event("exit_filtered", "exit, duration mode, filtered")
        .within(26)
        .on(On::Duration),
    event("enter_watched", "enter, the same, a function watched for")
        .within(19 + 8)
        .on(On::Armv7),
    event("exit_watched", "exit, the same, a function watched for")
        .within(26 + 8)
        .on(On::Armv7),
    event("enter_recorded", "enter, duration mode, recorded").on(On::Duration),
    event("exit_recorded", "exit, duration mode, recorded").on(On::Duration),
    event("marker_duration", "marker, duration mode").on(On::Duration),
    event("marker_watched", "marker, the same, one watched for")
        .within(70 + 8)
        .on(On::Duration),
    event("isr_duration", "interrupt entered, duration mode").on(On::Duration),
    event("isr_watched", "the same, another one watched for")
        .within(119 + 8)
        .on(On::Duration),
    event("disabled_enter", "enter, disabled").within(4),
    event("disabled_exit", "exit, disabled").within(4),
    event("armed_enter", "enter, trigger awaited").within(8),
    event("armed_exit", "exit, trigger awaited").within(8),
    event("packet", "packet change").within(150).packet(),
    event("packet_summed", "packet change, checksum of 512 bytes")
        .packet()
        .on(On::Armv7),
    event("switch", "thread switch, one call")
        .within(55)
        .bytes(5.0),
    event("switch_near", "thread switch, out and in")
        .calls(2)
        .within(90)
        .bytes(8.0),
    event("switch_far", "thread switch, far thread").calls(2),
    event("isr_enter", "interrupt entered")
        .within(45)
        .bytes(4.0),
    event("isr_exit", "interrupt left").within(45).bytes(4.0),
    event("marker", "marker").within(50).bytes(8.0),
    event("named_marker", "marker with a name").within(50),
    event("context", "thread's priority and mode"),
    event("block", "record in place, 16 bytes")
        .calls(2)
        .within(90)
        .on(On::NotSeveral),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_holds_where_it_is_meant() {
        let row = |name| ROWS.iter().find(|row| row.name == name).unwrap();
        let put = row("put").demand_on("thumbv7em-none-eabihf").unwrap();
        assert_eq!((put.instructions, put.masked), (Some(12), Some(100)));
        let put = row("put").demand_on("thumbv6m-none-eabi").unwrap();
        assert_eq!((put.instructions, put.masked), (None, Some(100)));
        assert_eq!(row("put").demand_on("aarch64-unknown-none"), None);
        let marker = row("marker").demand_on("x86_64-unknown-linux-gnu");
        let bytes = Some(8.0);
        assert_eq!(marker, Some(Demand { bytes, ..NOTHING }));
        let marker = row("marker").demand_on("riscv32imac-unknown-none-elf");
        assert_eq!(marker.unwrap().bytes, bytes);
    }
}
