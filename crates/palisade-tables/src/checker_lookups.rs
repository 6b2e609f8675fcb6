//! What one direction of a packet can get in each step of a flush.
//!
//! A direction makes its lookups in a fixed order: is the interface ours, the point's set, the
//! address exactly, the address by prefix, the class entry, the set's default, the program. A step
//! may happen between any two of them.

use crate::checker_samples::sample_addresses;
use crate::{Cell, ClassId, IdentityId, Point, Program, Tables, Verdict};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, Prefix};

/// What can come out of a direction, numbered: programs, by content.
pub(crate) struct OutcomeInterner {
    numbers: BTreeMap<Arc<Program>, usize>,
    programs: Vec<Arc<Program>>,
}

impl OutcomeInterner {
    const ALLOW: usize = 0;
    const DENY: usize = 1;

    fn new() -> Self {
        let mut outcomes = OutcomeInterner {
            numbers: BTreeMap::new(),
            programs: Vec::new(),
        };
        for verdict in [Verdict::Allow, Verdict::Deny] {
            outcomes.intern(Arc::new(Program::constant(Cell {
                verdict,
                hits: Vec::new(),
                log: None,
            })));
        }
        outcomes
    }

    fn intern(&mut self, program: Arc<Program>) -> usize {
        if let Some(number) = self.numbers.get(&program) {
            return *number;
        }
        let number = self.programs.len();
        self.programs.push(program.clone());
        self.numbers.insert(program, number);
        number
    }

    pub(crate) fn program(&self, outcome: usize) -> &Arc<Program> {
        &self.programs[outcome]
    }
}

/// What a direction gets over a flush.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OutcomeHistory {
    /// Before the first step, and after each.
    pub(crate) between_steps: Vec<usize>,
    /// While each step happens.
    pub(crate) during_steps: Vec<BTreeSet<usize>>,
}

impl OutcomeHistory {
    /// Everything that can come out.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = usize> {
        let during = self.during_steps.iter().flatten().copied();
        self.between_steps.iter().copied().chain(during)
    }
}

/// All histories, numbered.
pub(crate) struct HistoryInterner {
    outcomes: OutcomeInterner,
    numbers: BTreeMap<OutcomeHistory, usize>,
    histories: Vec<OutcomeHistory>,
    cache: BTreeMap<(Point, IpAddr), usize>,
    by_class: Vec<BTreeMap<ClassId, usize>>,
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
    steps: usize,
}

impl HistoryInterner {
    pub(crate) fn new(states: &[Tables]) -> Self {
        let mut outcomes = OutcomeInterner::new();
        let by_class = states
            .iter()
            .map(|state| {
                let programs = state.programs.iter();
                programs
                    .map(|(class, program)| (*class, outcomes.intern(program.clone())))
                    .collect()
            })
            .collect();
        HistoryInterner {
            outcomes,
            numbers: BTreeMap::new(),
            histories: Vec::new(),
            cache: BTreeMap::new(),
            by_class,
            v4: sample_addresses(states, Family::V4).into_iter().collect(),
            v6: sample_addresses(states, Family::V6).into_iter().collect(),
            steps: states.len() - 1,
        }
    }

    pub(crate) fn outcomes(&self) -> &OutcomeInterner {
        &self.outcomes
    }

    pub(crate) fn get(&self, number: usize) -> &OutcomeHistory {
        &self.histories[number]
    }

    /// The addresses to try as the other end.
    pub(crate) fn addresses(&self, family: Family) -> Vec<IpAddr> {
        match family {
            Family::V4 => self.v4.clone(),
            Family::V6 => self.v6.clone(),
        }
    }

    /// The history of a direction that nothing judges.
    pub(crate) fn unjudged_history(&mut self) -> usize {
        let history = OutcomeHistory {
            between_steps: alloc::vec![OutcomeInterner::ALLOW; self.steps + 1],
            during_steps: alloc::vec![BTreeSet::from([OutcomeInterner::ALLOW]); self.steps],
        };
        self.intern(history)
    }

    /// Whether anything ever changes.
    pub(crate) fn has_changes(&self, number: usize) -> bool {
        let history = &self.histories[number];
        let first = history.between_steps[0];
        history.outcomes().any(|outcome| outcome != first)
    }

    /// The history of a point towards an address.
    pub(crate) fn history(&mut self, states: &[Tables], point: &Point, peer: IpAddr) -> usize {
        let key = (point.clone(), peer);
        if let Some(known) = self.cache.get(&key) {
            return *known;
        }
        let settled = (0..states.len())
            .map(|at| self.simulate_lookups(states, point, peer, at, at, 0))
            .collect();
        let during = (1..states.len())
            .map(|after| {
                (0..=LOOKUPS)
                    .map(|made| self.simulate_lookups(states, point, peer, after - 1, after, made))
                    .collect()
            })
            .collect();
        let number = self.intern(OutcomeHistory {
            between_steps: settled,
            during_steps: during,
        });
        self.cache.insert(key, number);
        number
    }

    fn intern(&mut self, history: OutcomeHistory) -> usize {
        if let Some(number) = self.numbers.get(&history) {
            return *number;
        }
        let number = self.histories.len();
        self.histories.push(history.clone());
        self.numbers.insert(history, number);
        number
    }

    /// What comes out if the first `made` lookups see the tables `before` and the rest `after`.
    fn simulate_lookups(
        &self,
        states: &[Tables],
        point: &Point,
        peer: IpAddr,
        before: usize,
        after: usize,
        lookups_before: usize,
    ) -> usize {
        let table_index = |lookup: usize| {
            if lookup < lookups_before {
                before
            } else {
                after
            }
        };
        let tables_at = |lookup: usize| &states[table_index(lookup)];
        if !tables_at(0).interfaces.contains(&point.interface) {
            return OutcomeInterner::ALLOW;
        }
        let Some(set) = tables_at(1).points.get(point) else {
            return OutcomeInterner::DENY;
        };
        let identity = tables_at(2)
            .addresses
            .get(&Prefix::host(peer))
            .copied()
            .unwrap_or_else(|| identity_by_prefix(tables_at(3), peer));
        let class = match tables_at(4).classes.get(&(*set, identity)) {
            Some(class) => *class,
            None => match tables_at(5).sets.get(set) {
                Some(set) => set.default,
                None => return OutcomeInterner::DENY,
            },
        };
        let program = self.by_class[table_index(6)].get(&class);
        program.copied().unwrap_or(OutcomeInterner::DENY)
    }
}

/// The number of lookups a direction makes.
const LOOKUPS: usize = 7;

fn identity_by_prefix(tables: &Tables, address: IpAddr) -> IdentityId {
    let mut at = Prefix::host(address).parent();
    while let Some(prefix) = at {
        if let Some(identity) = tables.addresses.get(&prefix) {
            return *identity;
        }
        at = prefix.parent();
    }
    IdentityId::UNKNOWN
}
