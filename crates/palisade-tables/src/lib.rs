//! The decision tables: all the meaning there is, as four small tables.
//!
//! *addresses* say which [identity](IdentityId) an address has; *points* say which
//! [policy set](SetId) judges an interface's own address in a direction; *classes* say which
//! [program](Program) a policy set has for an identity; *programs* say what a packet gets. The
//! engine computes them, every dataplane renders them, and none re-thinks them.
//!
//! Promises: a [`Program`] is a total function in canonical form, so equal meanings are equal values;
//! what a [`ClassId`] stands for never changes while the class lives; [`Tables::judge`] is the
//! meaning that each dataplane must reproduce. Nothing here knows where policies come from.

#![no_std]

extern crate alloc;

mod canonical;
mod checker;
mod checker_atoms;
mod checker_lookups;
mod delta;
mod judge;
mod past;
mod port_map;
mod program;
mod sharing;
mod tables;

pub use canonical::{Canonical, CanonicalSet};
pub use checker::{Checked, Violation, Wrong, check, check_between};
pub use delta::{Change, Delta, Phase, Step};
pub use judge::{Judged, LOOPBACK, Packet, Seen};
pub use past::{Past, Undo};
pub use port_map::PortMap;
pub use program::{Cell, Program, SHORT_RANGE, Values, Verdict, icmp_key};
pub use sharing::{Defaults, SHARE_FROM, Shared, best_base, pair_base, share};
pub use tables::{ClassId, Credit, IdentityId, Point, PolicySet, RuleId, SetId, Tables};
