//! The manager of names: learns, confirms, forgets.
//!
//! Promises: an answer is confirmed only after the policy that has its addresses is in the kernel; what a workload
//! learnt goes with it; every answer that teaches nothing is counted with its reason. Never: waits for the kernel.

use crate::answer_link::{Confirmation, OfferedAnswer, ProxyConnections};
use crate::connection_list::{ConnectionQuery, ConnectionSnapshot};
use crate::name_journal::{NameJournal, stored_answer};
use crate::server_trust::ServerTrust;
use palisade_config::DnsConfig;
use palisade_enforcer::policy_state::PolicyState;
use palisade_model::{DomainName, EndpointId, Object, ObjectKey, Prefix, Update};
use palisade_names::{
    AnsweredAddress, ConnectionLookup, NameAnswer, NameCache, NameCounts, NameLimits, StoredName,
};
use palisade_node::clock::Clock;
use palisade_proxy::AnswerOffer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after an address has expired connections are listed, so that one list serves many.
const EXPIRY_DELAY: Duration = Duration::from_secs(5);
/// How long the answer of the list of connections is waited for before it is asked for again.
const LIST_PATIENCE: Duration = Duration::from_secs(30);
/// What stays of servers that may not teach, for the status.
const MAX_FOREIGN_SERVERS: usize = 20;

/// What happened to answers that the proxy offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearningCounts {
    /// Answers that gave a name addresses.
    pub learnt: u64,
    /// Answers of servers that may not teach.
    pub foreign: u64,
    /// Answers to addresses that no workload has.
    pub unowned: u64,
    /// Addresses in networks that no answer may open.
    pub excluded: u64,
}

/// The names of this node. See the module's description.
pub struct NameManager {
    cache: NameCache,
    trust: ServerTrust,
    excluded: Vec<Prefix>,
    journal: NameJournal,
    clock: Arc<dyn Clock>,
    /// The proxies that are connected.
    pub proxies: ProxyConnections,
    /// The answers whose addresses the kernel does not have yet.
    unconfirmed: Vec<Confirmation>,
    clients: KnownClients,
    connections: ConnectionWatch,
    counts: LearningCounts,
    /// Servers that may not teach and did answer, with the number of their answers.
    foreign_servers: BTreeMap<IpAddr, u64>,
    /// The policies that judge DNS queries by name.
    dns_policies: BTreeSet<palisade_model::PolicyId>,
}

/// Of whom proxies remember what was confirmed.
#[derive(Default)]
struct KnownClients {
    /// The addresses by which each workload asked.
    of_workload: BTreeMap<EndpointId, BTreeSet<IpAddr>>,
    /// Clients of which the proxies remember more than is in force; they are told after what is unconfirmed.
    withdrawn: BTreeSet<IpAddr>,
}

impl KnownClients {
    fn remove_workload(&mut self, workload: &EndpointId) {
        let clients = self.of_workload.remove(workload);
        self.withdrawn.extend(clients.unwrap_or_default());
    }
}

/// What is known of connections.
#[derive(Default)]
struct ConnectionWatch {
    /// The last list.
    list: ConnectionSnapshot,
    /// Asks for another; `None`: there is none.
    query: Option<ConnectionQuery>,
    /// When the one that is awaited was asked for.
    asked_at: Option<Instant>,
}

/// Whether connections use addresses, as the last list has them.
struct UsedAddresses<'a> {
    connections: &'a ConnectionSnapshot,
    policy: &'a PolicyState,
}

impl ConnectionLookup for UsedAddresses<'_> {
    fn has_connection(&self, workload: &EndpointId, address: IpAddr) -> bool {
        let endpoint = self.policy.engine.endpoint(workload);
        endpoint.is_some_and(|endpoint| {
            let mut sources = endpoint.addresses.iter();
            sources.any(|source| self.connections.has(*source, address))
        })
    }
}

/// The bounds that the configuration sets.
fn name_limits(config: &DnsConfig) -> NameLimits {
    let addresses = config.max_addresses as usize;
    NameLimits {
        min_ttl: Duration::from_secs(config.min_ttl.into()),
        addresses_of_name: (addresses / 10).max(1),
        addresses_of_workload: addresses,
        addresses: addresses.saturating_mul(10),
        ..NameLimits::default()
    }
}

impl NameManager {
    /// Knows no name yet.
    pub fn new(
        config: &DnsConfig,
        trust: ServerTrust,
        journal: NameJournal,
        clock: Arc<dyn Clock>,
    ) -> Self {
        NameManager {
            cache: NameCache::new(name_limits(config)),
            trust,
            excluded: config.excluded_networks.clone(),
            journal,
            clock,
            proxies: ProxyConnections::default(),
            unconfirmed: Vec::new(),
            clients: KnownClients::default(),
            connections: ConnectionWatch::default(),
            counts: LearningCounts::default(),
            foreign_servers: BTreeMap::new(),
            dns_policies: BTreeSet::new(),
        }
    }

    /// Asks for lists of connections here from now on; without it every address stays that expires.
    pub fn set_connection_query(&mut self, query: ConnectionQuery) {
        self.connections.query = Some(query);
    }

    /// Reads what an agent before has learnt; the changes for the engine. What has expired meanwhile goes as usual.
    pub fn restore(&mut self) -> Vec<Update> {
        match self.journal.read() {
            Ok((stored, damaged)) => {
                if damaged > 0 {
                    tracing::warn!(damaged, "lines of the journal of names are damaged");
                }
                self.cache = NameCache::restore(self.cache.limits().clone(), stored);
            }
            Err(error) => {
                tracing::warn!(%error, "reading the journal of names failed; addresses from before the restart are lost");
            }
        }
        if self.cache.address_count() > 0 {
            self.journal.replace(&self.cache.store());
        }
        let names: Vec<DomainName> = self.cache.names().cloned().collect();
        self.updates(names)
    }

    /// Takes in what the sources changed; the changes for the engine.
    pub fn observe(&mut self, updates: &[Update]) -> Vec<Update> {
        let mut changed = BTreeSet::new();
        for update in updates {
            match update {
                Update::Delete(ObjectKey::Endpoint(id)) => {
                    changed.extend(self.cache.remove_workload(id));
                    // Another workload may get its addresses.
                    self.clients.remove_workload(id);
                }
                Update::Upsert(Object::Policy(policy)) if policy.reads_dns() => {
                    self.dns_policies.insert(policy.id.clone());
                }
                Update::Upsert(Object::Policy(policy)) => {
                    self.dns_policies.remove(&policy.id);
                }
                Update::Delete(ObjectKey::Policy(id)) => {
                    self.dns_policies.remove(id);
                }
                _ => {}
            }
        }
        if self.unconfirmed.is_empty() {
            self.withdraw();
        }
        self.updates(changed)
    }

    /// Forgets what workloads have learnt that exist no longer; the changes for the engine. The journal keeps it until it is
    /// written anew.
    pub fn forget_absent_workloads(&mut self, policy: &PolicyState) -> Vec<Update> {
        let known = self
            .cache
            .workloads()
            .chain(self.clients.of_workload.keys());
        let absent = known.filter(|id| policy.engine.endpoint(id).is_none());
        let absent: BTreeSet<EndpointId> = absent.cloned().collect();
        let mut changed = BTreeSet::new();
        for workload in absent {
            changed.extend(self.cache.remove_workload(&workload));
            // Another workload may get its addresses.
            self.clients.remove_workload(&workload);
        }
        if self.unconfirmed.is_empty() {
            self.withdraw();
        }
        self.updates(changed)
    }

    /// Takes in answers; the changes for the engine. The answers are released by [`NameManager::confirm`].
    pub fn learn(&mut self, policy: &PolicyState, answers: Vec<OfferedAnswer>) -> Vec<Update> {
        let now = self.now();
        let mut changed = BTreeSet::new();
        for OfferedAnswer {
            offer,
            confirmation,
        } in answers
        {
            self.unconfirmed.push(confirmation);
            let client = offer.client;
            if let Some(answer) = self.accept(policy, offer) {
                self.store(now, &answer);
                let clients = &mut self.clients.of_workload;
                let clients = clients.entry(answer.workload.clone()).or_default();
                clients.insert(client);
                let used = UsedAddresses {
                    connections: &self.connections.list,
                    policy,
                };
                changed.extend(self.cache.learn(now, &answer, &used));
            }
        }
        for workload in self.cache.take_evicted() {
            let clients = self.clients.of_workload.get(&workload);
            self.clients.withdrawn.extend(clients.into_iter().flatten());
        }
        if self.journal.is_overgrown() {
            self.journal.replace(&self.cache.store());
        }
        self.updates(changed)
    }

    /// The answer of an offer, if it may teach.
    fn accept(&mut self, policy: &PolicyState, offer: AnswerOffer) -> Option<NameAnswer> {
        let AnswerOffer {
            client,
            server,
            name,
            addresses,
            ..
        } = offer;
        let Some(workload) = policy.engine.address_owner(client) else {
            self.counts.unowned += 1;
            return None;
        };
        let now = self.clock.monotonic();
        if !self.trust.may_teach(now, policy, &workload, client, server) {
            self.record_foreign(server.ip(), &workload);
            return None;
        }
        let offered = addresses.len();
        let addresses: Vec<AnsweredAddress> = addresses
            .into_iter()
            .filter(|offered| !self.is_excluded(offered.address))
            .map(|offered| AnsweredAddress {
                address: offered.address,
                ttl: Duration::from_secs(offered.ttl_seconds),
            })
            .collect();
        self.counts.excluded += (offered - addresses.len()) as u64;
        self.counts.learnt += u64::from(!addresses.is_empty());
        Some(NameAnswer {
            name,
            workload,
            addresses,
        })
    }

    fn is_excluded(&self, address: IpAddr) -> bool {
        // An IPv4 address in the form of IPv6 is the same.
        let host = Prefix::host(address.to_canonical());
        let of_network = self.excluded.iter().any(|network| network.covers(host));
        of_network || address.is_multicast() || address.is_unspecified()
    }

    fn record_foreign(&mut self, server: IpAddr, workload: &EndpointId) {
        self.counts.foreign += 1;
        let is_known = self.foreign_servers.contains_key(&server);
        if !is_known && self.foreign_servers.len() < MAX_FOREIGN_SERVERS {
            tracing::warn!(%server, %workload, "answers of this DNS server give names no addresses: it is not among dns-servers");
        }
        if is_known || self.foreign_servers.len() < MAX_FOREIGN_SERVERS {
            *self.foreign_servers.entry(server).or_default() += 1;
        }
    }

    /// Writes an answer to the journal, with the times at which its addresses expire.
    fn store(&mut self, now: u64, answer: &NameAnswer) {
        let life = |ttl: Duration| {
            u64::try_from(self.cache.limits().life(ttl).as_millis()).unwrap_or(u64::MAX)
        };
        let addresses = answer.addresses.iter();
        let addresses = addresses.map(|a| (a.address, now.saturating_add(life(a.ttl))));
        let stored = stored_answer(&answer.name, &answer.workload, addresses);
        if !stored.addresses.is_empty() {
            self.journal.append(&stored);
        }
    }

    /// Whether answers wait for [`NameManager::confirm`].
    pub fn has_unconfirmed(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// The kernel holds the policy: the answers are released.
    pub fn confirm(&mut self) {
        for confirmation in self.unconfirmed.drain(..) {
            confirmation.confirm();
        }
        self.withdraw();
    }

    /// Tells the proxies of whom they remember too much.
    fn withdraw(&mut self) {
        for client in std::mem::take(&mut self.clients.withdrawn) {
            self.proxies.withdraw(client);
        }
    }

    /// Asks for the list of connections if an address has expired.
    pub fn ask_for_connections(&mut self) {
        if self.expiry_wait().is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        if let Some(query) = &self.connections.query {
            query.ask();
        }
        self.connections.asked_at = Some(self.clock.monotonic());
    }

    /// When [`NameManager::ask_for_connections`] has something to do; `None`: no address expires.
    pub fn expiry_due(&self) -> Option<Instant> {
        Some(self.clock.monotonic() + self.expiry_wait()?)
    }

    /// How long until it has.
    fn expiry_wait(&self) -> Option<Duration> {
        self.connections.query.as_ref()?;
        if let Some(asked_at) = self.connections.asked_at {
            let again = asked_at + LIST_PATIENCE;
            return Some(again.saturating_duration_since(self.clock.monotonic()));
        }
        let deadline = Duration::from_millis(self.cache.next_deadline()?) + EXPIRY_DELAY;
        Some(deadline.saturating_sub(self.clock.wall()))
    }

    /// Forgets what has expired and no connection of this list uses; the changes for the engine.
    pub fn expire(&mut self, policy: &PolicyState, connections: ConnectionSnapshot) -> Vec<Update> {
        self.connections.asked_at = None;
        self.connections.list = connections;
        let used = UsedAddresses {
            connections: &self.connections.list,
            policy,
        };
        let changed = self.cache.expire(self.now(), &used);
        self.updates(changed)
    }

    /// The names and their addresses, in order.
    pub fn names(&self) -> Vec<StoredName> {
        self.cache.store()
    }

    /// A name and its addresses.
    pub fn name(&self, name: &DomainName) -> Option<StoredName> {
        self.cache.entry(name)
    }

    /// The number of names with addresses, and that of their addresses.
    pub fn sizes(&self) -> (usize, usize) {
        (self.cache.name_count(), self.cache.address_count())
    }

    /// What happened to answers.
    pub fn answer_counts(&self) -> LearningCounts {
        self.counts
    }

    /// What happened to addresses.
    pub fn address_counts(&self) -> NameCounts {
        self.cache.counts()
    }

    /// The servers that may not teach and did answer, with the number of their answers.
    pub fn foreign_servers(&self) -> &BTreeMap<IpAddr, u64> {
        &self.foreign_servers
    }

    /// How many policies judge DNS queries by name.
    pub fn dns_policy_count(&self) -> usize {
        self.dns_policies.len()
    }

    fn updates(&self, names: impl IntoIterator<Item = DomainName>) -> Vec<Update> {
        let update = |name: DomainName| match self.cache.network_set(&name) {
            Some(set) => Update::Upsert(Object::NetworkSet(set)),
            None => Update::Delete(ObjectKey::NetworkSet(name.network_set_id())),
        };
        names.into_iter().map(update).collect()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }
}
