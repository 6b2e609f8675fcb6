//! Policy objects: parse, validate, lower.
//!
//! Lowers objects as written (`palisade_manifest::RawObject`) to the model (`palisade_model::Object`) that
//! the rest of Palisade uses. Every error and warning names file, line, field and reason.
//!
//! Promises: an object is lowered completely or not at all; all of its problems are reported, up to a
//! hundred, and the rest counted; API group, version and kind together select the dialect of an object;
//! objects of ignored kinds are counted, never dropped silently; a kind that is likely a typo is an error; no
//! input causes a panic.
//!
//! Never: evaluates policy for a packet, keeps state between inputs, or reads a file.
//!
//! A dialect is a module with one type that implements `dialect::Dialect` and is listed in `lowering`. The rest of
//! Palisade does not know in which dialect a policy was written.

mod calico;
mod cidr;
mod cilium;
mod closed_part;
mod definitions;
mod dialect;
mod domain_peer;
pub mod faults;
mod field_filters;
mod fields;
mod foreign_policies;
mod hash;
mod ignored_kinds;
mod kind_reader;
mod kind_word;
mod kubernetes;
mod label_selector;
mod lowering;
mod metadata;
mod mode;
mod names;
mod network_set_kind;
mod policy_api;
mod policy_fields;
mod policy_kinds;
mod port;
mod quota;
mod report;
pub mod service_ports;
mod suggest;
mod timestamp;
mod unknown;

pub use calico::{ORCHESTRATOR, calico_holders, object_kind, selector as calico_selector};
pub use cilium::{index_in_specs, match_nodes_by_cidr};
pub use closed_part::{ClosedPart, ClosedReason};
pub use definitions::{count_ignored, duplicate_definition, omitted_definitions};
pub use dialect::LoweredObject;
pub use domain_peer::has_names;
pub use field_filters::field_filter_of_kind;
pub use fields::{ANY_OTHER, FieldRow, FieldSupport, PolicyKind};
pub use foreign_policies::is_unenforced_policy;
pub use hash::ContentHash;
pub use kind_word::{KindWord, policy_kind_word};
pub use kubernetes::unnamed_ports;
pub use lowering::{isolate, lower_object};
pub use mode::MODE_ANNOTATION;
pub use network_set_kind::network_set_kind;
pub use policy_fields::{FieldLocation, NamespaceField, PolicyFields, PortNameField};
pub use policy_kinds::{is_policy_kind, policy_kinds};
pub use quota::{
    MAX_PROBLEMS_PER_FILE, MAX_PROBLEMS_PER_INPUT, MAX_PROBLEMS_PER_OBJECT, OmittedCounts,
    OmittedProblems, ProblemQuota,
};
pub use suggest::nearest;
pub use unknown::is_known;
