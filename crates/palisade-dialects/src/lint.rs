//! Warnings about valid objects that have no effect given the rest of the input.
//!
//! Each warning needs more than one object; its cost is proportional to the pods that a policy may select.
//! Warnings never change what is lowered.

use crate::lower::{EntryStatus, Lowering};
use palisade_manifest::{FieldPath, Location, ManifestNode, Problem, RawObject};
use palisade_model::{
    Direction, Endpoint, LabelKey, LabelLookup, LabelScope, LabelValues, Namespace, Object, Peer,
    Policy, PortSpec, Protocol, Rule, Selector, State, Str, TrafficMatch, reserved,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Warnings about policies with parts that have no effect with the pods and namespaces of this input: a port
/// name that none of the matching pods has, a namespaceSelector that matches no namespace; and about pods
/// whose address another pod has. Checks that need pods or namespaces are skipped if the input has none.
///
/// `lowering` is the result of [`lower`](crate::lower) for `objects`.
#[must_use]
pub fn lint(objects: &[RawObject], lowering: &Lowering) -> Vec<Problem> {
    let state = lowering.state();
    let linter = PolicyLinter::new(&state);
    let by_location: BTreeMap<&Location, &RawObject> = objects
        .iter()
        .map(|object| (&object.location, object))
        .collect();
    let mut warnings = Vec::new();
    for entry in &lowering.entries {
        let raw = by_location.get(&entry.location);
        let (EntryStatus::Accepted, Some(raw)) = (&entry.status, raw) else {
            continue;
        };
        for object in &entry.objects {
            if let Object::Policy(policy) = object {
                warnings.extend(linter.check(policy, raw));
            }
        }
    }
    let accepted = lowering
        .entries
        .iter()
        .filter(|entry| entry.status == EntryStatus::Accepted);
    warnings.extend(duplicate_addresses(accepted.flat_map(|entry| {
        entry.objects.iter().filter_map(|object| match object {
            Object::Endpoint(pod) => Some((pod, &entry.location)),
            _ => None,
        })
    })));
    warnings.sort();
    warnings
}

/// Pods that share an address with another pod. The youngest pod gets the address; among equally old ones,
/// the last by namespace and name.
pub fn duplicate_addresses<'a>(
    pods: impl IntoIterator<Item = (&'a Endpoint, &'a Location)>,
) -> Vec<Problem> {
    let mut claims: Vec<(IpAddr, &Endpoint, &Location)> = Vec::new();
    for (pod, location) in pods {
        claims.extend(
            pod.addresses
                .iter()
                .map(|address| (*address, pod, location)),
        );
    }
    claims.sort_by_key(|(address, pod, _)| (*address, pod.created, &pod.id));
    let mut problems = Vec::new();
    for same in claims.chunk_by(|(a, ..), (b, ..)| a == b) {
        let Some(((address, holder, _), others)) = same.split_last() else {
            continue;
        };
        problems.extend(others.iter().map(|(_, pod, location)| Problem {
            location: (*location).clone(),
            object: Some(pod.id.to_string()),
            field: "status".to_owned(),
            reason: format!(
                "address {address} is also claimed by {}, which gets it",
                holder.id
            ),
        }));
    }
    problems
}

/// Warnings about policies that select pods on the host network, where policies have no effect: one for each
/// policy.
pub fn host_network_warnings<'a>(
    policies: impl IntoIterator<Item = (&'a Policy, &'a RawObject)>,
    pods: &[Endpoint],
) -> Vec<Problem> {
    let pods = PodIndex::new(pods);
    let warning = |(policy, object): (&Policy, &RawObject)| {
        let of_namespace = pods
            .in_policy_namespace(policy)
            .flat_map(|(_, pods)| pods)
            .copied();
        host_network_warning(policy, &SubjectLocation::of(object), of_namespace)
    };
    policies.into_iter().filter_map(warning).collect()
}

/// The location of the field with which an object selects its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectLocation {
    /// The location of the field, or of its nearest ancestor.
    pub location: Location,
    /// The field path.
    pub field: String,
}

impl SubjectLocation {
    /// The location in this object.
    #[must_use]
    pub fn of(object: &RawObject) -> Self {
        let (location, field) = locate(
            object,
            &[PathStep::Key("spec"), PathStep::Key("podSelector")],
        );
        SubjectLocation { location, field }
    }
}

/// The warning about a policy that selects any of these pods, all of which are on the host network and in the
/// policy's namespace (any namespace if the policy has none).
pub fn host_network_warning<'a>(
    policy: &Policy,
    place: &SubjectLocation,
    pods: impl IntoIterator<Item = &'a Endpoint>,
) -> Option<Problem> {
    let state = State::default();
    let mut selected = pods
        .into_iter()
        .filter(|pod| policy.subject.matches(&state.endpoint_labels(pod)));
    let pod = selected.next()?;
    let others = match selected.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reason = format!(
        "it selects {}{others} on the host network; policies do not apply to host-network pods",
        pod.id
    );
    Some(Problem {
        location: place.location.clone(),
        object: Some(policy.id.to_string()),
        field: place.field.clone(),
        reason,
    })
}

/// Endpoints by namespace: a namespaced policy applies to its own namespace only.
struct PodIndex<'a> {
    by_namespace: BTreeMap<Option<&'a Str>, Vec<&'a Endpoint>>,
}

impl<'a> PodIndex<'a> {
    fn new(pods: impl IntoIterator<Item = &'a Endpoint>) -> Self {
        let mut by_namespace: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pod in pods {
            let namespace = pod.id.namespace.as_ref();
            by_namespace.entry(namespace).or_default().push(pod);
        }
        PodIndex { by_namespace }
    }

    /// The endpoints in the namespaces that a peer names, or all.
    fn in_peer_namespaces<'s>(&'s self, rule: &'s Rule) -> impl Iterator<Item = &'a Endpoint> + 's {
        fn peer_namespaces(peer: &Peer) -> Option<&LabelValues> {
            peer.selector.as_ref().and_then(named_namespaces)
        }
        let namespaces: Option<Vec<&LabelValues>> =
            rule.peers.iter().map(peer_namespaces).collect();
        let is_peer_namespace = move |namespace: Option<&Str>| {
            namespaces.as_ref().is_none_or(|named| {
                namespace.is_some_and(|name| named.iter().any(|values| values.contains(name)))
            })
        };
        let by_namespace = self.by_namespace.iter();
        by_namespace
            .filter(move |(namespace, _)| is_peer_namespace(**namespace))
            .flat_map(|(_, pods)| pods.iter().copied())
    }

    /// The pods in the namespace of a policy.
    fn in_policy_namespace<'s>(
        &'s self,
        policy: &'s Policy,
    ) -> impl Iterator<Item = (&'s Option<&'a Str>, &'s Vec<&'a Endpoint>)> + 's {
        let policy_namespace = policy.id.object.namespace.as_ref();
        self.by_namespace.iter().filter(move |(namespace, _)| {
            policy_namespace.is_none() || **namespace == policy_namespace
        })
    }

    fn selected_by<'s>(
        &'s self,
        policy: &'s Policy,
        state: &'s State,
    ) -> impl Iterator<Item = &'a Endpoint> + 's {
        self.in_policy_namespace(policy)
            .flat_map(|(_, pods)| pods.iter().copied())
            .filter(|pod| policy.subject.matches(&state.endpoint_labels(pod)))
    }
}

/// The namespaces that a selector names, if it cannot match in others.
fn named_namespaces(selector: &Selector) -> Option<&LabelValues> {
    match selector {
        Selector::In(key, values)
            if key.scope == LabelScope::Reserved && *key.name == *reserved::NAMESPACE =>
        {
            Some(values)
        }
        Selector::And(parts) => parts.iter().find_map(named_namespaces),
        _ => None,
    }
}

/// One pod of each group of pods that are equal in everything a rule can match.
fn distinct_pods(state: &State) -> Vec<&Endpoint> {
    let mut seen = BTreeSet::new();
    let mut pods: Vec<&Endpoint> = state.endpoints.values().collect();
    pods.retain(|pod| {
        seen.insert((
            &pod.id.namespace,
            &pod.labels,
            &pod.service_account,
            &pod.ports,
        ))
    });
    pods
}

/// The namespaces with a Namespace object and those only referred to. Empty if there is no Namespace object.
fn all_namespaces(state: &State) -> Vec<Namespace> {
    if state.namespaces.is_empty() {
        return Vec::new();
    }
    let mut all = state.namespaces.clone();
    let in_use = state.endpoints.keys().filter_map(|id| id.namespace.clone());
    for name in in_use {
        all.entry(name.clone())
            .or_insert_with(|| Namespace::from_name(name));
    }
    all.into_values().collect()
}

struct NamespaceLabels<'a>(&'a Namespace);

impl LabelLookup for NamespaceLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.0.labels.get(&key.name).map(|value| &**value)
    }
}

/// Checks policies against the pods and namespaces of one state.
pub struct PolicyLinter<'a> {
    state: &'a State,
    pods: PodIndex<'a>,
    namespaces: Vec<Namespace>,
    /// Whether these selectors match any namespace.
    match_cache: RefCell<BTreeMap<Selector, bool>>,
}

impl<'a> PolicyLinter<'a> {
    /// A linter for this state.
    #[must_use]
    pub fn new(state: &'a State) -> Self {
        PolicyLinter {
            pods: PodIndex::new(distinct_pods(state)),
            namespaces: all_namespaces(state),
            state,
            match_cache: RefCell::default(),
        }
    }

    /// The warnings about one policy.
    #[must_use]
    pub fn check(&self, policy: &Policy, raw: &RawObject) -> Vec<Problem> {
        let mut warnings = Vec::new();
        for direction in Direction::BOTH {
            let Some(rules) = policy.rules(direction) else {
                continue;
            };
            // The receivers of ingress are the pods of the policy, for every rule.
            let mut selected: Option<PortNames<'_>> = None;
            for rule in &rules.rules {
                self.check_namespaces(policy, rule, direction, raw, &mut warnings);
                if rule
                    .traffic
                    .iter()
                    .all(|traffic| peer_namespaces(traffic).is_none())
                {
                    continue;
                }
                let peer_ports;
                let receivers = match direction {
                    Direction::Ingress => selected.get_or_insert_with(|| {
                        PortNames::collect(self.pods.selected_by(policy, self.state))
                    }),
                    Direction::Egress => {
                        let peers = self
                            .pods
                            .in_peer_namespaces(rule)
                            .filter(|p| self.is_peer(p, rule));
                        peer_ports = PortNames::collect(peers);
                        &peer_ports
                    }
                };
                check_port_names(policy, rule, direction, receivers, raw, &mut warnings);
            }
        }
        warnings
    }

    fn check_namespaces(
        &self,
        policy: &Policy,
        rule: &Rule,
        direction: Direction,
        raw: &RawObject,
        warnings: &mut Vec<Problem>,
    ) {
        if self.namespaces.is_empty() {
            return;
        }
        for (index, peer) in rule.peers.iter().enumerate() {
            let Some(tests) = peer.selector.as_ref().map(namespace_part) else {
                continue;
            };
            if self.matches_any_namespace(&tests) {
                continue;
            }
            let list = match direction {
                Direction::Ingress => "from",
                Direction::Egress => "to",
            };
            let steps = [
                PathStep::Key(list),
                PathStep::Index(index),
                PathStep::Key("namespaceSelector"),
            ];
            let reason = "it matches none of the namespaces of the input, so it has no effect";
            warnings.push(warning_at(
                raw,
                policy,
                &rule_path(rule, direction, &steps),
                reason,
            ));
        }
    }

    fn matches_any_namespace(&self, tests: &Selector) -> bool {
        if let Some(cached) = self.match_cache.borrow().get(tests) {
            return *cached;
        }
        let mut all = self.namespaces.iter();
        let any = all.any(|namespace| tests.matches(&NamespaceLabels(namespace)));
        self.match_cache.borrow_mut().insert(tests.clone(), any);
        any
    }

    fn is_peer(&self, pod: &Endpoint, rule: &Rule) -> bool {
        rule.peers.iter().any(|peer| {
            let labels = self.state.endpoint_labels(pod);
            peer.is_any() || peer.selector.as_ref().is_some_and(|s| s.matches(&labels))
        })
    }
}

/// The port names of a group of pods.
#[derive(Default)]
struct PortNames<'a> {
    /// Whether the group has any pod.
    has_pods: bool,
    names: BTreeSet<(&'a str, Protocol)>,
}

impl<'a> PortNames<'a> {
    fn collect(pods: impl Iterator<Item = &'a Endpoint>) -> Self {
        let mut all = PortNames::default();
        for pod in pods {
            all.has_pods = true;
            let ports = pod.ports.iter();
            all.names
                .extend(ports.map(|port| (&*port.name, port.protocol)));
        }
        all
    }
}

/// Warns about port names of a rule that none of its receiving pods has.
fn check_port_names(
    policy: &Policy,
    rule: &Rule,
    direction: Direction,
    receivers: &PortNames<'_>,
    raw: &RawObject,
    warnings: &mut Vec<Problem>,
) {
    for (index, traffic) in rule.traffic.iter().enumerate() {
        let Some((name, protocol)) = peer_namespaces(traffic) else {
            continue;
        };
        if !receivers.has_pods || receivers.names.contains(&(&**name, protocol)) {
            continue;
        }
        let has_name = |other: &Protocol| receivers.names.contains(&(&**name, *other));
        let elsewhere = Protocol::WITH_PORTS.into_iter().find(has_name);
        let other_protocol = elsewhere.map_or(String::new(), |other| {
            format!(" (there is one for {other})")
        });
        let reason = format!(
            "none of the destination pods has a {protocol} port named \
             `{name}`{other_protocol}, so it has no effect"
        );
        let steps = [
            PathStep::Key("ports"),
            PathStep::Index(index),
            PathStep::Key("port"),
        ];
        warnings.push(warning_at(
            raw,
            policy,
            &rule_path(rule, direction, &steps),
            reason,
        ));
    }
}

/// The name and protocol of a named port.
fn peer_namespaces(traffic: &TrafficMatch) -> Option<(&Str, Protocol)> {
    match traffic.destination.is.as_deref()? {
        [PortSpec::Named(name)] => Some((name, traffic.protocol?)),
        _ => None,
    }
}

/// The part of a peer's selector that tests namespace labels.
fn namespace_part(selector: &Selector) -> Selector {
    let is_of_namespace = |test: &&Selector| {
        let mut all = true;
        test.for_each_key(&mut |key| all &= key.scope == LabelScope::Namespace);
        all
    };
    match selector {
        Selector::And(tests) => Selector::and(tests.iter().filter(is_of_namespace).cloned()),
        test => Selector::and([test].into_iter().filter(is_of_namespace).cloned()),
    }
}

#[derive(Clone, Copy)]
enum PathStep {
    Key(&'static str),
    Index(usize),
}

fn rule_path(rule: &Rule, direction: Direction, rest: &[PathStep]) -> Vec<PathStep> {
    let list = match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    };
    let index = usize::try_from(rule.origin.index).unwrap_or(usize::MAX);
    let mut steps = vec![
        PathStep::Key("spec"),
        PathStep::Key(list),
        PathStep::Index(index),
    ];
    steps.extend(rest);
    steps
}

/// A warning about a field of a policy, at the field or at its nearest ancestor.
fn warning_at(
    object: &RawObject,
    policy: &Policy,
    steps: &[PathStep],
    reason: impl Into<String>,
) -> Problem {
    let (location, field) = locate(object, steps);
    Problem {
        location,
        object: Some(policy.id.to_string()),
        field,
        reason: reason.into(),
    }
}

fn locate(object: &RawObject, steps: &[PathStep]) -> (Location, String) {
    let mut path = FieldPath::root();
    let mut node: Option<&ManifestNode> = Some(&object.root);
    let mut location = &object.location;
    for step in steps {
        match *step {
            PathStep::Key(key) => {
                path = path.key(key);
                node = node.and_then(|node| node.get(key));
            }
            PathStep::Index(index) => {
                path = path.index(index);
                node = node.and_then(|node| node.index(index));
            }
        }
        location = node.map_or(location, |node| &node.location);
    }
    (location.clone(), path.to_string())
}
