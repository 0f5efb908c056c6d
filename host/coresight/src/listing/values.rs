//! Packet fields as name-value pairs, for machine-readable output.

use std::borrow::Cow;

use super::Packet;
use crate::element::Security;
use crate::etmv4::{self, Address, Context};
use crate::exception::Exceptions;
use crate::isa::{Isa, PartialAddress};
use crate::source::Protocol;
use crate::{etmv3, itm, ptm, stm};

/// Value of a packet field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count, number or time.
    Number(u64),
    /// A count, which is negative in an invalid trace.
    Signed(i64),
    /// An address, or data that software wrote: 64 bits, more than some readers of numbers keep (JSON).
    Bits(u64),
    /// A flag.
    Flag(bool),
    /// A name, such as an exception's; or atoms, the oldest first: `E` for a taken branch, `N` for one that was not
    /// taken.
    Text(Cow<'static, str>),
}

type Values = Vec<(&'static str, Value)>;

impl Packet {
    /// Fields of a packet from a source of this protocol, by name. For an invalid or incomplete packet, the kind as
    /// which it began.
    pub fn values(&self, protocol: &Protocol) -> Vec<(&'static str, Value)> {
        let exceptions = Exceptions::of(protocol);
        let mut values = Values::new();
        match self {
            Packet::EtmV4(packet) => {
                use etmv4::Kind::{BadSequence, BadTraceMode, IncompleteEot, ReservedConfig};
                match packet.kind {
                    BadSequence | BadTraceMode | IncompleteEot | ReservedConfig => {
                        values.push(text("began_as", etmv4::name(packet.began_as)));
                    }
                    _ => of_etmv4(packet, exceptions, &mut values),
                }
            }
            Packet::EtmV3(packet) => {
                use etmv3::Kind::{BadSequence, BadTraceMode, IncompleteEot};
                if let BadSequence | BadTraceMode | IncompleteEot = packet.kind {
                    values.push(text("began_as", etmv3::name(packet.began_as)));
                }
                of_etmv3(packet, exceptions, &mut values);
            }
            Packet::Ptm(packet) => {
                use ptm::Kind::{BadSequence, IncompleteEot};
                if let BadSequence | IncompleteEot = packet.kind {
                    values.push(text("began_as", ptm::name(packet.began_as)));
                }
                of_ptm(&packet.fields, exceptions, &mut values);
                optional(&mut values, "cycles", packet.cycles);
            }
            Packet::Stm(packet) => of_stm(packet, &mut values),
            Packet::Itm(packet) => of_itm(packet, &mut values),
        }
        values
    }
}

fn number(value: impl Into<u64>) -> Value {
    Value::Number(value.into())
}

fn text(name: &'static str, value: impl Into<Cow<'static, str>>) -> (&'static str, Value) {
    (name, Value::Text(value.into()))
}

fn optional(values: &mut Values, name: &'static str, value: Option<impl Into<u64>>) {
    values.extend(value.map(|value| (name, number(value))));
}

fn atoms(atoms: etmv4::Atoms) -> (&'static str, Value) {
    let atom = |at: u32| if atoms.bits >> at & 1 == 1 { 'E' } else { 'N' };
    let all: String = (0..u32::from(atoms.count.min(32))).map(atom).collect();
    text("atoms", all)
}

/// Adds a complete address, and the number of its low bits in the packet itself.
fn address(values: &mut Values, address: &Address) {
    values.push(("address", Value::Bits(address.value)));
    values.push(("address_bits", number(address.bits)));
    values.push(("is", number(address.is)));
    if address.bits == 0 {
        values.push(("match_index", number(address.match_index)));
    }
}

/// Adds an address of which `known_bits` low bits are known from packets so far, `address_bits` of them from this one.
fn partial(values: &mut Values, address: &PartialAddress) {
    values.push(("address", Value::Bits(address.value.into())));
    values.push(("address_bits", number(address.bits)));
    values.push(("known_bits", number(address.valid_bits)));
}

fn isa(isa: Isa) -> (&'static str, Value) {
    text("isa", isa.short_name())
}

fn security(ns: bool, nse: bool) -> (&'static str, Value) {
    let security = match (nse, ns) {
        (false, false) => Security::Secure,
        (false, true) => Security::NonSecure,
        (true, false) => Security::Root,
        (true, true) => Security::Realm,
    };
    text("security", security.name())
}

fn exception(values: &mut Values, number: u16, exceptions: Option<Exceptions>) {
    values.push(("exception", Value::Number(number.into())));
    let name = exceptions.map(|exceptions| exceptions.name(number.into()));
    values.extend(name.map(|name| text("exception_name", name)));
}

fn context(values: &mut Values, context: &Context) {
    values.push(("exception_level", number(context.level)));
    values.push(security(context.ns, context.nse));
    values.push(("aarch64", Value::Flag(context.is_64_bit)));
    optional(values, "vmid", context.vmid);
    optional(values, "context_id", context.context_id);
}

fn of_etmv4(packet: &etmv4::Packet, exceptions: Option<Exceptions>, values: &mut Values) {
    use etmv4::Fields;
    match &packet.fields {
        Fields::None => {}
        Fields::Context(None) => values.push(("unchanged", Value::Flag(true))),
        Fields::Atoms(given) => values.push(atoms(*given)),
        Fields::Cancel {
            atoms: given,
            count,
        } => {
            if given.count > 0 {
                values.push(atoms(*given));
            }
            values.push(("cancelled", number(*count)));
            let is_mispredict = packet.kind != etmv4::Kind::CancelF1;
            values.push(("mispredict", Value::Flag(is_mispredict)));
        }
        Fields::Commit(count) => values.push(("committed", number(*count))),
        Fields::Address(given) => address(values, given),
        Fields::Context(Some(given)) => context(values, given),
        Fields::AddressContext(place, given) => {
            address(values, place);
            context(values, given);
        }
        Fields::TraceInfo(info) => {
            values.push(("info", number(info.info)));
            values.push(("key", number(info.key)));
            values.push(("cycle_threshold", number(info.cycle_threshold)));
            optional(values, "speculation", info.speculation);
            values.push(("first", Value::Flag(info.is_first)));
        }
        Fields::Timestamp { value, cycles } => {
            values.push(("timestamp", number(*value)));
            optional(values, "cycles", *cycles);
        }
        Fields::Cycles { count, commit } => {
            values.push(("cycles", number(*count)));
            values.extend(commit.map(|count| ("committed", Value::Signed(count.into()))));
        }
        Fields::Exception {
            number: given,
            address,
            fault_pending,
        } => {
            exception(values, *given, exceptions);
            values.push(("address_follows", Value::Flag(*address != 0)));
            values.push(("branch_target", Value::Flag(*address == 2)));
            values.push(("fault_pending", Value::Flag(*fault_pending)));
        }
        Fields::Number(value) => values.push(("number", number(*value))),
        Fields::Q(element) => {
            values.push(("form", number(element.form)));
            optional(values, "instructions", element.count);
            if let Some(place) = &element.address {
                address(values, place);
            }
        }
        Fields::Instrumentation { level, value } => {
            values.push(("exception_level", number(*level)));
            values.push(("value", Value::Bits(*value)));
        }
        Fields::Conditional(bits) => values.push(("bits", Value::Bits((*bits).into()))),
        Fields::Results(results) => {
            let names = [
                ["key", "result", "implies_instructions"],
                ["key_2", "result_2", "implies_instructions_2"],
            ];
            for ([key, name, implies], result) in names.into_iter().zip(results.iter().flatten()) {
                values.push((key, number(result.key)));
                values.push((name, number(result.result)));
                values.push((implies, Value::Flag(result.implies_instructions)));
            }
        }
    }
}

fn of_etmv3(packet: &etmv3::Packet, exceptions: Option<Exceptions>, values: &mut Values) {
    use etmv3::Fields;
    let context = |values: &mut Values, context: &etmv3::Context| {
        values.push(security(context.ns, false));
        values.push(("hyp", Value::Flag(context.hyp)));
    };
    match &packet.fields {
        Fields::None => {}
        Fields::PHeader {
            atoms: given,
            cycles,
            format,
        } => {
            values.push(atoms(*given));
            values.push(("format", number(*format)));
            if *cycles > 0 {
                values.push(("cycles", number(*cycles)));
            }
        }
        Fields::Branch(branch) => {
            partial(values, &branch.address);
            values.push(isa(branch.isa));
            if let Some(given) = &branch.exception {
                exception(values, given.number, exceptions);
                values.push(("cancels", Value::Flag(given.cancels)));
                values.push(("resume", number(given.resume)));
            }
            if let Some(given) = &branch.context {
                context(values, given);
            }
        }
        Fields::ISync(sync) => {
            values.push(text("reason", sync.reason.plain_name()));
            if let Some(address) = &sync.address {
                partial(values, address);
                values.push(isa(sync.isa));
            }
            context(values, &sync.context);
            optional(values, "context_id", sync.id);
            optional(values, "cycles", sync.cycles);
            if let Some(current) = &sync.current {
                values.push(("current_address", Value::Bits(current.value.into())));
            }
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
            if let Some(address) = address {
                partial(values, address);
            }
            values.extend(value.map(|value| ("value", Value::Bits(value.into()))));
            values.push(("tag", number(*tag)));
        }
    }
}

fn of_ptm(fields: &ptm::Fields, exceptions: Option<Exceptions>, values: &mut Values) {
    use ptm::Fields;
    let context = |values: &mut Values, context: &ptm::Context| {
        values.push(security(context.ns, false));
        values.push(("hyp", Value::Flag(context.hyp)));
        optional(values, "context_id", context.id);
    };
    match fields {
        Fields::None => {}
        Fields::Atoms(given) => values.push(atoms(*given)),
        Fields::Branch(branch) => {
            partial(values, &branch.address);
            values.push(isa(branch.isa));
            if let Some(number) = branch.exception {
                exception(values, number, exceptions);
            }
            if let Some(given) = &branch.context {
                context(values, given);
            }
        }
        Fields::ISync {
            reason,
            address,
            isa: given_isa,
            context: given,
        } => {
            values.push(text("reason", reason.plain_name()));
            partial(values, address);
            values.push(isa(*given_isa));
            context(values, given);
        }
        Fields::Timestamp { value, bits } => {
            values.push(("timestamp", number(*value)));
            values.push(("timestamp_bits", number(*bits)));
        }
        Fields::ContextId(id) => values.push(("context_id", number(*id))),
        Fields::Vmid(id) => values.push(("vmid", number(*id))),
    }
}

fn of_stm(packet: &stm::Packet, values: &mut Values) {
    use stm::Kind;
    let place = [
        ("master", number(packet.master)),
        ("channel", number(packet.channel)),
    ];
    match packet.kind {
        Kind::BadSequence | Kind::IncompleteEot => {
            values.push(text("began_as", stm::name(packet.began_as)));
        }
        Kind::Data4 | Kind::Data8 | Kind::Data16 | Kind::Data32 | Kind::Data64 => {
            values.extend(place);
            values.push(("value", Value::Bits(packet.value)));
            values.push(("marker", Value::Flag(packet.is_marker)));
        }
        Kind::Trigger | Kind::MasterError => {
            values.extend(place);
            values.push(("value", Value::Bits(packet.value)));
        }
        Kind::Frequency | Kind::Version | Kind::GlobalError => {
            values.push(("value", Value::Bits(packet.value)));
        }
        // For other kinds, master and channel are those of earlier packets.
        Kind::Flag | Kind::Master8 | Kind::Master16 | Kind::Channel8 | Kind::Channel16 => {
            values.extend(place);
        }
        Kind::NotSync | Kind::Reserved | Kind::Async | Kind::Null => {}
    }
    if let Some((value, bits)) = packet.timestamp {
        values.push(("timestamp", number(value)));
        values.push(("timestamp_bits", number(bits)));
    }
}

fn of_itm(packet: &itm::Packet, values: &mut Values) {
    use itm::Kind;
    let (source, value) = (number(packet.source), Value::Bits(packet.value));
    let bytes = ("bytes", number(packet.size));
    match packet.kind {
        Kind::BadSequence | Kind::IncompleteEot => {
            values.push(text("began_as", itm::name(packet.began_as)));
        }
        Kind::Software => values.extend([("port", source), ("value", value), bytes]),
        Kind::Hardware => values.extend([("discriminator", source), ("value", value), bytes]),
        Kind::LocalTimestamp => {
            values.extend([("ticks", number(packet.value)), ("delay", source)]);
        }
        Kind::GlobalTimestamp1 => values.extend([
            ("value", value),
            ("clock_change", Value::Flag(packet.source & 1 != 0)),
            ("clock_wrap", Value::Flag(packet.source & 2 != 0)),
        ]),
        Kind::GlobalTimestamp2 | Kind::Extension => values.extend([("value", value), bytes]),
        Kind::NotSync | Kind::Reserved | Kind::Async | Kind::Overflow => {}
    }
}
