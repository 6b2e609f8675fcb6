//! TCP flows that were under way before anything tracked or judged them.
//!
//! Connection tracking takes the first packet that it sees of such a flow for its first, so which end
//! began it is not known. It passes if it is allowed in *one of the two* directions that it may have
//! had; its mark keeps a bit that says so, because that question comes again with each revocation.
//! Nothing is given away: such a packet opens no connection, since every connection is opened by a
//! SYN, and a SYN is always judged in its own direction. That also ends the doubt: a SYN that is
//! allowed makes the flow one like any other. A SYN on such a flow is never accepted by the flow's
//! mark, because connection tracking lets one through that it means to ignore.
//!
//! A flow whose mark is all 0 was never judged. A flow that connection tracking knew before there
//! was a table is marked beforehand ([`Config::untracked_generation`]), and keeps the direction that
//! was seen.
//!
//! The direction that is tried first must not end the packet when it denies. So it has verdict maps
//! of its own, in which denial returns, and then the direction that connection tracking tells is
//! judged as ever. What is tried is not reported. Where source ports decide (residues), the direction tried first counts as denied.

use crate::judgement::{Header, Orientation, judgement, own_interface, pass_name, passing};
use crate::names::{self, EITHER, LIVE, marks};
use crate::report::{Report, drop_counted};
use crate::rule::{Line, chain};
use crate::skeleton::{host_judged, ours};
use crate::{Chain, CmpOp, Config, CtKey, Datum, Element, Fault, Key, Rule, Verdict, ct_state};
use crate::{MetaKey, tcp_flag};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Protocol, Str};

/// One way to judge a packet that is tried: its direction and family.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    orientation: Orientation,
    family: Family,
    /// The verdicts of the egress side: allowed goes on to the ingress side.
    pub(crate) next: &'static str,
}

const fn way(orientation: Orientation, family: Family, next: &'static str) -> Way {
    Way {
        orientation,
        family,
        next,
    }
}

/// All of them.
pub(crate) const WAYS: [Way; 4] = [
    way(Orientation::Original, Family::V4, "p_either_o4"),
    way(Orientation::Original, Family::V6, "p_either_o6"),
    way(Orientation::Reply, Family::V4, "p_either_r4"),
    way(Orientation::Reply, Family::V6, "p_either_r6"),
];

impl Way {
    /// The name of a chain of this way: `p_try_` and what the map of verdicts ends with.
    fn name(self, letter: &str) -> String {
        let way = self.next.trim_start_matches("p_either_");
        format!("p_try_{letter}{way}")
    }
}

/// The chain where TCP of a connection begins: what needs no other judgement comes back from here.
pub(crate) fn entry(orientation: Orientation, family: Family) -> String {
    format!("{}_tcp", pass_name(orientation, family, Header::Ports))
}

/// The rule for packets of or for this host's own stack, where those are not judged: one of the two
/// directions is always allowed.
pub(crate) fn of_host() -> Rule {
    Line::new()
        .protocol(Protocol::TCP)
        .state(ct_state::NEW | ct_state::ESTABLISHED)
        .jump("p_older_host")
}

/// The rule for packets that this host's own stack makes, where those are not judged: even a SYN
/// needs no judgement.
pub(crate) fn from_host(config: &Config) -> Rule {
    let bit = config.older_bit();
    Line::new()
        .protocol(Protocol::TCP)
        .state(ct_state::NEW | ct_state::ESTABLISHED)
        .ct_mark(bit, CmpOp::Eq, bit)
        .goto("p_mark")
}

/// The constant elements of the verdict maps.
pub(crate) fn verdicts() -> Vec<(&'static str, Key, Element)> {
    let element = |verdict| Element {
        data: Some(Datum::Verdict(verdict)),
        ..Element::default()
    };
    let mut out = Vec::new();
    let mut map = |name: &'static str, allowed: Str| {
        out.push((name, marks(&[0]), element(Verdict::Continue)));
        for code in [names::ALLOW, names::LOG_INGRESS, names::LOG_EGRESS] {
            let allowed = Verdict::Goto(allowed.clone());
            out.push((name, marks(&[code]), element(allowed)));
        }
        out.push((name, Key::CatchAll, element(Verdict::Return)));
    };
    for way in WAYS {
        map(way.next, way.name("n").as_str().into());
    }
    map(EITHER, "p_mark".into());
    out
}

/// The chains for such flows.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let bit = config.older_bit();
    let older = || Line::new().ct_mark(bit, CmpOp::Eq, bit);
    let never_judged = || Line::new().ct_mark(config.ct_mark_mask, CmpOp::Eq, 0);
    let no_syn = |line: Line| line.tcp_flags(tcp_flag::SYN, CmpOp::Eq, 0);
    let live = Line::new()
        .ct(CtKey::Mark, 0)
        .bitwise(0, &config.generation_mask().to_ne_bytes(), &[0; 4])
        .within(LIVE, 0)
        .verdict(Verdict::Accept);
    let opens = || Line::new().tcp_flags(tcp_flag::SYN | tcp_flag::ACK, CmpOp::Eq, tcp_flag::SYN);
    let mut picked = vec![
        // Connection tracking calls it invalid itself.
        drop_counted(config, opens().reply(), Report::Invalid),
        opens().family(Family::V4).goto("p_open4"),
        opens().goto("p_open6"),
        live,
        Line::new().goto("p_either"),
    ];
    if Fault::OlderSynAccepted.is_on() {
        picked.drain(..3);
    }
    let mut chains = vec![
        chain(
            "p_tcp",
            None,
            vec![
                older().goto("p_older"),
                no_syn(never_judged()).goto("p_midway"),
            ],
        ),
        chain("p_older", None, picked),
        chain(
            "p_midway",
            None,
            vec![Line::new().set_ct_mark(bit, bit).goto("p_either")],
        ),
        chain(
            "p_opened",
            None,
            vec![Line::new().set_ct_mark(bit, 0).goto("p_mark")],
        ),
    ];
    if !host_judged(config) {
        chains.push(chain(
            "p_older_host",
            None,
            vec![
                older()
                    .tcp_flags(tcp_flag::SYN | tcp_flag::ACK, CmpOp::Neq, tcp_flag::SYN)
                    .goto("p_mark"),
                no_syn(never_judged()).set_ct_mark(bit, bit).goto("p_mark"),
            ],
        ));
    }
    for (name, family) in [("p_open4", Family::V4), ("p_open6", Family::V6)] {
        let end = Verdict::Goto("p_opened".into());
        let rules = passing(config, Orientation::Original, family, Header::Ports, end);
        chains.push(chain(name, None, rules));
    }
    for way in WAYS {
        let rules = vec![
            Line::new().jump("p_tcp"),
            Line::new().goto(&pass_name(way.orientation, way.family, Header::Ports)),
        ];
        chains.push(chain(&entry(way.orientation, way.family), None, rules));
    }
    let mut either = Vec::new();
    for way in WAYS {
        // The direction that connection tracking does not tell.
        let told = match way.orientation {
            Orientation::Original => Line::new().reply(),
            Orientation::Reply => Line::new().original(),
        };
        either.push(told.family(way.family).jump(&way.name("")));
    }
    if Fault::OlderJudgedOneWay.is_on() {
        either.clear();
    }
    let told = |orientation, family| pass_name(orientation, family, Header::Ports);
    let (original, reply) = (Orientation::Original, Orientation::Reply);
    either.extend([
        Line::new()
            .reply()
            .family(Family::V4)
            .goto(&told(reply, Family::V4)),
        Line::new().reply().goto(&told(reply, Family::V6)),
        Line::new()
            .family(Family::V4)
            .goto(&told(original, Family::V4)),
        Line::new().goto(&told(original, Family::V6)),
    ]);
    chains.push(chain("p_either", None, either));
    for way in WAYS {
        chains.extend(trying(config, way));
    }
    chains
}

/// The chains that try one way: they come back where it is denied.
fn trying(config: &Config, way: Way) -> Vec<(Str, Chain)> {
    let mut chains = Vec::new();
    let mut side = |direction, letter: &str, entry: &str, verdicts: &str, next: &str| {
        let interface: MetaKey = own_interface(direction, way.orientation);
        let head = way.name(letter);
        let mut rules = ours(config, interface, |line| line.goto(&head));
        rules.push(Line::new().goto(next));
        chains.push(chain(entry, None, rules));
        let (of, header) = ((direction, way.orientation), Header::Ports);
        let rule = |ids| judgement(of, way.family, header, ids, (verdicts, Verdict::Return));
        let rules = vec![
            rule(names::hosts(way.family)),
            rule(names::nets(way.family)),
        ];
        chains.push(chain(&head, None, rules));
    };
    let next = way.name("n");
    side(Direction::Egress, "e", &way.name(""), way.next, &next);
    side(Direction::Ingress, "i", &next, EITHER, "p_mark");
    chains
}
