//! The tables themselves, and their numbers.

use crate::{Program, TableChange};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use palisade_model::{Direction, PolicyId, Prefix, RuleOrigin, Str};
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A set of addresses that no active policy can tell apart. Local to the node.
    IdentityId, "i"
);
number!(
    /// A policy set: the applicable rules of one direction, shared by every point that has the same.
    PolicySetId, "s"
);
number!(
    /// A program, by number. Never stands for another program while it lives.
    ClassId, "c"
);
number!(
    /// Something that can be credited with a packet. Never stands for another while it lives.
    RuleId, "r"
);

impl IdentityId {
    /// The identity of every address without an entry: nothing that an active policy mentions.
    pub const UNKNOWN: IdentityId = IdentityId(0);
}

/// Where a direction is judged: an endpoint's interface, and which of its own addresses is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The host-side interface.
    pub interface: Str,
    /// The endpoint's own address.
    pub address: IpAddr,
    /// Seen from the endpoint.
    pub direction: Direction,
}

/// A policy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicySet {
    /// The class of every identity that has no entry of its own.
    pub default: ClassId,
}

/// What a [`RuleId`] stands for: what a counter and a log line lead back to. It never says a line, so
/// that it is the same over every edit that leaves the rule as it was; serialized in state on disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Credit {
    /// A rule of a policy.
    Rule {
        /// The policy.
        policy: PolicyId,
        /// The direction it stands in.
        direction: Direction,
        /// Its place in the policy.
        origin: RuleOrigin,
    },
    /// A rule of a profile.
    ProfileRule {
        /// The profile's name.
        profile: Str,
        /// The direction it stands in.
        direction: Direction,
        /// Its place in the profile.
        origin: RuleOrigin,
    },
    /// A tier in which nothing matched, and which denies by default.
    TierDefault {
        /// The tier's name.
        tier: Str,
        /// The direction.
        direction: Direction,
        /// The policies that ask for default deny, in order.
        policies: Vec<PolicyId>,
    },
    /// A profile that an endpoint names but that does not exist.
    MissingProfile {
        /// The profile's name.
        profile: Str,
        /// The direction.
        direction: Direction,
    },
    /// No rule of any profile matched.
    NoProfileMatch {
        /// The direction.
        direction: Direction,
    },
    /// What an endpoint sends is a packet within a packet, which the configuration denies although rules
    /// allow it.
    Encapsulated,
}

impl Credit {
    /// The direction that was judged.
    pub fn direction(&self) -> Direction {
        match self {
            Credit::Rule { direction, .. }
            | Credit::ProfileRule { direction, .. }
            | Credit::TierDefault { direction, .. }
            | Credit::MissingProfile { direction, .. }
            | Credit::NoProfileMatch { direction } => *direction,
            Credit::Encapsulated => Direction::Egress,
        }
    }
}

/// The decision tables. The fields are the whole content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Whether packets that this host's own stack makes are judged on their way into its endpoints.
    /// Where they are not, they pass: a kubelet's probes must reach its pods.
    pub judge_host_traffic: bool,
    /// The interfaces that are ours: what arrives or leaves there and has no point is denied.
    pub interfaces: BTreeSet<Str>,
    /// Address or prefix → identity; the longest prefix wins.
    pub addresses: BTreeMap<Prefix, IdentityId>,
    /// Judgement point → policy set.
    pub points: BTreeMap<Point, PolicySetId>,
    /// The policy sets.
    pub sets: BTreeMap<PolicySetId, PolicySet>,
    /// (policy set, identity) → class; absent: the set's default.
    pub classes: BTreeMap<(PolicySetId, IdentityId), ClassId>,
    /// Class → program.
    pub programs: BTreeMap<ClassId, Arc<Program>>,
    /// What the rules named by programs stand for.
    pub rules: BTreeMap<RuleId, Arc<Credit>>,
}

impl Tables {
    /// The identity of an address: that of the longest prefix that holds it.
    pub fn identity(&self, address: IpAddr) -> IdentityId {
        crate::judge::lookup_identity(self, address)
    }

    /// The class of an identity in a policy set; `None` if there is no such set.
    pub fn class(&self, set: PolicySetId, identity: IdentityId) -> Option<ClassId> {
        let default = self.sets.get(&set)?.default;
        Some(
            self.classes
                .get(&(set, identity))
                .copied()
                .unwrap_or(default),
        )
    }

    /// Takes in one change.
    pub fn apply(&mut self, change: &TableChange) {
        fn set_or_remove<K: Ord + Clone, V: Clone>(
            map: &mut BTreeMap<K, V>,
            key: &K,
            value: &Option<V>,
        ) {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        match change {
            TableChange::Interface(name, true) => drop(self.interfaces.insert(name.clone())),
            TableChange::Interface(name, false) => drop(self.interfaces.remove(name)),
            TableChange::Address(prefix, identity) => {
                set_or_remove(&mut self.addresses, prefix, identity)
            }
            TableChange::Point(point, set) => set_or_remove(&mut self.points, point, set),
            TableChange::Set(id, set) => set_or_remove(&mut self.sets, id, set),
            TableChange::Class(set, identity, class) => {
                set_or_remove(&mut self.classes, &(*set, *identity), class)
            }
            TableChange::Program(class, program) => {
                set_or_remove(&mut self.programs, class, program)
            }
            TableChange::Rule(rule, credit) => set_or_remove(&mut self.rules, rule, credit),
        }
    }
}
