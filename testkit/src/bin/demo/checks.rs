//! The demo's checks: each is printed where it occurs, and failures are counted.

use crate::matrix::ProbeMatrix;
use crate::screen::Screen;
use std::fmt::Display;

/// Differences between two matrices that are printed, at most.
const PRINTED_DIFFERENCES: usize = 12;

/// The checks of one demo.
#[derive(Debug)]
pub(crate) struct Checks {
    screen: Screen,
    failed: usize,
}

impl Checks {
    pub(crate) fn new(screen: Screen) -> Self {
        Checks { screen, failed: 0 }
    }

    /// Prints a check and whether it holds.
    pub(crate) fn check(&mut self, holds: bool, text: impl Display) {
        if holds {
            self.screen.pass(text);
        } else {
            self.failed += 1;
            self.screen.fail(text);
        }
    }

    /// Whether two matrices are equal; `text` is given how many cells are, of how many.
    pub(crate) fn compare(
        &mut self,
        got: &ProbeMatrix,
        expected: &ProbeMatrix,
        text: impl Fn(String) -> String,
    ) {
        let differences = got.differences(expected);
        let cells = format!("{} of {}", got.len() - differences.len(), got.len());
        self.check(differences.is_empty(), text(cells));
        for difference in differences.iter().take(PRINTED_DIFFERENCES) {
            self.screen.detail(format_args!("  {difference}"));
        }
    }

    /// Whether a matrix is that of before, while or after something happened.
    pub(crate) fn check_unchanged(&mut self, now: &ProbeMatrix, before: &ProbeMatrix, when: &str) {
        self.compare(now, before, |cells| {
            format!("{when}: {cells} cells unchanged")
        });
    }

    /// The number of failed checks.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }
}
