//! Incremental computation of decision tables, and of the deltas between them, from object updates.
//!
//! [`Engine::apply`] takes a batch of updates and returns the steps from the tables before the
//! batch to the tables that the current objects require. The tables are a function of the objects
//! alone, up to numbering, whatever the order, batching and repetition of updates. Between the
//! steps no packet gets a verdict that is neither the old nor the new one. The engine is
//! synchronous and deterministic, does no IO, and never judges a packet itself.

#![no_std]

extern crate alloc;

mod active_policies;
mod active_rules;
mod address_owner_labels;
mod applicable_rules;
mod budget;
mod compiler;
mod cost;
mod dns_observation;
mod encapsulation;
mod faults;
mod graph;
mod host_points;
mod identities;
mod judged_traffic;
mod key_numbers;
mod label_index;
mod matching;
mod peer_rule_index;
mod points;
mod policy_set_index;
mod program_pool;
mod selector_index;
mod selectors;
mod sets;
mod status;
mod store;
mod tracked_addresses;
mod tracked_networks;
mod traffic;

pub use budget::{ClosedPolicySet, ElementBudget, ExceededLimit, RuleCost};
pub use cost::{PolicyCost, RuleShare, policy_cost};
pub use faults::EngineFault;
pub use status::{
    AddressConflict, AppliedPolicy, AuditCounts, EngineCounts, IdentityView, MissingReferences,
    TierSummary,
};

use alloc::vec::Vec;
use graph::Graph;
use identities::Identities;
use palisade_model::{
    Direction, Encapsulations, Endpoint, EndpointId, Policy, PolicyId, Profile, State, Str, Tier,
    UnreadDnsAction, Update,
};
use palisade_tables::{
    ClassId, Delta, IdentityId, JudgementOptions, PolicySetId, Program, TableChange, Tables,
    TransitionHints, TransitionIds, transition,
};
use program_pool::ProgramPool;
use sets::PolicySets;

/// Unused numbers from the graph's pools, see [`TransitionIds`].
struct GraphIds<'a> {
    identities: &'a mut Identities,
    sets: &'a mut PolicySets,
    programs: &'a mut ProgramPool,
}

impl TransitionIds for GraphIds<'_> {
    fn allocate_identity(&mut self) -> IdentityId {
        self.identities.allocate_id()
    }

    fn allocate_set(&mut self) -> PolicySetId {
        self.sets.allocate_id()
    }

    fn allocate_class(&mut self) -> ClassId {
        self.programs.allocate_id()
    }

    fn find_class(&self, program: &Program) -> Option<ClassId> {
        self.programs.find(program)
    }
}

/// Configuration of the engine, apart from policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The name of the node of this host, if it is known: see [`State::host_node`].
    pub host_node: Option<Str>,
    /// Which traffic is judged that could be exempt.
    pub judgement: JudgementOptions,
    /// Whether the policies whose kind does by its standard judge packets from an endpoint to itself. Without effect
    /// where all policies do.
    pub judges_hairpin_by_kind: bool,
    /// The encapsulations that endpoints may send where policy allows them; all others are denied.
    pub allowed_encapsulation: Encapsulations,
    /// What happens to DNS that rules with names judge and nobody reads.
    pub unread_dns: UnreadDnsAction,
    /// Whether every endpoint is in audit.
    pub audit: bool,
    /// Limits on the elements that policy may take in the dataplane.
    pub budget: ElementBudget,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            host_node: None,
            judgement: JudgementOptions::default(),
            judges_hairpin_by_kind: true,
            allowed_encapsulation: Encapsulations::default(),
            unread_dns: UnreadDnsAction::default(),
            audit: false,
            budget: ElementBudget::default(),
        }
    }
}

impl EngineOptions {
    /// The defaults, on a host with this node.
    pub fn of_host(host_node: Option<Str>) -> Self {
        EngineOptions {
            host_node,
            ..EngineOptions::default()
        }
    }
}

/// All objects, and the decision tables computed from them.
#[derive(Debug)]
pub struct Engine {
    graph: Graph,
    /// The tables as the deltas so far have written them, without addresses: after each delta the
    /// address table is as desired.
    written: Tables,
    revision: u64,
}

impl Engine {
    /// An engine without objects, at revision 0.
    pub fn new(options: EngineOptions) -> Self {
        let mut graph = Graph::default();
        graph.set_host_node(options.host_node);
        graph.options.judges_hairpin_by_kind =
            options.judges_hairpin_by_kind && !options.judgement.judge_hairpin;
        graph.desired.judgement = options.judgement;
        graph.desired.judgement.judge_hairpin ^= EngineFault::HairpinModeInverted.is_injected();
        graph.options.audit = options.audit;
        graph.options.budget = options.budget;
        graph.options.unread_dns = options.unread_dns;
        graph.options.denied_encapsulation = options.allowed_encapsulation.complement();
        Engine {
            written: graph.desired.clone(),
            graph,
            revision: 0,
        }
    }

    /// Applies a batch of updates and increments the revision. The delta leads from the tables
    /// before the batch to [`Engine::tables`] after it.
    pub fn apply(&mut self, updates: impl IntoIterator<Item = Update>) -> Delta {
        for update in updates {
            self.graph.apply(update);
        }
        self.revision += 1;
        let mut flushed = self.graph.flush();
        let Graph {
            desired,
            identities,
            sets,
            classes,
            options,
            ..
        } = &mut self.graph;
        flushed.differences.retain_changed(&self.written, desired);
        let hints = TransitionHints {
            revision: self.revision,
            differences: &flushed.differences,
            sets_of_identity: &|identity| {
                classes
                    .sets_by_identity
                    .get(&identity)
                    .map_or(&[], Vec::as_slice)
            },
            revoke: flushed.address_moved,
            max_interim_elements: options.budget.host.max(ElementBudget::default().host),
            is_closed_interface: &|_| false,
            is_own_address: &|_| false,
        };
        let mut ids = GraphIds {
            identities,
            sets,
            programs: &mut classes.programs,
        };
        let delta = transition(&self.written, desired, &hints, &mut ids);
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            if !matches!(change, TableChange::Address(..)) {
                self.written.apply(change);
            }
        }
        delta
    }

    /// Sets the element budget. It takes effect with the next batch.
    pub fn set_budget(&mut self, budget: ElementBudget) {
        if self.graph.options.budget != budget {
            self.graph.options.budget = budget;
            self.graph.sets.mark_all_stale();
        }
    }

    /// The policy sets that deny everything because they would exceed the element budget.
    pub fn over_budget(&self) -> Vec<ClosedPolicySet> {
        self.graph.closed_policy_sets()
    }

    /// The direction and the policies of each policy set for which the tables lack what would be decided if
    /// nothing were in audit, because of the element budget.
    pub fn unaudited_policies(&self) -> Vec<(Direction, Vec<PolicyId>)> {
        self.graph.policy_sets_omitting_audit()
    }

    /// The tables that the objects require: what is in force once the last delta is written.
    pub fn tables(&self) -> &Tables {
        &self.graph.desired
    }

    /// The number of batches applied.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All objects, assembled anew on each call. For single objects use [`Engine::endpoint`] and
    /// [`Engine::policy`].
    pub fn state(&self) -> State {
        let store = &self.graph.objects.store;
        let (namespaces, service_accounts) = store.namespaces_and_accounts();
        let endpoints = store.endpoints().filter_map(|slot| store.endpoint(slot));
        State {
            endpoints: endpoints.map(|e| (e.id.clone(), e)).collect(),
            policies: self.graph.objects.named_policies().all(),
            namespaces,
            service_accounts,
            ..self.graph.objects.state.clone()
        }
    }

    /// An endpoint, exactly as its last update gave it, but for its UID, which is not kept.
    pub fn endpoint(&self, id: &EndpointId) -> Option<Endpoint> {
        let store = &self.graph.objects.store;
        store.endpoint(store.find_endpoint(id)?)
    }

    /// Whether an endpoint is in audit: by the options, by itself, or with its namespace.
    pub fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        self.graph.is_in_audit(endpoint)
    }

    /// A policy, exactly as its last update gave it.
    pub fn policy(&self, id: &PolicyId) -> Option<Policy> {
        let policies = self.graph.objects.named_policies();
        policies.get(policies.find(id)?)
    }

    /// A profile, exactly as its last update gave it.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.graph.objects.state.profiles.get(name)
    }

    /// A tier: of an object, or built in.
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.graph.objects.state.tier(name)
    }

    /// Whether a policy of this name exists.
    pub fn has_policy(&self, id: &PolicyId) -> bool {
        self.graph.objects.named_policies().find(id).is_some()
    }
}
