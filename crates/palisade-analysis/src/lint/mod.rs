//! What is valid in policies and yet surely not meant, given the endpoints, namespaces and policies of a state.
//!
//! [`lint`] reports subjects and peers that select nothing, rules that earlier ones always decide, rules that
//! add nothing to their policy, policies that change nothing, policies of one order that contradict each other,
//! rules that pass to tiers without policies, tiers and profiles that are named and do not exist, ports and
//! cluster IPs of Services where policy sees those of pods, and rules by name whose names nobody may ask for, or whose
//! answers nobody reads.
//!
//! Promises: exact over all flows, by the classes of ends that policies distinguish; the same state gives the
//! same findings; the work is bounded, and what was not looked at is reported. Never: a guess. Only the nearest
//! label of a finding compares spellings.
//!
//! Deliberately no finding: policies of one order that repeat each other; rules of one policy that match the same
//! only because of the objects that there are; a rule that only isolation by an earlier tier keeps from deciding; a
//! policy that isolates, logs, names domain names or reads DNS queries, and changes nothing; a rule that decides DNS
//! queries by name and does what another does, or contradicts one of a policy of the same order.

mod classified_state;
mod finding;
mod names;
mod pair_rules;
mod peer_implication;
mod policy_effect;
mod references;
mod rule_facts;
mod rule_traffic;
mod selection;
mod services;

use crate::own_nodes::tests_own_node;
use crate::rules::to_u32;
use classified_state::{ClassifiedState, PairLister};
use finding::{FindingList, sort_findings};
use names::{NameChecker, selects_names};
use pair_rules::PairRulesBuilder;
use palisade_api::LintReport;
use palisade_model::{
    Action, Direction, DirectionRules, Endpoint, Family, ObjectId, Peer, Policy, Rule, Selector,
    State, Str, TrafficMatch,
};
use policy_effect::{EffectSearch, PolicyEffect};
use references::find_missing_references;
use rule_facts::{RuleFact, RuleFacts};
use selection::SelectableObjects;
use services::find_service_mistakes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

pub use services::UnnamedPorts;

/// How much work a lint may do: the number of rules that are compared, each time they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LintLimit {
    /// For rules, again for policies, and again for names.
    pub max_steps: u64,
}

impl Default for LintLimit {
    fn default() -> Self {
        LintLimit {
            max_steps: 10_000_000,
        }
    }
}

/// Everything that is surely not meant in the policies of a state. `unnamed` are the ports
/// without a name that its pods and workloads declare.
pub fn lint(state: &State, unnamed: &UnnamedPorts, limit: LintLimit) -> LintReport {
    let objects: BTreeSet<&ObjectId> = state.policies.keys().map(|id| &id.object).collect();
    let mut report = LintReport {
        api_version: palisade_api::api_version(),
        policies: objects.len(),
        findings: Vec::new(),
        not_enforced: BTreeMap::new(),
        unchecked: Vec::new(),
    };
    let mut references = find_missing_references(state);
    references.extend(find_service_mistakes(state, unnamed));
    if state.policies.is_empty() || state.endpoints.is_empty() {
        report.findings = sort_findings(references);
        if state.policies.is_empty() {
            return report;
        }
        let reason = "there is no pod or workload, so it is not known what policies select";
        report.unchecked.push(reason.to_owned());
        return report;
    }
    let (state, unchecked) = without_own_node_tests(state);
    report.unchecked.extend(unchecked);
    let classified = ClassifiedState::new(&state);
    let of_hosts = policies_of_hosts(&state, &classified);
    if !of_hosts.is_empty() {
        let policies = of_hosts
            .iter()
            .map(|at| &classified.rules.policies[*at as usize]);
        let objects: BTreeSet<&ObjectId> = policies.map(|policy| &policy.id.object).collect();
        report.unchecked.push(format!(
            "whether {} policies that select host endpoints, and their rules, change anything",
            objects.len()
        ));
    }
    let mut linter = Linter {
        of_hosts,
        list: FindingList::new(&classified.rules, references),
        lister: PairLister::new(&classified),
        classified: &classified,
        limit,
        unchecked: Vec::new(),
    };
    let without_subject = linter.check_selectors(&state);
    linter.check_rules();
    linter.check_policies(&without_subject);
    linter.check_names();
    report.findings = linter.list.into_findings();
    report.unchecked.extend(linter.unchecked);
    report
}

/// The state without the policies that tell an endpoint's own node from others, and what is left out: what such
/// a policy matches differs from one endpoint to the next, which no class of endpoints shows.
fn without_own_node_tests(state: &State) -> (Cow<'_, State>, Option<String>) {
    let asking = state
        .policies
        .values()
        .filter(|policy| tests_own_node(policy));
    let objects: BTreeSet<&ObjectId> = asking.map(|policy| &policy.id.object).collect();
    if objects.is_empty() {
        return (Cow::Borrowed(state), None);
    }
    let mut rest = state.clone();
    rest.policies.retain(|_, policy| !tests_own_node(policy));
    let reason = format!(
        "{} policies tell a pod's own node from others (entities host and remote-node): they are left out",
        objects.len()
    );
    (Cow::Owned(rest), Some(reason))
}

/// The policies that select a host endpoint. What they decide at interfaces of hosts is in no pair of workloads.
fn policies_of_hosts(state: &State, classified: &ClassifiedState<'_>) -> BTreeSet<u32> {
    let endpoints = state.endpoints.values();
    let hosts: Vec<&Endpoint> = endpoints.filter(|endpoint| endpoint.is_host()).collect();
    let policies = classified.rules.policies.iter().enumerate();
    let selecting = policies.filter(|(_, policy)| {
        let mut hosts = hosts.iter();
        hosts.any(|host| policy.subject.matches(&state.endpoint_labels(host)))
    });
    selecting.map(|(at, _)| to_u32(at)).collect()
}

/// Makes the findings of a state.
struct Linter<'c, 'a> {
    /// The policies that select a host endpoint.
    of_hosts: BTreeSet<u32>,
    classified: &'c ClassifiedState<'a>,
    lister: PairLister<'c, 'a>,
    list: FindingList<'c, 'a>,
    limit: LintLimit,
    unchecked: Vec<String>,
}

impl<'a> Linter<'_, 'a> {
    /// Subjects and peers that select nothing. Returns the policies whose subject does.
    fn check_selectors(&mut self, state: &'a State) -> BTreeSet<u32> {
        let rules = &self.classified.rules;
        let mut selecting = vec![false; rules.policies.len()];
        let mut matched = vec![false; rules.tests.all.len()];
        for class in self.classified.ends.iter().flat_map(|ends| &ends.classes) {
            for policy in &class.signature.policies {
                selecting[*policy as usize] = true;
            }
            for test in &class.signature.matching_tests {
                matched[*test as usize] = true;
            }
        }
        let objects = SelectableObjects::new(state);
        let mut without_subject = BTreeSet::new();
        let mut reported: BTreeSet<(&ObjectId, &Selector)> = BTreeSet::new();
        for (at, policy) in rules.policies.iter().enumerate() {
            // An endpoint that holds no address is in no class, and selected all the same.
            let is_selecting = selecting[at];
            let miss = (!is_selecting).then(|| objects.subject_miss(&policy.subject));
            if let Some(miss) = miss.flatten() {
                without_subject.insert(to_u32(at));
                if reported.insert((&policy.id.object, &policy.subject)) {
                    self.list.add_subject_miss(to_u32(at), &miss);
                }
            }
        }
        let of_policies = rules.policy_rules.iter().cloned().flatten();
        for rule in of_policies {
            let placed = &rules.all[rule];
            for (at, peer) in placed.rule.peers.iter().enumerate() {
                let Some(selector) = peer.selector.as_ref().filter(|s| **s != Selector::none())
                else {
                    continue;
                };
                // A name has addresses once somebody asks for it.
                if selects_names(selector) {
                    continue;
                }
                let mut tests = placed.peers.iter();
                let is_matched =
                    |test: &u32| matched[*test as usize] && rules.tests.all[*test as usize] == peer;
                if tests.any(is_matched) {
                    continue;
                }
                if let Some(miss) = objects.peer_miss(selector) {
                    self.list.add_peer_miss(to_u32(rule), at, &miss);
                }
            }
        }
        without_subject
    }

    /// Rules that do nothing, or not what they say.
    fn check_rules(&mut self) {
        let classified = self.classified;
        let builder = PairRulesBuilder::new(classified, self.limit.max_steps);
        let mut facts = RuleFacts::new(&classified.rules);
        let mut is_complete = true;
        for (family, class, direction) in self.all_subjects() {
            let flow = self
                .lister
                .visit_pairs(family, class, direction, &mut |_, pair| {
                    if pair.rules.is_empty() || facts.take_in(pair, &builder) {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                });
            if flow.is_break() {
                is_complete = false;
                break;
            }
        }
        let mut contradictions: BTreeMap<u32, (u32, BTreeSet<u32>)> = BTreeMap::new();
        for ((later, _), (rule, other)) in &facts.contradictions {
            let entry = contradictions.entry(*later);
            let (_, others) = entry.or_insert_with(|| (*rule, BTreeSet::new()));
            others.insert(*other);
        }
        for (rule, others) in contradictions.into_values() {
            self.list.add_contradiction(rule, &others);
        }
        if !is_complete {
            let steps = self.limit.max_steps;
            self.unchecked.push(format!(
                "rules that are never reached, that add nothing or that pass into nothing: given up after {steps} \
                 steps"
            ));
            return;
        }
        self.report_rules(&mut facts);
    }

    /// Reports the rules of policies that no flow reaches, that add nothing, and that pass into nothing. A rule as
    /// written may be several of the model: what is reported holds for all of them.
    fn report_rules(&mut self, facts: &mut RuleFacts<'_, 'a>) {
        let written = self.written_rules(facts);
        let unreached = written.iter().filter(|parts| {
            let mut parts = parts.iter();
            parts.all(|part| facts.is_surely_unreached(*part))
        });
        let unreached: BTreeSet<u32> = unreached.flatten().copied().collect();
        let redundant = facts.find_redundant(&unreached);
        for parts in written {
            let part_facts = |part: &u32| &facts.facts[*part as usize];
            let merged = |set: fn(&RuleFact) -> &BTreeSet<u32>| -> BTreeSet<u32> {
                parts
                    .iter()
                    .flat_map(|part| set(part_facts(part)))
                    .copied()
                    .collect()
            };
            if unreached.contains(&parts[0]) {
                let sole = part_facts(&parts[0]).sole_deciders.iter().flatten().next();
                let deciders = match sole.filter(|_| parts.len() == 1) {
                    Some(sole) => BTreeSet::from([*sole]),
                    None => merged(|fact| &fact.deciders),
                };
                self.list.add_unreached(parts[0], &deciders);
            } else if parts
                .iter()
                .all(|part| !part_facts(part).is_reached || redundant.contains(part))
                && parts.iter().any(|part| redundant.contains(part))
            {
                self.list
                    .add_redundant(parts[0], &merged(|fact| &fact.substitutes));
            }
            let passing = parts.iter().find(|part| part_facts(part).passes);
            if let Some(passing) = passing
                && !parts.iter().any(|part| part_facts(part).passes_to_policy)
            {
                self.list.add_pass_into_nothing(*passing);
            }
        }
    }

    /// The rules of policies that match a flow, by the rule as it was written.
    fn written_rules(&self, facts: &RuleFacts<'_, 'a>) -> Vec<Vec<u32>> {
        let rules = &self.classified.rules;
        let mut all = Vec::new();
        for (at, range) in rules.policy_rules.iter().enumerate() {
            if self.of_hosts.contains(&to_u32(at)) {
                continue;
            }
            let mut written: BTreeMap<(Direction, u32, Option<&Str>), Vec<u32>> = BTreeMap::new();
            for rule in range.clone().filter(|rule| facts.facts[*rule].matches) {
                let placed = &rules.all[rule];
                let origin = &placed.rule.origin;
                let key = (placed.direction, origin.index, origin.name.as_ref());
                written.entry(key).or_default().push(to_u32(rule));
            }
            all.extend(written.into_values());
        }
        all
    }

    /// Policies that change nothing.
    fn check_policies(&mut self, without_subject: &BTreeSet<u32>) {
        let classified = self.classified;
        let builder = PairRulesBuilder::new(classified, self.limit.max_steps);
        let search = EffectSearch::new(classified, &self.lister, &builder);
        let policies = &classified.rules.policies;
        let mut objects: BTreeMap<&ObjectId, Vec<u32>> = BTreeMap::new();
        for (at, policy) in policies.iter().enumerate() {
            objects
                .entry(&policy.id.object)
                .or_default()
                .push(to_u32(at));
        }
        let mut unknown = 0;
        for parts in objects.into_values() {
            let mut part_policies = parts.iter().map(|part| policies[*part as usize]);
            if parts.iter().all(|part| without_subject.contains(part))
                || parts.iter().any(|part| self.of_hosts.contains(part))
                || part_policies.any(is_kept_for_later)
            {
                continue;
            }
            match search.find_effect(&parts) {
                PolicyEffect::Something => {}
                PolicyEffect::Nothing => self.list.add_without_effect(parts[0]),
                PolicyEffect::Unknown => unknown += 1,
            }
        }
        if unknown > 0 {
            let steps = self.limit.max_steps;
            self.unchecked.push(format!(
                "whether {unknown} policies change anything: given up after {steps} steps"
            ));
        }
    }

    /// Rules by name whose names cannot get addresses.
    fn check_names(&mut self) {
        let max_steps = self.limit.max_steps;
        let mut checker = NameChecker::new(self.classified, &self.lister, max_steps);
        let (mistakes, is_complete) = checker.find_mistakes(&self.of_hosts);
        for (rule, mistake) in mistakes {
            self.list.add_name_mistake(rule, &mistake);
        }
        if !is_complete {
            self.unchecked.push(format!(
                "whether names can get addresses: given up after {max_steps} steps"
            ));
        }
    }

    /// The classes of endpoints, with family and direction.
    fn all_subjects(&self) -> impl Iterator<Item = (Family, u32, Direction)> + use<'a> {
        let mut subjects = Vec::new();
        for family in Family::BOTH {
            for (class, end) in self.classified.ends[family as usize]
                .classes
                .iter()
                .enumerate()
            {
                if end.signature.is_endpoint {
                    subjects.extend(Direction::BOTH.map(|d| (family, to_u32(class), d)));
                }
            }
        }
        subjects.into_iter()
    }
}

/// Whether a policy is meant although it may change nothing: it isolates what it selects, also pods to come, it logs,
/// it has names whose addresses are to come, or it reads DNS queries, by which other policies know addresses.
fn is_kept_for_later(policy: &Policy) -> bool {
    let denies_all = |rule: &Rule| {
        rule.action == Action::Deny
            && rule.peers.iter().any(Peer::is_any)
            && rule.traffic.contains(&TrafficMatch::any())
    };
    let is_kept = |list: &DirectionRules| {
        (list.rules.is_empty() && list.default_deny)
            || (!list.rules.is_empty() && list.rules.iter().all(denies_all))
            || list.rules.iter().any(|rule| rule.action == Action::Log)
            || list.rules.iter().any(|rule| rule.dns_names.is_some())
            || list.rules.iter().any(names_domains)
    };
    let lists = Direction::BOTH
        .into_iter()
        .filter_map(|direction| policy.rules(direction));
    policy.observes_dns || { lists }.any(is_kept)
}

/// Whether a peer of a rule is by name.
fn names_domains(rule: &Rule) -> bool {
    let mut selectors = rule.peers.iter().filter_map(|peer| peer.selector.as_ref());
    selectors.any(selects_names)
}
