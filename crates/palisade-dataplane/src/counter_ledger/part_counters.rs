//! The counters of one part of the ledger: what they count for, and what they had when they were read last.
//!
//! Promises: a count leaves the part only for the retired counts, so that the sum of both never decreases.
//! Never: knows another part, or the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palisade_layout::{
    CountAccount, CounterAccounts, CounterKey, CounterSnapshot, RetiringCounter,
};
use palisade_tables::CounterValue;

/// Counts by account.
pub(super) type AccountCounts = BTreeMap<CountAccount, CounterValue>;

/// A counter that the part has, or may have.
struct CounterRecord {
    /// Many counters count for the same accounts, so they share the list.
    accounts: Arc<[CountAccount]>,
    /// Its value when it was read last.
    last_value: CounterValue,
}

/// The counters of one part.
#[derive(Default)]
pub(super) struct PartCounters {
    /// All counters, and since the last update also those that were deleted.
    records: BTreeMap<CounterKey, CounterRecord>,
    /// Counters that may be deleted already; reading the kernel decides.
    retiring: Vec<RetiringCounter>,
    /// What the counters had when they were read last, also by an earlier process, without what is retired.
    counts: AccountCounts,
    /// The accounts of the counters are from the journal, and the driver has not taken them yet.
    is_untaken: bool,
}

impl PartCounters {
    pub(super) fn counts(&self) -> &AccountCounts {
        &self.counts
    }

    /// Sets what the counters had for an account.
    pub(super) fn set_count(&mut self, account: CountAccount, count: CounterValue) {
        self.counts.insert(account, count);
    }

    /// Sets what the counters had for all accounts.
    pub(super) fn set_counts(&mut self, counts: AccountCounts) {
        self.counts = counts;
    }

    /// The counters that may be deleted already.
    pub(super) fn retiring(&self) -> &[RetiringCounter] {
        &self.retiring
    }

    /// Whether a counter that may be deleted already has counted anything.
    pub(super) fn has_retiring_counts(&self) -> bool {
        let mut retiring = self.retiring.iter();
        retiring.any(|counter| counter.count != CounterValue::default())
    }

    pub(super) fn begin_retirement(&mut self, retiring: Vec<RetiringCounter>) {
        self.retiring.extend(retiring);
    }

    /// Whether the counters were deleted has been decided.
    pub(super) fn discard_retiring(&mut self) {
        self.retiring.clear();
    }

    /// The counters with their accounts.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (&CounterKey, &[CountAccount])> {
        let records = self.records.iter();
        records.map(|(key, record)| (key, &*record.accounts))
    }

    /// Adds a counter that the journal has.
    pub(super) fn add_restored(&mut self, key: CounterKey, accounts: Vec<CountAccount>) {
        self.is_untaken = true;
        self.add(key, accounts.into());
    }

    /// The accounts that the journal had; empty the next time. They are remembered all the same.
    pub(super) fn take_restored(&mut self) -> CounterAccounts {
        if !std::mem::take(&mut self.is_untaken) {
            return CounterAccounts::new();
        }
        let accounts = self.accounts();
        accounts
            .map(|(key, accounts)| (key.clone(), accounts.to_vec()))
            .collect()
    }

    /// Adds a counter, or changes its accounts.
    pub(super) fn add(&mut self, key: CounterKey, accounts: Arc<[CountAccount]>) {
        let before = self.records.get(&key);
        let last_value = before.map_or_else(CounterValue::default, |record| record.last_value);
        let record = CounterRecord {
            accounts,
            last_value,
        };
        self.records.insert(key, record);
    }

    /// Replaces the counters by these, which were just read; returns what they had, by account.
    pub(super) fn replace(
        &mut self,
        counters: CounterAccounts,
        snapshot: &dyn CounterSnapshot,
    ) -> AccountCounts {
        self.is_untaken = false;
        self.replace_records(counters);
        let mut counts = AccountCounts::new();
        for (key, record) in &mut self.records {
            let value = snapshot.value(key, &record.accounts);
            record.last_value = value.unwrap_or_default();
            if let Some(value) = value {
                add_to_accounts(&mut counts, &record.accounts, value);
            }
        }
        counts
    }

    /// Replaces the counters by these, but for those whose loss would have to be noticed.
    pub(super) fn set_accounts(&mut self, counters: CounterAccounts) {
        let mut others = self.replace_records(counters);
        others.retain(|_, record| record.last_value != CounterValue::default());
        self.records.append(&mut others);
    }

    /// Replaces the counters, each with the value that it had; returns the others.
    fn replace_records(
        &mut self,
        counters: CounterAccounts,
    ) -> BTreeMap<CounterKey, CounterRecord> {
        let mut before = std::mem::take(&mut self.records);
        let mut lists: BTreeSet<Arc<[CountAccount]>> = BTreeSet::new();
        let records = counters.into_iter().map(|(key, accounts)| {
            let old = before.remove(&key);
            let last_value = old.as_ref().map(|old| old.last_value).unwrap_or_default();
            let same = old.filter(|old| *old.accounts == *accounts);
            let shared = same.map(|old| old.accounts);
            let shared = shared.or_else(|| lists.get(&*accounts).cloned());
            let accounts = shared.unwrap_or_else(|| {
                let list: Arc<[CountAccount]> = accounts.into();
                lists.insert(Arc::clone(&list));
                list
            });
            let record = CounterRecord {
                accounts,
                last_value,
            };
            (key, record)
        });
        self.records = records.collect();
        before
    }

    /// Takes the counters that are missing from the kernel, or lower than before, with what they had.
    pub(super) fn take_lost(
        &mut self,
        snapshot: &dyn CounterSnapshot,
    ) -> Vec<(Arc<[CountAccount]>, CounterValue)> {
        let went_back = |key: &CounterKey, accounts: &[CountAccount], before: CounterValue| {
            let now = snapshot.value(key, accounts).unwrap_or_default();
            now.packets < before.packets || now.bytes < before.bytes
        };
        let mut lost = Vec::new();
        for counter in std::mem::take(&mut self.retiring) {
            if went_back(&counter.key, &counter.accounts, counter.count) {
                self.forget_value(&counter.key);
                lost.push((counter.accounts.into(), counter.count));
            }
        }
        for (key, record) in &mut self.records {
            let before = record.last_value;
            if before != CounterValue::default() && went_back(key, &record.accounts, before) {
                record.last_value = CounterValue::default();
                lost.push((Arc::clone(&record.accounts), before));
            }
        }
        lost
    }

    /// Moves the counts of the counters that were about to be deleted to the retired counts. Their accounts
    /// stay: the same key may have been created again in the same step.
    pub(super) fn retire_deleted(&mut self, retired: &mut AccountCounts) {
        for counter in std::mem::take(&mut self.retiring) {
            self.forget_value(&counter.key);
            if palisade_sys::fault::is_injected("count-lost") {
                continue;
            }
            for account in &counter.accounts {
                self.retire(account, counter.count, retired);
            }
        }
    }

    /// Moves a count to the retired counts; what the part had less is added all the same.
    pub(super) fn retire(
        &mut self,
        account: &CountAccount,
        count: CounterValue,
        retired: &mut AccountCounts,
    ) {
        if let Some(rest) = self.counts.get_mut(account) {
            *rest = difference(*rest, count);
        }
        add(retired.entry(account.clone()).or_default(), count);
    }

    /// Drops the counts of accounts for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: &dyn Fn(&CountAccount) -> bool) {
        self.counts.retain(|account, _| keep(account));
    }

    fn forget_value(&mut self, key: &CounterKey) {
        if let Some(record) = self.records.get_mut(key) {
            record.last_value = CounterValue::default();
        }
    }
}

/// What `count` has more than `other`; nothing where it has less.
pub(super) fn difference(count: CounterValue, other: CounterValue) -> CounterValue {
    CounterValue {
        packets: count.packets.saturating_sub(other.packets),
        bytes: count.bytes.saturating_sub(other.bytes),
    }
}

/// Adds to a total.
pub(super) fn add(total: &mut CounterValue, count: CounterValue) {
    total.packets = total.packets.saturating_add(count.packets);
    total.bytes = total.bytes.saturating_add(count.bytes);
}

fn add_to_accounts(totals: &mut AccountCounts, accounts: &[CountAccount], count: CounterValue) {
    for account in accounts {
        add(totals.entry(account.clone()).or_default(), count);
    }
}
