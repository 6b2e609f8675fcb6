//! The chains that judge a packet on each of its sides that is ours, each side by one rule.
//!
//! One judgement is *one rule*: peer → identity, point → policy set, class, and then the class's elements
//! for the packet, the most specific first, then those of its base. Every map but the first has a catch-all,
//! so no rule falls through to another one that would repeat a lookup.

use crate::names::{
    self, CLASS_BASE, CLASS_DEFAULT, ICMP, ICMP_RANGE, ICMP_REQUEST, IDENTITY_CLASS, PORT,
    PORT_RANGE, SET_CLASS,
};
use crate::names::{CODE_VERDICT, PROTO};
use crate::nflog::{self, counted_drop_rule};
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, CtKey, MetaKey, NftFault, NftRule, NftVerdict, PayloadBase};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, PolicyStage, Str};
use palisade_tables::ReportReason;

/// The direction of a packet relative to the first packet of its flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orientation {
    Original,
    Reply,
}

impl Orientation {
    pub(crate) const BOTH: [Orientation; 2] = [Orientation::Original, Orientation::Reply];

    pub(crate) fn letter(self) -> char {
        match self {
            Orientation::Original => 'o',
            Orientation::Reply => 'r',
        }
    }
}

/// The name of the chain that has packets judged, and accepts them if the judgements return.
pub(crate) fn packet_chain_name(
    orientation: Orientation,
    family: Family,
    header: L4Fields,
) -> String {
    let (orientation, digit) = (orientation.letter(), family_digit(family));
    format!("p_{orientation}{digit}_{}", header.letter())
}

pub(crate) fn family_digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

pub(crate) fn judge_chain_name(
    direction: Direction,
    orientation: Orientation,
    family: Family,
    header: L4Fields,
) -> String {
    let d = match direction {
        Direction::Egress => 'e',
        Direction::Ingress => 'i',
    };
    let (o, digit, h) = (orientation.letter(), family_digit(family), header.letter());
    format!("p_judge_{d}{o}{digit}_{h}")
}

/// Whether the judged endpoint is the packet's source.
pub(crate) fn endpoint_is_source(direction: Direction, orientation: Orientation) -> bool {
    if NftFault::ReplyEndsSwapped.is_injected() {
        return direction == Direction::Egress;
    }
    (direction == Direction::Egress) == (orientation == Orientation::Original)
}

pub(crate) fn endpoint_interface_key(direction: Direction, orientation: Orientation) -> MetaKey {
    if endpoint_is_source(direction, orientation) {
        MetaKey::IifName
    } else {
        MetaKey::OifName
    }
}

/// Offset and length of an address in the network header.
pub(crate) fn address_field(family: Family, destination: bool) -> (u32, u32) {
    match family {
        Family::V4 => (12 + 4 * u32::from(destination), 4),
        Family::V6 => (8 + 16 * u32::from(destination), 16),
    }
}

/// The header fields that a judgement tests, besides the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum L4Fields {
    Ports,
    Icmp,
    Other,
}

impl L4Fields {
    pub(crate) const ALL: [L4Fields; 3] = [L4Fields::Ports, L4Fields::Icmp, L4Fields::Other];

    pub(crate) fn letter(self) -> char {
        match self {
            L4Fields::Ports => 'p',
            L4Fields::Icmp => 't',
            L4Fields::Other => 'x',
        }
    }
}

/// The chains that judge one side: for each kind of header there is one rule for peers with an exact address
/// and one for all others.
pub(crate) fn judge_chains(
    config: &Config,
    direction: Direction,
    orientation: Orientation,
    family: Family,
) -> Vec<(Str, Chain)> {
    let mut chains = Vec::new();
    for header in L4Fields::ALL {
        let endpoint_side = (direction, orientation);
        // An address without a point has class 0, which has no elements: dropped and counted.
        let verdicts = (
            CODE_VERDICT,
            nflog::final_verdict(config, ReportReason::NoPoint),
        );
        let rule = |identity_map| {
            judgement_rule(
                endpoint_side,
                family,
                header,
                identity_map,
                verdicts.clone(),
            )
        };
        let mut rules = vec![
            rule(names::host_map(family)),
            rule(names::network_map(family)),
            // The packet is too short to have the header.
            counted_drop_rule(config, RuleBuilder::new(), ReportReason::NoPoint),
        ];
        if NftFault::ExactFallsToNet.is_injected() {
            rules.remove(0);
        }
        let name = judge_chain_name(direction, orientation, family, header);
        chains.push(chain(&name, None, rules));
    }
    chains
}

/// Loads the policy set of the judged endpoint's point into register 9; 0 if there is none.
pub(crate) fn load_policy_set(
    line: RuleBuilder,
    direction: Direction,
    orientation: Orientation,
    family: Family,
) -> RuleBuilder {
    let (local, len) = address_field(family, !endpoint_is_source(direction, orientation));
    line.meta(endpoint_interface_key(direction, orientation), 0)
        .payload(PayloadBase::Network, local, len, 4)
        .map_lookup(names::point_map(family, direction), 0, 9)
}

/// One judgement in one rule, with the verdict map of codes and the default verdict. Only the first lookup may miss:
/// the peer is not in that map.
pub(crate) fn judgement_rule(
    (direction, orientation): (Direction, Orientation),
    family: Family,
    header: L4Fields,
    identities: &str,
    verdicts: (&str, NftVerdict),
) -> NftRule {
    let is_source = endpoint_is_source(direction, orientation);
    let fields = TupleFields::Packet(orientation);
    let line = load_identity(RuleBuilder::new(), (is_source, fields), family, identities);
    let line = load_policy_set(line, direction, orientation, family);
    class_rule(line, fields, header, verdicts)
}

/// Where a judgement reads addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TupleFields {
    /// In the packet, which has this direction.
    Packet(Orientation),
    /// In its connection: those of the first packet before NAT. The packet has this direction.
    Connection(Orientation),
}

impl TupleFields {
    fn orientation(self) -> Orientation {
        match self {
            TupleFields::Packet(orientation) | TupleFields::Connection(orientation) => orientation,
        }
    }

    /// Loads the source or the destination: of the packet, or of the connection's first packet.
    pub(crate) fn load_address(
        self,
        line: RuleBuilder,
        family: Family,
        is_destination: bool,
        to: u8,
    ) -> RuleBuilder {
        let (offset, len) = address_field(family, is_destination);
        let key = match (family, is_destination) {
            (Family::V4, false) => CtKey::OriginalSource4,
            (Family::V4, true) => CtKey::OriginalDestination4,
            (Family::V6, false) => CtKey::OriginalSource6,
            (Family::V6, true) => CtKey::OriginalDestination6,
        };
        match self {
            TupleFields::Packet(_) => line.payload(PayloadBase::Network, offset, len, to),
            TupleFields::Connection(_) => line.ct(key, to),
        }
    }

    /// Loads the destination port of the flow.
    pub(crate) fn load_port(self, line: RuleBuilder, to: u8) -> RuleBuilder {
        match self {
            TupleFields::Packet(orientation) => {
                let reply = orientation == Orientation::Reply;
                let swapped = reply != NftFault::ReplyPortsNotSwapped.is_injected();
                let offset = if reply && swapped { 0 } else { 2 };
                line.payload(PayloadBase::Transport, offset, 2, to)
            }
            TupleFields::Connection(_) => line.ct(CtKey::OriginalPort, to),
        }
    }
}

/// How a judgement of this host finds its policy set: interface, stage and direction.
#[derive(Clone, Copy)]
pub(crate) struct HostLookup {
    pub(crate) key: MetaKey,
    pub(crate) stage: PolicyStage,
    pub(crate) direction: Direction,
    pub(crate) fields: TupleFields,
}

impl HostLookup {
    /// Whether the judged end is the source of what the addresses are read from.
    fn own_is_source(self) -> bool {
        match self.fields {
            TupleFields::Packet(orientation) => endpoint_is_source(self.direction, orientation),
            TupleFields::Connection(_) => self.direction == Direction::Egress,
        }
    }
}

/// The same at an interface of the host. The lookup of the local end may miss as well, in the map `local_map`.
pub(crate) fn host_judgement_rule(
    lookup: HostLookup,
    family: Family,
    header: L4Fields,
    local_map: &str,
    identities: &str,
    verdicts: (&str, NftVerdict),
) -> NftRule {
    let own_end = (lookup.own_is_source(), lookup.fields);
    let line = load_identity(RuleBuilder::new(), own_end, family, identities);
    let line = load_host_set(line, lookup, family, local_map);
    class_rule(line, lookup.fields, header, verdicts)
}

/// Loads the policy set of a point of a host interface into register 9, by the map `local_map`; breaks if there is
/// none.
pub(crate) fn load_host_set(
    line: RuleBuilder,
    lookup: HostLookup,
    family: Family,
    local_map: &str,
) -> RuleBuilder {
    let HostLookup {
        key,
        stage,
        direction,
        fields,
    } = lookup;
    let (_, len) = address_field(family, true);
    // As in `load_identity`, as many bytes as the key has; an immediate has at most 16.
    let mut code = [0; 16];
    code[0] = names::point_code(stage, direction);
    let first = code.len().min(8 + len as usize);
    let line = line.immediate(0, &code[..first]).meta(key, 4).map_lookup(
        names::interface_map(stage),
        4,
        1,
    );
    let line = match family {
        Family::V4 => line,
        Family::V6 => line.zeros(4, 8),
    };
    fields
        .load_address(line, family, !lookup.own_is_source(), 2)
        .map_lookup(local_map, 0, 9)
}

const KEY: u8 = 8;

/// Loads the peer's identity into register 10, after zeros that keys begin with ([`names::zero_prefixed`]).
pub(crate) fn load_identity(
    line: RuleBuilder,
    (own_is_source, fields): (bool, TupleFields),
    family: Family,
    identities: &str,
) -> RuleBuilder {
    fields
        .load_address(line, family, own_is_source, 0)
        // As many bytes as the values loaded into the key, so that `nft` knows their length.
        .zeros(KEY, 16)
        .map_lookup(identities, 0, KEY + 2)
}

/// From the identity in register 10 and the policy set in 9 to the verdict: class in 9, protocol in 10, ports or ICMP
/// in 11 and 12; the code from a class map in 15; then the base replaces the class in 9. Registers 8 and 14 hold the
/// zeros that keys begin with.
pub(crate) fn class_rule(
    line: RuleBuilder,
    fields: TupleFields,
    header: L4Fields,
    (verdicts, default_verdict): (&str, NftVerdict),
) -> NftRule {
    const CODE: u8 = 14;
    let line = line
        .map_lookup(IDENTITY_CLASS, KEY, KEY + 2)
        .map_lookup(SET_CLASS, KEY, KEY + 1)
        .meta(MetaKey::L4Proto, KEY + 2);
    let reply = fields.orientation() == Orientation::Reply;
    let (line, maps): (RuleBuilder, &[&str]) = match header {
        L4Fields::Ports => {
            let line = fields.load_port(line, KEY + 3);
            (line, &[PORT, PORT_RANGE, PROTO, CLASS_DEFAULT])
        }
        L4Fields::Icmp => {
            let byte = |line: RuleBuilder, at: u8| {
                line.payload(PayloadBase::Transport, u32::from(at), 1, KEY + 3 + at)
            };
            let line = byte(byte(line, 0), 1);
            let line = if reply {
                line.map_lookup(ICMP_REQUEST, KEY + 2, KEY + 3)
            } else {
                line
            };
            (line, &[ICMP, ICMP_RANGE, PROTO, CLASS_DEFAULT])
        }
        L4Fields::Other => (line, &[PROTO, CLASS_DEFAULT]),
    };
    let lookup_code = |line: RuleBuilder, map: &&str| {
        line.map_lookup(map, KEY, CODE + 1)
            .verdict_lookup(verdicts, CODE)
    };
    let line = maps.iter().fold(line.zeros(CODE, 8), lookup_code);
    if NftFault::BaseIgnored.is_injected() {
        return line.verdict(default_verdict);
    }
    // Reached only by classes with a base and by packets without a class: base 0 has no elements either.
    let line = line.map_lookup(CLASS_BASE, KEY, KEY + 1);
    maps.iter().fold(line, lookup_code).verdict(default_verdict)
}
