//! What tests left behind: namespaces, control groups, links, nftables tables and pins with our names.
//!
//! A namespace carries the process that made it, so that leftovers are told from labs in use.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// One thing left behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leak {
    /// A named network namespace.
    Namespace(String),
    /// A control group, where containers ran.
    Group(String),
    /// A link in the namespace of the caller.
    Link(String),
    /// An nftables table in the namespace of the caller, with its family.
    Table(String),
    /// What the fast path of a namespace has pinned.
    Pins(String),
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Group(name) => write!(f, "control group {name}"),
            Self::Link(name) => write!(f, "link {name}"),
            Self::Table(name) => write!(f, "table {name}"),
            Self::Pins(name) => write!(f, "pins of {name}"),
        }
    }
}

/// What is left of labs whose process is gone, and of Palisade in the caller's own namespace.
///
/// # Errors
/// If namespaces, links or tables cannot be listed.
pub fn find_leaks() -> io::Result<Vec<Leak>> {
    let orphan = |name: &str| match owner_pid(name) {
        Some(process) => !Path::new(&format!("/proc/{process}")).exists(),
        None => name.starts_with("pal-"),
    };
    let mut found = leaked_namespaces(&orphan)?;
    found.extend(leaked_cgroups(&orphan)?);
    for entry in fs::read_dir("/proc/sys/net/ipv4/conf")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("pal") {
            found.push(Leak::Link(name));
        }
    }
    found.extend(leaked_tables()?);
    found.extend(leaked_pins()?);
    found.sort();
    Ok(found)
}

/// The namespaces and control groups that this very process made and has not removed.
///
/// # Errors
/// If namespaces cannot be listed.
pub fn find_own_leaks() -> io::Result<Vec<Leak>> {
    let ours = |name: &str| owner_pid(name) == Some(std::process::id());
    let mut found = leaked_namespaces(&ours)?;
    found.extend(leaked_cgroups(&ours)?);
    found.sort();
    Ok(found)
}

/// Control groups are folders of one hierarchy, or of one below each controller.
fn leaked_cgroups(counts: &dyn Fn(&str) -> bool) -> io::Result<Vec<Leak>> {
    let mut found = std::collections::BTreeSet::new();
    let mut open = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    for depth in 0..2 {
        for folder in std::mem::take(&mut open) {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("pal-") && counts(&name) {
                    found.insert(name);
                } else if depth == 0 && entry.file_type()?.is_dir() {
                    open.push(entry.path());
                }
            }
        }
    }
    Ok(found.into_iter().map(Leak::Group).collect())
}

fn leaked_namespaces(counts: &dyn Fn(&str) -> bool) -> io::Result<Vec<Leak>> {
    let entries = match fs::read_dir("/run/netns") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("pal-") && counts(&name) {
            found.push(Leak::Namespace(name));
        }
    }
    found.sort();
    Ok(found)
}

/// The process in `pal-<lab>-<process>-<n>-<node>`; lab and node may hold dashes themselves.
fn owner_pid(name: &str) -> Option<u32> {
    let parts: Vec<_> = name.split('-').collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<u32>().ok());
    (2..parts.len())
        .find(|&at| number(at).is_some() && number(at + 1).is_some())
        .and_then(number)
}

/// The pins of a namespace go with it.
fn leaked_pins() -> io::Result<Vec<Leak>> {
    let entries = match fs::read_dir(palisade_dataplane::ebpf::PIN_ROOT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| {
            Ok(Leak::Pins(
                entry?.file_name().to_string_lossy().into_owned(),
            ))
        })
        .collect()
}

fn leaked_tables() -> io::Result<Vec<Leak>> {
    #[allow(
        clippy::disallowed_methods,
        reason = "a test's witness, independent of the agent's netlink"
    )]
    let listed = std::process::Command::new("nft")
        .args(["list", "tables"])
        .output();
    let output = match listed {
        // Without nft there is nothing on this machine to list tables with, and the kernel ring
        // has failed before it came here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!("listing nftables tables: {said}")));
    }
    Ok(parse_palisade_tables(&String::from_utf8_lossy(
        &output.stdout,
    )))
}

fn parse_palisade_tables(listing: &str) -> Vec<Leak> {
    let lines = listing
        .lines()
        .filter_map(|line| line.strip_prefix("table "));
    lines
        .filter(|table| {
            table
                .split_once(' ')
                .is_some_and(|(_, name)| name.starts_with("pal"))
        })
        .map(|table| Leak::Table(table.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_read_through_dashes() {
        assert_eq!(owner_pid("pal-lab-123-0-host"), Some(123));
        assert_eq!(owner_pid("pal-two-words-123-4-pod-a"), Some(123));
        assert_eq!(owner_pid("pal-odd"), None);
    }

    #[test]
    fn only_our_tables_are_ours() {
        let listing = "table inet palisade\ntable ip nat\ntable ip6 pal_x\n";
        let expected = ["inet palisade", "ip6 pal_x"].map(|name| Leak::Table(name.to_owned()));
        assert_eq!(parse_palisade_tables(listing), expected);
    }
}
