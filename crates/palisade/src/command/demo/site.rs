//! Network namespaces and directory of the demo, and their removal.
//!
//! Everything is recorded before it is created and removed when [`Site`] is dropped, however the demo ends.
//! Objects of others are not touched.

use super::shop::{OUTSIDE_V4, OUTSIDE_V6, PARTIES, UPLINK};
use crate::exit::{CommandError, ExitStatus};
use palisade_agent::core::error_chain;
use palisade_sys::atomic_file::write_atomically;
use palisade_sys::link::{IpNet, KernelLinks, LinkChange, Route, VethEnd};
use palisade_sys::netns::{
    KernelNetNamespaces, NETNS_DIR, NetNamespaces, NetNs, NetNsError, NetNsId,
};
use palisade_sys::nfnetlink::nf_tables::{NFT_MSG_GETTABLE, NFTA_TABLE_NAME};
use palisade_sys::nfnetlink::{KernelNfnetlink, NFNL_SUBSYS_NFTABLES, NfRequest, Nfnetlink};
use palisade_sys::sysctl::{KernelSysctl, Sysctl};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The host's link to the outside; like a real uplink, it does not have the agent's interface prefix.
pub(super) const UPLINK_NAME: &str = "outside0";

/// The demo's namespaces and directory.
pub(super) struct Site {
    /// Directory of manifests, socket, state and log.
    pub(super) directory: PathBuf,
    /// The namespace that represents the host.
    pub(super) host: NetNs,
    /// Whether IPv6 is available.
    pub(super) ipv6: bool,
    resources: DemoResources,
    tables_before: Vec<String>,
}

/// The objects to remove.
struct DemoResources {
    prefix: String,
    names: Vec<String>,
    ids: Vec<NetNsId>,
    directory: Option<PathBuf>,
}

impl Site {
    /// Creates everything; the pods' namespaces are still empty.
    pub(super) fn create() -> Result<Self, CommandError> {
        let before = nft_table_names()?;
        let prefix = format!("pal-demo-{}", std::process::id());
        let mut made = DemoResources {
            prefix,
            names: Vec::new(),
            ids: Vec::new(),
            directory: None,
        };
        let host = made.namespace("host")?;
        let mut outside = None;
        for party in PARTIES {
            let netns = made.namespace(party.name)?;
            if party.namespace.is_none() {
                outside = Some(netns);
            }
        }
        let directory = made.directory()?;
        let ipv6 = KernelSysctl::new(&host)
            .exists("net/ipv6/conf/all/forwarding")
            .map_err(|error| failure("detecting IPv6", &error))?;
        if let Some(outside) = outside {
            connect_outside(&host, &outside, ipv6)
                .map_err(|error| failure("connecting the outside to the host", &*error))?;
        }
        Ok(Site {
            directory,
            host,
            ipv6,
            resources: made,
            tables_before: before,
        })
    }

    /// Full name of one of the namespaces.
    pub(super) fn name(&self, of: &str) -> String {
        self.resources.name(of)
    }

    /// Common prefix of all names.
    pub(super) fn prefix(&self) -> &str {
        &self.resources.prefix
    }

    /// Directory of the manifests.
    pub(super) fn policy(&self) -> PathBuf {
        self.directory.join("policy")
    }

    /// Writes a manifest atomically: a reader never sees an incomplete file.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CommandError> {
        write_atomically(&self.policy().join(name), text.as_bytes())
            .map_err(|error| failure("writing a manifest", &error))
    }

    /// The interfaces of the host namespace.
    pub(super) fn host_links(&self) -> Result<Vec<String>, CommandError> {
        link_names(&self.host)
    }

    /// Keeps everything on drop.
    pub(super) fn keep(&mut self) {
        self.resources.names.clear();
        self.resources.directory = None;
    }

    /// Removes everything and returns descriptions of what is left; `interfaces` are those that the agent
    /// created.
    pub(super) fn remove(mut self, interfaces: &[String]) -> Result<Vec<String>, CommandError> {
        let mut left = self.resources.remove();
        let names = KernelNetNamespaces
            .list()
            .map_err(|error| failure("listing namespaces", &error))?;
        let ours = names
            .into_iter()
            .filter(|name| name.starts_with(&self.resources.prefix));
        left.extend(ours.map(|name| format!("the namespace {name}")));
        left.extend(
            processes_in(&self.resources.ids)
                .into_iter()
                .map(|process| format!("process {process} in a namespace of the demo")),
        );
        let here =
            NetNs::current().map_err(|error| failure("opening this network namespace", &error))?;
        let links = link_names(&here)?;
        let ours = links
            .into_iter()
            .filter(|link| link == UPLINK_NAME || interfaces.contains(link));
        left.extend(ours.map(|link| format!("the interface {link} on this machine")));
        let new = nft_table_names()?
            .into_iter()
            .filter(|table| !self.tables_before.contains(table));
        left.extend(
            new.filter(|table| table == "palisade")
                .map(|table| format!("the nftables table {table} on this machine")),
        );
        if self.directory.exists() {
            left.push(format!("the directory {}", self.directory.display()));
        }
        Ok(left)
    }
}

impl DemoResources {
    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.prefix)
    }

    fn namespace(&mut self, of: &str) -> Result<NetNs, CommandError> {
        let name = self.name(of);
        let netns = KernelNetNamespaces
            .create(&name)
            .map_err(|error| match &error {
                NetNsError::Io { source, .. }
                    if source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    CommandError::new(
                        ExitStatus::NotPermitted,
                        format!("creating network namespaces needs root: {error}"),
                    )
                    .with_hint("sudo palisade demo, or make demo")
                }
                _ => failure("creating the demo's namespaces", &error),
            })?;
        self.names.push(name);
        self.ids.push(netns.id());
        Ok(netns)
    }

    /// A directory that only its owner can access.
    fn directory(&mut self) -> Result<PathBuf, CommandError> {
        let directory = std::env::temp_dir().join(&self.prefix);
        let make = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path);
        let told = |error: io::Error| {
            CommandError::problem(format!("creating {}: {error}", directory.display()))
        };
        make(&directory).map_err(told)?;
        self.directory = Some(directory.clone());
        make(&directory.join("policy")).map_err(told)?;
        Ok(directory)
    }

    /// Removes everything; returns descriptions of the failures.
    fn remove(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for name in self.names.drain(..) {
            match KernelNetNamespaces.delete(&name) {
                Ok(()) | Err(NetNsError::Missing { .. }) => {}
                Err(error) => failures.push(error_chain(&error)),
            }
        }
        if let Some(directory) = self.directory.take()
            && let Err(error) = std::fs::remove_dir_all(&directory)
        {
            failures.push(format!("removing {}: {error}", directory.display()));
        }
        failures
    }
}

impl Drop for DemoResources {
    fn drop(&mut self) {
        for failure in self.remove() {
            eprintln!("palisade: {failure}");
        }
    }
}

fn failure(doing: &str, error: &dyn std::error::Error) -> CommandError {
    CommandError::problem(format!("{doing}: {}", error_chain(error)))
}

/// Connects host and outside with an ordinary veth, as an uplink.
fn connect_outside(
    host: &NetNs,
    outside: &NetNs,
    ipv6: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut on_host = KernelLinks::open(host)?;
    let mut outside_links = KernelLinks::open(outside)?;
    let end = VethEnd {
        name: UPLINK_NAME.to_owned(),
        ..VethEnd::default()
    };
    let far = VethEnd {
        name: "eth0".to_owned(),
        netns: Some(outside.clone()),
        ..VethEnd::default()
    };
    on_host.create_veth(&end, &far)?;
    if ipv6 {
        // Otherwise duplicate address detection delays the link-local addresses by a second or two.
        KernelSysctl::new(host).set(&format!("net/ipv6/conf/{UPLINK_NAME}/accept_dad"), "0")?;
        KernelSysctl::new(outside).set("net/ipv6/conf/eth0/accept_dad", "0")?;
    }
    on_host.change_link("lo", &LinkChange::Up)?;
    outside_links.change_link("lo", &LinkChange::Up)?;
    on_host.change_link(UPLINK_NAME, &LinkChange::Up)?;
    outside_links.change_link("eth0", &LinkChange::Up)?;
    for (gateway, length) in UPLINK {
        let (address, everything) = match gateway {
            IpAddr::V4(_) => (
                IpAddr::from(OUTSIDE_V4),
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
            ),
            IpAddr::V6(_) if !ipv6 => continue,
            IpAddr::V6(_) => (
                IpAddr::from(OUTSIDE_V6),
                IpAddr::from(Ipv6Addr::UNSPECIFIED),
            ),
        };
        on_host.add_address(UPLINK_NAME, IpNet::new(gateway, length))?;
        outside_links.add_address("eth0", IpNet::new(address, length))?;
        outside_links.replace_route(&Route::via_on_link(
            IpNet::new(everything, 0),
            gateway,
            "eth0",
        ))?;
    }
    Ok(())
}

fn link_names(netns: &NetNs) -> Result<Vec<String>, CommandError> {
    let listing = |error: palisade_sys::link::LinkError| failure("listing interfaces", &error);
    let mut links = KernelLinks::open(netns).map_err(listing)?;
    Ok(links
        .links()
        .map_err(listing)?
        .into_iter()
        .map(|link| link.name)
        .collect())
}

/// The nftables tables in the namespace in which the demo was started.
fn nft_table_names() -> Result<Vec<String>, CommandError> {
    let here =
        NetNs::current().map_err(|error| failure("opening this network namespace", &error))?;
    let query = NfRequest::new(
        "listing nf_tables tables",
        NFNL_SUBSYS_NFTABLES,
        NFT_MSG_GETTABLE,
        0,
        |_| {},
    )
    .map_err(|error| failure("listing nf_tables tables", &error))?;
    let mut socket =
        KernelNfnetlink::open(&here).map_err(|error| failure("opening nf_tables", &error))?;
    let found = match socket.dump(&query) {
        Ok(found) => found,
        // A user without the privilege gets an error when the first namespace is created.
        Err(error) if error.error.errno == palisade_sys::Errno::EPERM => return Ok(Vec::new()),
        Err(error) => return Err(failure("listing nf_tables tables", &error)),
    };
    let name = |object: &palisade_sys::nfnetlink::NfMessage| {
        let attr = object.attrs().find(NFTA_TABLE_NAME).ok()??;
        attr.text().ok().map(str::to_owned)
    };
    Ok(found.iter().filter_map(name).collect())
}

/// Processes whose network namespace is one of these.
fn processes_in(ids: &[NetNsId]) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let inside = |path: &Path| {
        let meta = std::fs::metadata(path.join("ns/net")).ok()?;
        Some(ids.contains(&NetNsId {
            dev: meta.dev(),
            ino: meta.ino(),
        }))
    };
    processes
        .flatten()
        .filter(|entry| inside(&entry.path()) == Some(true))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// The command that removes what `--keep` left.
pub(super) fn removal_command(prefix: &str, directory: &Path, agent: u32) -> String {
    format!(
        "sudo sh -c 'kill {agent}; umount {NETNS_DIR}/{prefix}-*; rm -r {NETNS_DIR}/{prefix}-* {}'",
        directory.display()
    )
}
