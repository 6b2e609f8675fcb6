//! The policy form to which every dialect is lowered: ordered tiers of ordered policies of ordered
//! rules.
//!
//! The verdict of one direction for an endpoint is computed as follows. Tiers are evaluated in order.
//! A tier applies only if one of its policies selects the endpoint and has rules for the direction.
//! Inside a tier, policies are evaluated by [`Precedence`], then [`PolicyId::cmp_by_name`]; their rules in order.
//! The first matching rule decides; `Log` continues with the next rule, `Pass` with the next tier.
//! If no rule of a tier matches, the flow is denied if the tier's default is [`TierDefault::Deny`]
//! and one of the policies that apply has [`DirectionRules::default_deny`]; otherwise evaluation
//! continues with the next tier. After the last tier the endpoint's profiles are evaluated: there
//! `Pass` denies, a missing profile denies, and no match denies.
//!
//! A rule with [`Rule::dns_names`] decides DNS queries by name, each for itself; for a query that it does not allow,
//! evaluation continues with the next rule. A flow that such a rule matches is therefore redirected to who reads the
//! queries, with the names of all such rules up to the decision, and the decision is for queries of other names.
//!
//! [`Policy::observes_dns`] decides nothing: it redirects DNS that is allowed, so that the answers are seen.

use crate::direction::Direction;
use crate::policy_stage::{PolicyStage, TrafficScope};
use crate::source_line::SourceLine;
use crate::{
    DomainPattern, Family, LabelKey, ObjectId, PortMatch, Prefix, Protocol, Selector, Str, reserved,
};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A sort key: numbers ascending, then everything without a number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// An explicit number; lower comes first. Never NaN: [`Order::from_number`] maps it to `Last`.
    At(f64),
    /// No number: after everything that has one.
    Last,
}

impl Order {
    /// Before every order that can be written.
    pub const FIRST: Order = Order::At(f64::MIN);

    /// The number, as it was written; `None` for [`Order::FIRST`] and [`Order::Last`].
    pub fn number(self) -> Option<f64> {
        match self {
            Order::At(number) if self != Order::FIRST => Some(number),
            Order::At(_) | Order::Last => None,
        }
    }

    /// The order of a number; NaN counts as no number.
    pub fn from_number(number: f64) -> Self {
        if number.is_nan() {
            Order::Last
        } else {
            Order::At(number + 0.0)
        }
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Order {}
impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Order {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Order::At(a), Order::At(b)) => a.total_cmp(b),
            (Order::At(_), Order::Last) => Ordering::Less,
            (Order::Last, Order::At(_)) => Ordering::Greater,
            (Order::Last, Order::Last) => Ordering::Equal,
        }
    }
}

/// What a tier does with a flow that none of its rules matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TierDefault {
    /// Deny it, if a policy that applies to the endpoint has [`DirectionRules::default_deny`].
    Deny,
    /// Continue with the next tier.
    Pass,
}

/// A tier: policies that are evaluated before those of later tiers.
///
/// Tiers are ordered by `order`, then name. A policy whose tier does not exist still applies, in a
/// tier of that name after all others, with default `Deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Its name, unique.
    pub name: Str,
    /// Its order among the tiers.
    pub order: Order,
    /// What happens to a flow that none of its rules matches.
    pub default: TierDefault,
}

/// Names of the tiers that always exist.
pub mod tier_name {
    /// Admin tier of ClusterNetworkPolicy, and AdminNetworkPolicy: order 1,000, default `Pass`.
    pub const KUBE_ADMIN: &str = "kube-admin";
    /// The tier of namespaced policies: order 1,000,000, default `Deny`.
    pub const DEFAULT: &str = "default";
    /// Baseline tier of ClusterNetworkPolicy, and BaselineAdminNetworkPolicy: order 10,000,000,
    /// default `Pass`.
    pub const KUBE_BASELINE: &str = "kube-baseline";
}

/// The tiers that exist in every state unless an object of the same name replaces them.
pub fn builtin_tiers() -> [Tier; 3] {
    let tier = |name: &str, order, default| Tier {
        name: name.into(),
        order: Order::At(order),
        default,
    };
    [
        tier(tier_name::KUBE_ADMIN, 1_000.0, TierDefault::Pass),
        tier(tier_name::DEFAULT, 1_000_000.0, TierDefault::Deny),
        tier(tier_name::KUBE_BASELINE, 10_000_000.0, TierDefault::Pass),
    ]
}

/// The position of a policy inside its tier: by `order`, then `rank`, then [`PolicyId::cmp_by_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Precedence {
    /// The policy's own order or priority.
    pub order: Order,
    /// Breaks ties between kinds at the same order; lower comes first.
    pub rank: u8,
}

/// Identifies a lowered policy: the object it was written as, and the part of that object (an object
/// whose denying and allowing rules have different precedence is lowered to several policies).
///
/// Ordered by namespace, name, group, kind, part. An object can have any number of parts, so eight bits are not
/// enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId {
    /// The object as written.
    pub object: ObjectId,
    /// Which part of the object; 0 where there is only one.
    pub part: u32,
}

impl PolicyId {
    /// Compares policies of equal precedence: by name, then namespace (none first), group, kind and part. In this
    /// order they are evaluated, and counted where they stand together. Source: Calico, "Policy tiers", for ties of
    /// order.
    pub fn cmp_by_name(&self, other: &PolicyId) -> Ordering {
        let by_name = self.object.name.cmp(&other.object.name);
        by_name.then_with(|| self.cmp(other))
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// Whether a policy is enforced.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PolicyMode {
    /// It is enforced.
    #[default]
    Enforce,
    /// It decides nothing. What it would decide is counted and reported beside the verdict.
    Audit,
}

impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyMode::Enforce => "enforce",
            PolicyMode::Audit => "audit",
        })
    }
}

/// The policies that an evaluation takes into account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyView {
    /// What is enforced: policies in [`PolicyMode::Enforce`]. At an endpoint in audit everything is allowed.
    #[default]
    Enforced,
    /// What would be enforced if nothing were in audit: every policy, at every endpoint.
    Audit,
}

impl PolicyView {
    /// Both views.
    pub const BOTH: [PolicyView; 2] = [PolicyView::Enforced, PolicyView::Audit];

    /// Whether a policy in this mode has a part in the view.
    pub fn includes(self, mode: PolicyMode) -> bool {
        self == PolicyView::Audit || mode == PolicyMode::Enforce
    }
}

/// A policy: the endpoints it selects, and its rules for each direction that it governs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub id: PolicyId,
    /// The name of its tier.
    pub tier: Str,
    /// Its position inside the tier.
    pub precedence: Precedence,
    /// Whether it is enforced.
    #[serde(default)]
    pub mode: PolicyMode,
    /// The endpoints it selects. Each dialect adds its own tests of kind and namespace.
    pub subject: Selector,
    /// The traffic that it judges.
    #[serde(default)]
    pub scope: TrafficScope,
    /// Whether it needs the answers of the DNS servers that its endpoints ask, since it has rules by name, and its
    /// dialect has no rules for DNS queries.
    ///
    /// What a workload that it selects sends to port 53 over UDP or TCP, and may send, is then redirected to who reads
    /// the queries, and every name may be asked; where rules with [`Rule::dns_names`] match, these redirect already. It
    /// has this effect only if it governs egress. What cannot be read is as for these rules: encapsulated packets,
    /// hairpin traffic, and what is not of a workload. In audit, of the policy or of the endpoint, it observes as
    /// well: what it would decide is reported, and depends on the addresses of the names.
    #[serde(default)]
    pub observes_dns: bool,
    /// Its ingress rules; `None` where it does not govern ingress.
    pub ingress: Option<DirectionRules>,
    /// Its egress rules; `None` where it does not govern egress.
    pub egress: Option<DirectionRules>,
    /// Where it was written.
    pub line: Option<SourceLine>,
}

impl Policy {
    /// The rules of one direction; `None` where the policy does not govern it.
    pub fn rules(&self, direction: Direction) -> Option<&DirectionRules> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Whether DNS queries of the workloads that it selects may be read because of it: it judges them by name, or
    /// observes them.
    pub fn reads_dns(&self) -> bool {
        let mut rules = self.egress.iter().flat_map(|egress| &egress.rules);
        self.observes_dns || rules.any(|rule| rule.dns_names.is_some())
    }

    /// Where a rule of this policy was written, for messages: file and line, or the object of a server and the path
    /// of the rule in it.
    pub fn rule_source(&self, rule: &RuleOrigin) -> Option<String> {
        let line = rule.line.as_ref()?;
        Some(match &self.line {
            Some(object) if line.line == 0 && object != line => format!("{object}: {line}"),
            _ => line.to_string(),
        })
    }

    /// The test that makes a subject one of nodes: it holds for the host endpoints of nodes that are known.
    pub fn node_subject() -> Selector {
        Selector::has(LabelKey::reserved(reserved::HOST_NODE))
    }

    /// Whether it selects nodes: the host endpoints of nodes whose labels match. While there is such a policy, each
    /// node has an endpoint ([`crate::Endpoint::of_node`]). Source: Cilium, "Host Policies".
    pub fn selects_nodes(&self) -> bool {
        let of_nodes = Policy::node_subject();
        match &self.subject {
            Selector::And(parts) => parts.contains(&of_nodes),
            one => *one == of_nodes,
        }
    }

    /// The destination port at which DNS is observed.
    pub const DNS_PORT: u16 = 53;

    /// Whether it has a part in this stage.
    pub fn has_stage(&self, stage: PolicyStage) -> bool {
        self.scope.has_stage(stage)
    }

    /// Frees what its lists have reserved beyond their length: more than half of the memory of a policy whose
    /// lists were built element by element.
    pub fn shrink_to_fit(&mut self) {
        for direction in [&mut self.ingress, &mut self.egress].into_iter().flatten() {
            direction.rules.shrink_to_fit();
            for rule in &mut direction.rules {
                rule.traffic.shrink_to_fit();
                rule.peers.shrink_to_fit();
                for peer in rule.peers.iter_mut().chain(&mut rule.local) {
                    peer.nets.iter_mut().for_each(Vec::shrink_to_fit);
                    peer.not_nets.shrink_to_fit();
                }
            }
        }
    }
}

/// A policy's rules for one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DirectionRules {
    /// Whether traffic that no rule of the tier matches is denied, in a tier with default `Deny`.
    pub default_deny: bool,
    /// The rules, in order of evaluation.
    pub rules: Vec<Rule>,
}

impl DirectionRules {
    /// One rule that denies everything, whatever the default of the tier. `line` is that of the policy.
    pub fn deny_all(line: Option<SourceLine>) -> Self {
        DirectionRules {
            default_deny: false,
            rules: alloc::vec![Rule {
                origin: RuleOrigin {
                    index: 0,
                    name: None,
                    fingerprint: 0,
                    line,
                },
                action: Action::Deny,
                peers: alloc::vec![Peer::any()],
                local: None,
                traffic: alloc::vec![TrafficMatch::any()],
                dns_names: None,
            }],
        }
    }

    /// What replaces these rules where they cannot be enforced. Nothing is allowed by it that they deny:
    /// everything is denied if one of the rules does more than allow, since the default of the tier may be to pass;
    /// otherwise no rule is left. `line` is that of the policy.
    pub fn isolation(&self, line: Option<SourceLine>) -> Self {
        let only_allows = |rule: &Rule| matches!(rule.action, Action::Allow | Action::Log);
        if !self.rules.iter().all(only_allows) {
            return DirectionRules::deny_all(line);
        }
        DirectionRules {
            default_deny: self.default_deny,
            rules: Vec::new(),
        }
    }
}

/// What a rule does with a flow it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Action {
    /// The direction is allowed.
    Allow,
    /// The direction is denied.
    Deny,
    /// The rest of this tier is skipped. In a profile, the direction is denied.
    Pass,
    /// The packet is logged, and evaluation continues with the next rule.
    Log,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Allow => "allow",
            Action::Deny => "deny",
            Action::Pass => "pass",
            Action::Log => "log",
        })
    }
}

/// One rule. It matches a flow if the local address, one of the peers and one of the traffic terms
/// all match.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Where it was written.
    pub origin: RuleOrigin,
    /// The action on a matching flow.
    pub action: Action,
    /// Tests of the other end; one must match, so an empty list matches nothing.
    pub peers: Vec<Peer>,
    /// A test of the local address, the endpoint's own, that this flow uses.
    #[serde(rename = "own")]
    pub local: Option<Peer>,
    /// Tests of protocol and ports; one must match, so an empty list matches nothing.
    pub traffic: Vec<TrafficMatch>,
    /// Of a rule that allows: the names that DNS queries may ask for.
    ///
    /// The rule then allows these queries alone, and a query for another name goes on to the rules that follow. Who
    /// reads the queries is a proxy, so such a rule matches TCP and UDP, never an encapsulated packet, and only where
    /// workloads send: on egress, and not what a workload sends to itself. Elsewhere it matches nothing.
    #[serde(default)]
    pub dns_names: Option<BTreeSet<DomainPattern>>,
}

/// Where a rule was written, inside its policy or profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleOrigin {
    /// Its index in the object's list for the direction, from 0.
    pub index: u32,
    /// Its own name, in dialects that have one.
    pub name: Option<Str>,
    /// A hash of the rule's content; identical rules in one direction of one object have different
    /// fingerprints. Counters are keyed by it, so that counts follow the rule when rules before it are
    /// added or removed. 0 where only the index identifies the rule.
    pub fingerprint: u64,
    /// The line it starts on, where it came from a file.
    pub line: Option<SourceLine>,
}

impl RuleOrigin {
    /// Whether both are the same rule of one object and direction, at whatever index.
    pub fn is_same_rule(&self, other: &RuleOrigin) -> bool {
        self.fingerprint == other.fingerprint
            && (self.fingerprint != 0 || (self.index, &self.name) == (other.index, &other.name))
    }
}

/// A test of the address at one end of a flow. All criteria must hold; an absent criterion holds.
///
/// Several objects can hold an address at once: an endpoint, network sets, nodes. A selector matches
/// if it matches any one of them. An address without a holder matches no `selector` and every
/// `not_selector`. Where the address of an endpoint is unknown, `nets` never matches and `not_nets`
/// excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// A holder of the address matches this.
    pub selector: Option<Selector>,
    /// No holder of the address matches this.
    pub not_selector: Option<Selector>,
    /// The address lies in one of these; an empty list matches nothing.
    pub nets: Option<Vec<Prefix>>,
    /// The address lies in none of these.
    pub not_nets: Vec<Prefix>,
}

impl Peer {
    /// Any address.
    pub fn any() -> Self {
        Peer::default()
    }

    /// Any address with a holder that this selector matches.
    pub fn from_selector(selector: Selector) -> Self {
        Peer {
            selector: Some(selector),
            ..Peer::default()
        }
    }

    /// Any address in `net` that is in none of `except`.
    pub fn net(net: Prefix, except: Vec<Prefix>) -> Self {
        Peer {
            nets: Some(alloc::vec![net]),
            not_nets: except,
            ..Peer::default()
        }
    }

    /// Whether every address matches.
    pub fn is_any(&self) -> bool {
        *self == Peer::default()
    }
}

/// An ICMP type, or a type and a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IcmpMatch {
    /// The message type.
    pub kind: u8,
    /// The message code; any where absent.
    pub code: Option<u8>,
}

/// A test of protocol and ports. All criteria must hold; an absent criterion holds.
///
/// `source` and `destination` are the ends of the flow, not of the rule: in both directions the
/// destination is the receiver of the first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrafficMatch {
    /// Only this family.
    pub family: Option<Family>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// None of these protocols.
    #[serde(rename = "not_protocol", with = "crate::stored_protocols", default)]
    pub not_protocols: Vec<Protocol>,
    /// The destination port of the flow.
    pub destination: PortMatch,
    /// The source port of the flow.
    pub source: PortMatch,
    /// Only this ICMP (or ICMPv6) message; never holds for another protocol.
    pub icmp: Option<IcmpMatch>,
    /// Not this ICMP (or ICMPv6) message; always holds for another protocol.
    pub not_icmp: Option<IcmpMatch>,
}

impl TrafficMatch {
    /// All traffic.
    pub fn any() -> Self {
        TrafficMatch::default()
    }

    /// All traffic of one protocol.
    pub fn protocol(protocol: Protocol) -> Self {
        TrafficMatch {
            protocol: Some(protocol),
            ..TrafficMatch::default()
        }
    }

    /// One protocol to these destination ports.
    pub fn to_port(protocol: Protocol, destination: PortMatch) -> Self {
        TrafficMatch {
            protocol: Some(protocol),
            destination,
            ..TrafficMatch::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_sort_numbers_first() {
        let mut orders = [
            Order::Last,
            Order::from_number(2.0),
            Order::from_number(-1.5),
            Order::from_number(f64::NAN),
            Order::from_number(f64::INFINITY),
        ];
        orders.sort();
        assert_eq!(
            orders,
            [
                Order::from_number(-1.5),
                Order::from_number(2.0),
                Order::from_number(f64::INFINITY),
                Order::Last,
                Order::Last
            ]
        );
        assert_eq!(Order::from_number(-0.0), Order::from_number(0.0));
    }
}
