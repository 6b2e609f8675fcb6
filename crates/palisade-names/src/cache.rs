//! The cache: names, their addresses, and the workloads that asked.

use crate::{NameLimits, StoredAddress, StoredName};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use palisade_model::{DomainName, EndpointId, Labels, NetworkSet, NetworkSetKind, Prefix};

/// Whether flows use an address: asked before an address goes.
pub trait ConnectionLookup {
    /// Whether a flow between a workload and an address is open.
    fn has_connection(&self, workload: &EndpointId, address: IpAddr) -> bool;
}

/// What a workload learnt: the addresses of the name that it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAnswer {
    /// The name in the question; never one of the names that it is an alias of.
    pub name: DomainName,
    /// The workload that asked.
    pub workload: EndpointId,
    /// The addresses of the answer.
    pub addresses: Vec<AnsweredAddress>,
}

/// An address of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnsweredAddress {
    /// The address.
    pub address: IpAddr,
    /// For how long the answer holds: the least TTL of the records that lead to it.
    pub ttl: Duration,
}

/// What happened to addresses since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Addresses that were added.
    pub added: u64,
    /// Addresses whose time was over.
    pub expired: u64,
    /// Addresses that a bound removed before their time.
    pub evicted: u64,
}

/// One address of a name, as one workload holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldAddress {
    address: IpAddr,
    workload: WorkloadNumber,
    /// Milliseconds since the Unix epoch.
    expires: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WorkloadNumber(u32);

/// A workload that holds addresses.
#[derive(Clone, Debug)]
struct WorkloadEntry {
    id: EndpointId,
    /// The names whose addresses it holds, each with the time at which the first of them expires.
    names: BTreeSet<(u64, NameNumber)>,
    address_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameNumber(u32);

/// The addresses of names.
#[derive(Clone, Debug)]
pub struct NameCache {
    limits: NameLimits,
    names: BTreeMap<DomainName, NameNumber>,
    /// By number; a name that has no address is in neither map.
    addresses: BTreeMap<NameNumber, (DomainName, Vec<HeldAddress>)>,
    workload_numbers: BTreeMap<EndpointId, WorkloadNumber>,
    workloads: BTreeMap<WorkloadNumber, WorkloadEntry>,
    /// When the first address of each workload expires.
    deadlines: BTreeSet<(u64, WorkloadNumber)>,
    address_count: usize,
    next_number: u32,
    counts: NameCounts,
    /// The workloads of which a bound removed addresses, until they are taken.
    evicted: BTreeSet<EndpointId>,
}

impl NameCache {
    /// An empty cache.
    pub fn new(limits: NameLimits) -> Self {
        NameCache {
            limits,
            names: BTreeMap::new(),
            addresses: BTreeMap::new(),
            workload_numbers: BTreeMap::new(),
            workloads: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            address_count: 0,
            next_number: 0,
            counts: NameCounts::default(),
            evicted: BTreeSet::new(),
        }
    }

    /// The bounds.
    pub fn limits(&self) -> &NameLimits {
        &self.limits
    }

    /// Takes in an answer. Returns the names whose addresses changed: the name of the answer, and those of which a
    /// bound removed addresses.
    pub fn learn(
        &mut self,
        now: u64,
        answer: &NameAnswer,
        connections: &impl ConnectionLookup,
    ) -> BTreeSet<DomainName> {
        let mut changed = BTreeSet::new();
        if answer.addresses.is_empty() {
            return changed;
        }
        let name = self.name_number(&answer.name);
        let workload = self.workload_number(&answer.workload);
        // Of more than may be held for one name, the first are taken: what came and went at once would only cost time.
        let taken = answer.addresses.iter().take(self.limits.addresses_of_name);
        if let Some((_, entries)) = self.addresses.get_mut(&name).filter(|(_, e)| e.is_empty()) {
            entries.reserve_exact(taken.len());
        }
        for answered in taken {
            let expires = now.saturating_add(to_millis(self.limits.life(answered.ttl)));
            if self.hold(name, workload, answered.address, expires) {
                changed.insert(answer.name.clone());
            }
        }
        self.enforce_limits(name, workload, connections, &mut changed);
        changed
    }

    /// Removes what expired and is in use by no flow. Returns the names whose addresses changed.
    pub fn expire(
        &mut self,
        now: u64,
        connections: &impl ConnectionLookup,
    ) -> BTreeSet<DomainName> {
        let mut changed = BTreeSet::new();
        while let Some((expires, workload)) = self.deadlines.first().copied() {
            let Some((name, address)) = self.first_held(workload).filter(|_| expires <= now) else {
                break;
            };
            if self.has_connection(connections, workload, address) {
                let later = now.saturating_add(to_millis(self.limits.recheck).max(1));
                self.hold(name, workload, address, later);
            } else {
                self.counts.expired += 1;
                self.release(name, workload, address, &mut changed);
            }
        }
        changed
    }

    /// Forgets what a workload learnt: it is gone. Returns the names whose addresses changed.
    pub fn remove_workload(&mut self, workload: &EndpointId) -> BTreeSet<DomainName> {
        let mut changed = BTreeSet::new();
        let Some(number) = self.workload_numbers.get(workload).copied() else {
            return changed;
        };
        while let Some((name, address)) = self.first_held(number) {
            self.release(name, number, address, &mut changed);
        }
        changed
    }

    /// The workloads that hold addresses.
    pub fn workloads(&self) -> impl Iterator<Item = &EndpointId> {
        self.workload_numbers.keys()
    }

    /// The workloads of which a bound removed addresses since the last call.
    pub fn take_evicted(&mut self) -> BTreeSet<EndpointId> {
        core::mem::take(&mut self.evicted)
    }

    /// When [`NameCache::expire`] has something to do next, in milliseconds since the Unix epoch.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(expires, ..)| *expires)
    }

    /// How many addresses are held, each once for each name and workload.
    pub fn address_count(&self) -> usize {
        self.address_count
    }

    /// How many names have addresses.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// What happened so far.
    pub fn counts(&self) -> NameCounts {
        self.counts
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &DomainName> {
        self.names.keys()
    }

    /// A name with its addresses; `None` if it has none.
    pub fn entry(&self, name: &DomainName) -> Option<StoredName> {
        let (name, entries) = self.addresses.get(self.names.get(name)?)?;
        let mut addresses: Vec<StoredAddress> = entries
            .iter()
            .filter_map(|entry| self.stored(entry))
            .collect();
        addresses.sort_unstable();
        Some(StoredName {
            name: name.clone(),
            addresses,
        })
    }

    /// The network set of a name: the object by which the engine knows its addresses. `None` if it has none.
    pub fn network_set(&self, name: &DomainName) -> Option<NetworkSet> {
        let (name, entries) = self.addresses.get(self.names.get(name)?)?;
        let nets: BTreeSet<Prefix> = entries
            .iter()
            .map(|entry| Prefix::host(entry.address))
            .collect();
        Some(NetworkSet {
            id: name.network_set_id(),
            kind: NetworkSetKind::DomainName,
            labels: Labels::new(),
            nets: nets.into_iter().collect(),
        })
    }

    /// Everything that is held, to be stored.
    pub fn store(&self) -> Vec<StoredName> {
        self.names
            .keys()
            .filter_map(|name| self.entry(name))
            .collect()
    }

    /// A cache with what was stored. What expired meanwhile goes with the next [`NameCache::expire`], since a flow may
    /// use it; bounds hold as for answers, with the last to expire staying.
    pub fn restore(limits: NameLimits, stored: impl IntoIterator<Item = StoredName>) -> Self {
        let mut cache = NameCache::new(limits);
        for StoredName { name, addresses } in stored {
            for StoredAddress {
                address,
                workload,
                expires,
            } in addresses
            {
                let number = cache.name_number(&name);
                let workload = cache.workload_number(&workload);
                cache.hold(number, workload, address, expires);
                cache.enforce_limits(number, workload, &NoUse, &mut BTreeSet::new());
            }
        }
        cache.counts = NameCounts::default();
        cache.evicted.clear();
        cache
    }

    fn stored(&self, entry: &HeldAddress) -> Option<StoredAddress> {
        Some(StoredAddress {
            address: entry.address,
            workload: self.workloads.get(&entry.workload)?.id.clone(),
            expires: entry.expires,
        })
    }

    fn has_connection(
        &self,
        connections: &impl ConnectionLookup,
        workload: WorkloadNumber,
        address: IpAddr,
    ) -> bool {
        let entry = self.workloads.get(&workload);
        entry.is_some_and(|entry| connections.has_connection(&entry.id, address))
    }

    fn new_number(&mut self) -> u32 {
        // Numbers are those of what is held, so there are fewer than 2³² at once; one that is taken is skipped.
        loop {
            let number = self.next_number;
            self.next_number = number.wrapping_add(1);
            if !self.addresses.contains_key(&NameNumber(number))
                && !self.workloads.contains_key(&WorkloadNumber(number))
            {
                return number;
            }
        }
    }

    fn name_number(&mut self, name: &DomainName) -> NameNumber {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = NameNumber(self.new_number());
        self.names.insert(name.clone(), number);
        self.addresses.insert(number, (name.clone(), Vec::new()));
        number
    }

    fn workload_number(&mut self, workload: &EndpointId) -> WorkloadNumber {
        if let Some(number) = self.workload_numbers.get(workload) {
            return *number;
        }
        let number = WorkloadNumber(self.new_number());
        self.workload_numbers.insert(workload.clone(), number);
        let entry = WorkloadEntry {
            id: workload.clone(),
            names: BTreeSet::new(),
            address_count: 0,
        };
        self.workloads.insert(number, entry);
        number
    }

    /// Holds an address until a time, or longer if it was already; whether the name has an address more by it.
    fn hold(
        &mut self,
        name: NameNumber,
        workload: WorkloadNumber,
        address: IpAddr,
        expires: u64,
    ) -> bool {
        let before = self.first_expiry(name, workload);
        let Some((_, entries)) = self.addresses.get_mut(&name) else {
            return false;
        };
        let is_new_address = entries.iter().all(|known| known.address != address);
        let is_same =
            |known: &&mut HeldAddress| known.address == address && known.workload == workload;
        match entries.iter_mut().find(is_same) {
            Some(known) => known.expires = expires.max(known.expires),
            None => {
                entries.push(HeldAddress {
                    address,
                    workload,
                    expires,
                });
                self.counts.added += 1;
                self.address_count += 1;
                if let Some(entry) = self.workloads.get_mut(&workload) {
                    entry.address_count += 1;
                }
            }
        }
        self.update_deadlines(name, workload, before);
        is_new_address
    }

    /// The addresses of a name that a workload holds.
    fn held(
        &self,
        name: NameNumber,
        workload: WorkloadNumber,
    ) -> impl Iterator<Item = &HeldAddress> {
        let entries = self.addresses.get(&name).map(|(_, entries)| entries);
        let entries = entries.into_iter().flatten();
        entries.filter(move |entry| entry.workload == workload)
    }

    /// When the first of the addresses of a name expires that a workload holds.
    fn first_expiry(&self, name: NameNumber, workload: WorkloadNumber) -> Option<u64> {
        self.held(name, workload).map(|entry| entry.expires).min()
    }

    /// Files a name of a workload by the time at which its first address expires, which was another one before, and the
    /// workload by that of its first name.
    fn update_deadlines(
        &mut self,
        name: NameNumber,
        workload: WorkloadNumber,
        before: Option<u64>,
    ) {
        let after = self.first_expiry(name, workload);
        let Some(WorkloadEntry { names, .. }) = self.workloads.get_mut(&workload) else {
            return;
        };
        if before == after {
            return;
        }
        let deadline = |names: &BTreeSet<(u64, NameNumber)>| Some((names.first()?.0, workload));
        let earlier = deadline(names);
        if let Some(before) = before {
            names.remove(&(before, name));
        }
        names.extend(after.map(|after| (after, name)));
        let later = deadline(names);
        if earlier != later {
            if let Some(earlier) = earlier {
                self.deadlines.remove(&earlier);
            }
            self.deadlines.extend(later);
        }
    }

    /// Removes an address of a workload, and the name and the workload with their last.
    fn release(
        &mut self,
        name: NameNumber,
        workload: WorkloadNumber,
        address: IpAddr,
        changed: &mut BTreeSet<DomainName>,
    ) {
        let before = self.first_expiry(name, workload);
        let Some((text, entries)) = self.addresses.get_mut(&name) else {
            return;
        };
        let is_it = |known: &HeldAddress| known.address == address && known.workload == workload;
        let Some(at) = entries.iter().position(is_it) else {
            return;
        };
        entries.swap_remove(at);
        if entries.iter().all(|known| known.address != address) {
            changed.insert(text.clone());
        }
        if entries.is_empty() {
            let text = text.clone();
            self.names.remove(&text);
            self.addresses.remove(&name);
        }
        self.address_count -= 1;
        self.update_deadlines(name, workload, before);
        let Some(entry) = self.workloads.get_mut(&workload) else {
            return;
        };
        entry.address_count -= 1;
        if entry.address_count == 0
            && let Some(gone) = self.workloads.remove(&workload)
        {
            self.workload_numbers.remove(&gone.id);
        }
    }

    /// The address of a workload that expires first.
    fn first_held(&self, workload: WorkloadNumber) -> Option<(NameNumber, IpAddr)> {
        let (expires, name) = self.workloads.get(&workload)?.names.first().copied()?;
        let mut entries = self.held(name, workload);
        let first = entries.find(|entry| entry.expires == expires)?;
        Some((name, first.address))
    }

    /// Removes what is too much after an answer for a name to a workload: of that name, of that workload, of all.
    fn enforce_limits(
        &mut self,
        name: NameNumber,
        workload: WorkloadNumber,
        connections: &impl ConnectionLookup,
        changed: &mut BTreeSet<DomainName>,
    ) {
        let limits = &self.limits;
        let of_name = self.count_of_name(name, workload);
        let excess = of_name.saturating_sub(limits.addresses_of_name);
        let of_workload = self.count_of_workload(workload) - excess;
        let further = of_workload.saturating_sub(limits.addresses_of_workload);
        self.evict(workload, Some(name), excess, connections, changed);
        self.evict(workload, None, further, connections, changed);
        while self.address_count() > self.limits.addresses {
            // Who holds most pays, so that a flood costs whoever sends it.
            let count = |(_, entry): &(&WorkloadNumber, &WorkloadEntry)| entry.address_count;
            let Some(number) = self
                .workloads
                .iter()
                .max_by_key(count)
                .map(|(number, _)| *number)
            else {
                return;
            };
            self.evict(number, None, 1, connections, changed);
        }
    }

    fn count_of_name(&self, name: NameNumber, workload: WorkloadNumber) -> usize {
        self.held(name, workload).count()
    }

    fn count_of_workload(&self, workload: WorkloadNumber) -> usize {
        self.workloads
            .get(&workload)
            .map_or(0, |entry| entry.address_count)
    }

    /// Removes so many addresses of a workload: those that expire first and that no flow uses; if flows use all that
    /// were looked at, the first of them. Looks at all at once, since an answer may have thousands.
    fn evict(
        &mut self,
        workload: WorkloadNumber,
        only: Option<NameNumber>,
        excess: usize,
        connections: &impl ConnectionLookup,
        changed: &mut BTreeSet<DomainName>,
    ) {
        let Some(entry) = self.workloads.get(&workload).filter(|_| excess > 0) else {
            return;
        };
        let looks = excess.saturating_add(MAX_LOOKS);
        let mut candidates: Vec<(u64, NameNumber, IpAddr)> = Vec::new();
        let names = entry.names.iter().copied();
        for (expires, name) in names.filter(|(_, name)| only.is_none_or(|only| only == *name)) {
            // What follows expires later than enough of these.
            if candidates.len() >= looks
                && candidates
                    .iter()
                    .filter(|(first, ..)| *first < expires)
                    .count()
                    >= looks
            {
                break;
            }
            let entries = self.held(name, workload);
            candidates.extend(entries.map(|entry| (entry.expires, name, entry.address)));
        }
        candidates.sort_unstable();
        candidates.truncate(looks);
        let (used, unused): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|(.., address)| self.has_connection(connections, workload, *address));
        self.evicted.insert(entry.id.clone());
        for (_, name, address) in unused.into_iter().chain(used).take(excess) {
            self.counts.evicted += 1;
            self.release(name, workload, address, changed);
        }
    }
}

/// How many addresses an eviction asks about: a workload whose oldest addresses are all in use pays with the oldest.
const MAX_LOOKS: usize = 64;

/// No address is in use: of an earlier process nothing is known yet.
struct NoUse;

impl ConnectionLookup for NoUse {
    fn has_connection(&self, _: &EndpointId, _: IpAddr) -> bool {
        false
    }
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
