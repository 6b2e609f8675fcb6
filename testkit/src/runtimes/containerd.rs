//! containerd in a lab's host: real pods of real containers.
//!
//! It runs in mount and process namespaces of its own, so that its end is the end of everything it
//! started, also when the test is killed. Control groups are the one thing that outlives it; they
//! are under a parent of the lab's name, and removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::{RuntimeError, RuntimePrograms, run_to_end, write};
use crate::lab::Lab;

/// How often it is asked whether it is there, and how many times.
const PAUSE: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 600;

/// A running containerd, until dropped.
#[derive(Debug)]
pub struct Containerd {
    pub(super) runtimes: RuntimePrograms,
    dir: TempDir,
    /// `unshare`, whose only child is containerd.
    child: Child,
    /// The name that control groups are under.
    pub(super) group: String,
}

impl Containerd {
    /// Starts it in the lab's host, with the plugins of `folder` and upstream's beside them, and
    /// waits until it answers. Pods need a configuration: see [`Self::configure`].
    ///
    /// # Errors
    /// If it does not come up, with the end of its log.
    pub fn start(
        lab: &Lab,
        runtimes: &RuntimePrograms,
        plugins: &[PathBuf],
    ) -> Result<Self, RuntimeError> {
        let failed = RuntimeError::io_error("preparing containerd's folder");
        let dir = tempfile::tempdir().map_err(&failed)?;
        for folder in ["bin", "net.d", "lib"] {
            fs::create_dir(dir.path().join(folder)).map_err(&failed)?;
        }
        // The runtime looks into one folder only.
        let upstream = fs::read_dir(runtimes.programs()).map_err(&failed)?;
        let upstream: io::Result<Vec<_>> = upstream.map(|entry| Ok(entry?.path())).collect();
        for plugin in upstream.map_err(&failed)?.iter().chain(plugins) {
            let name = plugin.file_name().unwrap_or_default();
            std::os::unix::fs::symlink(plugin, dir.path().join("bin").join(name))
                .map_err(&failed)?;
        }
        write(
            &dir.path().join("config.toml"),
            &configuration(dir.path(), runtimes),
        )?;
        let log = File::create(dir.path().join("log")).map_err(&failed)?;
        let programs = runtimes.root().join("usr/bin");
        #[allow(
            clippy::disallowed_methods,
            reason = "containerd is what a test drives the plugin with; its programs need a path"
        )]
        let mut command = {
            let mut command = Command::new("unshare");
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", programs.display()));
            command
        };
        // Mounts of pods' namespaces must reach an agent that looks on from a copy of this one.
        command
            .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["sh", "-c"])
            .arg(
                "mount --make-rshared / && mount -t tmpfs tmpfs /run && \
                 mount --bind \"$1/lib\" /var/lib && \
                 exec containerd --config \"$1/config.toml\"",
            )
            .arg("sh")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(&failed)?)
            .stderr(log);
        let spawned = lab.run_in(lab.host(), move || command.spawn())?;
        let child = spawned.map_err(RuntimeError::io_error("starting unshare"))?;
        let mut containerd = Self {
            runtimes: runtimes.clone(),
            dir,
            child,
            group: lab.prefix().to_owned(),
        };
        containerd.wait_until_ready()?;
        containerd.import()?;
        Ok(containerd)
    }

    /// Gives it a CNI configuration, or another one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, configuration: &Value) -> Result<(), RuntimeError> {
        let folder = self.dir.path().join("net.d");
        // containerd 1.6 overlooks a file that is renamed into the folder from elsewhere.
        let draft = folder.join(".draft");
        write(&draft, &configuration.to_string())?;
        fs::rename(draft, folder.join("10-network.conflist")).map_err(RuntimeError::io_error(
            "writing containerd's CNI configuration",
        ))
    }

    /// Takes away what [`Self::configure`] gave.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove_configuration(&self) -> Result<(), RuntimeError> {
        fs::remove_file(self.conf_dir().join("10-network.conflist")).map_err(
            RuntimeError::io_error("removing containerd's CNI configuration"),
        )
    }

    /// The folder of CNI configurations that it watches.
    #[must_use]
    pub fn conf_dir(&self) -> PathBuf {
        self.dir.path().join("net.d")
    }

    /// A folder of its own, for what plugins keep.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// What a program is to be started through, as its arguments' end, to see the namespaces of pods
    /// under the paths that containerd names them by.
    ///
    /// # Errors
    /// If containerd is gone.
    pub fn mount_namespace_command(&self) -> Result<Command, RuntimeError> {
        let process = self.process()?;
        #[allow(
            clippy::disallowed_methods,
            reason = "the program under test, put where a test needs it"
        )]
        let mut command = Command::new("nsenter");
        // Its own processes keep their numbers, so it must keep its own view of them.
        command
            .arg(format!("--mount=/proc/{process}/ns/mnt"))
            .args(["unshare", "--mount", "--propagation", "slave", "sh", "-c"])
            .arg("mount -t proc proc /proc && exec \"$@\"")
            .arg("sh");
        Ok(command)
    }

    /// A path that it names, as this process sees it.
    ///
    /// # Errors
    /// If containerd is gone.
    pub fn host_path(&self, path: &Path) -> Result<PathBuf, RuntimeError> {
        let root = PathBuf::from(format!("/proc/{}/root", self.process()?));
        Ok(root.join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }

    /// containerd's own process: the first of its namespace.
    fn process(&self) -> Result<u32, RuntimeError> {
        let parent = self.child.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .map_err(RuntimeError::io_error("looking for containerd"))?;
        let first = children
            .split_whitespace()
            .next()
            .and_then(|p| p.parse().ok());
        first.ok_or_else(|| RuntimeError::Silent(self.log()))
    }

    fn wait_until_ready(&mut self) -> Result<(), RuntimeError> {
        for _ in 0..ATTEMPTS {
            let ended = self.child.try_wait();
            if ended
                .map_err(RuntimeError::io_error("waiting for containerd"))?
                .is_some()
            {
                break;
            }
            if self.is_ready() {
                return Ok(());
            }
            #[allow(
                clippy::disallowed_methods,
                reason = "another program's readiness has no event to wait for"
            )]
            std::thread::sleep(PAUSE);
        }
        Err(RuntimeError::Silent(self.log()))
    }

    fn import(&self) -> Result<(), RuntimeError> {
        #[allow(
            clippy::disallowed_methods,
            reason = "containerd's own tool, to give it an image without a registry"
        )]
        let mut command = Command::new(self.runtimes.root().join("usr/bin/ctr"));
        command
            .arg("--address")
            .arg(self.socket())
            .args([
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "--snapshotter",
                "native",
            ])
            .arg(self.runtimes.image());
        run_to_end(command, "ctr images import").map(drop)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Ok(process) = self.process() {
            // The first process of a namespace takes all others with it.
            let process = nix::unistd::Pid::from_raw(process.cast_signed());
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.child.wait();
        if let Err(error) = remove_groups(&self.group) {
            eprintln!(
                "containerd of {}: removing its control groups: {error}",
                self.group
            );
        }
        if std::thread::panicking() {
            eprintln!("--- containerd log\n{}", self.log());
        }
    }
}

/// Removes control groups that pods had, with this name in any hierarchy; they are free a moment after their
/// last process.
pub(crate) fn remove_groups(name: &str) -> io::Result<()> {
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    for entry in fs::read_dir("/sys/fs/cgroup")? {
        folders.push(entry?.path());
    }
    for folder in folders {
        let group = folder.join(name);
        if group.is_dir() {
            remove_group(&group)?;
        }
    }
    Ok(())
}

fn remove_group(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_group(&path)?;
        }
    }
    for _ in 0..ATTEMPTS {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            done => return done,
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "the kernel tells nobody when a control group is free"
        )]
        std::thread::sleep(PAUSE);
    }
    fs::remove_dir(group)
}

/// Everything of its own under `dir`; no registry, no service of the machine.
fn configuration(dir: &Path, runtimes: &RuntimePrograms) -> String {
    let dir = dir.display();
    let root = runtimes.root().display().to_string();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
disable_apparmor = true
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{dir}/bin"
conf_dir = "{dir}/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{root}/usr/sbin/runc"
"#,
        image = super::pods::IMAGE,
    )
}
