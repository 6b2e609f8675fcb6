//! Decision tables to nftables transactions, as values.
//!
//! [`ast`] has the words: rulesets, rules, expressions, elements and transactions, near enough to
//! the kernel's own that each is encoded to netlink and read back one to one. Nothing here touches a
//! kernel.

#![no_std]

extern crate alloc;

mod adopt;
mod align;
mod apply;
pub mod ast;
mod bases;
mod batch;
mod coloring;
mod config;
mod content;
mod credits;
mod decode;
mod fault;
mod field;
mod flat;
mod judgement;
mod lint;
mod machine;
mod masquerade;
mod matching;
mod mend;
mod names;
mod numbers;
mod older;
mod own;
mod planner;
mod print;
mod report;
mod rule;
mod skeleton;
mod translated;

pub use adopt::adopt;
pub use apply::{ApplyError, apply};
pub use ast::*;
pub use config::{Config, LogConfig};
pub use decode::points;
pub use fault::Fault;
pub use field::Field;
pub use lint::{Finding, Problem, lint, lint_transaction};
pub use machine::{Cost, Ct, Frame, Machine, Outcome, Stuck};
pub use masquerade::{Masquerade, masqueraded};
pub use planner::{Planner, raised_generation};
pub use print::{print_ruleset, print_transaction};
pub use report::Report;
pub use skeleton::{SCHEMA, request_of, skeleton};
