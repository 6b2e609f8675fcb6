//! Policy objects: parse, validate, lower.
//!
//! For: turning what people write (`palisade_manifest::RawObject`) into the one form that everything
//! behind works on (`palisade_model::Object`), with every refusal and doubt named by file, line,
//! field and reason.
//!
//! Promises: an object is lowered whole or not at all; all of its problems are told, not only the
//! first; which reader an object gets is decided by API group, version and kind together; what no
//! reader takes is counted, never dropped without a word; no input makes it panic.
//!
//! Never: decides what a packet gets, remembers an earlier input, or reads a file.
//!
//! A dialect is a module with one type that implements `dialect::Dialect` and stands in the list
//! beside it. Nothing behind this crate knows which dialect a policy was written in.

mod cidr;
mod dialect;
mod doubts;
pub mod faults;
mod hash;
mod kubernetes;
mod lower;
mod names;
mod pending;
mod report;
mod suggest;
mod timestamp;

pub use dialect::{Lowered, isolate, read};
pub use doubts::{SubjectPlace, doubts, host_network_doubt};
pub use hash::ContentHash;
pub use lower::{Entry, Lowering, Status, lower};
pub use suggest::nearest;
