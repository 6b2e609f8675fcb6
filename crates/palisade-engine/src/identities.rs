//! Identities: which addresses no active rule can tell apart.
//!
//! *Hosts* are addresses that endpoints or nodes hold; *regions* are networks that active rules ask
//! for, or that matched network sets hold. Each has an identity: the active selectors its holders
//! match, the longest network asked for around it, and the numbers behind the named ports asked
//! for. Only what was touched is looked at again. An entry of the address table is written only
//! where the next shorter one does not say it already.

use crate::bodies::Active;
use crate::faults::{Fault, on};
use crate::labels::{HolderId, Holders, Slot};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Endpoint, EndpointId, Prefix, Protocol, State, Str};
use palisade_tables::IdentityId;

/// What makes an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdentityKey {
    /// The active selectors that something holding the address matches, sorted.
    pub(crate) selectors: Vec<u32>,
    /// The longest network around it that an active rule asks for.
    pub(crate) net: Option<Prefix>,
    /// The numbers behind the named ports asked for.
    pub(crate) ports: Vec<(Str, Protocol, u16)>,
}

/// An address that something holds.
#[derive(Debug, Default)]
struct Host {
    claimants: Vec<Slot>,
    nodes: Vec<Slot>,
    /// The claimant that holds it, as of the last settling.
    owner: Option<Slot>,
    identity: u32,
}

/// A network that matters.
#[derive(Debug, Default)]
struct Region {
    asked: bool,
    sets: BTreeSet<Slot>,
    identity: u32,
}

#[derive(Debug)]
struct Identity {
    key: IdentityKey,
    /// Hosts and regions that have it.
    members: usize,
}

/// What a settling changed.
#[derive(Debug, Default)]
pub(crate) struct IdentityChanges {
    /// Entries of the address table to look at: the identity, or none.
    pub(crate) entries: BTreeMap<Prefix, Option<IdentityId>>,
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
    hosts: BTreeMap<IpAddr, Host>,
    regions: BTreeMap<Prefix, Region>,
    identities: BTreeMap<u32, Identity>,
    numbers: BTreeMap<IdentityKey, u32>,
    by_selector: BTreeMap<u32, BTreeSet<u32>>,
    next: u32,
    dirty_hosts: BTreeSet<IpAddr>,
    /// Regions of which everything inside is to be looked at again.
    dirty_regions: BTreeSet<Prefix>,
}

impl Default for Identities {
    fn default() -> Self {
        Identities {
            hosts: BTreeMap::new(),
            regions: BTreeMap::new(),
            identities: BTreeMap::new(),
            numbers: BTreeMap::new(),
            by_selector: BTreeMap::new(),
            next: IdentityId::NOBODY.0 + 1,
            dirty_hosts: BTreeSet::new(),
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
    fn endpoint(&self, slot: Slot) -> Option<&'a Endpoint> {
        match self.holders.id(slot)? {
            HolderId::Endpoint(id) => self.state.endpoints.get(id),
            _ => None,
        }
    }

    /// Of several claimants: local first, then the newest, then the greatest name.
    fn owner(&self, claimants: &[Slot]) -> Option<Slot> {
        if let [only] = claimants {
            return Some(*only);
        }
        let strength = |slot: &Slot| {
            let endpoint = self.endpoint(*slot)?;
            let created = if on(Fault::OldestClaimWins) {
                u64::MAX - endpoint.created
            } else {
                endpoint.created
            };
            Some((endpoint.interface.is_some(), created, &endpoint.id))
        };
        claimants.iter().copied().max_by_key(strength)
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
            .map(|(number, of)| (*number, &of.key))
    }

    pub(crate) fn key(&self, number: u32) -> Option<&IdentityKey> {
        self.identities.get(&number).map(|of| &of.key)
    }

    /// The identities that match a selector.
    pub(crate) fn matching(&self, selector: u32) -> impl Iterator<Item = u32> {
        self.by_selector
            .get(&selector)
            .into_iter()
            .flatten()
            .copied()
    }

    /// The endpoint that holds an address.
    pub(crate) fn owner<'a>(&self, sight: Sight<'a>, address: IpAddr) -> Option<&'a EndpointId> {
        let host = self.hosts.get(&address)?;
        match sight.holders.id(host.owner?)? {
            HolderId::Endpoint(id) => Some(id),
            _ => None,
        }
    }

    /// Every endpoint that claims an address, for the addresses that several claim.
    pub(crate) fn contested(&self) -> impl Iterator<Item = (IpAddr, &[Slot])> {
        let many = self.hosts.iter().filter(|(_, h)| h.claimants.len() > 1);
        many.map(|(address, host)| (*address, &*host.claimants))
    }

    /// The nodes that have an address.
    pub(crate) fn nodes_at(&self, address: IpAddr) -> &[Slot] {
        self.hosts.get(&address).map_or(&[], |host| &host.nodes)
    }

    pub(crate) fn claim(&mut self, address: IpAddr, slot: Slot, claims: bool) {
        let host = self.hosts.entry(address).or_default();
        put(&mut host.claimants, slot, claims);
        self.dirty_hosts.insert(address);
    }

    pub(crate) fn node(&mut self, address: IpAddr, slot: Slot, has: bool) {
        if on(Fault::NodeIgnored) {
            return;
        }
        let host = self.hosts.entry(address).or_default();
        put(&mut host.nodes, slot, has);
        self.dirty_hosts.insert(address);
    }

    /// Something about the holders of an address changed.
    pub(crate) fn touch(&mut self, address: IpAddr) {
        self.dirty_hosts.insert(address);
    }

    /// A matched network set holds a network, or does so no more, or matches something else.
    pub(crate) fn set(&mut self, net: Prefix, slot: Slot, holds: bool) {
        if on(Fault::NetworkSetIgnored) {
            return;
        }
        if holds {
            self.regions.entry(net).or_default().sets.insert(slot);
        } else if let Some(region) = self.regions.get_mut(&net) {
            region.sets.remove(&slot);
        }
        self.dirty_regions.insert(net);
    }

    /// An active rule asks for a network, or none does any more.
    pub(crate) fn asked(&mut self, net: Prefix, asked: bool) {
        if asked {
            self.regions.entry(net).or_default().asked = true;
        } else if let Some(region) = self.regions.get_mut(&net) {
            region.asked = false;
        }
        self.dirty_regions.insert(net);
    }

    /// The addresses that were touched since the last settling, inside touched networks or not.
    pub(crate) fn dirty_hosts(&self) -> &BTreeSet<IpAddr> {
        &self.dirty_hosts
    }

    /// Looks again at everything touched. Says as well whether an address changed hands.
    pub(crate) fn settle(&mut self, sight: Sight<'_>) -> (IdentityChanges, bool) {
        let (hosts, regions) = self.touched();
        let mut wanted: Vec<(Prefix, u32, Option<IdentityKey>)> = Vec::new();
        for prefix in regions {
            let was = self.regions.get(&prefix).map_or(0, |r| r.identity);
            let lives = self.regions.get(&prefix).is_some_and(Region::lives);
            let held =
                prefix.is_host() && self.hosts.get(&prefix.address()).is_some_and(Host::lives);
            // A region of one address that something holds says nothing of its own.
            let key = lives.then(|| match held {
                true => IdentityKey::default(),
                false => self.key_of(sight, prefix, None),
            });
            wanted.push((prefix, was, key));
        }
        let mut host_wanted: Vec<(IpAddr, u32, Option<IdentityKey>)> = Vec::new();
        let mut handed = false;
        for address in hosts {
            let Some(host) = self.hosts.get_mut(&address) else {
                continue;
            };
            let owner = sight.owner(&host.claimants);
            let was = core::mem::replace(&mut host.owner, owner);
            // An address that becomes a local endpoint's may have live flows of whoever held it
            // before, whether that is known here or not.
            let local = owner
                .and_then(|slot| sight.endpoint(slot))
                .is_some_and(|endpoint| endpoint.interface.is_some());
            handed |= owner.is_some() && was != owner && (was.is_some() || local);
            let Some(host) = self.hosts.get(&address) else {
                continue;
            };
            let key = host
                .lives()
                .then(|| self.key_of(sight, Prefix::host(address), Some(host)));
            host_wanted.push((address, host.identity, key));
        }
        let numbers = self.number(
            wanted
                .iter()
                .map(|(_, was, key)| (*was, key.as_ref()))
                .chain(host_wanted.iter().map(|(_, was, key)| (*was, key.as_ref()))),
        );
        let mut changes = IdentityChanges {
            begun: numbers.begun,
            renamed: numbers.renamed,
            ended: numbers.ended,
            entries: BTreeMap::new(),
        };
        let mut assigned = numbers.assigned.into_iter();
        let mut prefixes: BTreeSet<Prefix> = BTreeSet::new();
        for (prefix, _, key) in &wanted {
            let number = assigned.next().unwrap_or(0);
            match key {
                Some(_) => self.regions.entry(*prefix).or_default().identity = number,
                None => drop(self.regions.remove(prefix)),
            }
            prefixes.insert(*prefix);
        }
        for (address, _, key) in &host_wanted {
            let number = assigned.next().unwrap_or(0);
            match key {
                Some(_) => self.hosts.entry(*address).or_default().identity = number,
                None => drop(self.hosts.remove(address)),
            }
            prefixes.insert(Prefix::host(*address));
        }
        for prefix in prefixes {
            let entry = self.entry(prefix);
            changes.entries.insert(prefix, entry);
        }
        (changes, handed)
    }

    /// The hosts and regions to look at again.
    fn touched(&mut self) -> (BTreeSet<IpAddr>, BTreeSet<Prefix>) {
        let mut hosts = core::mem::take(&mut self.dirty_hosts);
        let mut regions = BTreeSet::new();
        for net in core::mem::take(&mut self.dirty_regions) {
            let inside = self.regions.range(net..).map(|(prefix, _)| *prefix);
            regions.extend(inside.take_while(|prefix| net.covers(*prefix)));
            let within = self.hosts.range(net.address()..=net.last());
            hosts.extend(within.map(|(address, _)| *address));
            regions.insert(net);
        }
        let single = hosts.iter().map(|address| Prefix::host(*address));
        regions.extend(single.filter(|prefix| self.regions.contains_key(prefix)));
        (hosts, regions)
    }

    fn key_of(&self, sight: Sight<'_>, prefix: Prefix, host: Option<&Host>) -> IdentityKey {
        let mut key = IdentityKey::default();
        let mut at = Some(prefix);
        while let Some(covering) = at {
            if let Some(region) = self.regions.get(&covering) {
                for set in &region.sets {
                    key.selectors.extend(sight.holders.matched(*set));
                }
                if region.asked && (key.net.is_none() || on(Fault::LongestPrefixLost)) {
                    key.net = Some(covering);
                }
            }
            at = covering.parent();
        }
        if let Some(host) = host {
            for node in &host.nodes {
                key.selectors.extend(sight.holders.matched(*node));
            }
            if let Some(owner) = sight.owner(&host.claimants) {
                key.selectors.extend(sight.holders.matched(owner));
                key.ports = ports(sight, owner);
            }
        }
        key.selectors.sort_unstable();
        key.selectors.dedup();
        key
    }

    /// The identity of the entry that a prefix needs.
    fn entry(&self, prefix: Prefix) -> Option<IdentityId> {
        let region = self.regions.get(&prefix).map(|r| r.identity);
        let host = prefix
            .is_host()
            .then(|| self.hosts.get(&prefix.address()))
            .flatten();
        let own = host.map(|h| h.identity).or(region)?;
        let above = prefix.parent().map_or(0, |parent| self.around(parent));
        (own != above).then_some(IdentityId(own))
    }

    /// The identity of the longest region that covers a prefix.
    fn around(&self, prefix: Prefix) -> u32 {
        let mut at = Some(prefix);
        while let Some(covering) = at {
            if let Some(region) = self.regions.get(&covering) {
                return region.identity;
            }
            at = covering.parent();
        }
        IdentityId::NOBODY.0
    }

    /// Gives numbers to what hosts and regions will have, each with what it had. An identity that
    /// nothing has any more hands its number to the new one that takes most of its members.
    fn number<'k>(
        &mut self,
        moves: impl Iterator<Item = (u32, Option<&'k IdentityKey>)> + Clone,
    ) -> Numbered {
        let nobody = IdentityKey::default();
        let mut losses: BTreeMap<u32, usize> = BTreeMap::new();
        let mut gains: BTreeMap<&IdentityKey, usize> = BTreeMap::new();
        for (was, key) in moves.clone() {
            *losses.entry(was).or_default() += 1;
            if let Some(key) = key.filter(|key| **key != nobody) {
                *gains.entry(key).or_default() += 1;
            }
        }
        losses.remove(&IdentityId::NOBODY.0);
        let mut numbered = Numbered::default();
        for (number, lost) in &losses {
            let Some(identity) = self.identities.get_mut(number) else {
                continue;
            };
            identity.members -= lost;
            if identity.members == 0 && !gains.contains_key(&identity.key) {
                numbered.ended.insert(*number);
            }
        }
        let mut heirs: BTreeMap<(u32, &IdentityKey), usize> = BTreeMap::new();
        for (was, key) in moves.clone() {
            let Some(key) = key.filter(|key| **key != nobody) else {
                continue;
            };
            if numbered.ended.contains(&was) && !self.numbers.contains_key(key) {
                *heirs.entry((was, key)).or_default() += 1;
            }
        }
        let mut heirs: Vec<(usize, u32, &IdentityKey)> = heirs
            .into_iter()
            .map(|((was, key), members)| (members, was, key))
            .collect();
        heirs.sort_by(|a, b| b.cmp(a));
        let mut given: BTreeSet<&IdentityKey> = BTreeSet::new();
        for (_, was, key) in heirs {
            if !given.contains(key) && numbered.ended.remove(&was) {
                given.insert(key);
                if let Some(identity) = self.identities.get_mut(&was) {
                    self.numbers.remove(&identity.key);
                    let old = core::mem::replace(&mut identity.key, key.clone());
                    file(&mut self.by_selector, &old, was, false);
                }
                self.numbers.insert(key.clone(), was);
                file(&mut self.by_selector, key, was, true);
                numbered.renamed.insert(was);
            }
        }
        for number in &numbered.ended {
            if let Some(gone) = self.identities.remove(number) {
                self.numbers.remove(&gone.key);
                file(&mut self.by_selector, &gone.key, *number, false);
            }
        }
        for (key, members) in gains {
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
                    file(&mut self.by_selector, key, number, true);
                    numbered.begun.insert(number);
                    number
                }
            };
            if let Some(identity) = self.identities.get_mut(&number) {
                identity.members += members;
            }
        }
        let number = |key: Option<&IdentityKey>| {
            let known = key.and_then(|key| self.numbers.get(key));
            known.copied().unwrap_or(IdentityId::NOBODY.0)
        };
        numbered.assigned = moves.map(|(_, key)| number(key)).collect();
        numbered
    }
}

#[derive(Default)]
struct Numbered {
    assigned: Vec<u32>,
    begun: BTreeSet<u32>,
    renamed: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

impl Host {
    fn lives(&self) -> bool {
        !self.claimants.is_empty() || !self.nodes.is_empty()
    }
}

impl Region {
    fn lives(&self) -> bool {
        self.asked || !self.sets.is_empty()
    }
}

/// Files an identity under the selectors it matches, or takes it out.
fn file(files: &mut BTreeMap<u32, BTreeSet<u32>>, key: &IdentityKey, number: u32, there: bool) {
    for selector in &key.selectors {
        let under = files.entry(*selector).or_default();
        match there {
            true => under.insert(number),
            false => under.remove(&number),
        };
        if under.is_empty() {
            files.remove(selector);
        }
    }
}

fn put(slots: &mut Vec<Slot>, slot: Slot, there: bool) {
    slots.retain(|other| *other != slot);
    if there {
        slots.push(slot);
    }
}

fn ports(sight: Sight<'_>, owner: Slot) -> Vec<(Str, Protocol, u16)> {
    let mut asked = sight.active.ports().peekable();
    if asked.peek().is_none() {
        return Vec::new();
    }
    let Some(endpoint) = sight.endpoint(owner) else {
        return Vec::new();
    };
    if endpoint.ports.is_empty() {
        return Vec::new();
    }
    let number = |(name, protocol): &(Str, Protocol)| {
        let port = endpoint.named_port(name, *protocol)?;
        Some((name.clone(), *protocol, port))
    };
    asked.filter_map(number).collect()
}
