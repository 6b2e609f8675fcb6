//! What manifests put in force, read once and decided as the product does.

use palisade_dialects::lower_object;
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, Diagnostic, EffectiveObjects, ElementBudget,
    ObjectOrigin, SourceDelta,
};
use palisade_manifest::RawObject;
use palisade_model::State;
use std::sync::Arc;

/// The state of these objects, and all errors and warnings.
pub fn effective_state(objects: &[RawObject]) -> (State, Vec<Diagnostic>) {
    let mut effective = EffectiveObjects::new(
        ["manifests".into()],
        ElementBudget::default(),
        BudgetUse::Advisory,
    );
    let mut delta = SourceDelta::default();
    let mut diagnostics = Vec::new();
    for raw in objects {
        let mut lowered = lower_object(raw);
        if lowered.ignored.is_none() {
            let origin = ObjectOrigin::File {
                path: lowered.location.file.clone(),
                location: lowered.location.clone(),
            };
            let id = Arc::new(lowered.id.clone());
            let definition = Definition::new(id, raw, &mut lowered, origin);
            delta.changes.push(DefinitionChange::Upsert(definition));
        }
        diagnostics.extend(Diagnostic::take_from(&mut lowered));
    }
    let mut state = State::default();
    effective.apply(0, delta, 0, &mut |update| state.apply(update));
    diagnostics.extend(effective.diagnostics());
    (state, diagnostics)
}
