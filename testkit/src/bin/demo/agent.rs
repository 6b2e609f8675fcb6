//! The agent of the demo, as a user runs it: a process in the host's namespace, and commands that call it.

use crate::error::DemoError;
use crate::interrupt::DemoInterrupt;
use crate::site::Site;
use palisade_api::{Health, Status};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Interval at which the agent's status is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of a wait for the agent.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The running agent; killed on drop.
pub(crate) struct AgentProcess {
    program: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    child: Child,
    interrupt: DemoInterrupt,
    keep_running: bool,
}

impl AgentProcess {
    /// Starts the agent, with these arguments besides, and waits until it responds. With `apart`, it does not get the
    /// terminal's signals.
    pub(crate) fn start(
        site: &Site,
        interrupt: &DemoInterrupt,
        apart: bool,
        more: &[&str],
    ) -> Result<(Self, Status), DemoError> {
        let mut agent = AgentProcess {
            program: site.program("palisade"),
            socket: site.socket(),
            log: site.directory().join("agent.log"),
            child: spawn(site, apart, more)?,
            interrupt: interrupt.clone(),
            keep_running: false,
        };
        let status = agent.wait_until("ready", |status| status.health != Health::Starting)?;
        Ok((agent, status))
    }

    /// Leaves the agent running on drop.
    pub(crate) fn keep(&mut self) {
        self.keep_running = true;
    }

    /// Process id of the agent.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status of the agent.
    pub(crate) fn status(&self) -> Result<Status, DemoError> {
        let output = self
            .command(&["status", "-o", "json"])
            .output()
            .map_err(|error| self.failure_to_run(&error))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let reason = match String::from_utf8_lossy(&output.stderr).trim() {
                "" => format!("reading the agent's status: {error}"),
                reason => reason.to_owned(),
            };
            DemoError::problem(reason)
        })
    }

    /// Runs a command of the command line; it prints its answer.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<(), DemoError> {
        let ended = self
            .command(arguments)
            .status()
            .map_err(|error| self.failure_to_run(&error))?;
        if ended.success() {
            Ok(())
        } else {
            Err(DemoError::problem(format!(
                "palisade {}: {ended}",
                arguments.join(" ")
            )))
        }
    }

    /// Waits until a revision later than `after`, with this many policies, is in the kernel.
    pub(crate) fn wait_for_revision(
        &mut self,
        after: u64,
        policies: usize,
    ) -> Result<Status, DemoError> {
        self.wait_until("enforcing the new policies", |status| {
            status.revision > after
                && status.realised == status.revision
                && status.policies == policies
        })
    }

    /// Kills the agent with SIGKILL, so that it cannot run any shutdown code.
    pub(crate) fn kill(&mut self) -> Result<(), DemoError> {
        let failed = |error| DemoError::problem(format!("killing the agent: {error}"));
        self.child.kill().map_err(failed)?;
        self.child.wait().map(drop).map_err(failed)
    }

    fn wait_until(
        &mut self,
        what: &str,
        is_there: impl Fn(&Status) -> bool,
    ) -> Result<Status, DemoError> {
        let began = crate::now();
        loop {
            let seen = self.status();
            match &seen {
                Ok(status) if status.health == Health::Degraded => {
                    return Err(self.failure(format!(
                        "the agent is degraded: {}",
                        status.reasons.join("; ")
                    )));
                }
                Ok(status) if is_there(status) => return seen,
                _ => {}
            }
            if let Ok(Some(ended)) = self.child.try_wait() {
                return Err(self.failure(format!("the agent ended: {ended}")));
            }
            if crate::now() - began > START_TIMEOUT {
                let last = match seen {
                    Ok(status) => format!(
                        "revision {}, {} in the kernel",
                        status.revision, status.realised
                    ),
                    Err(failure) => failure.message,
                };
                return Err(self.failure(format!(
                    "the agent is not {what} after {} s: {last}",
                    START_TIMEOUT.as_secs()
                )));
            }
            self.interrupt.wait(POLL_INTERVAL)?;
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the demo uses the command line as its user does"
    )]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--socket")
            .arg(&self.socket)
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn failure_to_run(&self, error: &std::io::Error) -> DemoError {
        DemoError::problem(format!("running {}: {error}", self.program.display()))
    }

    /// An error with the end of the agent's log, which is about to be removed.
    fn failure(&self, text: String) -> DemoError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(10)..].join("\n  ");
        DemoError::problem(if end.is_empty() {
            text
        } else {
            format!("{text}\nthe agent's last lines:\n  {end}")
        })
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        if !self.keep_running {
            // It may have ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the demo starts an agent to kill it"
)]
fn spawn(site: &Site, apart: bool, more: &[&str]) -> Result<Child, DemoError> {
    let failed = |error: std::io::Error| DemoError::caused("starting the agent", &error);
    let log = File::options()
        .create(true)
        .append(true)
        .open(site.directory().join("agent.log"))
        .map_err(failed)?;
    let mut command = Command::new(site.program("palisade"));
    // The environment of the user must not configure this agent.
    command.env_clear().arg0("palisade").arg("agent");
    command.arg("--socket").arg(site.socket());
    command.arg("--directory").arg(site.policy());
    command
        .arg("--state-dir")
        .arg(site.directory().join("state"));
    command.args(["--dataplane", &site.dataplane]).args(more);
    if !site.has_ipv6() {
        command.args(["--ipam-pool", "10.245.0.0/24"]);
    }
    if apart {
        // The agent must survive Ctrl-C in the terminal.
        command.process_group(0);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // A process starts in the network namespace of the thread that spawns it.
    site.lab
        .run_in(site.lab.host(), || command.spawn())
        .map_err(|error| DemoError::caused("starting the agent", &error))?
        .map_err(failed)
}
