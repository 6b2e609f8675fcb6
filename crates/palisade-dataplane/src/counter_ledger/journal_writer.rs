//! Writes the entries of the counter ledger to its journal, and numbers the accounts in it.
//!
//! Promises: a number is used only after the journal has the account that it stands for. Never: changes a
//! count, or writes without being told to.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use palisade_layout::CountAccount;
use palisade_tables::ReportReason;

use crate::counter_journal::{self, CounterJournal, JournalAccount, JournalEntry};

/// The journal is not compacted before it has this many new entries.
const MIN_COMPACTION: usize = 2_000;

/// The journal of a ledger, if it has one; without one nothing is collected.
#[derive(Default)]
pub(super) struct JournalWriter {
    journal: Option<Box<dyn CounterJournal>>,
    /// The journal's numbers of accounts.
    numbers: BTreeMap<CountAccount, u32>,
    /// What is to be written next.
    entries: Vec<JournalEntry>,
    /// Entries since the last compaction, and the entries it wrote.
    sizes: (usize, usize),
    /// The last error, until it is taken.
    error: Option<io::Error>,
}

impl JournalWriter {
    pub(super) fn open(&mut self, journal: Box<dyn CounterJournal>) {
        self.journal = Some(journal);
    }

    pub(super) fn is_open(&self) -> bool {
        self.journal.is_some()
    }

    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Whether the journal has grown so much that a compaction is worth its cost.
    pub(super) fn is_compaction_due(&self) -> bool {
        let (new, compact) = self.sizes;
        self.is_open() && new > compact.max(MIN_COMPACTION)
    }

    /// Collects an entry.
    pub(super) fn push(&mut self, entry: JournalEntry) {
        if self.is_open() {
            self.entries.push(entry);
        }
    }

    /// The number of an account; collects an entry for a new one.
    pub(super) fn number(&mut self, account: &CountAccount) -> u32 {
        if let Some(number) = self.numbers.get(account) {
            return *number;
        }
        if !self.is_open() {
            return 0;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let entry = JournalEntry::Account(number, journal_account(account));
        self.numbers.insert(account.clone(), number);
        self.entries.push(entry);
        number
    }

    /// The numbers of accounts.
    pub(super) fn numbers(&mut self, accounts: &[CountAccount]) -> Vec<u32> {
        accounts.iter().map(|a| self.number(a)).collect()
    }

    /// Appends what was collected.
    pub(super) fn append(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if let Some(journal) = self.journal.as_mut().filter(|_| !entries.is_empty()) {
            self.sizes.0 += entries.len();
            let mut text = Vec::new();
            let result = counter_journal::encode_entries(&entries, &mut text);
            let result = result.and_then(|()| journal.append(&text));
            self.finish(result);
        }
    }

    /// Begins the text that replaces the whole journal: what is collected from now on.
    pub(super) fn begin_compaction(&mut self) {
        self.entries.clear();
        self.numbers.clear();
    }

    /// Replaces the journal by what was collected.
    pub(super) fn finish_compaction(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if let Some(journal) = &mut self.journal {
            self.sizes = (0, entries.len());
            let text = counter_journal::encode(&entries);
            let result = text.and_then(|text| journal.replace(&text));
            self.finish(result);
        }
    }

    fn finish(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error = Some(error);
            // The journal lacks the new numbers, or has others: every account gets one again.
            self.numbers.clear();
        }
    }
}

fn journal_account(account: &CountAccount) -> JournalAccount {
    match account {
        CountAccount::Rule(cause) => JournalAccount::Rule((**cause).clone()),
        CountAccount::Drop(reason) => JournalAccount::Reason(reason.name().to_owned()),
        CountAccount::Audit(verdicts) => JournalAccount::Audit(*verdicts),
    }
}

/// The account of a journal's entry; `None` for a reason that this build does not know.
pub(super) fn count_account(account: JournalAccount) -> Option<CountAccount> {
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
