//! What policies take of the kernel, and which of them may not.
//!
//! A policy's cost is a function of its own text ([`palisade_engine::policy_cost`]): it knows no pod and no
//! other policy, so what is refused depends neither on order nor on who is attached. One that takes
//! more than a policy set may is as an invalid one: what was valid last stays in force. Where all valid
//! policies together take more than the host may, those are refused that do not fit any more, going by
//! their names. Nothing here looks at what the kernel holds.

use crate::file_object::{FileObject, SharedId};
use palisade_engine::{ElementBudget, ExceededLimit, RuleShare, policy_cost};
use palisade_manifest::{Location, Problem};
use palisade_model::{Direction, Object, ObjectId, Policy, SourceLine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many of a policy's rules are told.
const REPORTED_RULES: usize = 5;

/// Of a policy that takes no more its rules are not remembered.
const CHEAP_POLICY_ELEMENTS: usize = 1 << 10;

/// A policy that takes more of the kernel than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OversizedPolicy {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Where it begins.
    pub location: Location,
    /// The kernel elements it would take, about.
    pub elements: usize,
    /// Which budget was not enough.
    pub bound: ExceededLimit,
    /// That budget, in kernel elements.
    pub budget: usize,
    /// The rules that take the most, the dearest first.
    pub rules: Vec<ExpensiveRule>,
}

/// A rule, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpensiveRule {
    /// Its direction.
    pub direction: Direction,
    /// Its place in the object's list of that direction, from 0.
    pub index: u32,
    /// Where it was written.
    pub line: Option<SourceLine>,
    /// The kernel elements that say it, about.
    pub elements: usize,
}

/// What an object's policies take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectCost {
    pub(crate) elements: usize,
    rules: Vec<ExpensiveRule>,
}

impl ObjectCost {
    /// What the policies among these objects take; `None` if there are none.
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

    /// What there is to say of an object that takes more than it may.
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
    /// The same as a problem of the input; `what_follows` is what becomes of the object.
    pub(crate) fn problem(&self, consequence: &str) -> Problem {
        let (whose, parameter) = match self.bound {
            ExceededLimit::Set => ("a policy set may take", "policy-set-max-elements"),
            ExceededLimit::Host => (
                "is too much beside the others: the host may take",
                "host-max-elements",
            ),
        };
        let joint = match self.bound {
            ExceededLimit::Set => ", and ",
            ExceededLimit::Host => " ",
        };
        let mut reason = format!(
            "it takes about {} kernel elements{joint}{whose} {} ({parameter})",
            self.elements, self.budget
        );
        for (at, rule) in self.rules.iter().enumerate() {
            let before = if at == 0 { "; most by" } else { "," };
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

/// What an agent with the budgets of its defaults would refuse of these policies, each with the place
/// where its object begins, in the order of names.
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
        warnings.push(over.problem("an agent with this budget, the default, refuses it"));
    }
    warnings
}

/// A policy without its rules: what it selects is isolated.
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

/// Changes what policies may take, from another thread. The source looks again when it is woken.
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

    /// Policies may take this much, from now on.
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

/// What valid policies take, kept up to date as they change.
#[derive(Debug)]
pub(crate) struct PolicyCostTracker {
    budget: ElementBudget,
    /// What each policy takes that a policy set has room for.
    costs: BTreeMap<SharedId, usize>,
    total: usize,
    /// Those that take more than a policy set may.
    over_set_limit: BTreeSet<SharedId>,
    /// Those that the host has no room for.
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

    /// From now on policies may take this much: each has to be noted again if it is another.
    pub(crate) fn set_budget(&mut self, budget: ElementBudget) -> bool {
        let changed = self.budget != budget;
        self.budget = budget;
        changed
    }

    /// Takes in what an object is now: the first definition, if there is one and it is valid.
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

    /// Gives the host's room to policies in the order of their names. Says whose turn it became, or
    /// is no more.
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

    /// Which budget is not enough for an object, if one is not.
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

    /// Every object that may not be in force.
    pub(crate) fn over_limit(&self) -> impl Iterator<Item = &SharedId> {
        self.over_set_limit.union(&self.over_host_limit)
    }
}
