//! Whole clusters offline: the real program on a dump of one, which never fits its memory whole.
//!
//! What is measured is the program as a person runs it, from its start to its end, in seconds of CPU: it
//! has one thread, and what else the machine does is not its doing. "Past reading" is
//! what a command takes longer than `validate` takes in the same round, which only reads; twice that for
//! `diff`, which reads two dumps.

mod preview;

use crate::agent;
use crate::case::{BenchCase, Samples};
use crate::heap;
use crate::report::Figure;
use crate::states::scaled;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use palisade_testkit::dump::ClusterDump;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUNDS: usize = 3;
/// How often the memory of the program is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// In a second, of what the kernel counts CPU time in for programs.
const TICKS: f64 = 100.0;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![cluster(), preview::case()]
}

/// 150,000 pods of 5,000 workloads in 200 namespaces, 10,000 policies; afterwards one policy more.
fn dump(scale: f64) -> [ClusterDump; 2] {
    let before = ClusterDump {
        pods: scaled(150_000, scale),
        workloads: scaled(5_000, scale),
        namespaces: scaled(200, scale),
        policies: scaled(10_000, scale),
    };
    let after = ClusterDump {
        policies: before.policies + 1,
        ..before
    };
    [before, after]
}

fn cluster() -> BenchCase {
    let name = "offline/cluster";
    let figure = |what: &str, unit| Figure::of(format!("{name}/{what}"), unit);
    let read = format!("{name}/read");
    BenchCase {
        name: name.to_owned(),
        figures: vec![
            figure("read", "s"),
            figure("read/rate", "MB/s").with_reference("aim", 100.0),
            figure("read/peak_rss", "MiB").with_reference("aim", 400.0),
            figure("explain", "ratio")
                .relative_to(&read)
                .with_reference("aim", 1.0),
            figure("connections/past-reading", "s").with_reference("aim", 5.0),
            figure("connections/peak_rss", "MiB"),
            figure("diff/past-reading", "s").with_reference("aim", 5.0),
            figure("diff/peak_rss", "MiB"),
        ],
        processes: 1,
        asks_the_oracle: false,
        limits: 5,
        measure: Box::new(measure),
    }
}

/// The files, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("    removing {}: {error}", self.0.display());
        }
    }
}

impl Folder {
    fn new() -> Result<Self, String> {
        let path = agent::folder(std::process::id());
        let made = std::fs::create_dir_all(&path);
        made.map_err(|error| format!("making {}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    /// Writes a dump; its path, and how many bytes it has.
    fn write(&self, name: &str, dump: ClusterDump) -> Result<(String, u64), String> {
        let path = self.0.join(name);
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            dump.write(&mut file)?;
            file.flush()?;
            Ok(path.metadata()?.len())
        };
        let size = write();
        let size = size.map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
        Ok((path.display().to_string(), size))
    }
}

/// What a run of the program took: seconds of CPU, and the most it had resident, in mebibytes.
struct CommandRun {
    seconds: f64,
    peak: f64,
}

fn run(program: &Path, args: &[&str], codes: &[i32]) -> Result<CommandRun, String> {
    #[allow(clippy::disallowed_methods, reason = "the program is what is measured")]
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let mut peak = 0;
    // Once it has ended and nobody has waited for it, the kernel still knows what it took.
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    loop {
        peak = peak.max(resident(&child));
        let state = waitid(Id::Pid(Pid::from_raw(pid)), ended);
        match state.map_err(|error| format!("waiting for {args:?}: {error}"))? {
            WaitStatus::StillAlive => {}
            _ => break,
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "nobody tells what the program's memory grows to"
        )]
        std::thread::sleep(LOOK);
    }
    let seconds = cpu_seconds(pid)?;
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.code().is_some_and(|code| codes.contains(&code)) {
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{args:?}: {status}: {said}"));
    }
    Ok(CommandRun {
        seconds,
        peak: heap::mebibytes(peak),
    })
}

/// What a process has taken of the CPUs so far, in seconds.
fn cpu_seconds(pid: i32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // Behind the name, which may hold anything, come the state and numbers; user and system time are
    // the 14th and the 15th of all, in ticks.
    let rest = text.rsplit_once(") ").map(|(_, rest)| rest);
    let fields = rest.unwrap_or_default().split(' ').skip(11).take(2);
    let ticks: Option<Vec<f64>> = fields.map(|field| field.parse().ok()).collect();
    match ticks {
        Some(ticks) if ticks.len() == 2 => Ok(ticks.iter().sum::<f64>() / TICKS),
        _ => Err(format!("{path} does not say how long it ran")),
    }
}

/// The most a program that runs ever had resident, in bytes; 0 once it has ended.
fn resident(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.unwrap_or_default();
    heap::peak_of(&status).unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
fn measure(scale: f64, samples: &mut Samples<'_>) -> Result<(), String> {
    let program = agent::program()?;
    let folder = Folder::new()?;
    let [before, after] = dump(scale);
    let (file, size) = folder.write("before.json", before)?;
    let (edited, _) = folder.write("after.json", after)?;
    eprintln!("    {} MB of JSON, {before:?}", size / 1_000_000);
    let ends = [
        ["--from", "team-1/app-1-0000001ef0-00001"],
        ["--to", "team-0/app-0-0000000001-00000"],
    ];
    let ends = ends.concat();
    let mut all: [Vec<f64>; 8] = Default::default();
    for _ in 0..ROUNDS {
        let read = run(&program, &["validate", "-f", &file], &[0])?;
        let asked = [&["explain", "-f", &file, "--port", "1024"], &ends[..]].concat();
        let explain = run(&program, &asked, &[0])?;
        let connections = run(&program, &["connections", "-f", &file], &[0])?;
        let diff = run(&program, &["diff", "-f", &file, "-f", &edited], &[1])?;
        let figures = [
            read.seconds,
            size as f64 / 1e6 / read.seconds,
            read.peak,
            explain.seconds / read.seconds,
            connections.seconds - read.seconds,
            connections.peak,
            diff.seconds - 2.0 * read.seconds,
            diff.peak,
        ];
        for (all, figure) in all.iter_mut().zip(figures) {
            all.push(figure);
        }
    }
    for figure in all {
        samples(figure);
    }
    Ok(())
}
