//! The chains that send DNS queries to the proxy that reads them, and what the proxy sends on its way.
//!
//! They exist only while a class decides queries by name, so a host without such rules pays nothing. In prerouting,
//! after destination NAT, the same lookups as those of a judgement lead to the class of the packet, and one more to the
//! number of its DNS rules. `tproxy` gives the packet to the proxy's listener, with that number in the packet's mark; a
//! packet that no listener takes goes on unchanged, and is judged as any other.
//!
//! Towards the server the proxy sends from the client's own address, by a connection of its own. Its original direction
//! is in a zone of connection tracking that nothing else uses, so it is never taken for one of the client's; its replies
//! are in the zone of all packets, so source NAT, by whatever program, works as for any other. By its zone each of its
//! replies is known, wherever it comes from: one that arrives is delivered to this host, and one that a server of this
//! host sends to the client's address is routed here. Where the client has a connection with the same ports, source NAT
//! chooses another port, for which there is a chain without rules: with it the kernel has NAT.
//!
//! What the proxy sends to a workload of this host is judged there as from the client; to this host nothing is judged, as
//! nothing of a workload is.
//!
//! Promises: a flow is redirected only if its class says so. Never: decides which names may be asked for.

use crate::hook_rules::{fast_path_rule, filter_base_chain, own_interface_rules};
use crate::judgement::{
    L4Fields, Orientation, TupleFields, address_field, judge_chain_name, load_identity,
    load_policy_set,
};
use crate::names::{self, IDENTITY_CLASS, L4_PORTS, REDIRECT, REDIRECT_PORTS, SET_CLASS};
use crate::rule::{RuleBuilder, chain};
use crate::{
    BaseChain, Chain, ChainPolicy, ChainType, CmpOp, Config, CtKey, Expr, Hook, MetaKey, NftRule,
    NftVerdict, PayloadBase, RedirectConfig, Reg, ct_state,
};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use palisade_model::{Direction, Family, Str};

/// The base chain whose presence tells that the table redirects.
const MARKER: &str = "p_redirect";
/// After destination NAT.
const PRIORITY: i32 = -90;
/// Before connection tracking, and after programs that leave packets out of it, as node-local DNS does.
const RAW_PRIORITY: i32 = -290;
/// Before destination NAT (`NF_IP_PRI_MANGLE`).
const ROUTE_PRIORITY: i32 = -150;
/// With other source NAT (`NF_IP_PRI_NAT_SRC`).
const SOURCE_NAT: i32 = 100;
/// Before the chains of workloads.
const JUDGE_PRIORITY: i32 = -1;

/// Whether the chains are among these.
pub(crate) fn is_among(chains: &BTreeMap<Str, Chain>) -> bool {
    chains.contains_key(MARKER)
}

/// The chains, in an order in which each can be deleted; none where nothing is redirected.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(redirect) = config.redirect else {
        return Vec::new();
    };
    let mut entry = vec![
        upstream_reply(&redirect)
            .set_packet_mark(redirect.redirect_bit, true)
            .verdict(NftVerdict::Accept),
        fast_path_rule(config),
    ];
    let own = own_interface_rules(config, MetaKey::IifName, |line| line.goto("p_redirect_of"));
    entry.extend(own);
    let own_output = own_interface_rules(config, MetaKey::OifName, |line| {
        line.packet_mark(redirect.upstream_bit)
            .goto("p_redirect_judge")
    });
    vec![
        chain(MARKER, filter_base_chain(Hook::Prerouting, PRIORITY), entry),
        chain(
            "p_redirect_zone",
            filter_base_chain(Hook::Output, RAW_PRIORITY),
            zone_rules(&redirect),
        ),
        chain(
            "p_redirect_host",
            base_chain(ChainType::Route, Hook::Output, ROUTE_PRIORITY),
            vec![
                upstream_reply(&redirect)
                    .set_packet_mark(redirect.host_answer_bit, true)
                    .build(),
            ],
        ),
        chain(
            "p_redirect_nat",
            base_chain(ChainType::Nat, Hook::Postrouting, SOURCE_NAT),
            Vec::new(),
        ),
        chain(
            "p_redirect_out",
            filter_base_chain(Hook::Output, JUDGE_PRIORITY),
            own_output,
        ),
        chain("p_redirect_of", None, flow_rules(&redirect)),
        chain("p_redirect_judge", None, judge_rules()),
    ]
}

/// The chains with the rules that accept what the proxy receives and what it sends, by the hook of the host's own packets
/// in which they come before any other.
const OWN_CHAINS: [(Hook, &str); 2] = [
    (Hook::Input, "p_redirect_input"),
    (Hook::Output, "p_redirect_output"),
];

/// The rule that leads packets of a hook to its chain of [`OWN_CHAINS`]; `None` if there is no proxy.
pub(crate) fn own_jump(config: &Config, hook: Hook) -> Option<NftRule> {
    let (_, name) = OWN_CHAINS.iter().find(|(known, _)| *known == hook)?;
    let is_needed = config.redirect.is_some();
    is_needed.then(|| RuleBuilder::new().jump(name))
}

/// These chains without rules, as they are where nothing is redirected: a mark of another program means nothing then.
pub(crate) fn empty_own_chains(config: &Config) -> Vec<(Str, Chain)> {
    let filled = own_chains(config).into_iter();
    filled
        .map(|(name, _)| chain(&name, None, Vec::new()))
        .collect()
}

/// These chains with their rules, as they are where packets are redirected.
pub(crate) fn own_chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(redirect) = config.redirect else {
        return Vec::new();
    };
    let own = OWN_CHAINS.into_iter();
    own.map(|(hook, name)| chain(name, None, own_rules(&redirect, hook)))
        .collect()
}

fn own_rules(redirect: &RedirectConfig, hook: Hook) -> Vec<NftRule> {
    let accept = |line: RuleBuilder| line.verdict(NftVerdict::Accept);
    let marked = |bit| accept(RuleBuilder::new().packet_mark(bit));
    match hook {
        Hook::Input => vec![marked(redirect.redirect_bit)],
        _ => vec![
            // The first answer of a connection has the mark of what it answers.
            marked(redirect.redirect_bit),
            marked(redirect.upstream_bit),
            marked(redirect.answer_bit),
            // What a server of this host answers still has the interface of the client here.
            accept(upstream_reply(redirect)),
        ],
    }
}

/// The rule that accepts the proxy's connections to servers at the host's own interfaces: there it is the client's flow
/// that passes, not the host's.
pub(crate) fn upstream_rule(config: &Config) -> Option<NftRule> {
    let line = of_upstream(&config.redirect?);
    Some(line.verdict(NftVerdict::Accept))
}

/// Continues only for what the proxy sends to a server; `None` if there is no proxy.
pub(crate) fn passed_queries(config: &Config) -> Option<RuleBuilder> {
    Some(of_upstream(&config.redirect?).original())
}

fn base_chain(chain_type: ChainType, hook: Hook, priority: i32) -> Option<BaseChain> {
    Some(BaseChain {
        hook,
        priority,
        policy: ChainPolicy::Accept,
        chain_type,
    })
}

/// Continues only for packets of the proxy's connections to servers.
fn of_upstream(redirect: &RedirectConfig) -> RuleBuilder {
    let zone = redirect.upstream_zone.to_ne_bytes();
    RuleBuilder::new()
        .ct(CtKey::Zone, 0)
        .cmp(0, CmpOp::Eq, &zone)
}

/// Continues only for packets that answer what the proxy has sent, ICMP errors included.
fn upstream_reply(redirect: &RedirectConfig) -> RuleBuilder {
    of_upstream(redirect).reply()
}

/// The rules that have the proxy's connections tracked, each with its zone.
///
/// Other programs leave a server's packets out of connection tracking. What this host sends to a workload with ports is
/// tracked nevertheless, since it may be an answer to the proxy.
fn zone_rules(redirect: &RedirectConfig) -> Vec<NftRule> {
    let set_zone = |line: RuleBuilder, zone: u16| {
        line.immediate(0, &zone.to_ne_bytes())
            .push(Expr::CtSet {
                key: CtKey::Zone,
                sreg: Reg(0),
            })
            .verdict(NftVerdict::Accept)
    };
    let mut rules = vec![
        set_zone(
            RuleBuilder::new().packet_mark(redirect.upstream_bit),
            redirect.upstream_zone,
        ),
        RuleBuilder::new()
            .packet_mark(redirect.redirect_bit | redirect.answer_bit)
            .verdict(NftVerdict::Accept),
    ];
    for family in Family::BOTH {
        let (offset, len) = address_field(family, true);
        let line = RuleBuilder::new()
            .state(ct_state::UNTRACKED)
            .meta(MetaKey::L4Proto, 0)
            .in_set(L4_PORTS, 0)
            .family(family)
            .payload(PayloadBase::Network, offset, len, 0)
            .in_set(names::local_addresses_set(family), 0);
        rules.push(set_zone(line, 0));
    }
    rules
}

/// The rules that find the DNS rules of a packet from a workload.
fn flow_rules(redirect: &RedirectConfig) -> Vec<NftRule> {
    let protocol = RuleBuilder::new().meta(MetaKey::L4Proto, 0);
    let ports = TupleFields::Packet(Orientation::Original).load_port(protocol, 1);
    let mut rules = vec![
        RuleBuilder::new().reply().verdict(NftVerdict::Accept),
        // Where the packet has no ports, the protocol is in no element.
        ports
            .not_in_set(REDIRECT_PORTS, 0)
            .verdict(NftVerdict::Accept),
    ];
    for family in Family::BOTH {
        let host = names::host_map(family);
        rules.push(redirect_rule(redirect, family, host));
        // A peer with an identity of its own has not that of its network.
        let known = TupleFields::Packet(Orientation::Original).load_address(
            RuleBuilder::new().family(family),
            family,
            true,
            0,
        );
        rules.push(known.map_lookup(host, 0, 4).verdict(NftVerdict::Accept));
        rules.push(redirect_rule(redirect, family, names::network_map(family)));
    }
    rules
}

/// Redirects a packet whose peer is in a map of identities: `tproxy` breaks if no listener takes it.
fn redirect_rule(redirect: &RedirectConfig, family: Family, identities: &str) -> NftRule {
    const KEY: u8 = 8;
    const NUMBER: u8 = 0;
    const ADDRESS: u8 = 4;
    let fields = TupleFields::Packet(Orientation::Original);
    let line = RuleBuilder::new().family(family);
    let line = load_identity(line, (true, fields), family, identities);
    let line = load_policy_set(line, Direction::Egress, Orientation::Original, family)
        .map_lookup(IDENTITY_CLASS, KEY, KEY + 2)
        .map_lookup(SET_CLASS, KEY, KEY + 1)
        .meta(MetaKey::L4Proto, KEY + 2);
    let line = fields
        .load_port(line, KEY + 3)
        .map_lookup(REDIRECT, KEY, NUMBER);
    let line = match loopback(family) {
        IpAddr::V4(address) => line.immediate(ADDRESS, &address.octets()),
        IpAddr::V6(address) => line.immediate(ADDRESS, &address.octets()),
    };
    line.immediate(KEY, &redirect.port.to_be_bytes())
        .push(Expr::Tproxy {
            family,
            address: Reg(ADDRESS),
            port: Reg(KEY),
        })
        .push(Expr::MetaSet {
            key: MetaKey::Mark,
            sreg: Reg(NUMBER),
        })
        .verdict(NftVerdict::Accept)
}

/// Where the proxy listens.
fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The rules that judge what the proxy sends to a workload of this host: its source is the client.
fn judge_rules() -> Vec<NftRule> {
    let judge = |family| {
        let name = judge_chain_name(
            Direction::Ingress,
            Orientation::Original,
            family,
            L4Fields::Ports,
        );
        RuleBuilder::new().family(family).jump(&name)
    };
    // A server of this host may have the mark of what it answers.
    let mut rules = vec![RuleBuilder::new().reply().verdict(NftVerdict::Accept)];
    rules.extend(Family::BOTH.map(judge));
    rules.push(RuleBuilder::new().verdict(NftVerdict::Accept));
    rules
}
