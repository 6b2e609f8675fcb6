//! Hubble's messages and servers, generated from Cilium's definitions in `proto`.
//!
//! Promises: names and numbers are those that Cilium 1.18 publishes.
//!
//! Never: has code written by hand.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    deprecated,
    clippy::all,
    reason = "generated; the definitions have what is to be said"
)]

/// Flows and filters.
pub(crate) mod flow {
    tonic::include_proto!("flow");
}

/// The service of flows.
pub(crate) mod observer {
    tonic::include_proto!("observer");
}

/// The service of peers.
pub(crate) mod peer {
    tonic::include_proto!("peer");
}

/// What a relay says about nodes.
pub(crate) mod relay {
    tonic::include_proto!("relay");
}

/// The definitions, as a set of descriptors.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hubble.bin"));
