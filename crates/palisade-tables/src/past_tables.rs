//! The tables before recent flushes, without a copy: the values that each flush replaced, looked up
//! before the current tables.
//!
//! Promises: evaluating a packet in past tables gives the verdict of that time. The cost is
//! proportional to what the flushes changed.

use crate::judge::{TableLookup, has_points, judge_host_packet, judge_host_stage, judge_packet};
use crate::{
    ClassId, Delta, DirectionVerdict, IdentityId, JudgementOptions, Packet, Point, PolicySet,
    TableChange, VerdictCause,
};
use crate::{PolicySetId, Program, RuleId, Tables};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use palisade_model::{Direction, PolicyStage, Prefix, PrefixMap, Str};

/// The undo record of one delta: the previous value of each entry that it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoRecord {
    interfaces: BTreeMap<Str, bool>,
    host_interfaces: BTreeMap<Str, bool>,
    addresses: PrefixMap<Option<IdentityId>>,
    points: BTreeMap<Point, Option<PolicySetId>>,
    sets: BTreeMap<PolicySetId, Option<PolicySet>>,
    classes: BTreeMap<(PolicySetId, IdentityId), Option<ClassId>>,
    programs: BTreeMap<ClassId, Option<Arc<Program>>>,
    rules: BTreeMap<RuleId, Option<Arc<VerdictCause>>>,
}

impl UndoRecord {
    /// Records what `delta` replaces in `before`, the tables to which it has not been applied yet.
    pub fn new(delta: &Delta, before: &Tables) -> Self {
        let mut undo = UndoRecord::default();
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            match change {
                TableChange::Interface(name, _) => {
                    let previous = before.interfaces.contains(name);
                    undo.interfaces.insert(name.clone(), previous);
                }
                TableChange::HostInterface(name, _) => {
                    let previous = before.host_interfaces.contains(name);
                    undo.host_interfaces.insert(name.clone(), previous);
                }
                TableChange::Address(prefix, _) => {
                    let previous = before.addresses.get(prefix).copied();
                    undo.addresses.insert(*prefix, previous);
                }
                TableChange::Point(point, _) => {
                    let previous = before.points.get(point).copied();
                    undo.points.insert(point.clone(), previous);
                }
                TableChange::Set(id, _) => {
                    undo.sets.insert(*id, before.sets.get(id).copied());
                }
                TableChange::Class(set, id, _) => {
                    let row = (*set, *id);
                    undo.classes.insert(row, before.classes.get(&row).copied());
                }
                TableChange::Program(id, _) => {
                    undo.programs.insert(*id, before.programs.get(id).cloned());
                }
                TableChange::Rule(id, _) => {
                    undo.rules.insert(*id, before.rules.get(id).cloned());
                }
            }
        }
        undo
    }

    /// The number of recorded entries.
    pub fn len(&self) -> usize {
        self.interfaces.len()
            + self.host_interfaces.len()
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
pub struct PastTables<'a> {
    current: &'a Tables,
    /// Oldest first. The first record with an entry has the entry's past value.
    undo_records: alloc::vec::Vec<&'a UndoRecord>,
}

impl<'a> PastTables<'a> {
    /// The tables before the deltas of `undo_records` (oldest first), the last of which led to `current`.
    pub fn new(
        current: &'a Tables,
        undo_records: impl IntoIterator<Item = &'a UndoRecord>,
    ) -> Self {
        let undone = undo_records.into_iter().collect();
        PastTables {
            current,
            undo_records: undone,
        }
    }

    fn find_previous<T>(&self, find: impl Fn(&'a UndoRecord) -> Option<T>) -> Option<T> {
        self.undo_records.iter().find_map(|undo| find(undo))
    }

    /// How one direction judged a packet at that time; see [`Tables::judge_direction`].
    pub fn judge_direction(&self, packet: &Packet, direction: Direction) -> DirectionVerdict<'_> {
        judge_packet(self, packet, direction)
    }

    /// How this host judged a packet at that time; see [`Tables::judge_host`].
    pub fn judge_host(&self, packet: &Packet, direction: Direction) -> DirectionVerdict<'_> {
        judge_host_packet(self, packet, direction, PolicyStage::Untracked)
    }

    /// How this host judged a packet at a stage at that time; see [`Tables::judge_host_stage`].
    pub fn judge_host_stage(
        &self,
        packet: &Packet,
        direction: Direction,
        stage: PolicyStage,
    ) -> DirectionVerdict<'_> {
        judge_host_stage(self, packet, direction, stage)
    }

    /// The cause of a rule number at that time.
    pub fn rule(&self, rule: RuleId) -> Option<&Arc<VerdictCause>> {
        match self.find_previous(|undo| undo.rules.get(&rule)) {
            Some(was) => was.as_ref(),
            None => self.current.rules.get(&rule),
        }
    }
}

impl TableLookup for PastTables<'_> {
    fn judgement(&self) -> &JudgementOptions {
        &self.current.judgement
    }

    fn is_managed(&self, interface: &Str) -> bool {
        self.find_previous(|undo| undo.interfaces.get(interface).copied())
            .unwrap_or_else(|| self.current.interfaces.contains(interface))
    }

    fn has_host_points(&self, interface: &Str) -> bool {
        self.find_previous(|undo| undo.host_interfaces.get(interface).copied())
            .unwrap_or_else(|| self.current.host_interfaces.contains(interface))
    }

    fn prefix_identity(&self, prefix: &Prefix) -> Option<IdentityId> {
        self.find_previous(|undo| undo.addresses.get(prefix).copied())
            .unwrap_or_else(|| self.current.addresses.get(prefix).copied())
    }

    fn point_set(&self, point: &Point) -> Option<PolicySetId> {
        self.find_previous(|undo| undo.points.get(point).copied())
            .unwrap_or_else(|| self.current.points.get(point).copied())
    }

    fn may_have_points(&self, example: &Point) -> bool {
        let mut records = self.undo_records.iter();
        records.any(|undo| has_points(&undo.points, example))
            || self.current.may_have_points(example)
    }

    fn default_class(&self, set: PolicySetId) -> Option<ClassId> {
        self.find_previous(|undo| undo.sets.get(&set).copied())
            .unwrap_or_else(|| self.current.sets.get(&set).copied())
            .map(|set| set.default)
    }

    fn class_entry(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId> {
        let row = (set, identity);
        self.find_previous(|undo| undo.classes.get(&row).copied())
            .unwrap_or_else(|| self.current.classes.get(&row).copied())
    }

    fn program(&self, class: ClassId) -> Option<&Program> {
        match self.find_previous(|undo| undo.programs.get(&class)) {
            Some(was) => was.as_deref(),
            None => self.current.programs.get(&class).map(|program| &**program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, DeltaStep, Phase, Verdict};
    use alloc::vec;
    use alloc::vec::Vec;
    use palisade_model::{L4, Protocol};

    fn program(verdict: Verdict, rule: u32) -> Arc<Program> {
        Arc::new(Program::constant(Cell {
            verdict,
            causes: vec![RuleId(rule)],
            log: None,
            audit: None,
            redirect: None,
        }))
    }

    fn delta(changes: Vec<TableChange>) -> Delta {
        let step = DeltaStep {
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
        let point = Point::of_workload("pal0".into(), [10, 0, 0, 1].into(), Direction::Egress);
        let packet = Packet {
            input_interface: Some("pal0".into()),
            output_interface: None,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: Protocol::TCP,
            l4: L4::Ports {
                source: 1,
                destination: 2,
            },
            pre_dnat: None,
        };
        let (set, peer) = (PolicySetId(1), IdentityId(1));
        let host = Prefix::host(packet.destination);
        let deltas = [
            delta(vec![
                TableChange::Program(ClassId(1), Some(program(Verdict::Deny, 1))),
                TableChange::Set(
                    set,
                    Some(PolicySet {
                        default: ClassId(1),
                    }),
                ),
                TableChange::Interface("pal0".into(), true),
                TableChange::Point(point.clone(), Some(set)),
            ]),
            delta(vec![
                TableChange::Program(ClassId(2), Some(program(Verdict::Allow, 2))),
                TableChange::Class(set, peer, Some(ClassId(2))),
                TableChange::Address(host, Some(peer)),
            ]),
            delta(vec![
                TableChange::Class(set, peer, None),
                TableChange::Address(host, None),
                TableChange::Program(ClassId(2), None),
            ]),
            delta(vec![TableChange::Interface("pal0".into(), false)]),
        ];
        let mut tables = Tables::default();
        let mut states = vec![tables.clone()];
        let mut undone = Vec::new();
        for delta in &deltas {
            undone.push(UndoRecord::new(delta, &tables));
            delta.apply_to(&mut tables);
            states.push(tables.clone());
        }
        let mut seen = Vec::new();
        for (at, state) in states.iter().enumerate() {
            let past = PastTables::new(&tables, &undone[at..]);
            let judged = past.judge_direction(&packet, Direction::Egress);
            assert_eq!(judged, state.judge_direction(&packet, Direction::Egress));
            seen.push(judged.verdict());
        }
        use Verdict::{Allow, Deny};
        assert_eq!(seen, [Allow, Deny, Allow, Deny, Allow]);
    }
}
