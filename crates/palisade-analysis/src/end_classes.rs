//! Classifies the ends of flows of one family: every policy treats the ends of a class alike.
//!
//! First the ends are grouped by features that rules could test (labels, named ports, the networks that
//! contain the address), which is cheap for each end. Then the signature (the tests and policies that
//! match) is computed for one end of each group.

use crate::rules::{StateRules, to_u32};
use palisade_model::{
    Endpoint, Family, LabelKey, LabelScope, NetworkSet, Node, NumberRange, PolicyStage, PolicyView,
    Prefix, Profile, Protocol, RangeSet, State, Str, address_from_number, address_to_number,
    reserved,
};
use palisade_oracle::{FlowEnd, PreparedState};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Everything about an end that changes the result of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndSignature {
    /// Whether it is reported as outside: not an endpoint, or a host endpoint.
    outside: bool,
    pub(crate) is_endpoint: bool,
    /// The address tests that match it.
    pub(crate) matching_tests: Vec<u32>,
    /// The policies that select it.
    pub(crate) policies: Vec<u32>,
    pub(crate) profiles: Vec<Str>,
    /// Its named ports that rules use, as (name, protocol, port number).
    pub(crate) ports: Vec<(u32, u8, u16)>,
}

/// Ends that every policy treats alike.
pub(crate) struct EndClass<'a> {
    pub(crate) signature: EndSignature,
    /// A representative of the class.
    pub(crate) end: FlowEnd,
    pub(crate) endpoint: Option<&'a Endpoint>,
}

/// The value of a tested key; `None` for any value that no selector names.
type TestedValue<'a> = Option<&'a str>;

/// The features of an end that rules could test.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EndFeatures<'a> {
    host: bool,
    audit: bool,
    namespace: u32,
    account: u32,
    own: Vec<(&'a LabelKey, TestedValue<'a>)>,
    name: Option<TestedValue<'a>>,
    node: Option<TestedValue<'a>>,
    ports: Vec<(u32, u8, u16)>,
    profiles: &'a [Str],
    /// The innermost network that contains its address; `None` where the address is unknown.
    innermost_net: Option<u32>,
}

/// A network in a rule, network set or node, with the innermost network that encloses it.
struct NamedNet<'a> {
    prefix: Prefix,
    parent: u32,
    sets: Vec<&'a NetworkSet>,
    nodes: Vec<&'a Node>,
}

/// Classifies the ends of one family.
pub(crate) struct EndClassifier<'a> {
    family: Family,
    pub(crate) classes: Vec<EndClass<'a>>,
    by_signature: BTreeMap<EndSignature, usize>,
    by_features: BTreeMap<EndFeatures<'a>, usize>,
    /// The first address of each interval between network boundaries, with the number of the innermost
    /// network that contains it; 0 is none.
    intervals: Vec<(u128, u32)>,
    nets: Vec<NamedNet<'a>>,
    namespaces: LabelInterner<'a>,
    accounts: LabelInterner<'a>,
    /// The outside by class; the address sets include workload addresses that they enclose.
    pub(crate) outside: Vec<(RangeSet<u128>, usize)>,
    /// The addresses that workloads hold.
    pub(crate) workload_addresses: RangeSet<u128>,
}

/// Numbers for namespaces or service accounts; equal where every selector treats them alike.
#[derive(Default)]
struct LabelInterner<'a> {
    ids: BTreeMap<(Option<&'a Str>, Option<&'a Str>), u32>,
    by_labels: BTreeMap<Vec<(u32, TestedValue<'a>)>, u32>,
}

impl<'a> EndClassifier<'a> {
    /// Classifies the outside of a state. Workloads are added with [`EndClassifier::classify`].
    pub(crate) fn new(
        family: Family,
        prepared: &PreparedState<'a>,
        rules: &StateRules<'a>,
    ) -> Self {
        let workloads = prepared.claims().iter().filter(|(_, e)| !e.is_host());
        let addresses = workloads.filter(|(a, _)| Family::of(**a) == family);
        let addresses = addresses.map(|(a, _)| NumberRange::single(address_to_number(*a)));
        let mut ends = EndClassifier {
            family,
            classes: Vec::new(),
            by_signature: BTreeMap::new(),
            by_features: BTreeMap::new(),
            intervals: Vec::new(),
            nets: Vec::new(),
            namespaces: LabelInterner::default(),
            accounts: LabelInterner::default(),
            outside: Vec::new(),
            workload_addresses: addresses.collect(),
        };
        ends.partition_addresses(prepared, rules);
        ends
    }

    /// Partitions the address space at the boundaries of every network in a rule, network set or node.
    fn partition_addresses(&mut self, prepared: &PreparedState<'a>, rules: &StateRules<'a>) {
        let state = prepared.state();
        let mut named: BTreeMap<(u128, u8), NamedNet<'a>> = BTreeMap::new();
        let family = self.family;
        let mut add_net = |prefix: Prefix, set: Option<&'a NetworkSet>, node: Option<&'a Node>| {
            if prefix.family() == family {
                let key = (prefix.bounds().0, prefix.length());
                let net = named.entry(key).or_insert_with(|| NamedNet {
                    prefix,
                    parent: 0,
                    sets: Vec::new(),
                    nodes: Vec::new(),
                });
                net.sets.extend(set);
                net.nodes.extend(node);
            }
        };
        rules
            .prefixes()
            .for_each(|prefix| add_net(prefix, None, None));
        for set in state.network_sets.values() {
            set.nets
                .iter()
                .for_each(|net| add_net(*net, Some(set), None));
        }
        for node in state.nodes.values() {
            let addresses = node.addresses.iter();
            addresses.for_each(|a| add_net(Prefix::host(*a), None, Some(node)));
        }
        let hosts = prepared.claims().iter().filter(|(_, e)| e.is_host());
        hosts.for_each(|(address, _)| add_net(Prefix::host(*address), None, None));
        self.nets = named.into_values().collect();
        let mut cuts = BTreeSet::from([0]);
        for net in &self.nets {
            let (first, last) = net.prefix.bounds();
            cuts.insert(first);
            cuts.extend(last.checked_add(1));
        }
        let (_, end) = Prefix::all(family).bounds();
        let mut around: Vec<u32> = Vec::new();
        let mut next = 0;
        for first in cuts.into_iter().filter(|cut| *cut <= end) {
            while let Some(net) = around.last()
                && self.nets[*net as usize - 1].prefix.bounds().1 < first
            {
                around.pop();
            }
            while let Some(net) = self.nets.get_mut(next)
                && net.prefix.bounds().0 == first
            {
                net.parent = around.last().copied().unwrap_or(0);
                next += 1;
                around.push(to_u32(next));
            }
            let innermost = around.last().copied().unwrap_or(0);
            self.intervals.push((first, innermost));
        }
        self.classify_outside(prepared, rules);
    }

    /// The number of the innermost network that contains an address; 0 is none.
    fn innermost_net(&self, address: IpAddr) -> u32 {
        let at = address_to_number(address);
        let after = self.intervals.partition_point(|(first, _)| *first <= at);
        let interval = after.checked_sub(1).and_then(|at| self.intervals.get(at));
        interval.map_or(0, |(_, net)| *net)
    }

    fn classify_outside(&mut self, prepared: &PreparedState<'a>, rules: &StateRules<'a>) {
        let (_, end) = Prefix::all(self.family).bounds();
        let mut by_class: BTreeMap<usize, Vec<NumberRange<u128>>> = BTreeMap::new();
        for at in 0..self.intervals.len() {
            let (first, _) = self.intervals[at];
            let next = self.intervals.get(at + 1);
            let last = next.map_or(end, |(next, _)| next - 1);
            let Some(free) = first_free(&self.workload_addresses, first, last) else {
                continue;
            };
            let outside = FlowEnd::Address(address_from_number(self.family, free));
            let class = self.classify(outside, prepared, rules);
            by_class
                .entry(class)
                .or_default()
                .push(NumberRange { first, last });
        }
        let regions = by_class.into_iter();
        self.outside = regions
            .map(|(class, ranges)| (ranges.into_iter().collect(), class))
            .collect();
    }

    /// The class of an end.
    pub(crate) fn classify(
        &mut self,
        end: FlowEnd,
        prepared: &PreparedState<'a>,
        rules: &StateRules<'a>,
    ) -> usize {
        let endpoint = prepared.endpoint_at(&end);
        let around = match &end {
            FlowEnd::Address(address) => Some(self.innermost_net(*address)),
            FlowEnd::Endpoint(_) => None,
        };
        let Some(endpoint) = endpoint else {
            return self.classify_by_signature(end, None, around, prepared, rules);
        };
        let features = self.features(endpoint, around, prepared.state(), rules);
        if let Some(class) = self.by_features.get(&features) {
            return *class;
        }
        let class = self.classify_by_signature(end, Some(endpoint), around, prepared, rules);
        self.by_features.insert(features, class);
        class
    }

    fn classify_by_signature(
        &mut self,
        end: FlowEnd,
        endpoint: Option<&'a Endpoint>,
        innermost_net: Option<u32>,
        prepared: &PreparedState<'a>,
        rules: &StateRules<'a>,
    ) -> usize {
        let signature = self.signature(&end, endpoint, innermost_net, prepared, rules);
        if let Some(class) = self.by_signature.get(&signature) {
            return *class;
        }
        let class = self.classes.len();
        self.by_signature.insert(signature.clone(), class);
        self.classes.push(EndClass {
            signature,
            end,
            endpoint,
        });
        class
    }

    fn features(
        &mut self,
        endpoint: &'a Endpoint,
        innermost_net: Option<u32>,
        state: &'a State,
        rules: &StateRules<'a>,
    ) -> EndFeatures<'a> {
        let own = endpoint.labels.iter().filter_map(|(key, text)| {
            let key = LabelKey::own(key.clone());
            let (key, asked) = rules.keys.get_key_value(&key)?;
            let named = asked.tests_substring || asked.values.contains(&**text);
            Some((*key, named.then_some(&**text)))
        });
        let own = own.collect();
        let namespace = endpoint.id.namespace.as_ref();
        let account = endpoint.service_account.as_ref();
        let name = LabelKey::reserved(reserved::NAME);
        let name_value = rules.keys.get(&name).map(|asked| {
            let text = &*endpoint.id.name;
            (asked.tests_substring || asked.values.contains(text)).then_some(text)
        });
        let node = LabelKey::reserved(reserved::NODE);
        let node = rules.keys.get(&node).zip(endpoint.node.as_deref());
        let node_value = node.map(|(asked, text)| {
            (asked.tests_substring || asked.values.contains(text)).then_some(text)
        });
        EndFeatures {
            host: endpoint.is_host(),
            audit: state.is_in_audit(endpoint),
            namespace: self
                .namespaces
                .intern(endpoint, (namespace, None), state, rules),
            account: self
                .accounts
                .intern(endpoint, (namespace, account), state, rules),
            own,
            name: name_value,
            node: node_value,
            ports: named_ports(endpoint, rules),
            profiles: &endpoint.profiles,
            innermost_net,
        }
    }

    fn signature(
        &self,
        end: &FlowEnd,
        endpoint: Option<&'a Endpoint>,
        innermost_net: Option<u32>,
        prepared: &PreparedState<'a>,
        rules: &StateRules<'a>,
    ) -> EndSignature {
        let state = prepared.state();
        let mut tests = rules.tests.any_address.clone();
        let mut net = innermost_net.unwrap_or(0);
        while let Some(inner) = (net as usize)
            .checked_sub(1)
            .and_then(|at| self.nets.get(at))
        {
            tests.extend(rules.tests.by_net.get(&inner.prefix).into_iter().flatten());
            for set in &inner.sets {
                let labels = state.network_set_labels(set);
                rules.tests.by_labels.candidates(&labels, &mut tests);
            }
            for node in &inner.nodes {
                rules
                    .tests
                    .by_labels
                    .candidates(&state.node_labels(node, None), &mut tests);
            }
            net = inner.parent;
        }
        let mut policies = Vec::new();
        if let Some(endpoint) = endpoint {
            let labels = state.endpoint_labels(endpoint);
            rules.tests.by_labels.candidates(&labels, &mut tests);
            rules.by_subject.candidates(&labels, &mut policies);
            policies.retain(|id| {
                let policy = rules.policies[*id as usize];
                rules.view.includes(policy.mode)
                    && policy.has_stage(PolicyStage::Normal)
                    && prepared.selects(policy, endpoint)
            });
        }
        let is_open = |endpoint: &&Endpoint| {
            rules.view == PolicyView::Enforced && state.is_in_audit(endpoint)
        };
        let in_audit = endpoint.filter(is_open).is_some();
        if in_audit {
            policies.clear();
        }
        let profiles = match endpoint {
            _ if in_audit => Vec::from([Profile::ALLOW_ALL.into()]),
            Some(endpoint) => endpoint.profiles.clone(),
            None => Vec::new(),
        };
        tests.sort_unstable();
        tests.dedup();
        policies.sort_unstable();
        policies.dedup();
        let peers = tests.iter().map(|test| rules.tests.all[*test as usize]);
        let mut matches = prepared.match_peers(peers, end).into_iter();
        tests.retain(|_| matches.next() == Some(true));
        EndSignature {
            outside: endpoint.is_none_or(|endpoint| endpoint.is_host()),
            is_endpoint: endpoint.is_some_and(|endpoint| !endpoint.is_host()),
            matching_tests: tests,
            policies,
            profiles,
            ports: endpoint.map_or_else(Vec::new, |e| named_ports(e, rules)),
        }
    }
}

impl<'a> LabelInterner<'a> {
    /// The number of an endpoint's namespace, or of its service account.
    fn intern(
        &mut self,
        endpoint: &'a Endpoint,
        account: (Option<&'a Str>, Option<&'a Str>),
        state: &'a State,
        rules: &StateRules<'a>,
    ) -> u32 {
        if let Some(known) = self.ids.get(&account) {
            return *known;
        }
        let scope = match account.1 {
            None => LabelScope::Namespace,
            Some(_) => LabelScope::ServiceAccount,
        };
        let mut values = Vec::new();
        for (place, (key, asked)) in rules.keys.iter().enumerate() {
            let fact = key.scope == LabelScope::Reserved
                && match scope {
                    LabelScope::Namespace => &*key.name == reserved::NAMESPACE,
                    _ => &*key.name == reserved::SERVICE_ACCOUNT,
                };
            if key.scope != scope && !fact {
                continue;
            }
            let text = match (key.scope, scope) {
                (LabelScope::Reserved, _) => endpoint.reserved_label(&key.name),
                (_, LabelScope::Namespace) => {
                    let described = endpoint.id.namespace.as_ref();
                    match described.and_then(|name| state.namespaces.get(name)) {
                        Some(namespace) => namespace.labels.get(&key.name).map(|v| &**v),
                        None => (&*key.name == palisade_model::Namespace::NAME_LABEL)
                            .then_some(described)
                            .flatten()
                            .map(|name| &**name),
                    }
                }
                _ => account.0.zip(account.1).and_then(|(namespace, account)| {
                    let key_of = (namespace.clone(), account.clone());
                    let account = state.service_accounts.get(&key_of)?;
                    account.labels.get(&key.name).map(|v| &**v)
                }),
            };
            if let Some(text) = text {
                let named = asked.tests_substring || asked.values.contains(text);
                values.push((to_u32(place), named.then_some(text)));
            }
        }
        let next = to_u32(self.by_labels.len());
        let id = *self.by_labels.entry(values).or_insert(next);
        self.ids.insert(account, id);
        id
    }
}

fn named_ports(endpoint: &Endpoint, rules: &StateRules<'_>) -> Vec<(u32, u8, u16)> {
    let mut ports = Vec::new();
    if endpoint.ports.is_empty() {
        return ports;
    }
    for (place, name) in rules.port_names.iter().enumerate() {
        for protocol in Protocol::WITH_PORTS {
            let port = endpoint.named_port(name, protocol);
            ports.extend(port.map(|port| (to_u32(place), protocol.0, port)));
        }
    }
    ports
}

/// The first address of a range that no workload holds.
pub(crate) fn first_free(taken: &RangeSet<u128>, first: u128, last: u128) -> Option<u128> {
    match taken.overlapping(NumberRange { first, last }).first() {
        Some(range) if range.first <= first => {
            range.last.checked_add(1).filter(|next| *next <= last)
        }
        _ => Some(first),
    }
}
