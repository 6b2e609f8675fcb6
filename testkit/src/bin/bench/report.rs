//! Figures: how they are summed up, what they are held against, the table and the file.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What a figure is held against, in the figure's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reference {
    /// Whose figure.
    pub(crate) who: &'static str,
    /// The figure.
    pub(crate) value: f64,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) references: Vec<Reference>,
    /// The name of the figure that it is a ratio to.
    pub(crate) baseline: Option<String>,
}

impl Figure {
    pub(crate) fn of(name: impl Into<String>, unit: &'static str) -> Self {
        Figure {
            name: name.into(),
            unit,
            references: Vec::new(),
            baseline: None,
        }
    }

    /// A ratio to a figure that comes before it.
    pub(crate) fn relative_to(mut self, name: &str) -> Self {
        self.baseline = Some(name.to_owned());
        self
    }

    /// With something to hold it against.
    pub(crate) fn with_reference(mut self, who: &'static str, value: f64) -> Self {
        self.references.push(Reference { who, value });
        self
    }
}

/// What came of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BenchOutcome {
    /// It was measured.
    Measured(Summary),
    /// Why there is none.
    Missing(String),
}

/// All repetitions of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) repetitions: usize,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Sums up; `None` without a sample.
    pub(crate) fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let upper = samples.len() / 2;
        let lower = (samples.len() - 1) / 2;
        Some(Summary {
            repetitions: samples.len(),
            min,
            median: f64::midpoint(samples[lower], samples[upper]),
            max,
        })
    }
}

/// Prints each figure as it comes, and keeps it for the file.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    lines: Vec<Value>,
    medians: BTreeMap<String, f64>,
    missing: usize,
    unchecked: Vec<String>,
}

impl BenchReport {
    /// Begins the table.
    pub(crate) fn begin() -> Self {
        println!(
            "{:<46} {:>6} {:>12} {:>12} {:>12} {:<7} held against",
            "figure", "times", "min", "median", "max", "unit"
        );
        BenchReport::default()
    }

    /// Takes in a figure.
    pub(crate) fn record(&mut self, figure: &Figure, outcome: &BenchOutcome) {
        let mut line = Map::new();
        line.insert("name".into(), json!(figure.name));
        line.insert("unit".into(), json!(figure.unit));
        match outcome {
            BenchOutcome::Measured(summary) => {
                line.insert("repetitions".into(), json!(summary.repetitions));
                line.insert("min".into(), json!(summary.min));
                line.insert("median".into(), json!(summary.median));
                line.insert("max".into(), json!(summary.max));
                println!(
                    "{:<46} {:>6} {:>12} {:>12} {:>12} {:<7} {}",
                    figure.name,
                    summary.repetitions,
                    digits(summary.min),
                    digits(summary.median),
                    digits(summary.max),
                    figure.unit,
                    comparison_text(figure, summary.median),
                );
                if let Some(name) = &figure.baseline {
                    line.insert("baseline".into(), json!(name));
                    line.insert("baseline_median".into(), json!(self.medians.get(name)));
                }
                self.medians.insert(figure.name.clone(), summary.median);
                for reference in &figure.references {
                    line.insert(reference.who.into(), json!(reference.value));
                    let ratio = summary.median / reference.value;
                    line.insert(format!("ratio_to_{}", reference.who), json!(ratio));
                }
            }
            BenchOutcome::Missing(reason) => {
                line.insert("repetitions".into(), json!(0));
                line.insert("missing".into(), json!(reason));
                println!("{:<46} MISSING: {reason}", figure.name);
                self.missing += 1;
            }
        }
        self.lines.push(Value::Object(line));
    }

    /// Notes a case that was ended before the oracle had compared its verdicts.
    pub(crate) fn record_unchecked(&mut self, case: &str) {
        self.unchecked.push(case.to_owned());
    }

    /// What is not as it should be.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.missing > 0 {
            all.push(format!("{} figures are missing", self.missing));
        }
        if !self.unchecked.is_empty() {
            let cases = self.unchecked.join(", ");
            all.push(format!("ended before the oracle agreed: {cases}"));
        }
        all
    }

    /// Writes one object a line.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(path)?);
        for line in &self.lines {
            writeln!(file, "{line}")?;
        }
        file.flush()
    }
}

fn comparison_text(figure: &Figure, median: f64) -> String {
    let references = figure.references.iter().map(|reference| {
        let ratio = median / reference.value;
        format!(
            "{} x {} {}",
            digits(ratio),
            reference.who,
            digits(reference.value)
        )
    });
    references.collect::<Vec<_>>().join(", ")
}

/// A number with as many decimals as its size leaves of interest.
fn digits(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let summary = Summary::of(vec![4.0, 1.0, 2.0, 3.0]);
        let expected = Summary {
            repetitions: 4,
            min: 1.0,
            median: 2.5,
            max: 4.0,
        };
        assert_eq!(summary, Some(expected));
        assert_eq!(Summary::of(Vec::new()), None);
    }
}
