//! Counters whatever counts: keys that only a driver can read, the accounts that counts are for, and totals.
//!
//! Never: knows where a driver keeps its counters.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use palisade_model::Str;
use palisade_tables::{
    AuditComparison, CounterValue, Delta, ReportReason, RuleId, TableChange, Tables, VerdictCause,
};
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

/// What a count is attributed to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountAccount {
    /// A rule, tier default or profile.
    Rule(Arc<VerdictCause>),
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
    /// What its value is attributed to.
    pub accounts: Vec<CountAccount>,
    /// Its last value.
    pub count: CounterValue,
}

/// Packet and byte counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By the rule, tier default or profile that they are attributed to.
    pub by_rule: BTreeMap<Arc<VerdictCause>, CounterValue>,
    /// Drops that no rule decided, by reason: those of [`ReportReason::DROPS`].
    pub by_drop_reason: BTreeMap<ReportReason, CounterValue>,
    /// Packets judged where something in audit applies, by their verdicts.
    pub by_audit: BTreeMap<AuditComparison, CounterValue>,
}

/// What each rule number stands for, also during a delta that deletes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCauses(BTreeMap<RuleId, Arc<VerdictCause>>);

impl RuleCauses {
    /// Those of whole tables.
    pub fn of(tables: &Tables) -> Self {
        RuleCauses(tables.rules.clone())
    }

    /// Adds those of a delta that is about to be written; those that it deletes still count.
    pub fn begin(&mut self, delta: &Delta) {
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            if let TableChange::Rule(rule, Some(cause)) = change {
                self.0.insert(*rule, cause.clone());
            }
        }
    }

    /// Removes those that a delta deletes, once it is written.
    pub fn finish(&mut self, delta: &Delta) {
        for change in delta.steps.iter().flat_map(|step| &step.changes) {
            if let TableChange::Rule(rule, None) = change {
                self.0.remove(rule);
            }
        }
    }

    /// The accounts of a counter: of these rules, each of which matched every counted packet, and of the verdicts where
    /// something in audit applies. Unknown rule numbers are left out.
    pub fn accounts(&self, rules: &[RuleId], audit: Option<AuditComparison>) -> Vec<CountAccount> {
        let causes = rules.iter().filter_map(|rule| self.0.get(rule)).cloned();
        causes
            .map(CountAccount::Rule)
            .chain(audit.map(CountAccount::Audit))
            .collect()
    }
}
