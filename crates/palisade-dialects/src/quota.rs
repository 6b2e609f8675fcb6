//! How many problems are told of an object, of a file and of a whole input.
//!
//! A person mends the first ones first, and a file made for it could have millions. Promises: what is
//! not told is counted; errors and warnings have a quota each, so no number of warnings hides an
//! error. Never: decides whether an object is taken.

use palisade_manifest::{Location, Problem};

/// Errors, and warnings, that are told of one object.
pub const MAX_PROBLEMS_PER_OBJECT: usize = 100;
/// Errors, and warnings, that are told of one file.
pub const MAX_PROBLEMS_PER_FILE: usize = 1_000;
/// Errors, and warnings, that are told of a whole input.
pub const MAX_PROBLEMS_PER_INPUT: usize = 10_000;

/// Problems that are counted and not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedCounts {
    /// How many errors.
    pub errors: usize,
    /// How many warnings.
    pub warnings: usize,
}

impl OmittedCounts {
    /// Whether everything is told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == OmittedCounts::default()
    }

    /// Counts `count` more.
    pub fn add(&mut self, is_error: bool, count: usize) {
        let of = if is_error {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        *of = of.saturating_add(count);
    }

    /// What stands in the place of those that are not told of `what` ("this object"), after the
    /// place `at`: one for the errors, one for the warnings.
    pub fn summaries(
        self,
        at: &Location,
        object: Option<&str>,
        owner: &str,
    ) -> Vec<OmittedProblems> {
        let kinds = [
            (true, self.errors, "problem"),
            (false, self.warnings, "warning"),
        ];
        let counted = kinds.into_iter().filter(|(_, count, _)| *count > 0);
        counted
            .map(|(is_error, count, noun)| OmittedProblems {
                problem: Problem {
                    location: at.clone(),
                    object: object.map(str::to_owned),
                    field: String::new(),
                    reason: format!(
                        "and {} more {noun}{} of {owner}",
                        with_thousands_separators(count),
                        if count == 1 { "" } else { "s" }
                    ),
                },
                is_error,
                count,
            })
            .collect()
    }
}

/// Stands for problems that are not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedProblems {
    /// Where they are, and how many.
    pub problem: Problem,
    /// Whether they are errors.
    pub is_error: bool,
    /// How many.
    pub count: usize,
}

/// How many more problems may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemQuota {
    errors: usize,
    warnings: usize,
    omitted: OmittedCounts,
}

impl ProblemQuota {
    /// Room for this many errors and as many warnings.
    #[must_use]
    pub fn uniform(limit: usize) -> Self {
        ProblemQuota::new(limit, limit)
    }

    /// Room for these.
    #[must_use]
    pub fn new(errors: usize, warnings: usize) -> Self {
        ProblemQuota {
            errors,
            warnings,
            omitted: OmittedCounts::default(),
        }
    }

    /// Whether one more may be told; if not, it is counted.
    pub fn admit(&mut self, is_error: bool) -> bool {
        let left = if is_error {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        let Some(less) = left.checked_sub(1) else {
            self.omitted.add(is_error, 1);
            return false;
        };
        *left = less;
        true
    }

    /// Whether one more may be told.
    #[must_use]
    pub fn has_room(&self, is_error: bool) -> bool {
        (if is_error { self.errors } else { self.warnings }) > 0
    }

    /// How many errors, and how many warnings, may still be told.
    #[must_use]
    pub fn remaining(&self) -> (usize, usize) {
        (self.errors, self.warnings)
    }

    /// Counts what was not admitted.
    pub fn omit(&mut self, is_error: bool, count: usize) {
        self.omitted.add(is_error, count);
    }

    /// What it did not admit.
    #[must_use]
    pub fn omitted(&self) -> OmittedCounts {
        self.omitted
    }
}

/// Problems of one file after the other, as far as the quotas of a file and of the input allow.
#[derive(Clone, Debug)]
pub struct ProblemCollector {
    input: ProblemQuota,
    file: ProblemQuota,
    /// The last place of the file.
    last: Option<Location>,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    omitted: Vec<OmittedProblems>,
}

/// What a [`ProblemCollector`] held at some time.
#[derive(Clone, Debug)]
pub struct CollectorCheckpoint {
    input: ProblemQuota,
    file: ProblemQuota,
    last: Option<Location>,
    lengths: [usize; 3],
}

impl Default for CollectorCheckpoint {
    fn default() -> Self {
        ProblemCollector::default().checkpoint()
    }
}

impl Default for ProblemCollector {
    fn default() -> Self {
        ProblemCollector::new(ProblemQuota::uniform(MAX_PROBLEMS_PER_INPUT))
    }
}

impl ProblemCollector {
    /// An empty one, with this quota for the whole input.
    #[must_use]
    pub fn new(input: ProblemQuota) -> Self {
        ProblemCollector {
            input,
            file: ProblemQuota::uniform(MAX_PROBLEMS_PER_FILE),
            last: None,
            errors: Vec::new(),
            warnings: Vec::new(),
            omitted: Vec::new(),
        }
    }

    /// Takes in a problem.
    pub fn add(&mut self, is_error: bool, problem: Problem) {
        if !self.admit(is_error, &problem.location, 1) {
            return;
        }
        let of = if is_error {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        of.push(problem.truncated());
    }

    /// Takes in problems.
    pub fn add_all(&mut self, is_error: bool, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.add(is_error, problem);
        }
    }

    /// Takes in what stands for several, as one.
    pub fn add_omitted(&mut self, more: OmittedProblems) {
        if self.admit(more.is_error, &more.problem.location, more.count) {
            self.omitted.push(more);
        }
    }

    /// Takes in several of these.
    pub fn add_all_omitted(&mut self, more: Vec<OmittedProblems>) {
        more.into_iter().for_each(|more| self.add_omitted(more));
    }

    /// Counts problems of the input that have no place of their own.
    pub fn omit(&mut self, is_error: bool, count: usize) {
        self.input.omit(is_error, count);
    }

    /// What there is now, to come back to.
    #[must_use]
    pub fn checkpoint(&self) -> CollectorCheckpoint {
        CollectorCheckpoint {
            input: self.input,
            file: self.file,
            last: self.last.clone(),
            lengths: [self.errors.len(), self.warnings.len(), self.omitted.len()],
        }
    }

    /// Takes back what was taken in since.
    pub fn rollback(&mut self, checkpoint: CollectorCheckpoint) {
        let [errors, warnings, more] = checkpoint.lengths;
        self.errors.truncate(errors);
        self.warnings.truncate(warnings);
        self.omitted.truncate(more);
        (self.input, self.file, self.last) = (checkpoint.input, checkpoint.file, checkpoint.last);
    }

    /// Whether something that stands for `count` problems may be told; if not, they are counted.
    fn admit(&mut self, is_error: bool, at: &Location, count: usize) -> bool {
        if self.last.as_ref().is_some_and(|last| last.file != at.file) {
            self.end_file();
        }
        if self.last.as_ref().is_none_or(|last| last < at) {
            self.last = Some(at.clone());
        }
        if !self.file.has_room(is_error) {
            self.file.omit(is_error, count);
            return false;
        }
        if !self.input.has_room(is_error) {
            self.input.omit(is_error, count);
            return false;
        }
        self.file.admit(is_error) && self.input.admit(is_error)
    }

    fn end_file(&mut self) {
        let file = std::mem::replace(&mut self.file, ProblemQuota::uniform(MAX_PROBLEMS_PER_FILE));
        if let Some(last) = self.last.take() {
            self.omitted
                .extend(file.omitted().summaries(&last, None, "this file"));
        }
    }

    /// The errors, the warnings, and what stands for those that are not told.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Problem>, Vec<Problem>, Vec<OmittedProblems>) {
        let last = self.last.clone();
        self.end_file();
        if let Some(last) = last {
            let more = self
                .input
                .omitted()
                .summaries(&last, None, "the whole input");
            self.omitted.extend(more);
        }
        (self.errors, self.warnings, self.omitted)
    }
}

/// A number with a comma between thousands.
fn with_thousands_separators(count: usize) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_admitted_is_counted() {
        let mut quota = ProblemQuota::new(1, 0);
        let admitted = [true, true, false, true].map(|is_error| quota.admit(is_error));
        assert_eq!(admitted, [true, false, false, false]);
        let at = Location {
            file: "f".into(),
            line: 1,
            column: 1,
        };
        let more = quota
            .omitted()
            .summaries(&at, Some("Pod a/b"), "this object");
        let shown: Vec<(&str, bool, usize)> = more
            .iter()
            .map(|more| (&*more.problem.reason, more.is_error, more.count))
            .collect();
        assert_eq!(
            shown,
            [
                ("and 2 more problems of this object", true, 2),
                ("and 1 more warning of this object", false, 1),
            ]
        );
        assert_eq!(
            [7, 999, 1_000, 9_900, 1_234_567].map(with_thousands_separators),
            ["7", "999", "1,000", "9,900", "1,234,567"]
        );
    }
}
