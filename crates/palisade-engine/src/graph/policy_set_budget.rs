//! Keeps policy sets within the element budget: a set is compiled as a whole or closed.

use super::Graph;
use crate::budget::{
    AuditOmission, COMPILED_PER_WRITTEN, CloseReason, ClosedPolicySet, ExceededLimit, RuleCost,
    required_elements, sharing_savings,
};
use crate::faults::EngineFault;
use crate::identities::IdentityKey;
use crate::matching::{ClassCache, ClassKey, CompileContext, MatchedStep};
use crate::peer_rule_index::RulePosition;
use crate::sets::PolicySetRules;
use crate::store::{HashMap, PolicyNumber, hash};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use palisade_model::{Direction, PolicyId};
use palisade_tables::{
    Cell, ClassId, IdentityId, PolicySet, Program, SHARE_MIN_ELEMENTS, TableDifferences,
    VerdictCause,
};
use palisade_tables::{PolicySetId, Verdict};

/// The number of rules reported for a closed set.
const MAX_REPORTED_RULES: usize = 5;

/// The classes of a set, compiled and not yet acquired.
struct CompiledSet {
    default: ClassId,
    /// The class of each identity that may have one other than the default.
    classes: Vec<(IdentityId, ClassId)>,
    /// Elements saved by sharing.
    saved: usize,
    /// The budget they need, in elements.
    required_elements: usize,
}

impl Graph {
    /// Compiles and writes all classes of a set. If they exceed the budget of the set, what would be decided
    /// if nothing were in audit is left out, since what is in audit must deny nothing; if they exceed it even
    /// so, the set is closed.
    pub(super) fn write_set(&mut self, number: PolicySetId, differences: &mut TableDifferences) {
        self.recompute_savings();
        let others = self
            .classes
            .usage
            .total()
            .saturating_sub(self.classes.usage.required(number));
        self.sets.set_omits_audit(number, None);
        let mut compiled = self.compile_set(number);
        let omission = AuditOmission {
            exceeded: ExceededLimit::Set,
            required_elements: self.options.budget.set,
        };
        if compiled.is_none() && self.omit_audit(number, omission) {
            compiled = self.compile_set(number);
        }
        let closed = match compiled {
            Some(compiled) if others + compiled.required_elements <= self.options.budget.host => {
                return self.open_set(number, compiled, differences);
            }
            Some(compiled) => CloseReason {
                exceeded: ExceededLimit::Host,
                required_elements: compiled.required_elements,
                without_audit: None,
            },
            None => CloseReason {
                exceeded: ExceededLimit::Set,
                required_elements: self.options.budget.set,
                without_audit: None,
            },
        };
        self.close_set(number, closed, differences);
    }

    /// Leaves out what would be decided if nothing were in audit. Returns whether the set had that.
    fn omit_audit(&mut self, number: PolicySetId, omission: AuditOmission) -> bool {
        let set = self.sets.get(number);
        let had = set.is_some_and(|set| set.is_audited() && set.omits_audit().is_none());
        if had {
            self.sets.set_omits_audit(number, Some(omission));
        }
        had
    }

    /// Compiles the classes of a set. `None` if they exceed the budget of the set.
    fn compile_set(&mut self, number: PolicySetId) -> Option<CompiledSet> {
        let most = if EngineFault::BudgetIgnored.is_injected() {
            usize::MAX
        } else {
            self.options.budget.set
        };
        let identities = self.distinguished_identities(number);
        let set = self.sets.get(number)?;
        let mut context = CompileContext {
            policies: self.objects.named_policies(),
            causes: &mut self.classes.causes,
            programs: &mut self.classes.programs,
            denied_encapsulation: self.options.denied_encapsulation,
            unread_dns: self.options.unread_dns,
            max_elements: most,
        };
        let mut cache = ClassCache::default();
        let default = set.class_of(&IdentityKey::default(), &mut context, &mut cache)?;
        let most_compiled = most.saturating_mul(COMPILED_PER_WRITTEN);
        let mut elements = 1 + context.programs.elements(default);
        let mut seen = BTreeSet::from([default]);
        let mut classes = Vec::new();
        for identity in identities {
            let Some(key) = self.identities.key(identity) else {
                continue;
            };
            let class = set.class_of(key, &mut context, &mut cache)?;
            if class == default {
                continue;
            }
            elements += 1;
            if seen.insert(class) {
                elements += context.programs.elements(class);
            }
            if elements > most_compiled {
                return None;
            }
            classes.push((identity, class));
        }
        let saved = self.savings(seen.into_iter());
        let needs = required_elements(elements.saturating_sub(saved), elements);
        (needs <= most).then_some(CompiledSet {
            default,
            classes,
            saved,
            required_elements: needs,
        })
    }

    /// The elements that sharing saves among these classes.
    fn savings(&self, classes: impl Iterator<Item = ClassId>) -> usize {
        let large =
            classes.filter(|class| self.classes.programs.elements(*class) >= SHARE_MIN_ELEMENTS);
        let programs = large.filter_map(|class| self.classes.programs.get(class));
        let programs: Vec<&Program> = programs.map(|program| &**program).collect();
        sharing_savings(&programs)
    }

    /// Computes the savings of the sets whose large programs changed.
    pub(super) fn recompute_savings(&mut self) {
        for number in self.classes.usage.take_stale() {
            let saved = self.savings(self.classes.usage.classes(number));
            self.classes.usage.set_savings(number, saved);
        }
    }

    /// The identities that may have a class other than the default of the set.
    fn distinguished_identities(&self, number: PolicySetId) -> Vec<IdentityId> {
        let mut identities: Vec<IdentityId> = Vec::new();
        match self.sets.get(number).map(PolicySetRules::peer_references) {
            Some(Some((selectors, nets))) => {
                identities.extend(selectors.flat_map(|s| self.identities.matching(s)));
                identities.extend(nets.flat_map(|net| self.identities.within(net)));
            }
            Some(None) => identities.extend(self.identities.keys().map(|(number, _)| number)),
            None => {}
        }
        identities.sort_unstable();
        identities.dedup();
        identities
    }

    fn open_set(
        &mut self,
        number: PolicySetId,
        compiled: CompiledSet,
        differences: &mut TableDifferences,
    ) {
        self.classes.usage.set_closed(number, None);
        self.write_default(number, compiled.default, differences);
        let mut entries: BTreeMap<IdentityId, ClassId> = compiled.classes.into_iter().collect();
        for identity in self.identities_in_set(number) {
            let entry = entries.remove(&identity);
            self.write_class(number, identity, entry, differences);
        }
        for (identity, class) in entries {
            self.write_class(number, identity, Some(class), differences);
        }
        self.classes.usage.set_savings(number, compiled.saved);
    }

    /// Makes a set deny everything.
    fn close_set(
        &mut self,
        number: PolicySetId,
        closed: CloseReason,
        differences: &mut TableDifferences,
    ) {
        let Some(cause) = self.sets.get(number).map(|set| self.closed_set_cause(set)) else {
            return;
        };
        self.classes.usage.set_closed(number, Some(closed));
        let rule = self.classes.causes.intern(cause);
        let denied = Program::constant(Cell {
            verdict: Verdict::Deny,
            causes: Vec::from([rule]),
            log: None,
            audit: None,
            redirect: None,
        });
        let Some(class) = self.classes.programs.intern(denied, usize::MAX) else {
            return;
        };
        self.write_default(number, class, differences);
        for identity in self.identities_in_set(number) {
            self.write_class(number, identity, None, differences);
        }
    }

    /// The cause of a closed set's denial: the default denial of its policies.
    fn closed_set_cause(&self, set: &PolicySetRules) -> VerdictCause {
        let direction = set.key.direction;
        let numbers = &set.key.policies;
        let first = numbers
            .first()
            .and_then(|policy| self.objects.policies.body(*policy));
        match first {
            Some(body) => VerdictCause::TierDefault {
                tier: body.tier.clone(),
                direction,
                policies: numbers
                    .iter()
                    .filter_map(|p| self.objects.named_policies().id(*p))
                    .collect(),
            },
            None => VerdictCause::NoProfileMatch { direction },
        }
    }

    /// Sets the default class of a set, for identities without an entry.
    fn write_default(
        &mut self,
        number: PolicySetId,
        default: ClassId,
        differences: &mut TableDifferences,
    ) {
        self.classes.programs.acquire(default);
        self.classes
            .usage
            .add_class(number, default, self.classes.programs.elements(default));
        let previous = self.desired.sets.insert(number, PolicySet { default });
        if let Some(previous) = previous {
            self.classes.usage.remove_class(
                number,
                previous.default,
                self.classes.programs.elements(previous.default),
            );
            self.classes.programs.release(previous.default);
        }
        if previous != Some(PolicySet { default }) {
            differences.sets.insert(number);
        }
    }

    /// Allocates the host budget to sets in the order of their policies' names. Does nothing if the
    /// budget suffices and no set is closed, or lacks its audit, for it. Otherwise it compares what all sets
    /// need, which is known from when they were compiled, and compiles those of which the outcome changes.
    pub(super) fn allocate_host_budget(&mut self, differences: &mut TableDifferences) {
        self.recompute_savings();
        let bound_by_host =
            |(_, closed): (PolicySetId, CloseReason)| closed.exceeded == ExceededLimit::Host;
        let lacks_audit =
            |(_, set): (PolicySetId, &PolicySetRules)| set.audit_omitted_for_host().is_some();
        if self.classes.usage.total() <= self.options.budget.host
            && !self.classes.usage.closed_sets().any(bound_by_host)
            && !self.sets.omitting_audit().any(lacks_audit)
        {
            return;
        }
        let mut sets: Vec<PolicySetId> = self.classes.usage.sets().collect();
        sets.sort_by(|a, b| self.compare_sets(*a, *b));
        let mut room = self.options.budget.host;
        let mut open = Vec::new();
        for number in sets {
            let closed = self.classes.usage.close_reason(number);
            let set = self.sets.get(number);
            let omitted = set.and_then(PolicySetRules::audit_omitted_for_host);
            let needs = match (closed, omitted) {
                (Some(closed), _) if closed.exceeded == ExceededLimit::Set => continue,
                (Some(closed), _) => closed.required_elements,
                (None, Some(omitted)) => omitted.required_elements,
                (None, None) => self.classes.usage.required(number),
            };
            if let Some(left) = room.checked_sub(needs) {
                room = left;
                if omitted.is_some() {
                    self.sets.set_omits_audit(number, None);
                }
                if closed.is_some() || omitted.is_some() {
                    open.push(number);
                }
                continue;
            }
            let without_audit = match (closed, omitted) {
                (None, Some(_)) => Some(self.classes.usage.required(number)),
                (Some(closed), _) if closed.without_audit.is_some() => closed.without_audit,
                _ => self.needs_without_audit(number),
            };
            if let Some(left) = without_audit.and_then(|needs| room.checked_sub(needs)) {
                room = left;
                if omitted.is_none() {
                    let omission = AuditOmission {
                        exceeded: ExceededLimit::Host,
                        required_elements: needs,
                    };
                    self.sets.set_omits_audit(number, Some(omission));
                    open.push(number);
                }
                continue;
            }
            if omitted.is_some() {
                self.sets.set_omits_audit(number, None);
            }
            let reason = CloseReason {
                exceeded: ExceededLimit::Host,
                required_elements: needs,
                without_audit,
            };
            match closed {
                Some(_) => self.classes.usage.set_closed(number, Some(reason)),
                None => self.close_set(number, reason, differences),
            }
        }
        for number in open {
            if let Some(compiled) = self.compile_set(number) {
                self.open_set(number, compiled, differences);
            }
        }
    }

    /// The elements that a set needs without what would be decided if nothing were in audit; `None` if it has
    /// nothing to leave out.
    fn needs_without_audit(&mut self, number: PolicySetId) -> Option<usize> {
        let omission = AuditOmission {
            exceeded: ExceededLimit::Host,
            required_elements: self.options.budget.host,
        };
        self.omit_audit(number, omission).then_some(())?;
        let compiled = self.compile_set(number);
        self.sets.set_omits_audit(number, None);
        Some(compiled.map_or(usize::MAX, |compiled| compiled.required_elements))
    }

    /// An order of sets that does not depend on their numbers.
    fn compare_sets(&self, a: PolicySetId, b: PolicySetId) -> Ordering {
        let (Some(a), Some(b)) = (self.sets.get(a), self.sets.get(b)) else {
            return a.cmp(&b);
        };
        let (a, b) = (&a.key, &b.key);
        let pairs = a.policies.iter().zip(&b.policies);
        let mut policies = pairs.map(|(a, b)| self.objects.named_policies().compare_names(*a, *b));
        let first = policies.find(|order| order.is_ne());
        let rest = || {
            let key = |key: &crate::sets::PolicySetKey| {
                let (profiles, own) = (key.profiles.clone(), key.local_tests.clone());
                (
                    key.policies.len(),
                    (key.direction, key.audit),
                    profiles,
                    own,
                    key.ports.clone(),
                    key.family,
                )
            };
            key(a).cmp(&key(b))
        };
        first.unwrap_or_else(rest)
    }

    /// The elements that all policy sets take.
    pub(crate) fn elements(&self) -> usize {
        self.classes.usage.written_elements()
    }

    /// The sets that are closed because they would exceed a limit.
    pub(crate) fn closed_policy_sets(&self) -> Vec<ClosedPolicySet> {
        let mut closed: Vec<(PolicySetId, CloseReason)> =
            self.classes.usage.closed_sets().collect();
        closed.sort_by(|(a, _), (b, _)| self.compare_sets(*a, *b));
        let sets = closed.into_iter();
        sets.filter_map(|(number, closed)| self.closed_policy_set(number, closed))
            .collect()
    }

    /// The policies and direction of each set that is compiled without what would be decided if nothing were
    /// in audit.
    pub(crate) fn policy_sets_omitting_audit(&self) -> Vec<(Direction, Vec<PolicyId>)> {
        let sets = self.sets.omitting_audit();
        let mut sets: Vec<(Direction, Vec<PolicyId>)> = sets
            .map(|(_, set)| {
                let policies = set.key.policies.iter();
                let ids = policies.filter_map(|policy| self.objects.named_policies().id(*policy));
                (set.key.direction, ids.collect())
            })
            .collect();
        sets.sort();
        sets.dedup();
        sets
    }

    /// The policies of a closed set; `None` if it is open.
    pub(crate) fn closed_policies(&self, number: PolicySetId) -> Option<Vec<PolicyId>> {
        self.classes.usage.close_reason(number)?;
        let policies = self.sets.get(number)?.key.policies.iter();
        Some(
            policies
                .filter_map(|p| self.objects.named_policies().id(*p))
                .collect(),
        )
    }

    fn closed_policy_set(
        &self,
        number: PolicySetId,
        closed: CloseReason,
    ) -> Option<ClosedPolicySet> {
        let set = self.sets.get(number)?;
        let (elements, rules) = self.estimate(number, set);
        let direction = set.key.direction;
        let numbers = set.key.policies.iter();
        Some(ClosedPolicySet {
            policies: numbers
                .filter_map(|p| self.objects.named_policies().id(*p))
                .collect(),
            direction,
            exceeded: closed.exceeded,
            elements: match closed.exceeded {
                ExceededLimit::Host => closed.required_elements,
                ExceededLimit::Set => elements.max(closed.required_elements + 1),
            },
            budget: match closed.exceeded {
                ExceededLimit::Host => self.options.budget.host,
                ExceededLimit::Set => self.options.budget.set,
            },
            rules,
        })
    }

    /// An estimate of a set's elements, and its most expensive rules, without compiling it: each
    /// rule counts for every distinct class key that it is part of, but a large rule that every
    /// identity matches counts once, since its elements are shared.
    fn estimate(&self, number: PolicySetId, set: &PolicySetRules) -> (usize, Vec<RuleCost>) {
        let mut class_keys: BTreeSet<u64> = BTreeSet::new();
        let mut weights: HashMap<RulePosition, usize> = HashMap::default();
        // By the position of the source and the index of the rule.
        let mut rule_weights: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let nobody = IdentityKey::default();
        let identities = self.distinguished_identities(number);
        let everyone: BTreeSet<RulePosition> = matched_rules(&set.class_key(&nobody))
            .map(|(_, rule)| rule)
            .collect();
        let keys = identities
            .into_iter()
            .filter_map(|id| self.identities.key(id));
        let mut elements = 0_usize;
        for key in core::iter::once(&nobody).chain(keys) {
            elements += 1;
            let class_key = set.class_key(key);
            if !class_keys.insert(hash(&class_key)) {
                continue;
            }
            let is_first = class_keys.len() == 1;
            for (source, rule) in matched_rules(&class_key) {
                let weight = weights.entry(rule).or_insert_with(|| {
                    let body = set.rule(rule);
                    body.map_or(0, |body| crate::traffic::element_weight(&body.traffic))
                });
                if !is_first && *weight >= SHARE_MIN_ELEMENTS && everyone.contains(&rule) {
                    continue;
                }
                elements += *weight;
                *rule_weights.entry((source, rule.index)).or_default() += *weight;
            }
        }
        let mut rules: Vec<((u32, u32), usize)> = rule_weights.into_iter().collect();
        rules.sort_by_key(|(position, weight)| (core::cmp::Reverse(*weight), *position));
        rules.truncate(MAX_REPORTED_RULES);
        let costs = rules.into_iter().filter_map(|((source, index), elements)| {
            let policy = *set.key.policies.get(source as usize)?;
            self.rule_cost(policy, set.key.direction, index, elements)
        });
        (elements, costs.collect())
    }

    fn rule_cost(
        &self,
        policy: PolicyNumber,
        direction: Direction,
        index: u32,
        elements: usize,
    ) -> Option<RuleCost> {
        let id: PolicyId = self.objects.named_policies().id(policy)?;
        let whole = self.objects.named_policies().get(policy)?;
        let rule = whole.rules(direction)?.rules.get(index as usize)?;
        Some(RuleCost {
            policy: id,
            direction,
            index: rule.origin.index,
            line: rule.origin.line.clone(),
            elements,
        })
    }
}

/// The rules in a class key, each with the position of its source.
fn matched_rules(met: &ClassKey) -> impl Iterator<Item = (u32, RulePosition)> {
    met.audited_steps()
        .iter()
        .filter_map(|(_, step)| match step {
            MatchedStep::Rule(source, rule) => Some((*source, *rule)),
            MatchedStep::Fallback => None,
        })
}
