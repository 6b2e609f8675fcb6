//! The compact storage: owners of addresses, the labels of namespaces and service accounts, and
//! policies, many of which are alike.
//!
//! Equal parts are kept once, what remains of an owner is a string of bytes, and a policy is stored
//! relative to its namespace and line. All this is known here only: outside, an owner is an
//! [`AddressOwnerView`], a policy is a number and its [`PolicyBody`], and objects come back exactly as they
//! were given. Nothing here knows what selectors, tiers or identities mean.

mod address_owner_records;
mod address_owner_store;
mod address_owner_view;
mod address_owners;
mod chunked_vec;
mod encoding;
mod inherited_labels;
mod name_pools;
mod numbers;
mod policies;
mod policy_bodies;
mod pool;
mod relative;

pub(crate) use address_owner_store::{AddressOwnerStore, ReplacedAddressOwner};
pub(crate) use address_owner_view::AddressOwnerView;
pub(crate) use address_owners::{
    AddressOwnerId, AddressOwnerKind, AddressOwnerObject, SharedAttributes,
};
pub(crate) use numbers::{AddressOwnerSlot, NONE, PolicyNumber, SignatureNumber};
pub(crate) use policies::{NamedPolicies, Policies, PolicyEdit, PolicyRulesKey};
pub(crate) use pool::{HashMap, InternPool, hash};
