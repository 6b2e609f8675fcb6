//! Network namespaces and directory of the demo, and their removal.
//!
//! Everything is removed when [`Site`] is dropped, however the demo ends. Objects of others are not touched.

use crate::error::DemoError;
use crate::shop::{OUTSIDE, PARTIES, ShopParty};
use nix::net::if_::if_nameindex;
use palisade_sys::atomic_file::write_atomically;
use palisade_testkit::lab::{
    self, Lab, LabError, Leak, NodeId, OUTSIDE_INTERFACE, find_leaks, find_own_leaks,
};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The demo's namespaces and directory.
pub(crate) struct Site {
    /// The host, the pods and the outside.
    pub(crate) lab: Lab,
    directory: TempDir,
    programs: PathBuf,
    /// What the agent enforces with.
    pub(crate) dataplane: String,
    leaks_before: Vec<Leak>,
}

impl Site {
    /// Creates everything; the pods' namespaces are still empty. `programs` is the folder of the product's
    /// programs, and `dataplane` what the agent enforces with.
    pub(crate) fn create(programs: &Path, dataplane: &str) -> Result<Self, DemoError> {
        let listing = |error| DemoError::caused("listing what is on this machine", &error);
        let mut lab = Lab::with_outside("demo", &OUTSIDE).map_err(lab_error)?;
        let leaks_before = find_leaks().map_err(listing)?;
        for party in PARTIES.iter().filter(|party| party.namespace.is_some()) {
            lab.add_namespace(party.name, Vec::new())
                .map_err(lab_error)?;
        }
        let name = format!("pal-demo-{}", std::process::id());
        let directory = tempfile::Builder::new()
            .prefix(&name)
            .rand_bytes(0)
            .tempdir()
            .map_err(|error| DemoError::caused("creating the demo's directory", &error))?;
        std::fs::create_dir(directory.path().join("policy"))
            .map_err(|error| DemoError::caused("creating the demo's directory", &error))?;
        Ok(Site {
            lab,
            directory,
            programs: programs.to_owned(),
            dataplane: dataplane.to_owned(),
            leaks_before,
        })
    }

    /// Directory of manifests, socket, state and log; only its owner can access it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Directory of the manifests.
    pub(crate) fn policy(&self) -> PathBuf {
        self.directory().join("policy")
    }

    /// The socket of the demo's agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory().join("palisade.sock")
    }

    /// One of the product's programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Whether IPv6 is available.
    pub(crate) fn has_ipv6(&self) -> bool {
        lab::has_ipv6()
    }

    /// The namespace of a party.
    pub(crate) fn node(&self, party: &ShopParty) -> Result<NodeId, DemoError> {
        let missing = || DemoError::problem(format!("the shop has no namespace {}", party.name));
        self.lab.find(party.name).ok_or_else(missing)
    }

    /// Writes a manifest atomically: a reader never sees an incomplete file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), DemoError> {
        write_atomically(&self.policy().join(name), text.as_bytes())
            .map_err(|error| DemoError::caused("writing a manifest", &error))
    }

    /// Removes a manifest.
    pub(crate) fn remove_manifest(&self, name: &str) -> Result<(), DemoError> {
        std::fs::remove_file(self.policy().join(name))
            .map_err(|error| DemoError::caused("removing a manifest", &error))
    }

    /// The interfaces of the host that workloads have there.
    pub(crate) fn workload_interfaces(&self) -> Result<Vec<String>, DemoError> {
        let names = self
            .lab
            .run_in(self.lab.host(), interface_names)
            .map_err(lab_error)?
            .map_err(|error| DemoError::caused("listing interfaces", &error))?;
        let is_ours = |name: &String| name != "lo" && name != OUTSIDE_INTERFACE;
        Ok(names.into_iter().filter(is_ours).collect())
    }

    /// Keeps everything.
    pub(crate) fn keep(self) {
        self.lab.keep();
        let _ = self.directory.keep();
    }

    /// Removes everything and returns descriptions of what is left; `interfaces` are those that the agent
    /// created.
    pub(crate) fn remove(self, interfaces: &[String]) -> Result<Vec<String>, DemoError> {
        let listing = |error| DemoError::caused("listing what is left", &error);
        let namespaces = PARTIES.iter().filter_map(|party| self.lab.find(party.name));
        let namespaces: Vec<_> = namespaces
            .chain([self.lab.host()])
            .filter_map(|node| netns_id(&self.lab.namespace_path(node)))
            .collect();
        let path = self.directory().to_owned();
        drop(self.lab);
        let mut left = match self.directory.close() {
            Ok(()) => Vec::new(),
            Err(error) => vec![format!("removing {}: {error}", path.display())],
        };
        let mut leaks = find_own_leaks().map_err(listing)?;
        // Labs of other processes may end meanwhile.
        let of_machine = |leak: &Leak| matches!(leak, Leak::Link(_) | Leak::Table(_));
        leaks.extend(
            find_leaks()
                .map_err(listing)?
                .into_iter()
                .filter(of_machine),
        );
        leaks.retain(|leak| !self.leaks_before.contains(leak));
        left.extend(leaks.iter().map(|leak| format!("the {leak}")));
        left.extend(
            processes_in(&namespaces)
                .into_iter()
                .map(|process| format!("process {process} in a namespace of the demo")),
        );
        let here =
            interface_names().map_err(|error| DemoError::caused("listing interfaces", &error))?;
        let ours = here.into_iter().filter(|name| interfaces.contains(name));
        left.extend(ours.map(|name| format!("the interface {name} on this machine")));
        if path.exists() {
            left.push(format!("the directory {}", path.display()));
        }
        Ok(left)
    }

    /// The command that removes what `--keep` left.
    pub(crate) fn removal_command(&self, agent: u32) -> String {
        format!(
            "sudo sh -c 'kill {agent}; umount /run/netns/{0}-*; rm -r /run/netns/{0}-* {1}'",
            self.lab.prefix(),
            self.directory().display()
        )
    }
}

fn lab_error(error: LabError) -> DemoError {
    let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
    match &error {
        LabError::Namespace { source, .. } if denied(source) => DemoError::new(
            4,
            format!("creating network namespaces needs root: {error}"),
        )
        .with_hint("make demo"),
        _ => DemoError::caused("creating the demo's namespaces", &error),
    }
}

/// The interfaces in the network namespace of the calling thread.
fn interface_names() -> io::Result<Vec<String>> {
    let all = if_nameindex()?;
    let names = all
        .iter()
        .map(|interface| interface.name().to_string_lossy().into_owned());
    Ok(names.collect())
}

/// Device and inode of a namespace.
fn netns_id(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Processes whose network namespace is one of these.
fn processes_in(namespaces: &[(u64, u64)]) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let inside =
        |path: &Path| netns_id(&path.join("ns/net")).is_some_and(|id| namespaces.contains(&id));
    processes
        .flatten()
        .filter(|entry| inside(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}
