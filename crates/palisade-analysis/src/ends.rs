//! The ends of flows of one family, sorted into classes that no policy tells apart.
//!
//! First the ends are sorted by what any rule could look at of them (labels that are tested, names of
//! ports, the networks around an address), which is cheap for each end; then one of each sort is asked
//! what it meets.

use crate::region::{Region, address, number as number_of};
use crate::rules::{Rules, number};
use palisade_model::{
    Endpoint, Family, LabelKey, NetworkSet, Node, Prefix, Protocol, Scope, State, Str, reserved,
};
use palisade_oracle::{End, Prepared};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Everything about an end that a policy can see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature {
    /// Whether it is listed as outside.
    outside: bool,
    pub(crate) is_endpoint: bool,
    /// The tests of addresses that it meets.
    pub(crate) meets: Vec<u32>,
    /// The policies that select it.
    pub(crate) policies: Vec<u32>,
    pub(crate) profiles: Vec<Str>,
    /// For each name in use and each protocol with ports the number behind it, where there is one.
    pub(crate) ports: Vec<(u32, u8, u16)>,
}

/// Ends that no policy tells apart.
pub(crate) struct Class<'a> {
    pub(crate) signature: Signature,
    /// One of them, for all.
    pub(crate) end: End,
    pub(crate) endpoint: Option<&'a Endpoint>,
}

/// A value of a key that selectors test: its own, or any that none of them names.
type Value<'a> = Option<&'a str>;

/// What a rule could look at of an end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Sort<'a> {
    host: bool,
    namespace: u32,
    account: u32,
    own: Vec<(&'a LabelKey, Value<'a>)>,
    name: Option<Value<'a>>,
    ports: Vec<(u32, u8, u16)>,
    profiles: &'a [Str],
    /// The networks around its address; `None` where that is unknown.
    around: Option<u32>,
}

/// A network that something names, and the one around it.
struct Net<'a> {
    prefix: Prefix,
    around: u32,
    sets: Vec<&'a NetworkSet>,
    nodes: Vec<&'a Node>,
}

/// The ends of one family.
pub(crate) struct Ends<'a> {
    family: Family,
    pub(crate) classes: Vec<Class<'a>>,
    by_signature: BTreeMap<Signature, usize>,
    by_sort: BTreeMap<Sort<'a>, usize>,
    /// The first address of each interval that networks cut, with the innermost network around it;
    /// 0 is none.
    intervals: Vec<(u128, u32)>,
    nets: Vec<Net<'a>>,
    namespaces: Interner<'a>,
    accounts: Interner<'a>,
    /// What is outside, held addresses in its middle included, by class.
    pub(crate) outside: Vec<(Region, usize)>,
    /// The addresses that workloads hold.
    pub(crate) held: Region,
}

/// Namespaces or service accounts that no selector tells apart.
#[derive(Default)]
struct Interner<'a> {
    known: BTreeMap<(Option<&'a Str>, Option<&'a Str>), u32>,
    by_labels: BTreeMap<Vec<(u32, Value<'a>)>, u32>,
}

impl<'a> Ends<'a> {
    /// The ends outside of a state; workloads are added one by one.
    pub(crate) fn new(family: Family, prepared: &Prepared<'a>, rules: &Rules<'a>) -> Self {
        let workloads = prepared.claims().iter().filter(|(_, e)| !e.host);
        let held = workloads.filter(|(a, _)| Family::of(**a) == family);
        let held = held.map(|(a, _)| (number_of(*a), number_of(*a))).collect();
        let mut ends = Ends {
            family,
            classes: Vec::new(),
            by_signature: BTreeMap::new(),
            by_sort: BTreeMap::new(),
            intervals: Vec::new(),
            nets: Vec::new(),
            namespaces: Interner::default(),
            accounts: Interner::default(),
            outside: Vec::new(),
            held: Region::of_ranges(family, held),
        };
        ends.cut(prepared, rules);
        ends
    }

    /// Cuts the address space at every network that something names.
    fn cut(&mut self, prepared: &Prepared<'a>, rules: &Rules<'a>) {
        let state = prepared.state();
        let mut named: BTreeMap<(u128, u8), Net<'a>> = BTreeMap::new();
        let family = self.family;
        let mut name = |prefix: Prefix, set: Option<&'a NetworkSet>, node: Option<&'a Node>| {
            if prefix.family() == family {
                let key = (prefix.bounds().0, prefix.length());
                let net = named.entry(key).or_insert_with(|| Net {
                    prefix,
                    around: 0,
                    sets: Vec::new(),
                    nodes: Vec::new(),
                });
                net.sets.extend(set);
                net.nodes.extend(node);
            }
        };
        rules.prefixes().for_each(|prefix| name(prefix, None, None));
        for set in state.network_sets.values() {
            set.nets.iter().for_each(|net| name(*net, Some(set), None));
        }
        for node in state.nodes.values() {
            let addresses = node.addresses.iter();
            addresses.for_each(|a| name(Prefix::host(*a), None, Some(node)));
        }
        let hosts = prepared.claims().iter().filter(|(_, e)| e.host);
        hosts.for_each(|(address, _)| name(Prefix::host(*address), None, None));
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
                net.around = around.last().copied().unwrap_or(0);
                next += 1;
                around.push(number(next));
            }
            let innermost = around.last().copied().unwrap_or(0);
            self.intervals.push((first, innermost));
        }
        self.sort_outside(prepared, rules);
    }

    /// The innermost network around an address.
    fn around(&self, address: IpAddr) -> u32 {
        let at = number_of(address);
        let after = self.intervals.partition_point(|(first, _)| *first <= at);
        let interval = after.checked_sub(1).and_then(|at| self.intervals.get(at));
        interval.map_or(0, |(_, net)| *net)
    }

    fn sort_outside(&mut self, prepared: &Prepared<'a>, rules: &Rules<'a>) {
        let (_, end) = Prefix::all(self.family).bounds();
        let mut by_class: BTreeMap<usize, Vec<(u128, u128)>> = BTreeMap::new();
        for at in 0..self.intervals.len() {
            let (first, _) = self.intervals[at];
            let next = self.intervals.get(at + 1);
            let last = next.map_or(end, |(next, _)| next - 1);
            let Some(free) = first_free(&self.held, first, last) else {
                continue;
            };
            let outside = End::Address(address(self.family, free));
            let class = self.class_of(outside, prepared, rules);
            by_class.entry(class).or_default().push((first, last));
        }
        let regions = by_class.into_iter();
        self.outside = regions
            .map(|(class, ranges)| (Region::of_ranges(self.family, ranges), class))
            .collect();
    }

    /// The class of an end.
    pub(crate) fn class_of(
        &mut self,
        end: End,
        prepared: &Prepared<'a>,
        rules: &Rules<'a>,
    ) -> usize {
        let endpoint = prepared.endpoint_at(&end);
        let around = match &end {
            End::Address(address) => Some(self.around(*address)),
            End::Endpoint(_) => None,
        };
        let Some(endpoint) = endpoint else {
            return self.class_of_sort(end, None, around, prepared, rules);
        };
        let sort = self.sort(endpoint, around, prepared.state(), rules);
        if let Some(class) = self.by_sort.get(&sort) {
            return *class;
        }
        let class = self.class_of_sort(end, Some(endpoint), around, prepared, rules);
        self.by_sort.insert(sort, class);
        class
    }

    fn class_of_sort(
        &mut self,
        end: End,
        endpoint: Option<&'a Endpoint>,
        around: Option<u32>,
        prepared: &Prepared<'a>,
        rules: &Rules<'a>,
    ) -> usize {
        let signature = self.signature(&end, endpoint, around, prepared, rules);
        if let Some(class) = self.by_signature.get(&signature) {
            return *class;
        }
        let class = self.classes.len();
        self.by_signature.insert(signature.clone(), class);
        self.classes.push(Class {
            signature,
            end,
            endpoint,
        });
        class
    }

    fn sort(
        &mut self,
        endpoint: &'a Endpoint,
        around: Option<u32>,
        state: &'a State,
        rules: &Rules<'a>,
    ) -> Sort<'a> {
        let own = endpoint.labels.iter().filter_map(|(key, text)| {
            let key = LabelKey::own(key.clone());
            let (key, asked) = rules.keys.get_key_value(&key)?;
            let named = asked.parts || asked.values.contains(&**text);
            Some((*key, named.then_some(&**text)))
        });
        let own = own.collect();
        let namespace = endpoint.id.namespace.as_ref();
        let account = endpoint.service_account.as_ref();
        let name = LabelKey::reserved(reserved::NAME);
        let name = rules.keys.get(&name).map(|asked| {
            let text = &*endpoint.id.name;
            (asked.parts || asked.values.contains(text)).then_some(text)
        });
        Sort {
            host: endpoint.host,
            namespace: self
                .namespaces
                .number(endpoint, (namespace, None), state, rules),
            account: self
                .accounts
                .number(endpoint, (namespace, account), state, rules),
            own,
            name,
            ports: ports(endpoint, rules),
            profiles: &endpoint.profiles,
            around,
        }
    }

    fn signature(
        &self,
        end: &End,
        endpoint: Option<&'a Endpoint>,
        around: Option<u32>,
        prepared: &Prepared<'a>,
        rules: &Rules<'a>,
    ) -> Signature {
        let state = prepared.state();
        let mut tests = rules.anywhere.clone();
        let mut net = around.unwrap_or(0);
        while let Some(inner) = (net as usize)
            .checked_sub(1)
            .and_then(|at| self.nets.get(at))
        {
            tests.extend(rules.by_net.get(&inner.prefix).into_iter().flatten());
            for set in &inner.sets {
                let labels = state.network_set_labels(set);
                rules.by_labels.candidates(&labels, &mut tests);
            }
            for node in &inner.nodes {
                rules
                    .by_labels
                    .candidates(&state.node_labels(node), &mut tests);
            }
            net = inner.around;
        }
        let mut policies = Vec::new();
        if let Some(endpoint) = endpoint {
            let labels = state.endpoint_labels(endpoint);
            rules.by_labels.candidates(&labels, &mut tests);
            rules.by_subject.candidates(&labels, &mut policies);
            policies.retain(|id| prepared.selects(rules.policies[*id as usize], endpoint));
        }
        tests.sort_unstable();
        tests.dedup();
        policies.sort_unstable();
        policies.dedup();
        let peers = tests.iter().map(|test| rules.tests[*test as usize]);
        let mut met = prepared.peers_match(peers, end).into_iter();
        tests.retain(|_| met.next() == Some(true));
        Signature {
            outside: endpoint.is_none_or(|endpoint| endpoint.host),
            is_endpoint: endpoint.is_some(),
            meets: tests,
            policies,
            profiles: endpoint.map_or_else(Vec::new, |e| e.profiles.clone()),
            ports: endpoint.map_or_else(Vec::new, |e| ports(e, rules)),
        }
    }
}

impl<'a> Interner<'a> {
    /// The number of an endpoint's namespace, or of its service account.
    fn number(
        &mut self,
        endpoint: &'a Endpoint,
        of: (Option<&'a Str>, Option<&'a Str>),
        state: &'a State,
        rules: &Rules<'a>,
    ) -> u32 {
        if let Some(known) = self.known.get(&of) {
            return *known;
        }
        let scope = match of.1 {
            None => Scope::Namespace,
            Some(_) => Scope::ServiceAccount,
        };
        let mut values = Vec::new();
        for (place, (key, asked)) in rules.keys.iter().enumerate() {
            let fact = key.scope == Scope::Reserved
                && match scope {
                    Scope::Namespace => &*key.name == reserved::NAMESPACE,
                    _ => &*key.name == reserved::SERVICE_ACCOUNT,
                };
            if key.scope != scope && !fact {
                continue;
            }
            let text = match (key.scope, scope) {
                (Scope::Reserved, _) => endpoint.reserved_label(&key.name),
                (_, Scope::Namespace) => {
                    let described = endpoint.id.namespace.as_ref();
                    match described.and_then(|name| state.namespaces.get(name)) {
                        Some(namespace) => namespace.labels.get(&key.name).map(|v| &**v),
                        None => (&*key.name == palisade_model::Namespace::NAME_LABEL)
                            .then_some(described)
                            .flatten()
                            .map(|name| &**name),
                    }
                }
                _ => of.0.zip(of.1).and_then(|(namespace, account)| {
                    let key_of = (namespace.clone(), account.clone());
                    let account = state.service_accounts.get(&key_of)?;
                    account.labels.get(&key.name).map(|v| &**v)
                }),
            };
            if let Some(text) = text {
                let named = asked.parts || asked.values.contains(text);
                values.push((number(place), named.then_some(text)));
            }
        }
        let next = number(self.by_labels.len());
        let id = *self.by_labels.entry(values).or_insert(next);
        self.known.insert(of, id);
        id
    }
}

fn ports(endpoint: &Endpoint, rules: &Rules<'_>) -> Vec<(u32, u8, u16)> {
    let mut ports = Vec::new();
    if endpoint.ports.is_empty() {
        return ports;
    }
    for (place, name) in rules.port_names.iter().enumerate() {
        for protocol in Protocol::WITH_PORTS {
            let port = endpoint.named_port(name, protocol);
            ports.extend(port.map(|port| (number(place), protocol.0, port)));
        }
    }
    ports
}

/// The first address of a range that nobody holds.
pub(crate) fn first_free(held: &Region, first: u128, last: u128) -> Option<u128> {
    let ranges = held.ranges();
    let at = ranges.partition_point(|(_, end)| *end < first);
    match ranges.get(at) {
        Some((from, to)) if *from <= first => to.checked_add(1).filter(|next| *next <= last),
        _ => Some(first),
    }
}
