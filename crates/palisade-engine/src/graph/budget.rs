//! Policy sets held to their budget: compiled whole or not at all.

use super::Graph;
use crate::budget::{Bound, COMPILED_FOR_ONE, Closed, OverBudget, RuleCost, needs, saved};
use crate::faults::{Fault, on};
use crate::identities::IdentityKey;
use crate::meeting::{Known, Makers, Meets, Met};
use crate::pool::{HashMap, hash};
use crate::sequencer::Differences;
use crate::sets::Set;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use palisade_model::{Direction, PolicyId};
use palisade_tables::{Cell, ClassId, Credit, IdentityId, PolicySet, Program, SHARE_FROM};
use palisade_tables::{SetId, Verdict};

/// How many rules are told of a set that takes too much.
const TOLD: usize = 5;

/// The classes of a set, compiled and not yet used.
struct Compiled {
    default: ClassId,
    /// The class of each identity that may have another.
    classes: Vec<(u32, ClassId)>,
    /// How many elements sharing saves.
    saved: usize,
    /// What of a budget they need.
    needs: usize,
}

impl Graph {
    /// Every class of a set, or none where they would be too many.
    pub(super) fn write_set(&mut self, number: SetId, differences: &mut Differences) {
        self.find_savings();
        let others = self.usage.total().saturating_sub(self.usage.of(number));
        let closed = match self.compile_set(number) {
            Some(compiled) if others + compiled.needs <= self.budget.host => {
                return self.open_set(number, compiled, differences);
            }
            Some(compiled) => Closed {
                bound: Bound::Host,
                needs: compiled.needs,
            },
            None => Closed {
                bound: Bound::Set,
                needs: self.budget.set,
            },
        };
        self.close_set(number, closed, differences);
    }

    /// Compiles the classes of a set, until they are more than it may have.
    fn compile_set(&mut self, number: SetId) -> Option<Compiled> {
        let most = match on(Fault::BudgetIgnored) {
            true => usize::MAX,
            false => self.budget.set,
        };
        let identities = self.asked_by(number);
        let set = self.sets.get(number)?;
        let mut makers = Makers {
            policies: &self.policies,
            credits: &mut self.credits,
            programs: &mut self.programs,
            denied_encapsulation: self.denied_encapsulation,
            most,
        };
        let mut known = Known::default();
        let default = set.class(&IdentityKey::default(), &mut makers, &mut known)?;
        let most_compiled = most.saturating_mul(COMPILED_FOR_ONE);
        let mut elements = 1 + makers.programs.elements(default);
        let mut seen = BTreeSet::from([default]);
        let mut classes = Vec::new();
        for identity in identities {
            let Some(key) = self.identities.key(identity) else {
                continue;
            };
            let class = set.class(key, &mut makers, &mut known)?;
            if class == default {
                continue;
            }
            elements += 1;
            if seen.insert(class) {
                elements += makers.programs.elements(class);
            }
            if elements > most_compiled {
                return None;
            }
            classes.push((identity, class));
        }
        let saved = self.savings(seen.into_iter());
        let needs = needs(elements.saturating_sub(saved), elements);
        (needs <= most).then_some(Compiled {
            default,
            classes,
            saved,
            needs,
        })
    }

    /// How many elements sharing saves among these classes.
    fn savings(&self, classes: impl Iterator<Item = ClassId>) -> usize {
        let large = classes.filter(|class| self.programs.elements(*class) >= SHARE_FROM);
        let programs = large.filter_map(|class| self.programs.get(class));
        let programs: Vec<&Program> = programs.map(|program| &**program).collect();
        saved(&programs)
    }

    /// Finds what sharing saves in the sets whose large programs changed.
    pub(super) fn find_savings(&mut self) {
        for number in self.usage.take_stale() {
            let saved = self.savings(self.usage.classes(number));
            self.usage.save(number, saved);
        }
    }

    /// The identities that a set may tell from nobody.
    fn asked_by(&self, number: SetId) -> Vec<u32> {
        let mut identities: Vec<u32> = Vec::new();
        match self.sets.get(number).map(Set::asks) {
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

    fn open_set(&mut self, number: SetId, compiled: Compiled, differences: &mut Differences) {
        self.usage.mark(number, None);
        self.write_default(number, compiled.default, differences);
        let mut entries: BTreeMap<u32, ClassId> = compiled.classes.into_iter().collect();
        for identity in self.listed(number) {
            let entry = entries.remove(&identity.0);
            self.write_class(number, identity, entry, differences);
        }
        for (identity, class) in entries {
            self.write_class(number, IdentityId(identity), Some(class), differences);
        }
        self.usage.save(number, compiled.saved);
    }

    /// Has a set deny everything.
    fn close_set(&mut self, number: SetId, closed: Closed, differences: &mut Differences) {
        let Some(credit) = self.sets.get(number).map(|set| self.closing(set)) else {
            return;
        };
        self.usage.mark(number, Some(closed));
        let rule = self.credits.number(credit);
        let denied = Program::constant(Cell {
            verdict: Verdict::Deny,
            hits: Vec::from([rule]),
            log: None,
        });
        let Some(class) = self.programs.number(denied, usize::MAX) else {
            return;
        };
        self.write_default(number, class, differences);
        for identity in self.listed(number) {
            self.write_class(number, identity, None, differences);
        }
    }

    /// What a closed set credits: the default denial of its policies.
    fn closing(&self, set: &Set) -> Credit {
        let direction = set.key.direction;
        let numbers = &set.key.policies;
        let first = numbers
            .first()
            .and_then(|policy| self.policies.said(*policy));
        match first {
            Some(said) => Credit::TierDefault {
                tier: said.tier.clone(),
                direction,
                policies: numbers
                    .iter()
                    .filter_map(|p| self.policies.id(*p))
                    .collect(),
            },
            None => Credit::NoProfileMatch { direction },
        }
    }

    /// The class of whoever has none of its own in a set.
    fn write_default(&mut self, number: SetId, default: ClassId, differences: &mut Differences) {
        self.programs.take(default);
        self.usage
            .take(number, default, self.programs.elements(default));
        let was = self.wanted.sets.insert(number, PolicySet { default });
        if let Some(was) = was {
            self.usage
                .give(number, was.default, self.programs.elements(was.default));
            self.programs.give(was.default);
        }
        if was != Some(PolicySet { default }) {
            differences.sets.insert(number);
        }
    }

    /// Gives the host's room to sets in the order of their policies' names. Does nothing where all
    /// have room.
    pub(super) fn share_host(&mut self, differences: &mut Differences) {
        self.find_savings();
        let bound_by_host = |(_, closed): (SetId, Closed)| closed.bound == Bound::Host;
        if self.usage.total() <= self.budget.host && !self.usage.all_closed().any(bound_by_host) {
            return;
        }
        let mut sets: Vec<SetId> = self.usage.sets().collect();
        sets.sort_by(|a, b| self.compare_sets(*a, *b));
        let mut room = self.budget.host;
        let mut open = Vec::new();
        for number in sets {
            let closed = self.usage.closed(number);
            let needs = match closed {
                Some(closed) if closed.bound == Bound::Set => continue,
                Some(closed) => closed.needs,
                None => self.usage.of(number),
            };
            match room.checked_sub(needs) {
                Some(left) => {
                    room = left;
                    open.extend(closed.map(|_| number));
                }
                None if closed.is_none() => {
                    let bound = Bound::Host;
                    self.close_set(number, Closed { bound, needs }, differences);
                }
                None => {}
            }
        }
        for number in open {
            if let Some(compiled) = self.compile_set(number) {
                self.open_set(number, compiled, differences);
            }
        }
    }

    /// An order of sets that does not depend on their numbers.
    fn compare_sets(&self, a: SetId, b: SetId) -> Ordering {
        let (Some(a), Some(b)) = (self.sets.get(a), self.sets.get(b)) else {
            return a.cmp(&b);
        };
        let (a, b) = (&a.key, &b.key);
        let pairs = a.policies.iter().zip(&b.policies);
        let mut policies = pairs.map(|(a, b)| self.policies.compare(*a, *b));
        let first = policies.find(|order| order.is_ne());
        let rest = || {
            let key = |key: &crate::sets::SetKey| {
                let (profiles, own) = (key.profiles.clone(), key.own.clone());
                (
                    key.policies.len(),
                    key.direction,
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

    /// What all policy sets take.
    pub(crate) fn elements(&self) -> usize {
        self.usage.written()
    }

    /// The sets that are closed because they would take too much.
    pub(crate) fn over_budget(&self) -> Vec<OverBudget> {
        let mut closed: Vec<(SetId, Closed)> = self.usage.all_closed().collect();
        closed.sort_by(|(a, _), (b, _)| self.compare_sets(*a, *b));
        let told = closed.into_iter();
        told.filter_map(|(number, closed)| self.told_of(number, closed))
            .collect()
    }

    /// The policies of a set that is closed.
    pub(crate) fn closed_policies(&self, number: SetId) -> Option<Vec<PolicyId>> {
        self.usage.closed(number)?;
        let policies = self.sets.get(number)?.key.policies.iter();
        Some(policies.filter_map(|p| self.policies.id(*p)).collect())
    }

    fn told_of(&self, number: SetId, closed: Closed) -> Option<OverBudget> {
        let set = self.sets.get(number)?;
        let (elements, rules) = self.estimate(number, set);
        let direction = set.key.direction;
        let numbers = set.key.policies.iter();
        Some(OverBudget {
            policies: numbers.filter_map(|p| self.policies.id(*p)).collect(),
            direction,
            bound: closed.bound,
            elements: match closed.bound {
                Bound::Host => closed.needs,
                Bound::Set => elements.max(closed.needs + 1),
            },
            budget: match closed.bound {
                Bound::Host => self.budget.host,
                Bound::Set => self.budget.set,
            },
            rules,
        })
    }

    /// About how many elements a set would take, and its dearest rules, without compiling it: each
    /// rule counted with whom it concerns, but a long one for everyone once, since that is shared.
    fn estimate(&self, number: SetId, set: &Set) -> (usize, Vec<RuleCost>) {
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        let mut weights: HashMap<(u32, u32), usize> = HashMap::default();
        let mut dear: BTreeMap<(u32, u32), (u32, usize)> = BTreeMap::new();
        let nobody = IdentityKey::default();
        let asked = self.asked_by(number);
        let everyone: BTreeSet<(u32, u32)> = met_rules(&set.met(&nobody))
            .map(|(_, kind, rule)| (kind, rule))
            .collect();
        let keys = asked.into_iter().filter_map(|id| self.identities.key(id));
        let mut elements = 0_usize;
        for key in core::iter::once(&nobody).chain(keys) {
            elements += 1;
            let met = set.met(key);
            if !seen.insert(hash(&met)) {
                continue;
            }
            let is_first = seen.len() == 1;
            for (at, kind, rule) in met_rules(&met) {
                let weight = weights.entry((kind, rule)).or_insert_with(|| {
                    let body = set.body((kind, rule));
                    body.map_or(0, |body| crate::traffic::weight(&body.traffic))
                });
                if !is_first && *weight >= SHARE_FROM && everyone.contains(&(kind, rule)) {
                    continue;
                }
                elements += *weight;
                dear.entry((at, rule)).or_insert((kind, 0)).1 += *weight;
            }
        }
        let mut rules: Vec<((u32, u32), (u32, usize))> = dear.into_iter().collect();
        rules.sort_by_key(|(place, (_, weight))| (core::cmp::Reverse(*weight), *place));
        rules.truncate(TOLD);
        let told = rules
            .into_iter()
            .filter_map(|((at, place), (_, elements))| {
                let policy = *set.key.policies.get(at as usize)?;
                self.rule_cost(policy, set.key.direction, place, elements)
            });
        (elements, told.collect())
    }

    fn rule_cost(
        &self,
        policy: u32,
        direction: Direction,
        place: u32,
        elements: usize,
    ) -> Option<RuleCost> {
        let id: PolicyId = self.policies.id(policy)?;
        let whole = self.policies.get(policy)?;
        let rule = whole.rules(direction)?.rules.get(place as usize)?;
        Some(RuleCost {
            policy: id,
            direction,
            index: rule.origin.index,
            line: rule.origin.line.clone(),
            elements,
        })
    }
}

/// The rules that were met: the place of the source, what it says, and the rule's place in it.
fn met_rules(met: &Met) -> impl Iterator<Item = (u32, u32, u32)> {
    met.0.iter().filter_map(|(_, what)| match what {
        Meets::Rule(at, kind, rule) => Some((*at, *kind, *rule)),
        Meets::Stop => None,
    })
}
