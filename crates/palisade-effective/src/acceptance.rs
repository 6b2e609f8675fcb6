//! Which policies are not enforced exactly as written, why, and what is in force instead.
//!
//! Promises: every policy that was read is either in force as written or in this report, also one of which nothing
//! is in force; the work of a change is that of the objects it concerns; nothing depends on how many problems the
//! input has. Never: says whether the kernel has a policy.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::effective_object::{ObjectEntry, StoredEntry};
use crate::objects::{BudgetUse, EffectiveObjects};
use crate::version_choice::ValidVersion;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_dialects::{
    ClosedPart, LoweredObject, MAX_PROBLEMS_PER_OBJECT, duplicate_definition, is_policy_kind,
};
use palisade_manifest::Problem;
use palisade_model::ObjectId;

/// The maximum number of errors that are kept of one policy; the others are counted.
const MAX_ERRORS: usize = 20;

/// The parts of a policy that are held closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedParts {
    /// The first hundred, in the order of reading.
    pub parts: Vec<ClosedPart>,
    /// The number of the others.
    pub more: usize,
}

impl ClosedParts {
    /// Those of a lowered object; `None` if there are none.
    pub(crate) fn of(lowered: &LoweredObject) -> Option<Arc<Self>> {
        (!lowered.closed.is_empty()).then(|| {
            Arc::new(ClosedParts {
                parts: lowered.closed.clone(),
                more: lowered.more_closed,
            })
        })
    }
}

/// The errors of a definition of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DefinitionErrors {
    listed: Vec<Problem>,
    more: usize,
}

impl DefinitionErrors {
    /// The errors of a lowered object.
    pub(crate) fn of(lowered: &LoweredObject) -> Self {
        let omitted = lowered.omitted.iter().filter(|omitted| omitted.is_error);
        let omitted: usize = omitted.map(|omitted| omitted.count).sum();
        let listed: Vec<Problem> = lowered.errors.iter().take(MAX_ERRORS).cloned().collect();
        DefinitionErrors {
            more: omitted + lowered.errors.len() - listed.len(),
            listed,
        }
    }
}

/// What is in force of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedVersion {
    /// Its present definition.
    Present,
    /// An earlier version, or one of several definitions.
    LastValid(ValidVersion),
    /// Nothing of it: the pods that it selects are isolated.
    Isolation,
    /// Nothing.
    Nothing,
}

/// A policy that is not enforced exactly as written.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyAcceptance {
    /// The policy.
    pub id: SharedId,
    /// What is in force.
    pub enforced: EnforcedVersion,
    /// Where its present definition was read, or the version in force if there is no definition.
    pub origin: Option<ObjectOrigin>,
    /// Why its present definition is not in force.
    pub errors: Vec<Problem>,
    /// The number of further errors.
    pub more_errors: usize,
    /// The parts of the version in force that are held closed.
    pub closed: Option<Arc<ClosedParts>>,
}

impl EffectiveObjects {
    /// Whether the policy of an entry is to be reported. To be called after what is in force was decided.
    pub(crate) fn deviates(id: &ObjectId, entry: &ObjectEntry, is_retained: bool) -> bool {
        if !is_policy_kind(&id.kind) {
            return false;
        }
        match &entry.effective {
            None => !entry.definitions.is_empty(),
            Some(effective) => {
                is_retained || effective.version.is_none() || effective.closed.is_some()
            }
        }
    }

    /// The policies that are not enforced exactly as written, by name.
    pub fn deviating_policies(&self) -> Vec<PolicyAcceptance> {
        let entry = |id: &SharedId| self.objects.get(id).and_then(StoredEntry::full);
        let of = self.deviating.iter();
        of.filter_map(|id| Some(self.acceptance(id, entry(id)?)))
            .collect()
    }

    fn acceptance(&self, id: &SharedId, entry: &ObjectEntry) -> PolicyAcceptance {
        let effective = entry.effective.as_ref();
        let enforced = match effective.map(|effective| effective.version) {
            None => EnforcedVersion::Nothing,
            Some(None) => EnforcedVersion::Isolation,
            Some(Some(version)) if self.retained.contains(id) => {
                EnforcedVersion::LastValid(version)
            }
            Some(Some(_)) => EnforcedVersion::Present,
        };
        let first = entry.first();
        let mut errors = first.map_or_else(Default::default, |first| self.errors_of(first));
        let others = entry.definitions.iter().skip(1);
        let room = MAX_PROBLEMS_PER_OBJECT.saturating_sub(errors.listed.len());
        if let Some(first) = first {
            errors.more += others.len().saturating_sub(room);
            errors.listed.extend(others.take(room).map(|(_, other)| {
                duplicate_definition(id, other.origin.location(), &first.origin)
            }));
        }
        let origin = match (first, effective) {
            (Some(first), _) => Some(&first.origin),
            (None, effective) => effective.map(|effective| &effective.origin),
        };
        let is_missing = first.is_none() && enforced != EnforcedVersion::Present;
        if let (true, Some(origin)) = (is_missing, origin) {
            errors.listed.push(Problem {
                location: origin.location().clone(),
                object: Some(id.to_string()),
                field: String::new(),
                reason: "its definition cannot be found or read".to_owned(),
            });
        }
        PolicyAcceptance {
            id: id.clone(),
            enforced,
            origin: origin.cloned(),
            errors: errors.listed,
            more_errors: errors.more,
            closed: effective.and_then(|effective| effective.closed.clone()),
        }
    }

    /// Why a definition is not accepted.
    fn errors_of(&self, definition: &Definition) -> DefinitionErrors {
        let mut errors = definition.errors.as_deref().cloned().unwrap_or_default();
        if self.budget_use == BudgetUse::Enforced
            && let Some(bound) = self.exceeded_limit(definition)
            && let Some(cost) = definition.cost.as_deref()
        {
            let place = (&*definition.id, definition.origin.location());
            let over = cost.oversized_policy(place, bound, self.costs.budget());
            errors.listed.push(over.problem(""));
        }
        errors
    }
}
