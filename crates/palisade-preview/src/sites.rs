//! The places that recorded ends stand for: pods of the manifests, pods made from what was recorded, addresses.
//!
//! Pods of one workload that no policy of either state can tell apart are one site, and so are addresses outside.
//!
//! Promises: an end that has no place is named with the reason; a made-up address is in as few networks of policies as
//! possible, and nobody else's. Never: judges a flow.

use crate::record::{EndId, Record, to_u32};
use crate::tested_facts::{EndpointFacts, TestedFacts, address_holders};
use palisade_analysis::{ControllerIndex, free_addresses};
use palisade_api::RecordedEnd;
use palisade_model::{
    DomainName, Endpoint, EndpointId, EndpointKind, Family, NetworkSet, NetworkSetKind, ObjectId,
    ObjectKind, Prefix, State, Str,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The number of a site.
pub(crate) type SiteId = u32;

/// A place that a recorded end stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// The endpoint that stands for all pods of the site; `None` for an address.
    pub(crate) endpoint: Option<EndpointId>,
    /// An endpoint beside it that no policy can tell from it, for what pods of a site send to each other.
    pub(crate) twin: Option<EndpointId>,
    /// By family.
    pub(crate) addresses: [Option<IpAddr>; 2],
    /// Those of the twin.
    pub(crate) twin_addresses: [Option<IpAddr>; 2],
    /// Whether its addresses are made up.
    pub(crate) is_address_assumed: bool,
    /// The node of its address, or those of its pods.
    pub(crate) nodes: BTreeSet<Str>,
}

/// What became of a recorded end.
#[derive(Clone, Debug)]
pub(crate) enum LocatedEnd {
    /// It stands for these sites.
    Sites {
        sites: Vec<SiteId>,
        /// Whether it was made from the record alone.
        is_reconstructed: bool,
        /// Whether it is one pod by its name.
        is_single: bool,
    },
    /// It cannot be placed, for this reason.
    Nowhere(String),
}

/// The sites of the ends of a record in two states.
pub(crate) struct SiteTable {
    pub(crate) sites: Vec<Site>,
    /// By the number of the end.
    pub(crate) ends: Vec<LocatedEnd>,
    /// The two states with an endpoint for each site, and no other workloads.
    pub(crate) states: [State; 2],
}

/// What equal sites have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SiteKey {
    Workload {
        /// In both states.
        facts: Box<[EndpointFacts; 2]>,
        /// By family, the interval of its address.
        intervals: [Option<usize>; 2],
    },
    /// An address of a node.
    Node(IpAddr),
    Outside {
        family: Family,
        interval: usize,
        names: BTreeSet<DomainName>,
    },
    /// An unknown address of names.
    Named(BTreeSet<DomainName>),
}

impl SiteTable {
    /// Places the ends of a record in two states, of which the first is the present one.
    pub(crate) fn new(record: &Record, states: [&State; 2], facts: &TestedFacts) -> Self {
        let mut names: BTreeMap<IpAddr, BTreeSet<DomainName>> = BTreeMap::new();
        for end in &record.ends {
            if let Some(address) = outside_address(end) {
                let known = end.names.iter().filter_map(|name| name.parse().ok());
                names.entry(address).or_default().extend(known);
            }
        }
        let mut builder = SiteBuilder {
            states,
            facts,
            pods: states.map(ControllerIndex::new),
            holders: states.map(address_holders),
            names,
            sites: Vec::new(),
            numbers: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            name_sets: Vec::new(),
        };
        let ends: Vec<LocatedEnd> = record.ends.iter().map(|end| builder.place(end)).collect();
        builder.assume_addresses();
        let states = builder.judged_states();
        SiteTable {
            sites: builder.sites,
            ends,
            states,
        }
    }

    pub(crate) fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.get(id as usize)
    }

    pub(crate) fn end(&self, id: EndId) -> Option<&LocatedEnd> {
        self.ends.get(id as usize)
    }
}

/// The address of an end outside, if it is one with a known address.
fn outside_address(end: &RecordedEnd) -> Option<IpAddr> {
    let is_outside = end.namespace.is_none() && end.node.is_none();
    end.address
        .as_ref()
        .filter(|_| is_outside)
        .and_then(|address| address.parse().ok())
}

struct SiteBuilder<'a> {
    states: [&'a State; 2],
    facts: &'a TestedFacts,
    pods: [ControllerIndex<'a>; 2],
    holders: [BTreeMap<IpAddr, &'a Endpoint>; 2],
    /// The recorded names of each address outside.
    names: BTreeMap<IpAddr, BTreeSet<DomainName>>,
    sites: Vec<Site>,
    numbers: BTreeMap<SiteKey, SiteId>,
    /// The endpoints of sites in both states.
    endpoints: BTreeMap<EndpointId, [Endpoint; 2]>,
    /// The sites that names have.
    name_sets: Vec<(SiteId, BTreeSet<DomainName>)>,
}

impl<'a> SiteBuilder<'a> {
    fn place(&mut self, end: &RecordedEnd) -> LocatedEnd {
        let placed = if let Some(namespace) = &end.namespace {
            self.place_workload(end, namespace)
        } else if let Some(node) = &end.node {
            self.place_node(end, node)
        } else {
            self.place_outside(end).map(|site| (vec![site], false))
        };
        match placed {
            Ok((sites, is_reconstructed)) => LocatedEnd::Sites {
                sites,
                is_reconstructed,
                is_single: end.controller.is_none(),
            },
            Err(reason) => LocatedEnd::Nowhere(reason),
        }
    }

    fn place_workload(
        &mut self,
        end: &RecordedEnd,
        namespace: &str,
    ) -> Result<(Vec<SiteId>, bool), String> {
        let (kind, name) = match (&end.controller, &end.name) {
            (Some(controller), _) => (controller.kind.as_str(), controller.name.as_str()),
            (None, Some(name)) => ("Pod", name.as_str()),
            (None, None) => return Err("the record names neither a controller nor a pod".into()),
        };
        let [present, changed] = [0, 1].map(|at: usize| {
            let pods = self.pods.get(at);
            pods.map_or(&[][..], |pods| match &end.controller {
                Some(_) => pods.pods(namespace, kind, name),
                None => pods.named(namespace, name),
            })
        });
        let ids: BTreeSet<&EndpointId> = present.iter().map(|pod| &pod.id).collect();
        let ids: Vec<EndpointId> = match (ids.is_empty(), changed) {
            (true, []) => return self.reconstruct(end, namespace, (kind, name)),
            (true, changed) => changed.iter().map(|pod| pod.id.clone()).collect(),
            (false, []) => return Err(format!("the change removes {namespace}/{name}")),
            (false, _) => ids.into_iter().cloned().collect(),
        };
        let mut pods: Vec<[&Endpoint; 2]> = Vec::new();
        for id in &ids {
            // What only one state has is taken for the same in the other.
            let [old, new] = self.states.map(|state| state.endpoints.get(id));
            pods.extend(old.or(new).zip(new.or(old)).map(|(old, new)| [old, new]));
        }
        // Pods that are not there yet, or no longer, are judged only where there are no others.
        let has_address = |pod: &&[&Endpoint; 2]| {
            let [old, _] = pod;
            self.held_addresses(old).iter().any(Option::is_some)
        };
        let with_address: Vec<[&Endpoint; 2]> = pods.iter().filter(has_address).copied().collect();
        if !with_address.is_empty() {
            pods = with_address;
        }
        let mut sites = Vec::new();
        for pod in pods {
            let site = self.add_pod(pod, false);
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
        Ok((sites, false))
    }

    /// A pod from what was recorded of it.
    fn reconstruct(
        &mut self,
        end: &RecordedEnd,
        namespace: &str,
        (kind, name): (&str, &str),
    ) -> Result<(Vec<SiteId>, bool), String> {
        let gone = |what: &str| Err(format!("{namespace}/{name} ({kind}) is gone, and {what}"));
        let namespaces = self.states.map(|state| &state.namespaces);
        let is_gone =
            |names: &BTreeMap<Str, _>| !names.is_empty() && !names.contains_key(namespace);
        if namespaces.iter().any(|names| is_gone(names)) {
            return gone("its namespace as well, with the labels of it");
        }
        if self.facts.has_account_tests {
            return gone("policies test service accounts, which are not recorded");
        }
        if self.facts.has_node_tests {
            return gone("policies test the nodes of pods, which are not recorded");
        }
        let id = ObjectId {
            namespace: Some(namespace.into()),
            name: name.into(),
            kind: ObjectKind::new("recorded", kind),
        };
        let labels = end.labels.iter();
        let pod = Endpoint {
            labels: labels
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            ..Endpoint::pod(id)
        };
        let site = self.add_pod([&pod, &pod], end.controller.is_some());
        Ok((vec![site], true))
    }

    /// By family, the first address of an endpoint that is its own in both states.
    fn held_addresses(&self, pod: &Endpoint) -> [Option<IpAddr>; 2] {
        let is_held = |address: &IpAddr| {
            let mut states = self.holders.iter().zip(self.states);
            states.all(|(holders, state)| {
                let holder = holders.get(address);
                !state.endpoints.contains_key(&pod.id)
                    || holder.is_some_and(|holder| holder.id == pod.id)
            })
        };
        Family::BOTH.map(|family| {
            let own = pod.addresses.iter().filter(|_| !pod.is_template());
            let mut own = own.filter(|a| Family::of(**a) == family);
            own.find(|address| is_held(address)).copied()
        })
    }

    /// The site of an endpoint, as it is in each state.
    fn add_pod(&mut self, pod: [&Endpoint; 2], has_replicas: bool) -> SiteId {
        let [old, new] = pod;
        let addresses = self.held_addresses(old);
        let [first, second] = self.states;
        let key = SiteKey::Workload {
            facts: Box::new([
                self.facts.endpoint_facts(first, old),
                self.facts.endpoint_facts(second, new),
            ]),
            intervals: addresses.map(|address| Some(self.facts.interval(address?))),
        };
        let known = self.numbers.get(&key).copied();
        let number = known.unwrap_or_else(|| self.new_site(key));
        let Some(site) = self.sites.get_mut(number as usize) else {
            return number;
        };
        site.nodes.extend(old.node.clone());
        let as_pod =
            |endpoint: &Endpoint, id: &EndpointId, addresses: [Option<IpAddr>; 2]| Endpoint {
                id: id.clone(),
                kind: EndpointKind::POD,
                interface: None,
                addresses: addresses.into_iter().flatten().collect(),
                ..endpoint.clone()
            };
        if site.endpoint.is_none() {
            site.endpoint = Some(old.id.clone());
            site.addresses = addresses;
            let pods = [
                as_pod(old, &old.id, addresses),
                as_pod(new, &old.id, addresses),
            ];
            self.endpoints.insert(old.id.clone(), pods);
            if old.is_template() || has_replicas {
                let id = ObjectId {
                    kind: ObjectKind::new("twin", old.id.kind.name()),
                    ..old.id.clone()
                };
                site.twin = Some(id.clone());
                let pods = [as_pod(old, &id, [None; 2]), as_pod(new, &id, [None; 2])];
                self.endpoints.insert(id, pods);
            }
        } else if site.twin.is_none() && site.endpoint.as_ref() != Some(&old.id) {
            site.twin = Some(old.id.clone());
            site.twin_addresses = addresses;
            let pods = [
                as_pod(old, &old.id, addresses),
                as_pod(new, &old.id, addresses),
            ];
            self.endpoints.insert(old.id.clone(), pods);
        }
        number
    }

    fn place_node(&mut self, end: &RecordedEnd, node: &str) -> Result<(Vec<SiteId>, bool), String> {
        let mut own = Vec::new();
        for state in self.states {
            let Some(found) = state.nodes.get(node) else {
                return Err(format!("there is no node {node} any more"));
            };
            own.extend(found.addresses.iter().copied());
        }
        own.sort_unstable();
        own.dedup();
        let recorded = end.address.as_ref();
        let recorded: Option<IpAddr> = recorded.and_then(|address| address.parse().ok());
        let addresses = match recorded {
            Some(address) if own.contains(&address) => vec![address],
            Some(address) => {
                return Err(format!("{address} is no address of node {node} any more"));
            }
            None => own,
        };
        if addresses.is_empty() {
            return Err(format!("no address of node {node} is known"));
        }
        let mut sites = Vec::new();
        for address in addresses {
            let site = self.add_address(SiteKey::Node(address), Some(address));
            if let Some(site) = self.sites.get_mut(site as usize) {
                site.nodes.insert(node.into());
            }
            sites.push(site);
        }
        Ok((sites, false))
    }

    fn place_outside(&mut self, end: &RecordedEnd) -> Result<SiteId, String> {
        let Some(address) = outside_address(end) else {
            let names: BTreeSet<DomainName> = end
                .names
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect();
            if names.is_empty() {
                return Err("its address is not recorded: there were too many to keep each".into());
            }
            let site = self.add_address(SiteKey::Named(names.clone()), None);
            self.name_sets.push((site, names));
            return Ok(site);
        };
        for holders in &self.holders {
            if let Some(holder) = holders.get(&address).filter(|holder| !holder.is_host()) {
                return Err(format!("{address} is the address of {} now", holder.id));
            }
        }
        let names = self.names.get(&address).cloned().unwrap_or_default();
        let key = SiteKey::Outside {
            family: Family::of(address),
            interval: self.facts.interval(address),
            names: names.clone(),
        };
        let is_new = !self.numbers.contains_key(&key);
        let site = self.add_address(key, Some(address));
        if is_new && !names.is_empty() {
            self.name_sets.push((site, names));
        }
        Ok(site)
    }

    fn add_address(&mut self, key: SiteKey, address: Option<IpAddr>) -> SiteId {
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let number = self.new_site(key);
        if let Some((site, address)) = self.sites.get_mut(number as usize).zip(address) {
            site.addresses[Family::of(address) as usize] = Some(address);
        }
        number
    }

    fn new_site(&mut self, key: SiteKey) -> SiteId {
        let number = to_u32(self.sites.len());
        self.sites.push(Site::default());
        self.numbers.insert(key, number);
        number
    }

    /// Gives addresses to the sites that have none.
    fn assume_addresses(&mut self) {
        let mut lacking = 0;
        for site in &mut self.sites {
            site.is_address_assumed = site.addresses.iter().all(Option::is_none);
            if site.is_address_assumed {
                lacking += 1 + usize::from(site.twin.is_some());
            }
        }
        if lacking == 0 {
            return;
        }
        // Recorded addresses may lie anywhere.
        let count = to_u32(lacking + self.names.len());
        for family in Family::BOTH {
            let free = free_addresses(family, &self.states, count).unwrap_or_default();
            let mut free = free.into_iter().filter(|a| !self.names.contains_key(a));
            for site in self.sites.iter_mut().filter(|site| site.is_address_assumed) {
                site.addresses[family as usize] = free.next();
                if site.twin.is_some() {
                    site.twin_addresses[family as usize] = free.next();
                }
            }
        }
        for site in &self.sites {
            let own = [
                (&site.endpoint, site.addresses),
                (&site.twin, site.twin_addresses),
            ];
            for (id, addresses) in own {
                let pods = id.as_ref().and_then(|id| self.endpoints.get_mut(id));
                for pod in pods.into_iter().flatten() {
                    pod.addresses = addresses.into_iter().flatten().collect();
                }
            }
        }
    }

    /// The states with the endpoints of sites alone, and with the addresses of names.
    fn judged_states(&self) -> [State; 2] {
        [0, 1].map(|at: usize| {
            let Some(state) = self.states.get(at) else {
                return State::default();
            };
            let hosts = state.endpoints.iter().filter(|(_, e)| e.is_host());
            let hosts = hosts.map(|(id, host)| (id.clone(), host.clone()));
            let pods = self.endpoints.iter().filter_map(|(id, pods)| {
                let pod = pods.get(at)?;
                Some((id.clone(), pod.clone()))
            });
            let mut judged = State {
                endpoints: hosts.chain(pods).collect(),
                host_node: None,
                ..without_endpoints(state)
            };
            for (site, names) in &self.name_sets {
                let site = self.sites.get(*site as usize);
                let addresses = site.into_iter().flat_map(|site| site.addresses).flatten();
                let addresses: Vec<Prefix> = addresses.map(Prefix::host).collect();
                names
                    .iter()
                    .for_each(|name| add_name(&mut judged, name, &addresses));
            }
            judged
        })
    }
}

/// A copy of a state without its endpoints, which are most of it.
fn without_endpoints(state: &State) -> State {
    State {
        tiers: state.tiers.clone(),
        policies: state.policies.clone(),
        profiles: state.profiles.clone(),
        namespaces: state.namespaces.clone(),
        service_accounts: state.service_accounts.clone(),
        network_sets: state.network_sets.clone(),
        nodes: state.nodes.clone(),
        services: state.services.clone(),
        ..State::default()
    }
}

/// Gives a name these addresses as well.
fn add_name(state: &mut State, name: &DomainName, addresses: &[Prefix]) {
    let id = name.network_set_id();
    let set = state.network_sets.entry(id.clone());
    let set = set.or_insert_with(|| NetworkSet {
        id,
        kind: NetworkSetKind::DomainName,
        labels: Default::default(),
        nets: Vec::new(),
    });
    for address in addresses {
        if !set.nets.contains(address) {
            set.nets.push(*address);
        }
    }
}
