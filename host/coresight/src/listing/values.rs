//! What a packet says, as names with values: for programs.

use super::Packet;
use crate::etmv4::{self, Address, Context};
use crate::isa::PartialAddress;
use crate::{etmv3, itm, ptm, stm};

/// A value of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count, a number, a time.
    Number(u64),
    /// An address, or bits that somebody wrote: of 64 bits, which not every reader of numbers keeps.
    Bits(u64),
    /// Yes or no.
    Flag(bool),
    /// Atoms: `E` of each branch that was taken, `N` of the others, the oldest first.
    Atoms(String),
}

type Values = Vec<(&'static str, Value)>;

impl Packet {
    /// What the packet says, by name; nothing of one that is wrong or cut short.
    pub fn values(&self) -> Vec<(&'static str, Value)> {
        match self {
            Packet::EtmV4(packet) => of_etmv4(&packet.fields),
            Packet::EtmV3(packet) => of_etmv3(&packet.fields),
            Packet::Ptm(packet) => {
                let mut values = of_ptm(&packet.fields);
                optional(&mut values, "cycles", packet.cycles);
                values
            }
            Packet::Stm(packet) => of_stm(packet),
            Packet::Itm(packet) => of_itm(packet),
        }
    }
}

fn number(value: impl Into<u64>) -> Value {
    Value::Number(value.into())
}

fn optional(values: &mut Values, name: &'static str, value: Option<impl Into<u64>>) {
    values.extend(value.map(|value| (name, number(value))));
}

fn atoms(atoms: etmv4::Atoms) -> (&'static str, Value) {
    let atom = |at: u32| if atoms.bits >> at & 1 == 1 { 'E' } else { 'N' };
    let all = (0..u32::from(atoms.count.min(32))).map(atom).collect();
    ("atoms", Value::Atoms(all))
}

fn address(values: &mut Values, address: &Address) {
    values.push(("address", Value::Bits(address.value)));
    values.push(("is", number(address.is)));
}

fn partial(address: &PartialAddress) -> (&'static str, Value) {
    ("address", Value::Bits(address.value.into()))
}

fn context(values: &mut Values, context: &Context) {
    values.push(("el", number(context.level)));
    values.push(("aarch64", Value::Flag(context.is_64_bit)));
    values.push(("ns", Value::Flag(context.ns)));
    values.push(("nse", Value::Flag(context.nse)));
    optional(values, "context_id", context.context_id);
    optional(values, "vmid", context.vmid);
}

fn of_etmv4(fields: &etmv4::Fields) -> Values {
    use etmv4::Fields;
    let mut values = Values::new();
    match fields {
        Fields::None | Fields::Context(None) => {}
        Fields::Atoms(given) => values.push(atoms(*given)),
        Fields::Cancel {
            atoms: given,
            count,
        } => {
            if given.count > 0 {
                values.push(atoms(*given));
            }
            values.push(("cancelled", number(*count)));
        }
        Fields::Commit(count) => values.push(("committed", number(*count))),
        Fields::Address(given) => address(&mut values, given),
        Fields::Context(Some(given)) => context(&mut values, given),
        Fields::AddressContext(place, given) => {
            address(&mut values, place);
            context(&mut values, given);
        }
        Fields::TraceInfo(info) => {
            values.push(("info", number(info.info)));
            values.push(("key", number(info.key)));
            values.push(("cycle_threshold", number(info.cycle_threshold)));
            optional(&mut values, "speculation", info.speculation);
        }
        Fields::Timestamp { value, cycles } => {
            values.push(("timestamp", number(*value)));
            optional(&mut values, "cycles", *cycles);
        }
        Fields::Cycles { count, commit } => {
            values.push(("cycles", number(*count)));
            let commit = commit.and_then(|count| u64::try_from(count).ok());
            optional(&mut values, "committed", commit);
        }
        Fields::Exception {
            number: exception,
            address,
            fault_pending,
        } => {
            values.push(("exception", number(*exception)));
            values.push(("address_follows", Value::Flag(*address != 0)));
            values.push(("fault_pending", Value::Flag(*fault_pending)));
        }
        Fields::Number(value) => values.push(("number", number(*value))),
        Fields::Q(element) => {
            optional(&mut values, "instructions", element.count);
            if let Some(place) = &element.address {
                address(&mut values, place);
            }
        }
        Fields::Instrumentation { level, value } => {
            values.push(("el", number(*level)));
            values.push(("value", Value::Bits(*value)));
        }
        Fields::Conditional(bits) => values.push(("bits", Value::Bits((*bits).into()))),
        Fields::Results(results) => {
            let names = [("key", "result"), ("key_2", "result_2")];
            for ((key, name), result) in names.into_iter().zip(results.iter().flatten()) {
                values.push((key, number(result.key)));
                values.push((name, number(result.result)));
            }
        }
    }
    values
}

fn of_etmv3(fields: &etmv3::Fields) -> Values {
    use etmv3::Fields;
    let mut values = Values::new();
    let context = |values: &mut Values, context: &etmv3::Context| {
        values.push(("ns", Value::Flag(context.ns)));
        values.push(("hyp", Value::Flag(context.hyp)));
    };
    match fields {
        Fields::None => {}
        Fields::PHeader {
            atoms: given,
            cycles,
            ..
        } => {
            values.push(atoms(*given));
            if *cycles > 0 {
                values.push(("cycles", number(*cycles)));
            }
        }
        Fields::Branch(branch) => {
            values.push(partial(&branch.address));
            if let Some(exception) = &branch.exception {
                values.push(("exception", number(exception.number)));
                values.push(("cancels", Value::Flag(exception.cancels)));
            }
            if let Some(given) = &branch.context {
                context(&mut values, given);
            }
        }
        Fields::ISync(sync) => {
            values.extend(sync.address.as_ref().map(partial));
            context(&mut values, &sync.context);
            optional(&mut values, "context_id", sync.id);
            optional(&mut values, "cycles", sync.cycles);
        }
        Fields::Cycles(count) => values.push(("cycles", number(*count))),
        Fields::ContextId(id) => values.push(("context_id", number(*id))),
        Fields::Vmid(id) => values.push(("vmid", number(*id))),
        Fields::Timestamp(value) => values.push(("timestamp", number(*value))),
        Fields::Data {
            address,
            value,
            tag,
        } => {
            values.extend(address.as_ref().map(partial));
            values.extend(value.map(|value| ("value", Value::Bits(value.into()))));
            values.push(("tag", number(*tag)));
        }
    }
    values
}

fn of_ptm(fields: &ptm::Fields) -> Values {
    use ptm::Fields;
    let mut values = Values::new();
    let context = |values: &mut Values, context: &ptm::Context| {
        values.push(("ns", Value::Flag(context.ns)));
        values.push(("hyp", Value::Flag(context.hyp)));
        optional(values, "context_id", context.id);
    };
    match fields {
        Fields::None => {}
        Fields::Atoms(given) => values.push(atoms(*given)),
        Fields::Branch(branch) => {
            values.push(partial(&branch.address));
            optional(&mut values, "exception", branch.exception);
            if let Some(given) = &branch.context {
                context(&mut values, given);
            }
        }
        Fields::ISync {
            address,
            context: given,
            ..
        } => {
            values.push(partial(address));
            context(&mut values, given);
        }
        Fields::Timestamp { value, .. } => values.push(("timestamp", number(*value))),
        Fields::ContextId(id) => values.push(("context_id", number(*id))),
        Fields::Vmid(id) => values.push(("vmid", number(*id))),
    }
    values
}

fn of_stm(packet: &stm::Packet) -> Values {
    use stm::Kind;
    let mut values = vec![
        ("master", number(packet.master)),
        ("channel", number(packet.channel)),
    ];
    match packet.kind {
        Kind::Data4 | Kind::Data8 | Kind::Data16 | Kind::Data32 | Kind::Data64 => {
            values.push(("value", Value::Bits(packet.value)));
            values.push(("marker", Value::Flag(packet.is_marker)));
        }
        Kind::Trigger | Kind::Frequency | Kind::Version => {
            values.push(("value", Value::Bits(packet.value)));
        }
        // Of the others, master and channel are those of the packets before.
        Kind::Flag | Kind::Master8 | Kind::Channel8 | Kind::Channel16 | Kind::MasterError => {}
        _ => values.clear(),
    }
    optional(
        &mut values,
        "timestamp",
        packet.timestamp.map(|(value, _)| value),
    );
    values
}

fn of_itm(packet: &itm::Packet) -> Values {
    use itm::Kind;
    let (source, value) = (number(packet.source), Value::Bits(packet.value));
    let bytes = ("bytes", number(packet.size));
    match packet.kind {
        Kind::Software => vec![("port", source), ("value", value), bytes],
        Kind::Hardware => vec![("discriminator", source), ("value", value), bytes],
        Kind::LocalTimestamp => vec![("ticks", number(packet.value)), ("delay", source)],
        Kind::GlobalTimestamp1 | Kind::GlobalTimestamp2 | Kind::Extension => {
            vec![("value", value)]
        }
        _ => Values::new(),
    }
}
