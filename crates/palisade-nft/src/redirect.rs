//! The chains that send DNS queries to the proxy that reads them, and what the proxy sends on its way.
//!
//! They exist only while a class decides queries by name, so a host without such rules pays nothing. In prerouting,
//! after destination NAT, the same lookups as those of a judgement lead to the class of the packet, and one more to the
//! number of its DNS rules. `tproxy` gives the packet to the proxy's listener, with that number in the packet's mark; a
//! packet that no listener takes goes on unchanged, and is judged as any other. Towards the server the proxy sends from
//! the client's own address and port. That flow is not tracked: with the client's own it would be one tuple twice. What
//! it sends to a workload of this host is judged there as from the client.
//!
//! Promises: a flow is redirected only if its class says so. Never: decides which names may be asked for.

use crate::hook_rules::{fast_path_rule, filter_base_chain, own_interface_rules};
use crate::judgement::{
    L4Fields, Orientation, TupleFields, judge_chain_name, load_identity, load_policy_set,
};
use crate::names::{self, IDENTITY_CLASS, L4_PORTS, REDIRECT, SET_CLASS};
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, Expr, Hook, MetaKey, NftRule, NftVerdict, RedirectConfig, Reg, SocketKey,
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
/// Before connection tracking, and after the check of source addresses.
const RAW_PRIORITY: i32 = -290;
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
    let mut entry = vec![fast_path_rule(config)];
    let own = own_interface_rules(config, MetaKey::IifName, |line| line.goto("p_redirect_of"));
    entry.extend(own);
    let own_output = own_interface_rules(config, MetaKey::OifName, |line| {
        sent_by_proxy(line, redirect.upstream_bit).goto("p_redirect_judge")
    });
    vec![
        chain(MARKER, filter_base_chain(Hook::Prerouting, PRIORITY), entry),
        chain(
            "p_redirect_raw",
            filter_base_chain(Hook::Prerouting, RAW_PRIORITY),
            vec![answer_rule(&redirect)],
        ),
        chain(
            "p_redirect_send",
            filter_base_chain(Hook::Output, RAW_PRIORITY),
            vec![untracked_rule(&redirect)],
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

/// The rules that accept what the proxy receives and what it sends, in the hooks of the host's own packets; before any
/// other.
pub(crate) fn own_rules(config: &Config, hook: Hook) -> Vec<NftRule> {
    let Some(redirect) = config.redirect else {
        return Vec::new();
    };
    let bits = match hook {
        Hook::Input => vec![redirect.redirect_bit],
        // The first answer of a connection has the mark of what it answers.
        _ => vec![
            redirect.redirect_bit,
            redirect.upstream_bit,
            redirect.answer_bit,
        ],
    };
    let accept = |bit| {
        RuleBuilder::new()
            .packet_mark(bit)
            .verdict(NftVerdict::Accept)
    };
    bits.into_iter().map(accept).collect()
}

fn sent_by_proxy(line: RuleBuilder, bit: u32) -> RuleBuilder {
    line.packet_mark(bit)
}

/// The answer of a server: it is for a socket that the proxy sends from.
fn answer_rule(redirect: &RedirectConfig) -> NftRule {
    RuleBuilder::new()
        .meta(MetaKey::L4Proto, 0)
        .in_set(L4_PORTS, 0)
        .push(Expr::Socket {
            key: SocketKey::Mark,
            dreg: Reg(0),
        })
        .cmp(0, CmpOp::Eq, &redirect.upstream_bit.to_ne_bytes())
        .set_packet_mark(redirect.redirect_bit, true)
        .push(Expr::Notrack)
        .verdict(NftVerdict::Accept)
}

/// What the proxy sends to a server.
fn untracked_rule(redirect: &RedirectConfig) -> NftRule {
    sent_by_proxy(RuleBuilder::new(), redirect.upstream_bit)
        .push(Expr::Notrack)
        .verdict(NftVerdict::Accept)
}

/// The rules that find the DNS rules of a packet from a workload.
fn flow_rules(redirect: &RedirectConfig) -> Vec<NftRule> {
    let mut rules = vec![
        RuleBuilder::new().reply().verdict(NftVerdict::Accept),
        RuleBuilder::new()
            .meta(MetaKey::L4Proto, 0)
            .not_in_set(L4_PORTS, 0)
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
    let mut rules: Vec<NftRule> = Family::BOTH.map(judge).into();
    rules.push(RuleBuilder::new().verdict(NftVerdict::Accept));
    rules
}
