//! The ends of connections in reports.

use crate::ip_blocks::{IpBlock, shortest_ip_blocks};
use palisade_api::{ConnectionEndReport, NameAddressesReport, WorkloadRef};
use palisade_model::{Family, Prefix, RangeSet};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionEnd {
    /// A workload.
    Workload(WorkloadRef),
    /// Two or more workloads, sorted. A connection of a group holds for each member; if the same group is at both
    /// ends, it holds between each member and every other member.
    Group(Rc<Vec<WorkloadRef>>),
    /// Addresses that no workload holds.
    Outside(Prefix),
    /// The addresses of these networks that no workload holds.
    Networks(IpBlocks),
    /// The addresses of these names, known or not; sorted.
    Names(Rc<Vec<NameAddresses>>),
}

/// The addresses of a name, or of the names of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameAddresses {
    /// The name or pattern, as Cilium writes it.
    pub name: String,
    /// How many of its addresses the state has.
    pub known: usize,
}

impl NameAddresses {
    fn report(&self) -> NameAddressesReport {
        NameAddressesReport {
            name: self.name.clone(),
            known: self.known,
        }
    }
}

impl fmt::Display for NameAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known {
            0 => f.write_str(&self.name),
            known => write!(f, "{} ({known} known)", self.name),
        }
    }
}

/// Networks that are reported together, some with exceptions. One may contain addresses that are an
/// exception of another; the union counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpBlocks(pub Rc<Vec<IpBlock>>);

impl IpBlocks {
    /// The fewest networks that cover these parts of the outside. Addresses in `free` may be covered or
    /// not.
    pub(crate) fn from_address_sets(
        regions: &[RangeSet<u128>; 2],
        free: &[RangeSet<u128>; 2],
    ) -> Self {
        let mut shown = Vec::new();
        for family in Family::BOTH {
            let (region, free) = (&regions[family as usize], &free[family as usize]);
            if !region.is_empty() {
                shown.extend(shortest_ip_blocks(family, region, free));
            }
        }
        IpBlocks(Rc::new(shown))
    }

    /// Whether the networks contain an address; only meaningful for one that no workload holds.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| {
            let except = |net: &palisade_model::Prefix| net.contains(address);
            network.cidr.contains(address) && !network.except.iter().any(except)
        })
    }

    fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl ConnectionEnd {
    /// The end for these workloads: `None` for none, a single workload, or a group.
    pub(crate) fn from_workloads(mut members: Vec<WorkloadRef>) -> Option<ConnectionEnd> {
        members.sort();
        match members.len() {
            0 => None,
            1 => members.pop().map(ConnectionEnd::Workload),
            _ => Some(ConnectionEnd::Group(Rc::new(members))),
        }
    }

    /// The workloads of this end; empty for the outside.
    pub fn workloads(&self) -> &[WorkloadRef] {
        match self {
            ConnectionEnd::Workload(workload) => std::slice::from_ref(workload),
            ConnectionEnd::Group(members) => members,
            ConnectionEnd::Outside(_) | ConnectionEnd::Networks(_) | ConnectionEnd::Names(_) => &[],
        }
    }

    /// The end for output; `members`: with all members of a group.
    pub fn report(&self, members: bool) -> ConnectionEndReport {
        match self {
            ConnectionEnd::Workload(workload) => ConnectionEndReport::Workload(workload.clone()),
            ConnectionEnd::Group(group) => ConnectionEndReport::Group {
                group: self.to_string(),
                count: group.len(),
                members: members.then(|| Rc::clone(group)),
            },
            ConnectionEnd::Outside(prefix) => ConnectionEndReport::Outside {
                cidr: prefix.to_string(),
            },
            ConnectionEnd::Networks(networks) => ConnectionEndReport::Networks {
                networks: networks.to_strings(),
            },
            ConnectionEnd::Names(names) => ConnectionEndReport::Names {
                names: names.iter().map(NameAddresses::report).collect(),
            },
        }
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Workload(workload) => workload.fmt(f),
            ConnectionEnd::Group(group) => match group.first() {
                Some(first) => write!(f, "{first} and {} more", group.len() - 1),
                None => Ok(()),
            },
            ConnectionEnd::Outside(cidr) => write!(f, "outside {cidr}"),
            ConnectionEnd::Networks(networks) => match networks.to_strings().as_slice() {
                [v4, v6] if v4 == "0.0.0.0/0" && v6 == "::/0" => f.write_str("outside"),
                shown => write!(f, "outside {}", shown.join(", ")),
            },
            ConnectionEnd::Names(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                write!(f, "addresses of {}", names.join(", "))
            }
        }
    }
}
