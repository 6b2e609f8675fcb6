//! How many problems are told of an object, of a file and of a whole input.
//!
//! A person mends the first ones first, and a file made for it could have millions. Promises: what is
//! not told is counted; errors and warnings have a quota each, so no number of warnings hides an
//! error. Never: decides whether an object is taken.

use palisade_manifest::{Location, Problem};

/// Errors, and warnings, that are told of one object.
pub const OF_OBJECT: usize = 100;
/// Errors, and warnings, that are told of one file.
pub const OF_FILE: usize = 1_000;
/// Errors, and warnings, that are told of a whole input.
pub const OF_INPUT: usize = 10_000;

/// Problems that are counted and not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untold {
    /// How many errors.
    pub errors: usize,
    /// How many warnings.
    pub warnings: usize,
}

impl Untold {
    /// Whether everything is told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Untold::default()
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
    pub fn more(self, at: &Location, object: Option<&str>, what: &str) -> Vec<More> {
        let kinds = [
            (true, self.errors, "problem"),
            (false, self.warnings, "warning"),
        ];
        let counted = kinds.into_iter().filter(|(_, count, _)| *count > 0);
        counted
            .map(|(is_error, count, noun)| More {
                problem: Problem {
                    location: at.clone(),
                    object: object.map(str::to_owned),
                    field: String::new(),
                    reason: format!(
                        "and {} more {noun}{} of {what}",
                        grouped(count),
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
pub struct More {
    /// Where they are, and how many.
    pub problem: Problem,
    /// Whether they are errors.
    pub is_error: bool,
    /// How many.
    pub count: usize,
}

/// How many more problems may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    errors: usize,
    warnings: usize,
    untold: Untold,
}

impl Quota {
    /// Room for this many errors and as many warnings.
    #[must_use]
    pub fn of(most: usize) -> Self {
        Quota::left(most, most)
    }

    /// Room for these.
    #[must_use]
    pub fn left(errors: usize, warnings: usize) -> Self {
        Quota {
            errors,
            warnings,
            untold: Untold::default(),
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
            self.untold.add(is_error, 1);
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
    pub fn room(&self) -> (usize, usize) {
        (self.errors, self.warnings)
    }

    /// Counts what was not admitted.
    pub fn leave_out(&mut self, is_error: bool, count: usize) {
        self.untold.add(is_error, count);
    }

    /// What it did not admit.
    #[must_use]
    pub fn untold(&self) -> Untold {
        self.untold
    }
}

/// Problems of one file after the other, as far as the quotas of a file and of the input allow.
#[derive(Clone, Debug)]
pub struct Ledger {
    input: Quota,
    file: Quota,
    /// The last place of the file.
    last: Option<Location>,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    more: Vec<More>,
}

/// What a [`Ledger`] held at some time.
#[derive(Clone, Debug)]
pub struct Mark {
    input: Quota,
    file: Quota,
    last: Option<Location>,
    lengths: [usize; 3],
}

impl Default for Mark {
    fn default() -> Self {
        Ledger::default().mark()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger::new(Quota::of(OF_INPUT))
    }
}

impl Ledger {
    /// An empty one, with this quota for the whole input.
    #[must_use]
    pub fn new(input: Quota) -> Self {
        Ledger {
            input,
            file: Quota::of(OF_FILE),
            last: None,
            errors: Vec::new(),
            warnings: Vec::new(),
            more: Vec::new(),
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
        of.push(problem.bounded());
    }

    /// Takes in problems.
    pub fn add_all(&mut self, is_error: bool, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.add(is_error, problem);
        }
    }

    /// Takes in what stands for several, as one.
    pub fn add_more(&mut self, more: More) {
        if self.admit(more.is_error, &more.problem.location, more.count) {
            self.more.push(more);
        }
    }

    /// Takes in several of these.
    pub fn add_more_all(&mut self, more: Vec<More>) {
        more.into_iter().for_each(|more| self.add_more(more));
    }

    /// Counts problems of the input that have no place of their own.
    pub fn leave_out(&mut self, is_error: bool, count: usize) {
        self.input.leave_out(is_error, count);
    }

    /// What there is now, to come back to.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            input: self.input,
            file: self.file,
            last: self.last.clone(),
            lengths: [self.errors.len(), self.warnings.len(), self.more.len()],
        }
    }

    /// Takes back what was taken in since.
    pub fn back_to(&mut self, mark: Mark) {
        let [errors, warnings, more] = mark.lengths;
        self.errors.truncate(errors);
        self.warnings.truncate(warnings);
        self.more.truncate(more);
        (self.input, self.file, self.last) = (mark.input, mark.file, mark.last);
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
            self.file.leave_out(is_error, count);
            return false;
        }
        if !self.input.has_room(is_error) {
            self.input.leave_out(is_error, count);
            return false;
        }
        self.file.admit(is_error) && self.input.admit(is_error)
    }

    fn end_file(&mut self) {
        let file = std::mem::replace(&mut self.file, Quota::of(OF_FILE));
        if let Some(last) = self.last.take() {
            self.more
                .extend(file.untold().more(&last, None, "this file"));
        }
    }

    /// The errors, the warnings, and what stands for those that are not told.
    #[must_use]
    pub fn end(mut self) -> (Vec<Problem>, Vec<Problem>, Vec<More>) {
        let last = self.last.clone();
        self.end_file();
        if let Some(last) = last {
            let more = self.input.untold().more(&last, None, "the whole input");
            self.more.extend(more);
        }
        (self.errors, self.warnings, self.more)
    }
}

/// A number with a comma between thousands.
fn grouped(count: usize) -> String {
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
        let mut quota = Quota::left(1, 0);
        let admitted = [true, true, false, true].map(|is_error| quota.admit(is_error));
        assert_eq!(admitted, [true, false, false, false]);
        let at = Location {
            file: "f".into(),
            line: 1,
            column: 1,
        };
        let more = quota.untold().more(&at, Some("Pod a/b"), "this object");
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
            [7, 999, 1_000, 9_900, 1_234_567].map(grouped),
            ["7", "999", "1,000", "9,900", "1,234,567"]
        );
    }
}
