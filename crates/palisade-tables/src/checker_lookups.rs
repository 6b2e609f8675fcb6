//! What one direction of a packet can get in each step of a flush.
//!
//! A direction makes its lookups in a fixed order: is the interface ours, the point's set, the
//! address exactly, the address by prefix, the class entry, the set's default, the program. A step
//! may happen between any two of them.

use crate::checker_atoms::addresses;
use crate::{Cell, ClassId, IdentityId, Point, Program, Tables, Verdict};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, Prefix};

/// What can come out of a direction, numbered: programs, by content.
pub(crate) struct Outcomes {
    numbers: BTreeMap<Arc<Program>, usize>,
    programs: Vec<Arc<Program>>,
}

impl Outcomes {
    const ALLOW: usize = 0;
    const DENY: usize = 1;

    fn new() -> Self {
        let mut outcomes = Outcomes {
            numbers: BTreeMap::new(),
            programs: Vec::new(),
        };
        for verdict in [Verdict::Allow, Verdict::Deny] {
            outcomes.number(Arc::new(Program::constant(Cell {
                verdict,
                hits: Vec::new(),
                log: None,
            })));
        }
        outcomes
    }

    fn number(&mut self, program: Arc<Program>) -> usize {
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
pub(crate) struct History {
    /// Before the first step, and after each.
    pub(crate) settled: Vec<usize>,
    /// While each step happens.
    pub(crate) during: Vec<BTreeSet<usize>>,
}

impl History {
    /// Everything that can come out.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = usize> {
        let during = self.during.iter().flatten().copied();
        self.settled.iter().copied().chain(during)
    }
}

/// All histories, numbered.
pub(crate) struct Histories {
    outcomes: Outcomes,
    numbers: BTreeMap<History, usize>,
    histories: Vec<History>,
    known: BTreeMap<(Point, IpAddr), usize>,
    by_class: Vec<BTreeMap<ClassId, usize>>,
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
    steps: usize,
}

impl Histories {
    pub(crate) fn new(states: &[Tables]) -> Self {
        let mut outcomes = Outcomes::new();
        let by_class = states
            .iter()
            .map(|state| {
                let programs = state.programs.iter();
                programs
                    .map(|(class, program)| (*class, outcomes.number(program.clone())))
                    .collect()
            })
            .collect();
        Histories {
            outcomes,
            numbers: BTreeMap::new(),
            histories: Vec::new(),
            known: BTreeMap::new(),
            by_class,
            v4: addresses(states, Family::V4).into_iter().collect(),
            v6: addresses(states, Family::V6).into_iter().collect(),
            steps: states.len() - 1,
        }
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    pub(crate) fn get(&self, number: usize) -> &History {
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
    pub(crate) fn always(&mut self) -> usize {
        let history = History {
            settled: alloc::vec![Outcomes::ALLOW; self.steps + 1],
            during: alloc::vec![BTreeSet::from([Outcomes::ALLOW]); self.steps],
        };
        self.number(history)
    }

    /// Whether anything ever changes.
    pub(crate) fn moves(&self, number: usize) -> bool {
        let history = &self.histories[number];
        let first = history.settled[0];
        history.outcomes().any(|outcome| outcome != first)
    }

    /// The history of a point towards an address.
    pub(crate) fn of(&mut self, states: &[Tables], point: &Point, peer: IpAddr) -> usize {
        let key = (point.clone(), peer);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let settled = (0..states.len())
            .map(|at| self.look(states, point, peer, at, at, 0))
            .collect();
        let during = (1..states.len())
            .map(|after| {
                (0..=LOOKUPS)
                    .map(|made| self.look(states, point, peer, after - 1, after, made))
                    .collect()
            })
            .collect();
        let number = self.number(History { settled, during });
        self.known.insert(key, number);
        number
    }

    fn number(&mut self, history: History) -> usize {
        if let Some(number) = self.numbers.get(&history) {
            return *number;
        }
        let number = self.histories.len();
        self.histories.push(history.clone());
        self.numbers.insert(history, number);
        number
    }

    /// What comes out if the first `made` lookups see the tables `before` and the rest `after`.
    fn look(
        &self,
        states: &[Tables],
        point: &Point,
        peer: IpAddr,
        before: usize,
        after: usize,
        made: usize,
    ) -> usize {
        let at = |lookup: usize| if lookup < made { before } else { after };
        let see = |lookup: usize| &states[at(lookup)];
        if !see(0).interfaces.contains(&point.interface) {
            return Outcomes::ALLOW;
        }
        let Some(set) = see(1).points.get(point) else {
            return Outcomes::DENY;
        };
        let identity = see(2)
            .addresses
            .get(&Prefix::host(peer))
            .copied()
            .unwrap_or_else(|| by_prefix(see(3), peer));
        let class = match see(4).classes.get(&(*set, identity)) {
            Some(class) => *class,
            None => match see(5).sets.get(set) {
                Some(set) => set.default,
                None => return Outcomes::DENY,
            },
        };
        let program = self.by_class[at(6)].get(&class);
        program.copied().unwrap_or(Outcomes::DENY)
    }
}

/// The number of lookups a direction makes.
const LOOKUPS: usize = 7;

fn by_prefix(tables: &Tables, address: IpAddr) -> IdentityId {
    let mut at = Prefix::host(address).parent();
    while let Some(prefix) = at {
        if let Some(identity) = tables.addresses.get(&prefix) {
            return *identity;
        }
        at = prefix.parent();
    }
    IdentityId::NOBODY
}
