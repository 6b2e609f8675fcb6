//! The graph: what a batch of updates touches, room by room, until the tables are what the objects
//! ask for.
//!
//! Updates only note what they touch. A flush then goes through the rooms once: activity, rules,
//! selectors, signatures, identities, points, policy sets, classes. Each looks again at what was
//! touched before it and at nothing else.

use crate::activity::{Activity, is_builtin, is_local};
use crate::bodies::Active;
use crate::budget::{Budget, Usage};
use crate::classes::{Credits, Programs};
use crate::columns::{Before, Slot};
use crate::facts::Addresses;
use crate::faults::{Fault, on};
use crate::holders::{Given, View, What};
use crate::identities::{Identities, Sight};
use crate::labels::{HolderId, Holders};
use crate::points::{Ground, Points};
use crate::policies::{Edit, Policies, PolicyNumber};
use crate::pool::HashMap;
use crate::selectors::Selectors;
use crate::sequencer::Differences;
use crate::sets::{Rulebook, Sets, Source};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use palisade_model::{
    Encapsulations, Endpoint, EndpointId, Labels, NetworkSet, Node, Object, ObjectId, ObjectKey,
    Policy, PolicyId, Prefix, State, Str, Update,
};
use palisade_tables::{IdentityId, SetId, Tables};

mod budget;
mod writing;

/// What updates touched since the last flush.
#[derive(Debug, Default)]
struct Touched {
    holders: Vec<Slot>,
    locals: BTreeSet<EndpointId>,
    policies: BTreeMap<PolicyNumber, Edit>,
    profiles: BTreeSet<Str>,
    /// A tier changed: every order may be another.
    tiers: bool,
    /// An address changed hands, or the interface of its holder.
    handed: bool,
    sets: BTreeSet<Slot>,
}

/// Every object, and everything computed from them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Every object but policies, namespaces, service accounts, and the endpoints of other hosts.
    pub(crate) state: State,
    pub(crate) policies: Policies,
    pub(crate) selectors: Selectors,
    pub(crate) holders: Holders,
    pub(crate) activity: Activity,
    active: Active,
    pub(crate) identities: Identities,
    points: Points,
    pub(crate) sets: Sets,
    pub(crate) programs: Programs,
    pub(crate) credits: Credits,
    /// Endpoints by the names of their named ports.
    by_port: BTreeMap<Str, BTreeSet<Slot>>,
    /// The networks of the network sets that match an active selector.
    set_nets: BTreeMap<Slot, Vec<Prefix>>,
    touched: Touched,
    /// What endpoints may not send although rules allow it.
    pub(crate) denied_encapsulation: Encapsulations,
    /// How much policy sets may take, and what they do.
    pub(crate) budget: Budget,
    usage: Usage,
    /// The sets in which each identity has an entry, in order.
    pub(crate) entries: HashMap<IdentityId, Vec<SetId>>,
    /// The tables that the objects ask for.
    pub(crate) wanted: Tables,
}

/// What a flush changed in the tables.
pub(crate) struct Flushed {
    pub(crate) differences: Differences,
    pub(crate) handed: bool,
}

impl Graph {
    /// Takes in one update, and notes what it touches.
    pub(crate) fn take(&mut self, update: Update) {
        match update {
            Update::Upsert(Object::Endpoint(endpoint)) => self.endpoint(endpoint),
            Update::Delete(ObjectKey::Endpoint(id)) => self.endpoint_gone(&id),
            Update::Upsert(Object::Node(node)) => {
                let name = node.name.clone();
                self.node(&name, Some(node));
            }
            Update::Delete(ObjectKey::Node(name)) => self.node(&name, None),
            Update::Upsert(Object::NetworkSet(set)) => {
                let id = set.id.clone();
                self.network_set(&id, Some(set));
            }
            Update::Delete(ObjectKey::NetworkSet(id)) => self.network_set(&id, None),
            Update::Upsert(Object::Policy(policy)) => self.policy(policy),
            Update::Delete(ObjectKey::Policy(id)) => self.policy_gone(&id),
            Update::Upsert(Object::Namespace(n)) => self.described(&n.name, None, Some(&n.labels)),
            Update::Delete(ObjectKey::Namespace(name)) => self.described(&name, None, None),
            Update::Upsert(Object::ServiceAccount(a)) => {
                self.described(&a.namespace, Some(&a.name), Some(&a.labels));
            }
            Update::Delete(ObjectKey::ServiceAccount { namespace, name }) => {
                self.described(&namespace, Some(&name), None);
            }
            other => self.plain(other),
        }
    }

    fn policy(&mut self, policy: Policy) {
        if let Some((number, edit)) = self.policies.put(policy) {
            let known = self.touched.policies.entry(number).or_default();
            *known = known.and(edit);
        }
    }

    fn policy_gone(&mut self, id: &PolicyId) {
        if on(Fault::DeletedPolicyStays) {
            return;
        }
        if let Some((number, edit)) = self.policies.remove(id) {
            self.touched.policies.insert(number, edit);
        }
    }

    /// Labels of a namespace, or of a service account in it.
    fn described(&mut self, namespace: &Str, account: Option<&Str>, labels: Option<&Labels>) {
        let changed = self.holders.columns.describe(namespace, account, labels);
        if changed && !(account.is_none() && on(Fault::NamespaceLabelsStale)) {
            self.relabelled(namespace, account);
        }
    }

    /// Objects that are only looked up by others.
    fn plain(&mut self, update: Update) {
        let key = match &update {
            Update::Upsert(object) => object.key(),
            Update::Delete(key) => key.clone(),
        };
        match &key {
            ObjectKey::Profile(name) => drop(self.touched.profiles.insert(name.clone())),
            ObjectKey::Tier(_) => self.touched.tiers = true,
            _ => {}
        }
        self.state.apply(update);
    }

    /// The labels of a namespace changed, or of one service account in it.
    fn relabelled(&mut self, namespace: &Str, account: Option<&Str>) {
        let columns = &self.holders.columns;
        let Some(number) = columns.names.find::<str>(namespace) else {
            return;
        };
        for slot in columns.in_namespace(number) {
            let Some(view) = columns.view(slot) else {
                continue;
            };
            let own = view.common().and_then(|common| common.account.as_ref());
            if account.is_some() && view.what() == What::Endpoint && own != account {
                continue;
            }
            if is_local_view(&view) {
                self.touched.locals.extend(columns.endpoint_id(slot));
            }
            self.touched.holders.push(slot);
        }
    }

    fn endpoint(&mut self, endpoint: Endpoint) {
        let put = self.holders.columns.put(Given::Endpoint(&endpoint));
        let Some((slot, before)) = put else {
            return;
        };
        self.exchanged(slot, before.as_ref(), true);
        let was_local = before.as_ref().is_some_and(|before| {
            let was = self.holders.columns.was(before);
            is_local_view(&was)
        });
        if let Some(before) = before {
            self.holders.columns.forget(before);
        }
        if is_local(&endpoint) {
            self.state.endpoints.insert(endpoint.id.clone(), endpoint);
        } else if was_local {
            self.state.endpoints.remove(&endpoint.id);
        }
    }

    fn endpoint_gone(&mut self, id: &EndpointId) {
        let Some(slot) = self.holders.columns.find_endpoint(id) else {
            return;
        };
        self.exchanged(slot, None, false);
        self.holders.columns.remove(slot);
        self.state.endpoints.remove(id);
    }

    /// Notes what another endpoint in a slot touches: instead of what was there before, or nothing
    /// (`there` is false) instead of what is there now.
    fn exchanged(&mut self, slot: Slot, before: Option<&Before>, there: bool) {
        let Graph {
            holders,
            identities,
            by_port,
            touched,
            ..
        } = self;
        let columns = &holders.columns;
        let now = columns.view(slot);
        let (old, new) = match there {
            true => (before.map(|before| columns.was(before)), now),
            false => (now, None),
        };
        let local = |view: &Option<View<'_>>| view.as_ref().is_some_and(is_local_view);
        if local(&old) || local(&new) {
            touched.locals.extend(columns.endpoint_id(slot));
        }
        for address in held(&old) {
            if !held(&new).any(|other| other == address) {
                identities.claim(address, slot, false);
            }
        }
        let weighs = match (&old, &new) {
            (Some(old), Some(new)) => !old.weighs_like(new),
            _ => true,
        };
        for address in held(&new) {
            if !held(&old).any(|other| other == address) {
                identities.claim(address, slot, true);
            } else if weighs {
                identities.touch(address);
            }
        }
        for (view, there) in [(&old, false), (&new, true)] {
            let living = view.as_ref().filter(|view| !view.own().is_template());
            let common = living.and_then(|view| view.common());
            for port in common.into_iter().flat_map(|common| &common.ports) {
                let of = by_port.entry(port.name.clone()).or_default();
                match there {
                    true => of.insert(slot),
                    false => of.remove(&slot),
                };
                if of.is_empty() {
                    by_port.remove(&port.name);
                }
            }
        }
        let relabelled = match (&old, &new) {
            (Some(old), Some(new)) => {
                let holds = new.own().addresses.next().is_some();
                touched.handed |= !old.is_attached_like(new) && holds;
                !old.looks_like(new)
            }
            _ => true,
        };
        if relabelled {
            touched.holders.push(slot);
        }
    }

    fn node(&mut self, name: &Str, new: Option<Node>) {
        let old = self.state.nodes.remove(name);
        let columns = &mut self.holders.columns;
        let put = new.as_ref().and_then(|node| columns.put(Given::Node(node)));
        let slot = match put {
            Some((slot, before)) => {
                before.into_iter().for_each(|before| columns.forget(before));
                Some(slot)
            }
            None => columns.find(&HolderId::Node(name.clone())),
        };
        let Some(slot) = slot else {
            return;
        };
        if new.is_none() {
            columns.remove(slot);
        }
        for (node, there) in [(&old, false), (&new, true)] {
            for address in node.iter().flat_map(|node| &node.addresses) {
                self.identities.node(*address, slot, there);
            }
        }
        self.touched.holders.push(slot);
        self.state.nodes.extend(new.map(|n| (name.clone(), n)));
    }

    fn network_set(&mut self, id: &ObjectId, new: Option<NetworkSet>) {
        self.state.network_sets.remove(id);
        let columns = &mut self.holders.columns;
        let put = new
            .as_ref()
            .and_then(|set| columns.put(Given::NetworkSet(set)));
        let slot = match put {
            Some((slot, before)) => {
                before.into_iter().for_each(|before| columns.forget(before));
                Some(slot)
            }
            None => columns.find(&HolderId::NetworkSet(id.clone())),
        };
        let Some(slot) = slot else {
            return;
        };
        if new.is_none() {
            columns.remove(slot);
        }
        self.touched.sets.insert(slot);
        self.touched.holders.push(slot);
        self.state.network_sets.extend(new.map(|s| (id.clone(), s)));
    }

    /// Goes through the rooms, and says what changed in the tables that are wanted.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut touched = core::mem::take(&mut self.touched);
        touched.holders.sort_unstable();
        touched.holders.dedup();
        let holding = !touched.holders.is_empty() || self.identities.is_touched();
        let mut locals = self.activate(&touched);
        self.look(&touched);
        if holding {
            locals.extend(self.points.testers.iter().cloned());
        }
        let (identities, handed) = self.identities.settle(Sight {
            state: &self.state,
            holders: &self.holders,
            active: &self.active,
        });
        let points = self.points.settle(
            Ground {
                sight: Sight {
                    state: &self.state,
                    holders: &self.holders,
                    active: &self.active,
                },
                policies: &self.policies,
                activity: &self.activity,
                active: &self.active,
                identities: &self.identities,
            },
            &locals,
            &mut self.sets,
        );
        let book = Rulebook {
            state: &self.state,
            policies: &self.policies,
            active: &self.active,
        };
        let sets = self.sets.settle(book, &mut self.credits);
        let mut differences = self.write(&identities, &points, &sets);
        self.sweep(&mut differences);
        self.policies.settle();
        self.holders.columns.release(&touched.holders);
        Flushed {
            differences,
            handed: handed || touched.handed,
        }
    }

    /// Activity and rules. Returns the local endpoints whose points are to be looked at again.
    fn activate(&mut self, touched: &Touched) -> BTreeSet<EndpointId> {
        let edits = &touched.policies;
        let changes = self.activity.settle(
            &self.state,
            &self.holders.columns,
            &self.policies,
            edits,
            &touched.locals,
        );
        let mut locals = changes.locals;
        for number in changes.policies {
            let active = self.activity.is_active(number);
            let known = self.active.policy(number).is_some();
            let edit = edits.get(&number).copied().unwrap_or_default();
            if active && (!known || edit.rules || edit.place) {
                let (policies, selectors) = (&self.policies, &mut self.selectors);
                let others = self.active.begin_policy(policies, number, selectors);
                if others || edit.place {
                    locals.extend(self.activity.selected_by(number).cloned());
                }
            } else if known && !active {
                self.active.end_policy(number, &mut self.selectors);
            }
            self.sets.edited(&Source::Policy(number));
        }
        for name in changes.profiles.union(&touched.profiles) {
            let source = Source::Profile(name.clone());
            let profile = self.state.profiles.get(name);
            let judging = self.activity.is_judging(name) && !is_builtin(name);
            match profile.filter(|_| judging) {
                Some(profile) => {
                    let known = self.active.profile(name).is_some();
                    if known && !touched.profiles.contains(name) {
                        continue;
                    }
                    self.active.begin_profile(profile, &mut self.selectors);
                    locals.extend(self.activity.judged_by(name).cloned());
                }
                None => {
                    // Endpoints may still name it: what it asked of their own end counts no more.
                    if self.active.profile(name).is_some() {
                        locals.extend(self.activity.judged_by(name).cloned());
                    }
                    self.active.end_profile(name, &mut self.selectors);
                }
            }
            self.sets.edited(&source);
        }
        if touched.tiers {
            locals.extend(self.activity.locals().cloned());
            self.sets.all_edited();
        }
        locals
    }

    /// Selectors and signatures, and what they touch of addresses.
    fn look(&mut self, touched: &Touched) {
        let changes = self.selectors.settle(&mut self.holders.columns.names);
        let moved = self.holders.settle(
            &self.selectors,
            &touched.holders,
            &changes.keys,
            &changes.begun,
            &changes.ended,
        );
        let mut sets = touched.sets.clone();
        for slot in moved {
            let columns = &self.holders.columns;
            let Some(view) = columns.view(slot) else {
                continue;
            };
            match view.what() {
                What::Endpoint => {
                    for address in known(view.own().addresses) {
                        self.identities.touch(address);
                    }
                }
                What::Node => {
                    let node = self.state.nodes.get(view.name());
                    for address in node.into_iter().flat_map(|n| &n.addresses) {
                        self.identities.touch(*address);
                    }
                }
                What::NetworkSet => drop(sets.insert(slot)),
            }
        }
        for slot in sets {
            if let Some(HolderId::NetworkSet(id)) = self.holders.columns.id(slot) {
                self.set_moved(&id, slot);
            }
        }
        for net in self.active.take_net_changes() {
            let asked = self.active.asks_net(net);
            self.identities.asked(net, asked);
        }
        for (name, _) in self.active.take_port_changes() {
            for slot in self.by_port.get(&name).into_iter().flatten() {
                let view = self.holders.columns.view(*slot);
                for address in view.into_iter().flat_map(|v| known(v.own().addresses)) {
                    self.identities.touch(address);
                }
            }
        }
    }

    /// A network set holds other networks, or matches other selectors.
    fn set_moved(&mut self, id: &ObjectId, slot: Slot) {
        for net in self.set_nets.remove(&slot).unwrap_or_default() {
            self.identities.set(net, slot, false);
        }
        let set = self.state.network_sets.get(id);
        if let Some(set) = set.filter(|_| !self.holders.matched(slot).is_empty()) {
            for net in &set.nets {
                self.identities.set(*net, slot, true);
            }
            self.set_nets.insert(slot, set.nets.clone());
        }
    }
}

/// The addresses of an endpoint that count.
fn known(addresses: Addresses<'_>) -> impl Iterator<Item = core::net::IpAddr> {
    let known = match on(Fault::SecondAddressIgnored) {
        true => 1,
        false => usize::MAX,
    };
    addresses.take(known)
}

/// The addresses that an endpoint claims.
fn held<'a>(view: &Option<View<'a>>) -> impl Iterator<Item = core::net::IpAddr> + use<'a> {
    known(match view {
        Some(view) if !view.own().is_template() => view.own().addresses,
        _ => Addresses::NONE,
    })
}

fn is_local_view(view: &View<'_>) -> bool {
    let own = view.own();
    view.what() == What::Endpoint && own.is_attached() && !own.is_template()
}
