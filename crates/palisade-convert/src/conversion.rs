//! Converts whole objects: writes each with the writer of the target, reads it back and compares.
//!
//! Promises: an object is written whole or not at all; the same input gives the same output.

use crate::draft::{Draft, NameAffix};
use crate::inexpressible::{Inexpressible, InexpressibleReason};
use crate::pods::{conjuncts, workloads, workloads_and_hosts};
use crate::position::SharedPlaces;
use crate::refusals::{Refusals, RulePart};
use crate::simplify::simplify;
use crate::target::TargetDialect;
use crate::{calico, cilium, cluster_policy, kubernetes, label_syntax, read_back};
use palisade_dialects::{MODE_ANNOTATION, has_names, is_policy_kind};
use palisade_model::{
    Direction, ObjectId, ObjectKind, Policy, PolicyId, PolicyMode, Selector, SourceLine, State,
    TrafficScope,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A policy object of the input.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// The object.
    id: ObjectId,
    /// What it is lowered to, of what is in force.
    policies: Vec<Policy>,
    /// Where it was written.
    line: Option<SourceLine>,
    /// Why it cannot be converted into anything, and the path of the part.
    fault: Option<(InexpressibleReason, Option<String>)>,
    /// The object as written.
    manifest: Value,
}

impl PolicySource {
    /// The object of a manifest, with the policies of a state that it is lowered to.
    #[must_use]
    pub fn new(id: ObjectId, manifest: &Value, state: &State) -> Self {
        PolicySource::of_definitions(id, &[manifest], state)
    }

    /// An object with all its definitions. One with several cannot be converted: which of them counts is not known.
    #[must_use]
    pub fn of_definitions(id: ObjectId, manifests: &[&Value], state: &State) -> Self {
        let part = |part| PolicyId {
            object: id.clone(),
            part,
        };
        let mut in_force = state.policies.range(part(0)..=part(u32::MAX));
        let written = manifests
            .first()
            .map(|first| read_back::lower_source(first));
        let policies = written.into_iter().flatten().filter_map(|policy| {
            let in_force = state.policies.get(&policy.id)?;
            Some(confine_to_pods(with_lines(policy, in_force), state))
        });
        PolicySource {
            policies: policies.collect(),
            line: in_force.next().and_then(|(_, policy)| policy.line.clone()),
            fault: match manifests {
                [only] => read_back::find_fault(only),
                _ => Some((InexpressibleReason::DefinedTwice, None)),
            },
            manifest: manifests
                .first()
                .map_or(Value::Null, |first| (*first).clone()),
            id,
        }
    }

    /// The object.
    #[must_use]
    pub fn id(&self) -> &ObjectId {
        &self.id
    }
}

/// A policy with the lines that the same policy has in a state.
fn with_lines(mut policy: Policy, in_force: &Policy) -> Policy {
    policy.line.clone_from(&in_force.line);
    let lists = [
        (&mut policy.ingress, &in_force.ingress),
        (&mut policy.egress, &in_force.egress),
    ];
    for (list, in_force) in lists {
        let lines: BTreeMap<u32, &Option<SourceLine>> = in_force
            .iter()
            .flat_map(|list| &list.rules)
            .map(|rule| (rule.origin.index, &rule.origin.line))
            .collect();
        for rule in list.iter_mut().flat_map(|list| &mut list.rules) {
            let line = lines.get(&rule.origin.index);
            rule.origin.line = line.and_then(|line| (*line).clone());
        }
    }
    policy
}

/// A policy of Calico for pods and host endpoints as one for pods, where it selects no host endpoint of the input.
fn confine_to_pods(mut policy: Policy, state: &State) -> Policy {
    let mut hosts = state
        .endpoints
        .values()
        .filter(|endpoint| endpoint.is_host());
    let selects_host = |host| policy.subject.matches(&state.endpoint_labels(host));
    if policy.scope.is_early() || hosts.any(selects_host) {
        return policy;
    }
    let confine = |part: &Selector| {
        if *part == workloads_and_hosts() {
            workloads()
        } else {
            part.clone()
        }
    };
    policy.subject = Selector::and(conjuncts(&policy.subject).iter().map(confine));
    policy.scope = TrafficScope::Endpoints;
    policy
}

/// Whether an object is a policy, of any dialect.
#[must_use]
pub fn is_policy(id: &ObjectId) -> bool {
    is_policy_kind(&id.kind)
}

/// An object that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenObject {
    /// The policy that it was written for.
    pub source: ObjectId,
    /// Its own name.
    pub id: ObjectId,
    /// The object, ready to be applied.
    pub object: Value,
}

/// What became of the policies of an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversion {
    /// What was written, in the order of the sources.
    pub objects: Vec<WrittenObject>,
    /// What could not be, by policy and path.
    pub inexpressible: Vec<Inexpressible>,
}

/// Writes the selected objects of an input in a dialect. `sources` are all policies of the input, and `state` is what
/// all its manifests are lowered to.
#[must_use]
pub fn convert(
    sources: &[PolicySource],
    is_selected: impl Fn(&ObjectId) -> bool,
    state: &State,
    target: TargetDialect,
) -> Conversion {
    let mut conversion = Conversion::default();
    let mut names: BTreeSet<ObjectId> = sources.iter().map(|source| source.id.clone()).collect();
    let shared = SharedPlaces::new(state);
    for source in sources.iter().filter(|source| is_selected(&source.id)) {
        match convert_object(source, &names, &shared, target) {
            Ok(objects) => {
                names.extend(objects.iter().map(|object| object.id.clone()));
                conversion.objects.extend(objects);
            }
            Err(inexpressible) => conversion.inexpressible.extend(inexpressible),
        }
    }
    conversion.inexpressible.sort();
    conversion
}

fn convert_object(
    source: &PolicySource,
    names: &BTreeSet<ObjectId>,
    shared: &SharedPlaces<'_>,
    target: TargetDialect,
) -> Result<Vec<WrittenObject>, Vec<Inexpressible>> {
    let refuse = |reason| {
        vec![Inexpressible {
            policy: source.id.clone(),
            rule: None,
            reason,
            line: source.line.clone(),
        }]
    };
    let is_sound = matches!(
        source.fault,
        None | Some((InexpressibleReason::HeldClosed, _))
    );
    if is_sound && target.has_kind(&source.id.kind) {
        return Ok(vec![WrittenObject {
            source: source.id.clone(),
            id: source.id.clone(),
            object: without_server_fields(&source.manifest),
        }]);
    }
    if let Some((fault, rule)) = &source.fault {
        let mut refused = refuse(fault.clone());
        refused
            .iter_mut()
            .for_each(|refusal| refusal.rule.clone_from(rule));
        return Err(refused);
    }
    let simple: Vec<Policy> = source.policies.iter().map(simplify).collect();
    let parts: Vec<&Policy> = simple.iter().collect();
    if parts.is_empty() {
        return Err(refuse(InexpressibleReason::NothingEnforced));
    }
    if parts.iter().any(|part| part.scope.is_early()) {
        return Err(refuse(InexpressibleReason::EarlyTraffic(target)));
    }
    let mut refusals = Refusals::default();
    check_names(&parts, target, &mut refusals);
    if target != TargetDialect::Calico {
        label_syntax::check(&parts, target, &mut refusals);
    }
    let sayable: Vec<&Policy> = parts
        .iter()
        .copied()
        .filter(|part| !has_dns_rules(part))
        .collect();
    let drafts = drafts(&sayable, target, &mut refusals);
    if !refusals.is_empty() {
        return Err(refusals.into_list());
    }
    let audit = parts.iter().any(|policy| policy.mode == PolicyMode::Audit);
    let written: Vec<WrittenObject> = drafts
        .into_iter()
        .map(|draft| name_draft(draft, &source.id, audit))
        .collect();
    let is_taken = |id: &&ObjectId| **id != source.id && names.contains(*id);
    if let Some(taken) = written.iter().map(|object| &object.id).find(is_taken) {
        return Err(refuse(InexpressibleReason::NameTaken(taken.clone())));
    }
    let changes_kind = written
        .iter()
        .any(|object| object.id.kind != source.id.kind);
    if changes_kind && let Some(other) = shared.find_rival(&parts) {
        return Err(refuse(InexpressibleReason::SharedPriority(other)));
    }
    check(&written, &parts).map_err(|reason| refuse(InexpressibleReason::CheckFailed(reason)))?;
    Ok(written)
}

/// Refuses rules of DNS names, and names as peers where their addresses are learnt in another way.
fn check_names(parts: &[&Policy], target: TargetDialect, refusals: &mut Refusals) {
    for policy in parts {
        let rules = policy.egress.iter().flat_map(|list| &list.rules);
        for rule in rules.filter(|rule| rule.dns_names.is_some()) {
            let place = (*policy, Direction::Egress);
            let reason = InexpressibleReason::DnsNames(target);
            refusals.of_rule(place, (rule, RulePart::Whole), reason);
        }
        let is_of_cilium = TargetDialect::Cilium.has_kind(&policy.id.object.kind);
        let changes_source = is_of_cilium != (target == TargetDialect::Cilium);
        if changes_source && has_names(policy.egress.as_ref()) {
            refusals.of_policy(policy, InexpressibleReason::NamesLearntElsewhere);
        }
    }
}

/// Whether a policy has rules of DNS names.
fn has_dns_rules(policy: &Policy) -> bool {
    let mut rules = policy.egress.iter().flat_map(|list| &list.rules);
    rules.any(|rule| rule.dns_names.is_some())
}

/// A manifest without what only a server writes.
fn without_server_fields(manifest: &Value) -> Value {
    const KEPT: [&str; 4] = ["name", "namespace", "labels", "annotations"];
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut manifest = manifest.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.shift_remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| KEPT.contains(&&**key));
            let annotations = metadata.get_mut("annotations");
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.shift_remove(LAST_APPLIED);
            }
        }
    }
    manifest
}

/// Reads back what was written, and compares it.
fn check(written: &[WrittenObject], parts: &[&Policy]) -> Result<(), String> {
    let mut policies = Vec::new();
    for object in written {
        policies.extend(read_back::lower_written(&object.object)?);
    }
    read_back::compare(parts, &policies)
}

fn drafts(parts: &[&Policy], target: TargetDialect, refusals: &mut Refusals) -> Vec<Draft> {
    let spec = |value: Value| Map::from_iter([("spec".to_owned(), value)]);
    let numbered = |index: usize| NameAffix {
        suffix: match index {
            0 => String::new(),
            index => format!("-{}", index + 1),
        },
        ..NameAffix::default()
    };
    match target {
        TargetDialect::Kubernetes => {
            let each = parts.iter().enumerate();
            each.filter_map(|(index, policy)| {
                let (namespace, value) = kubernetes::write(policy, refusals)?;
                Some(Draft {
                    api_version: "networking.k8s.io/v1",
                    kind: "NetworkPolicy",
                    namespace: Some(namespace),
                    affix: numbered(index),
                    fields: spec(value),
                })
            })
            .collect()
        }
        TargetDialect::ClusterNetworkPolicy => {
            let each = parts.iter().enumerate();
            each.filter_map(|(index, policy)| {
                Some(Draft {
                    api_version: "policy.networking.k8s.io/v1alpha2",
                    kind: "ClusterNetworkPolicy",
                    namespace: None,
                    affix: numbered(index),
                    fields: spec(cluster_policy::write(policy, refusals)?),
                })
            })
            .collect()
        }
        TargetDialect::Cilium => {
            let Some(object) = cilium::write(parts, refusals) else {
                return Vec::new();
            };
            let mut specs = object.specs;
            let fields = match specs.len() {
                1 => spec(specs.remove(0)),
                _ => Map::from_iter([("specs".to_owned(), Value::Array(specs))]),
            };
            let kind = match object.namespace {
                Some(_) => "CiliumNetworkPolicy",
                None => "CiliumClusterwideNetworkPolicy",
            };
            vec![Draft {
                api_version: "cilium.io/v2",
                kind,
                namespace: object.namespace,
                affix: NameAffix::default(),
                fields,
            }]
        }
        TargetDialect::Calico => calico::write(parts, refusals),
    }
}

fn name_draft(draft: Draft, source: &ObjectId, audit: bool) -> WrittenObject {
    let name = format!(
        "{}{}{}",
        draft.affix.prefix, source.name, draft.affix.suffix
    );
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = &draft.namespace {
        metadata["namespace"] = json!(namespace);
    }
    if audit {
        metadata["annotations"] = json!({ MODE_ANNOTATION: "audit" });
    }
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(draft.api_version));
    object.insert("kind".to_owned(), json!(draft.kind));
    object.insert("metadata".to_owned(), metadata);
    object.extend(draft.fields);
    let group = draft
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    WrittenObject {
        source: source.clone(),
        id: ObjectId {
            namespace: draft.namespace,
            name: name.into(),
            kind: ObjectKind::new(group, draft.kind),
        },
        object: Value::Object(object),
    }
}
