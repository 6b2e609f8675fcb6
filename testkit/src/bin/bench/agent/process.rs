//! An agent: the optimised program beside this one, in the host namespace of a lab.

use crate::datapath::chain;
use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a process keeps what its agent needs.
pub(crate) fn folder(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("palisade-bench-{process}"))
}

/// The optimised program beside this one.
pub(crate) fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("palisade");
    if program.exists() {
        Ok(program)
    } else {
        Err(format!(
            "{} is not there: cargo build --release -p palisade",
            program.display()
        ))
    }
}

/// Seconds of processor time that a process has used.
pub(crate) fn processor_seconds(process: u32) -> Result<f64, String> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // After the name in parentheses: utime and stime are the 12th and 13th fields, in hundredths.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

/// A folder of manifests, one of state, a socket, and the agent on them. Dropped, it is killed and
/// the folders are removed.
pub(crate) struct AgentProcess {
    folder: PathBuf,
    arguments: Vec<String>,
    program: PathBuf,
    child: Option<Child>,
}

impl AgentProcess {
    /// Folders for an agent that does not run yet.
    pub(crate) fn new() -> Result<Self, String> {
        Self::at(folder(std::process::id()))
    }

    /// The same as one of several, each with its number.
    pub(crate) fn numbered(number: usize) -> Result<Self, String> {
        Self::at(folder(std::process::id()).join(number.to_string()))
    }

    fn at(folder: PathBuf) -> Result<Self, String> {
        let program = program()?;
        let made = std::fs::create_dir_all(folder.join("policy"));
        made.map_err(|error| format!("making {}: {error}", folder.display()))?;
        Ok(AgentProcess {
            folder,
            arguments: Vec::new(),
            program,
            child: None,
        })
    }

    /// Writes a manifest: opened, written, closed.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join("policy").join(name);
        let write = || File::create(&path)?.write_all(text.as_bytes());
        write().map_err(|error| format!("writing {}: {error}", path.display()))
    }

    /// Further arguments of the agent's command line.
    pub(crate) fn add_arguments(&mut self, arguments: &[&str]) {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        self.arguments.extend(arguments);
    }

    /// Seconds of processor time that its process has used.
    pub(crate) fn processor_seconds(&self) -> Result<f64, String> {
        processor_seconds(self.child.as_ref().map_or(0, Child::id))
    }

    /// Its program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Starts it and waits until it is in sync; says how long that took.
    pub(crate) fn start(&mut self, lab: &Lab) -> Result<Duration, String> {
        let began = now();
        self.spawn(lab, lab.host())?;
        self.wait_until_ready()?;
        Ok(began.elapsed())
    }

    /// Starts it in a namespace of the lab.
    pub(crate) fn spawn(&mut self, lab: &Lab, node: NodeId) -> Result<(), String> {
        let log = File::create(self.folder.join("log")).map_err(|error| error.to_string())?;
        let mut command = self.command();
        command
            .arg("agent")
            .arg("--directory")
            .arg(self.folder.join("policy"))
            .arg("--state-dir")
            .arg(self.state())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        // A child is born in the namespace of the thread that makes it.
        let child = lab.run_in(node, move || command.spawn());
        let child = child.map_err(|error| chain(&error))?;
        self.child = Some(child.map_err(|error| format!("starting the agent: {error}"))?);
        Ok(())
    }

    /// Starts a DNS proxy beside it.
    pub(crate) fn start_proxy(&self, lab: &Lab) -> Result<ProxyProcess, String> {
        let mut command = self.command();
        command
            .arg("proxy")
            .arg("--state-dir")
            .arg(self.state())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = lab.run_in(lab.host(), move || command.spawn());
        let child = child.map_err(|error| chain(&error))?;
        let child = child.map_err(|error| format!("starting the proxy: {error}"))?;
        Ok(ProxyProcess(child))
    }

    /// Waits until it is in sync.
    pub(crate) fn wait_until_ready(&self) -> Result<(), String> {
        let began = now();
        let socket = self.socket();
        // The socket opens after a while even if the source is not read yet.
        while !socket.exists() || self.status()?["health"] != "Ready" {
            if began.elapsed() > PATIENCE {
                return Err(format!("the agent does not start: {}", self.log()));
            }
            #[allow(
                clippy::disallowed_methods,
                reason = "that an agent is ready is no event here"
            )]
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Attaches a namespace of the lab as the Pod of this name.
    pub(crate) fn attach(
        &self,
        lab: &Lab,
        node: NodeId,
        namespace: &str,
        name: &str,
    ) -> Result<(), String> {
        let mut command = self.command();
        command
            .args(["workload", "add", &format!("{namespace}/{name}"), "--netns"])
            .arg(lab.namespace_path(node));
        for address in lab.addresses(node) {
            command.args(["--address", &address.to_string()]);
        }
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!(
                "attaching {namespace}/{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))
        }
    }

    /// The agent's state, as `palisade status` tells it.
    pub(crate) fn status(&self) -> Result<serde_json::Value, String> {
        let output = self.command().args(["status", "-o", "json"]).output();
        let output = output.map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("palisade status: {error}: {said}")
        })
    }

    /// A number from a file of its process, given in kB there.
    pub(crate) fn proc_kilobytes(&self, file: &str, field: &str) -> Result<f64, String> {
        let pid = self.child.as_ref().map_or(0, Child::id);
        let path = Path::new("/proc").join(pid.to_string()).join(file);
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let number = text.lines().find_map(|line| {
            let rest = line.strip_prefix(field)?.strip_prefix(':')?;
            rest.trim().strip_suffix("kB")?.trim().parse().ok()
        });
        number.ok_or_else(|| format!("{} says nothing of {field}", path.display()))
    }

    fn command(&self) -> Command {
        #[allow(
            clippy::disallowed_methods,
            reason = "the agent and its command line are what is measured"
        )]
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(self.socket());
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// A DNS proxy, until dropped.
pub(crate) struct ProxyProcess(Child);

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // One that has ended already needs no end.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("    removing {}: {error}", self.folder.display());
        }
    }
}
