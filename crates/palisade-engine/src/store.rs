//! The compact storage: holders of addresses, the labels of namespaces and service accounts, and
//! policies, many of which are alike.
//!
//! Equal parts are kept once, what remains of a holder is a string of bytes, and a policy is stored
//! relative to its namespace and line. All this is known here only: outside, a holder is a
//! [`HolderView`], a policy is a number and its [`PolicyBody`], and objects come back exactly as they
//! were given. Nothing here knows what selectors, tiers or identities mean.

mod chunked_vec;
mod encoding;
mod holder_lists;
mod holder_store;
mod holders;
mod inherited_labels;
mod policies;
mod policy_bodies;
mod pool;
mod relative;

pub(crate) use holder_store::{HolderSlot, HolderStore, NONE, ReplacedHolder};
pub(crate) use holders::{HolderId, HolderKind, HolderObject, HolderView, SharedAttributes};
pub(crate) use policies::{NamedPolicies, Policies, PolicyEdit, PolicyNumber};
pub(crate) use pool::{HashMap, InternPool, hash};
