//! The place of a policy among all others: what each target can say of it.
//!
//! NetworkPolicies and what policies of Cilium allow stand together at order 1000 of the tier `default`, and only
//! allow, so their order does not matter. What Cilium denies stands before everything of that tier.
//!
//! A policy of Calico that is to stand with them has the order [`AFTER_ALLOWS`]: the next number after 1000 that a
//! 64-bit float has. It stands after policies of Calico of order 1000, which come before NetworkPolicies, and before
//! every greater order; nothing fits between. Order 1000 itself would not be exact: of two policies of Calico at that
//! order the name decides. The other way round a policy of Calico at order 1000 that only allows gets the place of
//! NetworkPolicies, if no other at that order does more than allow.

use palisade_model::{Action, ObjectId, Order, Policy, State, tier_name};
use std::collections::BTreeMap;

/// The order of Kubernetes' policies and of what Cilium's allow.
pub(crate) const ALLOWS: f64 = 1000.0;
/// The order directly after [`ALLOWS`].
pub(crate) const AFTER_ALLOWS: f64 = ALLOWS.next_up();
/// The order before every other.
pub(crate) const FIRST: f64 = f64::MIN;
/// The greatest priority of a ClusterNetworkPolicy.
pub(crate) const MAX_PRIORITY: f64 = 1000.0;

/// The place of a policy, up to what never changes a verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Before everything of the tier `default`.
    First,
    /// With Kubernetes' policies, in the tier `default`.
    Allows,
    /// At an order of a tier.
    At {
        /// The tier.
        tier: palisade_model::Str,
        /// The order.
        order: Order,
    },
}

impl Standing {
    /// The place of a policy.
    pub(crate) fn of(policy: &Policy) -> Self {
        if policy.tier == tier_name::DEFAULT && policy.precedence.order == Order::At(FIRST) {
            return Standing::First;
        }
        if order_of_allows(policy).is_some() && only_does(policy, Action::Allow) {
            return Standing::Allows;
        }
        Standing::At {
            tier: policy.tier.clone(),
            order: effective_order(policy),
        }
    }
}

/// The order of a policy, if it stands with Kubernetes' policies or directly before or after them: what only allows
/// there stands with them, but for policies of Calico at the very same order, which come by name (see
/// [`SharedPlaces`]).
pub(crate) fn order_of_allows(policy: &Policy) -> Option<Order> {
    let order = policy.precedence.order;
    let is_near = [ALLOWS, AFTER_ALLOWS].map(Order::At).contains(&order);
    (policy.tier == tier_name::DEFAULT && is_near).then_some(order)
}

/// The order of a policy. The only BaselineAdminNetworkPolicy is the last of its tier, and so is what has the greatest
/// priority there.
fn effective_order(policy: &Policy) -> Order {
    match (&*policy.tier, policy.precedence.order) {
        (tier_name::KUBE_BASELINE, Order::Last) => Order::At(MAX_PRIORITY),
        (_, order) => order,
    }
}

/// Whether all rules of a policy have this action.
pub(crate) fn only_does(policy: &Policy, action: Action) -> bool {
    let lists = [&policy.ingress, &policy.egress];
    let mut rules = lists.into_iter().flatten().flat_map(|list| &list.rules);
    rules.all(|rule| rule.action == action)
}

/// Whether the order of two policies of one place cannot matter: both only allow, or both only deny.
pub(crate) fn commute(a: &Policy, b: &Policy) -> bool {
    [Action::Allow, Action::Deny]
        .into_iter()
        .any(|action| only_does(a, action) && only_does(b, action))
}

/// The policies that stand at one place of a tier, where it is decided by kind and name who comes first; without those
/// whose order among each other never matters.
pub(crate) struct SharedPlaces<'a> {
    by_place: BTreeMap<(&'a str, Order), Vec<&'a Policy>>,
}

impl<'a> SharedPlaces<'a> {
    /// The places of the policies of a state.
    pub(crate) fn new(state: &'a State) -> Self {
        let mut by_place: BTreeMap<(&str, Order), Vec<&Policy>> = BTreeMap::new();
        for policy in state.policies.values() {
            let is_settled = match Standing::of(policy) {
                Standing::Allows => true,
                Standing::First => only_does(policy, Action::Deny),
                Standing::At { .. } => false,
            };
            if !is_settled {
                let position = (&*policy.tier, policy.precedence.order);
                by_place.entry(position).or_default().push(policy);
            }
        }
        SharedPlaces { by_place }
    }

    /// Another object at the place of one of these policies, or at the place that it gets in a dialect, if the order
    /// of the two can matter.
    pub(crate) fn find_rival(&self, parts: &[&Policy]) -> Option<ObjectId> {
        parts.iter().find_map(|part| {
            let (tier, order) = (&*part.tier, part.precedence.order);
            let places = match Standing::of(part) {
                // Policies of Calico directly before, where it is one of them, and directly after.
                Standing::Allows if part.precedence.rank == 0 => order..=Order::At(AFTER_ALLOWS),
                Standing::Allows => Order::At(AFTER_ALLOWS)..=Order::At(AFTER_ALLOWS),
                // The last is the one with the greatest priority.
                Standing::At { order: least, .. } => least..=order,
                Standing::First => order..=order,
            };
            let places = (tier, *places.start())..=(tier, *places.end());
            let mut others = self
                .by_place
                .range(places)
                .flat_map(|(_, policies)| policies);
            let rival =
                others.find(|other| other.id.object != part.id.object && !commute(part, other));
            rival.map(|other| other.id.object.clone())
        })
    }
}

/// A place in a tier, in words.
pub(crate) fn order_text(order: Order) -> palisade_model::Str {
    match order {
        Order::At(number) if number == FIRST => "before all others".into(),
        Order::At(number) => format!("at order {number}").into(),
        Order::Last => "after every order".into(),
    }
}
