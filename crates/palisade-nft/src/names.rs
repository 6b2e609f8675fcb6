//! The names and declarations of the layout's sets and maps, and the bytes of their keys.
//!
//! Every name begins with `p_`, so none collides with a word of nft's language.

use crate::{Bytes, ElementKey, FieldType, MapValueType, SetDecl};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Direction, Family, PolicyStage};

pub(crate) const IF_OURS: &str = "p_if_ours";
/// Each own interface mapped to itself: packets that arrive and leave by the same interface.
pub(crate) const IF_HAIRPIN: &str = "p_if_same";
pub(crate) const IDENTITY_CLASS: &str = "p_class";
pub(crate) const SET_CLASS: &str = "p_pair";
pub(crate) const PORT: &str = "p_port";
pub(crate) const PORT_RANGE: &str = "p_portr";
pub(crate) const ICMP: &str = "p_icmp";
pub(crate) const ICMP_RANGE: &str = "p_icmpr";
pub(crate) const PROTO: &str = "p_proto";
pub(crate) const CLASS_DEFAULT: &str = "p_any";
/// Class, protocol and ports → the packet mark with the number of DNS rules.
pub(crate) const REDIRECT: &str = "p_redirect_to";
/// The protocols and ports in the elements of [`REDIRECT`], of whatever class.
pub(crate) const REDIRECT_PORTS: &str = "p_redirect_ports";
/// Class → its base, which has the elements that the class lacks; 0 for none.
pub(crate) const CLASS_BASE: &str = "p_base";
/// Bases are numbered from here, classes below.
pub(crate) const FIRST_BASE: u32 = 1 << 31;
/// The verdicts of the codes in the class maps.
pub(crate) const CODE_VERDICT: &str = "p_verdict";
/// The same where denials answer, for hooks and stages that drop.
pub(crate) const DROP_VERDICT: &str = "p_verdict_d";
/// The chain that answers a denied packet, or drops it.
pub(crate) const ANSWER: &str = "p_answer";
/// Conntrack state, direction, family and protocol → the next chain.
pub(crate) const DISPATCH: &str = "p_way";
pub(crate) const LIVE_MARK: &str = "p_live";
pub(crate) const PENDING_REVOCATION: &str = "p_pending";
pub(crate) const L4_PORTS: &str = "p_l4_ports";
pub(crate) const L4_ICMP: &str = "p_l4_icmp";
pub(crate) const ICMP_REQUEST: &str = "p_icmp_request";
pub(crate) const ND_IN: &str = "p_nd_in";
pub(crate) const ND_OUT: &str = "p_nd_out";
pub(crate) const GENERATION: &str = "p_generation";
/// The verdict maps of the trials of mid-stream flows: original direction of IPv4 and IPv6, then reply.
pub(crate) const TRIAL_VERDICTS: [&str; 4] =
    ["p_either_o4", "p_either_o6", "p_either_r4", "p_either_r6"];
/// The verdicts of a trial's ingress side, the last of its two judgements; denial returns.
pub(crate) const LAST_TRIAL: &str = "p_either";
/// The prefix of the names of source-port chains.
pub(crate) const SOURCE_PORT_PREFIX: &str = "p_res_";

/// The maps with the elements of classes; each element has a counter.
pub(crate) const COUNTED: [&str; 6] = [PORT, PORT_RANGE, ICMP, ICMP_RANGE, PROTO, CLASS_DEFAULT];

/// Value of a class element: denied.
pub(crate) const DENY: u32 = 1;
/// Value of a class element: allowed.
pub(crate) const ALLOW: u32 = 2;
/// Value of a class element: allowed and reported, by an ingress rule.
pub(crate) const LOG_INGRESS: u32 = 3;
/// Value of a class element: allowed and reported, by an egress rule.
pub(crate) const LOG_EGRESS: u32 = 4;
/// Value of a class element: allowed at ingress and reported, since it would be denied without audit.
pub(crate) const AUDIT_INGRESS: u32 = 5;
/// Value of a class element: allowed at egress and reported, since it would be denied without audit.
pub(crate) const AUDIT_EGRESS: u32 = 6;
/// Value of a class element of an early stage: not decided. The next four are the same, reported as those above.
pub(crate) const CONTINUE: u32 = 7;
/// From the value of what is allowed and reported to that of what is not decided and reported.
pub(crate) const CONTINUE_REPORTED: u32 = 5;
/// The greatest value that is a verdict. Greater ones are codes of source-port chains.
pub(crate) const LAST_VERDICT: u32 = AUDIT_EGRESS + CONTINUE_REPORTED;
/// The values that allow.
pub(crate) const ALLOWING: [u32; 5] = [ALLOW, LOG_INGRESS, LOG_EGRESS, AUDIT_INGRESS, AUDIT_EGRESS];

/// The map of points: own interface and address → policy set.
pub(crate) fn point_map(family: Family, direction: Direction) -> &'static str {
    match (family, direction) {
        (Family::V4, Direction::Egress) => "p_pt4_e",
        (Family::V4, Direction::Ingress) => "p_pt4_i",
        (Family::V6, Direction::Egress) => "p_pt6_e",
        (Family::V6, Direction::Ingress) => "p_pt6_i",
    }
}

/// The map of points of hairpin traffic: own interface and address → policy set. Without an entry it passes.
pub(crate) fn hairpin_point_map(family: Family, direction: Direction) -> &'static str {
    match (family, direction) {
        (Family::V4, Direction::Egress) => "p_same4_e",
        (Family::V4, Direction::Ingress) => "p_same4_i",
        (Family::V6, Direction::Egress) => "p_same6_e",
        (Family::V6, Direction::Ingress) => "p_same6_i",
    }
}

/// Whether a set is only for hairpin traffic.
pub(crate) fn is_of_hairpin(set: &str) -> bool {
    let is_map = |family| {
        Direction::BOTH
            .into_iter()
            .any(|direction| set == hairpin_point_map(family, direction))
    };
    set == IF_HAIRPIN || Family::BOTH.into_iter().any(is_map)
}

/// The set of the local endpoints' addresses.
pub(crate) fn local_addresses_set(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_own4",
        Family::V6 => "p_own6",
    }
}

/// The number that stands for every interface of the host without points of its own; those of named interfaces are
/// greater.
pub(crate) const ANY_INTERFACE: u32 = 1;

/// The map of interfaces of the host → the number of their interface, at one stage; 0 for an interface that is not
/// judged. A catch-all stands for all others.
pub(crate) fn interface_map(stage: PolicyStage) -> &'static str {
    match stage {
        PolicyStage::Untracked => "p_place_u",
        PolicyStage::PreDnat => "p_place_d",
        PolicyStage::Forward => "p_place_f",
        PolicyStage::Normal => "p_place_n",
    }
}

/// The map of points of host interfaces: stage and direction, interface, single local address → policy set.
pub(crate) fn host_point_map(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_hpt4",
        Family::V6 => "p_hpt6",
    }
}

/// The same for ranges of local addresses.
pub(crate) fn host_point_range_map(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_hptr4",
        Family::V6 => "p_hptr6",
    }
}

/// The failsafe ports of a direction: protocol, destination port of the flow, address of the other end.
pub(crate) fn failsafe_set(family: Family, direction: Direction) -> &'static str {
    match (family, direction) {
        (Family::V4, Direction::Ingress) => "p_safe4_i",
        (Family::V4, Direction::Egress) => "p_safe4_e",
        (Family::V6, Direction::Ingress) => "p_safe6_i",
        (Family::V6, Direction::Egress) => "p_safe6_e",
    }
}

/// The map of single addresses → identity.
pub(crate) fn host_map(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_id4",
        Family::V6 => "p_id6",
    }
}

/// The map of address ranges → identity.
pub(crate) fn network_map(family: Family) -> &'static str {
    match family {
        Family::V4 => "p_net4",
        Family::V6 => "p_net6",
    }
}

/// A set of single keys, or a map of them to values of this type.
fn plain(key: &[FieldType], value_type: Option<MapValueType>) -> SetDecl {
    SetDecl {
        key: key.into(),
        value_type,
        interval: false,
        counter: false,
        size: None,
        unknown: None,
    }
}

/// The same with ranges as keys.
fn ranges(decl: SetDecl) -> SetDecl {
    SetDecl {
        interval: true,
        ..decl
    }
}

/// The same with a counter for each element.
fn counted(decl: SetDecl) -> SetDecl {
    SetDecl {
        counter: true,
        ..decl
    }
}

/// The same with a place for few elements.
fn small(decl: SetDecl) -> SetDecl {
    SetDecl {
        size: Some(16),
        ..decl
    }
}

/// A map to a number of type mark.
fn mark_map(key: &[FieldType]) -> SetDecl {
    plain(key, Some(MapValueType::Value(FieldType::Mark)))
}

/// A map to a verdict.
fn verdict_map(key: &[FieldType]) -> SetDecl {
    plain(key, Some(MapValueType::Verdict))
}

/// Every set of the layout with its declaration.
pub(crate) fn declarations() -> Vec<(&'static str, SetDecl)> {
    let mut out = Vec::new();
    out.extend(point_declarations());
    out.extend(class_declarations());
    out.extend(verdict_declarations());
    out.extend(constant_declarations());
    out
}

/// The sets of interfaces, points and addresses.
fn point_declarations() -> Vec<(&'static str, SetDecl)> {
    use FieldType::{IfName, Ipv4, Ipv6, Mark, Port, Proto};
    let mut out = Vec::new();
    out.push((IF_OURS, plain(&[IfName], None)));
    out.push((IF_HAIRPIN, plain(&[IfName, IfName], None)));
    for (family, address) in [(Family::V4, Ipv4), (Family::V6, Ipv6)] {
        for direction in Direction::BOTH {
            for map in [point_map, hairpin_point_map] {
                out.push((map(family, direction), mark_map(&[IfName, address])));
            }
        }
        let host_point = mark_map(&[Proto, Mark, address]);
        out.push((host_point_map(family), host_point.clone()));
        out.push((host_point_range_map(family), ranges(host_point)));
        for direction in Direction::BOTH {
            let failsafe = ranges(plain(&[Proto, Port, address], None));
            out.push((failsafe_set(family, direction), failsafe));
        }
        out.push((local_addresses_set(family), plain(&[address], None)));
        out.push((host_map(family), mark_map(&[address])));
        out.push((network_map(family), ranges(mark_map(&[address]))));
    }
    for stage in PolicyStage::ALL {
        out.push((interface_map(stage), mark_map(&[IfName])));
    }
    out
}

/// The maps to classes, and from a class and a header to a code. A class key begins with a field that is always 0, see
/// `zero_prefixed`.
fn class_declarations() -> [(&'static str, SetDecl); 11] {
    use FieldType::{IcmpCode, IcmpType, Mark, Port, Proto};
    let port = counted(mark_map(&[Proto, Mark, Proto, Port]));
    let icmp = counted(mark_map(&[Proto, Mark, Proto, IcmpType, IcmpCode]));
    [
        (IDENTITY_CLASS, mark_map(&[Proto, Mark, Mark])),
        (SET_CLASS, mark_map(&[Proto, Mark, Mark])),
        (PORT, port.clone()),
        (PORT_RANGE, ranges(port)),
        (ICMP, icmp.clone()),
        (ICMP_RANGE, ranges(icmp)),
        (PROTO, counted(mark_map(&[Proto, Mark, Proto]))),
        (CLASS_DEFAULT, counted(mark_map(&[Proto, Mark]))),
        (CLASS_BASE, mark_map(&[Proto, Mark])),
        (REDIRECT, ranges(mark_map(&[Proto, Mark, Proto, Port]))),
        (REDIRECT_PORTS, ranges(plain(&[Proto, Port], None))),
    ]
}

/// The maps to verdicts.
fn verdict_declarations() -> Vec<(&'static str, SetDecl)> {
    use FieldType::{CtDirection, CtState, Mark, NfProto, Proto};
    let verdicts = || verdict_map(&[Proto, Mark]);
    let dispatch = SetDecl {
        size: Some(64),
        ..verdict_map(&[CtState, CtDirection, NfProto, Proto])
    };
    let sides = [
        (CODE_VERDICT, verdicts()),
        (DROP_VERDICT, verdicts()),
        (DISPATCH, dispatch),
        (LAST_TRIAL, small(verdicts())),
    ];
    let trials = TRIAL_VERDICTS.map(|trial| (trial, small(verdicts())));
    sides.into_iter().chain(trials).collect()
}

/// The sets whose elements no policy changes: marks, protocols, and types of ICMP.
fn constant_declarations() -> [(&'static str, SetDecl); 7] {
    use FieldType::{IcmpType, Mark, Proto};
    let request = Some(MapValueType::Value(IcmpType));
    [
        (LIVE_MARK, small(plain(&[Mark], None))),
        (PENDING_REVOCATION, small(plain(&[Mark], None))),
        (L4_PORTS, small(plain(&[Proto], None))),
        (L4_ICMP, small(plain(&[Proto], None))),
        (ICMP_REQUEST, plain(&[Proto, IcmpType], request)),
        (ND_IN, small(plain(&[IcmpType], None))),
        (ND_OUT, small(plain(&[IcmpType], None))),
    ]
}

/// An interface name as the kernel compares it, truncated to 15 bytes.
pub(crate) fn interface_name(name: &str) -> Bytes {
    let mut out = [0u8; 16];
    for (to, from) in out.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    out.into()
}

pub(crate) fn address_bytes(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(a) => a.octets().into(),
        IpAddr::V6(a) => a.octets().into(),
    }
}

/// A number of type mark, in host byte order.
pub(crate) fn mark_bytes(number: u32) -> Bytes {
    number.to_ne_bytes().into()
}

/// The number in bytes of type mark.
pub(crate) fn number_from_bytes(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A key of several fields, each padded to four bytes.
pub(crate) fn concat_fields(fields: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(fields.iter().map(|f| f.len().div_ceil(4) * 4).sum());
    for field in fields {
        out.extend_from_slice(field);
        out.resize(out.len().div_ceil(4) * 4, 0);
    }
    out.into()
}

/// A key with a value loaded from another map: it begins with a 0. The kernel does not need it, but `nft`
/// 1.0 aborts on a key that begins with a value straight from a map, and with it every listing of the whole
/// ruleset.
pub(crate) fn zero_prefixed(fields: &[&[u8]]) -> Bytes {
    let fields: Vec<&[u8]> = [&[0u8] as &[u8]].iter().chain(fields).copied().collect();
    concat_fields(&fields)
}

/// Whether the keys of a map begin with a 0.
pub(crate) fn is_zero_prefixed(map: &str) -> bool {
    [
        IDENTITY_CLASS,
        SET_CLASS,
        CLASS_BASE,
        CODE_VERDICT,
        DROP_VERDICT,
        REDIRECT,
    ]
    .contains(&map)
        || COUNTED.contains(&map)
}

/// Such a key of numbers.
pub(crate) fn zero_prefixed_marks(numbers: &[u32]) -> ElementKey {
    let numbers: Vec<Bytes> = numbers.iter().map(|number| mark_bytes(*number)).collect();
    let fields: Vec<&[u8]> = numbers.iter().map(|number| &**number).collect();
    ElementKey::Exact(zero_prefixed(&fields))
}

/// The bytes that a key of the maps of points begins with: stage and direction, and the number of the interface.
pub(crate) fn point_key(
    stage: PolicyStage,
    direction: Direction,
    interface: u32,
    local: &[u8],
) -> Bytes {
    let code = [point_code(stage, direction)];
    concat_fields(&[&code, &mark_bytes(interface), local])
}

/// The number of a stage and a direction in the keys of the maps of points.
pub(crate) fn point_code(stage: PolicyStage, direction: Direction) -> u8 {
    match (stage, direction) {
        (PolicyStage::Forward, Direction::Ingress) => 1,
        (PolicyStage::Forward, Direction::Egress) => 2,
        (PolicyStage::Normal, Direction::Ingress) => 3,
        (PolicyStage::Normal, Direction::Egress) => 4,
        (PolicyStage::Untracked, Direction::Ingress) => 5,
        (PolicyStage::Untracked, Direction::Egress) => 6,
        (PolicyStage::PreDnat, Direction::Ingress) => 7,
        (PolicyStage::PreDnat, Direction::Egress) => 8,
    }
}

/// The stage and direction of a [`point_code`].
pub(crate) fn parse_point_code(code: u8) -> Option<(PolicyStage, Direction)> {
    let stages = PolicyStage::ALL.into_iter();
    let mut all = stages.flat_map(|stage| Direction::BOTH.map(|direction| (stage, direction)));
    all.find(|(stage, direction)| point_code(*stage, *direction) == code)
}
