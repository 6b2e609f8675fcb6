//! The outcomes that one direction of a packet can have during each step of a delta.
//!
//! A direction makes its lookups in a fixed order: whether the interface is managed or has points of its own, the
//! point's set (at an interface of the host that of the longest prefix of the local address), the address exactly, the
//! address by prefix, the class entry, the set's default, the program. Any number of the writes of a step may happen
//! between any two of them.

use crate::checker_samples::sample_addresses;
use crate::checker_states::IntermediateStates;
use palisade_model::{Family, Prefix};
use palisade_tables::{
    Cell, ClassId, IdentityId, Point, PointInterface, PolicySetId, Program, Tables, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The outcomes of a direction, interned: programs, by content.
pub(crate) struct OutcomeInterner {
    numbers: BTreeMap<Arc<Program>, usize>,
    programs: Vec<Arc<Program>>,
}

impl OutcomeInterner {
    const ALLOW: usize = 0;
    const DENY: usize = 1;
    const CONTINUE: usize = 2;

    fn new() -> Self {
        let mut outcomes = OutcomeInterner {
            numbers: BTreeMap::new(),
            programs: Vec::new(),
        };
        for verdict in [Verdict::Allow, Verdict::Deny, Verdict::Continue] {
            outcomes.intern(Arc::new(Program::constant(Cell {
                verdict,
                causes: Vec::new(),
                log: None,
                audit: None,
                redirect: None,
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

/// The outcomes of a direction over a delta.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OutcomeHistory {
    /// In each state, for a packet whose lookups all see that state.
    pub(crate) in_states: Vec<usize>,
    /// During each step, for packets whose lookups see any states of it.
    pub(crate) during_steps: Vec<BTreeSet<usize>>,
}

impl OutcomeHistory {
    /// Every outcome.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = usize> {
        let during = self.during_steps.iter().flatten().copied();
        self.in_states.iter().copied().chain(during)
    }
}

/// The points at which a packet looks up its set at an interface of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostPoints {
    /// Those of the interface.
    Own,
    /// Those of every interface without points of its own.
    Shared,
}

/// The lookup that a packet makes next, with the results of earlier lookups that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lookup {
    Interface,
    Point,
    HostPoint(HostPoints),
    Address(PolicySetId),
    Prefix(PolicySetId),
    Class(PolicySetId, IdentityId),
    Default(PolicySetId),
    Program(ClassId),
    Done(usize),
}

/// All histories, interned.
pub(crate) struct HistoryInterner<'a> {
    states: &'a IntermediateStates,
    outcomes: OutcomeInterner,
    numbers: BTreeMap<OutcomeHistory, usize>,
    histories: Vec<OutcomeHistory>,
    cache: BTreeMap<(Point, IpAddr), usize>,
    /// The outcome of each class, for each state.
    by_class: Vec<BTreeMap<ClassId, usize>>,
    /// The identity of an address by its longest prefix that is no single address, for each state.
    by_prefix: BTreeMap<IpAddr, Vec<IdentityId>>,
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
}

impl<'a> HistoryInterner<'a> {
    pub(crate) fn new(states: &'a IntermediateStates) -> Self {
        let mut outcomes = OutcomeInterner::new();
        let mut intern_programs = |state: &Tables| {
            let programs = state.programs.iter();
            programs
                .map(|(class, program)| (*class, outcomes.intern(program.clone())))
                .collect()
        };
        let by_class = states.tables.iter().map(&mut intern_programs).collect();
        let addresses = |family| {
            sample_addresses(&states.tables, family)
                .into_iter()
                .collect()
        };
        HistoryInterner {
            states,
            outcomes,
            numbers: BTreeMap::new(),
            histories: Vec::new(),
            cache: BTreeMap::new(),
            by_class,
            by_prefix: BTreeMap::new(),
            v4: addresses(Family::V4),
            v6: addresses(Family::V6),
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

    /// The history of a direction without a judgement, of an early stage or another one.
    pub(crate) fn unjudged_history(&mut self, is_early: bool) -> usize {
        let outcome = if is_early {
            OutcomeInterner::CONTINUE
        } else {
            OutcomeInterner::ALLOW
        };
        let steps = self.states.step_ends.len();
        let history = OutcomeHistory {
            in_states: vec![outcome; self.states.tables.len()],
            during_steps: vec![BTreeSet::from([outcome]); steps],
        };
        self.intern(history)
    }

    /// Whether any outcome differs from the first.
    pub(crate) fn has_changes(&self, number: usize) -> bool {
        let history = &self.histories[number];
        let first = history.in_states[0];
        history.outcomes().any(|outcome| outcome != first)
    }

    /// The history of a point towards an address.
    pub(crate) fn history(&mut self, point: &Point, peer: IpAddr) -> usize {
        let key = (point.clone(), peer);
        if let Some(known) = self.cache.get(&key) {
            return *known;
        }
        let states = self.states;
        self.by_prefix.entry(peer).or_insert_with(|| {
            let states = states.tables.iter();
            states
                .map(|state| identity_by_prefix(state, peer))
                .collect()
        });
        let mut in_states = Vec::with_capacity(states.tables.len());
        for state in 0..states.tables.len() {
            let outcome = if states.may_matter(state, point, peer) {
                self.outcome(state, point, peer)
            } else {
                in_states[state - 1]
            };
            in_states.push(outcome);
        }
        let mut first = 0;
        let mut during_steps = Vec::with_capacity(states.step_ends.len());
        for last in &states.step_ends {
            during_steps.push(self.outcomes_during(first, *last, point, peer));
            first = *last;
        }
        let number = self.intern(OutcomeHistory {
            in_states,
            during_steps,
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

    /// The outcome if all lookups see one state.
    fn outcome(&self, state: usize, point: &Point, peer: IpAddr) -> usize {
        let mut lookup = Lookup::Interface;
        loop {
            if let Lookup::Done(outcome) = lookup {
                return outcome;
            }
            lookup = self.look_up(lookup, state, point, peer);
        }
    }

    /// The outcomes of packets whose lookups see any states from the first to the last, in order.
    fn outcomes_during(
        &self,
        first: usize,
        last: usize,
        point: &Point,
        peer: IpAddr,
    ) -> BTreeSet<usize> {
        // The lookups that packets may make next; a packet may wait at each for any number of states.
        let mut reached = BTreeSet::from([Lookup::Interface]);
        for state in first..=last {
            if state > first && !self.states.may_matter(state, point, peer) {
                continue;
            }
            let mut next: Vec<Lookup> = reached.iter().copied().collect();
            while let Some(lookup) = next.pop() {
                let result = self.look_up(lookup, state, point, peer);
                if reached.insert(result) {
                    next.push(result);
                }
            }
        }
        let outcomes = reached.into_iter().filter_map(|lookup| match lookup {
            Lookup::Done(outcome) => Some(outcome),
            _ => None,
        });
        outcomes.collect()
    }

    /// Makes one lookup in a state. Returns the next one.
    fn look_up(&self, lookup: Lookup, state: usize, point: &Point, peer: IpAddr) -> Lookup {
        let tables = &self.states.tables[state];
        match lookup {
            Lookup::Interface => match &point.interface {
                PointInterface::Workload(name) | PointInterface::Hairpin(name)
                    if tables.interfaces.contains(name) =>
                {
                    Lookup::Point
                }
                PointInterface::Workload(_) | PointInterface::Hairpin(_) => {
                    Lookup::Done(OutcomeInterner::ALLOW)
                }
                PointInterface::Host(name) if tables.host_interfaces.contains(name) => {
                    Lookup::HostPoint(HostPoints::Own)
                }
                PointInterface::Host(_) | PointInterface::AnyHost => {
                    Lookup::HostPoint(HostPoints::Shared)
                }
            },
            Lookup::HostPoint(points) => {
                let interface = match points {
                    HostPoints::Own => point.interface.clone(),
                    HostPoints::Shared => PointInterface::AnyHost,
                };
                let at = |local| Point {
                    interface: interface.clone(),
                    local,
                    ..point.clone()
                };
                let local = point.local.address();
                let last = Prefix::host(IpAddr::from([0xff; 16]));
                let all = tables.points.range(at(Prefix::all(Family::V4))..=at(last));
                let found = all.filter(|(point, _)| point.local.contains(local));
                match found.max_by_key(|(point, _)| point.local.length()) {
                    Some((_, set)) => Lookup::Address(*set),
                    None if point.stage.is_early() => Lookup::Done(OutcomeInterner::CONTINUE),
                    None => Lookup::Done(OutcomeInterner::ALLOW),
                }
            }
            Lookup::Point => match tables.points.get(point) {
                Some(set) => Lookup::Address(*set),
                None if point.hairpin().is_some() => Lookup::Done(OutcomeInterner::ALLOW),
                None => Lookup::Done(OutcomeInterner::DENY),
            },
            Lookup::Address(set) => match tables.addresses.get(&Prefix::host(peer)) {
                Some(identity) => Lookup::Class(set, *identity),
                None => Lookup::Prefix(set),
            },
            Lookup::Prefix(set) => Lookup::Class(set, self.by_prefix[&peer][state]),
            Lookup::Class(set, identity) => match tables.classes.get(&(set, identity)) {
                Some(class) => Lookup::Program(*class),
                None => Lookup::Default(set),
            },
            Lookup::Default(set) => match tables.sets.get(&set) {
                Some(set) => Lookup::Program(set.default),
                None => Lookup::Done(OutcomeInterner::DENY),
            },
            Lookup::Program(class) => {
                let program = self.by_class[state].get(&class).copied();
                Lookup::Done(program.unwrap_or(OutcomeInterner::DENY))
            }
            done @ Lookup::Done(_) => done,
        }
    }
}

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
