//! The states that the tables have while a delta is written, for a given unit of atomicity.
//!
//! It applies changes and judges nothing.

use palisade_tables::{
    Atomicity, Delta, DeltaStep, Phase, Point, PointInterface, TableChange, Tables,
};
use std::net::IpAddr;

/// The states of the tables, from the old to the new.
pub(crate) struct IntermediateStates {
    /// The old tables, and the tables after each write.
    pub(crate) tables: Vec<Tables>,
    /// The change of each write, from the second state on; `None` if it has several changes or none.
    changes: Vec<Option<TableChange>>,
    /// The phase of each write.
    pub(crate) phases: Vec<Phase>,
    /// The index of the state after each step. Between two steps no packet is in flight.
    pub(crate) step_ends: Vec<usize>,
}

impl IntermediateStates {
    /// The states of a delta, whose every step is waited for.
    ///
    /// # Errors
    /// If an entry of a state refers to an entry that does not exist: the step, and the reference.
    pub(crate) fn new(
        old: &Tables,
        delta: &Delta,
        atomicity: Atomicity,
    ) -> Result<Self, (usize, String)> {
        let mut states = IntermediateStates {
            tables: vec![old.clone()],
            changes: vec![None],
            phases: Vec::new(),
            step_ends: Vec::new(),
        };
        for (step, DeltaStep { phase, changes }) in delta.steps.iter().enumerate() {
            let unit = match atomicity {
                Atomicity::Step => changes.len().max(1),
                Atomicity::Entry => 1,
            };
            let mut writes: Vec<&[TableChange]> = changes.chunks(unit).collect();
            if writes.is_empty() {
                writes.push(&[]);
            }
            for write in writes {
                states.push(step, *phase, write)?;
            }
            states.step_ends.push(states.tables.len() - 1);
        }
        Ok(states)
    }

    fn push(
        &mut self,
        step: usize,
        phase: Phase,
        changes: &[TableChange],
    ) -> Result<(), (usize, String)> {
        let mut tables = self.last().clone();
        changes.iter().for_each(|change| tables.apply(change));
        if let Some(reference) = find_dangling_reference(&tables) {
            return Err((step, reference));
        }
        self.tables.push(tables);
        self.changes.push(match changes {
            [change] => Some(change.clone()),
            _ => None,
        });
        self.phases.push(phase);
        Ok(())
    }

    /// The tables after the last write.
    pub(crate) fn last(&self) -> &Tables {
        &self.tables[self.tables.len() - 1]
    }

    /// Whether a packet of a point may have another outcome in a state than in the one before it.
    pub(crate) fn may_matter(&self, state: usize, point: &Point, peer: IpAddr) -> bool {
        match &self.changes[state] {
            Some(TableChange::Interface(name, _)) => point
                .workload()
                .or(point.hairpin())
                .is_some_and(|(interface, _)| interface == name),
            Some(TableChange::HostInterface(name, _)) => {
                point.interface == PointInterface::Host(name.clone())
            }
            Some(TableChange::Point(changed, _)) => {
                if !point.is_host() {
                    changed == point
                } else {
                    changed.is_host() && changed.local.contains(point.local.address())
                }
            }
            Some(TableChange::Address(prefix, _)) => prefix.contains(peer),
            Some(TableChange::Rule(..)) => false,
            Some(TableChange::Set(..) | TableChange::Class(..) | TableChange::Program(..))
            | None => true,
        }
    }
}

/// The delta with every step that is not waited for made part of the next.
pub(crate) fn merge_unwaited_steps(old: &Tables, delta: &Delta) -> Delta {
    let mut now = old.clone();
    let mut steps: Vec<DeltaStep> = Vec::new();
    let mut unwaited: Vec<TableChange> = Vec::new();
    for (at, step) in delta.steps.iter().enumerate() {
        let waits = delta.needs_grace_period_after(at, &now);
        step.changes.iter().for_each(|change| now.apply(change));
        unwaited.extend(step.changes.iter().cloned());
        if waits {
            steps.push(DeltaStep {
                phase: step.phase,
                changes: std::mem::take(&mut unwaited),
            });
        }
    }
    Delta {
        revision: delta.revision,
        steps,
    }
}

/// A reference to an entry that does not exist.
fn find_dangling_reference(tables: &Tables) -> Option<String> {
    for (point, set) in &tables.points {
        if !tables.sets.contains_key(set) {
            return Some(format!("{point:?} has {set}, which is not there"));
        }
    }
    let defaults = tables.sets.iter().map(|(set, of)| (set, &of.default));
    let entries = tables.classes.iter().map(|((set, _), class)| (set, class));
    for (set, class) in defaults.chain(entries) {
        if !tables.sets.contains_key(set) || !tables.programs.contains_key(class) {
            return Some(format!("{set} or {class} is not there"));
        }
    }
    for (class, program) in &tables.programs {
        let mut missing = None;
        program.for_each_cell(|cell| {
            let gone = cell
                .counted_rules()
                .find(|hit| !tables.rules.contains_key(hit));
            missing = missing.or(gone);
        });
        if let Some(rule) = missing {
            return Some(format!("{class} names {rule}, which is not there"));
        }
    }
    None
}
