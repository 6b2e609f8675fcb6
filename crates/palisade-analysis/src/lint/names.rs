//! Rules by name whose names cannot get addresses: nobody may ask for them, or nobody reads the answers.
//!
//! A name has the addresses that DNS answers give it, and answers are read where a rule decides the queries by name or
//! a policy observes DNS. Another workload of the node can teach a name as well, but a workload that may use a name and
//! never learns it itself is surely not meant.
//!
//! Promises: exact over all flows of the workloads that a policy selects; a finding holds for each of them. Patterns
//! are compared where one of them is a single name, or both are the same; of others it is assumed that they overlap.
//! Never: knows which servers there are, or what they answer.

use super::classified_state::{ClassPair, ClassifiedState, PairLister};
use super::pair_rules::{PairRulesBuilder, QueriedTraffic};
use crate::pair_set::PairSet;
use crate::rules::to_u32;
use crate::traffic::TrafficSet;
use palisade_model::{
    Action, Direction, DomainPattern, Family, LabelKey, PortRange, Protocol, RangeSet, Rule,
    Selector, Str, reserved,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// How a rule by name is in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameMistake {
    /// The workloads may send no DNS.
    NoDns,
    /// Nobody reads the answers that they get.
    NotRead,
    /// They may not ask for these.
    NotAsked(Vec<String>),
}

/// What a policy selects by name: one name, or the names of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NameTest<'a> {
    Name(&'a Str),
    Pattern(&'a DomainPattern),
    Any,
}

/// What some workloads may ask DNS servers for.
#[derive(Clone, Default)]
struct DnsAccess<'a> {
    /// Whether they may send to the port of DNS, or ask for some name.
    is_allowed: bool,
    /// Whether they may ask for every name, and the answers are read.
    reads_any: bool,
    /// Otherwise the names that they may ask for, in queries that are read.
    readable: BTreeSet<&'a DomainPattern>,
}

impl<'a> DnsAccess<'a> {
    fn extend(&mut self, other: &DnsAccess<'a>) {
        self.is_allowed |= other.is_allowed;
        self.reads_any |= other.reads_any;
        self.readable.extend(&other.readable);
    }

    /// Takes in what is allowed to some peers, where policies observe DNS or do not.
    fn add_traffic(&mut self, allowed: &QueriedTraffic<'a>, dns: &TrafficSet, is_observed: bool) {
        let reads_others = allowed.others.overlaps(&allowed.redirected);
        let is_open = allowed.others.overlaps(dns);
        self.reads_any |= reads_others || (is_observed && is_open);
        self.is_allowed |= reads_others || is_open || !allowed.queries.is_empty();
        self.readable.extend(allowed.queries.keys());
    }

    /// Why names have no addresses.
    fn mistake(&self, tests: &[NameTest<'_>]) -> Option<NameMistake> {
        if !self.is_allowed {
            return Some(NameMistake::NoDns);
        }
        if self.reads_any {
            return None;
        }
        if self.readable.is_empty() {
            return Some(NameMistake::NotRead);
        }
        let is_asked = |test: &&NameTest<'_>| {
            let mut readable = self.readable.iter();
            readable.any(|pattern| test.may_overlap(pattern))
        };
        let vain = tests.iter().filter(|test| !is_asked(test));
        let vain: Vec<String> = vain.map(NameTest::text).collect();
        (!vain.is_empty()).then_some(NameMistake::NotAsked(vain))
    }
}

impl<'a> NameTest<'a> {
    /// What a selector selects by name, if it selects nothing else.
    fn of_selector(selector: &'a Selector) -> Option<Vec<NameTest<'a>>> {
        let is_domain = |key: &LabelKey| *key == LabelKey::reserved(reserved::DOMAIN);
        match selector {
            Selector::In(key, values) if is_domain(key) => {
                Some(values.iter().map(NameTest::Name).collect())
            }
            Selector::Domain(key, pattern) if is_domain(key) => {
                Some(vec![NameTest::Pattern(pattern)])
            }
            Selector::Has(key) if is_domain(key) => Some(vec![NameTest::Any]),
            Selector::And(parts) => parts.iter().find_map(NameTest::of_selector),
            Selector::Or(parts) if !parts.is_empty() => {
                let parts: Option<Vec<_>> = parts.iter().map(NameTest::of_selector).collect();
                parts.map(|parts| parts.concat())
            }
            _ => None,
        }
    }

    /// Whether a name may be one of the pattern; true where that is not known.
    fn may_overlap(&self, pattern: &DomainPattern) -> bool {
        match self {
            NameTest::Name(name) => pattern.matches(name),
            NameTest::Pattern(own) => pattern.only_name().is_none_or(|name| own.matches(name)),
            NameTest::Any => true,
        }
    }

    fn text(&self) -> String {
        match self {
            NameTest::Name(name) => name.to_string(),
            NameTest::Pattern(pattern) => pattern.to_string(),
            NameTest::Any => DomainPattern::Any.to_string(),
        }
    }
}

/// Whether a selector selects addresses by the name that they are of.
pub(super) fn selects_names(selector: &Selector) -> bool {
    NameTest::of_selector(selector).is_some()
}

/// The names that a rule allows.
fn allowed_names(rule: &Rule) -> Vec<NameTest<'_>> {
    if rule.action != Action::Allow {
        return Vec::new();
    }
    let selectors = rule.peers.iter().filter_map(|peer| peer.selector.as_ref());
    let tests: BTreeSet<NameTest<'_>> = selectors
        .filter_map(NameTest::of_selector)
        .flatten()
        .collect();
    tests.into_iter().collect()
}

/// Finds rules by name that are in vain.
pub(super) struct NameChecker<'c, 'a> {
    classified: &'c ClassifiedState<'a>,
    lister: &'c PairLister<'c, 'a>,
    builder: PairRulesBuilder<'c, 'a>,
    dns: TrafficSet,
    accesses: BTreeMap<(Family, u32), DnsAccess<'a>>,
}

impl<'c, 'a> NameChecker<'c, 'a> {
    pub(super) fn new(
        classified: &'c ClassifiedState<'a>,
        lister: &'c PairLister<'c, 'a>,
        max_steps: u64,
    ) -> Self {
        NameChecker {
            classified,
            lister,
            builder: PairRulesBuilder::new(classified, max_steps),
            dns: dns_traffic(),
            accesses: BTreeMap::new(),
        }
    }

    /// The rules of policies but those of `without` that are in vain, up to where the search is given up; and whether
    /// it was not.
    pub(super) fn find_mistakes(
        &mut self,
        without: &BTreeSet<u32>,
    ) -> (Vec<(u32, NameMistake)>, bool) {
        let mut mistakes = Vec::new();
        let rules = &self.classified.rules;
        for (policy, range) in rules.policy_rules.iter().enumerate() {
            let policy = to_u32(policy);
            let of_egress = range
                .clone()
                .filter(|rule| rules.all[*rule].direction == Direction::Egress);
            let named: Vec<(usize, Vec<NameTest<'_>>)> = of_egress
                .map(|rule| (rule, allowed_names(rules.all[rule].rule)))
                .filter(|(_, names)| !names.is_empty())
                .collect();
            if named.is_empty() || without.contains(&policy) {
                continue;
            }
            let Some(access) = self.access_of_policy(policy) else {
                return (mistakes, false);
            };
            let Some(access) = access else { continue };
            for (rule, names) in named {
                let mistake = access.mistake(&names);
                mistakes.extend(mistake.map(|mistake| (to_u32(rule), mistake)));
            }
        }
        (mistakes, true)
    }

    /// What the workloads that a policy selects may ask for, all together; nothing if it selects none, and `None` if
    /// the search is given up.
    #[allow(clippy::option_option, reason = "given up and none are two things")]
    fn access_of_policy(&mut self, policy: u32) -> Option<Option<DnsAccess<'a>>> {
        let mut all: Option<DnsAccess<'a>> = None;
        for family in Family::BOTH {
            let classes = &self.classified.ends[family as usize].classes;
            for (class, end) in classes.iter().enumerate() {
                if end.signature.policies.contains(&policy) {
                    let access = self.access_of_class(family, to_u32(class))?;
                    all.get_or_insert_default().extend(&access);
                }
            }
        }
        Some(all)
    }

    fn access_of_class(&mut self, family: Family, class: u32) -> Option<DnsAccess<'a>> {
        if let Some(known) = self.accesses.get(&(family, class)) {
            return Some(known.clone());
        }
        let policies = &self.classified.rules.policies;
        let applying = self.classified.applying(family, class, Direction::Egress);
        let is_observed = applying
            .iter()
            .any(|policy| policies[*policy as usize].observes_dns);
        let mut access = DnsAccess::default();
        let (builder, dns) = (&self.builder, &self.dns);
        let mut visit = |_: &[u32], pair: &ClassPair<'_>| {
            let rules = builder.rules_of(pair);
            if !builder.count_steps(rules.size()) {
                return ControlFlow::Break(());
            }
            access.add_traffic(&rules.allowed(&[]), dns, is_observed);
            ControlFlow::Continue(())
        };
        let flow = self
            .lister
            .visit_pairs(family, class, Direction::Egress, &mut visit);
        if flow.is_break() {
            return None;
        }
        self.accesses.insert((family, class), access.clone());
        Some(access)
    }
}

/// What is sent to the port of DNS.
fn dns_traffic() -> TrafficSet {
    let every = RangeSet::from(PortRange::ALL);
    let dns = PortRange::single(palisade_model::Policy::DNS_PORT).into();
    TrafficSet::from_parts(
        |protocol| match protocol {
            Protocol::TCP | Protocol::UDP => PairSet::from_product(&every, &dns),
            _ => PairSet::empty(),
        },
        |_| PairSet::empty(),
        |_| false,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_where_one_is_a_single_name() {
        let glob = |text: &str| DomainPattern::glob(text).unwrap();
        let name = Str::from("a.example");
        let (all, one, other) = (glob("*.example"), glob("a.example"), glob("b.example"));
        let name = NameTest::Name(&name);
        assert!(name.may_overlap(&all) && name.may_overlap(&one) && !name.may_overlap(&other));
        let pattern = NameTest::Pattern(&all);
        assert!(pattern.may_overlap(&one) && pattern.may_overlap(&all));
        assert!(!pattern.may_overlap(&glob("a.test")));
        // Not known, so not reported.
        assert!(pattern.may_overlap(&glob("*.test")));
        assert!(NameTest::Any.may_overlap(&other));
    }

    #[test]
    fn a_peer_is_by_name_if_nothing_else_can_match_it() {
        let key = || LabelKey::reserved(reserved::DOMAIN);
        let name = Selector::equals(key(), "a.example");
        let pod = Selector::has(LabelKey::own("app"));
        assert!(selects_names(&name));
        assert!(selects_names(&Selector::has(key())));
        assert!(selects_names(&Selector::and([pod.clone(), name.clone()])));
        assert!(!selects_names(&Selector::or([pod.clone(), name.clone()])));
        assert!(!selects_names(&Selector::negate(name)));
        assert!(!selects_names(&pod) && !selects_names(&Selector::none()));
    }
}
