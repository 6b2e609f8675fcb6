//! One process for each case, so that its memory is its own and one that takes too long can be ended.

use crate::agent;
use crate::case::BenchCase;
use crate::report::{BenchOutcome, BenchReport, Summary};
use crate::stopwatch::now;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use palisade_testkit::lab::{self, Leak};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How the processes are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of the sizes of states.
    pub(crate) scale: f64,
    /// How long the processes of one case may take together.
    pub(crate) limit: Duration,
}

/// Measures a case and reports each of its figures.
pub(crate) fn measure(case: &BenchCase, bounds: Bounds, report: &mut BenchReport) {
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); case.figures.len()];
    let mut finished = 0;
    let failure = collect(case, bounds, &mut samples, &mut finished).err();
    for (figure, samples) in case.figures.iter().zip(samples) {
        let outcome = match (Summary::of(samples), &failure) {
            (_, Some(ChildError::Wrong(reason))) => BenchOutcome::Missing(reason.clone()),
            (Some(summary), _) => BenchOutcome::Measured(summary),
            (None, Some(ChildError::OverTheLimit)) => {
                let limit = bounds.limit * case.limits;
                BenchOutcome::Missing(format!("over the limit of {} s", limit.as_secs()))
            }
            (None, None) => BenchOutcome::Missing("the process gave no sample".to_owned()),
        };
        report.record(figure, &outcome);
    }
    if case.asks_the_oracle && finished == 0 && matches!(failure, Some(ChildError::OverTheLimit)) {
        report.record_unchecked(&case.name);
    }
}

enum ChildError {
    OverTheLimit,
    Wrong(String),
}

impl From<io::Error> for ChildError {
    fn from(error: io::Error) -> Self {
        ChildError::Wrong(error.to_string())
    }
}

/// Adds the samples of each process, and counts those that ended well: the oracle agreed.
fn collect(
    case: &BenchCase,
    bounds: Bounds,
    samples: &mut [Vec<f64>],
    finished: &mut usize,
) -> Result<(), ChildError> {
    let deadline = now() + bounds.limit * case.limits;
    for _ in 0..case.processes {
        let mut child = start(case, bounds)?;
        let lines = lines_of(&mut child)?;
        let mut figure = 0;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(now())) {
                Ok(line) => {
                    let of_child: Vec<f64> = serde_json::from_str(&line)
                        .map_err(|_| ChildError::Wrong(format!("not samples: {line}")))?;
                    if let Some(all) = samples.get_mut(figure) {
                        all.extend(of_child);
                    }
                    figure += 1;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    kill_and_clean_up(&mut child)?;
                    return Err(ChildError::OverTheLimit);
                }
            }
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(ChildError::Wrong(format!(
                "its process ended with {status}"
            )));
        }
        *finished += 1;
    }
    Ok(())
}

/// Ends a process that took too long, with the agent that it started, and removes the namespaces and
/// folders that it can no longer remove.
fn kill_and_clean_up(child: &mut Child) -> io::Result<()> {
    let process = child.id();
    let group = Pid::from_raw(i32::try_from(process).map_err(io::Error::other)?);
    killpg(group, Signal::SIGKILL)?;
    child.wait()?;
    for leak in lab::find_leaks()? {
        if let Leak::Namespace(name) = leak
            && name.contains(&format!("-{process}-"))
        {
            lab::delete_namespace(&name).map_err(io::Error::other)?;
        }
    }
    match std::fs::remove_dir_all(agent::folder(process)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn start(case: &BenchCase, bounds: Bounds) -> io::Result<Child> {
    #[allow(
        clippy::disallowed_methods,
        reason = "each case is measured by this very program, in a process of its own"
    )]
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--case", &case.name, "--scale", &bounds.scale.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // With a group of its own, it can be ended together with what it started.
        .process_group(0)
        .spawn()
}

/// What the process prints, line by line, until it ends.
fn lines_of(child: &mut Child) -> io::Result<Receiver<String>> {
    let output = child.stdout.take();
    let output = output.ok_or_else(|| io::Error::other("the process has no output"))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
