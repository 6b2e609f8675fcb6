//! Identities: classes of addresses that no active rule distinguishes.
//!
//! Tracked addresses are those that endpoints or nodes hold. Tracked networks are those that active
//! rules name or that matched network sets contain. Each has an identity: the active selectors that
//! its owners match, the longest network of an active rule that covers it, and the numbers of the
//! named ports that active rules use. Only what changed is recomputed. An entry of the address
//! table is written only where it differs from the next shorter prefix.

use crate::active_rules::ActiveRules;
use crate::faults::EngineFault;
use crate::label_index::LabelIndex;
use crate::selector_index::SelectorNumber;
use crate::store::{
    AddressOwnerKind, AddressOwnerSlot, AddressOwnerStore, AddressOwnerView, HashMap, NONE,
    SharedAttributes, SignatureNumber,
};
use crate::tracked_addresses::{AddressEvent, AddressOwnership, ChangedAddress, TrackedAddresses};
use crate::tracked_networks::{TrackedNetwork, TrackedNetworks};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{EndpointId, Family, Prefix, Protocol, State, Str};
use palisade_tables::IdentityId;

/// What distinguishes an identity from all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdentityKey {
    /// The active selectors that some owner of the address matches, sorted.
    pub(crate) selectors: Vec<SelectorNumber>,
    /// The longest covering network that an active rule names.
    pub(crate) net: Option<Prefix>,
    /// The numbers of the named ports that active rules use.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
}

#[derive(Debug)]
struct Identity {
    key: Arc<IdentityKey>,
    /// How many tracked addresses and networks have it.
    members: usize,
}

/// Identities by the selectors and the network of their keys.
#[derive(Debug, Default)]
struct IdentityIndex {
    by_selector: BTreeMap<SelectorNumber, BTreeSet<IdentityId>>,
    /// By [`IdentityKey::net`].
    by_net: BTreeSet<(Prefix, IdentityId)>,
}

/// Changes of one recomputation.
#[derive(Debug, Default)]
pub(crate) struct IdentityChanges {
    /// Entries of the address table that may have changed, in order; `None` where there is to be
    /// none.
    pub(crate) entries: Vec<(Prefix, Option<IdentityId>)>,
    /// New identities.
    pub(crate) added: BTreeSet<IdentityId>,
    /// Identities with another key than before.
    pub(crate) rekeyed: BTreeSet<IdentityId>,
    /// Removed identities.
    pub(crate) removed: BTreeSet<IdentityId>,
}

/// All identities, and the addresses and networks that have them.
#[derive(Debug)]
pub(crate) struct Identities {
    addresses: TrackedAddresses,
    networks: TrackedNetworks,
    identities: BTreeMap<IdentityId, Identity>,
    numbers: HashMap<Arc<IdentityKey>, IdentityId>,
    index: IdentityIndex,
    next: IdentityId,
    /// Tracked networks to recompute together with everything inside them.
    dirty_networks: BTreeSet<Prefix>,
}

impl Default for Identities {
    fn default() -> Self {
        Identities {
            addresses: TrackedAddresses::default(),
            networks: TrackedNetworks::default(),
            identities: BTreeMap::new(),
            numbers: HashMap::default(),
            index: IdentityIndex::default(),
            next: IdentityId(IdentityId::UNKNOWN.0 + 1),
            dirty_networks: BTreeSet::new(),
        }
    }
}

/// What identities are computed from.
#[derive(Clone, Copy)]
pub(crate) struct IdentityInputs<'a> {
    pub(crate) state: &'a State,
    pub(crate) store: &'a AddressOwnerStore,
    pub(crate) label_index: &'a LabelIndex,
    pub(crate) active_rules: &'a ActiveRules,
}

impl<'a> IdentityInputs<'a> {
    fn endpoint(&self, slot: AddressOwnerSlot) -> Option<AddressOwnerView<'a>> {
        let view = self.store.view(slot)?;
        (view.kind() == AddressOwnerKind::Endpoint).then_some(view)
    }

    fn shared(&self, slot: AddressOwnerSlot) -> Option<&'a SharedAttributes> {
        self.store.shared_in(slot)
    }

    /// Of several claimants the owner is the local one, then the newest, then the greatest name.
    fn owner(&self, claimants: &[AddressOwnerSlot]) -> Option<AddressOwnerSlot> {
        if let [only] = claimants {
            return Some(*only);
        }
        let strength = |slot: &AddressOwnerSlot| {
            let endpoint = self.endpoint(*slot)?;
            let created = if EngineFault::OldestClaimWins.is_injected() {
                u64::MAX - endpoint.created()
            } else {
                endpoint.created()
            };
            let id: Option<EndpointId> = self.store.endpoint_id(*slot);
            Some((endpoint.is_attached(), created, id))
        };
        claimants.iter().copied().max_by_key(strength)
    }
}

/// The index of a key in a [`KeyList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct IdentityKeyIndex(u32);

/// The change of the identity of a tracked address or network.
#[derive(Clone, Copy)]
struct IdentityMove {
    /// The identity before.
    old_identity: IdentityId,
    /// The number of its new key; `None` if it is removed.
    key: Option<IdentityKeyIndex>,
}

/// A changed address with its new owner.
struct AddressMove {
    changed: ChangedAddress,
    owner: Option<AddressOwnerSlot>,
    identity: IdentityMove,
}

/// The distinct keys of one recomputation, by number.
#[derive(Default)]
struct KeyList {
    keys: Vec<Arc<IdentityKey>>,
    numbers: HashMap<Arc<IdentityKey>, IdentityKeyIndex>,
    /// The key of an address by the signature of its only owner and the network that covers it.
    by_signature: HashMap<(SignatureNumber, Option<Prefix>), IdentityKeyIndex>,
}

impl KeyList {
    fn add(&mut self, key: IdentityKey) -> IdentityKeyIndex {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = IdentityKeyIndex(u32::try_from(self.keys.len()).unwrap_or(NONE));
        let key = Arc::new(key);
        self.keys.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

impl Identities {
    /// An unused identity number.
    pub(crate) fn allocate_id(&mut self) -> IdentityId {
        let number = self.next;
        self.next = IdentityId(self.next.0.wrapping_add(1));
        number
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (IdentityId, &IdentityKey)> {
        self.identities
            .iter()
            .map(|(number, identity)| (*number, &*identity.key))
    }

    pub(crate) fn key(&self, number: IdentityId) -> Option<&IdentityKey> {
        self.identities.get(&number).map(|identity| &*identity.key)
    }

    /// The identities that match a selector.
    pub(crate) fn matching(&self, selector: SelectorNumber) -> impl Iterator<Item = IdentityId> {
        self.index
            .by_selector
            .get(&selector)
            .into_iter()
            .flatten()
            .copied()
    }

    /// The identities whose network lies inside a network.
    pub(crate) fn within(&self, net: Prefix) -> impl Iterator<Item = IdentityId> {
        let from = self.index.by_net.range((net, IdentityId(0))..);
        let inside = from.take_while(move |(prefix, _)| net.covers(*prefix));
        inside.map(|(_, number)| *number)
    }

    /// The slot of the endpoint that owns an address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<AddressOwnerSlot> {
        self.addresses.owner(address)
    }

    /// The addresses that several endpoints claim, with all claimants.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[AddressOwnerSlot])> {
        self.addresses.contested()
    }

    /// The nodes that have an address.
    pub(crate) fn nodes_at(&self, address: IpAddr) -> &[AddressOwnerSlot] {
        self.addresses.nodes(address)
    }

    /// The network sets with an entry for exactly this address.
    pub(crate) fn network_sets_at(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = AddressOwnerSlot> {
        let prefix = Prefix::host(address);
        let network = self.networks.get(prefix);
        network
            .into_iter()
            .flat_map(move |network| self.networks.network_sets(prefix, network))
    }

    /// Queues a change of an address for the next recomputation.
    pub(crate) fn queue(&mut self, address: IpAddr, event: AddressEvent) {
        if matches!(event, AddressEvent::Node(..)) && EngineFault::NodeIgnored.is_injected() {
            return;
        }
        self.addresses.queue(address, event);
    }

    /// Adds, updates or removes a network of a matched network set.
    pub(crate) fn set_network_set(&mut self, net: Prefix, slot: AddressOwnerSlot, holds: bool) {
        if EngineFault::NetworkSetIgnored.is_injected() {
            return;
        }
        if holds {
            self.networks.add_to_set(net, slot);
        } else {
            self.networks.remove_from_set(net, slot);
        }
        self.dirty_networks.insert(net);
    }

    /// Sets whether an active rule names a network.
    pub(crate) fn set_referenced(&mut self, net: Prefix, asked: bool) {
        if asked {
            self.networks.entry(net).is_referenced = true;
        } else if let Some(region) = self.networks.get_mut(net) {
            region.is_referenced = false;
        }
        self.dirty_networks.insert(net);
    }

    /// Whether addresses were queued since the last recomputation.
    pub(crate) fn has_queued_addresses(&self) -> bool {
        self.addresses.has_queued()
    }

    /// The families and lengths of the networks that may have entries in the address table.
    pub(crate) fn net_lengths(&self) -> impl Iterator<Item = (Family, u8)> {
        self.networks.lengths()
    }

    /// Recomputes what was marked. Also returns whether an address has a new owner.
    pub(crate) fn recompute(&mut self, inputs: IdentityInputs<'_>) -> (IdentityChanges, bool) {
        let mut regions = BTreeSet::new();
        for net in core::mem::take(&mut self.dirty_networks) {
            regions.extend(self.networks.within(net));
            regions.insert(net);
            self.addresses.queue_within(net);
        }
        let changed = self.addresses.take_changed();
        let mut keys = KeyList::default();
        let mut address_moved = false;
        let mut hosts: Vec<AddressMove> = Vec::with_capacity(changed.len());
        for changed in changed {
            let prefix = Prefix::host(changed.address);
            if self.networks.get(prefix).is_some() {
                regions.insert(prefix);
            }
            hosts.push(self.plan_address(inputs, changed, &mut keys, &mut address_moved));
        }
        let plan = |prefix| (prefix, self.plan_network(inputs, prefix, &hosts, &mut keys));
        let networks: Vec<(Prefix, IdentityMove)> = regions.into_iter().map(plan).collect();
        let moves = networks.iter().map(|(_, moved)| *moved);
        let moves = moves.chain(hosts.iter().map(|host| host.identity));
        let numbers = self.assign_numbers(moves, &keys);
        let assigned = |moved: &IdentityMove| moved.key.map(|key| numbers.assigned[key.0 as usize]);
        for (prefix, moved) in &networks {
            match assigned(moved) {
                Some(number) => self.networks.entry(*prefix).identity = number,
                None => self.networks.remove(*prefix),
            }
        }
        let mut entries = Vec::with_capacity(hosts.len() + networks.len());
        for host in &hosts {
            let prefix = Prefix::host(host.changed.address);
            entries.push((prefix, self.table_entry(prefix, assigned(&host.identity))));
        }
        let stored = hosts.iter();
        let stored = stored.map(|host| (&host.changed, host.owner, assigned(&host.identity)));
        self.addresses.store(stored);
        for (prefix, _) in &networks {
            // The entry of an address that is held is its own.
            if !(prefix.is_host() && self.addresses.is_tracked(prefix.address())) {
                entries.push((*prefix, self.table_entry(*prefix, None)));
            }
        }
        entries.sort();
        entries.dedup_by_key(|(prefix, _)| *prefix);
        let changes = IdentityChanges {
            entries,
            added: numbers.added,
            rekeyed: numbers.rekeyed,
            removed: numbers.removed,
        };
        (changes, address_moved)
    }

    /// The change of a tracked network.
    fn plan_network(
        &self,
        inputs: IdentityInputs<'_>,
        prefix: Prefix,
        hosts: &[AddressMove],
        keys: &mut KeyList,
    ) -> IdentityMove {
        let region = self.networks.get(prefix);
        let key = region.is_some_and(TrackedNetwork::is_used).then(|| {
            let address = prefix.address();
            let is_held = prefix.is_host()
                && match hosts.binary_search_by_key(&address, |host| host.changed.address) {
                    Ok(at) => hosts[at].identity.key.is_some(),
                    Err(_) => self.addresses.is_tracked(address),
                };
            // A tracked network of one address that is held needs no identity: the address has one.
            if is_held {
                IdentityKey::default()
            } else {
                self.compute_key(inputs, prefix, &[], None)
            }
        });
        IdentityMove {
            old_identity: region.map_or(IdentityId::UNKNOWN, |r| r.identity),
            key: key.map(|key| keys.add(key)),
        }
    }

    /// The change of a tracked address.
    fn plan_address(
        &self,
        inputs: IdentityInputs<'_>,
        changed: ChangedAddress,
        keys: &mut KeyList,
        address_moved: &mut bool,
    ) -> AddressMove {
        let prefix = Prefix::host(changed.address);
        let (owner, key) = match self.addresses.ownership(&changed) {
            AddressOwnership::Unheld => (None, None),
            AddressOwnership::Single(slot) if !has_named_ports(inputs, slot) => {
                let mut around = self.networks.covering(changed.address, prefix.length());
                let signature = inputs.store.signature(slot);
                let aspect = (signature, around.next().map(|(prefix, _)| prefix));
                let key = match keys.by_signature.get(&aspect) {
                    Some(key) => *key,
                    None => {
                        let key = keys.add(self.compute_key(inputs, prefix, &[], Some(slot)));
                        keys.by_signature.insert(aspect, key);
                        key
                    }
                };
                (Some(slot), Some(key))
            }
            AddressOwnership::Single(slot) => {
                let key = self.compute_key(inputs, prefix, &[], Some(slot));
                (Some(slot), Some(keys.add(key)))
            }
            AddressOwnership::Multiple(claims) => {
                let owner = inputs.owner(&claims.claimants);
                let key = self.compute_key(inputs, prefix, &claims.nodes, owner);
                (owner, Some(keys.add(key)))
            }
        };
        // A local endpoint's new address may have live flows of its previous owner, whether that
        // owner is known here or not.
        if owner.is_some() && changed.previous_owner != owner {
            let local =
                || owner.is_some_and(|slot| inputs.shared(slot).is_some_and(|s| s.attached));
            *address_moved |= changed.previous_owner.is_some() || local();
        }
        AddressMove {
            owner,
            identity: IdentityMove {
                old_identity: changed.previous_identity,
                key,
            },
            changed,
        }
    }

    fn compute_key(
        &self,
        inputs: IdentityInputs<'_>,
        prefix: Prefix,
        nodes: &[AddressOwnerSlot],
        owner: Option<AddressOwnerSlot>,
    ) -> IdentityKey {
        let mut key = IdentityKey::default();
        for (covering, region) in self.networks.covering(prefix.address(), prefix.length()) {
            for set in self.networks.network_sets(covering, region) {
                key.selectors
                    .extend(inputs.label_index.matched_selectors(inputs.store, set));
            }
            if region.is_referenced
                && (key.net.is_none() || EngineFault::LongestPrefixLost.is_injected())
            {
                key.net = Some(covering);
            }
        }
        for node in nodes {
            key.selectors
                .extend(inputs.label_index.matched_selectors(inputs.store, *node));
        }
        if let Some(owner) = owner {
            key.selectors
                .extend(inputs.label_index.matched_selectors(inputs.store, owner));
            key.ports = named_ports(inputs, owner);
        }
        key.selectors.sort_unstable();
        key.selectors.dedup();
        key
    }

    /// The identity of the entry to write for a prefix; `None` where the covering network has the
    /// same. `host_identity` is that of an address that an owner has.
    fn table_entry(&self, prefix: Prefix, host_identity: Option<IdentityId>) -> Option<IdentityId> {
        let region = || self.networks.get(prefix).map(|r| r.identity);
        let own = host_identity.or_else(region)?;
        let mut around = (prefix.length().checked_sub(1))
            .into_iter()
            .flat_map(|longest| self.networks.covering(prefix.address(), longest));
        let above = around
            .next()
            .map_or(IdentityId::UNKNOWN, |(_, r)| r.identity);
        (own != above).then_some(own)
    }

    /// Assigns identity numbers to the new keys of addresses and networks. An identity without
    /// members left passes its number on to the new key that takes most of its members.
    fn assign_numbers(
        &mut self,
        moves: impl Iterator<Item = IdentityMove> + Clone,
        list: &KeyList,
    ) -> NumberAssignment {
        // Only the default key has neither selectors nor a network nor ports.
        let nobody = list.numbers.get(&IdentityKey::default()).copied();
        let named = |key: Option<IdentityKeyIndex>| key.filter(|key| Some(*key) != nobody);
        let mut lost_members: HashMap<IdentityId, usize> = HashMap::default();
        let mut gained_members = alloc::vec![0_usize; list.keys.len()];
        for identity_move in moves.clone() {
            *lost_members.entry(identity_move.old_identity).or_default() += 1;
            if let Some(key) = named(identity_move.key) {
                gained_members[key.0 as usize] += 1;
            }
        }
        lost_members.remove(&IdentityId::UNKNOWN);
        let mut numbered = NumberAssignment {
            removed: self.remove_members(&lost_members, list),
            ..NumberAssignment::default()
        };
        let mut reusable: BTreeMap<(IdentityId, IdentityKeyIndex), usize> = BTreeMap::new();
        if !numbered.removed.is_empty() {
            for identity_move in moves {
                let Some(key) = named(identity_move.key) else {
                    continue;
                };
                if numbered.removed.contains(&identity_move.old_identity)
                    && !self.numbers.contains_key(&list.keys[key.0 as usize])
                {
                    *reusable
                        .entry((identity_move.old_identity, key))
                        .or_default() += 1;
                }
            }
        }
        self.pass_numbers_on(reusable, list, &mut numbered);
        for number in &numbered.removed {
            if let Some(gone) = self.identities.remove(number) {
                self.numbers.remove(&gone.key);
                self.index.update(&gone.key, *number, false);
            }
        }
        self.add_members(&gained_members, list, &mut numbered);
        numbered
    }

    /// Takes members from identities. Returns those without members left whose key nothing has any more.
    fn remove_members(
        &mut self,
        lost_members: &HashMap<IdentityId, usize>,
        list: &KeyList,
    ) -> BTreeSet<IdentityId> {
        let mut unused = BTreeSet::new();
        for (number, lost) in lost_members {
            let Some(identity) = self.identities.get_mut(number) else {
                continue;
            };
            identity.members -= lost;
            if identity.members == 0 && !list.numbers.contains_key(&identity.key) {
                unused.insert(*number);
            }
        }
        unused
    }

    /// Gives the numbers of removed identities to new keys: each to the one that takes most of its members.
    /// `reusable` has the members that a key takes from a removed identity.
    fn pass_numbers_on(
        &mut self,
        reusable: BTreeMap<(IdentityId, IdentityKeyIndex), usize>,
        list: &KeyList,
        numbered: &mut NumberAssignment,
    ) {
        let mut heirs: Vec<(usize, IdentityId, &Arc<IdentityKey>)> = reusable
            .into_iter()
            .map(|((number, key), members)| (members, number, &list.keys[key.0 as usize]))
            .collect();
        heirs.sort_by(|a, b| b.cmp(a));
        let mut given: BTreeSet<&Arc<IdentityKey>> = BTreeSet::new();
        for (_, number, key) in heirs {
            if !given.contains(key) && numbered.removed.remove(&number) {
                given.insert(key);
                if let Some(identity) = self.identities.get_mut(&number) {
                    self.numbers.remove(&identity.key);
                    let old = core::mem::replace(&mut identity.key, key.clone());
                    self.index.update(&old, number, false);
                }
                self.numbers.insert(key.clone(), number);
                self.index.update(key, number, true);
                numbered.rekeyed.insert(number);
            }
        }
    }

    /// Gives each key with members its identity, a new one where there is none, and the members.
    fn add_members(
        &mut self,
        gained_members: &[usize],
        list: &KeyList,
        numbered: &mut NumberAssignment,
    ) {
        numbered.assigned = alloc::vec![IdentityId::UNKNOWN; list.keys.len()];
        for (index, (key, members)) in list.keys.iter().zip(gained_members).enumerate() {
            if *members == 0 {
                continue;
            }
            let number = match self.numbers.get(key) {
                Some(number) => *number,
                None => {
                    let number = self.allocate_id();
                    self.numbers.insert(key.clone(), number);
                    let identity = Identity {
                        key: key.clone(),
                        members: 0,
                    };
                    self.identities.insert(number, identity);
                    self.index.update(key, number, true);
                    numbered.added.insert(number);
                    number
                }
            };
            if let Some(identity) = self.identities.get_mut(&number) {
                identity.members += *members;
            }
            numbered.assigned[index] = number;
        }
    }
}

#[derive(Default)]
struct NumberAssignment {
    /// The identity number of each key.
    assigned: Vec<IdentityId>,
    added: BTreeSet<IdentityId>,
    rekeyed: BTreeSet<IdentityId>,
    removed: BTreeSet<IdentityId>,
}

impl IdentityIndex {
    /// Adds an identity under its selectors and network, or removes it.
    fn update(&mut self, key: &IdentityKey, number: IdentityId, present: bool) {
        for selector in &key.selectors {
            let under = self.by_selector.entry(*selector).or_default();
            if present {
                under.insert(number)
            } else {
                under.remove(&number)
            };
            if under.is_empty() {
                self.by_selector.remove(selector);
            }
        }
        if let Some(net) = key.net {
            if present {
                self.by_net.insert((net, number))
            } else {
                self.by_net.remove(&(net, number))
            };
        }
    }
}

/// Whether an owner has named ports that may be part of its key.
fn has_named_ports(inputs: IdentityInputs<'_>, owner: AddressOwnerSlot) -> bool {
    let endpoint = inputs.shared(owner);
    endpoint.is_some_and(|endpoint| !endpoint.ports.is_empty())
}

fn named_ports(inputs: IdentityInputs<'_>, owner: AddressOwnerSlot) -> Vec<(Str, Protocol, u16)> {
    let Some(endpoint) = inputs.shared(owner) else {
        return Vec::new();
    };
    if endpoint.ports.is_empty() {
        return Vec::new();
    }
    let number = |(name, protocol): &(Str, Protocol)| {
        let mut ports = endpoint.ports.iter();
        let port = ports.find(|p| p.name == *name && p.protocol == *protocol)?;
        Some((name.clone(), *protocol, port.port))
    };
    inputs.active_rules.ports().filter_map(number).collect()
}
