//! The pods to which the rules of a policy with port names lead, and the port names of these pods.
//!
//! They are counted, so that a changed pod costs one test for each such rule.

use super::pods::{DistinctPods, InheritedPodLabels, PodTraits};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_dialects::{PolicyFields, PortNameField};
use palisade_model::{Direction, LabelValues, Policy, Protocol, Rule, Selector, Str};

/// The pods that receive the traffic of a rule.
#[derive(Debug)]
struct Receivers {
    /// The namespaces they are in; `None` for any.
    namespaces: Option<Vec<Str>>,
    /// One of these selects them.
    selectors: Vec<Selector>,
    /// The number of distinct pods.
    pods: usize,
    /// The numbers of distinct pods with a port of this name and protocol.
    ports: BTreeMap<(Str, Protocol), usize>,
}

impl Receivers {
    fn new(namespaces: Option<Vec<Str>>, selectors: Vec<Selector>) -> Self {
        Receivers {
            namespaces,
            selectors,
            pods: 0,
            ports: BTreeMap::new(),
        }
    }

    /// The receivers of ingress are the pods of the policy, for every rule.
    fn of_ingress(policy: &Policy) -> Self {
        let namespace = policy.id.object.namespace.clone();
        let subject = policy.subject.clone();
        Receivers::new(
            namespace.map(|name| alloc::vec![name]),
            alloc::vec![subject],
        )
    }

    /// The receivers of egress are the peers of the rule.
    fn of_egress(rule: &Rule) -> Self {
        let named = |selector: &Selector| selector.required_namespaces().cloned();
        let namespaces: Option<Vec<LabelValues>> = (rule.peers.iter())
            .map(|peer| peer.selector.as_ref().and_then(named))
            .collect();
        let namespaces = namespaces.map(|all| {
            let mut names: Vec<Str> = all.iter().flatten().cloned().collect();
            names.sort();
            names.dedup();
            names
        });
        let selectors = rule.peers.iter().filter_map(|peer| {
            if peer.is_any() {
                Some(Selector::all())
            } else {
                peer.selector.clone()
            }
        });
        Receivers::new(namespaces, selectors.collect())
    }

    fn recount(&mut self, pods: &DistinctPods, labels: &InheritedPodLabels) {
        (self.pods, self.ports) = (0, BTreeMap::new());
        let namespaces = self.namespaces.take();
        for pod in pods.in_namespaces(namespaces.as_deref()) {
            self.count(pod, labels, true);
        }
        self.namespaces = namespaces;
    }

    /// Adds or removes a distinct pod if it is a receiver.
    fn count(&mut self, pod: &PodTraits, labels: &InheritedPodLabels, is_added: bool) {
        let own = labels.of(pod);
        if !self.selectors.iter().any(|selector| selector.matches(&own)) {
            return;
        }
        let step = |count: usize| {
            if is_added {
                count + 1
            } else {
                count.saturating_sub(1)
            }
        };
        self.pods = step(self.pods);
        for port in &pod.ports {
            let key = (port.name.clone(), port.protocol);
            let count = self.ports.entry(key).or_default();
            *count = step(*count);
        }
    }

    fn has_port(&self, name: &Str, protocol: Protocol) -> bool {
        let count = self.ports.get(&(name.clone(), protocol));
        count.is_some_and(|count| *count > 0)
    }

    /// Why a port name has no effect.
    fn problem(&self, port: &PortNameField) -> Option<String> {
        let PortNameField { name, protocol, .. } = port;
        let mut others = Protocol::WITH_PORTS.into_iter();
        let other = others.find(|other| self.has_port(name, *other));
        let Some(protocol) = protocol else {
            let is_absent = self.pods > 0 && other.is_none();
            return is_absent.then(|| {
                format!(
                    "none of the destination pods has a port named `{name}`, so it has no effect"
                )
            });
        };
        if self.pods == 0 || self.has_port(name, *protocol) {
            return None;
        }
        let elsewhere = other.map_or(String::new(), |other| {
            format!(" (there is one for {other})")
        });
        Some(format!(
            "none of the destination pods has a {protocol} port named `{name}`{elsewhere}, so it has no effect"
        ))
    }
}

/// The receivers of the rules of one policy that name ports.
#[derive(Debug, Default)]
pub(super) struct PolicyReceivers {
    /// By rule of egress; ingress has the number `None`.
    by_rule: BTreeMap<Option<usize>, Receivers>,
}

impl PolicyReceivers {
    pub(super) fn of(policy: &Policy, fields: &PolicyFields) -> Self {
        let mut by_rule = BTreeMap::new();
        for port in &fields.port_names {
            let rules = policy.rules(port.direction);
            match (
                port.direction,
                rules.and_then(|all| all.rules.get(port.rule)),
            ) {
                (Direction::Ingress, _) => {
                    by_rule
                        .entry(None)
                        .or_insert_with(|| Receivers::of_ingress(policy));
                }
                (Direction::Egress, Some(rule)) => {
                    by_rule
                        .entry(Some(port.rule))
                        .or_insert_with(|| Receivers::of_egress(rule));
                }
                (Direction::Egress, None) => {}
            }
        }
        PolicyReceivers { by_rule }
    }

    /// The namespaces in which its receivers can be; `None` stands for any.
    pub(super) fn namespaces(&self) -> Vec<Option<Str>> {
        let mut all = Vec::new();
        for receivers in self.by_rule.values() {
            match &receivers.namespaces {
                None => all.push(None),
                Some(names) => all.extend(names.iter().cloned().map(Some)),
            }
        }
        all.sort();
        all.dedup();
        all
    }

    pub(super) fn recount(&mut self, pods: &DistinctPods, labels: &InheritedPodLabels) {
        let all = self.by_rule.values_mut();
        all.for_each(|receivers| receivers.recount(pods, labels));
    }

    /// Adds or removes a distinct pod.
    pub(super) fn count(&mut self, pod: &PodTraits, labels: &InheritedPodLabels, is_added: bool) {
        for receivers in self.by_rule.values_mut() {
            let names = receivers.namespaces.as_ref();
            let namespace = pod.namespace.as_ref();
            if names.is_none_or(|names| namespace.is_some_and(|name| names.contains(name))) {
                receivers.count(pod, labels, is_added);
            }
        }
    }

    /// Why a port name of the policy has no effect.
    pub(super) fn problem(&self, port: &PortNameField) -> Option<String> {
        let rule = (port.direction == Direction::Egress).then_some(port.rule);
        self.by_rule.get(&rule)?.problem(port)
    }
}
