//! Common parts of programs, so that a dataplane can write them once.
//!
//! A *base* is a program that others refine: it has the same defaults and a subset of their entries,
//! with equal cells, counted rules included. The rules that its counters count for therefore exist as
//! long as any program that refines it. Promises: [`find_shared_bases`] does not depend on rule numbers
//! or on the order of programs. This module never changes the meaning of a program.

use crate::{Cell, PortMap, Program, SourcePortMap};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{PortRange, Protocol};

/// A program with fewer elements is written whole, whatever it has in common with others: sharing
/// would save little, and costs additional lookups for packets whose verdict depends on a port.
pub const SHARE_MIN_ELEMENTS: usize = 64;

/// How many times bases are searched among programs with the same defaults. Each round is one pass over
/// them.
const MAX_ROUNDS: usize = 8;

/// The cells of a program where it has no entry for a port. Only programs with equal defaults can share
/// a base.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramDefaults {
    default: Cell,
    protocols: Vec<(Protocol, SourcePortMap)>,
}

/// A base, and the programs that refine it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBase {
    /// The program that all members refine.
    pub base: Program,
    /// The indices of the programs, ascending.
    pub members: Vec<usize>,
}

/// The cells of a protocol where it has no entry; for a protocol without ports or ICMP types, its only
/// cells.
fn protocol_default(protocol: Protocol, map: &PortMap<SourcePortMap>) -> &SourcePortMap {
    if protocol.has_ports() || protocol.is_icmp() {
        map.default()
    } else {
        map.get(0)
    }
}

impl Program {
    /// The cells where the program has no entry for a port.
    pub fn defaults(&self) -> ProgramDefaults {
        let protocols = self.protocols().iter();
        let protocols = protocols.map(|(p, map)| (*p, protocol_default(*p, map)));
        let differ = protocols.filter(|(_, ports)| ports.as_constant() != Some(self.default()));
        ProgramDefaults {
            default: self.default().clone(),
            protocols: differ.map(|(p, ports)| (p, ports.clone())).collect(),
        }
    }

    /// Whether this program has the defaults of `base`, and the same cells wherever `base` has an
    /// entry.
    pub fn refines(&self, base: &Program) -> bool {
        self.defaults() == base.defaults()
            && base.protocols().iter().all(|(protocol, theirs)| {
                let Some(mine) = self.protocol(*protocol) else {
                    return theirs.entries().is_empty();
                };
                let plain = !protocol.has_ports() && !protocol.is_icmp();
                plain || mine.all_zipped(theirs, |a, b| b == theirs.default() || a == b)
            })
    }

    /// The largest program that both refine: the entries that are equal in both. `None` where their
    /// defaults differ.
    pub fn intersection(&self, other: &Program) -> Option<Program> {
        if self.defaults() != other.defaults() {
            return None;
        }
        let mut protocols = Vec::new();
        for (protocol, mine) in self.protocols() {
            let default = protocol_default(*protocol, mine);
            let both = match other.protocol(*protocol) {
                Some(theirs) if protocol.has_ports() || protocol.is_icmp() => mine.zip(
                    theirs,
                    |a, b| if a == b { a.clone() } else { default.clone() },
                ),
                _ => PortMap::constant(default.clone()),
            };
            if both.default() != default {
                return None;
            }
            protocols.push((*protocol, both));
        }
        Some(Program::new(protocols, self.default().clone()))
    }

    /// The cells of this program where `shape` has entries, and its defaults elsewhere: a base of the
    /// extent of `shape` with the cells of this program.
    pub fn restrict_to(&self, shape: &Program) -> Program {
        let rest = PortMap::constant(PortMap::constant(self.default().clone()));
        let protocols = shape.protocols().iter().map(|(protocol, ports)| {
            let mine = self.protocol(*protocol).unwrap_or(&rest);
            let default = protocol_default(*protocol, mine);
            let mut ends: Vec<(u16, SourcePortMap)> = Vec::new();
            for (PortRange { first, last }, _) in ports.entries() {
                if let Some(before) = first.checked_sub(1) {
                    ends.push((before, default.clone()));
                }
                let inside = mine.runs_within(PortRange {
                    first: *first,
                    last: *last,
                });
                ends.extend(inside.map(|(range, values)| (range.last, values.clone())));
            }
            if ends.last().is_none_or(|(end, _)| *end < u16::MAX) {
                ends.push((u16::MAX, default.clone()));
            }
            let whole = || PortMap::constant(default.clone());
            (
                *protocol,
                PortMap::from_segments(ends).unwrap_or_else(whole),
            )
        });
        Program::new(protocols.collect::<Vec<_>>(), self.default().clone())
    }

    /// The maximum number of elements that a dataplane needs for the entries of this program outside
    /// `base`, including the one that refers to the base.
    pub fn element_count_over(&self, base: &Program) -> usize {
        let mut elements = 1;
        self.for_each_element_over(Some(base), |_, many| elements += many);
        elements
    }
}

/// Whether a program of `whole` elements is worth writing as its difference from a base of `base`
/// elements: whether that saves more than half of it.
pub(crate) fn is_worth_sharing(base: usize, whole: usize) -> bool {
    2 * base > whole
}

/// Finds bases for programs. No program is a member of two bases, and each base saves more than half
/// of each member.
///
/// Programs of one size are accepted or rejected together, the smallest first, so that the result
/// does not depend on their order. The cost is a few passes over all programs.
pub fn find_shared_bases(programs: &[&Program]) -> Vec<SharedBase> {
    let mut by_defaults: BTreeMap<ProgramDefaults, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (index, program) in programs.iter().enumerate() {
        let sizes = by_defaults.entry(program.defaults()).or_default();
        sizes
            .entry(program.element_count())
            .or_default()
            .push(index);
    }
    let mut bases = Vec::new();
    for mut sizes in by_defaults.into_values() {
        for _ in 0..MAX_ROUNDS {
            let mut base: Option<Program> = None;
            let mut members: Vec<usize> = Vec::new();
            let mut remaining = BTreeMap::new();
            for (size, indexes) in sizes {
                match narrow_base(base.as_ref(), programs, &indexes, size) {
                    Some(less) => {
                        base = Some(less);
                        members.extend(indexes);
                    }
                    None => drop(remaining.insert(size, indexes)),
                }
            }
            let Some(base) = base else { break };
            if members.len() > 1 {
                members.sort_unstable();
                bases.push(SharedBase { base, members });
            }
            sizes = remaining;
            if sizes.is_empty() {
                break;
            }
        }
    }
    bases
}

/// The common part of these programs, all of this size, and the base so far, if it is worth sharing.
fn narrow_base(
    base: Option<&Program>,
    programs: &[&Program],
    indexes: &[usize],
    size: usize,
) -> Option<Program> {
    let mut members = indexes.iter().filter_map(|index| programs.get(*index));
    let mut common = match base {
        Some(base) => base.clone(),
        None => (*members.next()?).clone(),
    };
    for member in members {
        common = common.intersection(member)?;
        if !is_worth_sharing(common.element_count(), size) {
            return None;
        }
    }
    Some(common)
}

/// The key of the base that saves most of a program, if one saves more than half of it.
pub fn best_base<'a, K>(
    program: &Program,
    bases: impl IntoIterator<Item = (K, &'a Program)>,
) -> Option<K> {
    let size = program.element_count();
    let worth = bases.into_iter().filter_map(|(key, base)| {
        let saved = base.element_count();
        (is_worth_sharing(saved, size) && program.refines(base)).then_some((saved, key))
    });
    let best = worth.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, key)| key)
}

/// The common part of a program and the first of `others` for which it is worth sharing.
pub fn pair_base<'a>(
    program: &Program,
    others: impl IntoIterator<Item = &'a Program>,
) -> Option<Program> {
    let size = program.element_count();
    let common = |other: &Program| program.intersection(other);
    let mut common = others.into_iter().filter_map(common);
    common.find(|common| is_worth_sharing(common.element_count(), size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RuleId, Verdict};
    use alloc::vec;

    fn cell(verdict: Verdict, rule: u32) -> Cell {
        Cell {
            verdict,
            causes: vec![RuleId(rule)],
            log: None,
            audit: None,
            redirect: None,
        }
    }

    /// Rule 1 allows the TCP ports `one`, rule 2 the ports `two`; rule 0 denies the rest.
    fn program(one: &[u16], two: &[u16]) -> Program {
        let mut ports: Vec<(u16, u32)> = one.iter().map(|p| (*p, 1)).collect();
        ports.extend(two.iter().map(|p| (*p, 2)));
        ports.sort_unstable();
        let denied = PortMap::constant(cell(Verdict::Deny, 0));
        let mut ends = Vec::new();
        for (port, rule) in ports {
            ends.push((port - 1, denied.clone()));
            ends.push((port, PortMap::constant(cell(Verdict::Allow, rule))));
        }
        ends.push((u16::MAX, denied));
        let map = PortMap::from_segments(ends).unwrap();
        Program::new([(Protocol::TCP, map)], cell(Verdict::Deny, 0))
    }

    #[test]
    fn a_base_says_what_all_say_by_the_same_rule() {
        let (a, b) = (program(&[10, 20, 30], &[40]), program(&[10, 20], &[30, 50]));
        let base = a.intersection(&b).unwrap();
        assert_eq!(base, program(&[10, 20], &[]));
        assert!(a.refines(&base) && b.refines(&base) && !base.refines(&a) && !a.refines(&b));
        assert_eq!(a.restrict_to(&base), base);
        assert_eq!(
            a.restrict_to(&program(&[], &[30, 40])),
            program(&[30], &[40])
        );
        assert_eq!(
            (a.element_count_over(&base), b.element_count_over(&base)),
            (3, 3)
        );
        assert_eq!(base.element_count(), 4, "two ports and two defaults");
        let open = Program::constant(cell(Verdict::Allow, 0));
        assert_eq!(a.intersection(&open), None);
        assert!(!a.refines(&open));
    }

    #[test]
    fn what_everyone_has_is_found_whatever_the_order() {
        let list: Vec<u16> = (0..100).map(|n| 1000 + 2 * n).collect();
        let other: Vec<u16> = (0..150).map(|n| 5000 + 2 * n).collect();
        let mut programs = vec![program(&list, &[])];
        programs.extend((1..6).map(|n| program(&list, &[n])));
        programs.push(program(&list, &other));
        programs.push(program(&[7, 9], &[]));
        let list = program(&list, &[]);
        for turn in 0..programs.len() {
            let all: Vec<&Program> = programs.iter().collect();
            let shared = find_shared_bases(&all);
            assert_eq!(shared.len(), 1, "turn {turn}");
            assert_eq!(shared[0].base, list);
            assert_eq!(shared[0].members.len(), 6);
            programs.rotate_left(1);
        }
        // Six programs share the list as base; the largest has less than half in common with any of them.
        let large = program(&[], &other).intersection(&programs[0]);
        assert!(large.is_some_and(|common| common.element_count() < 4));
        let all: Vec<(usize, &Program)> = programs.iter().enumerate().collect();
        assert!(best_base(&list, all.clone()).is_some());
        assert_eq!(best_base(&program(&[1, 3, 5], &[]), all), None);
        let whole = program(&[1, 3, 5, 7], &[]);
        let pair = pair_base(&whole, [&program(&[1, 3, 5], &[11])]);
        assert_eq!(pair, Some(program(&[1, 3, 5], &[])));
    }
}
