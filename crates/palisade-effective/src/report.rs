//! The report on what is in force: problems, retained objects, policies over budget.

use crate::SharedId;
use crate::acceptance::{EnforcedVersion, PolicyAcceptance};
use crate::definition::Definition;
use crate::definition_problems::DefinitionErrors;
use crate::diagnostic::{Diagnostic, DiagnosticCollector};
use crate::effective_object::{ObjectEntry, StoredEntry};
use crate::objects::{BudgetUse, EffectiveObjects};
use crate::policy_cost::OversizedPolicy;
use crate::source::SourceState;
use crate::version_choice::ValidVersion;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use palisade_dialects::{
    MAX_PROBLEMS_PER_OBJECT, OmittedCounts, count_ignored, duplicate_definition,
    omitted_definitions,
};
use palisade_manifest::Problem;
use palisade_model::ObjectId;

/// The state of all input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EffectiveReport {
    /// The number of files (or other units) read.
    pub files: usize,
    /// The number of objects in force.
    pub objects: usize,
    /// Errors and warnings, by location.
    pub problems: Vec<Diagnostic>,
    /// Objects that have an earlier version, or an isolation policy, in force.
    pub retained: Vec<RetainedObject>,
    /// Policies that are not enforced exactly as written, by name.
    pub policies: Vec<PolicyAcceptance>,
    /// Policies over their element budget: their last valid version stays in force.
    pub over_budget: Vec<OversizedPolicy>,
    /// The number of ignored objects of other kinds, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
    /// The sources, in the order of precedence.
    pub sources: Vec<SourceState>,
}

/// An object whose version in force is not a valid present definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedObject {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// When the version in force was read, in seconds since 1970; `None` if no version was ever valid and an
    /// isolation policy is in force.
    pub since: Option<u64>,
    /// The hash of the version in force, in hexadecimal.
    pub hash: Option<String>,
}

impl RetainedObject {
    fn new(id: &ObjectId, version: Option<ValidVersion>) -> Self {
        RetainedObject {
            object: id.to_string(),
            since: version.map(|version| version.since),
            hash: version.map(|version| version.hash.to_string()),
        }
    }
}

impl EffectiveObjects {
    /// The policies that are not enforced exactly as written, by name.
    pub fn deviating_policies(&self) -> Vec<PolicyAcceptance> {
        let entry = |id: &SharedId| self.objects.get(id).and_then(StoredEntry::full);
        let deviating = self.reportable.deviating.iter();
        deviating
            .filter_map(|id| Some(self.acceptance(id, entry(id)?)))
            .collect()
    }

    fn acceptance(&self, id: &SharedId, entry: &ObjectEntry) -> PolicyAcceptance {
        let effective = entry.effective.as_ref();
        let enforced = match effective.map(|effective| effective.version) {
            None => EnforcedVersion::Nothing,
            Some(None) => EnforcedVersion::Isolation,
            Some(Some(version)) if self.reportable.retained.contains(id) => {
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
            let position = (&*definition.id, definition.origin.location());
            let over = cost.oversized_policy(position, bound, self.costs.budget());
            errors.listed.push(over.problem(""));
        }
        errors
    }

    /// The report. It costs as much as the problems and the changes, not as all objects.
    pub fn report(&mut self) -> EffectiveReport {
        self.lint.finish_batch();
        let mut problems = DiagnosticCollector::default();
        let mut ignored = BTreeMap::new();
        for source in &self.sources {
            problems.add_all(&source.report.problems);
            for (kind, count) in &source.report.ignored {
                count_ignored(&mut ignored, kind.clone(), *count);
            }
        }
        let over_budget = self.over_budget();
        let of_objects = self.object_diagnostics(&over_budget).into_iter();
        of_objects.for_each(|diagnostic| problems.add(diagnostic));
        let retained = self.reportable.retained.iter().filter_map(|id| {
            let stored = self.objects.get(id)?;
            Some(RetainedObject::new(id, stored.version()))
        });
        let mut retained: Vec<RetainedObject> = retained.collect();
        retained.sort_by(|a, b| a.object.cmp(&b.object));
        EffectiveReport {
            files: self.sources.iter().map(|source| source.report.files).sum(),
            objects: self.effective_count,
            problems: problems.finish(),
            retained,
            policies: self.deviating_policies(),
            over_budget,
            ignored,
            sources: self.sources.clone(),
        }
    }

    /// The errors and warnings that concern several objects, or the budget, by location.
    pub fn diagnostics(&mut self) -> Vec<Diagnostic> {
        self.lint.finish_batch();
        if self.budget_use == BudgetUse::Advisory {
            self.costs.allocate();
        }
        self.object_diagnostics(&self.over_budget())
    }

    /// The number of objects that have a valid version in force.
    pub fn valid_count(&self) -> usize {
        let versions = self.objects.values().filter_map(StoredEntry::version);
        versions.count()
    }

    fn object_diagnostics(&self, over_budget: &[OversizedPolicy]) -> Vec<Diagnostic> {
        let mut all: Vec<Diagnostic> = Vec::new();
        for id in &self.reportable.duplicates {
            self.add_duplicates(id, &mut all);
        }
        let warnings = self.lint.warnings(&|id| self.objects.get(id)?.pod());
        all.extend(warnings.into_iter().map(Diagnostic::warning));
        all.extend(over_budget.iter().map(|over| match self.budget_use {
            BudgetUse::Enforced => Diagnostic::error(over.problem(
                "the last valid version stays in force; if there is none, the selected pods are isolated",
            )),
            BudgetUse::Advisory => Diagnostic::warning(
                over.problem("an agent with the default budget rejects this policy"),
            ),
        }));
        Diagnostic::sort(&mut all);
        all
    }

    /// The policies over a budget, in the order of their names.
    fn over_budget(&self) -> Vec<OversizedPolicy> {
        let over = self.costs.over_limit().filter_map(|id| {
            let definition = self.objects.get(id)?.full()?.first()?;
            let cost = definition.cost.as_deref()?;
            let bound = self.costs.exceeded_limit(id, Some(cost))?;
            let position = (&**id, definition.origin.location());
            Some(cost.oversized_policy(position, bound, self.costs.budget()))
        });
        over.collect()
    }

    fn add_duplicates(&self, id: &ObjectId, all: &mut Vec<Diagnostic>) {
        let entry = self.objects.get(id).and_then(StoredEntry::full);
        let definitions = entry.map(|entry| &entry.definitions[..]);
        let Some(((_, first), others)) = definitions.and_then(<[_]>::split_first) else {
            return;
        };
        let (reported, untold) = others.split_at(others.len().min(MAX_PROBLEMS_PER_OBJECT));
        for (_, other) in reported {
            let problem = duplicate_definition(id, other.origin.location(), &first.origin);
            all.push(Diagnostic::error(problem));
        }
        let mut omitted = OmittedCounts::default();
        omitted.add(true, untold.len());
        let more = omitted_definitions(id, first.origin.location(), omitted);
        all.extend(more.into_iter().map(Diagnostic::from_omitted));
    }
}
