//! What every dataplane of maps keeps beside the decision tables, whatever kernel facility its maps are in.
//!
//! A map dataplane writes the tables in numbers of its own, which outlive the engine's ([`ObjectNumbers`]). It
//! resolves nested prefixes where its maps cannot ([`PrefixRanges`]), shares the entries that large classes have in
//! common ([`BasePrograms`], [`BaseSelection`]), knows which identities and which pairs of set and class are in use
//! ([`IdentityUses`], [`PairUses`]), has the addresses of the local endpoints as a set ([`LocalAddresses`]), takes over
//! what an earlier process wrote ([`HeldTables`]), and says what each counter counts for ([`RuleCauses`],
//! [`CountAccount`]).
//!
//! Promises: all of it is a value, follows from tables and deltas alone, and costs what changed.
//!
//! Never: knows how an entry is encoded, writes, or decides a verdict or the order of changes; those are decided by
//! `palisade-tables`.

#![no_std]

extern crate alloc;

mod accounts;
mod address_ranges;
mod base_selection;
mod bases;
mod held_tables;
mod local_addresses;
mod numbers;
mod uses;

pub use accounts::{
    CountAccount, CounterAccounts, CounterKey, CounterSnapshot, Counters, RetiringCounter,
    RuleCauses,
};
pub use address_ranges::{AddressRanges, PrefixRanges, ValueRange, identity_ranges};
pub use base_selection::BaseSelection;
pub use bases::{BasePrograms, ReleasedBase};
pub use held_tables::{HeldTables, StoredTables};
pub use local_addresses::{LocalAddressChanges, LocalAddresses};
pub use numbers::{InterfaceNumbers, NumberAllocator, ObjectNumbers};
pub use uses::{IdentityUses, PairUses};
