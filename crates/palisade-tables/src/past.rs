//! The tables as they were some flushes ago, without a copy of them: what each flush replaced, laid
//! over what is there now.
//!
//! Promises: a judgement in the past is the one that was made then. Costs what the flushes changed.

use crate::judge::{View, judge_in};
use crate::{Change, ClassId, Credit, Delta, IdentityId, Judged, Packet, Point, PolicySet};
use crate::{Program, RuleId, SetId, Tables};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use palisade_model::{Direction, Prefix, Str};

/// What one delta replaced: the value that each entry it names had before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undo {
    interfaces: BTreeMap<Str, bool>,
    addresses: BTreeMap<Prefix, Option<IdentityId>>,
    points: BTreeMap<Point, Option<SetId>>,
    sets: BTreeMap<SetId, Option<PolicySet>>,
    classes: BTreeMap<(SetId, IdentityId), Option<ClassId>>,
    programs: BTreeMap<ClassId, Option<Arc<Program>>>,
    rules: BTreeMap<RuleId, Option<Arc<Credit>>>,
}

impl Undo {
    /// What `delta` replaces in `before`, the tables that it has not been applied to.
    pub fn new(delta: &Delta, before: &Tables) -> Self {
        let mut undo = Undo::default();
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            match change {
                Change::Interface(name, _) => {
                    let was = before.interfaces.contains(name);
                    undo.interfaces.insert(name.clone(), was);
                }
                Change::Address(prefix, _) => {
                    let was = before.addresses.get(prefix).copied();
                    undo.addresses.insert(*prefix, was);
                }
                Change::Point(point, _) => {
                    let was = before.points.get(point).copied();
                    undo.points.insert(point.clone(), was);
                }
                Change::Set(id, _) => {
                    undo.sets.insert(*id, before.sets.get(id).copied());
                }
                Change::Class(set, id, _) => {
                    let row = (*set, *id);
                    undo.classes.insert(row, before.classes.get(&row).copied());
                }
                Change::Program(id, _) => {
                    undo.programs.insert(*id, before.programs.get(id).cloned());
                }
                Change::Rule(id, _) => {
                    undo.rules.insert(*id, before.rules.get(id).cloned());
                }
            }
        }
        undo
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.interfaces.len()
            + self.addresses.len()
            + self.points.len()
            + self.sets.len()
            + self.classes.len()
            + self.programs.len()
            + self.rules.len()
    }

    /// Whether the delta changed nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The tables before some deltas.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    now: &'a Tables,
    /// Oldest first: the first that knows an entry says what it was.
    undone: alloc::vec::Vec<&'a Undo>,
}

impl<'a> Past<'a> {
    /// The tables before each of `undone` was made, the oldest first, up to `now`.
    pub fn new(now: &'a Tables, undone: impl IntoIterator<Item = &'a Undo>) -> Self {
        let undone = undone.into_iter().collect();
        Past { now, undone }
    }

    fn was<T>(&self, find: impl Fn(&'a Undo) -> Option<T>) -> Option<T> {
        self.undone.iter().find_map(|undo| find(undo))
    }

    /// How one direction judged a packet; see [`Tables::judge_direction`].
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> Judged<'_> {
        judge_in(self, packet, direction)
    }

    /// What a rule number stood for.
    pub fn rule(&self, rule: RuleId) -> Option<&Arc<Credit>> {
        match self.was(|undo| undo.rules.get(&rule)) {
            Some(was) => was.as_ref(),
            None => self.now.rules.get(&rule),
        }
    }
}

impl View for Past<'_> {
    fn judges_host_traffic(&self) -> bool {
        self.now.judge_host_traffic
    }

    fn is_ours(&self, interface: &Str) -> bool {
        self.was(|undo| undo.interfaces.get(interface).copied())
            .unwrap_or_else(|| self.now.interfaces.contains(interface))
    }

    fn identity_of(&self, prefix: &Prefix) -> Option<IdentityId> {
        self.was(|undo| undo.addresses.get(prefix).copied())
            .unwrap_or_else(|| self.now.addresses.get(prefix).copied())
    }

    fn set_at(&self, point: &Point) -> Option<SetId> {
        self.was(|undo| undo.points.get(point).copied())
            .unwrap_or_else(|| self.now.points.get(point).copied())
    }

    fn default_of(&self, set: SetId) -> Option<ClassId> {
        self.was(|undo| undo.sets.get(&set).copied())
            .unwrap_or_else(|| self.now.sets.get(&set).copied())
            .map(|set| set.default)
    }

    fn row(&self, set: SetId, identity: IdentityId) -> Option<ClassId> {
        let row = (set, identity);
        self.was(|undo| undo.classes.get(&row).copied())
            .unwrap_or_else(|| self.now.classes.get(&row).copied())
    }

    fn program(&self, class: ClassId) -> Option<&Program> {
        match self.was(|undo| undo.programs.get(&class)) {
            Some(was) => was.as_deref(),
            None => self.now.programs.get(&class).map(|program| &**program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Phase, Step, Verdict};
    use alloc::vec;
    use alloc::vec::Vec;
    use palisade_model::{L4, Protocol};

    fn program(verdict: Verdict, rule: u32) -> Arc<Program> {
        Arc::new(Program::constant(Cell {
            verdict,
            hits: vec![RuleId(rule)],
            log: None,
        }))
    }

    fn delta(changes: Vec<Change>) -> Delta {
        let step = Step {
            phase: Phase::Split,
            changes,
        };
        Delta {
            revision: 1,
            steps: vec![step],
        }
    }

    #[test]
    fn each_state_judges_as_it_did() {
        let point = Point {
            interface: "pal0".into(),
            address: [10, 0, 0, 1].into(),
            direction: Direction::Egress,
        };
        let packet = Packet {
            from: Some("pal0".into()),
            to: None,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: 1,
                destination: 2,
            },
        };
        let (set, peer) = (SetId(1), IdentityId(1));
        let host = Prefix::host(packet.destination);
        let deltas = [
            delta(vec![
                Change::Program(ClassId(1), Some(program(Verdict::Deny, 1))),
                Change::Set(
                    set,
                    Some(PolicySet {
                        default: ClassId(1),
                    }),
                ),
                Change::Interface("pal0".into(), true),
                Change::Point(point.clone(), Some(set)),
            ]),
            delta(vec![
                Change::Program(ClassId(2), Some(program(Verdict::Allow, 2))),
                Change::Class(set, peer, Some(ClassId(2))),
                Change::Address(host, Some(peer)),
            ]),
            delta(vec![
                Change::Class(set, peer, None),
                Change::Address(host, None),
                Change::Program(ClassId(2), None),
            ]),
            delta(vec![Change::Interface("pal0".into(), false)]),
        ];
        let mut tables = Tables::default();
        let mut states = vec![tables.clone()];
        let mut undone = Vec::new();
        for delta in &deltas {
            undone.push(Undo::new(delta, &tables));
            delta.apply_to(&mut tables);
            states.push(tables.clone());
        }
        let mut seen = Vec::new();
        for (at, state) in states.iter().enumerate() {
            let past = Past::new(&tables, &undone[at..]);
            let judged = past.judge_direction(&packet, Direction::Egress);
            assert_eq!(judged, state.judge_direction(&packet, Direction::Egress));
            seen.push(judged.verdict());
        }
        use Verdict::{Allow, Deny};
        assert_eq!(seen, [Allow, Deny, Allow, Deny, Allow]);
    }
}
