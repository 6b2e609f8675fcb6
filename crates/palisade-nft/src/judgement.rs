//! The chains that judge: both sides of a packet that are ours, each by one rule.
//!
//! One judgement is *one rule*: peer → identity, point → policy set, class, and then the class's entries
//! for the packet, the most special first, then those of its base. Every map but the first has a
//! catch-all, so no rule falls through to another that would look the same fact up again.

use crate::names::{
    self, ANY, BASE, CLASS, ICMP, ICMP_RANGE, ICMP_REQUEST, PAIR, PORT, PORT_RANGE,
};
use crate::names::{PROTO, VERDICT};
use crate::report::{self, Report, drop_counted};
use crate::rule::{Line, chain};
use crate::skeleton::ours;
use crate::{Chain, CmpOp, Config, Fault, MetaKey, PayloadBase, Rule, Verdict};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Str};

/// Which way a packet runs, compared with the first packet of its flow.
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

/// The name of the chain that has packets judged, and passes them if they come back.
pub(crate) fn pass_name(orientation: Orientation, family: Family, header: Header) -> String {
    let (orientation, digit) = (orientation.letter(), digit(family));
    format!("p_{orientation}{digit}_{}", header.letter())
}

/// The rules that judge both sides that are ours, and end so where both allow.
pub(crate) fn passing(
    config: &Config,
    orientation: Orientation,
    family: Family,
    header: Header,
    end: Verdict,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    if !Fault::ItselfJudged.is_on() {
        rules.push(to_itself(family, end.clone()));
    }
    for direction in [Direction::Egress, Direction::Ingress] {
        let judge = judge_name(direction, orientation, family, header);
        let interface = own_interface(direction, orientation);
        rules.extend(ours(config, interface, |line| line.jump(&judge)));
    }
    rules.push(Line::new().verdict(end));
    rules
}

/// The rule for what an endpoint sends to itself, by a Service: it arrives and leaves by one interface, of
/// which both addresses are. That the source is, was asked before ([`source_rules`]).
fn to_itself(family: Family, end: Verdict) -> Rule {
    let (offset, len) = address_at(family, true);
    Line::new()
        .meta(MetaKey::IifName, 0)
        .payload(PayloadBase::Network, offset, len, 4)
        .map(names::points(family, Direction::Egress), 0, 8)
        .cmp(8, CmpOp::Neq, &[0; 4])
        .meta(MetaKey::OifName, 4)
        .within(names::IF_SAME, 0)
        .verdict(end)
}

pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

fn judge_name(
    direction: Direction,
    orientation: Orientation,
    family: Family,
    header: Header,
) -> String {
    let d = match direction {
        Direction::Egress => 'e',
        Direction::Ingress => 'i',
    };
    let (o, digit, h) = (orientation.letter(), digit(family), header.letter());
    format!("p_judge_{d}{o}{digit}_{h}")
}

/// Whether the judged endpoint is the packet's source.
fn owns_source(direction: Direction, orientation: Orientation) -> bool {
    if Fault::ReplyEndsSwapped.is_on() {
        return direction == Direction::Egress;
    }
    (direction == Direction::Egress) == (orientation == Orientation::Original)
}

pub(crate) fn own_interface(direction: Direction, orientation: Orientation) -> MetaKey {
    if owns_source(direction, orientation) {
        MetaKey::IifName
    } else {
        MetaKey::OifName
    }
}

/// Offset and length of an address in the network header.
pub(crate) fn address_at(family: Family, destination: bool) -> (u32, u32) {
    match family {
        Family::V4 => (12 + 4 * u32::from(destination), 4),
        Family::V6 => (8 + 16 * u32::from(destination), 16),
    }
}

/// What a judgement looks at beyond the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Ports,
    Icmp,
    Other,
}

impl Header {
    pub(crate) const ALL: [Header; 3] = [Header::Ports, Header::Icmp, Header::Other];

    pub(crate) fn letter(self) -> char {
        match self {
            Header::Ports => 'p',
            Header::Icmp => 't',
            Header::Other => 'x',
        }
    }
}

/// The chains that judge one side: for each kind of header there is one rule for peers that are known
/// by their address and one for all others.
pub(crate) fn judge_chains(
    config: &Config,
    direction: Direction,
    orientation: Orientation,
    family: Family,
) -> Vec<(Str, Chain)> {
    let mut chains = Vec::new();
    for header in Header::ALL {
        let side = (direction, orientation);
        // An address without a point comes to class 0, which has no entry: dropped and counted.
        let ends = (VERDICT, report::end(config, Report::NoPoint));
        let rule = |ids| judgement(side, family, header, ids, ends.clone());
        let mut rules = vec![
            rule(names::hosts(family)),
            rule(names::nets(family)),
            // What is too short to have the header.
            drop_counted(config, Line::new(), Report::NoPoint),
        ];
        if Fault::ExactFallsToNet.is_on() {
            rules.remove(0);
        }
        let name = judge_name(direction, orientation, family, header);
        chains.push(chain(&name, None, rules));
    }
    chains
}

/// Loads the policy set of the judged endpoint's point into register 9; 0 if there is none.
fn point_of(line: Line, direction: Direction, orientation: Orientation, family: Family) -> Line {
    let (own, len) = address_at(family, !owns_source(direction, orientation));
    line.meta(own_interface(direction, orientation), 0)
        .payload(PayloadBase::Network, own, len, 4)
        .map(names::points(family, direction), 0, 9)
}

/// One judgement in one rule, with the verdicts of codes and what is neither. Registers: identity and
/// set in 10 and 9, then class in 9, protocol in 10, ports or ICMP in 11 and 12; what a map says of the
/// class in 15, and its base takes the class's place in 9. In 8 and 14 wait the zeros that keys begin with ([`names::led`]). Only the first lookup
/// may miss: the peer is not known so.
pub(crate) fn judgement(
    (direction, orientation): (Direction, Orientation),
    family: Family,
    header: Header,
    identities: &str,
    (verdicts, otherwise): (&str, Verdict),
) -> Rule {
    const KEY: u8 = 8;
    const CODE: u8 = 14;
    let (peer, len) = address_at(family, owns_source(direction, orientation));
    let line = Line::new()
        .payload(PayloadBase::Network, peer, len, 0)
        // As long as what maps give in a key, so that `nft` knows its length.
        .zeros(KEY, 16)
        .map(identities, 0, KEY + 2);
    let line = point_of(line, direction, orientation, family)
        .map(CLASS, KEY, KEY + 2)
        .map(PAIR, KEY, KEY + 1)
        .meta(MetaKey::L4Proto, KEY + 2);
    let reply = orientation == Orientation::Reply;
    let (line, maps): (Line, &[&str]) = match header {
        Header::Ports => {
            let swapped = reply != Fault::ReplyPortsNotSwapped.is_on();
            let offset = if reply && swapped { 0 } else { 2 };
            let line = line.payload(PayloadBase::Transport, offset, 2, KEY + 3);
            (line, &[PORT, PORT_RANGE, PROTO, ANY])
        }
        Header::Icmp => {
            let byte = |line: Line, at: u8| {
                line.payload(PayloadBase::Transport, u32::from(at), 1, KEY + 3 + at)
            };
            let line = byte(byte(line, 0), 1);
            let line = if reply {
                line.map(ICMP_REQUEST, KEY + 2, KEY + 3)
            } else {
                line
            };
            (line, &[ICMP, ICMP_RANGE, PROTO, ANY])
        }
        Header::Other => (line, &[PROTO, ANY]),
    };
    let say = |line: Line, map: &&str| line.map(map, KEY, CODE + 1).by(verdicts, CODE);
    let line = maps.iter().fold(line.zeros(CODE, 8), say);
    if Fault::BaseIgnored.is_on() {
        return line.verdict(otherwise);
    }
    // Only a class that has a base comes here, and what has no class: base 0 has no entries either.
    let line = line.map(BASE, KEY, KEY + 1);
    maps.iter().fold(line, say).verdict(otherwise)
}
