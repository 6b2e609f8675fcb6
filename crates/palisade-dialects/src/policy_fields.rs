//! The fields of a policy that have an effect only with certain other objects, and where they are written.
//!
//! They are found once, when the policy is lowered; whether they have an effect is decided elsewhere, as pods
//! and namespaces come and go. Never: keeps the object as written.

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

/// A `namespaceSelector` of a peer.
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
    /// The protocol.
    pub protocol: Protocol,
    /// Where it is.
    pub at: FieldLocation,
}

/// The fields of a policy whose effect depends on other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFields {
    /// The field that selects the pods of the policy.
    pub subject: FieldLocation,
    /// Its selectors of namespaces.
    pub namespaces: Vec<NamespaceField>,
    /// Its port names.
    pub port_names: Vec<PortNameField>,
}

impl PolicyFields {
    /// The fields of a policy that was lowered from this object.
    #[must_use]
    pub fn of(policy: &Policy, object: &RawObject) -> Self {
        let mut fields = PolicyFields {
            subject: locate(
                object,
                &[PathStep::Key("spec"), PathStep::Key("podSelector")],
            ),
            namespaces: Vec::new(),
            port_names: Vec::new(),
        };
        for direction in Direction::BOTH {
            let rules = policy
                .rules(direction)
                .map_or(&[][..], |rules| &rules.rules);
            for (index, rule) in rules.iter().enumerate() {
                fields.add_rule(rule, (direction, index), object);
            }
        }
        fields
    }

    fn add_rule(&mut self, rule: &Rule, (direction, number): (Direction, usize), raw: &RawObject) {
        let list = match direction {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        };
        for (index, peer) in rule.peers.iter().enumerate() {
            let tests = peer.selector.as_ref().map(namespace_tests);
            let Some(tests) = tests.filter(|tests| *tests != Selector::all()) else {
                continue;
            };
            let steps = [
                PathStep::Key(list),
                PathStep::Index(index),
                PathStep::Key("namespaceSelector"),
            ];
            let at = locate(raw, &rule_path(rule, direction, &steps));
            self.namespaces.push(NamespaceField { tests, at });
        }
        for (index, traffic) in rule.traffic.iter().enumerate() {
            let Some((name, protocol)) = named_port(traffic) else {
                continue;
            };
            let steps = [
                PathStep::Key("ports"),
                PathStep::Index(index),
                PathStep::Key("port"),
            ];
            self.port_names.push(PortNameField {
                direction,
                rule: number,
                name: name.clone(),
                protocol,
                at: locate(raw, &rule_path(rule, direction, &steps)),
            });
        }
    }
}

/// The name and protocol of a named port.
fn named_port(traffic: &TrafficMatch) -> Option<(&Str, Protocol)> {
    match traffic.destination.is.as_deref()? {
        [PortSpec::Named(name)] => Some((name, traffic.protocol?)),
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
