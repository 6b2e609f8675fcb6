//! The form in which addresses of names are stored, and given to those who show them.

use core::net::IpAddr;
use palisade_model::{DomainName, EndpointId};
use serde::{Deserialize, Serialize};

use alloc::vec::Vec;

/// A name with its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredName {
    /// The name.
    pub name: DomainName,
    /// Its addresses, in order, those of each workload beside each other.
    pub addresses: Vec<StoredAddress>,
}

/// An address of a name, as one workload holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredAddress {
    /// The address.
    pub address: IpAddr,
    /// The workload that asked.
    pub workload: EndpointId,
    /// When it expires, in milliseconds since the Unix epoch. It may stay longer in use.
    pub expires: u64,
}
