//! What is written to a table: operations, and the steps in which they are applied.
//!
//! Promises: a transaction is a complete value, which can be printed, applied to a ruleset and encoded.
//! Never: decides what to write.

use crate::ast::{BaseChain, Element, ElementKey, NftRule, SetDecl};
use alloc::vec::Vec;
use palisade_model::Str;
use palisade_tables::{AuditComparison, Phase, RuleId};

/// One operation on the table. Objects are identified by name and key, never by kernel handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates the table, which must not exist.
    AddTable {
        /// The comment in its user data.
        comment: Option<Str>,
        /// `NFTA_TABLE_FLAGS`.
        flags: u32,
    },
    /// Deletes the table and everything in it.
    DeleteTable,
    /// Creates a set.
    AddSet {
        /// Its name.
        set: Str,
        /// Its declaration.
        decl: SetDecl,
    },
    /// Deletes a set and its elements.
    DeleteSet {
        /// Its name.
        set: Str,
    },
    /// Creates a chain.
    AddChain {
        /// Its name.
        chain: Str,
        /// The hook, for a base chain.
        base_chain: Option<BaseChain>,
    },
    /// Deletes a chain and its rules.
    DeleteChain {
        /// Its name.
        chain: Str,
    },
    /// Appends a rule.
    AddRule {
        /// The chain.
        chain: Str,
        /// The rule.
        rule: NftRule,
    },
    /// Deletes all rules of a chain.
    FlushChain {
        /// The chain.
        chain: Str,
    },
    /// Adds an element. No element may have the same key, unless an earlier operation of the step deletes it
    /// (this is how an element is replaced).
    AddElement {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
        /// Its content.
        element: Element,
    },
    /// Deletes an element, which must exist.
    DeleteElement {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
    },
}

/// Steps, each applied atomically. A step may require a grace period before the next one, until no packet is
/// still between two lookups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The table.
    pub table: Str,
    /// The steps, in order; none is empty.
    pub steps: Vec<TxStep>,
    /// Whether it is one step that only moves addresses to identities that allow more
    /// ([`palisade_tables::Delta::only_loosens_addresses`]): after another one such, it needs no grace period first.
    pub only_loosens_addresses: bool,
}

impl Transaction {
    /// A transaction of these steps, which waits for the grace period of the one before.
    pub fn new(table: Str, steps: Vec<TxStep>) -> Self {
        Transaction {
            table,
            steps,
            only_loosens_addresses: false,
        }
    }
}

/// One atomic batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxStep {
    /// The phase of the delta.
    pub phase: Phase,
    /// Counters that the operations delete; they are read first. Nothing refers to them any more once the
    /// grace period of the previous step is over, so their values are final.
    pub retiring_counters: Vec<AttributedCounter>,
    /// The operations, in an order that the kernel accepts.
    pub ops: Vec<Op>,
    /// Whether a grace period must pass before the next step.
    pub needs_grace_period: bool,
}

/// A counter, and the rules that it counts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributedCounter {
    /// The location of the counter.
    pub location: CounterLocation,
    /// Each of these rules matched every counted packet.
    pub rules: Vec<RuleId>,
    /// The verdicts of every counted packet, where something in audit applies.
    pub audit: Option<AuditComparison>,
}

/// The location of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterLocation {
    /// In a set element.
    Element {
        /// The set.
        set: Str,
        /// Its key.
        key: ElementKey,
    },
    /// In the counter of a rule.
    Rule {
        /// The chain.
        chain: Str,
        /// Its index in the chain, from 0.
        index: usize,
    },
}

impl Transaction {
    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
