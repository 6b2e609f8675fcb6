//! Counters as the contract knows them: keys that only a driver can read, the accounts that counts are
//! credited to, and totals.
//!
//! Never: knows where a driver keeps its counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_model::Str;
use palisade_tables::{AuditComparison, CounterValue, Credit, ReportReason};
use serde::{Deserialize, Serialize};

/// Where a driver counts. The driver makes the text and reads it; for everybody else it has only order and
/// equality. The same place has the same key after a restart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CounterKey(Str);

impl CounterKey {
    /// A key with this text.
    pub fn new(text: impl Into<Str>) -> Self {
        Self(text.into())
    }

    /// The text, for the driver that made it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a count is credited to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountAccount {
    /// A rule, tier default or profile.
    Rule(Arc<Credit>),
    /// A drop that no rule decided: one of [`ReportReason::DROPS`].
    Drop(ReportReason),
    /// Packets judged where something in audit applies, each once, by their verdicts.
    Audit(AuditComparison),
}

/// The accounts of each counter.
pub type CounterAccounts = BTreeMap<CounterKey, Vec<CountAccount>>;

/// Counters that a driver has read.
pub trait CounterSnapshot {
    /// The value of a counter; `None` if nothing with this key counts for these accounts any more.
    fn value(&self, key: &CounterKey, accounts: &[CountAccount]) -> Option<CounterValue>;
}

/// A counter that is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiringCounter {
    /// Its key.
    pub key: CounterKey,
    /// What its value is credited to.
    pub accounts: Vec<CountAccount>,
    /// Its last value.
    pub count: CounterValue,
}

/// Packet and byte counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By the rule, tier default or profile that they are credited to.
    pub by_rule: BTreeMap<Arc<Credit>, CounterValue>,
    /// Drops that no rule decided, by [the reason's name](ReportReason::name).
    pub by_drop_reason: BTreeMap<&'static str, CounterValue>,
    /// Packets judged where something in audit applies, by their verdicts.
    pub by_audit: BTreeMap<AuditComparison, CounterValue>,
}
