//! Limits on the number of problems listed for an object, a file and a whole input.
//!
//! A user corrects the first ones first, and a malicious file could cause millions. Promises: problems that
//! are not listed are counted; errors and warnings have separate quotas, so warnings never hide an error.
//! Never: decides whether an object is accepted.

use palisade_manifest::{Location, Problem};

/// The number of errors, and of warnings, listed for one object.
pub const MAX_PROBLEMS_PER_OBJECT: usize = 100;
/// The number of errors, and of warnings, listed for one file.
pub const MAX_PROBLEMS_PER_FILE: usize = 1_000;
/// The number of errors, and of warnings, listed for a whole input.
pub const MAX_PROBLEMS_PER_INPUT: usize = 10_000;

/// Numbers of problems that are counted but not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedCounts {
    /// The number of errors.
    pub errors: usize,
    /// The number of warnings.
    pub warnings: usize,
}

impl OmittedCounts {
    /// Whether no problem was left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == OmittedCounts::default()
    }

    /// Adds `count` to the errors or the warnings.
    pub fn add(&mut self, is_error: bool, count: usize) {
        let counter = if is_error {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        *counter = counter.saturating_add(count);
    }

    /// The problems that summarize what is not listed for `owner` ("this object"), at the location `at`: one
    /// for the errors, one for the warnings.
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

/// A summary of problems that are not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedProblems {
    /// Its location, and their number as text.
    pub problem: Problem,
    /// Whether they are errors.
    pub is_error: bool,
    /// Their number.
    pub count: usize,
}

/// The remaining quotas of errors and of warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemQuota {
    errors: usize,
    warnings: usize,
    omitted: OmittedCounts,
}

impl ProblemQuota {
    /// A quota of this many errors and as many warnings.
    #[must_use]
    pub fn uniform(limit: usize) -> Self {
        ProblemQuota::new(limit, limit)
    }

    /// A quota of these numbers.
    #[must_use]
    pub fn new(errors: usize, warnings: usize) -> Self {
        ProblemQuota {
            errors,
            warnings,
            omitted: OmittedCounts::default(),
        }
    }

    /// Whether one more is listed; if not, it is counted as omitted.
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

    /// Whether one more can be listed.
    #[must_use]
    pub fn has_room(&self, is_error: bool) -> bool {
        (if is_error { self.errors } else { self.warnings }) > 0
    }

    /// The remaining numbers of errors and of warnings.
    #[must_use]
    pub fn remaining(&self) -> (usize, usize) {
        (self.errors, self.warnings)
    }

    /// Counts omitted problems.
    pub fn omit(&mut self, is_error: bool, count: usize) {
        self.omitted.add(is_error, count);
    }

    /// The numbers of omitted problems.
    #[must_use]
    pub fn omitted(&self) -> OmittedCounts {
        self.omitted
    }
}

/// A number with commas between thousands.
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
