//! Policies of one dialect written as another, exactly or not at all.
//!
//! The lowered model is the pivot: [`convert`] takes the model policies of whole objects and has one writer for each
//! target dialect, which recognises what selectors and rules of the model say in that dialect.
//!
//! Promises: what is written means the same in every cluster, alone and beside policies of every dialect: the pods
//! that it selects, the addresses that a peer matches, its place among other policies and what it isolates. A policy
//! is written whole or not at all; one that is of the target dialect already stays as it is; and every rule that cannot be written is named with its reason. What is written is
//! read back by the dialects and compared with the original; a difference is a refusal, never output.
//!
//! A cluster-wide policy of Calico is for host endpoints as well. It is converted where it selects none of the input,
//! and then is one for pods.
//!
//! Two things decide by name or are left open by a standard, and are compared within the input only: another policy
//! of the same tier and priority (it makes the conversion a refusal where the two do not commute), and an object of
//! the target kind that has the name already.
//!
//! Never: reads a file, guesses what a policy was meant to say, or writes something close.

mod calico;
mod canonical;
mod cilium;
mod cluster_policy;
mod conversion;
mod domain_text;
mod draft;
mod inexpressible;
mod kubernetes;
mod label_selector;
mod label_syntax;
mod peer_form;
mod pods;
mod ports;
mod position;
mod read_back;
mod refusals;
mod simplify;
mod target;

pub use conversion::{Conversion, PolicySource, WrittenObject, convert, is_policy};
pub use inexpressible::{Inexpressible, InexpressibleReason};
pub use read_back::lower_written;
pub use target::TargetDialect;
