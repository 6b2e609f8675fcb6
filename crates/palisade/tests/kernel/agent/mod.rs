//! An agent under test: the real program, in the host namespace of a lab, with its own directories.

pub(crate) mod shop;
pub(crate) mod site;
pub(crate) mod steady_traffic;

use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::spelling::misspelled_keys;
use palisade_testkit::test_driver::{FAST_PATH, NFTABLES, VARIABLE, agent_dataplane};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of manifests, a state directory, a socket, and perhaps a running agent.
pub(crate) struct Agent {
    dir: TempDir,
    /// Additional command-line arguments.
    more: Vec<String>,
    /// The command that starts the program, if it is not started directly.
    through: Vec<OsString>,
    /// The program, of whatever release.
    program: PathBuf,
    /// Environment variables.
    environment: Vec<(&'static str, String)>,
    child: Option<Child>,
}

impl Agent {
    /// Directories for an agent that is not running yet, with the dataplane of the calling test.
    pub(crate) fn new() -> Self {
        Agent::with_dataplane(agent_dataplane())
    }

    /// The same, with nftables alone.
    pub(crate) fn with_nftables() -> Self {
        Agent::with_dataplane(NFTABLES.to_owned())
    }

    fn with_dataplane(name: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("policy")).unwrap();
        Agent {
            dir,
            more: Vec::new(),
            through: Vec::new(),
            program: env!("CARGO_BIN_EXE_palisade").into(),
            environment: vec![(VARIABLE, name)],
            child: None,
        }
    }

    /// Its metrics, as text.
    pub(crate) fn metrics(&self) -> String {
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
        socket.write_all(request).unwrap();
        let mut metrics = String::new();
        socket.read_to_string(&mut metrics).unwrap();
        metrics
    }

    /// Adds arguments for the next start.
    pub(crate) fn more(&mut self, args: &[&str]) {
        self.more.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// An agent whose tables other programs can change.
    pub(crate) fn changeable() -> Self {
        Agent::new().with(&["--own-table=false"])
    }

    /// Whether it has the fast path above nftables.
    pub(crate) fn has_fast_path(&self) -> bool {
        let mut variables = self.environment.iter();
        variables.any(|(name, value)| *name == VARIABLE && value == FAST_PATH)
    }

    /// An agent of another release, and its command line.
    pub(crate) fn of_program(program: PathBuf) -> Self {
        let mut agent = Agent::with_nftables();
        agent.program = program;
        agent
    }

    /// Adds command-line arguments.
    pub(crate) fn with(mut self, more: &[&str]) -> Self {
        self.more(more);
        self
    }

    /// Gives it a plugin directory in which nothing is missing.
    pub(crate) fn with_plugins(&mut self) {
        let plugins = self.dir.path().join("cni-bin");
        std::fs::create_dir_all(&plugins).unwrap();
        for name in ["palisade-cni", "loopback"] {
            std::fs::write(plugins.join(name), "").unwrap();
        }
        self.more(&["--cni-bin-dir", plugins.to_str().unwrap()]);
    }

    /// Uses this command, which executes the program, for all further starts.
    pub(crate) fn start_through(&mut self, command: &Command) {
        let program = std::iter::once(command.get_program());
        let whole = program.chain(command.get_args()).map(ToOwned::to_owned);
        self.through = whole.collect();
    }

    /// Sets an environment variable.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.environment.push((name, value.into()));
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Runs another command with the same directories in the lab's host namespace.
    pub(crate) fn beside(&self, lab: &Lab, command: &str, args: &[&str]) -> Output {
        let mut run = self.command_of(command);
        run.args(args);
        lab.run_in(lab.host(), move || run.output().unwrap())
            .unwrap()
    }

    /// Directory of manifests.
    pub(crate) fn policy(&self) -> PathBuf {
        self.dir.path().join("policy")
    }

    /// State directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("palisade.sock")
    }

    /// Writes a manifest atomically: under another name, then renamed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.policy().join(name);
        let draft = self.policy().join(format!(".{name}.tmp"));
        let mut file = std::fs::File::create(&draft).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        drop(file);
        std::fs::rename(draft, path).unwrap();
    }

    /// Starts the agent in the lab's host namespace and waits until it responds.
    pub(crate) fn start(&mut self, lab: &Lab) {
        self.spawn(lab);
        let began = Instant::now();
        while !self.run(&["status"]).status.success() && self.status()["health"] != "Degraded" {
            self.assert_alive();
            assert!(
                began.elapsed() < PATIENCE,
                "the agent does not respond:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the agent without waiting.
    pub(crate) fn spawn(&mut self, lab: &Lab) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("agent.log"))
            .unwrap();
        let mut command = self.command();
        command.stdout(Stdio::null()).stderr(log);
        // A child process starts in the namespace of the thread that spawns it.
        self.child = Some(
            lab.run_in(lab.host(), move || command.spawn().unwrap())
                .unwrap(),
        );
    }

    /// Runs another agent on the same directories until it exits.
    pub(crate) fn run_to_its_end(&self, lab: &Lab) -> Output {
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        lab.run_in(lab.host(), move || command.output().unwrap())
            .unwrap()
    }

    fn command(&self) -> Command {
        let mut command = self.command_of("agent");
        command.args(&self.more);
        command
    }

    fn command_of(&self, name: &str) -> Command {
        let program = self.program.clone().into_os_string();
        let mut words = self.through.iter().chain([&program]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .envs(self.environment.iter().cloned())
            .arg(name)
            .args(["--socket", self.socket().to_str().unwrap()])
            .args(["--directory", self.policy().to_str().unwrap()])
            .args(["--state-dir", self.state().to_str().unwrap()])
            .args(["--log-level", "debug"])
            .stdin(Stdio::null());
        command
    }

    /// The command that attaches a namespace of the lab.
    pub(crate) fn attaching(&self, lab: &Lab, node: NodeId, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--socket", self.socket().to_str().unwrap()])
            .args(["workload", "add", name, "--netns"])
            .arg(lab.namespace_path(node))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn assert_alive(&mut self) {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait().unwrap()
        {
            panic!("the agent ended with {status}:\n{}", self.log());
        }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.child.as_ref().unwrap().id().try_into().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    /// Kills the agent with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Terminates the agent with SIGTERM and waits for it.
    pub(crate) fn terminate(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
            assert!(child.wait().unwrap().success(), "{}", self.log());
        }
    }

    /// Runs a `palisade` command against the agent.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::new(&self.program)
            .args(["--socket", self.socket().to_str().unwrap()])
            .args(args)
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed, and parses its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {said}\n{}", self.log()));
        assert_eq!(misspelled_keys(&value), [""; 0], "{args:?}: {value:#}");
        value
    }

    /// `palisade status`; null while the agent does not respond.
    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "-o", "json"]).stdout).unwrap_or_default()
    }

    /// Attaches a network namespace of the lab.
    pub(crate) fn attach(
        &self,
        lab: &Lab,
        node: NodeId,
        name: &str,
        addresses: &[&str],
        labels: &[&str],
    ) -> Value {
        let netns = lab.namespace_path(node);
        let mut args = vec!["workload", "add", name, "--netns", netns.to_str().unwrap()];
        for address in addresses {
            args.extend(["--address", address]);
        }
        for label in labels {
            args.extend(["--label", label]);
        }
        let output = self.run(&[&args[..], &["-o", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}\n{}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until `done` is true for the status.
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if done(&status) {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{what}: {status:#}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The packets whose verdict would be another without audit, once there are as many as wanted.
    pub(crate) fn audited_packets(&self, wanted: usize) -> Vec<Value> {
        let began = Instant::now();
        let arguments = [
            "monitor",
            "--audit",
            "--last",
            "1000",
            "--no-follow",
            "-o",
            "json",
        ];
        loop {
            let output = self.run(&arguments);
            assert!(output.status.success(), "{}", self.log());
            let text = String::from_utf8(output.stdout).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let lines: Vec<Value> = lines.collect();
            if lines.len() >= wanted {
                return lines;
            }
            assert!(began.elapsed() < PATIENCE, "{wanted} packets: {lines:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The line of the monitor about a packet, once there is one.
    pub(crate) fn wait_for_packet(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let output = self.run(&["monitor", "--last", "1000", "--no-follow", "-o", "json"]);
            assert!(output.status.success(), "{}", self.log());
            let text = String::from_utf8(output.stdout).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let lines: Vec<Value> = lines.collect();
            if let Some(found) = lines.iter().find(|line| is_wanted(line)) {
                return found.clone();
            }
            assert!(began.elapsed() < PATIENCE, "no such packet: {lines:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a manifest and waits until its state is in the kernel.
    pub(crate) fn apply(&self, name: &str, text: &str) {
        self.change(name, || self.write(name, text));
    }

    /// Removes a manifest and waits until the remaining state is in the kernel.
    pub(crate) fn delete(&self, name: &str) {
        self.change(name, || {
            std::fs::remove_file(self.policy().join(name)).unwrap()
        });
    }

    /// Makes a change of the manifests, and waits until a batch of the source has come and a later revision is in the
    /// kernel. A revision alone may be one of the host's interfaces, whose addresses settle later.
    fn change(&self, name: &str, change: impl FnOnce()) {
        let (batches, revision) = (self.batches(), self.status()["revision"].as_u64());
        change();
        self.wait(name, |status| {
            let is_later = status["revision"].as_u64() > revision;
            is_later && status["revision"] == status["realised"] && self.batches() > batches
        });
    }

    /// The batches of the source so far.
    fn batches(&self) -> u64 {
        let metrics = self.metrics();
        let mut lines = metrics.lines();
        let count = lines.find_map(|line| line.strip_prefix("palisade_source_batches_total "));
        count.unwrap().parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- agent log\n{}", self.log());
        }
    }
}

/// Runs `nft` in the host namespace of a lab, as a check that is independent of the product.
pub(crate) fn nft(lab: &Lab, script: &str) -> String {
    nft_in(lab, lab.host(), script)
}

/// Runs `nft` in a namespace of a lab.
pub(crate) fn nft_in(lab: &Lab, node: NodeId, script: &str) -> String {
    let name = lab.namespace_name(node);
    let output = Command::new("ip")
        .args(["netns", "exec", name, "nft", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `ip` in a namespace of a lab.
pub(crate) fn ip(lab: &Lab, node: NodeId, args: &[&str]) -> String {
    let output = Command::new("ip")
        .args(["-n", lab.namespace_name(node)])
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
