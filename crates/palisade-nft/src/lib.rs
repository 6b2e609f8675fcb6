//! Plans nftables transactions from decision tables, as values.
//!
//! [`ast`] has the types of a table's content: rules, expressions, elements. [`Transaction`] has the operations
//! that change it. All are close enough to the kernel's that each is encoded to netlink and decoded one to one.
//! Nothing here accesses a kernel.

#![no_std]

extern crate alloc;

mod adopt;
mod answering;
pub mod ast;
mod config;
mod content;
mod decode;
mod early_stages;
mod edit_batch;
mod fault;
mod field_type;
mod hairpin;
mod held_classes;
mod hook_rules;
mod host_chains;
mod host_judgement;
mod installed_points;
mod judgement;
mod kernel_enum;
mod kernel_numbers;
mod masquerade;
mod midstream;
mod names;
mod nflog;
mod planner;
mod print;
mod proof;
mod redirect;
mod redirect_ports;
mod redirect_probe;
mod repair;
mod rule;
mod skeleton;
mod source_ports;
mod transaction;
mod translated;

pub use adopt::adopt;
pub use ast::*;
pub use config::{Config, NflogConfig, PacketMarkBits, RedirectConfig};
pub use fault::NftFault;
pub use field_type::FieldType;
pub use installed_points::installed_points;
pub use masquerade::{Masquerade, masqueraded_addresses};
pub use nflog::{counted_chains, drop_comment, log_prefix, parse_log_prefix};
pub use planner::{Planner, raised_generation};
pub use print::{print_ruleset, print_transaction};
pub use redirect_probe::redirect_probe;
pub use skeleton::{SCHEMA, skeleton};
pub use transaction::{AttributedCounter, CounterLocation, Op, Transaction, TxStep};
