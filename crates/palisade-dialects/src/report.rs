//! Collects the errors and warnings of one object while it is lowered, and the parts of it that are held closed:
//! the first hundred of each are listed, the others counted.

use crate::cidr;
use crate::closed_part::{ClosedPart, ClosedReason};
use crate::quota::{MAX_PROBLEMS_PER_OBJECT, OmittedProblems, ProblemQuota};
use crate::suggest::nearest;
use palisade_manifest::{Field, FieldError, FieldPath, Location, Problem, shorten};
use palisade_model::{SourceLine, Str};
use std::collections::VecDeque;
use std::net::IpAddr;

/// The problems of one object.
#[derive(Debug)]
pub(crate) struct ObjectReport {
    object: String,
    /// Why the object is rejected.
    pub(crate) errors: Vec<Problem>,
    /// Valid, but likely not intended.
    pub(crate) warnings: Vec<Problem>,
    /// Valid, but not enforced as written.
    pub(crate) closed: Vec<ClosedPart>,
    quota: ProblemQuota,
    /// A quota of its own, so that no warning hides a part that is held closed.
    closed_quota: ProblemQuota,
    /// While a rule is read: whether it has a field that is not known.
    unread_rule: Option<bool>,
    /// The location of the last error or warning.
    last: Option<Location>,
    /// The last values of the wrong type.
    mismatches: VecDeque<Problem>,
}

/// The number of such values that are remembered.
const MAX_MISMATCHES: usize = 8;

impl ObjectReport {
    /// A report about the object of this name.
    pub(crate) fn new(object: impl Into<String>) -> Self {
        ObjectReport {
            object: object.into(),
            errors: Vec::new(),
            warnings: Vec::new(),
            closed: Vec::new(),
            quota: ProblemQuota::uniform(MAX_PROBLEMS_PER_OBJECT),
            closed_quota: ProblemQuota::uniform(MAX_PROBLEMS_PER_OBJECT),
            unread_rule: None,
            last: None,
            mismatches: VecDeque::new(),
        }
    }

    /// Summaries of the problems that are not listed.
    pub(crate) fn omitted(&self) -> Vec<OmittedProblems> {
        let mut untold = self.quota.omitted();
        untold.add(false, self.omitted_closed());
        let at = self.last.iter();
        at.flat_map(|at| untold.summaries(at, Some(&self.object), "this object"))
            .collect()
    }

    /// The number of parts held closed that are not listed.
    pub(crate) fn omitted_closed(&self) -> usize {
        self.closed_quota.omitted().warnings
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

    /// Adds an error about a field.
    pub(crate) fn error(&mut self, at: &Field<'_>, reason: impl Into<String>) {
        self.record(true, at.location(), |object| {
            at.problem(Some(object), reason)
        });
    }

    /// Adds an error about a field for each reason.
    pub(crate) fn errors(&mut self, at: &Field<'_>, reasons: impl IntoIterator<Item = String>) {
        for reason in reasons {
            self.error(at, reason);
        }
    }

    /// Adds an error for each reason, about a key of the object in a field.
    pub(crate) fn key_errors(&mut self, parent: &Field<'_>, key: &str, reasons: Vec<String>) {
        let entry = parent.as_map().ok().and_then(|map| map.entry(key));
        let location = entry.map_or(parent.location(), |entry| &entry.location);
        for reason in reasons {
            self.record(true, location, |object| Problem {
                location: location.clone(),
                object: Some(object),
                field: parent.path.key(key).to_string(),
                reason,
            });
        }
    }

    /// Adds a warning about a field.
    pub(crate) fn warn(&mut self, at: &Field<'_>, reason: impl Into<String>) {
        self.record(false, at.location(), |object| {
            at.problem(Some(object), reason)
        });
    }

    /// Adds a part that is held closed.
    pub(crate) fn close(
        &mut self,
        at: &Field<'_>,
        reason: ClosedReason,
        sentence: impl Into<String>,
    ) {
        self.record_closed(at.location(), reason, |object| {
            at.problem(Some(object), sentence)
        });
    }

    fn record_closed(
        &mut self,
        at: &Location,
        reason: ClosedReason,
        problem: impl FnOnce(String) -> Problem,
    ) {
        if self.last.as_ref().is_none_or(|last| last < at) {
            self.last = Some(at.clone());
        }
        if self.closed_quota.admit(false) {
            let problem = problem(self.object.clone()).truncated();
            self.closed.push(ClosedPart { problem, reason });
        }
    }

    /// Begins a rule: until [`end_rule`](Self::end_rule), a field that is not known closes a part and is no error,
    /// unless it is likely a slip.
    pub(crate) fn begin_rule(&mut self) {
        self.unread_rule = Some(false);
    }

    /// Ends a rule; whether it has a field that is not known, so that it must fail closed as a whole.
    pub(crate) fn end_rule(&mut self) -> bool {
        self.unread_rule.take().unwrap_or(false)
    }

    /// Parses an address; adds errors and warnings about it.
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

    /// The value; an error is added to the report.
    pub(crate) fn ok<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let problem = error.into_problem(Some(self.object.clone())).truncated();
                // A value of the wrong type is read once for each expected field but reported once.
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

    /// Whether the field holds an object; `null` counts as an empty object, as in the lists of the API
    /// server. Anything else is an error.
    pub(crate) fn is_object(&mut self, field: &Field<'_>) -> bool {
        field.node.is_null() || self.ok(field.as_map()).is_some()
    }

    /// A field of an object; `None` if the object is `null`.
    pub(crate) fn child<'a>(&mut self, parent: &Field<'a>, key: &str) -> Option<Field<'a>> {
        if parent.node.is_null() {
            return None;
        }
        self.ok(parent.get(key)).flatten()
    }

    /// A field that holds an object.
    pub(crate) fn object<'a>(&mut self, parent: &Field<'a>, key: &str) -> Option<Field<'a>> {
        let field = self.child(parent, key)?;
        self.ok(field.as_map())?;
        Some(field)
    }

    /// The items of a list; empty if there is no list.
    pub(crate) fn items<'a>(&mut self, parent: &Field<'a>, key: &str) -> Vec<Field<'a>> {
        let Some(field) = self.child(parent, key) else {
            return Vec::new();
        };
        self.ok(field.items()).unwrap_or_default()
    }

    /// A field that holds a string, with its value.
    pub(crate) fn text<'a>(
        &mut self,
        parent: &Field<'a>,
        key: &str,
    ) -> Option<(&'a str, Field<'a>)> {
        let field = self.child(parent, key)?;
        let text = self.ok(field.as_str())?;
        Some((text, field))
    }

    /// Reports each field of an object that is not in `known`: a likely slip is an error, also one in `misplaced`,
    /// which are fields valid elsewhere, each with a hint. Any other is an error too, since it may change what
    /// the rest means; but inside a rule it is a part held closed, and the rule has to fail closed
    /// ([`end_rule`](Self::end_rule)).
    pub(crate) fn check_fields(
        &mut self,
        parent: &Field<'_>,
        known: &[&str],
        misplaced: &[(&str, &str)],
    ) {
        for unknown in unknown_fields(parent, known, misplaced) {
            if self.unread_rule.is_some() && !unknown.is_slip() {
                self.unread_rule = Some(true);
                self.record_closed(unknown.at, ClosedReason::UnknownField, |object| {
                    unknown.problem(object, ": the rule fails closed")
                });
            } else {
                self.record(true, unknown.at, |object| unknown.problem(object, ""));
            }
        }
    }

    /// The same for the fields of an object of which none has an effect on policy: only a likely slip is an error,
    /// any other unknown field a warning.
    pub(crate) fn check_descriptive_fields(
        &mut self,
        parent: &Field<'_>,
        known: &[&str],
        misplaced: &[(&str, &str)],
    ) {
        for unknown in unknown_fields(parent, known, misplaced) {
            let end = if unknown.is_slip() {
                ""
            } else {
                ": it is ignored"
            };
            self.record(unknown.is_slip(), unknown.at, |object| {
                unknown.problem(object, end)
            });
        }
    }
}

/// A field that is not known, and what it likely was to be.
struct UnknownField<'a> {
    key: &'a str,
    at: &'a Location,
    path: FieldPath,
    /// What is known there.
    known: &'a [&'a str],
    /// It is valid elsewhere: where.
    misplaced: Option<&'a str>,
    /// It is spelled nearly like a known one.
    nearest: Option<&'a str>,
}

/// The fields of an object that are not in `known`.
fn unknown_fields<'a>(
    parent: &'a Field<'_>,
    known: &'a [&'a str],
    misplaced: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = UnknownField<'a>> {
    let entries = parent.as_map().into_iter().flatten();
    let unknown = entries.filter(|entry| !known.contains(&&*entry.key));
    unknown.map(|entry| {
        let stray = misplaced.iter().find(|(stray, _)| **stray == *entry.key);
        UnknownField {
            key: &entry.key,
            at: &entry.location,
            path: parent.path.key(entry.key.clone()),
            known,
            misplaced: stray.map(|(_, hint)| *hint),
            nearest: nearest(&entry.key, known),
        }
    })
}

impl UnknownField<'_> {
    /// The problem of an object, with what becomes of the field.
    fn problem(&self, object: String, end: &str) -> Problem {
        Problem {
            location: self.at.clone(),
            object: Some(object),
            field: self.path.to_string(),
            reason: self.sentence(end),
        }
    }

    /// Whether it is likely a slip, and no field of a newer API.
    fn is_slip(&self) -> bool {
        self.misplaced.is_some() || self.nearest.is_some()
    }

    /// The message, with what becomes of the field.
    fn sentence(&self, end: &str) -> String {
        let hint = match (self.misplaced, self.nearest) {
            (Some(hint), _) => hint.to_owned(),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => format!("known fields: {}", self.known.join(", ")),
        };
        let key = shorten(self.key);
        match end {
            "" => format!("unknown field `{key}`; {hint}"),
            _ => format!("unknown field `{key}`{end}; {hint}"),
        }
    }
}

/// The line on which a field's value begins; its path in an object of a server, which has no lines.
pub(crate) fn line_of(field: &Field<'_>) -> SourceLine {
    let Location { file, line, .. } = field.location();
    let file = match line {
        0 if !field.path.is_root() => Str::from(field.path.to_string()),
        _ => file.clone().into(),
    };
    SourceLine::new(file, *line)
}
