//! The Prometheus text format, version 0.0.4.

use super::table::{METRICS, Metric};
use palisade_enforcer::metrics::Histogram;
use palisade_text::escape_metric_label;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Its `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Samples by metric.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<&'static str, Vec<String>>,
    /// Metrics of other names, as text.
    appended: String,
}

impl Exposition {
    /// Adds a sample with these label values.
    pub fn add_sample(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        let line = format!(
            "{}{} {value}",
            metric.name,
            label_text(metric, labels, None)
        );
        self.samples.entry(metric.name).or_default().push(line);
    }

    /// Adds a histogram with these label values.
    pub fn add_histogram(&mut self, metric: &Metric, labels: &[&str], histogram: &Histogram) {
        self.add_buckets(metric, labels, histogram.cumulative(), histogram.sum());
    }

    /// Adds a histogram of other buckets: each upper bound in seconds with the cumulative count, the unbounded one
    /// last, and the sum of all durations.
    pub fn add_buckets(
        &mut self,
        metric: &Metric,
        labels: &[&str],
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: Duration,
    ) {
        let lines = self.samples.entry(metric.name).or_default();
        let name = metric.name;
        let mut count = 0;
        for (bound, so_far) in buckets {
            let bound = if bound.is_infinite() {
                "+Inf".to_owned()
            } else {
                bound.to_string()
            };
            let braces = label_text(metric, labels, Some(&bound));
            lines.push(format!("{name}_bucket{braces} {so_far}"));
            count = so_far;
        }
        let braces = label_text(metric, labels, None);
        let seconds = sum.as_secs_f64();
        lines.push(format!("{name}_sum{braces} {seconds}"));
        lines.push(format!("{name}_count{braces} {count}"));
    }

    /// Appends metrics whose names are not of the table, in the same format.
    pub fn append_text(&mut self, text: &str) {
        self.appended.push_str(text);
    }

    /// The text, with all metrics in the order of the table, and then what was appended.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for metric in METRICS {
            let Metric { name, help, .. } = metric;
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}");
            let _ = writeln!(out, "# TYPE {name} {}", metric.kind.text());
            for line in self.samples.get(name).into_iter().flatten() {
                let _ = writeln!(out, "{line}");
            }
        }
        out.push_str(&self.appended);
        out
    }
}

fn label_text(metric: &Metric, labels: &[&str], bound: Option<&str>) -> String {
    let named = metric.labels.iter().copied().zip(labels.iter().copied());
    let pairs: Vec<String> = named
        .chain(bound.map(|bound| ("le", bound)))
        .map(|(name, value)| format!("{name}=\"{}\"", escape_metric_label(value)))
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}
