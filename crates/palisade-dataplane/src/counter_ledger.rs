//! The counter ledger: totals per account that never decrease, even when the kernel's counters are deleted.
//!
//! Promises: a reported total never goes back; with a journal, a deleted counter is added to the totals
//! exactly once, even if the process dies between any two steps. A counter that another program deletes is
//! added with the value read last. The drivers write to it, and one owner keeps it: it outlives a driver, and
//! what a driver of another name counted stays in the totals. Never: reads the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use palisade_layout::{
    CountAccount, CounterAccounts, CounterKey, CounterSnapshot, Counters, RetiringCounter,
};
use palisade_tables::{CounterValue, ReportReason, VerdictCause};

use crate::counter_journal::{self, CounterJournal, JournalAccount, JournalEntry, JournalError};

/// The journal is not compacted before it has this many new entries.
const MIN_COMPACTION: usize = 2_000;

/// Retired counts, values read last, and totals reported last.
#[derive(Default)]
pub struct CounterLedger {
    /// Counts of deleted counters.
    retired: BTreeMap<CountAccount, CounterValue>,
    /// The value of each counter when it was read last.
    last_read: BTreeMap<CounterKey, CounterValue>,
    /// The accounts that the journal had for the driver's counters, until the driver takes them.
    restored: CounterAccounts,
    /// The totals reported last.
    reported: BTreeMap<CountAccount, CounterValue>,
    /// Counters that may be deleted already; reading the kernel decides.
    retiring: Vec<RetiringCounter>,
    journal: Option<Box<dyn CounterJournal>>,
    /// The driver that makes the keys.
    driver: String,
    /// The journal's numbers of accounts.
    numbers: BTreeMap<CountAccount, u32>,
    /// Entries since the last compaction, and the entries it wrote.
    journal_sizes: (usize, usize),
    /// The last journal error, until [`CounterLedger::take_error`] returns it.
    journal_error: Option<std::io::Error>,
}

impl fmt::Debug for CounterLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterLedger")
            .field("retired", &self.retired)
            .field("reported", &self.reported)
            .field("retiring", &self.retiring)
            .finish_non_exhaustive()
    }
}

impl CounterLedger {
    /// Restores what an earlier process journalled, and journals from now on; to be called before the driver
    /// of this name first writes. Returns why the text was not read to its end.
    pub fn restore(
        &mut self,
        driver: &str,
        journal: Box<dyn CounterJournal>,
        text: &[u8],
    ) -> Option<JournalError> {
        let content = counter_journal::decode(text);
        // Another driver's keys mean nothing to this one.
        let is_readable = content.driver.as_deref() == Some(driver);
        self.restore_entries(content.entries, is_readable);
        self.journal = Some(journal);
        driver.clone_into(&mut self.driver);
        let accounts = self.restored.clone();
        self.compact(true, &|| accounts.clone());
        content.error
    }

    fn restore_entries(&mut self, entries: Vec<JournalEntry>, is_readable: bool) {
        let mut accounts: BTreeMap<u32, CountAccount> = BTreeMap::new();
        let accounts_of =
            |accounts: &BTreeMap<u32, CountAccount>, numbers: &[u32]| -> Vec<CountAccount> {
                let accounts = numbers.iter().map(|number| accounts.get(number).cloned());
                accounts.flatten().collect()
            };
        for entry in entries {
            match entry {
                JournalEntry::Account(number, account) => {
                    accounts.extend(count_account(account).map(|account| (number, account)));
                }
                JournalEntry::Counter(key, numbers) => {
                    self.restored.insert(key, accounts_of(&accounts, &numbers));
                }
                JournalEntry::Retiring(key, numbers, packets, bytes) => {
                    let accounts = accounts_of(&accounts, &numbers);
                    let count = CounterValue { packets, bytes };
                    self.retiring.push(RetiringCounter {
                        key,
                        accounts,
                        count,
                    });
                }
                JournalEntry::Deleted => self.add_retired(),
                JournalEntry::Reconciled => self.retiring.clear(),
                JournalEntry::Add(number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let entry = self.retired.entry(account.clone()).or_default();
                        add(entry, CounterValue { packets, bytes });
                    }
                }
                JournalEntry::Total(number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let total = CounterValue { packets, bytes };
                        self.reported.insert(account.clone(), total);
                    }
                }
            }
        }
        if !is_readable {
            // Nobody reads these counters any more: what they had, and no less than was reported, stays.
            self.add_retired();
            self.restored.clear();
        }
    }

    /// The accounts that the journal had for the driver's counters; empty the next time.
    pub fn take_restored(&mut self) -> CounterAccounts {
        std::mem::take(&mut self.restored)
    }

    /// The journal error since the last call, if any.
    pub fn take_error(&mut self) -> Option<std::io::Error> {
        self.journal_error.take()
    }

    /// Whether a journal is written.
    pub fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Journals the accounts of new counters, before they are in the kernel.
    pub fn record_accounts(&mut self, counters: &CounterAccounts) {
        if !self.has_journal() || counters.is_empty() {
            return;
        }
        let mut entries = Vec::new();
        self.push_counters(counters, &mut entries);
        self.append(&entries);
    }

    fn push_counters(&mut self, counters: &CounterAccounts, entries: &mut Vec<JournalEntry>) {
        for (key, accounts) in counters {
            let numbers = self.account_numbers(accounts, entries);
            entries.push(JournalEntry::Counter(key.clone(), numbers));
        }
    }

    /// Journals counters that are about to be deleted.
    pub fn begin_retirement(&mut self, retiring: Vec<RetiringCounter>) {
        let mut entries = Vec::new();
        for RetiringCounter {
            key,
            accounts,
            count,
        } in &retiring
        {
            if *count == CounterValue::default() {
                continue;
            }
            let numbers = self.account_numbers(accounts, &mut entries);
            entries.push(JournalEntry::Retiring(
                key.clone(),
                numbers,
                count.packets,
                count.bytes,
            ));
        }
        self.retiring.extend(retiring);
        if !entries.is_empty() {
            self.append(&entries);
        }
    }

    /// The counters given to [`CounterLedger::begin_retirement`] are deleted.
    pub fn finish_retirement(&mut self) {
        if self
            .retiring
            .iter()
            .any(|counter| counter.count != CounterValue::default())
        {
            self.append(&[JournalEntry::Deleted]);
        }
        self.add_retired();
    }

    fn add_retired(&mut self) {
        for RetiringCounter {
            key,
            accounts,
            count,
        } in std::mem::take(&mut self.retiring)
        {
            self.last_read.remove(&key);
            if !palisade_sys::fault::is_injected("count-lost") {
                add_to_accounts(&mut self.retired, &accounts, count);
            }
        }
    }

    /// Adds counters that are missing from the kernel, or lower than before, to the retired counts:
    /// `snapshot` is what was read, `counters` has the accounts of each counter.
    pub fn reconcile(&mut self, counters: &CounterAccounts, snapshot: &dyn CounterSnapshot) {
        let went_back = |key: &CounterKey, accounts: &[CountAccount], before: CounterValue| {
            let now = snapshot.value(key, accounts).unwrap_or_default();
            now.packets < before.packets || now.bytes < before.bytes
        };
        let mut entries = Vec::new();
        let mut lost: Vec<(Vec<CountAccount>, CounterValue)> = Vec::new();
        let retiring = std::mem::take(&mut self.retiring);
        if retiring
            .iter()
            .any(|counter| counter.count != CounterValue::default())
        {
            entries.push(JournalEntry::Reconciled);
        }
        for RetiringCounter {
            key,
            accounts,
            count,
        } in retiring
        {
            if went_back(&key, &accounts, count) {
                self.last_read.remove(&key);
                lost.push((accounts, count));
            }
        }
        let mut last_read = std::mem::take(&mut self.last_read);
        last_read.retain(|key, before| {
            let accounts = counters.get(key).map_or(&[][..], |accounts| accounts);
            let is_lost = went_back(key, accounts, *before);
            if is_lost {
                lost.push((accounts.to_vec(), *before));
            }
            !is_lost
        });
        self.last_read = last_read;
        for (accounts, count) in lost {
            for number in self.account_numbers(&accounts, &mut entries) {
                entries.push(JournalEntry::Add(number, count.packets, count.bytes));
            }
            add_to_accounts(&mut self.retired, &accounts, count);
        }
        if !entries.is_empty() {
            self.append(&entries);
        }
    }

    /// The totals; later ones are never less.
    pub fn update_totals(
        &mut self,
        counters: &CounterAccounts,
        snapshot: &dyn CounterSnapshot,
    ) -> Counters {
        self.reconcile(counters, snapshot);
        let mut totals = self.retired.clone();
        for (key, accounts) in counters {
            if let Some(count) = snapshot.value(key, accounts) {
                add_to_accounts(&mut totals, accounts, count);
                if count != CounterValue::default() {
                    self.last_read.insert(key.clone(), count);
                }
            }
        }
        let mut entries = Vec::new();
        for (account, reported) in &self.reported {
            // Counts of a table that was deleted before it was read again.
            let total = totals.entry(account.clone()).or_default();
            let missing = CounterValue {
                packets: reported.packets.saturating_sub(total.packets),
                bytes: reported.bytes.saturating_sub(total.bytes),
            };
            if missing != CounterValue::default() {
                add(total, missing);
                add(self.retired.entry(account.clone()).or_default(), missing);
                if let Some(number) = self.numbers.get(account) {
                    entries.push(JournalEntry::Add(*number, missing.packets, missing.bytes));
                }
            }
        }
        if self.has_journal() {
            for (account, total) in &totals {
                if self.reported.get(account) != Some(total) {
                    let numbers = self.account_numbers(std::slice::from_ref(account), &mut entries);
                    let totals = numbers
                        .into_iter()
                        .map(|number| JournalEntry::Total(number, total.packets, total.bytes));
                    entries.extend(totals);
                }
            }
        }
        if !entries.is_empty() {
            self.append(&entries);
        }
        self.reported.clone_from(&totals);
        let mut counters = Counters::default();
        for (account, count) in totals {
            match account {
                CountAccount::Rule(cause) => counters.by_rule.insert(cause, count),
                CountAccount::Drop(reason) => counters.by_drop_reason.insert(reason, count),
                CountAccount::Audit(verdicts) => counters.by_audit.insert(verdicts, count),
            };
        }
        counters
    }

    /// Drops the totals of rules for which `keep` returns false.
    pub fn retain(&mut self, keep: &dyn Fn(&VerdictCause) -> bool) {
        let must_keep = |account: &CountAccount| match account {
            CountAccount::Rule(cause) => keep(cause),
            CountAccount::Drop(_) | CountAccount::Audit(_) => true,
        };
        self.retired.retain(|account, _| must_keep(account));
        self.reported.retain(|account, _| must_keep(account));
    }

    /// Rewrites the journal if it has grown enough or if `always` is set: `counters` gives the accounts of
    /// all counters in the kernel.
    pub fn compact(&mut self, always: bool, counters: &dyn Fn() -> CounterAccounts) {
        let (appended, compacted) = self.journal_sizes;
        let is_due = always || appended > compacted.max(MIN_COMPACTION);
        if self.journal.is_none() || !is_due {
            return;
        }
        self.numbers.clear();
        let mut entries = Vec::new();
        self.push_counters(&counters(), &mut entries);
        let retiring = std::mem::take(&mut self.retiring);
        for RetiringCounter {
            key,
            accounts,
            count,
        } in &retiring
        {
            let numbers = self.account_numbers(accounts, &mut entries);
            entries.push(JournalEntry::Retiring(
                key.clone(),
                numbers,
                count.packets,
                count.bytes,
            ));
        }
        self.retiring = retiring;
        for (account, count) in self.retired.clone() {
            let numbers = self.account_numbers(&[account], &mut entries).into_iter();
            let add = |number| JournalEntry::Add(number, count.packets, count.bytes);
            entries.extend(numbers.map(add));
        }
        for (account, count) in self.reported.clone() {
            let numbers = self.account_numbers(&[account], &mut entries).into_iter();
            let total = |number| JournalEntry::Total(number, count.packets, count.bytes);
            entries.extend(numbers.map(total));
        }
        if let Some(journal) = &mut self.journal {
            let text = counter_journal::encode(&self.driver, &entries);
            if let Err(error) = text.and_then(|text| journal.replace(&text)) {
                self.journal_error = Some(error);
            }
        }
        self.journal_sizes = (0, entries.len());
    }

    /// The numbers of accounts; appends entries for new ones.
    fn account_numbers(
        &mut self,
        accounts: &[CountAccount],
        entries: &mut Vec<JournalEntry>,
    ) -> Vec<u32> {
        let mut out = Vec::with_capacity(accounts.len());
        for account in accounts {
            let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(account.clone()).or_insert_with(|| {
                let account = match account {
                    CountAccount::Rule(cause) => JournalAccount::Rule((**cause).clone()),
                    CountAccount::Drop(reason) => JournalAccount::Reason(reason.name().to_owned()),
                    CountAccount::Audit(verdicts) => JournalAccount::Audit(*verdicts),
                };
                entries.push(JournalEntry::Account(next, account));
                next
            });
            out.push(number);
        }
        out
    }

    fn append(&mut self, entries: &[JournalEntry]) {
        self.journal_sizes.0 += entries.len();
        if let Some(journal) = &mut self.journal {
            let mut text = Vec::new();
            let encoded = counter_journal::encode_entries(entries, &mut text);
            if let Err(error) = encoded.and_then(|()| journal.append(&text)) {
                self.journal_error = Some(error);
            }
        }
    }
}

/// The account of a journal's entry; `None` for a reason that this build does not know.
fn count_account(account: JournalAccount) -> Option<CountAccount> {
    match account {
        JournalAccount::Rule(cause) => Some(CountAccount::Rule(Arc::new(cause))),
        JournalAccount::Reason(name) => {
            let mut reasons = ReportReason::DROPS.into_iter();
            let reason = reasons.find(|reason| reason.name() == name);
            reason.map(CountAccount::Drop)
        }
        JournalAccount::Audit(verdicts) => Some(CountAccount::Audit(verdicts)),
    }
}

fn add(total: &mut CounterValue, count: CounterValue) {
    total.packets = total.packets.saturating_add(count.packets);
    total.bytes = total.bytes.saturating_add(count.bytes);
}

fn add_to_accounts(
    totals: &mut BTreeMap<CountAccount, CounterValue>,
    accounts: &[CountAccount],
    count: CounterValue,
) {
    for account in accounts {
        add(totals.entry(account.clone()).or_default(), count);
    }
}

#[cfg(test)]
mod tests;
