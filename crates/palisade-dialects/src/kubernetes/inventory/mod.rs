//! Inventory: the objects that policies refer to.
//!
//! They are read leniently: a dump contains hundreds of fields, and only those that policy depends on are
//! checked.

pub(super) mod cluster;
pub(super) mod endpoint_slice;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod unnamed_ports;
pub(super) mod workload;
