//! Container runtimes as they are: the CNI project's own tools, and containerd, in a lab's host.
//!
//! The programs are gathered by `scripts/runtimes`. What a machine cannot have is said in a loud
//! line and counted as skipped, never as passed. Nothing outside the lab and a temporary folder is
//! written: each program sees a `/var/lib` (and containerd a `/run`) of its own.

mod containerd;
mod network;
mod pods;

use crate::ring::report_skip;
use std::io;
use std::path::{Path, PathBuf};

pub use containerd::Containerd;
pub(crate) use containerd::remove_groups;
pub use network::{CniNetwork, CniToolAttachment};
pub use pods::{ExecOutput, Pod};

/// Why a runtime did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file, folder or process could not be made.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with an error of its own.
    #[error("{program}: {said}")]
    Refused {
        /// The program, and what it was asked.
        program: String,
        /// What it said.
        said: String,
    },
    /// A program answered what nobody understands.
    #[error("{program} answered {answer:?}: {source}")]
    Answer {
        /// The program, and what it was asked.
        program: String,
        /// Its answer.
        answer: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// containerd did not come up.
    #[error("containerd does not answer: {0}")]
    Silent(String),
    /// The lab refused.
    #[error(transparent)]
    Lab(#[from] crate::lab::LabError),
}

impl RuntimeError {
    pub(crate) fn io_error(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

/// The programs that `scripts/runtimes` gathered.
#[derive(Clone, Debug)]
pub struct RuntimePrograms {
    folder: PathBuf,
}

impl RuntimePrograms {
    /// The CNI project's tools; absent, after a loud line, where this machine cannot have them.
    #[must_use]
    pub fn cni() -> Option<Self> {
        Self::with_programs(&["go"])
    }

    /// The same with containerd.
    #[must_use]
    pub fn containerd() -> Option<Self> {
        Self::with_programs(&["go", "containerd"])
    }

    /// etcd alone.
    #[must_use]
    pub fn etcd() -> Option<Self> {
        let programs = Self::with_programs(&["etcd"])?;
        if programs.root().join("usr/bin/etcd").exists() {
            return Some(programs);
        }
        report_skip("scripts/runtimes --control-plane has not run (`make test` runs it)");
        None
    }

    /// etcd, the API server and `kubectl`.
    #[must_use]
    pub fn control_plane() -> Option<Self> {
        Self::with_programs(&["etcd", "kubernetes"])
    }

    /// The same with the definitions of every API of policy.
    #[must_use]
    pub fn policy_apis() -> Option<Self> {
        Self::with_programs(&["etcd", "kubernetes", "policy-api", "cilium", "calico"])
    }

    /// All of these, with Kubernetes' other programs, and images.
    #[must_use]
    pub fn cluster() -> Option<Self> {
        Self::with_programs(&["go", "containerd", "etcd", "kubernetes", "nodes"])
    }

    /// The same with the definitions of the Network Policy API and its conformance tests.
    #[must_use]
    pub fn conformance() -> Option<Self> {
        Self::cluster()?;
        let programs = Self::with_programs(&["policy-api", "policy-suites"])?;
        if programs.programs().join("policy-v1alpha2.test").exists() {
            return Some(programs);
        }
        report_skip("scripts/runtimes --conformance has not run (`make conformance` runs it)");
        None
    }

    /// Helm alone.
    #[must_use]
    pub fn helm() -> Option<PathBuf> {
        Self::built_alone("helm")
    }

    /// CoreDNS alone.
    #[must_use]
    pub fn coredns() -> Option<PathBuf> {
        Self::built_alone("coredns")
    }

    /// Hubble's command; its relay is beside it.
    #[must_use]
    pub fn hubble() -> Option<PathBuf> {
        Self::built_alone("hubble")
    }

    /// A program that may have been built alone, by `scripts/runtimes NAME`.
    fn built_alone(name: &str) -> Option<PathBuf> {
        let found = Self::folder().map(|folder| folder.join("bin").join(name));
        match found.filter(|program| program.exists()) {
            Some(program) => Some(program),
            None => Some(Self::with_programs(&[name])?.programs().join(name)),
        }
    }

    /// The folder of Debian's kernel and of what a guest with it begins with.
    #[must_use]
    pub fn guest() -> Option<PathBuf> {
        let Some(folder) = Self::folder().filter(|folder| folder.join("lock-guest").exists())
        else {
            report_skip("scripts/runtimes guest has not run (`make test` runs it)");
            return None;
        };
        if let Ok(reason) = std::fs::read_to_string(folder.join("missing-guest")) {
            report_skip(reason.trim());
            return None;
        }
        Some(folder.join("guest"))
    }

    /// Where they are gathered.
    fn folder() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        // A test is target/debug/deps/TEST, a program target/debug/PROGRAM.
        let target = |program: &Path, depth| Some(program.ancestors().nth(depth)?.join("runtimes"));
        target(&program, 2)
            .filter(|folder| folder.is_dir())
            .or_else(|| target(&program, 3))
    }

    fn with_programs(parts: &[&str]) -> Option<Self> {
        let Some(folder) = Self::folder().filter(|folder| folder.join("lock").exists()) else {
            report_skip("scripts/runtimes has not run (`make test` runs it)");
            return None;
        };
        for part in parts {
            if let Ok(reason) = std::fs::read_to_string(folder.join(format!("missing-{part}"))) {
                report_skip(reason.trim());
                return None;
            }
        }
        Some(Self { folder })
    }

    /// The folder of the upstream plugins, cnitool and cri.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// The folder of custom resource definitions: those of the Network Policy API in `policy-api`, those of
    /// Cilium's policies in `cilium`, and those of Calico's in `calico`.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.folder.join("crds")
    }

    /// The images that the pods of a cluster run.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.folder.join("images")
    }

    /// The name of the image that the pods of a cluster run; absent where it was not made.
    #[must_use]
    pub fn pod_image(&self) -> Option<String> {
        let name = std::fs::read_to_string(self.images().join("agnhost.name")).ok()?;
        Some(name.trim().to_owned())
    }

    /// The image that containerd is given.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.folder.join("image.tar")
    }

    /// Where Debian's packages are unpacked.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// Writes a file of a folder that nobody reads yet.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), RuntimeError> {
    #[allow(
        clippy::disallowed_methods,
        reason = "a test's own folder; nobody reads it yet"
    )]
    std::fs::write(path, text).map_err(RuntimeError::io_error("writing a test's file"))
}

/// Runs a program to its end and hands out what it printed.
pub(crate) fn run_to_end(
    mut command: std::process::Command,
    program: &str,
) -> Result<String, RuntimeError> {
    let output = command
        .output()
        .map_err(RuntimeError::io_error("running a test's program"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(RuntimeError::Refused {
        program: program.to_owned(),
        said: format!("{} {}", said.trim(), printed.trim())
            .trim()
            .to_owned(),
    })
}

/// Reads a program's answer.
pub(crate) fn parse_json(text: &str, program: &str) -> Result<serde_json::Value, RuntimeError> {
    serde_json::from_str(text).map_err(|source| RuntimeError::Answer {
        program: program.to_owned(),
        answer: text.to_owned(),
        source,
    })
}
