//! The conformance tests of the Network Policy API, run against a cluster of two nodes or more: one of their
//! workloads needs the ports of two nodes.
//!
//! Everything in them is run, also what belongs to the experimental channel; a test that skips itself has failed.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::conformance::{SpecOutcome, SpecResult};
use super::process::command;
use super::{Cluster, conformance};
use crate::interrupt::Interrupt;
use crate::runtimes::RuntimeError;

/// The conformance tests of one version of the Network Policy API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicySuite {
    /// Those of v1alpha2: `ClusterNetworkPolicy`.
    ClusterNetworkPolicy,
    /// Those of v1alpha1: `AdminNetworkPolicy` and `BaselineAdminNetworkPolicy`.
    AdminNetworkPolicy,
}

/// The test that all others are in.
const ROOT: &str = "TestConformance";

impl PolicySuite {
    /// The release of the Network Policy API that the tests are of.
    #[must_use]
    pub fn release(self) -> &'static str {
        let module = match self {
            Self::ClusterNetworkPolicy => include_str!("../../go-policy-api/v1alpha2/go.mod"),
            Self::AdminNetworkPolicy => include_str!("../../go-policy-api/v1alpha1/go.mod"),
        };
        let mut lines = module.lines();
        let release = lines.find_map(|line| {
            let required = line.trim().strip_prefix("sigs.k8s.io/network-policy-api ");
            required.map(str::trim)
        });
        release.unwrap_or("of an unknown release")
    }

    fn program(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy => "policy-v1alpha2.test",
            Self::AdminNetworkPolicy => "policy-v1alpha1.test",
        }
    }
}

impl Cluster {
    /// Installs the definitions of the Network Policy API, of all its versions.
    ///
    /// # Errors
    /// If the server does not have them within a minute.
    pub fn install_policy_api(&self) -> Result<(), RuntimeError> {
        let definitions = self.programs.definitions().join("policy-api");
        let definitions = definitions.display().to_string();
        let kubectl = self.kubectl();
        kubectl.run(&["apply", "--server-side", "-f", &definitions])?;
        let established = ["--for=condition=Established", "crd", "--all"];
        let wait = [&["wait", "--timeout=60s"], &established[..]].concat();
        kubectl.run(&wait).map(drop)
    }

    /// Runs the tests whose names a regular expression finds, or all, and answers with the result of each, in
    /// their order. What they print goes to the end of a file.
    ///
    /// # Errors
    /// If the suite does not run to its end, or is interrupted.
    pub fn run_policy_suite(
        &self,
        suite: PolicySuite,
        focus: &str,
        log: &Path,
        interrupt: Option<&Interrupt>,
    ) -> Result<Vec<SpecResult>, RuntimeError> {
        let path = self.folder().join(suite.program());
        let output = File::create(&path);
        let output = output.map_err(RuntimeError::io_error("making the output of a suite"))?;
        let errors = output.try_clone();
        let errors = errors.map_err(RuntimeError::io_error("making the output of a suite"))?;
        let mut program = command(&self.programs.programs().join(suite.program()));
        program
            .args(["-test.v", "-test.timeout=0"])
            .arg(format!("-test.run=^{ROOT}$/{focus}"))
            .env("KUBECONFIG", self.control_plane.admin_kubeconfig())
            .current_dir(self.folder())
            .stdout(output)
            .stderr(errors);
        let ended = conformance::run_suite(self.lan.name(), suite.program(), program, interrupt)?;
        let printed = fs::read_to_string(&path);
        let printed = printed.map_err(RuntimeError::io_error("reading the output of a suite"))?;
        let whole = File::options().create(true).append(true).open(log);
        let appended = whole.and_then(|mut whole| whole.write_all(printed.as_bytes()));
        appended.map_err(RuntimeError::io_error("writing the log of a suite"))?;
        let results = results(&printed);
        let failed = |spec: &SpecResult| matches!(spec.outcome, SpecOutcome::Failed(_));
        match results {
            Some(results) if ended.success() != results.iter().any(failed) => Ok(results),
            _ => Err(RuntimeError::Refused {
                program: format!("{} ({ended})", suite.program()),
                said: format!("it did not come to its end; see {}", log.display()),
            }),
        }
    }
}

/// The results of tests, in the order in which they ended: of each test that has no others in it, and of one that
/// failed although all in it passed. `None` if the test that all others are in has no result, or no others.
fn results(printed: &str) -> Option<Vec<SpecResult>> {
    let mut ended = Vec::new();
    // What each test said last.
    let mut said = std::collections::BTreeMap::new();
    let mut speaker = "";
    for line in printed.lines() {
        if let Some((action, name)) = line.strip_prefix("=== ").and_then(|l| l.split_once(' ')) {
            speaker = if action == "CONT" {
                speaker
            } else {
                name.trim()
            };
        } else if let Some(result) = line.trim_start().strip_prefix("--- ") {
            ended.extend(parse_result(result));
        } else if !matches!(line.trim(), "" | "PASS" | "FAIL") {
            said.insert(speaker, without_place(line.trim()));
        }
    }
    ended.iter().find(|(_, name, _)| *name == ROOT)?;
    let is_in = |one: &str, other: &str| {
        one.strip_prefix(other)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let mut found = Vec::new();
    for (word, name, took) in &ended {
        let inner = ended.iter().filter(|(_, other, _)| is_in(other, name));
        let mut words = inner.map(|(word, ..)| *word).peekable();
        let is_leaf = words.peek().is_none();
        if !is_leaf && (*word == "PASS" || words.any(|word| word != "PASS")) {
            continue;
        }
        let message = || said.get(name).copied().unwrap_or("it says nothing");
        found.push(SpecResult {
            name: readable(name),
            outcome: match *word {
                "PASS" => SpecOutcome::Passed,
                "SKIP" => SpecOutcome::Failed(format!("skipped: {}", message())),
                _ => SpecOutcome::Failed(message().to_owned()),
            },
            took: *took,
        });
    }
    found.retain(|spec| spec.name != ROOT || spec.outcome != SpecOutcome::Passed);
    (!found.is_empty()).then_some(found)
}

/// `PASS: NAME (1.23s)`.
fn parse_result(line: &str) -> Option<(&str, &str, Duration)> {
    let (word, rest) = line.split_once(": ")?;
    let (name, took) = rest.rsplit_once(" (")?;
    let took = took.strip_suffix("s)")?.parse().ok()?;
    let took = Duration::try_from_secs_f64(took).ok()?;
    matches!(word, "PASS" | "FAIL" | "SKIP").then_some((word, name, took))
}

/// A line of a log without the place in the source that said it.
fn without_place(line: &str) -> &str {
    let said = line.split_once(": ");
    said.filter(|(place, _)| place.contains(".go:"))
        .map_or(line, |(_, said)| said)
}

/// The names as they are in the source: testing has no spaces in them.
fn readable(name: &str) -> String {
    let name = name.strip_prefix(ROOT).unwrap_or(name);
    let name = name.trim_start_matches('/');
    let name = if name.is_empty() { ROOT } else { name };
    name.replacen('/', ": ", 1).replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
=== RUN   TestConformance
    suite.go:149: Test Setup: Applying base manifests
=== RUN   TestConformance/Ingress
    apply.go:158: Creating ingress ClusterNetworkPolicy
=== RUN   TestConformance/Ingress/Should_allow_one
=== RUN   TestConformance/Ingress/Should_deny_one
    helper.go:102: FAILED Command was [/agnhost connect]
    helper.go:103: Expected connection to fail, but instead it successfully connected.
=== NAME  TestConformance/Ingress
    apply.go:170: Deleting ingress ClusterNetworkPolicy
=== RUN   TestConformance/Ports
    suite.go:199: Skipping Ports: suite does not support NamedPorts
=== RUN   TestConformance/Cleanup
=== RUN   TestConformance/Cleanup/Should_pass
=== NAME  TestConformance/Cleanup
    apply.go:171: error deleting resource
--- FAIL: TestConformance (90.10s)
    --- FAIL: TestConformance/Ingress (6.00s)
        --- PASS: TestConformance/Ingress/Should_allow_one (1.50s)
        --- FAIL: TestConformance/Ingress/Should_deny_one (4.50s)
    --- SKIP: TestConformance/Ports (0.00s)
    --- FAIL: TestConformance/Cleanup (3.00s)
        --- PASS: TestConformance/Cleanup/Should_pass (1.00s)
FAIL
";

    #[test]
    fn every_test_has_its_result_and_none_is_lost() {
        let found = results(PRINTED).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|spec| (&*spec.name, spec.outcome.clone(), spec.took.as_millis()))
            .collect();
        let failed = |text: &str| SpecOutcome::Failed(text.to_owned());
        let deny = "Expected connection to fail, but instead it successfully connected.";
        let skip = "skipped: Skipping Ports: suite does not support NamedPorts";
        assert_eq!(
            names,
            [
                ("Ingress: Should allow one", SpecOutcome::Passed, 1500),
                ("Ingress: Should deny one", failed(deny), 4500),
                // A test that skips itself has not passed.
                ("Ports", failed(skip), 0),
                // One that cannot be cleared away is not hidden by what is in it.
                ("Cleanup", failed("error deleting resource"), 3000),
                ("Cleanup: Should pass", SpecOutcome::Passed, 1000),
            ]
        );
    }

    #[test]
    fn a_suite_that_did_not_end_has_no_results() {
        let cut = PRINTED.replace("--- FAIL: TestConformance (90.10s)\n", "");
        assert_eq!(results(&cut), None);
        assert_eq!(results("--- PASS: TestConformance (0.01s)\nPASS\n"), None);
        // Its pods do not start: no test has run.
        let setup = results(
            "=== RUN   TestConformance\n    helper.go:1: no pods\n--- FAIL: TestConformance (300.00s)\n",
        );
        let setup = setup.unwrap();
        assert_eq!(setup.len(), 1);
        assert_eq!(setup[0].outcome, SpecOutcome::Failed("no pods".into()));
    }

    #[test]
    fn the_releases_are_those_of_the_modules() {
        assert_eq!(PolicySuite::ClusterNetworkPolicy.release(), "v0.2.0");
        assert_eq!(PolicySuite::AdminNetworkPolicy.release(), "v0.1.7");
    }
}
