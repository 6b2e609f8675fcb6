//! Decision tables to nftables transactions, as values.

#![no_std]

extern crate alloc;
