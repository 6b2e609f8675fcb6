//! The three kinds, and in what they differ: fields, limits, words and place among the policies.
//!
//! Never: reads an object.

use palisade_model::{Direction, Order, Precedence, tier_name};

/// A kind of cluster-wide policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyVariant {
    /// ClusterNetworkPolicy, in the admin or the baseline tier.
    Cluster,
    /// AdminNetworkPolicy, in the admin tier.
    Admin,
    /// BaselineAdminNetworkPolicy, last in the baseline tier.
    BaselineAdmin,
}

use PolicyVariant::{Admin, BaselineAdmin, Cluster};

/// A tier that these kinds have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyApiTier {
    /// Before NetworkPolicy.
    Admin,
    /// After NetworkPolicy.
    Baseline,
}

/// The place of a policy: its tier, and its priority there, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyPlace {
    /// The tier.
    pub(super) tier: PolicyApiTier,
    /// The priority; lower comes first.
    pub(super) priority: Option<u16>,
}

/// The greatest priority.
pub(super) const MAX_PRIORITY: i64 = 1000;
/// The maximum length of the name of a rule, in characters.
pub(super) const MAX_RULE_NAME: usize = 100;
/// The maximum number of networks, and of domain names, in a peer.
pub(super) const MAX_NETWORKS: usize = 25;

impl PolicyVariant {
    /// The name of the kind.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Cluster => "ClusterNetworkPolicy",
            Admin => "AdminNetworkPolicy",
            BaselineAdmin => "BaselineAdminNetworkPolicy",
        }
    }

    /// The variant of a kind's name.
    pub(super) fn of_kind(kind: &str) -> Option<Self> {
        let all = [Cluster, Admin, BaselineAdmin];
        all.into_iter().find(|variant| variant.kind() == kind)
    }

    /// The fields of the spec.
    pub(super) const fn spec_fields(self) -> &'static [&'static str] {
        match self {
            Cluster => &["tier", "priority", "subject", "ingress", "egress"],
            Admin => &["priority", "subject", "ingress", "egress"],
            BaselineAdmin => &["subject", "ingress", "egress"],
        }
    }

    /// The fields of a rule.
    pub(super) const fn rule_fields(self, direction: Direction) -> &'static [&'static str] {
        match (self, direction) {
            (Cluster, Direction::Ingress) => &["name", "action", "from", "protocols"],
            (Cluster, Direction::Egress) => &["name", "action", "to", "protocols"],
            (_, Direction::Ingress) => &["name", "action", "from", "ports"],
            (_, Direction::Egress) => &["name", "action", "to", "ports"],
        }
    }

    /// The fields of a peer, of which exactly one has to be there.
    pub(super) const fn peer_fields(self, direction: Direction) -> &'static [&'static str] {
        match (direction, self) {
            (Direction::Ingress, _) => &["namespaces", "pods"],
            (Direction::Egress, BaselineAdmin) => &["namespaces", "pods", "nodes", "networks"],
            (Direction::Egress, _) => &["namespaces", "pods", "nodes", "networks", "domainNames"],
        }
    }

    /// Whether a field is a peer of egress rules only.
    pub(super) fn is_egress_peer(field: &str) -> bool {
        ["nodes", "networks", "domainNames"].contains(&field)
    }

    /// The maximum number of rules in a direction, of peers in a rule and of ports or protocols in a rule.
    pub(super) const fn max_items(self) -> usize {
        match self {
            Cluster => 25,
            Admin | BaselineAdmin => 100,
        }
    }

    /// The position of a policy inside its tier.
    pub(super) fn precedence(self, place: PolicyPlace) -> Precedence {
        let order = match place.priority {
            Some(priority) => Order::At(f64::from(priority)),
            // The only BaselineAdminNetworkPolicy comes after every ClusterNetworkPolicy.
            None => Order::Last,
        };
        let rank = match self {
            Cluster => 0,
            Admin | BaselineAdmin => 1,
        };
        Precedence { order, rank }
    }
}

impl PolicyApiTier {
    /// The name of the tier in the model.
    pub(super) fn name(self) -> &'static str {
        match self {
            PolicyApiTier::Admin => tier_name::KUBE_ADMIN,
            PolicyApiTier::Baseline => tier_name::KUBE_BASELINE,
        }
    }
}
