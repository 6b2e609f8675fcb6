//! Programs: the function from a packet's transport header to its verdict, for one class.

use crate::{DnsRules, PortMap, RuleId, Verdict};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Direction, L4, PortRange, Protocol};
use serde::{Deserialize, Serialize};

/// A verdict and the rules that cause it: those that logged or passed, then the deciding
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The verdict.
    pub verdict: Verdict,
    /// The rules that the packet counts for, in order of evaluation; the last one decided.
    pub causes: Vec<RuleId>,
    /// The direction of a matching `Log` rule, if any: a dataplane must then report the packet even if
    /// it allows it.
    pub log: Option<Direction>,
    /// The verdict if nothing were in audit; `None` where nothing in audit applies. A dataplane must report
    /// a packet that it allows and that this would deny; nothing else depends on it.
    pub audit: Option<Box<AuditCell>>,
    /// Where rules decide DNS queries by name, or the answers have to be seen: a dataplane sends the packets to who reads
    /// them, and `verdict` is that of packets that nobody reads. Of the egress of workloads only, for TCP and UDP.
    pub redirect: Option<Arc<DnsRules>>,
}

/// What a cell would be if nothing were in audit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditCell {
    /// The direction that is judged.
    pub direction: Direction,
    /// The verdict.
    pub verdict: Verdict,
    /// The rules that it would count for, in order of evaluation; their causes are
    /// [`VerdictCause::Audit`](crate::VerdictCause::Audit).
    pub causes: Vec<RuleId>,
}

/// The verdict of a packet beside the one that it would have if nothing were in audit. Serialized in state on
/// disk, as an account of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AuditComparison {
    /// The verdict that is enforced.
    pub enforced: Verdict,
    /// The verdict if nothing were in audit.
    pub audit: Verdict,
}

impl AuditComparison {
    /// Every comparison.
    pub const ALL: [AuditComparison; 4] = {
        const fn of(enforced: Verdict, audit: Verdict) -> AuditComparison {
            AuditComparison { enforced, audit }
        }
        [
            of(Verdict::Allow, Verdict::Allow),
            of(Verdict::Allow, Verdict::Deny),
            of(Verdict::Deny, Verdict::Allow),
            of(Verdict::Deny, Verdict::Deny),
        ]
    };
}

impl Cell {
    /// The verdict beside the one if nothing were in audit; `None` where nothing in audit applies.
    pub fn audit_comparison(&self) -> Option<AuditComparison> {
        let audit = self.audit.as_ref()?;
        Some(AuditComparison {
            enforced: self.verdict.or_allow(),
            audit: audit.verdict.or_allow(),
        })
    }

    /// The verdict where a flow whose queries rules decide by name counts as allowed, since which names it asks for is
    /// not known: in audit, and with [`Program::with_unread_dns_allowed`].
    fn unread_verdict(&self) -> Verdict {
        if self.redirect.is_some() {
            Verdict::Allow
        } else {
            self.verdict
        }
    }

    /// Whether `other` allows everything that this cell allows: each packet and, where queries are read, each query.
    fn is_subset_of(&self, other: &Cell) -> bool {
        self.verdict <= other.verdict && self.queries().is_subset_of(&other.queries())
    }

    /// The rules of the queries of this cell, if they were read.
    fn queries(&self) -> DnsRules {
        match &self.redirect {
            Some(rules) => DnsRules::clone(rules),
            None => DnsRules {
                names: BTreeSet::new(),
                default: self.verdict,
            },
        }
    }

    /// A cell that allows no more than both allow.
    fn intersect(&self, other: &Cell) -> Cell {
        let lower = if self.verdict < other.verdict {
            self
        } else {
            other
        };
        let both = [self, other];
        let redirect = if both.iter().any(|cell| cell.redirect.is_some()) {
            let rules = self.queries().intersect(&other.queries());
            let equal = |cell: &&&Cell| cell.redirect.as_deref() == Some(&rules);
            let known = both
                .iter()
                .find(equal)
                .and_then(|cell| cell.redirect.clone());
            known.or_else(|| (!rules.names.is_empty()).then(|| Arc::new(rules)))
        } else {
            None
        };
        Cell {
            redirect,
            ..lower.clone()
        }
    }

    /// Every rule that a packet of this cell counts for.
    pub fn counted_rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        let audit = self.audit.iter().flat_map(|audit| &audit.causes);
        self.causes.iter().chain(audit).copied()
    }

    /// The direction in which a dataplane must report a packet that it allows although it would be denied if
    /// nothing were in audit.
    pub fn audit_report(&self) -> Option<Direction> {
        let audit = self.audit.as_ref()?;
        (self.verdict.passes() && !audit.verdict.passes()).then_some(audit.direction)
    }

    /// The same cell without its causes.
    pub fn without_causes(&self) -> Cell {
        Cell {
            verdict: self.verdict,
            causes: Vec::new(),
            log: self.log,
            audit: self.audit.as_ref().map(|audit| {
                Box::new(AuditCell {
                    causes: Vec::new(),
                    ..**audit
                })
            }),
            redirect: self.redirect.clone(),
        }
    }

    /// The same cell with `f` of each rule number.
    fn map_rules(&self, mut f: impl FnMut(RuleId) -> RuleId) -> Cell {
        let mut map = |causes: &[RuleId]| causes.iter().map(|rule| f(*rule)).collect();
        Cell {
            verdict: self.verdict,
            causes: map(&self.causes),
            log: self.log,
            audit: self.audit.as_ref().map(|audit| {
                Box::new(AuditCell {
                    causes: map(&audit.causes),
                    ..**audit
                })
            }),
            redirect: self.redirect.clone(),
        }
    }
}

/// The cells of one destination port (or ICMP type and code), by source port. Constant unless a rule
/// tests source ports.
pub type SourcePortMap = PortMap<Cell>;

/// A range of at most this many ports is written as single ports by a dataplane in which ranges cost
/// more than single ports, and counts as that many elements.
pub const SHORT_RANGE: u16 = 16;

/// A total function from protocol, ports and ICMP type and code to a [`Cell`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// Sorted, each protocol once.
    protocols: Vec<(Protocol, PortMap<SourcePortMap>)>,
    default: Cell,
}

/// The key of an ICMP type and code in programs: the first two bytes of the message, big-endian.
pub fn icmp_key(kind: u8, code: u8) -> u16 {
    u16::from_be_bytes([kind, code])
}

impl Program {
    /// The same cell for every packet.
    pub fn constant(cell: Cell) -> Self {
        Program {
            protocols: Vec::new(),
            default: cell,
        }
    }

    /// A program from its parts. Protocols whose function equals the default are left out; if a
    /// protocol has several functions, the first is used.
    ///
    /// The argument of a protocol's function is the destination port where the protocol has ports,
    /// [`icmp_key`] for ICMP and ICMPv6, and 0 for the others. Only functions of protocols with ports
    /// may depend on the source port.
    pub fn new(
        protocols: impl IntoIterator<Item = (Protocol, PortMap<SourcePortMap>)>,
        default: Cell,
    ) -> Self {
        let is_default = |map: &PortMap<SourcePortMap>| {
            let values = map.as_constant();
            values.and_then(PortMap::as_constant) == Some(&default)
        };
        let mut protocols: Vec<_> = protocols.into_iter().collect();
        protocols.sort_by_key(|(protocol, _)| *protocol);
        protocols.dedup_by_key(|(protocol, _)| *protocol);
        protocols.retain(|(_, map)| !is_default(map));
        Program { protocols, default }
    }

    /// The protocols that differ from the default, in order.
    pub fn protocols(&self) -> &[(Protocol, PortMap<SourcePortMap>)] {
        &self.protocols
    }

    /// The function of a protocol, where it differs from the default.
    pub fn protocol(&self, protocol: Protocol) -> Option<&PortMap<SourcePortMap>> {
        let index = self.protocols.binary_search_by_key(&protocol, |(p, _)| *p);
        Some(&self.protocols[index.ok()?].1)
    }

    /// The cell of every protocol without a function of its own.
    pub fn default(&self) -> &Cell {
        &self.default
    }

    /// The cell of a packet.
    pub fn cell(&self, protocol: Protocol, l4: L4) -> &Cell {
        let Some(map) = self.protocol(protocol) else {
            return &self.default;
        };
        match l4 {
            L4::Ports {
                source,
                destination,
            } => map.get(destination).get(source),
            L4::Icmp { kind, code } => map.get(icmp_key(kind, code)).default(),
            L4::None => map.get(0).default(),
        }
    }

    /// The program that allows what both allow. The cell is that of `self` where only `self` denies, and
    /// that of `other` elsewhere.
    pub fn intersect(&self, other: &Program) -> Program {
        self.zip(other, Cell::intersect)
    }

    /// The program whose cells are those of `chosen`: `true` for that of `self`.
    pub fn select(
        &self,
        other: &Program,
        mut chosen: impl FnMut(Verdict, Verdict) -> bool,
    ) -> Program {
        self.zip(other, |mine, theirs| {
            if chosen(mine.verdict, theirs.verdict) {
                mine.clone()
            } else {
                theirs.clone()
            }
        })
    }

    /// Whether `other` allows everything that this program allows.
    pub fn is_subset_of(&self, other: &Program) -> bool {
        let holds = Cell::is_subset_of;
        let mine = PortMap::constant(PortMap::constant(self.default.clone()));
        let theirs = PortMap::constant(PortMap::constant(other.default.clone()));
        let listed = self.protocols.iter().map(|(protocol, map)| {
            let their_map = other.protocol(*protocol).unwrap_or(&theirs);
            (map, their_map)
        });
        let others = other.protocols.iter();
        let others = others.filter(|(protocol, _)| self.protocol(*protocol).is_none());
        let mut listed = listed.chain(others.map(|(_, map)| (&mine, map)));
        holds(&self.default, &other.default)
            && listed.all(|(a, b)| a.all_zipped(b, |x, y| x.all_zipped(y, holds)))
    }

    /// The program that applies `f` to the cells of both.
    fn zip(&self, other: &Program, mut f: impl FnMut(&Cell, &Cell) -> Cell) -> Program {
        let default = f(&self.default, &other.default);
        let mine = PortMap::constant(PortMap::constant(self.default.clone()));
        let theirs = PortMap::constant(PortMap::constant(other.default.clone()));
        let mut protocols = Vec::new();
        for (protocol, a) in &self.protocols {
            let b = other.protocol(*protocol).unwrap_or(&theirs);
            protocols.push((*protocol, a.zip(b, |x, y| x.zip(y, &mut f))));
        }
        for (protocol, b) in &other.protocols {
            if self.protocol(*protocol).is_none() {
                protocols.push((*protocol, mine.zip(b, |x, y| x.zip(y, &mut f))));
            }
        }
        Program::new(protocols, default)
    }

    /// The maximum number of elements that a dataplane needs for the program: one for the default, each
    /// protocol that differs from it, each port (a range of at most [`SHORT_RANGE`] ports counts port
    /// by port) and each longer range; tests of source ports and ICMP messages count several times.
    pub fn element_count(&self) -> usize {
        let mut elements = 1;
        self.for_each_element(|_, many| elements += many);
        elements
    }

    /// Calls `each` with the cells other than the program's default, and with the number of elements of
    /// [`Program::element_count`] that hold the cell.
    pub fn for_each_element<'a>(&'a self, each: impl FnMut(&'a Cell, usize)) {
        self.for_each_element_over(None, each);
    }

    /// Like [`Program::for_each_element`], for a program that is written as its difference from `base`,
    /// which it [refines](Program::refines): only elements outside the base are counted.
    pub fn for_each_element_over<'a>(
        &'a self,
        base: Option<&Program>,
        mut each: impl FnMut(&'a Cell, usize),
    ) {
        let mut values = |values: &'a SourcePortMap, weight: usize| {
            // A test of source ports is written once for each direction of the flow.
            let tests = values.entries().iter();
            tests.for_each(|(_, cell)| each(cell, 2 * weight));
            each(
                values.default(),
                weight * (1 + 2 * values.entries().len().min(1)),
            );
        };
        for (protocol, map) in &self.protocols {
            let mut entry = |range: PortRange, values_of_range| {
                let size = u32::from(range.last) - u32::from(range.first) + 1;
                let weight = match () {
                    () if protocol.is_icmp() => 3,
                    () if size <= u32::from(SHORT_RANGE) => size as usize,
                    () => 1,
                };
                values(values_of_range, weight);
            };
            match base.and_then(|base| base.protocol(*protocol)) {
                Some(shared) => {
                    let own = map.entries_outside(shared).into_iter();
                    own.for_each(|(range, values_of_range)| entry(range, values_of_range));
                }
                None => map
                    .entries()
                    .iter()
                    .for_each(|(range, values_of_range)| entry(*range, values_of_range)),
            }
            if base.is_none() {
                values(map.default(), 1);
            }
        }
    }

    /// Calls `each` with every cell, the default first.
    pub fn for_each_cell<'a>(&'a self, mut each: impl FnMut(&'a Cell)) {
        each(&self.default);
        for (_, map) in &self.protocols {
            for values in map.entries().iter().map(|(_, v)| v).chain([map.default()]) {
                values.entries().iter().for_each(|(_, cell)| each(cell));
                each(values.default());
            }
        }
    }

    /// This program, with what `audit` decides as [`Cell::audit`]. `audit_rule` gives the number of the audit
    /// cause of one of the rules of `audit`, for the verdict of its cell.
    pub fn with_audit(
        &self,
        audit: &Program,
        direction: Direction,
        mut audit_rule: impl FnMut(RuleId, Verdict) -> RuleId,
    ) -> Program {
        self.zip(audit, |enforced, audit| Cell {
            audit: Some(Box::new(AuditCell {
                direction,
                verdict: audit.unread_verdict(),
                causes: audit
                    .causes
                    .iter()
                    .map(|hit| audit_rule(*hit, audit.unread_verdict()))
                    .collect(),
            })),
            ..enforced.clone()
        })
    }

    /// This program, with what `redirects` redirects as [`Cell::redirect`].
    #[must_use]
    pub fn with_redirects(&self, redirects: &Program) -> Program {
        self.zip(redirects, |cell, redirect| Cell {
            redirect: redirect.redirect.clone(),
            ..cell.clone()
        })
    }

    /// This program, with a redirect without names wherever it allows packets of these protocols to these destination
    /// ports and rules do not decide by name. No verdict changes: queries for every name are allowed.
    #[must_use]
    pub fn with_observed_dns(&self, protocols: &[Protocol], ports: PortRange) -> Program {
        let redirect = Arc::new(DnsRules {
            names: BTreeSet::new(),
            default: Verdict::Allow,
        });
        let before = ports.first.checked_sub(1).map(|end| (end, false));
        let segments = before
            .into_iter()
            .chain([(ports.last, true), (u16::MAX, false)]);
        let is_observed =
            PortMap::from_segments(segments).unwrap_or_else(|| PortMap::constant(false));
        let whole = PortMap::constant(PortMap::constant(self.default.clone()));
        let observe = |cell: &Cell| Cell {
            redirect: match &cell.redirect {
                None if cell.verdict == Verdict::Allow => Some(redirect.clone()),
                other => other.clone(),
            },
            ..cell.clone()
        };
        let mut maps: Vec<_> = protocols
            .iter()
            .map(|protocol| {
                let map = self.protocol(*protocol).unwrap_or(&whole);
                let map = map.zip(&is_observed, |values, observed| {
                    if *observed {
                        values.map(observe)
                    } else {
                        values.clone()
                    }
                });
                (*protocol, map)
            })
            .collect();
        let others = self.protocols.iter();
        let others = others.filter(|(protocol, _)| !protocols.contains(protocol));
        maps.extend(others.cloned());
        Program::new(maps, self.default.clone())
    }

    /// This program, which allows packets whose queries rules decide by name where nobody reads them. The verdicts of
    /// queries are the same.
    #[must_use]
    pub fn with_unread_dns_allowed(&self) -> Program {
        self.zip(self, |cell, _| Cell {
            verdict: cell.unread_verdict(),
            ..cell.clone()
        })
    }

    /// Whether it redirects any packet.
    pub fn has_redirects(&self) -> bool {
        let mut found = false;
        self.for_each_cell(|cell| found |= cell.redirect.is_some());
        found
    }

    /// The same program with `rules[n]` for each rule number `n`. No rule is in the list twice, and the
    /// program has no audit.
    ///
    /// Returns `None` if the program has a number beyond the list.
    pub fn with_rules(&self, rules: &[RuleId]) -> Option<Program> {
        let mut complete = true;
        let mut cell = |cell: &Cell| {
            let rule = |hit: &RuleId| usize::try_from(hit.0).ok().and_then(|at| rules.get(at));
            let causes: Vec<RuleId> = cell.causes.iter().filter_map(rule).copied().collect();
            complete &= causes.len() == cell.causes.len();
            Cell {
                verdict: cell.verdict,
                causes,
                log: cell.log,
                audit: None,
                redirect: cell.redirect.clone(),
            }
        };
        let default = cell(&self.default);
        let protocols = self.protocols.iter().map(|(protocol, map)| {
            let map = map.map_injective(|values| values.map_injective(&mut cell));
            (*protocol, map)
        });
        let protocols = protocols.collect();
        complete.then_some(Program { protocols, default })
    }

    /// The same program with renumbered rules.
    pub fn renumber_rules(&self, mut name: impl FnMut(RuleId) -> RuleId) -> Program {
        let mut cell = |cell: &Cell| cell.map_rules(&mut name);
        let default = cell(&self.default);
        let protocols = self
            .protocols
            .iter()
            .map(|(protocol, map)| (*protocol, map.map(|values| values.map(&mut cell))));
        Program::new(protocols, default)
    }
}
