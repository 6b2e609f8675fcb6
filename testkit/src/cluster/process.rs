//! A program of a cluster: started in a network namespace, its log in a file, ended with its owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::netns;
use crate::runtimes::RuntimeError;

/// How often a program is asked whether it is ready.
const PAUSE: Duration = Duration::from_millis(50);
/// How many lines of a log a message has.
const LOG_LINES: usize = 15;

/// A running program, until dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in a namespace; its output goes to the end of `FOLDER/NAME.log`.
    pub(super) fn start(
        name: &str,
        namespace: &str,
        folder: &Path,
        mut command: Command,
    ) -> Result<Self, RuntimeError> {
        let log = folder.join(format!("{name}.log"));
        let failed = RuntimeError::io_error("opening a program's log");
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(&failed)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(&failed)?)
            .stderr(file);
        let spawned = netns::run_in(namespace, move || command.spawn())?;
        let child = spawned.map_err(RuntimeError::io_error("starting a cluster's program"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Waits until `is_ready`, at least for the timeout: what the question itself takes is not counted.
    pub(super) fn wait(
        &mut self,
        timeout: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), RuntimeError> {
        let mut waited = Duration::ZERO;
        while !is_ready() {
            let ended = self.child.try_wait();
            let ended = ended.map_err(RuntimeError::io_error("waiting for a program"))?;
            if ended.is_some() || waited > timeout {
                return Err(RuntimeError::Refused {
                    program: self.name.clone(),
                    said: self.log(),
                });
            }
            sleep(PAUSE);
            waited += PAUSE;
        }
        Ok(())
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("--- {}\n{end}\n", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process is killed, too.
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits where no event tells.
pub(super) fn sleep(pause: Duration) {
    #[allow(
        clippy::disallowed_methods,
        reason = "another program's readiness has no event to wait for"
    )]
    std::thread::sleep(pause);
}

/// A command of another program.
pub(super) fn command(program: &Path) -> Command {
    #[allow(
        clippy::disallowed_methods,
        reason = "the programs of a cluster are what a test drives Palisade with"
    )]
    Command::new(program)
}
