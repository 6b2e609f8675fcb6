//! The ends of connections as they are reported.

use crate::networks::{Network, networks};
use crate::region::Region;
use crate::workload::Workload;
use palisade_model::{Family, Prefix};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A workload.
    Workload(Workload),
    /// Several workloads. What is said of a group is said of each of them; and of each of them with
    /// each other one, where the group is at both ends.
    Group(Group),
    /// Addresses that no workload holds.
    Outside(Prefix),
    /// Those addresses of networks that no workload holds.
    Networks(Networks),
}

/// Workloads that are reported together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Two or more, in order.
    pub members: Rc<Vec<Workload>>,
    /// Whether JSON lists them all.
    pub told: bool,
}

/// Networks that are reported together, some with exceptions; one may add what another leaves out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Networks(pub Rc<Vec<Network>>);

impl Networks {
    /// These parts of the outside; `free` is what may be covered or not, as it suits.
    pub(crate) fn of(regions: &[Region; 2], free: &[Region; 2]) -> Self {
        let mut shown = Vec::new();
        for family in Family::BOTH {
            let (region, free) = (&regions[family as usize], &free[family as usize]);
            if !region.is_empty() {
                shown.extend(networks(family, region, free));
            }
        }
        Networks(Rc::new(shown))
    }

    /// Whether an address that no workload holds is meant.
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| {
            let except = |net: &palisade_model::Prefix| net.contains(address);
            network.all.contains(address) && !network.except.iter().any(except)
        })
    }

    fn shown(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl Party {
    /// These workloads: one under its own name.
    pub(crate) fn of(mut members: Vec<Workload>) -> Option<Party> {
        members.sort();
        match members.len() {
            0 => None,
            1 => members.pop().map(Party::Workload),
            _ => Some(Party::Group(Group {
                members: Rc::new(members),
                told: false,
            })),
        }
    }

    /// The workloads.
    pub fn workloads(&self) -> &[Workload] {
        match self {
            Party::Workload(workload) => std::slice::from_ref(workload),
            Party::Group(group) => &group.members,
            Party::Outside(_) | Party::Networks(_) => &[],
        }
    }

    /// The same, but that JSON lists every member of a group.
    #[must_use]
    pub fn with_members(self) -> Party {
        match self {
            Party::Group(group) => Party::Group(Group {
                told: true,
                ..group
            }),
            other => other,
        }
    }
}

impl Serialize for Party {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Party::Workload(workload) => workload.serialize(serializer),
            Party::Group(group) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("group", &self.to_string())?;
                map.serialize_entry("count", &group.members.len())?;
                if group.told {
                    map.serialize_entry("members", &*group.members)?;
                }
                map.end()
            }
            Party::Outside(cidr) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("cidr", cidr)?;
                map.end()
            }
            Party::Networks(networks) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("networks", &networks.shown())?;
                map.end()
            }
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Workload(workload) => workload.fmt(f),
            Party::Group(group) => match group.members.first() {
                Some(first) => write!(f, "{first} and {} more", group.members.len() - 1),
                None => Ok(()),
            },
            Party::Outside(cidr) => write!(f, "outside {cidr}"),
            Party::Networks(networks) => match networks.shown().as_slice() {
                [v4, v6] if v4 == "0.0.0.0/0" && v6 == "::/0" => f.write_str("outside"),
                shown => write!(f, "outside {}", shown.join(", ")),
            },
        }
    }
}
