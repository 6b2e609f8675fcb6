//! The graph: from object updates to the desired tables.
//!
//! An update only records what it changes. A flush then recomputes each stage once: active
//! policies, active rules, selectors, label signatures, identities, points, policy sets, classes.
//! Each stage recomputes what the stages before it changed, and nothing else.

use crate::active_policies::{is_builtin, is_local};
use crate::applicable_rules::PointInputs;
use crate::faults::EngineFault;
use crate::identities::{Identities, IdentityInputs};
use crate::points::JudgementPoints;
use crate::sets::{PolicyOrProfile, PolicySetInputs, PolicySets};
use crate::store::{
    AddressOwnerId, AddressOwnerKind, AddressOwnerObject, AddressOwnerSlot, AddressOwnerView,
    PolicyEdit, PolicyNumber, ReplacedAddressOwner,
};
use crate::tracked_addresses::AddressEvent;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, Labels, NetworkSet, Node, Object, ObjectId, ObjectKey, Policy, PolicyId,
    Str, Update,
};
use palisade_tables::{Point, PolicySetId, TableDifferences, Tables};

mod claims;
mod desired_tables;
mod host_nodes;
mod parts;
mod policy_set_budget;

use claims::{claimed_addresses, effective_addresses, is_local_view};
use host_nodes::is_relabelled;
use parts::{ActiveObjects, Classes, GraphOptions, ObjectIndexes, Objects};

/// What updates changed since the last flush.
#[derive(Debug, Default)]
struct PendingChanges {
    owners: Vec<AddressOwnerSlot>,
    locals: BTreeSet<EndpointId>,
    policies: BTreeMap<PolicyNumber, PolicyEdit>,
    profiles: BTreeSet<Str>,
    /// A tier changed: the order of policies may be another.
    tiers: bool,
    /// An address has a new owner, or its owner another interface.
    address_moved: bool,
    network_sets: BTreeSet<AddressOwnerSlot>,
}

/// All objects, and everything computed from them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) objects: Objects,
    indexes: ObjectIndexes,
    pending: PendingChanges,
    pub(crate) options: GraphOptions,
    pub(crate) active: ActiveObjects,
    pub(crate) identities: Identities,
    points: JudgementPoints,
    pub(crate) sets: PolicySets,
    pub(crate) classes: Classes,
    /// The tables that the objects require.
    pub(crate) desired: Tables,
}

/// What a flush changed in the desired tables.
pub(crate) struct FlushResult {
    pub(crate) differences: TableDifferences,
    pub(crate) address_moved: bool,
}

impl Graph {
    /// Applies one update and records what it changes.
    pub(crate) fn apply(&mut self, update: Update) {
        match update {
            Update::Upsert(Object::Endpoint(endpoint)) => self.upsert_endpoint(endpoint),
            Update::Delete(ObjectKey::Endpoint(id)) => self.remove_endpoint(&id),
            Update::Upsert(Object::Node(node)) => {
                let name = node.name.clone();
                self.update_node(&name, Some(node));
            }
            Update::Delete(ObjectKey::Node(name)) => self.update_node(&name, None),
            Update::Upsert(Object::NetworkSet(set)) => {
                let id = set.id.clone();
                self.update_network_set(&id, Some(set));
            }
            Update::Delete(ObjectKey::NetworkSet(id)) => self.update_network_set(&id, None),
            Update::Upsert(Object::Policy(policy)) => self.upsert_policy(policy),
            Update::Delete(ObjectKey::Policy(id)) => self.remove_policy(&id),
            Update::Upsert(Object::Namespace(n)) => {
                self.set_namespace_audit(&n.name, n.audit);
                self.set_inherited_labels(&n.name, None, Some(&n.labels));
            }
            Update::Delete(ObjectKey::Namespace(name)) => {
                self.set_namespace_audit(&name, false);
                self.set_inherited_labels(&name, None, None);
            }
            Update::Upsert(Object::ServiceAccount(a)) => {
                self.set_inherited_labels(&a.namespace, Some(&a.name), Some(&a.labels));
            }
            Update::Delete(ObjectKey::ServiceAccount { namespace, name }) => {
                self.set_inherited_labels(&namespace, Some(&name), None);
            }
            other => self.apply_referenced(other),
        }
    }

    /// The points that a host endpoint governs.
    pub(crate) fn host_points_of(&self, endpoint: &EndpointId) -> Vec<(Point, PolicySetId)> {
        self.points.host_points_of(endpoint)
    }

    fn upsert_policy(&mut self, policy: Policy) {
        if let Some((number, edit)) = self
            .objects
            .policies
            .upsert(self.objects.store.names_mut(), policy)
        {
            let known = self.pending.policies.entry(number).or_default();
            *known = known.union(edit);
        }
    }

    fn remove_policy(&mut self, id: &PolicyId) {
        if EngineFault::DeletedPolicyStays.is_injected() {
            return;
        }
        let number = self.objects.named_policies().find(id);
        if let Some((number, edit)) =
            number.and_then(|n| Some((n, self.objects.policies.remove(n)?)))
        {
            self.pending.policies.insert(number, edit);
        }
    }

    /// Sets or removes the labels of a namespace, or of a service account in it.
    fn set_inherited_labels(
        &mut self,
        namespace: &Str,
        account: Option<&Str>,
        labels: Option<&Labels>,
    ) {
        let changed = self
            .objects
            .store
            .set_inherited_labels(namespace, account, labels);
        if changed && !(account.is_none() && EngineFault::NamespaceLabelsStale.is_injected()) {
            self.mark_namespace_members(namespace, account);
        }
    }

    /// Applies an update of an object that others only refer to: a tier or a profile.
    fn apply_referenced(&mut self, update: Update) {
        let key = match &update {
            Update::Upsert(object) => object.key(),
            Update::Delete(key) => key.clone(),
        };
        match &key {
            ObjectKey::Profile(name) => drop(self.pending.profiles.insert(name.clone())),
            ObjectKey::Tier(_) => self.pending.tiers = true,
            _ => {}
        }
        self.objects.state.apply(update);
    }

    /// Marks the owners whose inherited labels changed: of a namespace, or of one service account
    /// in it.
    fn mark_namespace_members(&mut self, namespace: &Str, account: Option<&Str>) {
        let store = &self.objects.store;
        let Some(number) = store.names().find::<str>(namespace) else {
            return;
        };
        for slot in store.in_namespace(number) {
            let Some(view) = store.view(slot) else {
                continue;
            };
            let own = view.shared().and_then(|common| common.account.as_ref());
            if account.is_some() && view.kind() == AddressOwnerKind::Endpoint && own != account {
                continue;
            }
            if is_local_view(&view) {
                self.pending.locals.extend(store.endpoint_id(slot));
            }
            self.pending.owners.push(slot);
        }
    }

    /// Sets whether a namespace is in audit, and marks its local endpoints if that changed.
    fn set_namespace_audit(&mut self, namespace: &Str, audit: bool) {
        let store = &mut self.objects.store;
        if store.set_namespace_audit(namespace, audit) {
            let locals = self.objects.state.endpoints.keys();
            let members = locals.filter(|id| id.namespace.as_ref() == Some(namespace));
            self.pending.locals.extend(members.cloned());
        }
    }

    /// Whether a local endpoint is in audit.
    pub(crate) fn is_in_audit(&self, endpoint: &Endpoint) -> bool {
        self.options.audit || self.objects.store.is_in_audit(endpoint)
    }

    fn upsert_endpoint(&mut self, endpoint: Endpoint) {
        let put = self
            .objects
            .store
            .upsert(AddressOwnerObject::Endpoint(&endpoint));
        let Some((slot, before)) = put else {
            return;
        };
        let mut previous = None;
        if let Some(before) = before {
            self.mark_endpoint_change(slot, Some(&before), true);
            if is_local_view(&self.objects.store.view_replaced(&before)) {
                previous = self.objects.state.endpoints.remove(&endpoint.id);
            }
            self.objects.store.release_replaced(before);
        } else {
            self.mark_new_endpoint(slot, &endpoint);
        }
        let now = Some(&endpoint).filter(|endpoint| is_local(endpoint));
        self.indexes.host_nodes.update(previous.as_ref(), now);
        if is_local(&endpoint) {
            self.objects
                .state
                .endpoints
                .insert(endpoint.id.clone(), endpoint);
        }
    }

    /// Sets the node of this host, before the first update.
    pub(crate) fn set_host_node(&mut self, name: Option<Str>) {
        self.objects.state.host_node = name.clone();
        self.objects.store.host_node = name.filter(|_| !EngineFault::OwnNodeUnknown.is_injected());
    }

    /// Records what a new endpoint affects.
    fn mark_new_endpoint(&mut self, slot: AddressOwnerSlot, endpoint: &Endpoint) {
        self.pending.owners.push(slot);
        if is_local(endpoint) {
            self.pending.locals.insert(endpoint.id.clone());
        }
        if endpoint.is_template() {
            return;
        }
        for address in effective_addresses(endpoint.addresses.iter().copied()) {
            self.identities
                .queue(address, AddressEvent::Claim(slot, true));
        }
        for port in &endpoint.ports {
            let slots = self.indexes.slots_by_named_port.entry(port.name.clone());
            slots.or_default().insert(slot);
        }
    }

    fn remove_endpoint(&mut self, id: &EndpointId) {
        let Some(slot) = self.objects.store.find_endpoint(id) else {
            return;
        };
        self.mark_endpoint_change(slot, None, false);
        self.objects.store.remove(slot);
        let previous = self.objects.state.endpoints.remove(id);
        self.indexes.host_nodes.update(previous.as_ref(), None);
    }

    /// Records what a change of an endpoint affects. `before` is the endpoint that was replaced. If
    /// `present` is false, the endpoint in the slot is about to be removed.
    fn mark_endpoint_change(
        &mut self,
        slot: AddressOwnerSlot,
        before: Option<&ReplacedAddressOwner>,
        present: bool,
    ) {
        let Graph {
            objects: Objects { store, .. },
            identities,
            indexes,
            pending,
            ..
        } = self;
        let ports = &mut indexes.slots_by_named_port;
        let now = store.view(slot);
        let (old, new) = if present {
            (before.map(|before| store.view_replaced(before)), now)
        } else {
            (now, None)
        };
        let local = |view: &Option<AddressOwnerView<'_>>| view.as_ref().is_some_and(is_local_view);
        if local(&old) || local(&new) {
            pending.locals.extend(store.endpoint_id(slot));
        }
        for address in claimed_addresses(&old) {
            if !claimed_addresses(&new).any(|other| other == address) {
                identities.queue(address, AddressEvent::Claim(slot, false));
            }
        }
        let claim_changed = match (&old, &new) {
            (Some(old), Some(new)) => !old.has_same_claim(new),
            _ => true,
        };
        for address in claimed_addresses(&new) {
            if !claimed_addresses(&old).any(|other| other == address) {
                identities.queue(address, AddressEvent::Claim(slot, true));
            } else if claim_changed {
                identities.queue(address, AddressEvent::OwnerChange);
            }
        }
        for (view, is_present) in [(&old, false), (&new, true)] {
            let not_template = view.as_ref().filter(|view| !view.is_template());
            let common = not_template.and_then(|view| view.shared());
            for port in common.into_iter().flat_map(|common| &common.ports) {
                let slots = ports.entry(port.name.clone()).or_default();
                if is_present {
                    slots.insert(slot)
                } else {
                    slots.remove(&slot)
                };
                if slots.is_empty() {
                    ports.remove(&port.name);
                }
            }
        }
        let relabelled = match (&old, &new) {
            (Some(old), Some(new)) => {
                let holds = new.addresses().next().is_some();
                pending.address_moved |= !old.has_same_interface(new) && holds;
                !old.has_same_labels(new)
            }
            _ => true,
        };
        if relabelled {
            pending.owners.push(slot);
        }
    }

    fn update_node(&mut self, name: &Str, new: Option<Node>) {
        let id = AddressOwnerId::Node(name.clone());
        let old = self.objects.state.nodes.remove(name);
        if is_relabelled(old.as_ref(), new.as_ref()) {
            let hosts = self
                .indexes
                .host_nodes
                .host_endpoints(&self.objects.state, name);
            self.pending.locals.extend(hosts.cloned());
        }
        let Some(slot) = self.set_address_owner(&id, new.as_ref().map(AddressOwnerObject::Node))
        else {
            return;
        };
        for (node, is_present) in [(&old, false), (&new, true)] {
            for address in node.iter().flat_map(|node| &node.addresses) {
                self.identities
                    .queue(*address, AddressEvent::Node(slot, is_present));
            }
        }
        self.objects
            .state
            .nodes
            .extend(new.map(|n| (name.clone(), n)));
    }

    fn update_network_set(&mut self, id: &ObjectId, new: Option<NetworkSet>) {
        self.objects.state.network_sets.remove(id);
        let object = new.as_ref().map(AddressOwnerObject::NetworkSet);
        let Some(slot) = self.set_address_owner(&AddressOwnerId::NetworkSet(id.clone()), object)
        else {
            return;
        };
        self.pending.network_sets.insert(slot);
        self.objects
            .state
            .network_sets
            .extend(new.map(|s| (id.clone(), s)));
    }

    /// Inserts, replaces or, without `object`, removes a node or a network set.
    fn set_address_owner(
        &mut self,
        id: &AddressOwnerId,
        object: Option<AddressOwnerObject<'_>>,
    ) -> Option<AddressOwnerSlot> {
        let store = &mut self.objects.store;
        let slot = match object.and_then(|object| store.upsert(object)) {
            Some((slot, before)) => {
                let before = before.into_iter();
                before.for_each(|before| store.release_replaced(before));
                slot
            }
            None => store.find(id)?,
        };
        if object.is_none() {
            store.remove(slot);
        }
        self.pending.owners.push(slot);
        Some(slot)
    }

    /// Recomputes all stages, and returns what changed in the desired tables.
    pub(crate) fn flush(&mut self) -> FlushResult {
        let mut pending = core::mem::take(&mut self.pending);
        pending.owners.sort_unstable();
        pending.owners.dedup();
        let owners_changed = !pending.owners.is_empty() || self.identities.has_queued_addresses();
        let mut locals = self.recompute_active_rules(&pending);
        self.recompute_selectors(&pending);
        if owners_changed {
            locals.extend(self.points.local_address_tested.iter().cloned());
        }
        let identity_inputs = IdentityInputs {
            state: &self.objects.state,
            store: &self.objects.store,
            label_index: &self.active.label_index,
            active_rules: &self.active.rules,
        };
        let (identities, address_moved) = self.identities.recompute(identity_inputs);
        let points = self.points.recompute(
            PointInputs {
                identity_inputs,
                policies: self.objects.named_policies(),
                active_policies: &self.active.policies,
                active_rules: &self.active.rules,
                identities: &self.identities,
                audit: self.options.audit,
                judges_hairpin_by_kind: self.options.judges_hairpin_by_kind,
            },
            &locals,
            &mut self.sets,
        );
        let inputs = PolicySetInputs {
            state: &self.objects.state,
            policies: self.objects.named_policies(),
            active_rules: &self.active.rules,
        };
        let sets = self.sets.recompute(inputs, &mut self.classes.causes);
        let mut differences = self.write(&identities, &points, &sets);
        self.sweep(&mut differences);
        let store = &mut self.objects.store;
        self.objects.policies.release_deleted(store.names_mut());
        store.free_removed();
        FlushResult {
            differences,
            address_moved: address_moved || pending.address_moved,
        }
    }

    /// Recomputes active policies and rules. Returns the local endpoints whose points to recompute.
    fn recompute_active_rules(&mut self, pending: &PendingChanges) -> BTreeSet<EndpointId> {
        let edits = &pending.policies;
        let changes = self.active.policies.recompute(
            &self.objects.state,
            &self.objects.store,
            self.objects.named_policies(),
            edits,
            &pending.locals,
        );
        let mut locals = changes.locals;
        for number in changes.policies {
            let active = self.active.policies.is_active(number);
            let known = self.active.rules.policy(number).is_some();
            let edit = edits.get(&number).copied().unwrap_or_default();
            if active && (!known || edit.rules || edit.order) {
                let policies = self.objects.named_policies();
                let others = (self.active.rules).activate_policy(
                    policies,
                    number,
                    &mut self.active.selectors,
                );
                // Endpoints that a newly active policy selects are among those that changed.
                if known && (others || edit.order) {
                    locals.extend(self.active.policies.endpoints_selected_by(number).cloned());
                }
            } else if known && !active {
                self.active
                    .rules
                    .deactivate_policy(number, &mut self.active.selectors);
            }
            if edit.order {
                self.sets.mark_moved(number);
            } else {
                self.sets.mark_edited(&PolicyOrProfile::Policy(number));
            }
        }
        for name in changes.profiles.union(&pending.profiles) {
            let source = PolicyOrProfile::Profile(name.clone());
            let profile = self.objects.state.profiles.get(name);
            let judges = self.active.policies.is_profile_active(name) && !is_builtin(name);
            match profile.filter(|_| judges) {
                Some(profile) => {
                    let known = self.active.rules.profile(name).is_some();
                    if known && !pending.profiles.contains(name) {
                        continue;
                    }
                    self.active
                        .rules
                        .activate_profile(profile, &mut self.active.selectors);
                    locals.extend(self.active.policies.endpoints_with_profile(name).cloned());
                }
                None => {
                    // Endpoints may still name it: its rules no longer refer to their local end.
                    if self.active.rules.profile(name).is_some() {
                        locals.extend(self.active.policies.endpoints_with_profile(name).cloned());
                    }
                    self.active
                        .rules
                        .deactivate_profile(name, &mut self.active.selectors);
                }
            }
            self.sets.mark_edited(&source);
        }
        if pending.tiers {
            locals.extend(self.active.policies.local_endpoints().cloned());
            self.sets.mark_all_stale();
        }
        locals
    }

    /// Recomputes selectors and signatures, and marks the addresses that this affects.
    fn recompute_selectors(&mut self, pending: &PendingChanges) {
        let changes = self
            .active
            .selectors
            .take_changes(self.objects.store.names_mut());
        let moved = self.active.label_index.recompute(
            &mut self.objects.store,
            &self.active.selectors,
            &pending.owners,
            &changes.keys,
            &changes.added,
            &changes.removed,
        );
        let mut sets = pending.network_sets.clone();
        for slot in moved {
            let store = &self.objects.store;
            let Some(view) = store.view(slot) else {
                continue;
            };
            match view.kind() {
                AddressOwnerKind::Endpoint => {
                    for address in effective_addresses(view.addresses()) {
                        self.identities.queue(address, AddressEvent::OwnerChange);
                    }
                }
                AddressOwnerKind::Node => {
                    let node = self.objects.state.nodes.get(view.name());
                    for address in node.into_iter().flat_map(|n| &n.addresses) {
                        self.identities.queue(*address, AddressEvent::OwnerChange);
                    }
                }
                AddressOwnerKind::NetworkSet => drop(sets.insert(slot)),
            }
        }
        for slot in sets {
            if let Some(AddressOwnerId::NetworkSet(id)) = self.objects.store.id(slot) {
                self.update_network_set_nets(&id, slot);
            }
        }
        for net in self.active.rules.take_net_changes() {
            let asked = self.active.rules.references_net(net);
            self.identities.set_referenced(net, asked);
        }
        for (name, _) in self.active.rules.take_port_changes() {
            for slot in self
                .indexes
                .slots_by_named_port
                .get(&name)
                .into_iter()
                .flatten()
            {
                let view = self.objects.store.view(*slot);
                for address in view
                    .into_iter()
                    .flat_map(|v| effective_addresses(v.addresses()))
                {
                    self.identities.queue(address, AddressEvent::OwnerChange);
                }
            }
        }
    }

    /// Updates the networks of a network set whose networks or matched selectors changed.
    fn update_network_set_nets(&mut self, id: &ObjectId, slot: AddressOwnerSlot) {
        for net in self
            .indexes
            .network_set_nets
            .remove(&slot)
            .unwrap_or_default()
        {
            self.identities.set_network_set(net, slot, false);
        }
        let set = self.objects.state.network_sets.get(id);
        if let Some(set) = set.filter(|_| {
            !self
                .active
                .label_index
                .matched_selectors(&self.objects.store, slot)
                .is_empty()
        }) {
            for net in &set.nets {
                self.identities.set_network_set(*net, slot, true);
            }
            self.indexes.network_set_nets.insert(slot, set.nets.clone());
        }
    }
}
