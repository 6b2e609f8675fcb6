//! The counter ledger: totals per account that never decrease, even when the kernel's counters are deleted.
//!
//! Promises: a reported total never goes back; with a journal, a deleted counter is added to the totals
//! exactly once, even if the process dies between any two steps. A counter that another program deletes is
//! added with the value read last. Never: reads the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use palisade_nft::{CounterLocation, CounterValue};
use palisade_tables::Credit;

use crate::counter_journal::{
    CounterJournal, JournalAccount, JournalEntry, counter_value, format_location, parse_location,
};
use crate::counts::{CountAccount, CounterAccounts, CounterSnapshot, add, parse_drop_reason};
use crate::driver::Counters;

/// The journal is not compacted before it has this many new entries.
const MIN_COMPACTION: usize = 2_000;

/// A counter that is about to be deleted.
#[derive(Clone, Debug)]
pub(crate) struct RetiringCounter {
    pub(crate) location: CounterLocation,
    pub(crate) accounts: Vec<CountAccount>,
    pub(crate) count: CounterValue,
}

/// Retired counts, values read last, and totals reported last.
#[derive(Default)]
pub(crate) struct CounterLedger {
    /// Counts of deleted counters.
    retired: BTreeMap<CountAccount, CounterValue>,
    /// The value of each counter when it was read last.
    last_read: BTreeMap<CounterLocation, CounterValue>,
    /// The totals reported last.
    reported: BTreeMap<CountAccount, CounterValue>,
    /// Counters that may be deleted already; reading the kernel decides.
    retiring: Vec<RetiringCounter>,
    journal: Option<Box<dyn CounterJournal>>,
    /// The journal's numbers of accounts.
    account_numbers: BTreeMap<CountAccount, u32>,
    /// Entries since the last compaction, and the entries it wrote.
    journal_sizes: (usize, usize),
    /// The last journal error, until [`CounterLedger::take_error`] returns it.
    journal_error: Option<std::io::Error>,
}

impl fmt::Debug for CounterLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book")
            .field("gone", &self.retired)
            .field("told", &self.reported)
            .field("going", &self.retiring)
            .finish_non_exhaustive()
    }
}

impl CounterLedger {
    /// Restores the entries of an earlier process; returns the accounts of the kernel's counters.
    pub(crate) fn restore(
        &mut self,
        journal: Box<dyn CounterJournal>,
        entries: Vec<JournalEntry>,
    ) -> CounterAccounts {
        let mut accounts: BTreeMap<u32, CountAccount> = BTreeMap::new();
        let mut credits = CounterAccounts::new();
        let accounts_of =
            |accounts: &BTreeMap<u32, CountAccount>, of: &[u32]| -> Vec<CountAccount> {
                of.iter().filter_map(|n| accounts.get(n).cloned()).collect()
            };
        for entry in entries {
            match entry {
                JournalEntry::Account(number, JournalAccount::Rule(credit)) => {
                    accounts.insert(number, CountAccount::Rule(Arc::new(credit)));
                }
                JournalEntry::Account(number, JournalAccount::Reason(text)) => {
                    if let Some(reason) = parse_drop_reason(&text) {
                        accounts.insert(number, CountAccount::Reason(reason));
                    }
                }
                JournalEntry::Place(text, of) => {
                    if let Some(place) = parse_location(&text) {
                        credits.insert(place, accounts_of(&accounts, &of));
                    }
                }
                JournalEntry::Going(text, of, packets, bytes) => {
                    if let Some(place) = parse_location(&text) {
                        let (to, count) =
                            (accounts_of(&accounts, &of), counter_value(packets, bytes));
                        self.retiring.push(RetiringCounter {
                            location: place,
                            accounts: to,
                            count,
                        });
                    }
                }
                JournalEntry::Gone => self.add_retired(),
                JournalEntry::Stayed => self.retiring.clear(),
                JournalEntry::Add(number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        let entry = self.retired.entry(account.clone());
                        add(entry.or_default(), counter_value(packets, bytes));
                    }
                }
                JournalEntry::Told(number, packets, bytes) => {
                    if let Some(account) = accounts.get(&number) {
                        self.reported
                            .insert(account.clone(), counter_value(packets, bytes));
                    }
                }
            }
        }
        self.journal = Some(journal);
        credits
    }

    /// The journal error since the last call, if any.
    pub(crate) fn take_error(&mut self) -> Option<std::io::Error> {
        self.journal_error.take()
    }

    /// Whether a journal is written.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Journals the accounts of new counters, before they are in the kernel.
    pub(crate) fn record_accounts(&mut self, credits: &CounterAccounts) {
        if !self.has_journal() || credits.is_empty() {
            return;
        }
        let mut entries = Vec::new();
        self.push_locations(credits, &mut entries);
        self.append(&entries);
    }

    fn push_locations(&mut self, credits: &CounterAccounts, entries: &mut Vec<JournalEntry>) {
        for (place, to) in credits {
            let of = self.numbers_of(to, entries);
            entries.push(JournalEntry::Place(format_location(place), of));
        }
    }

    /// Journals counters that are about to be deleted.
    pub(crate) fn begin_retirement(&mut self, going: Vec<RetiringCounter>) {
        let mut entries = Vec::new();
        for RetiringCounter {
            location,
            accounts,
            count,
        } in &going
        {
            if *count == CounterValue::default() {
                continue;
            }
            let of = self.numbers_of(accounts, &mut entries);
            let text = format_location(location);
            entries.push(JournalEntry::Going(text, of, count.packets, count.bytes));
        }
        self.retiring.extend(going);
        if !entries.is_empty() {
            self.append(&entries);
        }
    }

    /// The counters given to [`CounterLedger::begin_retirement`] are deleted.
    pub(crate) fn finish_retirement(&mut self) {
        if self
            .retiring
            .iter()
            .any(|g| g.count != CounterValue::default())
        {
            self.append(&[JournalEntry::Gone]);
        }
        self.add_retired();
    }

    fn add_retired(&mut self) {
        for RetiringCounter {
            location,
            accounts,
            count,
        } in std::mem::take(&mut self.retiring)
        {
            self.last_read.remove(&location);
            if !palisade_sys::fault::is_injected("count-lost") {
                add_to_accounts(&mut self.retired, &accounts, count);
            }
        }
    }

    /// Adds counters that are missing from the kernel, or lower than before, to the retired counts:
    /// `snapshot` is what was read, `credits` has the accounts of each counter.
    pub(crate) fn reconcile(&mut self, credits: &CounterAccounts, snapshot: &CounterSnapshot) {
        let went_back = |place: &CounterLocation, to: &[CountAccount], was: CounterValue| {
            let is = snapshot.value_at(place, to).unwrap_or_default();
            is.packets < was.packets || is.bytes < was.bytes
        };
        let mut entries = Vec::new();
        let mut lost: Vec<(Vec<CountAccount>, CounterValue)> = Vec::new();
        let going = std::mem::take(&mut self.retiring);
        if going.iter().any(|g| g.count != CounterValue::default()) {
            entries.push(JournalEntry::Stayed);
        }
        for RetiringCounter {
            location,
            accounts,
            count,
        } in going
        {
            if went_back(&location, &accounts, count) {
                self.last_read.remove(&location);
                lost.push((accounts, count));
            }
        }
        let mut seen = std::mem::take(&mut self.last_read);
        seen.retain(|place, was| {
            let to = credits.get(place).map_or(&[][..], |to| to);
            let back = went_back(place, to, *was);
            if back {
                lost.push((to.to_vec(), *was));
            }
            !back
        });
        self.last_read = seen;
        for (to, count) in lost {
            for number in self.numbers_of(&to, &mut entries) {
                entries.push(JournalEntry::Add(number, count.packets, count.bytes));
            }
            add_to_accounts(&mut self.retired, &to, count);
        }
        if !entries.is_empty() {
            self.append(&entries);
        }
    }

    /// The totals; later ones are never less.
    pub(crate) fn update_totals(
        &mut self,
        credits: &CounterAccounts,
        snapshot: &CounterSnapshot,
    ) -> Counters {
        self.reconcile(credits, snapshot);
        let mut totals = self.retired.clone();
        for (place, to) in credits {
            if let Some(count) = snapshot.value_at(place, to) {
                add_to_accounts(&mut totals, to, count);
                if count != CounterValue::default() {
                    self.last_read.insert(place.clone(), count);
                }
            }
        }
        let mut entries = Vec::new();
        for (account, reported) in &self.reported {
            // Counts of a table that was deleted before it was read again.
            let total = totals.entry(account.clone()).or_default();
            let missing = counter_value(
                reported.packets.saturating_sub(total.packets),
                reported.bytes.saturating_sub(total.bytes),
            );
            if missing != CounterValue::default() {
                add(total, missing);
                add(self.retired.entry(account.clone()).or_default(), missing);
                if let Some(number) = self.account_numbers.get(account) {
                    entries.push(JournalEntry::Add(*number, missing.packets, missing.bytes));
                }
            }
        }
        if self.has_journal() {
            for (account, total) in &totals {
                if self.reported.get(account) != Some(total) {
                    let number = self.numbers_of(std::slice::from_ref(account), &mut entries);
                    let told = number.into_iter();
                    entries.extend(told.map(|n| JournalEntry::Told(n, total.packets, total.bytes)));
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
                CountAccount::Rule(credit) => drop(counters.by_rule.insert(credit, count)),
                CountAccount::Reason(reason) => drop(counters.by_drop_reason.insert(reason, count)),
            }
        }
        counters
    }

    /// Drops the totals of rules for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: &dyn Fn(&Credit) -> bool) {
        let wanted = |who: &CountAccount| match who {
            CountAccount::Rule(credit) => keep(credit),
            CountAccount::Reason(_) => true,
        };
        self.retired.retain(|who, _| wanted(who));
        self.reported.retain(|who, _| wanted(who));
    }

    /// Rewrites the journal if it has grown enough or if `always` is set: `credits` gives the accounts of
    /// all counters in the kernel.
    pub(crate) fn compact(&mut self, always: bool, credits: &dyn Fn() -> CounterAccounts) {
        let (since, then) = self.journal_sizes;
        if self.journal.is_none() || !(always || since > then.max(MIN_COMPACTION)) {
            return;
        }
        self.account_numbers.clear();
        let mut entries = Vec::new();
        self.push_locations(&credits(), &mut entries);
        let going = std::mem::take(&mut self.retiring);
        for RetiringCounter {
            location,
            accounts,
            count,
        } in &going
        {
            let of = self.numbers_of(accounts, &mut entries);
            let text = format_location(location);
            entries.push(JournalEntry::Going(text, of, count.packets, count.bytes));
        }
        self.retiring = going;
        for (totals, is_gone) in [(self.retired.clone(), true), (self.reported.clone(), false)] {
            for (account, count) in totals {
                for number in self.numbers_of(&[account], &mut entries) {
                    entries.push(match is_gone {
                        true => JournalEntry::Add(number, count.packets, count.bytes),
                        false => JournalEntry::Told(number, count.packets, count.bytes),
                    });
                }
            }
        }
        if let Some(ledger) = &mut self.journal
            && let Err(error) = ledger.replace(&entries)
        {
            self.journal_error = Some(error);
        }
        self.journal_sizes = (0, entries.len());
    }

    /// The numbers of accounts; appends entries for new ones.
    fn numbers_of(
        &mut self,
        accounts: &[CountAccount],
        entries: &mut Vec<JournalEntry>,
    ) -> Vec<u32> {
        let mut out = Vec::with_capacity(accounts.len());
        for who in accounts {
            let next = u32::try_from(self.account_numbers.len()).unwrap_or(u32::MAX);
            let number = *self.account_numbers.entry(who.clone()).or_insert_with(|| {
                let account = match who {
                    CountAccount::Rule(credit) => JournalAccount::Rule((**credit).clone()),
                    CountAccount::Reason(reason) => JournalAccount::Reason((*reason).to_owned()),
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
        if let Some(ledger) = &mut self.journal
            && let Err(error) = ledger.append(entries)
        {
            self.journal_error = Some(error);
        }
    }
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
mod tests {
    use super::*;
    use crate::counts::tests::{account, element, snapshot};
    use palisade_generators::case_seeds;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::sync::{Mutex, PoisonError};

    /// A journal that outlives its ledger.
    #[derive(Clone, Default)]
    struct SharedJournal(Arc<Mutex<Vec<JournalEntry>>>);

    impl SharedJournal {
        fn entries(&self) -> Vec<JournalEntry> {
            self.0.lock().unwrap().clone()
        }
    }

    impl CounterJournal for SharedJournal {
        fn append(&mut self, entries: &[JournalEntry]) -> std::io::Result<()> {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(entries);
            Ok(())
        }

        fn replace(&mut self, entries: &[JournalEntry]) -> std::io::Result<()> {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *all = entries.to_vec();
            Ok(())
        }
    }

    /// A simulated kernel, a ledger that may crash at any moment, and the true counts.
    struct CrashSimulation {
        rng: SmallRng,
        kernel: BTreeMap<u8, u64>,
        truth: BTreeMap<CountAccount, u64>,
        reported: BTreeMap<CountAccount, u64>,
        journal: SharedJournal,
        ledger: CounterLedger,
        accounts: CounterAccounts,
        next: u8,
        crashes: usize,
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    impl CrashSimulation {
        fn new(seed: u64) -> Self {
            let mut world = CrashSimulation {
                rng: SmallRng::seed_from_u64(seed),
                kernel: BTreeMap::new(),
                truth: BTreeMap::new(),
                reported: BTreeMap::new(),
                journal: SharedJournal::default(),
                ledger: CounterLedger::default(),
                accounts: CounterAccounts::new(),
                next: 0,
                crashes: 0,
            };
            world.restart();
            world
        }

        fn snapshot(&self) -> CounterSnapshot {
            let counts: Vec<(u8, u64)> = self.kernel.iter().map(|(n, c)| (*n, *c)).collect();
            snapshot(&counts)
        }

        /// Starts a new process.
        fn restart(&mut self) {
            self.ledger = CounterLedger::default();
            let entries = self.journal.entries();
            self.accounts = self.ledger.restore(Box::new(self.journal.clone()), entries);
            self.ledger.reconcile(&self.accounts, &self.snapshot());
            let credits = self.accounts.clone();
            self.ledger.compact(true, &|| credits.clone());
        }

        fn maybe_crash(&mut self) -> bool {
            let dies = self.rng.random_bool(0.1);
            if dies {
                self.crashes += 1;
                self.restart();
            }
            dies
        }

        fn traffic(&mut self) {
            for (number, count) in &mut self.kernel {
                let packets = self.rng.random_range(0..5);
                *count += packets;
                for to in &self.accounts[&element(*number)] {
                    *self.truth.entry(to.clone()).or_default() += packets;
                }
            }
        }

        /// Adds and deletes some elements, as a flush does.
        fn flush(&mut self) {
            let mut new = CounterAccounts::new();
            for _ in 0..self.rng.random_range(0..3) {
                self.next += 1;
                let mut to = NAMES.map(account).to_vec();
                to.retain(|_| self.rng.random_bool(0.5));
                new.insert(element(self.next), to);
            }
            self.ledger.record_accounts(&new);
            self.accounts.extend(new.clone());
            if self.maybe_crash() {
                return;
            }
            let last = self.next;
            let first = last - new.len() as u8;
            self.kernel
                .extend((first + 1..=last).map(|number| (number, 0)));
            self.traffic();
            if self.maybe_crash() {
                return;
            }
            let gone: Vec<u8> = self.kernel.keys().copied().collect();
            let gone: Vec<u8> = gone
                .into_iter()
                .filter(|_| self.rng.random_bool(0.3))
                .collect();
            let going = gone.iter().map(|number| RetiringCounter {
                location: element(*number),
                accounts: self.accounts[&element(*number)].clone(),
                count: crate::counts::tests::counter_value_of(self.kernel[number]),
            });
            self.ledger.begin_retirement(going.collect());
            if self.maybe_crash() {
                return;
            }
            if self.rng.random_bool(0.1) {
                // Refused: the kernel is read again.
                self.ledger.reconcile(&self.accounts, &self.snapshot());
                return;
            }
            self.kernel.retain(|number, _| !gone.contains(number));
            if self.maybe_crash() {
                return;
            }
            self.ledger.finish_retirement();
            let credits = self.accounts.clone();
            self.ledger
                .compact(self.rng.random_bool(0.2), &|| credits.clone());
        }

        fn check_totals(&mut self) -> BTreeMap<CountAccount, u64> {
            let counters = self.ledger.update_totals(&self.accounts, &self.snapshot());
            let rules = counters.by_rule.into_iter();
            let told: BTreeMap<CountAccount, u64> = rules
                .map(|(c, n)| (CountAccount::Rule(c), n.packets))
                .collect();
            for (who, before) in &self.reported {
                let now = told.get(who).copied().unwrap_or_default();
                assert!(now >= *before, "{who:?} went back from {before} to {now}");
            }
            self.reported.clone_from(&told);
            told
        }
    }

    #[test]
    fn no_count_is_lost_or_doubled_whenever_the_process_dies() {
        let mut deaths = 0;
        for seed in case_seeds(0, 400) {
            let mut world = CrashSimulation::new(seed);
            for _ in 0..40 {
                world.flush();
                world.traffic();
                if world.rng.random_bool(0.3) {
                    let mut told = world.check_totals();
                    told.retain(|_, count| *count > 0);
                    let mut truth = world.truth.clone();
                    truth.retain(|_, count| *count > 0);
                    assert_eq!(told, truth, "seed {seed}");
                }
            }
            deaths += world.crashes;
        }
        assert!(deaths > 1_000, "{deaths}");
    }

    #[test]
    fn what_others_remove_is_never_told_less_than_before() {
        for seed in case_seeds(0, 200) {
            let mut world = CrashSimulation::new(seed);
            for _ in 0..40 {
                world.flush();
                match world.rng.random_range(0..6) {
                    0 => world.kernel.clear(),
                    1 => drop(world.kernel.pop_first()),
                    2 => {
                        // Another program replaces a counter; it counts from zero.
                        if let Some(mut first) = world.kernel.first_entry() {
                            *first.get_mut() = 0;
                        }
                    }
                    _ => {}
                }
                world.traffic();
                let told = world.check_totals();
                for (who, count) in &told {
                    let truth = world.truth.get(who).copied().unwrap_or_default();
                    assert!(*count <= truth, "seed {seed}: {who:?} {count} of {truth}");
                }
                world.maybe_crash();
            }
        }
    }
}
