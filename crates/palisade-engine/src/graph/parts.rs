//! The parts of the graph: what belongs together, each with its own owner in the other modules.
//!
//! Nothing is computed here.

use super::host_nodes::HostNodes;
use crate::active_policies::ActivePolicies;
use crate::active_rules::ActiveRules;
use crate::budget::{BudgetUsage, ElementBudget};
use crate::label_index::LabelIndex;
use crate::program_pool::{CausePool, ProgramPool};
use crate::selectors::ActiveSelectors;
use crate::store::{AddressOwnerSlot, AddressOwnerStore, HashMap, NamedPolicies, Policies};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{Encapsulations, Prefix, State, Str, UnreadDnsAction};
use palisade_tables::{IdentityId, PolicySetId};

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Every object but policies, namespaces, service accounts, and the endpoints of other hosts.
    pub(crate) state: State,
    /// Every endpoint, network set and node, and the labels of namespaces and service accounts.
    pub(crate) store: AddressOwnerStore,
    pub(crate) policies: Policies,
}

impl Objects {
    /// The policies with the pool of their names.
    pub(crate) fn named_policies(&self) -> NamedPolicies<'_> {
        self.policies.named(self.store.names())
    }
}

/// What endpoints of this host make active, and what it matches.
#[derive(Debug, Default)]
pub(crate) struct ActiveObjects {
    pub(crate) policies: ActivePolicies,
    pub(crate) rules: ActiveRules,
    pub(crate) selectors: ActiveSelectors,
    pub(crate) label_index: LabelIndex,
}

/// Objects by what refers to them.
#[derive(Debug, Default)]
pub(super) struct ObjectIndexes {
    /// Endpoints by the names of their named ports.
    pub(super) slots_by_named_port: BTreeMap<Str, BTreeSet<AddressOwnerSlot>>,
    pub(super) host_nodes: HostNodes,
    /// The networks of the network sets that match an active selector.
    pub(super) network_set_nets: BTreeMap<AddressOwnerSlot, Vec<Prefix>>,
}

/// The classes of policy sets, and the elements that they take.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    pub(crate) programs: ProgramPool,
    pub(crate) causes: CausePool,
    /// The elements in use.
    pub(super) usage: BudgetUsage,
    /// The sets in which each identity has an entry, in order.
    pub(crate) sets_by_identity: HashMap<IdentityId, Vec<PolicySetId>>,
}

/// What the engine's options say about policy.
#[derive(Debug, Default)]
pub(crate) struct GraphOptions {
    /// Whether every endpoint is in audit.
    pub(crate) audit: bool,
    /// Whether the policies whose kind judges hairpin traffic do.
    pub(crate) judges_hairpin_by_kind: bool,
    /// Encapsulations that endpoints may not send even where rules allow them.
    pub(crate) denied_encapsulation: Encapsulations,
    /// What happens to DNS that rules with names judge and nobody reads.
    pub(crate) unread_dns: UnreadDnsAction,
    /// The limits on the elements of policy sets.
    pub(crate) budget: ElementBudget,
}
