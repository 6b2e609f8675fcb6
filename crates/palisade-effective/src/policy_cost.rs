//! The cost of policies in kernel elements, and which policies exceed their budget.
//!
//! The cost of a policy is a function of its own text ([`palisade_engine::policy_cost`]), not of pods or
//! other policies, so a rejection depends neither on order nor on attached workloads. A policy over the limit
//! of a policy set is treated as invalid: its last valid version stays in force. If all valid policies
//! together exceed the limit of the host, they are admitted in the order of their names and those that do not
//! fit are rejected. The elements present in the kernel are never read here.

use crate::SharedId;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use palisade_engine::{ElementBudget, ExceededLimit, RuleShare, policy_cost};
use palisade_manifest::{Location, Problem};
use palisade_model::{Direction, Object, ObjectId, Policy, SourceLine};

/// The number of rules listed for an oversized policy.
const REPORTED_RULES: usize = 5;

/// The rules of a policy at or below this cost are not recorded.
const CHEAP_POLICY_ELEMENTS: usize = 1 << 10;

/// A policy that exceeds its element budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OversizedPolicy {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The beginning of the object.
    pub location: Location,
    /// The estimated number of kernel elements.
    pub elements: usize,
    /// The budget that is exceeded.
    pub bound: ExceededLimit,
    /// That budget, in kernel elements.
    pub budget: usize,
    /// The most expensive rules, in descending order of cost.
    pub rules: Vec<ExpensiveRule>,
}

/// A rule and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpensiveRule {
    /// Its direction.
    pub direction: Direction,
    /// Its index in the object's list of that direction, from 0.
    pub index: u32,
    /// Its line in the file.
    pub line: Option<SourceLine>,
    /// The estimated number of kernel elements.
    pub elements: usize,
}

/// The cost of the policies of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCost {
    pub(crate) elements: usize,
    rules: Vec<ExpensiveRule>,
}

impl ObjectCost {
    /// The cost of the policies among these objects; `None` if there are none.
    pub(crate) fn of(objects: &[Object]) -> Option<Self> {
        let mut all: Option<ObjectCost> = None;
        for object in objects {
            if let Object::Policy(policy) = object {
                all.get_or_insert_default().add(policy);
            }
        }
        all
    }

    fn add(&mut self, policy: &Policy) {
        let cost = policy_cost(policy);
        self.elements += cost.required_elements();
        if cost.required_elements() > CHEAP_POLICY_ELEMENTS {
            let expensive = cost.rules.iter().take(REPORTED_RULES);
            let dear = expensive.filter_map(|share| expensive_rule(policy, *share));
            self.rules.extend(dear);
            self.rules
                .sort_by_key(|rule| core::cmp::Reverse(rule.elements));
            self.rules.truncate(REPORTED_RULES);
        }
    }

    /// Builds the record of an object that exceeds `bound`.
    pub(crate) fn oversized_policy(
        &self,
        (id, location): (&ObjectId, &Location),
        bound: ExceededLimit,
        budget: ElementBudget,
    ) -> OversizedPolicy {
        OversizedPolicy {
            object: id.to_string(),
            location: location.clone(),
            elements: self.elements,
            bound,
            budget: limit_of(bound, budget),
            rules: self.rules.clone(),
        }
    }
}

fn limit_of(bound: ExceededLimit, budget: ElementBudget) -> usize {
    match bound {
        ExceededLimit::Set => budget.set,
        ExceededLimit::Host => budget.host,
    }
}

fn expensive_rule(policy: &Policy, share: RuleShare) -> Option<ExpensiveRule> {
    let rule = policy.rules(share.direction)?.rules.get(share.index)?;
    (share.elements > 0).then(|| ExpensiveRule {
        direction: share.direction,
        index: rule.origin.index,
        line: rule.origin.line.clone(),
        elements: share.elements,
    })
}

impl OversizedPolicy {
    /// The record as a problem of the input; `consequence` is appended to the reason, if there is one.
    pub(crate) fn problem(&self, consequence: &str) -> Problem {
        let (whose, parameter) = match self.bound {
            ExceededLimit::Set => ("the limit of a policy set is", "policy-set-max-elements"),
            ExceededLimit::Host => (
                "which with the other policies exceeds the host limit of",
                "host-max-elements",
            ),
        };
        let joint = match self.bound {
            ExceededLimit::Set => "; ",
            ExceededLimit::Host => ", ",
        };
        let mut reason = format!(
            "it needs about {} kernel elements{joint}{whose} {} ({parameter})",
            self.elements, self.budget
        );
        for (at, rule) in self.rules.iter().enumerate() {
            let before = if at == 0 {
                "; largest rules by elements:"
            } else {
                ","
            };
            // Writing to a String cannot fail.
            let _ = write!(reason, "{before} {}[{}]", rule.direction, rule.index);
            if let Some(line) = &rule.line {
                let _ = write!(reason, " ({line})");
            }
            let _ = write!(reason, " {}", rule.elements);
        }
        if !consequence.is_empty() {
            let _ = write!(reason, "; {consequence}");
        }
        Problem {
            location: self.location.clone(),
            object: Some(self.object.clone()),
            field: "spec".to_owned(),
            reason,
        }
    }
}

/// What replaces policies whose rules cannot be enforced: the pods that they select are isolated
/// ([`palisade_model::DirectionRules::isolation`]).
pub(crate) fn isolation_policies(objects: &[Object]) -> Vec<Object> {
    let isolated = objects.iter().filter_map(|object| {
        let Object::Policy(policy) = object else {
            return None;
        };
        let mut policy = policy.clone();
        let line = policy.line.clone();
        for rules in policy.ingress.iter_mut().chain(&mut policy.egress) {
            *rules = rules.isolation(line.clone());
        }
        Some(Object::Policy(policy))
    });
    isolated.collect()
}

/// The cost of all valid policies, kept up to date.
#[derive(Debug)]
pub(crate) struct PolicyCostTracker {
    budget: ElementBudget,
    /// The cost of each policy within the limit of a policy set.
    costs: BTreeMap<SharedId, usize>,
    total: usize,
    /// Policies over the limit of a policy set.
    over_set_limit: BTreeSet<SharedId>,
    /// Policies within that limit that exceed the limit of the host.
    over_host_limit: BTreeSet<SharedId>,
}

impl PolicyCostTracker {
    pub(crate) fn new(budget: ElementBudget) -> Self {
        PolicyCostTracker {
            budget,
            costs: BTreeMap::new(),
            total: 0,
            over_set_limit: BTreeSet::new(),
            over_host_limit: BTreeSet::new(),
        }
    }

    pub(crate) fn budget(&self) -> ElementBudget {
        self.budget
    }

    /// Sets the budget. Returns whether it changed: then every policy has to be updated again.
    pub(crate) fn set_budget(&mut self, budget: ElementBudget) -> bool {
        let changed = self.budget != budget;
        self.budget = budget;
        changed
    }

    /// Updates one object from its first definition; one that is missing or invalid has no cost.
    pub(crate) fn update(&mut self, id: &SharedId, cost: Option<&ObjectCost>) {
        let elements = cost.map(|cost| cost.elements);
        let previous = match elements {
            Some(elements) if elements <= self.budget.set => {
                self.total += elements;
                self.over_set_limit.remove(id);
                self.costs.insert(id.clone(), elements)
            }
            other => {
                match other {
                    Some(_) => self.over_set_limit.insert(id.clone()),
                    None => self.over_set_limit.remove(id),
                };
                self.costs.remove(id)
            }
        };
        self.total -= previous.unwrap_or(0);
    }

    /// Allocates the host's elements to policies in the order of their names. Returns the objects whose
    /// admission changed.
    pub(crate) fn allocate(&mut self) -> Vec<SharedId> {
        if self.total <= self.budget.host && self.over_host_limit.is_empty() {
            return Vec::new();
        }
        let mut remaining = self.budget.host;
        let mut over_limit = BTreeSet::new();
        for (id, cost) in &self.costs {
            match remaining.checked_sub(*cost) {
                Some(left) => remaining = left,
                None => drop(over_limit.insert(id.clone())),
            }
        }
        let changed = over_limit.symmetric_difference(&self.over_host_limit);
        let changed = changed.cloned().collect();
        self.over_host_limit = over_limit;
        changed
    }

    /// The budget that an object exceeds, if any.
    pub(crate) fn exceeded_limit(
        &self,
        id: &ObjectId,
        cost: Option<&ObjectCost>,
    ) -> Option<ExceededLimit> {
        let cost = cost?;
        if cost.elements > self.budget.set {
            Some(ExceededLimit::Set)
        } else {
            self.over_host_limit
                .contains(id)
                .then_some(ExceededLimit::Host)
        }
    }

    /// Every object over a budget.
    pub(crate) fn over_limit(&self) -> impl Iterator<Item = &SharedId> {
        self.over_set_limit.union(&self.over_host_limit)
    }
}
