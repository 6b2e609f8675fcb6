//! The incremental graph from updates to decision-table deltas.

#![no_std]

extern crate alloc;
