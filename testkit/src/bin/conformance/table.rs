//! The results as pages for people: one with versions, date and counts, and one for each suite with a row for each
//! test.

use crate::Suite;
use palisade_testkit::cluster::{PolicySuite, SpecOutcome, SpecResult};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// A run of suites.
pub(crate) struct ConformanceRun {
    /// On how many nodes.
    nodes: usize,
    /// The results, by suite.
    pub(crate) suites: Vec<(Suite, Vec<SpecResult>)>,
    /// The versions of what ran, by name.
    versions: BTreeMap<&'static str, String>,
}

impl ConformanceRun {
    /// A run, with what a node says of itself.
    pub(crate) fn new(
        nodes: usize,
        suites: Vec<(Suite, Vec<SpecResult>)>,
        node_info: &Value,
    ) -> Self {
        let named = [
            ("Kubernetes", "kubeletVersion"),
            ("container runtime", "containerRuntimeVersion"),
            ("kernel", "kernelVersion"),
        ];
        let version = |field| node_info[field].as_str().unwrap_or("unknown").to_owned();
        let versions = named.map(|(name, field)| (name, version(field)));
        Self {
            nodes,
            suites,
            versions: versions.into(),
        }
    }

    /// The results of a suite, where it ran.
    fn results(&self, suite: Suite) -> Option<&[SpecResult]> {
        let mut suites = self.suites.iter();
        let found = suites.find(|(of, _)| *of == suite)?;
        Some(&found.1)
    }

    /// Its heading of a column.
    fn column(&self) -> String {
        format!(
            "{} node{}",
            self.nodes,
            if self.nodes == 1 { "" } else { "s" }
        )
    }
}

impl Suite {
    /// What is tested, as people call it.
    fn title(self) -> &'static str {
        match self {
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Policies(PolicySuite::ClusterNetworkPolicy) => "ClusterNetworkPolicy",
            Self::Policies(PolicySuite::AdminNetworkPolicy) => {
                "AdminNetworkPolicy and BaselineAdminNetworkPolicy"
            }
        }
    }

    /// What the tests are, and what is to be known about their run.
    fn introduction(self) -> String {
        match self {
            Self::NetworkPolicy => "The NetworkPolicy specs of Kubernetes' own end-to-end suite. \
                Left out are specs that open SCTP sockets, where the\nkernel has none.\n"
                .into(),
            Self::Policies(suite) => {
                let kinds = match suite {
                    PolicySuite::ClusterNetworkPolicy => {
                        "ClusterNetworkPolicy v1alpha2, in both tiers"
                    }
                    PolicySuite::AdminNetworkPolicy => {
                        "AdminNetworkPolicy and BaselineAdminNetworkPolicy v1alpha1"
                    }
                };
                format!(
                    "All conformance tests of the Network Policy API {} for {kinds},\n\
                    with those of the experimental channel: named ports and nodes as peers. `domainNames` has no test\n\
                    there; Palisade holds it closed. A workload of the suite needs two nodes.\n",
                    suite.release()
                )
            }
        }
    }
}

/// The page of all suites, which refers to the page of each in a folder of this name.
pub(crate) fn page(runs: &[ConformanceRun], folder: &str) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
        The suites of those who define the APIs, run against Palisade as `deploy/palisade.yaml` installs it, in a real\n\
        cluster on one machine. Written by `make conformance`; edits here are lost.\n\n",
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
    page.push_str(
        "- kube-proxy in nftables mode, both IP families\n\n\
        | suite | nodes | passed | failed | left out | median | all |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, suite) in Suite::ALL {
        for run in runs {
            if let Some(specs) = run.results(suite) {
                let link = format!("[{}]({folder}/{name}.md)", suite.title());
                page.push_str(&counts(&link, run.nodes, specs));
            }
        }
    }
    page
}

/// The page of a suite; `None` where it did not run.
pub(crate) fn suite_page(runs: &[ConformanceRun], suite: Suite) -> Option<String> {
    let ran: Vec<_> = runs
        .iter()
        .filter_map(|run| Some((run, run.results(suite)?)))
        .collect();
    let heading = format!("# {}\n\n{}\n", suite.title(), suite.introduction());
    (!ran.is_empty()).then(|| heading + &rows(&ran))
}

/// The row of a suite in the table of all.
fn counts(suite: &str, nodes: usize, specs: &[SpecResult]) -> String {
    let count = |wanted: fn(&SpecOutcome) -> bool| {
        specs.iter().filter(|spec| wanted(&spec.outcome)).count()
    };
    let ran = specs
        .iter()
        .filter(|spec| spec.outcome != SpecOutcome::LeftOut);
    let mut times: Vec<Duration> = ran.map(|spec| spec.took).collect();
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let all: Duration = times.iter().sum();
    format!(
        "| {suite} | {nodes} | {} | {} | {} | {:.0} s | {:.0} s |\n",
        count(|outcome| *outcome == SpecOutcome::Passed),
        count(|outcome| matches!(outcome, SpecOutcome::Failed(_))),
        count(|outcome| *outcome == SpecOutcome::LeftOut),
        median.as_secs_f64(),
        all.as_secs_f64()
    )
}

/// The table of a suite: a row for each test, in the order of the first run, and a column for each run.
fn rows(ran: &[(&ConformanceRun, &[SpecResult])]) -> String {
    let mut table = String::from("| test |");
    for (run, _) in ran {
        let _ = write!(table, " {} |", run.column());
    }
    let _ = writeln!(table, "\n|---|{}", "---|".repeat(ran.len()));
    let mut names: Vec<&String> = Vec::new();
    for spec in ran.iter().flat_map(|(_, specs)| *specs) {
        if !names.contains(&&spec.name) {
            names.push(&spec.name);
        }
    }
    for name in names {
        let _ = write!(table, "| {} |", name.replace('|', "\\|"));
        for (_, specs) in ran {
            let spec = specs.iter().find(|spec| spec.name == *name);
            let _ = write!(table, " {} |", spec.map_or("not run".into(), cell));
        }
        table.push('\n');
    }
    table
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
