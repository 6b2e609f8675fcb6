//! What is written to the maps of the fast path.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use palisade_layout::CountAccount;
use palisade_model::{Prefix, Str};
use palisade_tables::IdentityId;

use crate::class::{ClassWords, CounterId};

/// The slot of an address of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRow {
    /// Its number, from 1.
    pub number: u16,
    /// The interface of the workload.
    pub interface: Str,
    /// The address.
    pub address: IpAddr,
    /// In each half its identity; 0 without one.
    pub identities: [u32; 2],
    /// In each half the policy sets of egress and ingress; 0 passes everything.
    pub sets: [[u32; 2]; 2],
}

/// One change of the maps. What has two values has one for each half: the one in force is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapWrite {
    /// A counter begins to count for these accounts.
    Counter {
        /// Its number.
        number: CounterId,
        /// What it counts for.
        accounts: Vec<CountAccount>,
    },
    /// Nothing counts here any more: its value is to be retired, and set to 0.
    FreeCounter {
        /// Its number.
        number: CounterId,
        /// What it counted for.
        accounts: Vec<CountAccount>,
    },
    /// A class.
    Class {
        /// Its number, from 1.
        number: u32,
        /// What it says.
        content: Arc<ClassWords>,
        /// The element of `ranges` where its ranges begin, those of all protocols one after the other.
        first_range: u32,
    },
    /// Nothing uses a class any more.
    FreeClass {
        /// Its number.
        number: u32,
        /// What it said.
        content: Arc<ClassWords>,
    },
    /// The default classes of a set.
    Default {
        /// The number of the set, from 1.
        set: u32,
        /// The class of each half; 0 passes everything.
        classes: [u32; 2],
    },
    /// The classes of an identity in a set; `None` where they are the defaults.
    Row {
        /// The number of the set.
        set: u32,
        /// The identity.
        identity: IdentityId,
        /// The class of each half; 0 passes everything.
        classes: Option<[u32; 2]>,
    },
    /// An address of a workload. If it had another slot, that one has it no more.
    Slot(SlotRow),
    /// An address is of no workload any more, or of another one.
    FreeSlot {
        /// The number of its slot.
        number: u16,
        /// The address.
        address: IpAddr,
    },
    /// A prefix of the networks outside of this host.
    Prefix {
        /// The prefix.
        prefix: Prefix,
        /// Its identity in each half, `None` where that does not have it; nothing at all if neither has.
        identities: Option<[Option<IdentityId>; 2]>,
    },
    /// A length that programs try when they seek the prefix of an address.
    PrefixLength {
        /// Its place, below [`MAX_LENGTHS`](crate::MAX_LENGTHS).
        place: usize,
        /// The length of [`mapped_length`](crate::mapped_length), below 128; `None` frees the place.
        length: Option<u8>,
    },
    /// Whether each half has all prefixes of the networks.
    Networks {
        /// Of each half.
        complete: [bool; 2],
    },
}
