//! The decision tables: all the meaning there is, as four small tables.
//!
//! *addresses* say which [identity](IdentityId) an address has; *points* say which
//! [policy set](PolicySetId) judges an interface's own address in a direction; *classes* say which
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
mod checker_lookups;
mod checker_samples;
mod delta;
mod judge;
mod past_tables;
mod port_map;
mod program;
mod sharing;
mod tables;

pub use canonical::{CanonicalPolicySet, CanonicalTables};
pub use checker::{CheckSummary, MisjudgedPacket, Violation, check, check_any_order};
pub use delta::{Delta, DeltaStep, Phase, TableChange};
pub use judge::{DirectionVerdict, Evaluation, LOOPBACK, Packet};
pub use past_tables::{PastTables, UndoRecord};
pub use port_map::PortMap;
pub use program::{Cell, Program, SHORT_RANGE, SourcePortMap, Verdict, icmp_key};
pub use sharing::{
    ProgramDefaults, SHARE_MIN_ELEMENTS, SharedBase, best_base, find_shared_bases, pair_base,
};
pub use tables::{ClassId, Credit, IdentityId, Point, PolicySet, PolicySetId, RuleId, Tables};
