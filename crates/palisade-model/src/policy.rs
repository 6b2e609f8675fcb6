//! The one policy form: tiers of ordered policies of ordered rules.
//!
//! Every dialect is lowered to this. The verdict of one direction for an endpoint: tiers in order;
//! a tier counts only if one of its policies selects the endpoint and has rules for the direction;
//! inside it policies by [`Precedence`] then [`PolicyId`], rules in order; the first rule that
//! matches decides, `Log` goes on, `Pass` goes to the next tier; a tier that nothing matched ends
//! in `Deny` if its default is [`TierDefault::Deny`] and one of those policies has
//! [`DirectionRules::default_deny`], and passes on otherwise. After the last tier the endpoint's
//! profiles decide, where `Pass` denies, a missing profile denies, and no match denies.

use crate::{Family, ObjectId, PortMatch, Prefix, Protocol, Selector, Str};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The side of an endpoint that a rule judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// What others send to the endpoint.
    Ingress,
    /// What the endpoint sends.
    Egress,
}

impl Direction {
    /// Both, ingress first.
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}

/// A place in an order: numbers ascending, then everything that gave none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// An explicit number; lower comes first. Never NaN: [`Order::from_number`] refuses it.
    At(f64),
    /// No number given: after all that have one.
    Last,
}

impl Order {
    /// The place of a number; NaN is taken as "no number".
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
    /// Deny it, if a policy that selects the endpoint asks for default deny.
    Deny,
    /// Go on to the next tier.
    Pass,
}

/// A tier: policies that are decided before those of later tiers.
///
/// Tiers are ordered by `order`, then name. A policy that names a tier which does not exist still
/// applies, in a tier of that name after all others, whose default is `Deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Its name, unique.
    pub name: Str,
    /// Its place among the tiers.
    pub order: Order,
    /// What happens to a flow that none of its rules matched.
    pub default: TierDefault,
}

/// Names of the tiers that always exist.
pub mod tier_name {
    /// Admin tier of ClusterNetworkPolicy, and AdminNetworkPolicy: order 1,000, passes on.
    pub const KUBE_ADMIN: &str = "kube-admin";
    /// The tier of namespaced policies: order 1,000,000, denies.
    pub const DEFAULT: &str = "default";
    /// Baseline tier of ClusterNetworkPolicy, and BaselineAdminNetworkPolicy: order 10,000,000,
    /// passes on.
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

/// Where a policy stands inside its tier: by `order`, then `rank`, then the [`PolicyId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Precedence {
    /// The policy's own order or priority.
    pub order: Order,
    /// Breaks ties between kinds at the same order; lower comes first.
    pub rank: u8,
}

/// Names a lowered policy: the object it was written as, and which part of it (an object that holds
/// denials and allowances that stand at different places is lowered to several policies).
///
/// Ordered by namespace, name, group, kind, part: the order in which rules that stand at the same
/// precedence are credited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId {
    /// The object as its author names it.
    pub object: ObjectId,
    /// Which part of the object; 0 where there is only one.
    pub part: u8,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// A policy: whom it is about, and its rules for each direction it governs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub id: PolicyId,
    /// The tier it stands in.
    pub tier: Str,
    /// Its place inside the tier.
    pub precedence: Precedence,
    /// The endpoints it is about. Dialects restrict it to kinds and namespaces themselves.
    pub subject: Selector,
    /// Its ingress rules; `None` where it does not govern ingress.
    pub ingress: Option<DirectionRules>,
    /// Its egress rules; `None` where it does not govern egress.
    pub egress: Option<DirectionRules>,
    /// Where it was written.
    pub line: Option<SourceLine>,
}

impl Policy {
    /// The rules of one direction; `None` where it does not govern it.
    pub fn rules(&self, direction: Direction) -> Option<&DirectionRules> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// A policy's rules for one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DirectionRules {
    /// Whether what no rule of the tier matches is to be denied (in a tier that denies by default).
    pub default_deny: bool,
    /// In order.
    pub rules: Vec<Rule>,
}

/// What a rule does with a flow it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Action {
    /// The direction is allowed.
    Allow,
    /// The direction is denied.
    Deny,
    /// The rest of this tier is skipped. In a profile: denied.
    Pass,
    /// Noted, and judged further by the next rule.
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

/// One rule. It matches a flow if the own address, one of the peers and one of the traffic terms
/// all match.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Where it was written.
    pub origin: RuleOrigin,
    /// What it does.
    pub action: Action,
    /// The other end; one must match, so an empty list matches nothing.
    pub peers: Vec<Peer>,
    /// A test of the endpoint's own address, the one this flow uses.
    pub own: Option<Peer>,
    /// Protocols and ports; one must match, so an empty list matches nothing.
    pub traffic: Vec<TrafficMatch>,
}

/// Where a rule was written, inside its policy or profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleOrigin {
    /// Its index in the object's list for the direction, from 0.
    pub index: u32,
    /// Its own name, in dialects that have one.
    pub name: Option<Str>,
    /// What it says, as a number; of several that say the same in one direction of one object, each
    /// has another. What a rule is counted under, so that its counts follow it when rules before it
    /// come or go. 0 where only its index tells it apart.
    pub fingerprint: u64,
    /// The line it starts on, where it came from a file.
    pub line: Option<SourceLine>,
}

impl RuleOrigin {
    /// Whether both stand for one rule of one object and direction, wherever it stands in its list.
    pub fn is_same_rule(&self, other: &RuleOrigin) -> bool {
        self.fingerprint == other.fingerprint
            && (self.fingerprint != 0 || (self.index, &self.name) == (other.index, &other.name))
    }
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// The file as it was named to us.
    pub file: Str,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A test of the address at one end of a flow. All criteria must hold; one that is absent holds.
///
/// Several things can hold an address at once: an endpoint, network sets, nodes. A selector matches
/// if it matches any one of them; an address that nothing holds matches no `selector`, and every
/// `not_selector`. Where the address of an endpoint is unknown, `nets` never matches and `not_nets`
/// excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Something that holds the address matches this.
    pub selector: Option<Selector>,
    /// Nothing that holds the address matches this.
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

    /// Whatever this selector matches.
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

/// A test of protocol and ports. All criteria must hold; one that is absent holds.
///
/// `source` and `destination` are the ends of the flow, not of the rule: destination is where the
/// first packet goes, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrafficMatch {
    /// Only this family.
    pub family: Option<Family>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Not this protocol.
    pub not_protocol: Option<Protocol>,
    /// The port the flow goes to.
    pub destination: PortMatch,
    /// The port the flow comes from.
    pub source: PortMatch,
    /// Only this ICMP (or ICMPv6) message; holds for no other protocol.
    pub icmp: Option<IcmpMatch>,
    /// Not this ICMP (or ICMPv6) message; holds for every other protocol.
    pub not_icmp: Option<IcmpMatch>,
}

impl TrafficMatch {
    /// Everything.
    pub fn any() -> Self {
        TrafficMatch::default()
    }

    /// Everything of one protocol.
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
