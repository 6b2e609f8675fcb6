//! References of policies and endpoints to tiers, Services and profiles that do not exist.
//!
//! Such a policy is evaluated after all others, such a rule matches nothing, and such an endpoint is denied what no
//! policy decides: all are valid, and seldom meant.
//!
//! Promises: what is found holds also where there is no endpoint. Never: looks at what a selector selects.

use super::finding::FindingKey;
use crate::similar_names::similar_names;
use palisade_api::{LintCode, LintFinding, ObjectRef};
use palisade_model::{
    Direction, NetworkSet, ObjectId, Policy, PortSpec, Profile, RuleOrigin, SourceLine, State, Str,
    builtin_tiers,
};
use std::collections::BTreeMap;

/// The findings about missing tiers, Services and profiles, with their places in a report.
pub(super) fn find_missing_references(state: &State) -> Vec<(FindingKey, LintFinding)> {
    let mut findings = missing_tiers(state);
    findings.extend(missing_services(state));
    findings.extend(missing_profiles(state));
    findings
}

/// One finding for each object whose policies name a tier that does not exist.
fn missing_tiers(state: &State) -> Vec<(FindingKey, LintFinding)> {
    let mut objects: BTreeMap<&ObjectId, (&Str, Option<&SourceLine>)> = BTreeMap::new();
    for policy in state.policies.values() {
        if state.tier(&policy.tier).is_none() {
            let policy_place = (&policy.tier, policy.line.as_ref());
            objects.entry(&policy.id.object).or_insert(policy_place);
        }
    }
    let builtin = builtin_tiers().map(|tier| tier.name.to_string());
    let all = || {
        let of_objects = state.tiers.keys().map(Str::to_string);
        of_objects.chain(builtin.clone())
    };
    let finding = |(object, (tier, line)): (&ObjectId, (&Str, Option<&SourceLine>))| {
        let message = format!(
            "its tier {tier:?} does not exist, so it is evaluated after all tiers that do, and what it selects and \
             does not allow is denied there"
        );
        let otherwise = "create the tier, or correct the name";
        let suggestion = name_suggestion(tier, all(), otherwise);
        let reference = ReferencePlace::of(object, line);
        reference.finding(LintCode::TierMissing, message, suggestion)
    };
    objects.into_iter().map(finding).collect()
}

/// One finding for each rule that names a Service whose ports are not known.
fn missing_services(state: &State) -> Vec<(FindingKey, LintFinding)> {
    let mut findings = Vec::new();
    // Many rules may name one Service, and a cluster has many.
    let mut suggestions: BTreeMap<&str, String> = BTreeMap::new();
    for policy in state.policies.values() {
        for direction in Direction::BOTH {
            let rules = policy.rules(direction).into_iter();
            for rule in rules.flat_map(|rules| &rules.rules) {
                let mut specs =
                    (rule.traffic.iter()).flat_map(|term| term.destination.any_of.iter().flatten());
                let Some(service) = specs.find_map(PortSpec::service) else {
                    continue;
                };
                let reference = ReferencePlace::of_rule(policy, direction, &rule.origin);
                let message = format!(
                    "it matches nothing: Service {service} has no EndpointSlice with ports here"
                );
                let suggestion = suggestions
                    .entry(service)
                    .or_insert_with(|| service_suggestion(state, service));
                let code = LintCode::ServiceMissing;
                findings.push(reference.finding(code, message, suggestion.clone()));
            }
        }
    }
    findings
}

fn service_suggestion(state: &State, service: &str) -> String {
    let all = state.network_sets.values().filter_map(|set| {
        let service = set.labels.get(NetworkSet::SERVICE_LABEL)?;
        Some(format!("{}/{service}", set.id.namespace.as_ref()?))
    });
    let otherwise = "add the EndpointSlices of the Service, or correct its name";
    name_suggestion(service, all, otherwise)
}

/// One finding for each profile that endpoints name and that does not exist, at the first of them.
fn missing_profiles(state: &State) -> Vec<(FindingKey, LintFinding)> {
    let mut profiles: BTreeMap<&Str, Vec<&ObjectId>> = BTreeMap::new();
    for endpoint in state.endpoints.values() {
        for profile in &endpoint.profiles {
            let is_builtin = **profile == *Profile::ALLOW_ALL;
            if is_builtin || state.profiles.contains_key(profile) {
                continue;
            }
            let naming = profiles.entry(profile).or_default();
            // One may name it twice.
            if naming.last() != Some(&&endpoint.id) {
                naming.push(&endpoint.id);
            }
        }
    }
    let finding = |(profile, endpoints): (&Str, Vec<&ObjectId>)| {
        let first = *endpoints.first()?;
        let others = match endpoints.len() {
            1 => String::new(),
            2 => " (also at 1 other endpoint)".to_owned(),
            count => format!(" (also at {} other endpoints)", count - 1),
        };
        let message = format!(
            "its profile {profile:?} does not exist, so what no policy decides is denied{others}"
        );
        let otherwise =
            "create the profile, or the namespace or service account of which it is made";
        let names = state.profiles.keys().map(Str::to_string);
        let suggestion = name_suggestion(profile, names, otherwise);
        let reference = ReferencePlace::of(first, None);
        Some(reference.finding(LintCode::ProfileMissing, message, suggestion))
    };
    profiles.into_iter().filter_map(finding).collect()
}

fn name_suggestion(name: &str, existing: impl Iterator<Item = String>, otherwise: &str) -> String {
    let near = similar_names(name, existing);
    let near: Vec<String> = near.iter().map(|name| format!("{name:?}")).collect();
    if near.is_empty() {
        otherwise.to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

/// Where a name is that refers to nothing, or an address or port to a Service.
pub(super) struct ReferencePlace<'a> {
    object: &'a ObjectId,
    /// The line of the object.
    object_line: Option<&'a SourceLine>,
    /// The line of the finding.
    line: Option<&'a SourceLine>,
    rule: Option<(Direction, &'a RuleOrigin)>,
}

impl<'a> ReferencePlace<'a> {
    /// A place in an object, at its line.
    fn of(object: &'a ObjectId, line: Option<&'a SourceLine>) -> Self {
        ReferencePlace {
            object,
            object_line: line,
            line,
            rule: None,
        }
    }

    /// A rule of a policy, at its line.
    pub(super) fn of_rule(
        policy: &'a Policy,
        direction: Direction,
        origin: &'a RuleOrigin,
    ) -> Self {
        ReferencePlace {
            rule: Some((direction, origin)),
            line: origin.line.as_ref().or(policy.line.as_ref()),
            ..ReferencePlace::of(&policy.id.object, policy.line.as_ref())
        }
    }

    pub(super) fn finding(
        &self,
        code: LintCode,
        message: String,
        suggestion: String,
    ) -> (FindingKey, LintFinding) {
        let rule_name = self.rule.and_then(|(_, origin)| origin.name.as_ref());
        let finding = LintFinding {
            code,
            policy: ObjectRef::new(self.object, self.object_line),
            direction: self.rule.map(|(direction, _)| direction),
            rule: self.rule.map(|(_, origin)| origin.index),
            rule_name: rule_name.map(Str::to_string),
            line: self.line.map(ToString::to_string),
            message,
            suggestion,
            related: Vec::new(),
        };
        let key = (
            self.line.is_none(),
            self.line.cloned(),
            u32::MAX,
            0,
            code,
            0,
        );
        (key, finding)
    }
}
