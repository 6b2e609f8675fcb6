//! Why a selector matches nothing here, and the nearest label that exists.
//!
//! A selector is a conjunction of tests of the kind, of the namespace and of the object's own labels. The first
//! of these that leaves nothing is the reason. A hint compares spellings, and never decides anything.

use crate::explain::reasons::describe;
use crate::similar_names::similar_names;
use palisade_model::{
    EndpointLabels, LabelKey, LabelLookup, LabelScope, Labels, Namespace, NetworkSetLabels,
    NodeLabels, Selector, State, Str, reserved,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The most values of a label that are listed where none is spelled alike.
const MAX_LISTED_VALUES: usize = 3;

const NAMESPACE_NOUN: &str = "namespace";

/// Why a selector matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectorMiss {
    /// What does not exist, as a sentence without a full stop.
    pub(super) reason: String,
    /// What exists instead, if something is near.
    pub(super) hint: Option<SelectorHint>,
}

/// What exists, where a selector matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SelectorHint {
    /// Labels or names that are spelled nearly like what is selected.
    Nearest(String),
    /// The few values of the label, none of which is spelled alike.
    Values(String),
}

/// An object that a selector can match, with the labels that it tests.
#[derive(Clone, Copy)]
enum SelectableObject<'a> {
    Endpoint(EndpointLabels<'a>, &'a Labels),
    NetworkSet(NetworkSetLabels<'a>, &'a Labels),
    Node(NodeLabels<'a>, &'a Labels),
    /// A namespace, to which the tests of an object's namespace apply.
    Namespace(&'a Str, &'a Labels),
}

impl<'a> SelectableObject<'a> {
    /// Its own labels.
    fn labels(self) -> &'a Labels {
        match self {
            SelectableObject::Endpoint(_, labels)
            | SelectableObject::NetworkSet(_, labels)
            | SelectableObject::Node(_, labels)
            | SelectableObject::Namespace(_, labels) => labels,
        }
    }
}

impl LabelLookup for SelectableObject<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        match self {
            SelectableObject::Endpoint(lookup, _) => lookup.label(key),
            SelectableObject::NetworkSet(lookup, _) => lookup.label(key),
            SelectableObject::Node(lookup, _) => lookup.label(key),
            SelectableObject::Namespace(name, labels) => match key.scope {
                LabelScope::Namespace => labels.get(&key.name).map(|value| &**value),
                LabelScope::Reserved if *key.name == *reserved::NAMESPACE => Some(name),
                _ => None,
            },
        }
    }
}

/// Everything that selectors can match, by namespace.
pub(super) struct SelectableObjects<'a> {
    by_namespace: BTreeMap<Option<&'a Str>, Vec<SelectableObject<'a>>>,
    /// The labels of each namespace that has an object or contains one.
    namespaces: BTreeMap<&'a Str, Labels>,
    misses: RefCell<BTreeMap<(bool, Selector), Option<SelectorMiss>>>,
}

/// The parts of a selector, all of which must hold.
#[derive(Default)]
struct SelectorParts<'s> {
    kind: Vec<&'s Selector>,
    namespace: Vec<&'s Selector>,
    own: Vec<&'s Selector>,
}

impl<'s> SelectorParts<'s> {
    fn of(selector: &'s Selector) -> Self {
        let parts = match selector {
            Selector::And(parts) => parts.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut all = SelectorParts::default();
        for part in parts {
            let (mut of_kind, mut of_namespace) = (true, true);
            part.for_each_key(&mut |key| {
                let is_fact = |fact: &str| key.scope == LabelScope::Reserved && *key.name == *fact;
                of_kind &= is_fact(reserved::KIND);
                of_namespace &= key.scope == LabelScope::Namespace || is_fact(reserved::NAMESPACE);
            });
            match (of_kind, of_namespace) {
                (true, true) | (false, false) => all.own.push(part),
                (true, false) => all.kind.push(part),
                (false, true) => all.namespace.push(part),
            }
        }
        all
    }
}

fn meets_all(object: &SelectableObject<'_>, parts: &[&Selector]) -> bool {
    parts.iter().all(|part| part.matches(object))
}

impl<'a> SelectableObjects<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let mut objects = SelectableObjects {
            by_namespace: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            misses: RefCell::default(),
        };
        for (name, namespace) in &state.namespaces {
            objects.namespaces.insert(name, namespace.labels.clone());
        }
        for endpoint in state.endpoints.values() {
            let lookup = state.endpoint_labels(endpoint);
            let object = SelectableObject::Endpoint(lookup, &endpoint.labels);
            objects.add(endpoint.id.namespace.as_ref(), object);
        }
        for set in state.network_sets.values() {
            let object = SelectableObject::NetworkSet(state.network_set_labels(set), &set.labels);
            objects.add(set.id.namespace.as_ref(), object);
        }
        for node in state.nodes.values() {
            let object = SelectableObject::Node(state.node_labels(node, None), &node.labels);
            objects.add(None, object);
        }
        objects
    }

    fn add(&mut self, namespace: Option<&'a Str>, object: SelectableObject<'a>) {
        self.by_namespace.entry(namespace).or_default().push(object);
        if let Some(name) = namespace {
            let implied = || Namespace::from_name(name.clone()).labels;
            self.namespaces.entry(name).or_insert_with(implied);
        }
    }

    /// Why a policy's subject selects no endpoint; `None` if it selects one.
    pub(super) fn subject_miss(&self, subject: &Selector) -> Option<SelectorMiss> {
        self.known_miss(true, subject)
    }

    /// Why a peer's selector matches no endpoint, network set or node; `None` if it matches one.
    pub(super) fn peer_miss(&self, peer: &Selector) -> Option<SelectorMiss> {
        self.known_miss(false, peer)
    }

    fn known_miss(&self, is_subject: bool, selector: &Selector) -> Option<SelectorMiss> {
        let key = (is_subject, selector.clone());
        if let Some(known) = self.misses.borrow().get(&key) {
            return known.clone();
        }
        let miss = self.find_miss(is_subject, selector);
        self.misses.borrow_mut().insert(key, miss.clone());
        miss
    }

    fn find_miss(&self, is_subject: bool, selector: &Selector) -> Option<SelectorMiss> {
        let parts = SelectorParts::of(selector);
        let noun = kind_noun(is_subject, &parts.kind);
        let is_kind = |object: &SelectableObject<'_>| {
            (!is_subject || matches!(object, SelectableObject::Endpoint(..)))
                && meets_all(object, &parts.kind)
        };
        let all = || self.by_namespace.values().flatten();
        if !all().any(&is_kind) {
            return Some(miss(format!("there is no {noun}"), None));
        }
        let mut places = String::new();
        let mut names: Option<Vec<Option<&Str>>> = None;
        if !parts.namespace.is_empty() {
            let namespaces = self.namespaces.iter();
            let namespaces = namespaces
                .map(|(name, labels)| (*name, SelectableObject::Namespace(name, labels)))
                .collect::<Vec<_>>();
            let matching = namespaces
                .iter()
                .filter(|(_, n)| meets_all(n, &parts.namespace));
            let matching: Vec<&Str> = matching.map(|(name, _)| *name).collect();
            // Objects without a namespace can meet negative tests.
            let mut outside = self.by_namespace.get(&None).into_iter().flatten();
            let has_outside = outside.any(|object| meets_all(object, &parts.namespace));
            if matching.is_empty() && !has_outside {
                let all: Vec<SelectableObject<'_>> = namespaces.iter().map(|(_, n)| *n).collect();
                return Some(find_failing(NAMESPACE_NOUN, "", &parts.namespace, &all));
            }
            places = match matching.as_slice() {
                [] => String::new(),
                [one] => format!(" in namespace {one}"),
                [one, rest @ ..] => format!(" in namespace {one} and {} more", rest.len()),
            };
            let mut all: Vec<Option<&Str>> = matching.into_iter().map(Some).collect();
            all.extend(has_outside.then_some(None));
            names = Some(all);
        }
        let objects: Vec<SelectableObject<'a>> = match &names {
            None => all().copied().collect(),
            Some(names) => {
                let lists = names.iter().filter_map(|name| self.by_namespace.get(name));
                let objects = lists.flatten().copied();
                objects
                    .filter(|object| meets_all(object, &parts.namespace))
                    .collect()
            }
        };
        let objects: Vec<_> = objects
            .into_iter()
            .filter(|object| is_kind(object))
            .collect();
        if objects.is_empty() {
            return Some(miss(format!("there is no {noun}{places}"), None));
        }
        if objects.iter().any(|object| meets_all(object, &parts.own)) {
            return None;
        }
        Some(find_failing(noun, &places, &parts.own, &objects))
    }
}

fn miss(reason: String, hint: Option<SelectorHint>) -> SelectorMiss {
    SelectorMiss { reason, hint }
}

/// What a selector of this kind matches.
fn kind_noun(is_subject: bool, kind: &[&Selector]) -> &'static str {
    let slices = [
        reserved::KIND_ENDPOINT_SLICE,
        reserved::KIND_UNREADY_ENDPOINTS,
    ];
    let value = kind.iter().find_map(|part| match part {
        Selector::In(_, values)
            if values.len() == 1 || values.iter().all(|value| slices.contains(&&**value)) =>
        {
            values.first()
        }
        _ => None,
    });
    match value.map(|value| &**value) {
        Some(reserved::KIND_WORKLOAD) => "pod or workload",
        Some(reserved::KIND_HOST) => "host endpoint",
        Some(reserved::KIND_NODE) => "node",
        Some(reserved::KIND_NETWORK_SET) => "network set",
        Some(reserved::KIND_CIDR_GROUP) => "CiliumCIDRGroup",
        Some(reserved::KIND_ENDPOINT_SLICE | reserved::KIND_UNREADY_ENDPOINTS) => "EndpointSlice",
        _ if is_subject => "endpoint",
        _ => "endpoint, network set or node",
    }
}

/// The test that none of the objects meets; if each is met by one, that none meets them together.
fn find_failing(
    noun: &str,
    places: &str,
    parts: &[&Selector],
    objects: &[SelectableObject<'_>],
) -> SelectorMiss {
    let shown = |part: &Selector| match noun {
        NAMESPACE_NOUN => describe(&of_namespace_itself(part)),
        _ => describe(part),
    };
    let failing = parts
        .iter()
        .copied()
        .find(|part| !objects.iter().any(|o| part.matches(o)));
    let Some(failing) = failing else {
        let all: Vec<String> = parts.iter().map(|part| shown(part)).collect();
        return miss(format!("no {noun}{places} is {}", all.join(" and ")), None);
    };
    miss(
        format!("no {noun}{places} is {}", shown(failing)),
        find_nearest(failing, objects),
    )
}

/// What a test of an object's namespace asks of the namespace.
fn of_namespace_itself(part: &Selector) -> Selector {
    let own = |key: &LabelKey| match key.scope {
        LabelScope::Reserved => LabelKey::reserved(reserved::NAME),
        _ => LabelKey::own(key.name.clone()),
    };
    match part {
        Selector::In(key, values) => Selector::In(own(key), values.clone()),
        Selector::Has(key) => Selector::Has(own(key)),
        Selector::Contains(key, text) => Selector::Contains(own(key), text.clone()),
        Selector::StartsWith(key, text) => Selector::StartsWith(own(key), text.clone()),
        Selector::EndsWith(key, text) => Selector::EndsWith(own(key), text.clone()),
        Selector::Domain(key, pattern) => Selector::Domain(own(key), pattern.clone()),
        Selector::Not(inner) => Selector::negate(of_namespace_itself(inner)),
        Selector::And(parts) => Selector::and(parts.iter().map(of_namespace_itself)),
        Selector::Or(parts) => Selector::or(parts.iter().map(of_namespace_itself)),
    }
}

/// The tests that ask for a label: its key, and the value if they name one.
fn positive_tests<'s>(part: &'s Selector, tests: &mut Vec<(&'s LabelKey, Option<&'s Str>)>) {
    match part {
        Selector::In(key, values) => tests.extend(values.iter().map(|value| (key, Some(value)))),
        Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => tests.push((key, None)),
        Selector::Not(_) => {}
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().for_each(|part| positive_tests(part, tests));
        }
    }
}

/// The label of the objects that is nearest to one that a test asks for.
fn find_nearest(part: &Selector, objects: &[SelectableObject<'_>]) -> Option<SelectorHint> {
    let mut tests = Vec::new();
    positive_tests(part, &mut tests);
    tests
        .into_iter()
        .find_map(|(key, value)| nearest_label(key, value, objects))
}

fn nearest_label(
    key: &LabelKey,
    wanted: Option<&Str>,
    objects: &[SelectableObject<'_>],
) -> Option<SelectorHint> {
    let values: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| object.label(key))
        .collect();
    if values.is_empty() {
        return similar_keys(key, wanted, objects).map(SelectorHint::Nearest);
    }
    let all = || values.iter().map(|value| (*value).to_owned());
    let near = wanted.map_or(Vec::new(), |wanted| similar_names(wanted, all()));
    let shown = |values: Vec<String>| {
        let quoted = values.iter().map(|value| format!("{value:?}"));
        quoted.collect::<Vec<_>>().join(" or ")
    };
    if key.scope == LabelScope::Reserved {
        return (!near.is_empty()).then(|| SelectorHint::Nearest(shown(near)));
    }
    if !near.is_empty() {
        return Some(SelectorHint::Nearest(format!(
            "{} = {}",
            key.name,
            shown(near)
        )));
    }
    let listed = values.len() <= MAX_LISTED_VALUES;
    listed.then(|| SelectorHint::Values(format!("{} = {}", key.name, shown(all().collect()))))
}

/// The keys that are spelled nearly like this one, with the value that is selected where one has it.
fn similar_keys(
    key: &LabelKey,
    wanted: Option<&Str>,
    objects: &[SelectableObject<'_>],
) -> Option<String> {
    let lists_keys = |object: &&SelectableObject<'_>| {
        key.scope == LabelScope::Own
            || (key.scope == LabelScope::Namespace
                && matches!(object, SelectableObject::Namespace(..)))
    };
    let keys = objects
        .iter()
        .filter(lists_keys)
        .flat_map(|object| object.labels().keys());
    let keys: BTreeSet<&Str> = keys.collect();
    let near = similar_names(&key.name, keys.iter().map(|key| (***key).to_owned()));
    let with_value = |near: &String| {
        let key = LabelKey {
            scope: key.scope,
            name: near.as_str().into(),
        };
        let wanted = wanted.map(|wanted| &**wanted);
        let has = |object: &SelectableObject<'_>| object.label(&key) == wanted;
        match wanted.filter(|_| objects.iter().any(has)) {
            Some(value) => format!("{near} = {value:?}"),
            None => near.clone(),
        }
    };
    let shown: Vec<String> = near.iter().map(with_value).collect();
    (!shown.is_empty()).then(|| shown.join(" or "))
}
