//! The counter ledger: totals per account that never decrease, even when the kernel's counters are deleted.
//!
//! Every counting part of a driver has its own counters in it; a total is the sum of what the counters of all
//! parts had when they were read last, and of what is retired.
//!
//! Promises: a total never goes back; with a journal, a deleted counter is added to the totals exactly once,
//! even if the process dies between any two steps. A counter that another program deletes is added with the
//! value read last. A part that is not used stays as the journal has it, and counts with what it had. One
//! owner keeps the ledger: it outlives a driver. Never: reads the kernel, or touches the counters of another
//! part than the caller's.

mod journal_writer;
mod part_counters;

use std::collections::BTreeMap;
use std::fmt;

use palisade_layout::{CountAccount, CounterAccounts, CounterSnapshot, Counters, RetiringCounter};
use palisade_model::Str;
use palisade_tables::{CounterValue, VerdictCause};

use crate::counter_journal::{self, CounterJournal, JournalEntry, JournalError};
use journal_writer::{JournalWriter, count_account};
use part_counters::{AccountCounts, PartCounters, add, difference};

/// Retired counts, and the counters of each part.
#[derive(Default)]
pub struct CounterLedger {
    /// Counts of deleted counters.
    retired: AccountCounts,
    /// The parts by name.
    parts: BTreeMap<Str, PartCounters>,
    writer: JournalWriter,
}

impl fmt::Debug for CounterLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterLedger")
            .field("retired", &self.retired)
            .field("parts", &self.parts.keys())
            .finish_non_exhaustive()
    }
}

impl CounterLedger {
    /// Restores what an earlier process journalled, and journals from now on; to be called before a driver
    /// first writes. Returns why the text was not read to its end.
    pub fn restore(
        &mut self,
        journal: Box<dyn CounterJournal>,
        text: &[u8],
    ) -> Option<JournalError> {
        let content = counter_journal::decode(text);
        self.replay(content.entries);
        self.writer.open(journal);
        self.compact();
        content.error
    }

    fn replay(&mut self, entries: Vec<JournalEntry>) {
        let mut accounts: BTreeMap<u32, CountAccount> = BTreeMap::new();
        let accounts_of = |accounts: &BTreeMap<u32, CountAccount>, numbers: &[u32]| {
            let accounts = numbers.iter().map(|number| accounts.get(number).cloned());
            accounts.flatten().collect()
        };
        for entry in entries {
            match entry {
                JournalEntry::Account(number, account) => {
                    accounts.extend(count_account(account).map(|account| (number, account)));
                }
                JournalEntry::Counter(part, key, numbers) => {
                    let accounts = accounts_of(&accounts, &numbers);
                    let part = self.parts.entry(part).or_default();
                    part.add_restored(key, accounts);
                }
                JournalEntry::Retiring(part, key, numbers, packets, bytes) => {
                    let part = self.parts.entry(part).or_default();
                    part.begin_retirement(vec![RetiringCounter {
                        key,
                        accounts: accounts_of(&accounts, &numbers),
                        count: CounterValue { packets, bytes },
                    }]);
                }
                JournalEntry::Deleted(part) => {
                    let part = self.parts.entry(part).or_default();
                    part.retire_deleted(&mut self.retired);
                }
                JournalEntry::Reconciled(part) => {
                    self.parts.entry(part).or_default().discard_retiring();
                }
                JournalEntry::Lost(part, number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let part = self.parts.entry(part).or_default();
                        let count = CounterValue { packets, bytes };
                        part.retire(account, count, &mut self.retired);
                    }
                }
                JournalEntry::Count(part, number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let part = self.parts.entry(part).or_default();
                        part.set_count(account.clone(), CounterValue { packets, bytes });
                    }
                }
                JournalEntry::Add(number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let total = self.retired.entry(account.clone()).or_default();
                        add(total, CounterValue { packets, bytes });
                    }
                }
                JournalEntry::Total(part, number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let retired = self.retired.get(account).copied().unwrap_or_default();
                        let count = difference(CounterValue { packets, bytes }, retired);
                        let part = self.parts.entry(part).or_default();
                        part.set_count(account.clone(), count);
                    }
                }
            }
        }
    }

    /// The part of this name: the name of what makes its keys, the same after a restart.
    pub fn part<'a>(&'a mut self, name: &'a str) -> LedgerPart<'a> {
        LedgerPart { ledger: self, name }
    }

    /// The totals of all parts; later ones are never less. They have all that a part's counters had at its last
    /// update; what is deleted after it may hide what the others of the same account have counted since.
    #[must_use]
    pub fn totals(&self) -> Counters {
        let mut totals = self.retired.clone();
        for part in self.parts.values() {
            for (account, count) in part.counts() {
                add(totals.entry(account.clone()).or_default(), *count);
            }
        }
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

    /// Drops a part whose counters nobody will read again; what they had stays in the totals. Those that were
    /// about to be deleted count as deleted.
    pub fn retire_part(&mut self, name: &str) {
        let Some(mut part) = self.parts.remove(name) else {
            return;
        };
        part.retire_deleted(&mut self.retired);
        for (account, count) in part.counts() {
            add(self.retired.entry(account.clone()).or_default(), *count);
        }
        // One write, so that a process that dies has the part or its retired counts.
        self.compact();
    }

    /// The journal error since the last call, if any.
    pub fn take_error(&mut self) -> Option<std::io::Error> {
        self.writer.take_error()
    }

    /// Whether a journal is written.
    pub fn has_journal(&self) -> bool {
        self.writer.is_open()
    }

    /// Drops the totals of rules for which `keep` returns false.
    pub fn retain(&mut self, keep: &dyn Fn(&VerdictCause) -> bool) {
        let must_keep = |account: &CountAccount| match account {
            CountAccount::Rule(cause) => keep(cause),
            CountAccount::Drop(_) | CountAccount::Audit(_) => true,
        };
        self.retired.retain(|account, _| must_keep(account));
        for part in self.parts.values_mut() {
            part.retain(&must_keep);
        }
    }

    /// Rewrites the journal.
    fn compact(&mut self) {
        if !self.has_journal() {
            return;
        }
        let writer = &mut self.writer;
        writer.begin_compaction();
        for (name, part) in &self.parts {
            for (key, accounts) in part.accounts() {
                let numbers = writer.numbers(accounts);
                writer.push(JournalEntry::Counter(name.clone(), key.clone(), numbers));
            }
            for counter in part.retiring() {
                push_retiring(writer, name, counter);
            }
            let zero = CounterValue::default();
            for (account, count) in part.counts().iter().filter(|(_, count)| **count != zero) {
                push_count(writer, name, account, *count);
            }
        }
        for (account, count) in &self.retired {
            let number = writer.number(account);
            writer.push(JournalEntry::Add(number, count.packets, count.bytes));
        }
        writer.finish_compaction();
    }
}

/// One part of a ledger, for the driver that has its counters. It leaves those of other parts alone.
#[derive(Debug)]
pub struct LedgerPart<'a> {
    ledger: &'a mut CounterLedger,
    name: &'a str,
}

impl LedgerPart<'_> {
    fn split(&mut self) -> (&mut PartCounters, &mut AccountCounts, &mut JournalWriter) {
        let part = self.ledger.parts.entry(self.name.into()).or_default();
        (part, &mut self.ledger.retired, &mut self.ledger.writer)
    }

    /// The accounts that the journal had for the counters; empty the next time, and after an update.
    pub fn take_restored(&mut self) -> CounterAccounts {
        self.split().0.take_restored()
    }

    /// Journals the accounts of new counters, before they are in the kernel.
    pub fn record_accounts(&mut self, counters: &CounterAccounts) {
        let name = Str::new(self.name);
        let (part, _, writer) = self.split();
        if !writer.is_open() {
            return;
        }
        for (key, accounts) in counters {
            part.add(key.clone(), accounts.as_slice().into());
            let numbers = writer.numbers(accounts);
            writer.push(JournalEntry::Counter(name.clone(), key.clone(), numbers));
        }
        writer.append();
    }

    /// Journals counters that are about to be deleted.
    pub fn begin_retirement(&mut self, retiring: Vec<RetiringCounter>) {
        let name = Str::new(self.name);
        let (part, _, writer) = self.split();
        for counter in &retiring {
            if counter.count != CounterValue::default() {
                push_retiring(writer, &name, counter);
            }
        }
        writer.append();
        part.begin_retirement(retiring);
    }

    /// The counters given to [`LedgerPart::begin_retirement`] are deleted.
    pub fn finish_retirement(&mut self) {
        let name = Str::new(self.name);
        let (part, retired, writer) = self.split();
        if part.has_retiring_counts() {
            writer.push(JournalEntry::Deleted(name));
            writer.append();
        }
        part.retire_deleted(retired);
    }

    /// Adds counters that are missing from the kernel, or lower than before, to the retired counts:
    /// `snapshot` is what was read.
    pub fn reconcile(&mut self, snapshot: &dyn CounterSnapshot) {
        self.retire_lost(snapshot);
        self.ledger.writer.append();
    }

    fn retire_lost(&mut self, snapshot: &dyn CounterSnapshot) {
        let name = Str::new(self.name);
        let (part, retired, writer) = self.split();
        if part.has_retiring_counts() {
            writer.push(JournalEntry::Reconciled(name.clone()));
        }
        for (accounts, count) in part.take_lost(snapshot) {
            for account in &*accounts {
                push_lost(writer, &name, account, count);
                part.retire(account, count, retired);
            }
        }
    }

    /// Takes over all counters of the part as they were read: `counters` has the accounts of each. Counters
    /// that are missing from the kernel, or lower than before, are added to the retired counts.
    pub fn update(&mut self, counters: CounterAccounts, snapshot: &dyn CounterSnapshot) {
        self.retire_lost(snapshot);
        let name = Str::new(self.name);
        let (part, retired, writer) = self.split();
        let before = part.counts().clone();
        let counts = part.replace(counters, snapshot);
        for (account, count) in before {
            // Of counters that were lost while no process knew their values.
            let now = counts.get(&account).copied().unwrap_or_default();
            let lost = difference(count, now);
            if lost != CounterValue::default() {
                push_lost(writer, &name, &account, lost);
                part.retire(&account, lost, retired);
            }
        }
        for (account, count) in &counts {
            let before = part.counts().get(account).copied().unwrap_or_default();
            if before != *count {
                push_count(writer, &name, account, *count);
            }
        }
        part.set_counts(counts);
        writer.append();
    }

    /// Rewrites the journal if it has grown enough or if `always` is set: `counters` gives the accounts of
    /// all counters of this part in the kernel.
    pub fn compact(&mut self, always: bool, counters: &dyn Fn() -> CounterAccounts) {
        let writer = &self.ledger.writer;
        if writer.is_open() && (always || writer.is_compaction_due()) {
            self.split().0.set_accounts(counters());
            self.ledger.compact();
        }
    }
}

fn push_retiring(writer: &mut JournalWriter, part: &Str, counter: &RetiringCounter) {
    let numbers = writer.numbers(&counter.accounts);
    writer.push(JournalEntry::Retiring(
        part.clone(),
        counter.key.clone(),
        numbers,
        counter.count.packets,
        counter.count.bytes,
    ));
}

fn push_lost(writer: &mut JournalWriter, part: &Str, account: &CountAccount, lost: CounterValue) {
    let number = writer.number(account);
    let entry = JournalEntry::Lost(part.clone(), number, lost.packets, lost.bytes);
    writer.push(entry);
}

fn push_count(writer: &mut JournalWriter, part: &Str, account: &CountAccount, count: CounterValue) {
    let number = writer.number(account);
    let entry = JournalEntry::Count(part.clone(), number, count.packets, count.bytes);
    writer.push(entry);
}

#[cfg(test)]
mod tests;
