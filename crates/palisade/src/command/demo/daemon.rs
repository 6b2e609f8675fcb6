//! The agent of the demo: this executable, as a separate process inside the host namespace.

use super::interrupt::Interrupt;
use super::site::Site;
use crate::client::ApiClient;
use crate::exit::CommandError;
use palisade_agent::clock::{Clock, SystemClock};
use palisade_api::{Health, Status, path};
use palisade_sys::netns::run_in;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Interval at which the agent's status is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of a wait for the agent.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The running agent; killed on drop.
pub(super) struct Daemon {
    /// Client of its socket.
    pub(super) client: ApiClient,
    child: Child,
    log: PathBuf,
    interrupt: Interrupt,
    keep_running: bool,
}

impl Daemon {
    /// Starts the agent and waits until it responds. With `apart`, it does not get the terminal's signals.
    pub(super) fn start(
        site: &Site,
        interrupt: &Interrupt,
        apart: bool,
    ) -> Result<(Self, Status), CommandError> {
        let log = site.directory.join("agent.log");
        let child = spawn(site, &log, apart)?;
        let client = ApiClient::new(&socket(site));
        let mut daemon = Daemon {
            client,
            child,
            log,
            interrupt: interrupt.clone(),
            keep_running: false,
        };
        let status = daemon.wait_until("ready", |status| status.health != Health::Starting)?;
        Ok((daemon, status))
    }

    /// Leaves the agent running on drop.
    pub(super) fn keep(&mut self) {
        self.keep_running = true;
    }

    /// Process id of the agent.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status of the agent.
    pub(super) fn status(&self) -> Result<Status, CommandError> {
        self.client.get(path::STATUS)
    }

    /// Waits until a revision later than `after`, with this many policies, is in the kernel.
    pub(super) fn wait_for_revision(
        &mut self,
        after: u64,
        policies: usize,
    ) -> Result<Status, CommandError> {
        self.wait_until("enforcing the new policies", |status| {
            status.revision > after
                && status.realised == status.revision
                && status.policies == policies
        })
    }

    /// Kills the agent with SIGKILL, so that it cannot run any shutdown code.
    pub(super) fn kill(&mut self) -> Result<(), CommandError> {
        let failed = |error| CommandError::problem(format!("killing the agent: {error}"));
        self.child.kill().map_err(failed)?;
        self.child.wait().map(drop).map_err(failed)
    }

    fn wait_until(
        &mut self,
        what: &str,
        is_there: impl Fn(&Status) -> bool,
    ) -> Result<Status, CommandError> {
        let began = SystemClock.monotonic();
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
            if SystemClock.monotonic() - began > START_TIMEOUT {
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

    /// An error with the end of the agent's log, which is about to be removed.
    fn failure(&self, text: String) -> CommandError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(10)..].join("\n  ");
        CommandError::problem(if end.is_empty() {
            text
        } else {
            format!("{text}\nthe agent's last lines:\n  {end}")
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.keep_running {
            // It may have ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The socket of the demo's agent.
pub(super) fn socket(site: &Site) -> PathBuf {
    site.directory.join("palisade.sock")
}

#[allow(
    clippy::disallowed_methods,
    reason = "the demo starts an agent to kill it; the agent itself starts no process"
)]
fn spawn(site: &Site, log: &Path, apart: bool) -> Result<Child, CommandError> {
    let failed = |error: &dyn std::error::Error| {
        CommandError::problem(format!("starting the agent: {error}"))
    };
    let output = File::options()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| failed(&error))?;
    let mut command = Command::new("/proc/self/exe");
    // The environment of the user must not configure this agent.
    command.env_clear().arg0("palisade").arg("agent");
    command.arg("--socket").arg(socket(site));
    command.arg("--directory").arg(site.policy());
    command.arg("--state-dir").arg(site.directory.join("state"));
    if !site.ipv6 {
        command.args(["--pool-ipv6", "none"]);
    }
    if apart {
        // The agent must survive Ctrl-C in the terminal.
        command.process_group(0);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output);
    // A process starts in the network namespace of the thread that spawns it.
    run_in(&site.host, || command.spawn())
        .map_err(|error| failed(&error))?
        .map_err(|error| failed(&error))
}
