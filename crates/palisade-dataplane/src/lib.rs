//! Executes transactions, reads the kernel back, repairs.
//!
//! [`driver`] says what a dataplane is; [`NftDataplane`] is the one over nf_tables, for which [`netlink`] carries the words of
//! `palisade-nft` to the kernel and back; [`fake`] is a dataplane for tests of
//! what stands above.
//!
//! Promises: a step is in the kernel whole or not at all; the next one waits
//! until no packet is still between two lookups of the last; what is not ours
//! is never touched.
//!
//! Never: decides what a packet gets, or in which order things change; both
//! come as values from `palisade-tables` and `palisade-nft`.

mod book;
mod counts;
pub mod driver;
pub mod fake;
mod flows;
mod header;
mod ledger;
mod nat;
pub mod netlink;
mod nft;
mod reports;
mod sighting;

pub use driver::{
    Counters, Dataplane, Error, Held, Masquerade, Outcome, StepOutcome, Tamper, TamperWatch,
};
pub use fake::FakeDataplane;
pub use ledger::{Account, Entry, Ledger};
pub use netlink::OwnerError;
pub use nft::{NftConfig, NftDataplane, Preview};
pub use palisade_nft::Count;
pub use sighting::{PacketWatch, Sighting, Sightings, Why};
