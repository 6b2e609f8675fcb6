//! A state with ordered tiers and policies and resolved address claims.
//!
//! It contains only data derived from the state, and never caches verdicts.

use crate::FlowEnd;
use crate::criteria;
use crate::resolved_end::{ResolvedEnd, Viewpoint};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, Endpoint, EndpointId, FailsafePorts, NetworkSet, Node, Order, Peer, Policy,
    PolicyStage, State, Str, Tier, TierDefault, builtin_tiers,
};

/// A tier with its policies, in order.
#[derive(Clone, Debug)]
pub struct OrderedTier<'a> {
    /// The tier. For a tier that does not exist: order `Last`, default `Deny`.
    pub tier: Tier,
    /// Whether the tier does not exist and is only named by policies.
    pub missing: bool,
    /// Its policies, in order.
    pub policies: Vec<&'a Policy>,
}

/// The number of endpoints times policies up to which the result of each selector is cached.
const MAX_CACHED_SELECTIONS: usize = 1 << 20;

/// A state prepared for questions.
#[derive(Clone, Debug)]
pub struct PreparedState<'a> {
    pub(crate) state: &'a State,
    pub(crate) tiers: Vec<OrderedTier<'a>>,
    claims: Arc<BTreeMap<IpAddr, &'a Endpoint>>,
    pub(crate) failsafe: FailsafePorts,
    pub(crate) host_node: Option<&'a Str>,
    /// For each endpoint, whether each policy selects it, indexed as `tiers`. Empty for a state beyond
    /// [`MAX_CACHED_SELECTIONS`]; selectors are then evaluated on demand.
    selection_cache: BTreeMap<&'a EndpointId, Vec<Vec<bool>>>,
}

impl<'a> PreparedState<'a> {
    /// Orders the tiers and policies of a state and resolves its address claims.
    pub fn new(state: &'a State) -> Self {
        let tiers = ordered_tiers(state);
        let selected = |endpoint| {
            let selects = |policy: &&Policy| selects(state, policy, endpoint);
            let in_tier = |tier: &OrderedTier<'_>| tier.policies.iter().map(selects).collect();
            tiers.iter().map(in_tier).collect()
        };
        let pairs = state.endpoints.len().saturating_mul(state.policies.len());
        let endpoints = state
            .endpoints
            .values()
            .filter(|_| pairs <= MAX_CACHED_SELECTIONS);
        PreparedState {
            selection_cache: endpoints.map(|e| (&e.id, selected(e))).collect(),
            claims: Arc::new(resolve_address_claims(state)),
            failsafe: FailsafePorts::default(),
            host_node: state.host_node.as_ref(),
            state,
            tiers,
        }
    }

    /// The same without the policies that do not select an endpoint, of the same state. Questions about the policies of
    /// that endpoint have the same answers, but for traces, which do not list the others.
    #[must_use]
    pub fn of_endpoint(&self, endpoint: &'a Endpoint) -> Self {
        let of_tier = |tier: &OrderedTier<'a>| {
            let policies = tier.policies.iter().copied();
            let selecting: Vec<&'a Policy> = policies
                .filter(|policy| self.selects(policy, endpoint))
                .collect();
            OrderedTier {
                tier: tier.tier.clone(),
                missing: tier.missing,
                policies: selecting,
            }
        };
        let tiers: Vec<OrderedTier<'a>> = self
            .tiers
            .iter()
            .map(of_tier)
            .filter(|tier| !tier.policies.is_empty())
            .collect();
        let all = |tier: &OrderedTier<'_>| vec![true; tier.policies.len()];
        PreparedState {
            state: self.state,
            claims: Arc::clone(&self.claims),
            failsafe: self.failsafe.clone(),
            host_node: self.host_node,
            selection_cache: [(&endpoint.id, tiers.iter().map(all).collect())].into(),
            tiers,
        }
    }

    /// With these flows of the host, that no policy can deny; without it those of [`FailsafePorts::default`].
    #[must_use]
    pub fn with_failsafe(self, failsafe: FailsafePorts) -> Self {
        PreparedState { failsafe, ..self }
    }

    /// As seen from a host with this node; without it that of [`State::host_node`].
    #[must_use]
    pub fn with_host_node<'b>(self, name: &'b Str) -> PreparedState<'b>
    where
        'a: 'b,
    {
        PreparedState {
            host_node: Some(name),
            ..self
        }
    }

    /// The host endpoint that governs an interface of this host: the one that names it, else one for every
    /// interface; of several the first by name, that of the node only if there is no other. Loopback has none.
    /// Source: Calico, "Host endpoint", for the order.
    pub fn host_endpoint(&self, interface: &str) -> Option<&'a Endpoint> {
        if interface == Endpoint::LOOPBACK {
            return None;
        }
        let named = |name: &str| {
            let all = self.state.endpoints.values();
            let named = all.filter(|endpoint| {
                endpoint.is_host() && endpoint.interface.as_deref() == Some(name)
            });
            named.min_by_key(|endpoint| endpoint.is_node_endpoint())
        };
        named(interface).or_else(|| named(Endpoint::ANY_INTERFACE))
    }

    /// The underlying state.
    pub fn state(&self) -> &'a State {
        self.state
    }

    /// The tiers that have policies, in order of evaluation.
    pub fn tiers(&self) -> &[OrderedTier<'a>] {
        &self.tiers
    }

    /// The endpoint that holds an address.
    pub fn address_holder(&self, address: IpAddr) -> Option<&'a Endpoint> {
        self.claims.get(&address).copied()
    }

    /// Every address with an endpoint, and that endpoint.
    pub fn claims(&self) -> &BTreeMap<IpAddr, &'a Endpoint> {
        &self.claims
    }

    /// The endpoint at an end, whose policies apply there.
    pub fn endpoint_at(&self, end: &FlowEnd) -> Option<&'a Endpoint> {
        match end {
            FlowEnd::Address(address) => self.address_holder(*address),
            FlowEnd::Endpoint(id) => self.state.endpoints.get::<EndpointId>(id),
        }
    }

    /// Whether a policy selects an endpoint.
    pub fn selects(&self, policy: &Policy, endpoint: &Endpoint) -> bool {
        policy
            .subject
            .matches(&self.state.endpoint_labels(endpoint))
    }

    /// Whether a policy applies to an endpoint in a direction: it selects the endpoint and has rules
    /// for the direction.
    pub fn applies(&self, policy: &Policy, endpoint: &Endpoint, direction: Direction) -> bool {
        policy.rules(direction).is_some() && self.selects(policy, endpoint)
    }

    /// For each policy of a tier, whether it applies to an endpoint of this state at a stage in a direction.
    pub(crate) fn policy_applicability(
        &self,
        tier: usize,
        endpoint: &Endpoint,
        stage: PolicyStage,
        direction: Direction,
    ) -> Vec<bool> {
        let selected = self
            .selection_cache
            .get(&endpoint.id)
            .and_then(|s| s.get(tier));
        let Some(tier) = self.tiers.get(tier) else {
            return Vec::new();
        };
        let policies = tier.policies.iter().enumerate();
        policies
            .map(|(at, policy)| {
                policy.rules(direction).is_some()
                    && policy.has_stage(stage)
                    && match selected {
                        Some(selected) => selected.get(at) == Some(&true),
                        None => self.selects(policy, endpoint),
                    }
            })
            .collect()
    }

    /// Whether a peer matches an end, seen from this host.
    pub fn peer_matches(&self, peer: &Peer, end: &FlowEnd) -> bool {
        let viewpoint = Viewpoint::of_host(self.state, self.host_node);
        criteria::peer_matches(viewpoint, peer, &self.resolve_end(end))
    }

    /// For each of these peers, whether it matches an end, seen from this host.
    pub fn match_peers<'p>(
        &self,
        peers: impl IntoIterator<Item = &'p Peer>,
        end: &FlowEnd,
    ) -> Vec<bool> {
        let resolved_end = self.resolve_end(end);
        let viewpoint = Viewpoint::of_host(self.state, self.host_node);
        let holds = |peer| criteria::peer_matches(viewpoint, peer, &resolved_end);
        peers.into_iter().map(holds).collect()
    }

    pub(crate) fn resolve_end(&self, end: &FlowEnd) -> ResolvedEnd<'a> {
        let endpoint = self.endpoint_at(end);
        match *end {
            FlowEnd::Address(address) => ResolvedEnd {
                address: Some(address),
                endpoint,
                sets: sets_containing(self.state, address),
                nodes: nodes_with_address(self.state, address),
            },
            FlowEnd::Endpoint(_) => ResolvedEnd {
                address: None,
                endpoint,
                sets: Vec::new(),
                nodes: Vec::new(),
            },
        }
    }
}

fn selects(state: &State, policy: &Policy, endpoint: &Endpoint) -> bool {
    policy.subject.matches(&state.endpoint_labels(endpoint))
}

fn sets_containing(state: &State, address: IpAddr) -> Vec<&NetworkSet> {
    let covers = |set: &&NetworkSet| set.nets.iter().any(|net| net.contains(address));
    state.network_sets.values().filter(covers).collect()
}

fn nodes_with_address(state: &State, address: IpAddr) -> Vec<&Node> {
    let has = |node: &&Node| node.addresses.contains(&address);
    state.nodes.values().filter(has).collect()
}

/// Existing tiers by order, then name; after them missing tiers by name.
fn ordered_tiers(state: &State) -> Vec<OrderedTier<'_>> {
    let mut tiers = existing_tiers(state);
    tiers.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    let missing = missing_tiers(state, &tiers);
    let exist = tiers.into_iter().map(|tier| (tier, false));
    let absent = missing.into_iter().map(|tier| (tier, true));
    exist
        .chain(absent)
        .map(|(tier, missing)| OrderedTier {
            policies: ordered_policies(state, &tier.name),
            tier,
            missing,
        })
        .filter(|ordered| !ordered.policies.is_empty())
        .collect()
}

/// The tiers of the state, and the built-in tiers that they do not replace.
fn existing_tiers(state: &State) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = state.tiers.values().cloned().collect();
    for builtin in builtin_tiers() {
        if !state.tiers.contains_key(&builtin.name) {
            tiers.push(builtin);
        }
    }
    tiers
}

/// The tiers that policies name but that do not exist: they come last and deny by default.
fn missing_tiers(state: &State, existing: &[Tier]) -> Vec<Tier> {
    let mut names: Vec<&Str> = state.policies.values().map(|p| &p.tier).collect();
    names.sort();
    names.dedup();
    names.retain(|name| !existing.iter().any(|tier| tier.name == **name));
    names
        .into_iter()
        .map(|name| Tier {
            name: name.clone(),
            order: Order::Last,
            default: TierDefault::Deny,
        })
        .collect()
}

/// Policies by precedence, then name.
fn ordered_policies<'a>(state: &'a State, tier: &Str) -> Vec<&'a Policy> {
    let of_tier = |policy: &&Policy| policy.tier == *tier;
    let mut policies: Vec<&Policy> = state.policies.values().filter(of_tier).collect();
    policies.sort_by(|a, b| {
        let by_precedence = a.precedence.cmp(&b.precedence);
        by_precedence.then_with(|| a.id.cmp_by_name(&b.id))
    });
    policies
}

/// Assigns each address to one of the endpoints that claim it.
fn resolve_address_claims(state: &State) -> BTreeMap<IpAddr, &Endpoint> {
    let mut claims: BTreeMap<IpAddr, &Endpoint> = BTreeMap::new();
    for endpoint in state.endpoints.values().filter(|e| !e.is_template()) {
        for address in &endpoint.addresses {
            let holder = claims.entry(*address).or_insert(endpoint);
            if claim_priority(endpoint) > claim_priority(holder) {
                *holder = endpoint;
            }
        }
    }
    claims
}

/// The priority of an endpoint's claim: local endpoints first, then the newest, then the greatest id.
fn claim_priority(endpoint: &Endpoint) -> (bool, u64, &EndpointId) {
    (endpoint.interface.is_some(), endpoint.created, &endpoint.id)
}
