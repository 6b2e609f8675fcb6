//! Compares the findings of `lint` with the oracle, flow by flow, on random states.
//!
//! What a finding claims is tried out: the policy or rule is removed, its action changed, the names of two
//! policies swapped; then the oracle judges flows between all ends, with every address, port and message at which
//! a test of the generated rules can change. So findings are neither wrong nor missing, except for the
//! exemptions that are written down here a second time.

use super::flows::{Flows, options};
use super::generate::Dice;
use palisade_analysis::{LintLimit, UnnamedPorts, lint};
use palisade_api::{LintCode, LintFinding};
use palisade_generators::{case_seeds, line};
use palisade_model::*;
use palisade_oracle::{FlowEnd, PreparedState};
use std::collections::{BTreeMap, BTreeSet};

/// A rule: its policy, direction and index.
type RuleName = (PolicyId, Direction, usize);

fn name_of(state: &State, finding: &LintFinding) -> PolicyId {
    let is = |id: &&PolicyId| {
        *id.object.name == *finding.policy.name
            && id.object.namespace.as_deref() == finding.policy.namespace.as_deref()
    };
    state.policies.keys().find(is).unwrap().clone()
}

fn rule_of(state: &State, finding: &LintFinding) -> RuleName {
    let index = finding.rule.unwrap() as usize;
    (name_of(state, finding), finding.direction.unwrap(), index)
}

fn rules_mut<'s>(state: &'s mut State, name: &RuleName) -> &'s mut Vec<Rule> {
    let policy = state.policies.get_mut(&name.0).unwrap();
    let list = match name.1 {
        Direction::Ingress => &mut policy.ingress,
        Direction::Egress => &mut policy.egress,
    };
    &mut list.as_mut().unwrap().rules
}

fn with_action(state: &State, name: &RuleName, action: Action) -> State {
    let mut changed = state.clone();
    rules_mut(&mut changed, name)[name.2].action = action;
    changed
}

fn all_rules(state: &State) -> Vec<RuleName> {
    let mut names = Vec::new();
    for policy in state.policies.values() {
        for direction in Direction::BOTH {
            let count = policy.rules(direction).map_or(0, |list| list.rules.len());
            names.extend((0..count).map(|index| (policy.id.clone(), direction, index)));
        }
    }
    names
}

/// Moves all policies into one tier with three orders, and repeats some of their rules; often the first policy
/// then decides everything, or one protocol.
fn crowd(state: &mut State, dice: &mut Dice) {
    let tier = [tier_name::KUBE_ADMIN, tier_name::DEFAULT][dice.below(2)];
    let actions = [Action::Allow, Action::Deny, Action::Pass];
    if let Some(mut first) = state.policies.first_entry().filter(|_| dice.below(3) > 0) {
        let first = first.get_mut();
        first.subject = Selector::all();
        for list in [&mut first.ingress, &mut first.egress]
            .into_iter()
            .flatten()
        {
            list.rules
                .extend(list.rules.first().cloned().map(|rule| Rule {
                    action: actions[dice.below(3)],
                    peers: vec![Peer::any()],
                    local: None,
                    traffic: vec![
                        [TrafficMatch::any(), TrafficMatch::protocol(Protocol::TCP)][dice.below(2)]
                            .clone(),
                    ],
                    dns_names: None,
                    ..rule
                }));
        }
    }
    for policy in state.policies.values_mut() {
        policy.tier = tier.into();
        policy.precedence.order = Order::from_number([1.0, 2.0, 3.0][dice.below(3)]);
        for list in [&mut policy.ingress, &mut policy.egress]
            .into_iter()
            .flatten()
        {
            let repeated = list.rules.get(dice.below(4)).cloned();
            if let Some(mut rule) = repeated {
                if dice.below(2) == 0 {
                    rule.traffic = vec![TrafficMatch::any()];
                }
                list.rules.push(rule);
            }
            for (index, rule) in (0..).zip(&mut list.rules) {
                rule.origin.index = index;
            }
        }
    }
}

/// A random state with its findings.
struct Case {
    state: State,
    findings: Vec<LintFinding>,
    flows: Flows,
}

impl Case {
    fn new(seed: u64) -> Self {
        Case::with(seed, |_| {})
    }

    /// The case of a seed, with its state changed.
    fn with(seed: u64, change: impl FnOnce(&mut State)) -> Self {
        let mut dice = Dice::new(seed);
        let mut state = dice.state();
        if seed.is_multiple_of(2) {
            crowd(&mut state, &mut dice);
        }
        change(&mut state);
        let report = lint(&state, &UnnamedPorts::new(), LintLimit::default());
        let mut unchecked = report.unchecked.iter();
        let of_hosts = |text: &String| text.contains("that select host endpoints");
        assert!(
            unchecked.all(of_hosts),
            "seed {seed}: {:?}",
            report.unchecked
        );
        Case {
            flows: Flows::of(&state),
            findings: report.findings,
            state,
        }
    }

    fn of(&self, code: LintCode) -> impl Iterator<Item = &LintFinding> {
        self.findings
            .iter()
            .filter(move |finding| finding.code == code)
    }

    fn rules_of(&self, code: LintCode) -> BTreeSet<RuleName> {
        self.of(code)
            .map(|finding| rule_of(&self.state, finding))
            .collect()
    }

    fn policies_of(&self, code: LintCode) -> BTreeSet<PolicyId> {
        self.of(code)
            .map(|finding| name_of(&self.state, finding))
            .collect()
    }
}

/// Whether a policy selects a host endpoint: what it does at a host is not judged here.
fn selects_host(state: &State, policy: &Policy) -> bool {
    let mut hosts = state
        .endpoints
        .values()
        .filter(|endpoint| endpoint.is_host());
    hosts.any(|host| policy.subject.matches(&state.endpoint_labels(host)))
}

/// Whether a selector selects names. The generator makes it alone.
fn is_by_name(selector: &Selector) -> bool {
    let mut is_by_name = false;
    selector.for_each_key(&mut |key| is_by_name |= *key == LabelKey::reserved(reserved::DOMAIN));
    is_by_name
}

/// What a rule allows by name.
fn names_of(rule: &Rule) -> Vec<&Selector> {
    let selectors = rule.peers.iter().filter_map(|peer| peer.selector.as_ref());
    selectors.filter(|selector| is_by_name(selector)).collect()
}

/// Policies that are meant although they may change nothing.
fn is_exempt(state: &State, policy: &Policy) -> bool {
    let selects = |e: &Endpoint| policy.subject.matches(&state.endpoint_labels(e));
    if selects_host(state, policy) {
        return true;
    }
    let denies_all = |rule: &Rule| {
        rule.action == Action::Deny
            && rule.peers.contains(&Peer::any())
            && rule.traffic.contains(&TrafficMatch::any())
    };
    let lists = [&policy.ingress, &policy.egress].into_iter().flatten();
    let kept = { lists }.any(|list| {
        let rules = &list.rules;
        rules.iter().any(|rule| {
            rule.action == Action::Log || rule.dns_names.is_some() || !names_of(rule).is_empty()
        }) || (rules.is_empty() && list.default_deny)
            || (!rules.is_empty() && rules.iter().all(denies_all))
    });
    kept || policy.observes_dns || !state.endpoints.values().any(selects)
}

#[test]
fn policies_change_nothing_if_the_oracle_says_so() {
    let mut counts = [0; 2];
    for seed in case_seeds(40_000, 120) {
        let case = Case::new(seed);
        let reported = case.policies_of(LintCode::PolicyChangesNothing);
        for (id, policy) in &case.state.policies {
            let mut without = case.state.clone();
            without.policies.remove(id);
            let changed = case.flows.find_other_connection(&case.state, &without);
            let expected = changed.is_none() && !is_exempt(&case.state, policy);
            assert_eq!(
                reported.contains(id),
                expected,
                "seed {seed}: {id} {changed:?}\n{:#?}",
                case.state
            );
            counts[usize::from(expected)] += 1;
        }
    }
    println!(
        "{} policies change something, {} nothing",
        counts[0], counts[1]
    );
    assert!(counts[1] > 20 && counts[0] > 100, "{counts:?}");
}

/// Whether a rule matches a flow: alone, it denies one.
fn matches_alone(case: &Case, name: &RuleName) -> bool {
    let mut alone = case.state.clone();
    alone.policies.retain(|id, _| *id == name.0);
    for profile in alone.endpoints.values_mut() {
        profile.profiles = vec![Profile::ALLOW_ALL.into()];
    }
    let policy = alone.policies.get_mut(&name.0).unwrap();
    for (direction, list) in [
        (Direction::Ingress, &mut policy.ingress),
        (Direction::Egress, &mut policy.egress),
    ] {
        let Some(list) = list else { continue };
        list.default_deny = false;
        let rule = list
            .rules
            .get(name.2)
            .filter(|_| direction == name.1)
            .cloned();
        list.rules = rule.into_iter().collect();
        list.rules
            .iter_mut()
            .for_each(|rule| rule.action = Action::Deny);
    }
    let mut none = alone.clone();
    none.policies.clear();
    let changed = case.flows.find_other_verdict_without_names(&alone, &none);
    changed.is_some()
}

/// Whether a rule decides a flow: with another action something changes.
fn decides(case: &Case, name: &RuleName) -> bool {
    let actions = [Action::Allow, Action::Deny];
    let own = case.state.policies[&name.0].rules(name.1).unwrap().rules[name.2].action;
    let others = actions.into_iter().filter(|action| *action != own);
    { others }.any(|action| {
        let changed = with_action(&case.state, name, action);
        case.flows
            .find_other_verdict(&case.state, &changed)
            .is_some()
    })
}

#[test]
fn rules_that_are_reported_decide_nothing() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in case_seeds(50_000, 120) {
        let case = Case::new(seed);
        let unreached = case.rules_of(LintCode::RuleNeverReached);
        let redundant = case.rules_of(LintCode::RuleAddsNothing);
        let mut without = case.state.clone();
        for name in unreached.iter().chain(&redundant).rev() {
            rules_mut(&mut without, name)[name.2].peers.clear();
        }
        let changed = case.flows.find_other_verdict(&case.state, &without);
        assert_eq!(
            changed, None,
            "seed {seed}: {:#?}\n{:#?}",
            case.findings, case.state
        );
        let mut count = |word, number: usize| *counts.entry(word).or_default() += number;
        count("unreached", unreached.len());
        count("redundant", redundant.len());
        for name in all_rules(&case.state) {
            let policy = &case.state.policies[&name.0];
            let rule = &policy.rules(name.1).unwrap().rules[name.2];
            if rule.action == Action::Log {
                continue;
            }
            let is_decided = decides(&case, &name);
            assert!(
                !(is_decided && unreached.contains(&name)),
                "seed {seed}: {name:?}"
            );
            // One that decides queries by name may do what another does.
            let is_whole = rule.dns_names.is_none();
            if !is_decided
                && is_whole
                && can_be_complete(&case.state, &name)
                && matches_alone(&case, &name)
            {
                count("found by the oracle", 1);
                assert!(
                    unreached.contains(&name),
                    "seed {seed}: {name:?}\n{:#?}",
                    case.state
                );
            }
        }
    }
    println!("{counts:?}");
    assert!(
        counts["unreached"] > 10 && counts["redundant"] > 0,
        "{counts:?}"
    );
    assert!(counts["found by the oracle"] > 2, "{counts:?}");
}

/// Whether a rule that decides nothing must be reported: no policy of its own order, no tier that isolates, and
/// no rule of its policy that does the same can be the reason.
fn can_be_complete(state: &State, name: &RuleName) -> bool {
    if selects_host(state, &state.policies[&name.0]) {
        return false;
    }
    let policy = &state.policies[&name.0];
    let own = &policy.rules(name.1).unwrap().rules[..=name.2];
    let (rule, before) = own.split_last().unwrap();
    let isolates = |other: &Policy| {
        other.rules(name.1).is_some_and(|list| list.default_deny)
            && state
                .tier(&other.tier)
                .is_none_or(|t| t.default == TierDefault::Deny)
    };
    let mut others = state
        .policies
        .values()
        .filter(|other| other.id != policy.id);
    before.iter().all(|other| other.action != rule.action)
        && !others.any(|other| {
            (other.tier == policy.tier && other.precedence == policy.precedence)
                || (other.tier != policy.tier && isolates(other))
        })
}

#[test]
fn names_decide_if_a_contradiction_is_reported() {
    let mut counts = [0; 2];
    for seed in case_seeds(60_000, 600) {
        let case = Case::new(seed);
        let state = &case.state;
        let mut groups: BTreeMap<_, Vec<&PolicyId>> = BTreeMap::new();
        for policy in state.policies.values() {
            let place = (&policy.tier, policy.precedence);
            groups.entry(place).or_default().push(&policy.id);
        }
        let reported = case.policies_of(LintCode::OrderDecidedByName);
        for mut group in groups.into_values().filter(|group| group.len() == 2) {
            // In the order of evaluation.
            group.sort_by(|a, b| a.cmp_by_name(b));
            let mut swapped = state.clone();
            for (id, other) in [(group[0], group[1]), (group[1], group[0])] {
                let mut policy = state.policies[id].clone();
                policy.id = other.clone();
                swapped.policies.insert(other.clone(), policy);
            }
            let changed = case.flows.find_other_verdict_without_names(state, &swapped);
            let has_pass = group.iter().any(|id| {
                let policy = &state.policies[*id];
                let lists = [&policy.ingress, &policy.egress].into_iter().flatten();
                { lists }
                    .flat_map(|list| &list.rules)
                    .any(|rule| rule.action == Action::Pass)
            });
            let is_reported = reported.contains(group[1]);
            // What is passed can be decided in the same way later.
            let expected = changed.is_some() || (has_pass && is_reported);
            assert_eq!(
                is_reported, expected,
                "seed {seed}: {group:?} {changed:?}\n{state:#?}"
            );
            counts[usize::from(changed.is_some())] += 1;
        }
    }
    println!(
        "{} pairs agree, {} contradict each other",
        counts[0], counts[1]
    );
    assert!(counts[0] > 20 && counts[1] > 5, "{counts:?}");
}

#[test]
fn a_pass_into_nothing_does_what_no_policy_does() {
    let mut count = 0;
    for seed in case_seeds(70_000, 300) {
        let case = Case::new(seed);
        let mut state = case.state.clone();
        for endpoint in state.endpoints.values_mut() {
            endpoint.profiles = vec![Profile::ALLOW_ALL.into()];
        }
        let passing = case.rules_of(LintCode::PassIntoNothing);
        for name in &passing {
            let allowing = with_action(&state, name, Action::Allow);
            let changed = case.flows.find_other_verdict(&state, &allowing);
            assert_eq!(changed, None, "seed {seed}: {name:?}\n{state:#?}");
            count += 1;
        }
        // Where no other tier has policies, each pass that decides a flow is one into nothing.
        let tiers: BTreeSet<&Str> = state.policies.values().map(|policy| &policy.tier).collect();
        for name in all_rules(&state) {
            let action = state.policies[&name.0].rules(name.1).unwrap().rules[name.2].action;
            let is_of_host = selects_host(&state, &state.policies[&name.0]);
            if tiers.len() == 1 && action == Action::Pass && !is_of_host && !passing.contains(&name)
            {
                let denying = with_action(&state, &name, Action::Deny);
                let changed = case.flows.find_other_verdict(&state, &denying);
                assert_eq!(changed, None, "seed {seed}: {name:?}\n{state:#?}");
            }
        }
    }
    println!("{count} pass into nothing");
    assert!(count > 20, "{count}");
}

#[test]
fn subjects_and_peers_select_nothing_if_no_object_matches() {
    let (mut subjects, mut peers) = (0, 0);
    for seed in case_seeds(80_000, 1_000) {
        let case = Case::new(seed);
        let state = &case.state;
        let selects = |s: &Selector| {
            state
                .endpoints
                .values()
                .any(|e| s.matches(&state.endpoint_labels(e)))
        };
        let matches = |s: &Selector| {
            selects(s)
                || state
                    .network_sets
                    .values()
                    .any(|set| s.matches(&state.network_set_labels(set)))
                || state
                    .nodes
                    .values()
                    .any(|node| s.matches(&state.node_labels(node, None)))
        };
        let expected: BTreeSet<PolicyId> = state
            .policies
            .values()
            .filter(|policy| !selects(&policy.subject))
            .map(|policy| policy.id.clone())
            .collect();
        assert_eq!(
            case.policies_of(LintCode::SubjectSelectsNothing),
            expected,
            "seed {seed}"
        );
        subjects += expected.len();
        let mut expected = Vec::new();
        for name in all_rules(state) {
            let rule = &state.policies[&name.0].rules(name.1).unwrap().rules[name.2];
            let selectors = rule.peers.iter().filter_map(|peer| peer.selector.as_ref());
            let missing = selectors
                .filter(|s| !matches(s) && **s != Selector::none() && !is_by_name(s))
                .count();
            expected.extend(std::iter::repeat_n(name, missing));
        }
        let mut reported: Vec<RuleName> = case
            .of(LintCode::PeerSelectsNothing)
            .map(|f| rule_of(state, f))
            .collect();
        reported.sort();
        assert_eq!(reported, expected, "seed {seed}");
        peers += expected.len();
    }
    println!("{subjects} subjects and {peers} peers select nothing");
    assert!(subjects > 100 && peers > 100);
}

/// What the workloads that a policy selects may ask DNS servers for, by the oracle: whether there are flows of such a
/// workload (one that holds none of its addresses has none), whether they may send DNS, whether
/// answers about every name are read, and the names that they may ask for in queries that are read.
#[derive(Default)]
struct AskedNames {
    has_flows: bool,
    is_allowed: bool,
    reads_any: bool,
    readable: BTreeSet<DomainPattern>,
}

impl AskedNames {
    fn of(case: &Case, policy: &Policy) -> Self {
        let (state, options) = (&case.state, options());
        let prepared = PreparedState::new(state);
        let mut asked = AskedNames::default();
        let _ = case.flows.find(|question| {
            let subject = match &question.source {
                FlowEnd::Address(address) => prepared.address_holder(*address),
                FlowEnd::Endpoint(id) => state.endpoints.get(id),
            };
            let is_selected = subject.is_some_and(|endpoint| {
                !endpoint.is_host() && policy.subject.matches(&state.endpoint_labels(endpoint))
            });
            if is_selected {
                asked.has_flows = true;
                let others = prepared.allows(question, Direction::Egress, &options);
                let names = prepared.redirect(question, Direction::Egress, &options);
                let is_dns = [Protocol::TCP, Protocol::UDP].contains(&question.protocol)
                    && matches!(
                        question.l4,
                        L4::Ports {
                            destination: 53,
                            ..
                        }
                    );
                asked.reads_any |= others && names.is_some();
                asked.is_allowed |= others && (is_dns || names.is_some());
                asked.readable.extend(names.into_iter().flatten());
            }
            false
        });
        asked.is_allowed |= !asked.readable.is_empty();
        asked
    }

    fn mistake(&self, rule: &Rule) -> Option<LintCode> {
        let single = |pattern: &DomainPattern| pattern.only_name().map(ToString::to_string);
        let overlaps = |selector: &Selector, pattern: &DomainPattern| match selector {
            Selector::In(_, values) => values.iter().all(|name| pattern.matches(name)),
            Selector::Domain(_, own) => single(pattern).is_none_or(|name| own.matches(&name)),
            other => panic!("{other:?}"),
        };
        let is_asked = |selector: &&Selector| {
            let mut readable = self.readable.iter();
            readable.any(|pattern| overlaps(selector, pattern))
        };
        match names_of(rule) {
            names if names.is_empty() || rule.action != Action::Allow => None,
            _ if !self.is_allowed => Some(LintCode::NamesWithoutDns),
            _ if self.reads_any => None,
            _ if self.readable.is_empty() => Some(LintCode::NamesNeverLearned),
            names => (!names.iter().all(is_asked)).then_some(LintCode::NameNeverAsked),
        }
    }
}

/// Lets every workload ask for one name, and not all that rules name.
fn restrict_names(state: &mut State) {
    let query = Rule {
        dns_names: Some([DomainPattern::glob("a.x").unwrap()].into()),
        ..line::rule("allow on UDP/53")
    };
    let mut policy = line::policy("x/queries", [query]);
    policy.egress = policy.ingress.take();
    policy.precedence.order = Order::FIRST;
    state.apply(Update::Upsert(Object::Policy(policy)));
}

#[test]
fn names_are_in_vain_if_the_oracle_lets_nobody_ask() {
    let codes = [
        LintCode::NamesWithoutDns,
        LintCode::NamesNeverLearned,
        LintCode::NameNeverAsked,
    ];
    let mut counts = [0; 4];
    for seed in case_seeds(90_000, 3_000) {
        let case = Case::with(seed, |state| {
            if seed.is_multiple_of(3) {
                restrict_names(state);
            }
        });
        let reported = codes.map(|code| case.rules_of(code));
        for (id, policy) in &case.state.policies {
            let rules = policy
                .rules(Direction::Egress)
                .map_or(&[][..], |r| &r.rules);
            let selects = |e: &Endpoint| policy.subject.matches(&case.state.endpoint_labels(e));
            if rules.iter().all(|rule| names_of(rule).is_empty())
                || selects_host(&case.state, policy)
                || !case.state.endpoints.values().any(selects)
            {
                continue;
            }
            let asked = AskedNames::of(&case, policy);
            if !asked.has_flows {
                continue;
            }
            for (index, rule) in rules.iter().enumerate() {
                let name = (id.clone(), Direction::Egress, index);
                let found = codes.iter().zip(&reported);
                let found: Vec<LintCode> = found
                    .filter(|(_, rules)| rules.contains(&name))
                    .map(|(code, _)| *code)
                    .collect();
                let expected = asked.mistake(rule);
                assert_eq!(
                    found,
                    Vec::from_iter(expected),
                    "seed {seed}: {name:?}\n{:#?}",
                    case.state
                );
                let at = expected.and_then(|code| codes.iter().position(|c| *c == code));
                counts[at.unwrap_or(3)] += 1;
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
}
