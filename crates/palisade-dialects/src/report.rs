//! Collects everything that is wrong or doubtful in one object while it is read: the first hundred
//! errors and warnings are told, the others counted.

use crate::cidr;
use crate::quota::{MAX_PROBLEMS_PER_OBJECT, OmittedProblems, ProblemQuota};
use crate::suggest::nearest;
use palisade_manifest::{Field, FieldError, Location, Problem, shorten};
use palisade_model::SourceLine;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The problems of one object.
#[derive(Debug)]
pub(crate) struct ObjectReport {
    object: String,
    /// Why the object cannot be taken.
    pub(crate) errors: Vec<Problem>,
    /// What is taken, but is likely not meant.
    pub(crate) warnings: Vec<Problem>,
    quota: ProblemQuota,
    /// The last place of anything that is wrong or doubtful.
    last: Option<Location>,
    /// The last values of the wrong kind.
    mismatches: VecDeque<Problem>,
}

/// How many values of the wrong kind are remembered.
const MAX_MISMATCHES: usize = 8;

impl ObjectReport {
    /// A report about the object of this name.
    pub(crate) fn new(object: impl Into<String>) -> Self {
        ObjectReport {
            object: object.into(),
            errors: Vec::new(),
            warnings: Vec::new(),
            quota: ProblemQuota::uniform(MAX_PROBLEMS_PER_OBJECT),
            last: None,
            mismatches: VecDeque::new(),
        }
    }

    /// What stands for the problems that are not told.
    pub(crate) fn omitted(&self) -> Vec<OmittedProblems> {
        let untold = self.quota.omitted();
        let at = self.last.iter();
        at.flat_map(|at| untold.summaries(at, Some(&self.object), "this object"))
            .collect()
    }

    fn record(&mut self, is_error: bool, at: &Location, problem: impl FnOnce(String) -> Problem) {
        if self.last.as_ref().is_none_or(|last| last < at) {
            self.last = Some(at.clone());
        }
        if !self.quota.admit(is_error) {
            return;
        }
        let problem = problem(self.object.clone()).truncated();
        if is_error {
            self.errors.push(problem);
        } else {
            self.warnings.push(problem);
        }
    }

    /// Refuses the object for what this field holds.
    pub(crate) fn error(&mut self, at: &Field<'_>, reason: impl Into<String>) {
        self.record(true, at.location(), |object| {
            at.problem(Some(object), reason)
        });
    }

    /// Refuses the object for each of these reasons.
    pub(crate) fn errors(&mut self, at: &Field<'_>, reasons: impl IntoIterator<Item = String>) {
        for reason in reasons {
            self.error(at, reason);
        }
    }

    /// Refuses the object for each of these reasons against a key of an object in it.
    pub(crate) fn key_errors(&mut self, of: &Field<'_>, key: &str, reasons: Vec<String>) {
        let entry = of.as_map().ok().and_then(|map| map.entry(key));
        let location = entry.map_or(of.location(), |entry| &entry.location);
        for reason in reasons {
            self.record(true, location, |object| Problem {
                location: location.clone(),
                object: Some(object),
                field: of.path.key(key).to_string(),
                reason,
            });
        }
    }

    /// Notes a doubt about what this field holds.
    pub(crate) fn warn(&mut self, at: &Field<'_>, reason: impl Into<String>) {
        self.record(false, at.location(), |object| {
            at.problem(Some(object), reason)
        });
    }

    /// An address, or its error noted; what is doubtful about it is noted too.
    pub(crate) fn address(&mut self, at: &Field<'_>, text: &str) -> Option<IpAddr> {
        match cidr::parse_address(text) {
            Ok((address, doubt)) => {
                if let Some(doubt) = doubt {
                    self.warn(at, doubt);
                }
                Some(address)
            }
            Err(reason) => {
                self.error(at, reason);
                None
            }
        }
    }

    /// The value, or its error noted.
    pub(crate) fn ok<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let problem = error.into_problem(Some(self.object.clone())).truncated();
                // A value of the wrong kind is asked for each of its fields, but told once.
                if !self.mismatches.contains(&problem) {
                    if self.mismatches.len() >= MAX_MISMATCHES {
                        self.mismatches.pop_front();
                    }
                    self.mismatches.push_back(problem.clone());
                    let location = problem.location.clone();
                    self.record(true, &location, |_| problem);
                }
                None
            }
        }
    }

    /// Whether the field holds an object; `null` counts as an empty one, as it does in a list that
    /// the API server reads. Anything else is an error.
    pub(crate) fn is_object(&mut self, field: &Field<'_>) -> bool {
        field.node.is_null() || self.ok(field.as_map()).is_some()
    }

    /// A field of an object; nothing where the object is `null`.
    pub(crate) fn child<'a>(&mut self, of: &Field<'a>, key: &str) -> Option<Field<'a>> {
        if of.node.is_null() {
            return None;
        }
        self.ok(of.get(key)).flatten()
    }

    /// A field that holds an object.
    pub(crate) fn object<'a>(&mut self, of: &Field<'a>, key: &str) -> Option<Field<'a>> {
        let field = self.child(of, key)?;
        self.ok(field.as_map())?;
        Some(field)
    }

    /// The items of a list; none where there is no list.
    pub(crate) fn items<'a>(&mut self, of: &Field<'a>, key: &str) -> Vec<Field<'a>> {
        let Some(field) = self.child(of, key) else {
            return Vec::new();
        };
        self.ok(field.items()).unwrap_or_default()
    }

    /// A field that holds text, with the field.
    pub(crate) fn text<'a>(&mut self, of: &Field<'a>, key: &str) -> Option<(&'a str, Field<'a>)> {
        let field = self.child(of, key)?;
        let text = self.ok(field.as_str())?;
        Some((text, field))
    }

    /// Refuses every field of an object that is not among the known ones. `strays` are fields that
    /// are known elsewhere, with what to say of them here.
    pub(crate) fn reject_unknown_fields(
        &mut self,
        of: &Field<'_>,
        known: &[&str],
        misplaced: &[(&str, &str)],
    ) {
        let Ok(map) = of.as_map() else { return };
        for entry in map.iter().filter(|entry| !known.contains(&&*entry.key)) {
            let key = &*entry.key;
            self.record(true, &entry.location, |object| {
                let stray = misplaced.iter().find(|(stray, _)| *stray == key);
                let hint = match (stray, nearest(key, known)) {
                    (Some((_, hint)), _) => format!("; {hint}"),
                    (None, Some(suggestion)) => format!("; did you mean `{suggestion}`?"),
                    (None, None) => format!("; known here: {}", known.join(", ")),
                };
                Problem {
                    location: entry.location.clone(),
                    object: Some(object),
                    field: of.path.key(entry.key.clone()).to_string(),
                    reason: format!("unknown field `{}`{hint}", shorten(key)),
                }
            });
        }
    }
}

/// The line a field's value starts on.
pub(crate) fn line_of(field: &Field<'_>) -> SourceLine {
    SourceLine {
        file: field.location().file.clone().into(),
        line: field.location().line,
    }
}
