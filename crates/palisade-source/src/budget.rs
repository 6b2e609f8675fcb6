//! What policies take of the kernel, and which of them may not.
//!
//! A policy's cost is a function of its own text ([`palisade_engine::cost`]): it knows no pod and no
//! other policy, so what is refused depends neither on order nor on who is attached. One that takes
//! more than a policy set may is as an invalid one: what was valid last stays in force. Where all valid
//! policies together take more than the host may, those are refused that do not fit any more, going by
//! their names. Nothing here looks at what the kernel holds.

use crate::piece::{Id, Piece};
use palisade_engine::{Bound, Budget, RuleShare, cost};
use palisade_manifest::{Location, Problem};
use palisade_model::{Direction, Object, ObjectId, Policy, SourceLine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many of a policy's rules are told.
const TOLD: usize = 5;

/// Of a policy that takes no more its rules are not remembered.
const SMALL: usize = 1 << 10;

/// A policy that takes more of the kernel than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Where it begins.
    pub location: Location,
    /// The kernel elements it would take, about.
    pub elements: usize,
    /// Which budget was not enough.
    pub bound: Bound,
    /// That budget, in kernel elements.
    pub budget: usize,
    /// The rules that take the most, the dearest first.
    pub rules: Vec<DearRule>,
}

/// A rule, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DearRule {
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
    rules: Vec<DearRule>,
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
        let cost = cost(policy);
        self.elements += cost.needs();
        if cost.needs() > SMALL {
            let dear = cost.rules.iter().take(TOLD);
            let dear = dear.filter_map(|share| dear_rule(policy, *share));
            self.rules.extend(dear);
            self.rules
                .sort_by_key(|rule| std::cmp::Reverse(rule.elements));
            self.rules.truncate(TOLD);
        }
    }

    /// What there is to say of an object that takes more than it may.
    pub(crate) fn over(
        &self,
        (id, location): (&ObjectId, &Location),
        bound: Bound,
        budget: Budget,
    ) -> OverBudget {
        OverBudget {
            object: id.to_string(),
            location: location.clone(),
            elements: self.elements,
            bound,
            budget: of_bound(bound, budget),
            rules: self.rules.clone(),
        }
    }
}

fn of_bound(bound: Bound, budget: Budget) -> usize {
    match bound {
        Bound::Set => budget.set,
        Bound::Host => budget.host,
    }
}

fn dear_rule(policy: &Policy, share: RuleShare) -> Option<DearRule> {
    let rule = policy.rules(share.direction)?.rules.get(share.place)?;
    (share.elements > 0).then(|| DearRule {
        direction: share.direction,
        index: rule.origin.index,
        line: rule.origin.line.clone(),
        elements: share.elements,
    })
}

impl OverBudget {
    /// The same as a problem of the input; `what_follows` is what becomes of the object.
    pub(crate) fn problem(&self, what_follows: &str) -> Problem {
        let (whose, parameter) = match self.bound {
            Bound::Set => ("a policy set may take", "policy-set-max-elements"),
            Bound::Host => (
                "is too much beside the others: the host may take",
                "host-max-elements",
            ),
        };
        let joint = match self.bound {
            Bound::Set => ", and ",
            Bound::Host => " ",
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
        let _ = write!(reason, "; {what_follows}");
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
pub(crate) fn doubts<'a>(
    policies: impl Iterator<Item = (&'a Policy, &'a Location)>,
) -> Vec<Problem> {
    let budget = Budget::default();
    let mut costs: BTreeMap<&ObjectId, (ObjectCost, &Location)> = BTreeMap::new();
    for (policy, location) in policies {
        let object = &policy.id.object;
        let known = costs.entry(object);
        known
            .or_insert((ObjectCost::default(), location))
            .0
            .add(policy);
    }
    let mut room = budget.host;
    let mut doubts = Vec::new();
    for (id, (cost, location)) in costs {
        let bound = if cost.elements > budget.set {
            Bound::Set
        } else if let Some(left) = room.checked_sub(cost.elements) {
            room = left;
            continue;
        } else {
            Bound::Host
        };
        let over = cost.over((id, location), bound, budget);
        doubts.push(over.problem("an agent with this budget, the default, refuses it"));
    }
    doubts
}

/// A policy without its rules: what it selects is isolated.
pub(crate) fn isolating(objects: &[Object]) -> Vec<Object> {
    let isolated = objects.iter().filter_map(|object| {
        let Object::Policy(policy) = object else {
            return None;
        };
        let mut policy = policy.clone();
        for side in policy.ingress.iter_mut().chain(&mut policy.egress) {
            side.rules.clear();
            side.default_deny = true;
        }
        Some(Object::Policy(policy))
    });
    isolated.collect()
}

/// Changes what policies may take, from another thread. The source looks again when it is woken.
#[derive(Clone, Debug)]
pub struct BudgetHandle {
    amounts: Arc<(AtomicU64, AtomicU64)>,
    waker: Option<palisade_sys::watch::Waker>,
}

impl BudgetHandle {
    pub(crate) fn new(budget: Budget, waker: Option<palisade_sys::watch::Waker>) -> Self {
        let handle = BudgetHandle {
            amounts: Arc::default(),
            waker: None,
        };
        handle.set(budget);
        BudgetHandle { waker, ..handle }
    }

    /// Policies may take this much, from now on.
    pub fn set(&self, budget: Budget) {
        if self.get() == budget {
            return;
        }
        self.amounts.0.store(budget.set as u64, Ordering::Relaxed);
        self.amounts.1.store(budget.host as u64, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    pub(crate) fn get(&self) -> Budget {
        let host = self.amounts.1.load(Ordering::Acquire);
        let amount = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Budget {
            set: amount(self.amounts.0.load(Ordering::Relaxed)),
            host: amount(host),
        }
    }
}

/// What valid policies take, kept up to date as they change.
#[derive(Debug)]
pub(crate) struct Spending {
    budget: Budget,
    /// What each policy takes that a policy set has room for.
    costs: BTreeMap<Id, usize>,
    total: usize,
    /// Those that take more than a policy set may.
    too_large: BTreeSet<Id>,
    /// Those that the host has no room for.
    without_room: BTreeSet<Id>,
}

impl Spending {
    pub(crate) fn new(budget: Budget) -> Self {
        Spending {
            budget,
            costs: BTreeMap::new(),
            total: 0,
            too_large: BTreeSet::new(),
            without_room: BTreeSet::new(),
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// From now on policies may take this much: each has to be noted again if it is another.
    pub(crate) fn allow(&mut self, budget: Budget) -> bool {
        let changed = self.budget != budget;
        self.budget = budget;
        changed
    }

    /// Takes in what an object is now: the first definition, if there is one and it is valid.
    pub(crate) fn note(&mut self, id: &Id, piece: Option<&Piece>) {
        let cost = piece.and_then(|piece| piece.cost.as_ref());
        let elements = cost.map(|cost| cost.elements);
        let was = match elements {
            Some(elements) if elements <= self.budget.set => {
                self.total += elements;
                self.too_large.remove(id);
                self.costs.insert(id.clone(), elements)
            }
            other => {
                match other {
                    Some(_) => self.too_large.insert(id.clone()),
                    None => self.too_large.remove(id),
                };
                self.costs.remove(id)
            }
        };
        self.total -= was.unwrap_or(0);
    }

    /// Gives the host's room to policies in the order of their names. Says whose turn it became, or
    /// is no more.
    pub(crate) fn share(&mut self) -> BTreeSet<Id> {
        if self.total <= self.budget.host && self.without_room.is_empty() {
            return BTreeSet::new();
        }
        let mut room = self.budget.host;
        let mut without = BTreeSet::new();
        for (id, cost) in &self.costs {
            match room.checked_sub(*cost) {
                Some(left) => room = left,
                None => drop(without.insert(id.clone())),
            }
        }
        let changed = without.symmetric_difference(&self.without_room);
        let changed = changed.cloned().collect();
        self.without_room = without;
        changed
    }

    /// Which budget is not enough for an object, if one is not.
    pub(crate) fn bound(&self, id: &Id, piece: &Piece) -> Option<Bound> {
        let cost = piece.cost.as_ref()?;
        if cost.elements > self.budget.set {
            Some(Bound::Set)
        } else {
            self.without_room.contains(id).then_some(Bound::Host)
        }
    }

    /// Every object that may not be in force.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Id> {
        self.too_large.union(&self.without_room)
    }
}
