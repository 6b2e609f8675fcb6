//! Identities: which addresses no active rule can tell apart.
//!
//! *Hosts* are addresses that endpoints or nodes hold; *regions* are networks that active rules ask
//! for, or that matched network sets hold. Each has an identity: the active selectors its holders
//! match, the longest network asked for around it, and the numbers behind the named ports asked
//! for. Only what was touched is looked at again. An entry of the address table is written only
//! where the next shorter one does not say it already.

use crate::bodies::Active;
use crate::columns::{NONE, Slot};
use crate::faults::{Fault, on};
use crate::holders::{View, What};
use crate::hosts::{Claim, Hosts};
use crate::labels::Holders;
use crate::pool::HashMap;
use crate::regions::{Region, Regions};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{EndpointId, Family, Prefix, Protocol, State, Str};
use palisade_tables::IdentityId;

/// What makes an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdentityKey {
    /// The active selectors that something holding the address matches, sorted.
    pub(crate) selectors: Vec<u32>,
    /// The longest network around it that an active rule asks for.
    pub(crate) net: Option<Prefix>,
    /// The numbers behind the named ports asked for.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
}

#[derive(Debug)]
struct Identity {
    key: Arc<IdentityKey>,
    /// Hosts and regions that have it.
    members: usize,
}

/// Identities by what they match.
#[derive(Debug, Default)]
struct Files {
    by_selector: BTreeMap<u32, BTreeSet<u32>>,
    /// By the longest network asked for around them.
    by_net: BTreeSet<(Prefix, u32)>,
}

/// What a settling changed.
#[derive(Debug, Default)]
pub(crate) struct IdentityChanges {
    /// Entries of the address table to look at, in order: the identity, or none.
    pub(crate) entries: Vec<(Prefix, Option<IdentityId>)>,
    /// Identities that began.
    pub(crate) begun: BTreeSet<u32>,
    /// Identities that mean something else than before.
    pub(crate) renamed: BTreeSet<u32>,
    /// Identities that ended.
    pub(crate) ended: BTreeSet<u32>,
}

/// All identities, and who has them.
#[derive(Debug)]
pub(crate) struct Identities {
    hosts: Hosts,
    regions: Regions,
    identities: BTreeMap<u32, Identity>,
    numbers: HashMap<Arc<IdentityKey>, u32>,
    files: Files,
    next: u32,
    dirty_hosts: Vec<IpAddr>,
    /// Regions of which everything inside is to be looked at again.
    dirty_regions: BTreeSet<Prefix>,
}

impl Default for Identities {
    fn default() -> Self {
        Identities {
            hosts: Hosts::default(),
            regions: Regions::default(),
            identities: BTreeMap::new(),
            numbers: HashMap::default(),
            files: Files::default(),
            next: IdentityId::NOBODY.0 + 1,
            dirty_hosts: Vec::new(),
            dirty_regions: BTreeSet::new(),
        }
    }
}

/// What identities are computed from.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) state: &'a State,
    pub(crate) holders: &'a Holders,
    pub(crate) active: &'a Active,
}

impl<'a> Sight<'a> {
    fn endpoint(&self, slot: Slot) -> Option<View<'a>> {
        let view = self.holders.columns.view(slot)?;
        (view.what() == What::Endpoint).then_some(view)
    }

    /// Of several claimants: local first, then the newest, then the greatest name.
    fn owner(&self, claimants: &[Slot]) -> Option<Slot> {
        if let [only] = claimants {
            return Some(*only);
        }
        let strength = |slot: &Slot| {
            let own = self.endpoint(*slot)?.own();
            let created = if on(Fault::OldestClaimWins) {
                u64::MAX - own.created
            } else {
                own.created
            };
            let id: Option<EndpointId> = self.holders.columns.endpoint_id(*slot);
            Some((own.is_attached(), created, id))
        };
        claimants.iter().copied().max_by_key(strength)
    }
}

/// A host or region and what becomes of it.
struct Move {
    prefix: Prefix,
    is_host: bool,
    /// The identity it had.
    was: u32,
    /// Which of the keys it will have; `None` if it goes.
    key: Option<u32>,
    /// The endpoint that will hold it.
    owner: Option<Slot>,
}

/// Different keys, by number, while they are given to hosts and regions.
#[derive(Default)]
struct KeyList {
    keys: Vec<Arc<IdentityKey>>,
    numbers: HashMap<Arc<IdentityKey>, u32>,
    /// The key of a host by the signature of its only holder and the region around it.
    plain: HashMap<(u32, Option<Prefix>), u32>,
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
    /// A number that stands for no identity yet.
    pub(crate) fn fresh(&mut self) -> u32 {
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
        self.files
            .by_selector
            .get(&selector)
            .into_iter()
            .flatten()
            .copied()
    }

    /// The identities inside a network.
    pub(crate) fn within(&self, net: Prefix) -> impl Iterator<Item = u32> {
        let from = self.files.by_net.range((net, 0)..);
        let inside = from.take_while(move |(prefix, _)| net.covers(*prefix));
        inside.map(|(_, number)| *number)
    }

    /// The slot of the endpoint that holds an address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<Slot> {
        self.hosts.owner(address)
    }

    /// Every endpoint that claims an address, for the addresses that several claim.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[Slot])> {
        self.hosts.contested()
    }

    /// The nodes that have an address.
    pub(crate) fn nodes_at(&self, address: IpAddr) -> &[Slot] {
        self.hosts.nodes(address)
    }

    pub(crate) fn claim(&mut self, address: IpAddr, slot: Slot, claims: bool) {
        self.hosts.set_claim(address, slot, claims);
        self.dirty_hosts.push(address);
    }

    pub(crate) fn node(&mut self, address: IpAddr, slot: Slot, has: bool) {
        if on(Fault::NodeIgnored) {
            return;
        }
        self.hosts.set_node(address, slot, has);
        self.dirty_hosts.push(address);
    }

    /// Something about the holders of an address changed.
    pub(crate) fn touch(&mut self, address: IpAddr) {
        self.dirty_hosts.push(address);
    }

    /// A matched network set holds a network, or does so no more, or matches something else.
    pub(crate) fn set(&mut self, net: Prefix, slot: Slot, holds: bool) {
        if on(Fault::NetworkSetIgnored) {
            return;
        }
        if holds {
            self.regions.entry(net).sets.insert(slot);
        } else if let Some(region) = self.regions.get_mut(net) {
            region.sets.remove(&slot);
        }
        self.dirty_regions.insert(net);
    }

    /// An active rule asks for a network, or none does any more.
    pub(crate) fn asked(&mut self, net: Prefix, asked: bool) {
        if asked {
            self.regions.entry(net).asked = true;
        } else if let Some(region) = self.regions.get_mut(net) {
            region.asked = false;
        }
        self.dirty_regions.insert(net);
    }

    /// Whether addresses were touched since the last settling.
    pub(crate) fn is_touched(&self) -> bool {
        !self.dirty_hosts.is_empty()
    }

    /// The families and lengths of the networks that may have entries of their own.
    pub(crate) fn net_lengths(&self) -> impl Iterator<Item = (Family, u8)> {
        self.regions.lengths()
    }

    /// Looks again at everything touched. Says as well whether an address changed hands.
    pub(crate) fn settle(&mut self, sight: Sight<'_>) -> (IdentityChanges, bool) {
        let (hosts, regions) = self.touched();
        let mut keys = KeyList::default();
        let mut moves: Vec<Move> = Vec::with_capacity(hosts.len() + regions.len());
        for prefix in regions {
            let region = self.regions.get(prefix);
            let held = prefix.is_host() && self.hosts.lives(prefix.address());
            // A region of one address that something holds says nothing of its own.
            let key = region.is_some_and(Region::lives).then(|| match held {
                true => IdentityKey::default(),
                false => self.key_of(sight, prefix, &[], None),
            });
            moves.push(Move {
                prefix,
                is_host: false,
                was: region.map_or(0, |r| r.identity),
                key: key.map(|key| keys.add(key)),
                owner: None,
            });
        }
        let mut handed = false;
        for address in hosts {
            let Some(moved) = self.host(sight, address, &mut keys, &mut handed) else {
                continue;
            };
            moves.push(moved);
        }
        let numbers = self.number(&moves, &keys);
        let mut changes = IdentityChanges {
            begun: numbers.begun,
            renamed: numbers.renamed,
            ended: numbers.ended,
            entries: Vec::with_capacity(moves.len()),
        };
        for moved in &moves {
            let number = moved.key.map(|key| numbers.assigned[key as usize]);
            let address = moved.prefix.address();
            match (moved.is_host, number) {
                (false, Some(number)) => self.regions.entry(moved.prefix).identity = number,
                (false, None) => self.regions.remove(moved.prefix),
                (true, Some(number)) => self.hosts.settle(address, moved.owner, number),
                (true, None) => self.hosts.forget(address),
            }
        }
        for moved in &moves {
            let entry = self.entry(moved.prefix);
            changes.entries.push((moved.prefix, entry));
        }
        changes.entries.sort_unstable();
        changes.entries.dedup();
        (changes, handed)
    }

    /// What becomes of a host.
    fn host(
        &self,
        sight: Sight<'_>,
        address: IpAddr,
        keys: &mut KeyList,
        handed: &mut bool,
    ) -> Option<Move> {
        let claim = self.hosts.claim(address)?;
        let prefix = Prefix::host(address);
        let (owner, was_owner, nodes) = match claim {
            Claim::Only(slot, held) => (Some(slot), held.then_some(slot), &[][..]),
            Claim::Crowd(crowd) => (sight.owner(&crowd.claimants), crowd.owner, &*crowd.nodes),
        };
        // An address that becomes a local endpoint's may have live flows of whoever held it
        // before, whether that is known here or not.
        if owner.is_some() && was_owner != owner {
            let local = || {
                let endpoint = owner.and_then(|slot| sight.endpoint(slot));
                endpoint.is_some_and(|endpoint| endpoint.own().is_attached())
            };
            *handed |= was_owner.is_some() || local();
        }
        let key = if !self.hosts.lives(address) {
            None
        } else if let Claim::Only(slot, _) = claim
            && !has_ports(sight, slot)
        {
            let around = self.regions.around(address, prefix.length()).next();
            let signature = sight.holders.columns.signature(slot);
            let aspect = (signature, around.map(|(prefix, _)| prefix));
            Some(match keys.plain.get(&aspect) {
                Some(key) => *key,
                None => {
                    let key = keys.add(self.key_of(sight, prefix, nodes, owner));
                    keys.plain.insert(aspect, key);
                    key
                }
            })
        } else {
            Some(keys.add(self.key_of(sight, prefix, nodes, owner)))
        };
        Some(Move {
            prefix,
            is_host: true,
            was: self.hosts.identity(address).unwrap_or(0),
            key,
            owner,
        })
    }

    /// The hosts and regions to look at again.
    fn touched(&mut self) -> (Vec<IpAddr>, BTreeSet<Prefix>) {
        let mut hosts = core::mem::take(&mut self.dirty_hosts);
        let mut regions = BTreeSet::new();
        for net in core::mem::take(&mut self.dirty_regions) {
            regions.extend(self.regions.within(net));
            self.hosts.within(net, &mut hosts);
            regions.insert(net);
        }
        hosts.sort_unstable();
        hosts.dedup();
        let single = hosts.iter().map(|address| Prefix::host(*address));
        regions.extend(single.filter(|prefix| self.regions.get(*prefix).is_some()));
        (hosts, regions)
    }

    fn key_of(
        &self,
        sight: Sight<'_>,
        prefix: Prefix,
        nodes: &[Slot],
        owner: Option<Slot>,
    ) -> IdentityKey {
        let mut key = IdentityKey::default();
        for (covering, region) in self.regions.around(prefix.address(), prefix.length()) {
            for set in &region.sets {
                key.selectors.extend(sight.holders.matched(*set));
            }
            if region.asked && (key.net.is_none() || on(Fault::LongestPrefixLost)) {
                key.net = Some(covering);
            }
        }
        for node in nodes {
            key.selectors.extend(sight.holders.matched(*node));
        }
        if let Some(owner) = owner {
            key.selectors.extend(sight.holders.matched(owner));
            key.ports = ports(sight, owner);
        }
        key.selectors.sort_unstable();
        key.selectors.dedup();
        key
    }

    /// The identity of the entry that a prefix needs.
    fn entry(&self, prefix: Prefix) -> Option<IdentityId> {
        let region = || self.regions.get(prefix).map(|r| r.identity);
        let host = match prefix.is_host() {
            true => self.hosts.identity(prefix.address()),
            false => None,
        };
        let own = host.or_else(region)?;
        let mut around = (prefix.length().checked_sub(1))
            .into_iter()
            .flat_map(|longest| self.regions.around(prefix.address(), longest));
        let above = around
            .next()
            .map_or(IdentityId::NOBODY.0, |(_, r)| r.identity);
        (own != above).then_some(IdentityId(own))
    }

    /// Gives numbers to what hosts and regions will have, each with what it had. An identity that
    /// nothing has any more hands its number to the new one that takes most of its members.
    fn number(&mut self, moves: &[Move], list: &KeyList) -> Numbered {
        let keys = &list.keys;
        // Only the default key has none of what makes an identity.
        let nobody = list.numbers.get(&IdentityKey::default()).copied();
        let named = |key: Option<u32>| key.filter(|key| Some(*key) != nobody);
        let mut losses: HashMap<u32, usize> = HashMap::default();
        let mut gained = alloc::vec![0_usize; keys.len()];
        for moved in moves {
            *losses.entry(moved.was).or_default() += 1;
            if let Some(key) = named(moved.key) {
                gained[key as usize] += 1;
            }
        }
        losses.remove(&IdentityId::NOBODY.0);
        let mut numbered = Numbered::default();
        for (number, lost) in &losses {
            let Some(identity) = self.identities.get_mut(number) else {
                continue;
            };
            identity.members -= lost;
            if identity.members == 0 && !list.numbers.contains_key(&identity.key) {
                numbered.ended.insert(*number);
            }
        }
        let mut heirs: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        if !numbered.ended.is_empty() {
            for moved in moves {
                let Some(key) = named(moved.key) else {
                    continue;
                };
                if numbered.ended.contains(&moved.was)
                    && !self.numbers.contains_key(&keys[key as usize])
                {
                    *heirs.entry((moved.was, key)).or_default() += 1;
                }
            }
        }
        let mut heirs: Vec<(usize, u32, &Arc<IdentityKey>)> = heirs
            .into_iter()
            .map(|((was, key), members)| (members, was, &keys[key as usize]))
            .collect();
        heirs.sort_by(|a, b| b.cmp(a));
        let mut given: BTreeSet<&Arc<IdentityKey>> = BTreeSet::new();
        for (_, was, key) in heirs {
            if !given.contains(key) && numbered.ended.remove(&was) {
                given.insert(key);
                if let Some(identity) = self.identities.get_mut(&was) {
                    self.numbers.remove(&identity.key);
                    let old = core::mem::replace(&mut identity.key, key.clone());
                    self.files.file(&old, was, false);
                }
                self.numbers.insert(key.clone(), was);
                self.files.file(key, was, true);
                numbered.renamed.insert(was);
            }
        }
        for number in &numbered.ended {
            if let Some(gone) = self.identities.remove(number) {
                self.numbers.remove(&gone.key);
                self.files.file(&gone.key, *number, false);
            }
        }
        numbered.assigned = alloc::vec![IdentityId::NOBODY.0; keys.len()];
        for (at, (key, members)) in keys.iter().zip(gained).enumerate() {
            if members == 0 {
                continue;
            }
            let number = match self.numbers.get(key) {
                Some(number) => *number,
                None => {
                    let number = self.fresh();
                    self.numbers.insert(key.clone(), number);
                    let identity = Identity {
                        key: key.clone(),
                        members: 0,
                    };
                    self.identities.insert(number, identity);
                    self.files.file(key, number, true);
                    numbered.begun.insert(number);
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
struct Numbered {
    /// The number of each key.
    assigned: Vec<u32>,
    begun: BTreeSet<u32>,
    renamed: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

impl Files {
    /// Files an identity under what it matches, or takes it out.
    fn file(&mut self, key: &IdentityKey, number: u32, there: bool) {
        for selector in &key.selectors {
            let under = self.by_selector.entry(*selector).or_default();
            match there {
                true => under.insert(number),
                false => under.remove(&number),
            };
            if under.is_empty() {
                self.by_selector.remove(selector);
            }
        }
        if let Some(net) = key.net {
            match there {
                true => self.by_net.insert((net, number)),
                false => self.by_net.remove(&(net, number)),
            };
        }
    }
}

/// Whether the named ports of a holder may matter.
fn has_ports(sight: Sight<'_>, owner: Slot) -> bool {
    let endpoint = sight.endpoint(owner).and_then(|view| view.common());
    endpoint.is_some_and(|endpoint| !endpoint.ports.is_empty())
}

fn ports(sight: Sight<'_>, owner: Slot) -> Vec<(Str, Protocol, u16)> {
    let Some(endpoint) = sight.endpoint(owner).and_then(|view| view.common()) else {
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
    sight.active.ports().filter_map(number).collect()
}
