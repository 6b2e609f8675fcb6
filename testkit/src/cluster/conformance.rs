//! Upstream's end-to-end specs of NetworkPolicy, run against a cluster.
//!
//! Specs that open SCTP sockets are left out, by name, where the kernel has none; nothing else is.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde_json::Value;

use super::Cluster;
use super::process::{command, sleep};
use crate::interrupt::Interrupt;
use crate::lab::netns;
use crate::runtimes::{RuntimeError, parse_json};

/// What a spec of the suite came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecResult {
    /// Its full name.
    pub name: String,
    /// What it came to.
    pub outcome: SpecOutcome,
    /// How long it took.
    pub took: Duration,
}

/// What a spec came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecOutcome {
    /// Passed.
    Passed,
    /// Failed, and with what message.
    Failed(String),
    /// Not run: the kernel has no SCTP sockets.
    LeftOut,
}

/// How often the suite is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(200);
/// How the names of upstream's specs begin.
const SUITE: &str = "[sig-network] Netpol";
/// In the names of specs that open SCTP sockets.
const SCTP: &str = "[Feature:SCTPConnectivity]";

impl Cluster {
    /// Runs the specs whose names a regular expression finds, or all, and answers with the result of each, by
    /// name. What they print goes to the end of a file.
    ///
    /// # Errors
    /// If the suite does not run to its end, or is interrupted, with the end of what it printed.
    pub fn run_specs(
        &self,
        focus: &str,
        log: &Path,
        interrupt: Option<&Interrupt>,
    ) -> Result<Vec<SpecResult>, RuntimeError> {
        let report = self.folder().join("conformance.json");
        let output = File::options().create(true).append(true).open(log);
        let output = output.map_err(RuntimeError::io_error("opening the log of the suite"))?;
        let errors = output.try_clone();
        let errors = errors.map_err(RuntimeError::io_error("opening the log of the suite"))?;
        let mut suite = command(&self.programs.programs().join("netpol.test"));
        suite
            .arg(format!("--ginkgo.focus={}.*{focus}", pattern(SUITE)))
            .arg(format!("--ginkgo.json-report={}", report.display()))
            .args([
                "--ginkgo.no-color",
                "--ginkgo.v",
                "--ginkgo.timeout=3h",
                "--test.timeout=0",
            ])
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=0"])
            .arg(format!(
                "--kubeconfig={}",
                self.control_plane.admin_kubeconfig().display()
            ))
            .arg(format!(
                "--kubectl-path={}",
                self.programs.programs().join("kubectl").display()
            ))
            .current_dir(self.folder())
            .stdout(output)
            .stderr(errors);
        if !has_sctp() {
            suite.arg(format!("--ginkgo.skip={}", pattern(SCTP)));
        }
        let _ = fs::remove_file(&report);
        // Its exit code says whether a spec failed, and so does its report.
        let ended = run_suite(self.lan.name(), "netpol.test", suite, interrupt)?;
        let text = fs::read_to_string(&report).map_err(|_| RuntimeError::Refused {
            program: format!("netpol.test ({ended})"),
            said: format!("it wrote no report; see {}", log.display()),
        })?;
        results(&parse_json(&text, "netpol.test")?, focus)
    }
}

/// Runs a suite in a namespace to its end, or until the interrupt.
pub(super) fn run_suite(
    namespace: &str,
    name: &str,
    mut suite: Command,
    interrupt: Option<&Interrupt>,
) -> Result<ExitStatus, RuntimeError> {
    let failed = RuntimeError::io_error("running the suite");
    let spawned = netns::run_in(namespace, move || suite.spawn())?;
    let mut suite = spawned.map_err(&failed)?;
    loop {
        if let Some(ended) = suite.try_wait().map_err(&failed)? {
            return Ok(ended);
        }
        if interrupt.is_some_and(|interrupt| interrupt.wait(PAUSE)) {
            // One that has ended already needs no end.
            let _ = suite.kill();
            let _ = suite.wait();
            return Err(RuntimeError::Refused {
                program: name.to_owned(),
                said: "interrupted; everything is removed".into(),
            });
        }
        if interrupt.is_none() {
            sleep(PAUSE);
        }
    }
}

/// Whether the kernel has SCTP sockets.
#[must_use]
pub fn has_sctp() -> bool {
    let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::STREAM);
    socket2::Socket::new(domain, kind, Some(socket2::Protocol::from(132))).is_ok()
}

/// A regular expression that finds a text with brackets.
fn pattern(text: &str) -> String {
    text.replace('[', r"\[").replace(']', r"\]")
}

/// The specs of a report; those that the focus does not find are not among them.
fn results(report: &Value, focus: &str) -> Result<Vec<SpecResult>, RuntimeError> {
    let suites = report.as_array().into_iter().flatten();
    let reports = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    let mut specs = Vec::new();
    for spec in reports {
        let message = || {
            spec["Failure"]["Message"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let state = spec["State"].as_str().unwrap_or_default();
        if spec["LeafNodeType"] != "It" {
            if !matches!(state, "passed" | "skipped") {
                return Err(RuntimeError::Refused {
                    program: "netpol.test, before or after all specs".into(),
                    said: message(),
                });
            }
            continue;
        }
        let parts = spec["ContainerHierarchyTexts"]
            .as_array()
            .into_iter()
            .flatten();
        let parts = parts.chain([&spec["LeafNodeText"]]);
        let name = parts
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" ");
        if !name.starts_with(SUITE) {
            continue;
        }
        let outcome = match state {
            "passed" => SpecOutcome::Passed,
            "skipped" | "pending" if name.contains(SCTP) && !has_sctp() => SpecOutcome::LeftOut,
            "skipped" if message().is_empty() && !focus.is_empty() => continue,
            _ => SpecOutcome::Failed(format!("{state}: {}", message())),
        };
        specs.push(SpecResult {
            name,
            outcome,
            took: Duration::from_nanos(spec["RunTime"].as_u64().unwrap_or_default()),
        });
    }
    specs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(leaf: &str, state: &str, message: &str) -> Value {
        json!({
            "LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeText": leaf,
            "State": state, "RunTime": 2_000_000_000_u64, "Failure": {"Message": message},
        })
    }

    #[test]
    fn failures_are_named_and_what_the_focus_leaves_is_not() {
        let specs = json!([{"SpecReports": [
            spec("b fails", "failed", "no route"),
            spec("a passes", "passed", ""),
            spec("is cut", "timedout", ""),
            spec("has no nodes", "skipped", "needs two nodes"),
            spec("is of another focus", "skipped", ""),
        ]}]);
        let found = results(&specs, "Netpol").unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|spec| (&*spec.name, spec.outcome.clone()))
            .collect();
        let failed = |text: &str| SpecOutcome::Failed(text.to_owned());
        assert_eq!(
            names,
            [
                ("[sig-network] Netpol a passes", SpecOutcome::Passed),
                ("[sig-network] Netpol b fails", failed("failed: no route")),
                // A spec that skips itself has not passed.
                (
                    "[sig-network] Netpol has no nodes",
                    failed("skipped: needs two nodes")
                ),
                ("[sig-network] Netpol is cut", failed("timedout: ")),
            ]
        );
        assert_eq!(found[0].took, Duration::from_secs(2));
    }

    #[test]
    fn a_suite_that_fails_before_its_specs_has_no_results() {
        let broken = json!([{"SpecReports": [{
            "LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "no nodes"},
        }]}]);
        assert!(
            results(&broken, "")
                .unwrap_err()
                .to_string()
                .contains("no nodes")
        );
    }
}
