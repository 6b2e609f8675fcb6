//! Identities: classes of addresses that no active rule distinguishes.
//!
//! Tracked addresses are those that endpoints or nodes hold. Tracked networks are those that active
//! rules name or that matched network sets contain. Each has an identity: the active selectors that
//! its holders match, the longest network of an active rule that covers it, and the numbers of the
//! named ports that active rules use. Only what changed is recomputed. An entry of the address
//! table is written only where it differs from the next shorter prefix.

use crate::active_rules::ActiveRules;
use crate::faults::EngineFault;
use crate::holder_store::{HolderSlot, NONE};
use crate::holders::{HolderKind, HolderView};
use crate::label_index::LabelIndex;
use crate::pool::HashMap;
use crate::tracked_addresses::{AddressOwnership, TrackedAddresses};
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
    /// The active selectors that some holder of the address matches, sorted.
    pub(crate) selectors: Vec<u32>,
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
    by_selector: BTreeMap<u32, BTreeSet<u32>>,
    /// By [`IdentityKey::net`].
    by_net: BTreeSet<(Prefix, u32)>,
}

/// Changes of one recomputation.
#[derive(Debug, Default)]
pub(crate) struct IdentityChanges {
    /// Entries of the address table that may have changed, in order; `None` where there is to be
    /// none.
    pub(crate) entries: Vec<(Prefix, Option<IdentityId>)>,
    /// New identities.
    pub(crate) added: BTreeSet<u32>,
    /// Identities with another key than before.
    pub(crate) rekeyed: BTreeSet<u32>,
    /// Removed identities.
    pub(crate) removed: BTreeSet<u32>,
}

/// All identities, and the addresses and networks that have them.
#[derive(Debug)]
pub(crate) struct Identities {
    addresses: TrackedAddresses,
    networks: TrackedNetworks,
    identities: BTreeMap<u32, Identity>,
    numbers: HashMap<Arc<IdentityKey>, u32>,
    index: IdentityIndex,
    next: u32,
    dirty_addresses: Vec<IpAddr>,
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
            next: IdentityId::UNKNOWN.0 + 1,
            dirty_addresses: Vec::new(),
            dirty_networks: BTreeSet::new(),
        }
    }
}

/// What identities are computed from.
#[derive(Clone, Copy)]
pub(crate) struct IdentityInputs<'a> {
    pub(crate) state: &'a State,
    pub(crate) label_index: &'a LabelIndex,
    pub(crate) active_rules: &'a ActiveRules,
}

impl<'a> IdentityInputs<'a> {
    fn endpoint(&self, slot: HolderSlot) -> Option<HolderView<'a>> {
        let view = self.label_index.store.view(slot)?;
        (view.kind() == HolderKind::Endpoint).then_some(view)
    }

    /// Of several claimants the owner is the local one, then the newest, then the greatest name.
    fn owner(&self, claimants: &[HolderSlot]) -> Option<HolderSlot> {
        if let [only] = claimants {
            return Some(*only);
        }
        let strength = |slot: &HolderSlot| {
            let own = self.endpoint(*slot)?.attributes();
            let created = if EngineFault::OldestClaimWins.is_injected() {
                u64::MAX - own.created
            } else {
                own.created
            };
            let id: Option<EndpointId> = self.label_index.store.endpoint_id(*slot);
            Some((own.is_attached(), created, id))
        };
        claimants.iter().copied().max_by_key(strength)
    }
}

/// The change of one tracked address or network.
struct IdentityMove {
    prefix: Prefix,
    is_address: bool,
    /// The identity before.
    old_identity: u32,
    /// The number of its new key; `None` if it is removed.
    key: Option<u32>,
    /// The new owner of the address.
    owner: Option<HolderSlot>,
}

/// The distinct keys of one recomputation, by number.
#[derive(Default)]
struct KeyList {
    keys: Vec<Arc<IdentityKey>>,
    numbers: HashMap<Arc<IdentityKey>, u32>,
    /// The key of an address by the signature of its only holder and the network that covers it.
    by_signature: HashMap<(u32, Option<Prefix>), u32>,
}

impl KeyList {
    fn add(&mut self, key: IdentityKey) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.keys.len()).unwrap_or(NONE);
        let key = Arc::new(key);
        self.keys.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

impl Identities {
    /// An unused identity number.
    pub(crate) fn allocate_id(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (u32, &IdentityKey)> {
        self.identities
            .iter()
            .map(|(number, of)| (*number, &*of.key))
    }

    pub(crate) fn key(&self, number: u32) -> Option<&IdentityKey> {
        self.identities.get(&number).map(|of| &*of.key)
    }

    /// The identities that match a selector.
    pub(crate) fn matching(&self, selector: u32) -> impl Iterator<Item = u32> {
        self.index
            .by_selector
            .get(&selector)
            .into_iter()
            .flatten()
            .copied()
    }

    /// The identities whose network lies inside a network.
    pub(crate) fn within(&self, net: Prefix) -> impl Iterator<Item = u32> {
        let from = self.index.by_net.range((net, 0)..);
        let inside = from.take_while(move |(prefix, _)| net.covers(*prefix));
        inside.map(|(_, number)| *number)
    }

    /// The slot of the endpoint that owns an address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<HolderSlot> {
        self.addresses.owner(address)
    }

    /// The addresses that several endpoints claim, with all claimants.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[HolderSlot])> {
        self.addresses.contested()
    }

    /// The nodes that have an address.
    pub(crate) fn nodes_at(&self, address: IpAddr) -> &[HolderSlot] {
        self.addresses.nodes(address)
    }

    pub(crate) fn set_claim(&mut self, address: IpAddr, slot: HolderSlot, claims: bool) {
        self.addresses.set_claim(address, slot, claims);
        self.dirty_addresses.push(address);
    }

    pub(crate) fn set_node(&mut self, address: IpAddr, slot: HolderSlot, has: bool) {
        if EngineFault::NodeIgnored.is_injected() {
            return;
        }
        self.addresses.set_node(address, slot, has);
        self.dirty_addresses.push(address);
    }

    /// Marks an address whose holders changed in some way.
    pub(crate) fn mark_dirty(&mut self, address: IpAddr) {
        self.dirty_addresses.push(address);
    }

    /// Adds, updates or removes a network of a matched network set.
    pub(crate) fn set_network_set(&mut self, net: Prefix, slot: HolderSlot, holds: bool) {
        if EngineFault::NetworkSetIgnored.is_injected() {
            return;
        }
        if holds {
            self.networks.entry(net).network_sets.insert(slot);
        } else if let Some(region) = self.networks.get_mut(net) {
            region.network_sets.remove(&slot);
        }
        self.dirty_networks.insert(net);
    }

    /// Sets whether an active rule names a network.
    pub(crate) fn set_referenced(&mut self, net: Prefix, asked: bool) {
        if asked {
            self.networks.entry(net).referenced = true;
        } else if let Some(region) = self.networks.get_mut(net) {
            region.referenced = false;
        }
        self.dirty_networks.insert(net);
    }

    /// Whether addresses were marked since the last recomputation.
    pub(crate) fn has_dirty_addresses(&self) -> bool {
        !self.dirty_addresses.is_empty()
    }

    /// The families and lengths of the networks that may have entries in the address table.
    pub(crate) fn net_lengths(&self) -> impl Iterator<Item = (Family, u8)> {
        self.networks.lengths()
    }

    /// Recomputes what was marked. Also returns whether an address has a new owner.
    pub(crate) fn recompute(&mut self, inputs: IdentityInputs<'_>) -> (IdentityChanges, bool) {
        let (hosts, regions) = self.take_dirty();
        let mut keys = KeyList::default();
        let mut moves: Vec<IdentityMove> = Vec::with_capacity(hosts.len() + regions.len());
        for prefix in regions {
            let region = self.networks.get(prefix);
            let held = prefix.is_host() && self.addresses.is_held(prefix.address());
            // A tracked network of one address that is held needs no identity: the address has one.
            let key = region
                .is_some_and(TrackedNetwork::is_used)
                .then(|| match held {
                    true => IdentityKey::default(),
                    false => self.compute_key(inputs, prefix, &[], None),
                });
            moves.push(IdentityMove {
                prefix,
                is_address: false,
                old_identity: region.map_or(0, |r| r.identity),
                key: key.map(|key| keys.add(key)),
                owner: None,
            });
        }
        let mut address_moved = false;
        for address in hosts {
            let Some(moved) = self.plan_address(inputs, address, &mut keys, &mut address_moved)
            else {
                continue;
            };
            moves.push(moved);
        }
        let numbers = self.assign_numbers(&moves, &keys);
        let mut changes = IdentityChanges {
            added: numbers.added,
            rekeyed: numbers.rekeyed,
            removed: numbers.removed,
            entries: Vec::with_capacity(moves.len()),
        };
        for moved in &moves {
            let number = moved.key.map(|key| numbers.assigned[key as usize]);
            let address = moved.prefix.address();
            match (moved.is_address, number) {
                (false, Some(number)) => self.networks.entry(moved.prefix).identity = number,
                (false, None) => self.networks.remove(moved.prefix),
                (true, Some(number)) => self.addresses.assign(address, moved.owner, number),
                (true, None) => self.addresses.remove(address),
            }
        }
        for moved in &moves {
            let entry = self.table_entry(moved.prefix);
            changes.entries.push((moved.prefix, entry));
        }
        changes.entries.sort_unstable();
        changes.entries.dedup();
        (changes, address_moved)
    }

    /// The change of a tracked address; `None` if the address is not tracked.
    fn plan_address(
        &self,
        inputs: IdentityInputs<'_>,
        address: IpAddr,
        keys: &mut KeyList,
        address_moved: &mut bool,
    ) -> Option<IdentityMove> {
        let claim = self.addresses.ownership(address)?;
        let prefix = Prefix::host(address);
        let (owner, was_owner, nodes) = match claim {
            AddressOwnership::Single(slot, held) => (Some(slot), held.then_some(slot), &[][..]),
            AddressOwnership::Multiple(crowd) => {
                (inputs.owner(&crowd.claimants), crowd.owner, &*crowd.nodes)
            }
        };
        // A local endpoint's new address may have live flows of its previous holder, whether that
        // holder is known here or not.
        if owner.is_some() && was_owner != owner {
            let local = || {
                let endpoint = owner.and_then(|slot| inputs.endpoint(slot));
                endpoint.is_some_and(|endpoint| endpoint.attributes().is_attached())
            };
            *address_moved |= was_owner.is_some() || local();
        }
        let key = if !self.addresses.is_held(address) {
            None
        } else if let AddressOwnership::Single(slot, _) = claim
            && !has_named_ports(inputs, slot)
        {
            let around = self.networks.covering(address, prefix.length()).next();
            let signature = inputs.label_index.store.signature(slot);
            let aspect = (signature, around.map(|(prefix, _)| prefix));
            Some(match keys.by_signature.get(&aspect) {
                Some(key) => *key,
                None => {
                    let key = keys.add(self.compute_key(inputs, prefix, nodes, owner));
                    keys.by_signature.insert(aspect, key);
                    key
                }
            })
        } else {
            Some(keys.add(self.compute_key(inputs, prefix, nodes, owner)))
        };
        Some(IdentityMove {
            prefix,
            is_address: true,
            old_identity: self.addresses.identity(address).unwrap_or(0),
            key,
            owner,
        })
    }

    /// The addresses and networks to recompute.
    fn take_dirty(&mut self) -> (Vec<IpAddr>, BTreeSet<Prefix>) {
        let mut hosts = core::mem::take(&mut self.dirty_addresses);
        let mut regions = BTreeSet::new();
        for net in core::mem::take(&mut self.dirty_networks) {
            regions.extend(self.networks.within(net));
            self.addresses.within(net, &mut hosts);
            regions.insert(net);
        }
        hosts.sort_unstable();
        hosts.dedup();
        let single = hosts.iter().map(|address| Prefix::host(*address));
        regions.extend(single.filter(|prefix| self.networks.get(*prefix).is_some()));
        (hosts, regions)
    }

    fn compute_key(
        &self,
        inputs: IdentityInputs<'_>,
        prefix: Prefix,
        nodes: &[HolderSlot],
        owner: Option<HolderSlot>,
    ) -> IdentityKey {
        let mut key = IdentityKey::default();
        for (covering, region) in self.networks.covering(prefix.address(), prefix.length()) {
            for set in &region.network_sets {
                key.selectors
                    .extend(inputs.label_index.matched_selectors(*set));
            }
            if region.referenced
                && (key.net.is_none() || EngineFault::LongestPrefixLost.is_injected())
            {
                key.net = Some(covering);
            }
        }
        for node in nodes {
            key.selectors
                .extend(inputs.label_index.matched_selectors(*node));
        }
        if let Some(owner) = owner {
            key.selectors
                .extend(inputs.label_index.matched_selectors(owner));
            key.ports = named_ports(inputs, owner);
        }
        key.selectors.sort_unstable();
        key.selectors.dedup();
        key
    }

    /// The identity of the entry to write for a prefix; `None` where the covering network has the
    /// same.
    fn table_entry(&self, prefix: Prefix) -> Option<IdentityId> {
        let region = || self.networks.get(prefix).map(|r| r.identity);
        let host = match prefix.is_host() {
            true => self.addresses.identity(prefix.address()),
            false => None,
        };
        let own = host.or_else(region)?;
        let mut around = (prefix.length().checked_sub(1))
            .into_iter()
            .flat_map(|longest| self.networks.covering(prefix.address(), longest));
        let above = around
            .next()
            .map_or(IdentityId::UNKNOWN.0, |(_, r)| r.identity);
        (own != above).then_some(IdentityId(own))
    }

    /// Assigns identity numbers to the new keys of addresses and networks. An identity without
    /// members left passes its number on to the new key that takes most of its members.
    fn assign_numbers(&mut self, moves: &[IdentityMove], list: &KeyList) -> NumberAssignment {
        let keys = &list.keys;
        // Only the default key has neither selectors nor a network nor ports.
        let nobody = list.numbers.get(&IdentityKey::default()).copied();
        let named = |key: Option<u32>| key.filter(|key| Some(*key) != nobody);
        let mut lost_members: HashMap<u32, usize> = HashMap::default();
        let mut gained_members = alloc::vec![0_usize; keys.len()];
        for moved in moves {
            *lost_members.entry(moved.old_identity).or_default() += 1;
            if let Some(key) = named(moved.key) {
                gained_members[key as usize] += 1;
            }
        }
        lost_members.remove(&IdentityId::UNKNOWN.0);
        let mut numbered = NumberAssignment::default();
        for (number, lost) in &lost_members {
            let Some(identity) = self.identities.get_mut(number) else {
                continue;
            };
            identity.members -= lost;
            if identity.members == 0 && !list.numbers.contains_key(&identity.key) {
                numbered.removed.insert(*number);
            }
        }
        let mut reusable: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        if !numbered.removed.is_empty() {
            for moved in moves {
                let Some(key) = named(moved.key) else {
                    continue;
                };
                if numbered.removed.contains(&moved.old_identity)
                    && !self.numbers.contains_key(&keys[key as usize])
                {
                    *reusable.entry((moved.old_identity, key)).or_default() += 1;
                }
            }
        }
        let mut heirs: Vec<(usize, u32, &Arc<IdentityKey>)> = reusable
            .into_iter()
            .map(|((was, key), members)| (members, was, &keys[key as usize]))
            .collect();
        heirs.sort_by(|a, b| b.cmp(a));
        let mut given: BTreeSet<&Arc<IdentityKey>> = BTreeSet::new();
        for (_, was, key) in heirs {
            if !given.contains(key) && numbered.removed.remove(&was) {
                given.insert(key);
                if let Some(identity) = self.identities.get_mut(&was) {
                    self.numbers.remove(&identity.key);
                    let old = core::mem::replace(&mut identity.key, key.clone());
                    self.index.update(&old, was, false);
                }
                self.numbers.insert(key.clone(), was);
                self.index.update(key, was, true);
                numbered.rekeyed.insert(was);
            }
        }
        for number in &numbered.removed {
            if let Some(gone) = self.identities.remove(number) {
                self.numbers.remove(&gone.key);
                self.index.update(&gone.key, *number, false);
            }
        }
        numbered.assigned = alloc::vec![IdentityId::UNKNOWN.0; keys.len()];
        for (at, (key, members)) in keys.iter().zip(gained_members).enumerate() {
            if members == 0 {
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
                identity.members += members;
            }
            numbered.assigned[at] = number;
        }
        numbered
    }
}

#[derive(Default)]
struct NumberAssignment {
    /// The identity number of each key.
    assigned: Vec<u32>,
    added: BTreeSet<u32>,
    rekeyed: BTreeSet<u32>,
    removed: BTreeSet<u32>,
}

impl IdentityIndex {
    /// Adds an identity under its selectors and network, or removes it.
    fn update(&mut self, key: &IdentityKey, number: u32, present: bool) {
        for selector in &key.selectors {
            let under = self.by_selector.entry(*selector).or_default();
            match present {
                true => under.insert(number),
                false => under.remove(&number),
            };
            if under.is_empty() {
                self.by_selector.remove(selector);
            }
        }
        if let Some(net) = key.net {
            match present {
                true => self.by_net.insert((net, number)),
                false => self.by_net.remove(&(net, number)),
            };
        }
    }
}

/// Whether a holder has named ports that may be part of its key.
fn has_named_ports(inputs: IdentityInputs<'_>, owner: HolderSlot) -> bool {
    let endpoint = inputs.endpoint(owner).and_then(|view| view.shared());
    endpoint.is_some_and(|endpoint| !endpoint.ports.is_empty())
}

fn named_ports(inputs: IdentityInputs<'_>, owner: HolderSlot) -> Vec<(Str, Protocol, u16)> {
    let Some(endpoint) = inputs.endpoint(owner).and_then(|view| view.shared()) else {
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
