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
mod doubts;
pub mod faults;
mod fields;
mod hash;
mod kinds;
mod kubernetes;
mod lower;
mod names;
mod pending;
mod quota;
mod report;
mod suggest;
mod timestamp;
mod unknown;

pub use dialect::{Lowered, isolate, read};
pub use doubts::{
    Doubts, SubjectPlace, claimed_twice, doubts, host_network_doubt, host_network_selected,
};
pub use fields::fields_of_kind;
pub use hash::ContentHash;
pub use lower::{Entry, Lowering, Status, count_ignored, defined_twice, lower, more_definitions};
pub use quota::{Ledger, Mark, More, OF_FILE, OF_INPUT, OF_OBJECT, Quota, Untold};
pub use suggest::nearest;
pub use unknown::is_known;
