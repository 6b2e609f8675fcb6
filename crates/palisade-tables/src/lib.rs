//! The decision tables: the whole compiled policy of a node, as four small tables.
//!
//! *addresses* maps an address to its [identity](IdentityId); *points* maps an interface, its own
//! address and a direction to a [policy set](PolicySetId); *classes* maps a policy set and an identity
//! to a [class](ClassId); *programs* maps a class to a [program](Program), which gives the verdict. The
//! engine computes the tables, and every dataplane implements them without interpreting policy.
//!
//! Promises: a [`Program`] is a total function in canonical form, so equal meanings are equal values;
//! the program of a [`ClassId`] never changes while the class exists; [`Tables::judge`] defines the
//! verdicts that each dataplane must reproduce. This crate never depends on the source of policies.

#![no_std]

extern crate alloc;

mod align;
mod delta;
mod dns_rules;
mod faults;
mod ids;
mod judge;
mod past_tables;
mod port_map;
mod program;
mod report_reason;
mod sharing;
mod tables;
mod transition;
mod verdict;

pub use align::{AlignmentSide, Renumbering, align};
pub use delta::{Atomicity, Delta, DeltaStep, Phase, TableChange};
pub use dns_rules::DnsRules;
pub use faults::TransitionFault;
pub use ids::{ClassId, IdentityId, PolicySetId, RuleId};
pub use judge::{DirectionVerdict, Evaluation, ICMP_REPLIES, LOOPBACK, Packet};
pub use past_tables::{PastTables, UndoRecord};
pub use port_map::PortMap;
pub use program::{
    AuditCell, AuditComparison, Cell, Program, SHORT_RANGE, SourcePortMap, icmp_key,
};
pub use report_reason::ReportReason;
pub use sharing::{
    ProgramDefaults, SHARE_MIN_ELEMENTS, SharedBase, best_base, find_shared_bases, pair_base,
};
pub use tables::{
    CounterValue, JudgementOptions, Point, PointInterface, PolicySet, Tables, VerdictCause,
};
pub use transition::{TableDifferences, TransitionHints, TransitionIds, transition};
pub use verdict::Verdict;
