//! Counts what a run tried, and says whether that was enough.

use super::FLOWS;
use palisade_generators::kubernetes::Features;
use std::collections::BTreeMap;
use std::fmt;

/// The least share of cases, in percent, that each feature must have a say in; a run may fall short of it by
/// [`ALLOWED_ERRORS`].
const LEAST_FEATURE: f64 = 1.0;
/// How many standard errors of a share at the bar a run may fall short by: another seed would have reached it. The cases
/// of a world share its features, so that worlds are counted, not cases.
const ALLOWED_ERRORS: f64 = 2.0;
/// The least share of cases, in percent, that must be allowed, and denied.
const LEAST_VERDICT: f64 = 35.0;
/// From how many cases on shares mean something: with fewer, a feature that is never tried would not fall short.
const ENOUGH: u64 = 2_000;

/// What the cases of one kind of world tried.
#[derive(Clone, Debug)]
pub struct FeatureTally {
    name: &'static str,
    counts: BTreeMap<&'static str, u64>,
    /// The number of cases.
    pub cases: u64,
    /// How many of them were allowed at both ends.
    pub allowed: u64,
}

impl FeatureTally {
    /// Nothing tried yet, of these features.
    #[must_use]
    pub fn new(name: &'static str, features: &[&'static str]) -> Self {
        FeatureTally {
            name,
            counts: features.iter().map(|feature| (*feature, 0)).collect(),
            cases: 0,
            allowed: 0,
        }
    }

    /// Takes in one case.
    pub fn add(&mut self, features: Features, allowed: bool) {
        self.cases += 1;
        self.allowed += u64::from(allowed);
        for feature in features {
            *self.counts.entry(feature).or_default() += 1;
        }
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 * 100.0 / self.cases.max(1) as f64
    }

    /// The least share of a feature, in percent, for this number of cases.
    fn least_share(&self) -> f64 {
        let worlds = (self.cases / FLOWS as u64).max(1) as f64;
        let variance = LEAST_FEATURE * (100.0 - LEAST_FEATURE) / worlds;
        LEAST_FEATURE - ALLOWED_ERRORS * variance.sqrt()
    }

    /// What was tried too little, one line each; nothing where there were too few cases to tell.
    #[must_use]
    pub fn undertested(&self) -> Vec<String> {
        if self.cases < ENOUGH {
            return Vec::new();
        }
        let least = self.least_share();
        let mut short: Vec<String> = self
            .counts
            .iter()
            .filter(|(_, count)| self.share(**count) < least)
            .map(|(feature, count)| {
                let share = self.share(*count);
                format!(
                    "{}: `{feature}` in only {share:.2} % of the cases",
                    self.name
                )
            })
            .collect();
        for (what, count) in [
            ("allowed", self.allowed),
            ("denied", self.cases - self.allowed),
        ] {
            if self.share(count) < LEAST_VERDICT {
                let share = self.share(count);
                short.push(format!("{}: only {share:.1} % {what}", self.name));
            }
        }
        short
    }
}

impl fmt::Display for FeatureTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} cases", self.name, self.cases)?;
        for (feature, count) in &self.counts {
            writeln!(f, "  {:5.1} %  {feature}", self.share(*count))?;
        }
        let denied = self.cases - self.allowed;
        writeln!(f, "  {:5.1} %  allowed", self.share(self.allowed))?;
        write!(f, "  {:5.1} %  denied", self.share(denied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let mut tally = FeatureTally::new("worlds", &["often", "never"]);
        for n in 0..ENOUGH {
            tally.add(Features::from(["often"]), n % 10 == 0);
        }
        assert_eq!(
            tally.undertested(),
            [
                "worlds: `never` in only 0.00 % of the cases",
                "worlds: only 10.0 % allowed"
            ]
        );
        assert!(
            FeatureTally::new("worlds", &["never"])
                .undertested()
                .is_empty()
        );
    }

    #[test]
    fn a_share_may_fall_short_by_chance_only() {
        let short = |cases: u64, count: u64| {
            let mut tally = FeatureTally::new("worlds", &["rare"]);
            for n in 0..cases {
                let features = if n < count {
                    Features::from(["rare"])
                } else {
                    Features::new()
                };
                tally.add(features, n % 2 == 0);
            }
            !tally.undertested().is_empty()
        };
        assert!(short(12_000, 60), "0.5 %");
        assert!(!short(12_000, 96), "0.8 %");
        assert!(!short(3_000, 29), "0.97 %");
        assert!(short(3_000, 6), "0.2 %");
        assert!(short(ENOUGH, 0));
        assert!(!short(ENOUGH - 1, 0));
    }
}
