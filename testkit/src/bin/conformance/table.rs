//! The results as a page for people: versions, date, and a row for each spec.

use palisade_testkit::cluster::{SpecOutcome, SpecResult};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// A run of the suite.
pub(crate) struct ConformanceRun {
    /// On how many nodes.
    nodes: usize,
    /// The results.
    pub(crate) specs: Vec<SpecResult>,
    /// The versions of what ran, by name.
    versions: BTreeMap<&'static str, String>,
}

impl ConformanceRun {
    /// A run, with what a node says of itself.
    pub(crate) fn new(nodes: usize, specs: Vec<SpecResult>, node_info: &Value) -> Self {
        let named = [
            ("Kubernetes", "kubeletVersion"),
            ("container runtime", "containerRuntimeVersion"),
            ("kernel", "kernelVersion"),
        ];
        let version = |field| node_info[field].as_str().unwrap_or("unknown").to_owned();
        let versions = named.map(|(name, field)| (name, version(field)));
        Self {
            nodes,
            specs,
            versions: versions.into(),
        }
    }
}

/// The page.
pub(crate) fn page(runs: &[ConformanceRun]) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
        The NetworkPolicy specs of Kubernetes' own end-to-end suite, run against Palisade as `deploy/palisade.yaml`\n\
        installs it. Written by `make conformance`; edits here are lost.\n\n",
    );
    let _ = writeln!(
        page,
        "- Palisade {}, {}",
        env!("CARGO_PKG_VERSION"),
        today()
    );
    for (name, version) in runs.first().iter().flat_map(|run| &run.versions) {
        let _ = writeln!(page, "- {name} {version}");
    }
    page.push_str("- kube-proxy in nftables mode, both IP families\n\n| nodes | passed | failed | left out | median | all |\n|---|---|---|---|---|---|\n");
    for run in runs {
        let count = |wanted: fn(&SpecOutcome) -> bool| {
            run.specs
                .iter()
                .filter(|spec| wanted(&spec.outcome))
                .count()
        };
        let ran = run
            .specs
            .iter()
            .filter(|spec| spec.outcome != SpecOutcome::LeftOut);
        let mut times: Vec<Duration> = ran.map(|spec| spec.took).collect();
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let all: Duration = times.iter().sum();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {:.0} s | {:.0} s |",
            run.nodes,
            count(|outcome| *outcome == SpecOutcome::Passed),
            count(|outcome| matches!(outcome, SpecOutcome::Failed(_))),
            count(|outcome| *outcome == SpecOutcome::LeftOut),
            median.as_secs_f64(),
            all.as_secs_f64()
        );
    }
    page.push_str(
        "\nLeft out are specs that open SCTP sockets, where the kernel has none.\n\n| spec |",
    );
    for run in runs {
        let _ = write!(
            page,
            " {} node{} |",
            run.nodes,
            if run.nodes == 1 { "" } else { "s" }
        );
    }
    let _ = writeln!(page, "\n|---|{}", "---|".repeat(runs.len()));
    let names: Vec<&String> = runs
        .iter()
        .flat_map(|run| run.specs.iter().map(|spec| &spec.name))
        .collect();
    let names: std::collections::BTreeSet<&String> = names.into_iter().collect();
    for name in names {
        let _ = write!(page, "| {} |", name.replace('|', "\\|"));
        for run in runs {
            let spec = run.specs.iter().find(|spec| spec.name == *name);
            let _ = write!(page, " {} |", spec.map_or("not run".into(), cell));
        }
        page.push('\n');
    }
    page
}

fn cell(spec: &SpecResult) -> String {
    match &spec.outcome {
        SpecOutcome::Passed => format!("passed, {:.0} s", spec.took.as_secs_f64()),
        SpecOutcome::LeftOut => "left out".into(),
        SpecOutcome::Failed(why) => {
            let line = why.lines().next().unwrap_or_default();
            format!("**failed**: {}", line.replace('|', "\\|"))
        }
    }
}

/// The date, as year, month and day.
fn today() -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "the page names the date of the run"
    )]
    let date = std::process::Command::new("date")
        .args(["-u", "+%F"])
        .output();
    date.map_or_else(
        |_| "on an unknown date".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
