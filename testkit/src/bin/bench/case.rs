//! One state and the figures measured in it.

use crate::report::Figure;

/// Measured in a process of its own.
pub(crate) struct BenchCase {
    /// Its name: the beginning that its figures share.
    pub(crate) name: String,
    /// The figures, in the order in which they are measured.
    pub(crate) figures: Vec<Figure>,
    /// How many processes measure it: more than one where a process yields one sample.
    pub(crate) processes: usize,
    /// Whether it ends by asking the oracle, so that one that is ended before was not checked.
    pub(crate) asks_the_oracle: bool,
    /// How many times the usual limit it may take: what is made before is not what is measured.
    pub(crate) limits: u32,
    /// What is done.
    pub(crate) measure: Measure,
}

/// Measures at a scale, hands out samples, and compares with the oracle.
pub(crate) type Measure = Box<dyn Fn(f64, &mut Samples<'_>) -> Result<(), String>>;

/// Takes each figure's samples, in the order of [`BenchCase::figures`].
pub(crate) type Samples<'a> = dyn FnMut(Vec<f64>) + 'a;

impl BenchCase {
    /// Measures at a scale.
    pub(crate) fn measure(&self, scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
        (self.measure)(scale, samples)
    }
}
