//! The elements that a policy takes in a dataplane on its own: a function of the policy alone.
//!
//! The count assumes that the policy is alone in its policy set and that its peers do not overlap:
//! one class for identities that no rule names, and one for each group of peers that the same rules
//! name. No endpoint is considered, so the result is the same on every host and independent of
//! other objects. The work is bounded: programs are compiled until they have
//! [`MAX_COMPILED_ELEMENTS`] elements in total, and estimated rule by rule beyond that. Elements
//! that compiled classes share are counted once ([`palisade_tables::find_shared_bases`]). Where
//! peers overlap or policies share a set, [`crate::Engine::over_budget`] reports the real count.

use crate::budget::required_elements;
use crate::compiler::{RuleSequence, SequenceStep, StepOperation, compile};
use crate::dns_observation::{MAX_OBSERVATION_ELEMENTS, observe_dns};
use crate::encapsulation::{MAX_DENIAL_ELEMENTS, deny_encapsulation};
use crate::traffic::{element_weight, merge_port_lists};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use palisade_model::{
    Action, Direction, DirectionRules, Encapsulations, Peer, Policy, Prefix, Rule, Selector,
    TrafficMatch,
};
use palisade_tables::{
    Program, RuleId, SHARE_MIN_ELEMENTS, SharedBase, Verdict, find_shared_bases,
};

/// An estimate up to this many elements is not refined by compiling.
const ESTIMATE_UP_TO: usize = 1 << 10;
/// The most elements compiled for a count.
const MAX_COMPILED_ELEMENTS: usize = 1 << 20;
/// The most port ranges swept for a count.
const MAX_SWEPT_RANGES: usize = 1 << 22;

/// The elements that a policy takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyCost {
    /// Estimated elements; at least one.
    pub elements: usize,
    /// Estimated elements of all classes without sharing.
    pub compiled: usize,
    /// The share of each rule, the most expensive first.
    pub rules: Vec<RuleShare>,
}

impl PolicyCost {
    /// The budget it needs: the larger of its elements and an eighth of the compiled elements.
    pub fn required_elements(&self) -> usize {
        required_elements(self.elements, self.compiled)
    }
}

/// A rule's share of a policy's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleShare {
    /// The rule's direction.
    pub direction: Direction,
    /// Its index in the policy's list of that direction.
    pub index: usize,
    /// Estimated elements of the rule.
    pub elements: usize,
}

/// The elements that a policy takes on its own.
pub fn policy_cost(policy: &Policy) -> PolicyCost {
    let mut cost = PolicyCost::default();
    for direction in Direction::BOTH {
        if let Some(rules) = policy.rules(direction) {
            let observes_dns = policy.observes_dns && direction == Direction::Egress;
            DirectionCost::new(direction, rules, observes_dns).add_to(&mut cost);
        }
    }
    let order = |rule: &RuleShare| (Reverse(rule.elements), rule.direction, rule.index);
    cost.rules.sort_by_key(order);
    cost
}

/// A single test of a rule's peer.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Atom<'a> {
    selector: Option<&'a Selector>,
    not_selector: Option<&'a Selector>,
    net: Option<Prefix>,
    not_nets: &'a [Prefix],
}

/// Counts the elements of the rules of one direction.
struct DirectionCost<'a> {
    direction: Direction,
    /// Whether the program redirects the DNS that it allows.
    observes_dns: bool,
    rules: &'a [Rule],
    traffic: Vec<Vec<TrafficMatch>>,
    weights: Vec<usize>,
    /// Indexes of the rules that match all peers.
    everyone: Vec<usize>,
    /// Rules that name the same peers, and the number of these peers.
    groups: BTreeMap<Vec<usize>, usize>,
}

impl<'a> DirectionCost<'a> {
    fn new(direction: Direction, rules: &'a DirectionRules, observes_dns: bool) -> Self {
        let rules = &*rules.rules;
        let traffic: Vec<Vec<TrafficMatch>> =
            rules.iter().map(|r| merge_port_lists(&r.traffic)).collect();
        let mut everyone = Vec::new();
        let mut rules_by_atom: BTreeMap<Atom<'a>, Vec<usize>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            if rule.peers.iter().any(Peer::is_any) {
                everyone.push(index);
                continue;
            }
            for atom in rule.peers.iter().flat_map(peer_atoms) {
                let named_by = rules_by_atom.entry(atom).or_default();
                if named_by.last() != Some(&index) {
                    named_by.push(index);
                }
            }
        }
        let mut groups = BTreeMap::new();
        for named_by in rules_by_atom.into_values() {
            *groups.entry(named_by).or_default() += 1;
        }
        DirectionCost {
            direction,
            observes_dns,
            rules,
            weights: traffic.iter().map(|terms| element_weight(terms)).collect(),
            traffic,
            everyone,
            groups,
        }
    }

    /// Adds the elements of the direction.
    fn add_to(&self, cost: &mut PolicyCost) {
        let weight =
            |indices: &[usize]| -> usize { indices.iter().map(|at| self.weights[*at]).sum() };
        let everyone = weight(&self.everyone);
        // Apart from the rules, a class has a default for itself and for each protocol it names,
        // the denial of encapsulations, and the observation of DNS.
        let beside = match self.direction {
            Direction::Ingress => 4,
            Direction::Egress if self.observes_dns => {
                4 + MAX_DENIAL_ELEMENTS + MAX_OBSERVATION_ELEMENTS
            }
            Direction::Egress => 4 + MAX_DENIAL_ELEMENTS,
        };
        let at_most = |named: usize| beside + named + everyone;
        let upper: usize = self
            .groups
            .iter()
            .map(|(rule_indexes, peers)| peers + at_most(weight(rule_indexes)))
            .sum();
        let mut shares = alloc::vec![0_usize; self.rules.len()];
        let mut room = if at_most(0) + upper > ESTIMATE_UP_TO {
            MAX_COMPILED_ELEMENTS
        } else {
            0
        };
        let mut sweeps = MAX_SWEPT_RANGES;
        let nobody = (Vec::new(), 1);
        let classes = core::iter::once((&nobody.0, &nobody.1)).chain(&self.groups);
        // Rules for all peers have a share in each class that is not compiled.
        let mut others = 0;
        let mut large: Vec<Program> = Vec::new();
        for (rule_indexes, peers) in classes {
            let named = weight(rule_indexes);
            cost.elements += peers;
            let ranges = named + everyone;
            let compiled = match sweeps.checked_sub(ranges) {
                Some(left) if room > 0 => {
                    sweeps = left;
                    self.compile_group(rule_indexes)
                }
                _ => None,
            };
            cost.compiled += peers;
            let Some(program) = compiled else {
                others += 1;
                rule_indexes
                    .iter()
                    .for_each(|at| shares[*at] += self.weights[*at]);
                cost.elements += at_most(named);
                cost.compiled += at_most(named);
                continue;
            };
            let elements = program.element_count();
            room = room.saturating_sub(elements);
            cost.compiled += elements;
            if elements >= SHARE_MIN_ELEMENTS {
                large.push(program);
            } else {
                cost.elements += elements;
                add_rule_shares(&program, None, &mut shares);
            }
        }
        cost.elements += count_large_programs(&large, &mut shares);
        for at in &self.everyone {
            shares[*at] += others * self.weights[*at];
        }
        let shares = shares.into_iter().enumerate();
        cost.rules.extend(shares.map(|(index, elements)| RuleShare {
            direction: self.direction,
            index,
            elements,
        }));
    }

    /// The program for the peers that these rules name.
    fn compile_group(&self, named: &[usize]) -> Option<Program> {
        let mut indices: Vec<usize> = named.iter().chain(&self.everyone).copied().collect();
        indices.sort_unstable();
        let stop = RuleId(u32::MAX);
        let mut steps: Vec<SequenceStep<'_>> = Vec::with_capacity(indices.len() + 1);
        for index in &indices {
            let rule = self.rules.get(*index)?;
            steps.push(SequenceStep {
                id: RuleId(u32::try_from(*index).ok()?),
                operation: StepOperation::Rule {
                    action: match rule.action {
                        Action::Pass => Action::Allow,
                        action => action,
                    },
                    dns_names: rule.dns_names.as_ref(),
                    next: indices.len(),
                    terms: self.traffic.get(*index)?.iter().collect(),
                },
            });
        }
        steps.push(SequenceStep {
            id: stop,
            operation: StepOperation::Fallback(Verdict::Deny),
        });
        let sequence = RuleSequence {
            direction: self.direction,
            steps,
        };
        let program = compile(&sequence, |_, _, _| None, MAX_COMPILED_ELEMENTS)?;
        // As if all encapsulations were denied: the configuration is no part of the policy.
        Some(match self.direction {
            Direction::Ingress => program,
            Direction::Egress => {
                let program = deny_encapsulation(program, Encapsulations::ALL, || stop);
                if self.observes_dns {
                    observe_dns(program)
                } else {
                    program
                }
            }
        })
    }
}

/// The elements of large programs, with shared ones counted once.
fn count_large_programs(large: &[Program], shares: &mut [usize]) -> usize {
    let programs: Vec<&Program> = large.iter().collect();
    let mut elements = 0;
    let mut whole = alloc::vec![true; large.len()];
    for SharedBase { base, members } in find_shared_bases(&programs) {
        elements += base.element_count();
        add_rule_shares(&base, None, shares);
        for at in members {
            whole[at] = false;
            elements += programs[at].element_count_over(&base);
            add_rule_shares(programs[at], Some(&base), shares);
        }
    }
    for (program, _) in programs.iter().zip(whole).filter(|(_, whole)| *whole) {
        elements += program.element_count();
        add_rule_shares(program, None, shares);
    }
    elements
}

/// Adds the elements of a program to the shares of the rules that they count for.
fn add_rule_shares(program: &Program, base: Option<&Program>, shares: &mut [usize]) {
    program.for_each_element_over(base, |cell, many| {
        let rule = cell.causes.last().copied();
        let index = rule.and_then(|rule| usize::try_from(rule.0).ok());
        if let Some(share) = index.and_then(|index| shares.get_mut(index)) {
            *share += many;
        }
    });
}

fn peer_atoms(peer: &Peer) -> impl Iterator<Item = Atom<'_>> {
    let atom = |net| Atom {
        selector: peer.selector.as_ref(),
        not_selector: peer.not_selector.as_ref(),
        net,
        not_nets: &peer.not_nets,
    };
    let anywhere = peer.nets.is_none().then(|| atom(None));
    let nets = peer.nets.iter().flatten();
    anywhere
        .into_iter()
        .chain(nets.map(move |net| atom(Some(*net))))
}
