//! Decision tables to nftables transactions, as values.
//!
//! [`ast`] has the words: rulesets, rules, expressions, elements and transactions, near enough to
//! the kernel's own that each is encoded to netlink and read back one to one. Nothing here touches a
//! kernel.

#![no_std]

extern crate alloc;

pub mod ast;

pub use ast::*;
