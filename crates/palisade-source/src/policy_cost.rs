//! The cost of policies in kernel elements, and which policies exceed their budget.
//!
//! The cost of a policy is a function of its own text ([`palisade_engine::policy_cost`]), not of pods or
//! other policies, so a rejection depends neither on order nor on attached workloads. A policy over the limit
//! of a policy set is treated as invalid: its last valid version stays in force. If all valid policies
//! together exceed the limit of the host, they are admitted in the order of their names and those that do not
//! fit are rejected. The elements present in the kernel are never read here.

use crate::file_object::{FileObject, SharedId};
use palisade_engine::{ElementBudget, ExceededLimit, RuleShare, policy_cost};
use palisade_manifest::{Location, Problem};
use palisade_model::{Direction, Object, ObjectId, Policy, SourceLine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
pub(crate) struct ObjectCost {
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
                .sort_by_key(|rule| std::cmp::Reverse(rule.elements));
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
    /// The record as a problem of the input; `consequence` is appended to the reason.
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
        let _ = write!(reason, "; {consequence}");
        Problem {
            location: self.location.clone(),
            object: Some(self.object.clone()),
            field: "spec".to_owned(),
            reason,
        }
    }
}

/// Warnings for policies that an agent with the default budget would reject, in the order of names. Each
/// object comes with its location.
pub(crate) fn budget_warnings<'a>(
    policies: impl Iterator<Item = (&'a Policy, &'a Location)>,
) -> Vec<Problem> {
    let budget = ElementBudget::default();
    let mut costs: BTreeMap<&ObjectId, (ObjectCost, &Location)> = BTreeMap::new();
    for (policy, location) in policies {
        let object = &policy.id.object;
        let known = costs.entry(object);
        known
            .or_insert((ObjectCost::default(), location))
            .0
            .add(policy);
    }
    let mut remaining = budget.host;
    let mut warnings = Vec::new();
    for (id, (cost, location)) in costs {
        let bound = if cost.elements > budget.set {
            ExceededLimit::Set
        } else if let Some(left) = remaining.checked_sub(cost.elements) {
            remaining = left;
            continue;
        } else {
            ExceededLimit::Host
        };
        let over = cost.oversized_policy((id, location), bound, budget);
        warnings.push(over.problem("an agent with the default budget rejects this policy"));
    }
    warnings
}

/// The policies without their rules: default deny for the pods they select.
pub(crate) fn isolation_policies(objects: &[Object]) -> Vec<Object> {
    let isolated = objects.iter().filter_map(|object| {
        let Object::Policy(policy) = object else {
            return None;
        };
        let mut policy = policy.clone();
        for rules in policy.ingress.iter_mut().chain(&mut policy.egress) {
            rules.rules.clear();
            rules.default_deny = true;
        }
        Some(Object::Policy(policy))
    });
    isolated.collect()
}

/// Changes the element budget from another thread. The source applies it at its next wake-up.
#[derive(Clone, Debug)]
pub struct ElementBudgetHandle {
    amounts: Arc<(AtomicU64, AtomicU64)>,
    waker: Option<palisade_sys::watch::Waker>,
}

impl ElementBudgetHandle {
    pub(crate) fn new(budget: ElementBudget, waker: Option<palisade_sys::watch::Waker>) -> Self {
        let handle = ElementBudgetHandle {
            amounts: Arc::default(),
            waker: None,
        };
        handle.set(budget);
        ElementBudgetHandle { waker, ..handle }
    }

    /// Sets the element budget.
    pub fn set(&self, budget: ElementBudget) {
        if self.get() == budget {
            return;
        }
        self.amounts.0.store(budget.set as u64, Ordering::Relaxed);
        self.amounts.1.store(budget.host as u64, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    pub(crate) fn get(&self) -> ElementBudget {
        let host = self.amounts.1.load(Ordering::Acquire);
        let amount = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        ElementBudget {
            set: amount(self.amounts.0.load(Ordering::Relaxed)),
            host: amount(host),
        }
    }
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
    pub(crate) fn update(&mut self, id: &SharedId, file_object: Option<&FileObject>) {
        let cost = file_object.and_then(|file_object| file_object.cost.as_ref());
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
    pub(crate) fn allocate(&mut self) -> BTreeSet<SharedId> {
        if self.total <= self.budget.host && self.over_host_limit.is_empty() {
            return BTreeSet::new();
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
        id: &SharedId,
        file_object: &FileObject,
    ) -> Option<ExceededLimit> {
        let cost = file_object.cost.as_ref()?;
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
