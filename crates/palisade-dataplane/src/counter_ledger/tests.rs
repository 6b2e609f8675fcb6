//! The ledger against a simulated kernel whose process dies at any moment, and against a recorded journal.

use super::*;
use palisade_generators::case_seeds;
use palisade_model::Direction;
use palisade_tables::AuditComparison;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::{Mutex, PoisonError};

fn account(name: &str) -> CountAccount {
    CountAccount::Rule(Arc::new(VerdictCause::MissingProfile {
        profile: name.into(),
        direction: Direction::Egress,
    }))
}

fn key(number: u8) -> CounterKey {
    CounterKey::new(number.to_string())
}

fn value(packets: u64) -> CounterValue {
    CounterValue {
        packets,
        bytes: packets * 10,
    }
}

/// The packets of each counter that exists.
#[derive(Default)]
struct Packets(BTreeMap<CounterKey, u64>);

impl CounterSnapshot for Packets {
    fn value(&self, key: &CounterKey, _: &[CountAccount]) -> Option<CounterValue> {
        self.0.get(key).copied().map(value)
    }
}

/// A journal that outlives its ledger.
#[derive(Clone, Default)]
struct SharedJournal(Arc<Mutex<Vec<u8>>>);

impl SharedJournal {
    fn text(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl CounterJournal for SharedJournal {
    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(text);
        Ok(())
    }

    fn replace(&mut self, text: &[u8]) -> std::io::Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all = text.to_vec();
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

    fn snapshot(&self) -> Packets {
        Packets(self.kernel.iter().map(|(n, c)| (key(*n), *c)).collect())
    }

    /// Starts a new process.
    fn restart(&mut self) {
        self.ledger = CounterLedger::default();
        let text = self.journal.text();
        let journal = Box::new(self.journal.clone());
        let error = self.ledger.restore("fake", journal, &text);
        assert!(error.is_none(), "{error:?}");
        self.accounts = self.ledger.take_restored();
        self.ledger.reconcile(&self.accounts, &self.snapshot());
        let causes = self.accounts.clone();
        self.ledger.compact(true, &|| causes.clone());
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
            for to in &self.accounts[&key(*number)] {
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
            to.extend(AuditComparison::ALL.map(CountAccount::Audit));
            to.retain(|_| self.rng.random_bool(0.5));
            new.insert(key(self.next), to);
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
        let removed: Vec<u8> = self.kernel.keys().copied().collect();
        let removed: Vec<u8> = removed
            .into_iter()
            .filter(|_| self.rng.random_bool(0.3))
            .collect();
        let retiring = removed.iter().map(|number| RetiringCounter {
            key: key(*number),
            accounts: self.accounts[&key(*number)].clone(),
            count: value(self.kernel[number]),
        });
        self.ledger.begin_retirement(retiring.collect());
        if self.maybe_crash() {
            return;
        }
        if self.rng.random_bool(0.1) {
            // Refused: the kernel is read again.
            self.ledger.reconcile(&self.accounts, &self.snapshot());
            return;
        }
        self.kernel.retain(|number, _| !removed.contains(number));
        if self.maybe_crash() {
            return;
        }
        self.ledger.finish_retirement();
        let causes = self.accounts.clone();
        self.ledger
            .compact(self.rng.random_bool(0.2), &|| causes.clone());
    }

    fn check_totals(&mut self) -> BTreeMap<CountAccount, u64> {
        let counters = self.ledger.update_totals(&self.accounts, &self.snapshot());
        let rules = counters.by_rule.into_iter();
        let rules = rules.map(|(c, n)| (CountAccount::Rule(c), n.packets));
        let audit = counters.by_audit.into_iter();
        let audit = audit.map(|(verdicts, n)| (CountAccount::Audit(verdicts), n.packets));
        let totals: BTreeMap<CountAccount, u64> = rules.chain(audit).collect();
        for (account, before) in &self.reported {
            let now = totals.get(account).copied().unwrap_or_default();
            assert!(
                now >= *before,
                "{account:?} went back from {before} to {now}"
            );
        }
        self.reported.clone_from(&totals);
        totals
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
                let mut totals = world.check_totals();
                totals.retain(|_, count| *count > 0);
                let mut truth = world.truth.clone();
                truth.retain(|_, count| *count > 0);
                assert_eq!(totals, truth, "seed {seed}");
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
            let totals = world.check_totals();
            for (account, count) in &totals {
                let truth = world.truth.get(account).copied().unwrap_or_default();
                assert!(
                    *count <= truth,
                    "seed {seed}: {account:?} {count} of {truth}"
                );
            }
            world.maybe_crash();
        }
    }
}
/// What a schema 2 journal says, read without the product: the retired packets and those reported last of
/// each account, and the accounts of each counter.
fn naive_totals(text: &str) -> (BTreeMap<String, [u64; 2]>, BTreeMap<String, Vec<String>>) {
    let mut names: BTreeMap<Option<u64>, String> = BTreeMap::new();
    let mut counters = BTreeMap::new();
    let mut totals: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut retiring: Vec<(String, u64)> = Vec::new();
    for line in text.lines().skip(1) {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        if entry == "gone" {
            for (name, packets) in retiring.drain(..) {
                totals.entry(name).or_default()[0] += packets;
            }
            continue;
        }
        let (kind, entry) = entry.as_object().unwrap().iter().next().unwrap();
        let number = entry[0].as_u64();
        let accounts = || -> Vec<String> {
            let numbers = entry[1].as_array().unwrap().iter();
            numbers.map(|n| names[&n.as_u64()].clone()).collect()
        };
        match kind.as_str() {
            "account" => drop(names.insert(number, entry[1].to_string())),
            "place" => drop(counters.insert(entry[0].to_string(), accounts())),
            "going" => {
                let packets = entry[2].as_u64().unwrap();
                retiring.extend(accounts().into_iter().map(|name| (name, packets)));
                counters.remove(&entry[0].to_string());
            }
            "add" => {
                totals.entry(names[&number].clone()).or_default()[0] += entry[1].as_u64().unwrap()
            }
            "told" => {
                totals.entry(names[&number].clone()).or_default()[1] = entry[1].as_u64().unwrap()
            }
            other => panic!("{other}"),
        }
    }
    // Those about to be deleted when the process died are deleted.
    for (name, packets) in retiring {
        totals.entry(name).or_default()[0] += packets;
    }
    (totals, counters)
}

fn totals_by_name(counters: Counters) -> BTreeMap<String, u64> {
    let rules = counters
        .by_rule
        .into_iter()
        .map(|(cause, count)| (serde_json::json!({"rule": &*cause}).to_string(), count));
    let drops = counters.by_drop_reason.into_iter();
    let drops = drops.map(|(reason, count)| {
        (
            serde_json::json!({"reason": reason.name()}).to_string(),
            count,
        )
    });
    let audit = counters.by_audit.into_iter();
    let audit =
        audit.map(|(verdicts, count)| (serde_json::json!({"audit": verdicts}).to_string(), count));
    rules
        .chain(drops)
        .chain(audit)
        .map(|(name, count)| (name, count.packets))
        .collect()
}

/// The journal of an agent under traffic, written by the last build with schema 2.
const SCHEMA_2: &str = include_str!("../../tests/data/counts-schema-2.txt");

#[test]
fn the_file_of_the_last_schema_is_taken_over_without_losing_a_count() {
    let lines: Vec<&str> = SCHEMA_2.split_inclusive('\n').collect();
    // Every moment at which that agent may have been replaced.
    for end in 1..=lines.len() {
        let text = lines[..end].concat();
        let (account_totals, counters) = naive_totals(&text);
        let live = (counters.keys().zip(1_000..))
            .map(|(key, packets)| (CounterKey::new(key.trim_matches('"')), packets));
        let live = Packets(live.collect());
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (name, [retired, reported]) in &account_totals {
            let counted = counters
                .values()
                .zip(1_000..)
                .filter(|(accounts, _)| accounts.contains(name));
            let counted: u64 = counted.map(|(_, packets)| packets).sum();
            expected.insert(name.clone(), (retired + counted).max(*reported));
        }
        let journal = SharedJournal::default();
        let mut ledger = CounterLedger::default();
        let error = ledger.restore("nftables", Box::new(journal.clone()), text.as_bytes());
        assert!(error.is_none(), "{error:?}");
        let accounts = ledger.take_restored();
        let totals = totals_by_name(ledger.update_totals(&accounts, &live));
        for (name, packets) in &expected {
            assert_eq!(totals.get(name), Some(packets), "{name} after line {end}");
        }
        // The file is of the new schema now, and the next process reads the same from it.
        let text = journal.text();
        assert!(text.starts_with(br#"{"schema":3,"driver":"nftables"}"#));
        let mut next = CounterLedger::default();
        assert!(next.restore("nftables", Box::new(journal), &text).is_none());
        let accounts = next.take_restored();
        assert_eq!(totals_by_name(next.update_totals(&accounts, &live)), totals);
    }
}

#[test]
fn what_another_driver_counted_stays() {
    let mut before = CounterLedger::default();
    before.restore(
        "nftables",
        Box::new(SharedJournal::default()),
        SCHEMA_2.as_bytes(),
    );
    let accounts = before.take_restored();
    let nothing = Packets::default();
    let expected = totals_by_name(before.update_totals(&accounts, &nothing));
    let journal = SharedJournal::default();
    let mut after = CounterLedger::default();
    after.restore("fake", Box::new(journal.clone()), SCHEMA_2.as_bytes());
    assert!(after.take_restored().is_empty());
    let totals = totals_by_name(after.update_totals(&CounterAccounts::new(), &nothing));
    assert_eq!(totals, expected);
    assert!(
        journal
            .text()
            .starts_with(br#"{"schema":3,"driver":"fake"}"#)
    );
}
