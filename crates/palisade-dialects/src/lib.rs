//! Policy objects: parse, validate, lower.
//!
//! For: turning what people write (`palisade_manifest::RawObject`) into the one form that everything
//! behind works on (`palisade_model::Object`), with every refusal and doubt named by file, line,
//! field and reason.
//!
//! Promises: an object is lowered whole or not at all; all of its problems are told, not only the
//! first, up to a hundred, and the others are counted; which reader an object gets is decided by API
//! group, version and kind together; what no reader takes is counted, never dropped without a word;
//! a kind that is likely mistyped is an error; no input makes it panic.
//!
//! Never: decides what a packet gets, remembers an earlier input, or reads a file.
//!
//! A dialect is a module with one type that implements `dialect::Dialect` and stands in the list
//! beside it. Nothing behind this crate knows which dialect a policy was written in.

mod cidr;
mod dialect;
pub mod faults;
mod field_filters;
mod hash;
mod ignored_kinds;
mod kubernetes;
mod lint;
mod lower;
mod names;
mod quota;
mod report;
mod suggest;
mod timestamp;
mod unknown;
mod unsupported;

pub use dialect::{LoweredObject, isolate, lower_object};
pub use field_filters::field_filter_of_kind;
pub use hash::ContentHash;
pub use lint::{
    PolicyLinter, SubjectLocation, duplicate_addresses, host_network_warning,
    host_network_warnings, lint,
};
pub use lower::{
    EntryStatus, Lowering, LoweringEntry, count_ignored, duplicate_definition, lower,
    omitted_definitions,
};
pub use quota::{
    CollectorCheckpoint, MAX_PROBLEMS_PER_FILE, MAX_PROBLEMS_PER_INPUT, MAX_PROBLEMS_PER_OBJECT,
    OmittedCounts, OmittedProblems, ProblemCollector, ProblemQuota,
};
pub use suggest::nearest;
pub use unknown::is_known;
