//! The fields of a policy that have an effect only with certain other objects, and where they are written.
//!
//! They are found once, when the policy is lowered; whether they have an effect is decided elsewhere, as pods
//! and namespaces come and go. Never: keeps the object as written.

use crate::{calico, cilium, policy_api};
use palisade_manifest::{FieldPath, Location, ManifestNode, RawObject};
use palisade_model::{
    Direction, LabelScope, Policy, PortSpec, Protocol, Rule, Selector, Str, TrafficMatch,
};

/// A field and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLocation {
    /// The location of the field, or of its nearest ancestor.
    pub location: Location,
    /// The field path.
    pub field: Box<str>,
}

/// A selector of namespaces: of a peer, or of the subject of a cluster-wide policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceField {
    /// The tests of namespace labels.
    pub tests: Selector,
    /// Where it is.
    pub at: FieldLocation,
}

/// A port name of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortNameField {
    /// The direction of the rule.
    pub direction: Direction,
    /// The index of the rule among those of its direction.
    pub rule: usize,
    /// The name.
    pub name: Str,
    /// The protocol; `None` for any.
    pub protocol: Option<Protocol>,
    /// Where it is.
    pub at: FieldLocation,
}

/// The fields of a policy whose effect depends on other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFields {
    /// The field that selects the pods of the policy.
    pub subject: FieldLocation,
    /// The field that orders it among the policies of its tier, if it has one.
    pub priority: Option<FieldLocation>,
    /// Its selectors of namespaces.
    pub namespaces: Vec<NamespaceField>,
    /// Its port names.
    pub port_names: Vec<PortNameField>,
}

impl PolicyFields {
    /// The fields of a policy that was lowered from this object.
    #[must_use]
    pub fn of(policy: &Policy, object: &RawObject) -> Self {
        let layout = match policy.id.object.kind.group() {
            policy_api::GROUP => FieldLayout::PolicyApi,
            cilium::GROUP => FieldLayout::Cilium,
            calico::GROUP if object.kind != "StagedKubernetesNetworkPolicy" => FieldLayout::Calico,
            _ => FieldLayout::NetworkPolicy,
        };
        let mut subject = match layout {
            FieldLayout::Cilium => match cilium::index_in_specs(policy.id.part) {
                Some(index) => vec![PathStep::Key("specs"), PathStep::Index(index)],
                None => vec![PathStep::Key("spec")],
            },
            FieldLayout::NetworkPolicy | FieldLayout::PolicyApi | FieldLayout::Calico => {
                vec![PathStep::Key("spec")]
            }
        };
        subject.push(PathStep::Key(match layout {
            FieldLayout::NetworkPolicy => "podSelector",
            FieldLayout::PolicyApi => "subject",
            FieldLayout::Cilium => "endpointSelector",
            FieldLayout::Calico => "selector",
        }));
        let mut fields = PolicyFields {
            subject: locate(object, &subject),
            priority: None,
            namespaces: Vec::new(),
            port_names: Vec::new(),
        };
        if layout == FieldLayout::Cilium {
            // Its rules are in several lists of several specs.
            return fields;
        }
        if layout == FieldLayout::Calico {
            let of_spec = [PathStep::Key("spec")];
            fields.add_namespaces(&policy.subject, &of_spec, layout, object);
        }
        if layout == FieldLayout::PolicyApi {
            let steps = [PathStep::Key("spec"), PathStep::Key("subject")];
            fields.add_namespaces(&policy.subject, &steps, layout, object);
            let priority = [PathStep::Key("spec"), PathStep::Key("priority")];
            fields.priority = find(object, &priority).map(|_| locate(object, &priority));
        }
        for direction in Direction::BOTH {
            let rules = policy
                .rules(direction)
                .map_or(&[][..], |rules| &rules.rules);
            for (index, rule) in rules.iter().enumerate() {
                fields.add_rule(rule, (direction, index), layout, object);
            }
        }
        fields
    }

    fn add_rule(
        &mut self,
        rule: &Rule,
        (direction, number): (Direction, usize),
        layout: FieldLayout,
        raw: &RawObject,
    ) {
        if layout == FieldLayout::Calico {
            self.add_calico_rule(rule, (direction, number), raw);
            return;
        }
        let list = match direction {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        };
        for (index, peer) in rule.peers.iter().enumerate() {
            let steps = [PathStep::Key(list), PathStep::Index(index)];
            let steps = rule_path(rule, direction, &steps);
            if let Some(selector) = &peer.selector {
                self.add_namespaces(selector, &steps, layout, raw);
            }
        }
        for (index, traffic) in rule.traffic.iter().enumerate() {
            let Some(name) = port_name(traffic) else {
                continue;
            };
            let port = |list, field| {
                [
                    PathStep::Key(list),
                    PathStep::Index(index),
                    PathStep::Key(field),
                ]
            };
            let ports = match layout {
                FieldLayout::NetworkPolicy => port("ports", "port"),
                FieldLayout::PolicyApi if raw.kind == "ClusterNetworkPolicy" => {
                    port("protocols", "destinationNamedPort")
                }
                FieldLayout::PolicyApi => port("ports", "namedPort"),
                FieldLayout::Cilium | FieldLayout::Calico => continue,
            };
            self.port_names.push(PortNameField {
                direction,
                rule: number,
                name: name.clone(),
                protocol: traffic.protocol,
                at: locate(raw, &rule_path(rule, direction, &ports)),
            });
        }
    }

    /// Adds the fields of a rule that has both ends, of which one is the policy's own.
    fn add_calico_rule(
        &mut self,
        rule: &Rule,
        (direction, number): (Direction, usize),
        raw: &RawObject,
    ) {
        let (own, other) = match direction {
            Direction::Ingress => ("destination", "source"),
            Direction::Egress => ("source", "destination"),
        };
        let ends = rule.local.iter().map(|own_end| (own_end, own));
        for (peer, end) in ends.chain(rule.peers.iter().map(|peer| (peer, other))) {
            let steps = rule_path(rule, direction, &[PathStep::Key(end)]);
            if let Some(selector) = &peer.selector {
                self.add_namespaces(selector, &steps, FieldLayout::Calico, raw);
            }
        }
        let list = [PathStep::Key("destination"), PathStep::Key("ports")];
        let list = rule_path(rule, direction, &list);
        let written = find(raw, &list).and_then(ManifestNode::as_list);
        let of_rule = self.port_names.len();
        for traffic in &rule.traffic {
            let specs = traffic.destination.any_of.iter().flatten();
            for spec in specs.filter(|spec| spec.service().is_none()) {
                let PortSpec::Named(name) = spec else {
                    continue;
                };
                let mut items = written.into_iter().flatten();
                let index = items.position(|item| item.as_str() == Some(&**name));
                let steps = index.map(PathStep::Index);
                let at = [&list[..], steps.as_slice()].concat();
                let field = PortNameField {
                    direction,
                    rule: number,
                    name: name.clone(),
                    protocol: traffic.protocol,
                    at: locate(raw, &at),
                };
                // A list may name one twice.
                if !self.port_names[of_rule..].contains(&field) {
                    self.port_names.push(field);
                }
            }
        }
    }

    /// Adds the tests of namespaces in the selector of a peer or subject, if there are any.
    fn add_namespaces(
        &mut self,
        selector: &Selector,
        parent: &[PathStep],
        layout: FieldLayout,
        raw: &RawObject,
    ) {
        let tests = namespace_tests(selector);
        if tests == Selector::all() {
            return;
        }
        let whole = [parent, &[PathStep::Key("namespaces")]].concat();
        let field: &[PathStep] = match layout {
            FieldLayout::NetworkPolicy | FieldLayout::Cilium | FieldLayout::Calico => {
                &[PathStep::Key("namespaceSelector")]
            }
            FieldLayout::PolicyApi if find(raw, &whole).is_some() => &[PathStep::Key("namespaces")],
            FieldLayout::PolicyApi => &[PathStep::Key("pods"), PathStep::Key("namespaceSelector")],
        };
        let path = [parent, field].concat();
        if layout == FieldLayout::Calico && find(raw, &path).is_none() {
            // It is the namespace of the policy, or one that a service account or a Service names.
            return;
        }
        let at = locate(raw, &path);
        self.namespaces.push(NamespaceField { tests, at });
    }
}

/// Where the fields of a policy are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldLayout {
    /// As in NetworkPolicy.
    NetworkPolicy,
    /// As in the kinds of `policy.networking.k8s.io`.
    PolicyApi,
    /// As in Cilium's kinds.
    Cilium,
    /// As in Calico's kinds.
    Calico,
}

/// The name of a named port.
fn port_name(traffic: &TrafficMatch) -> Option<&Str> {
    match traffic.destination.any_of.as_deref()? {
        [PortSpec::Named(name)] => Some(name),
        _ => None,
    }
}

/// The part of a peer's selector that tests namespace labels.
fn namespace_tests(selector: &Selector) -> Selector {
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

/// The value at a path.
fn find<'a>(object: &'a RawObject, steps: &[PathStep]) -> Option<&'a ManifestNode> {
    let mut steps = steps.iter();
    let node = steps.try_fold(&object.root, |node, step| match *step {
        PathStep::Key(key) => node.get(key),
        PathStep::Index(index) => node.index(index),
    })?;
    (!node.is_null()).then_some(node)
}

fn locate(object: &RawObject, steps: &[PathStep]) -> FieldLocation {
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
    FieldLocation {
        location: location.clone(),
        field: path.to_string().into(),
    }
}
