//! The ledger against a simulated kernel whose process dies at any moment, and against a recorded journal.

use super::*;
use palisade_generators::case_seeds;
use palisade_layout::CounterKey;
use palisade_model::Direction;
use palisade_tables::AuditComparison;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A counter in the kernel: its packets, and what they count for.
struct SimulatedCounter {
    packets: u64,
    accounts: Vec<CountAccount>,
}

/// The kernel's counters of one part, and what its driver knows of them.
#[derive(Default)]
struct SimulatedPart {
    kernel: BTreeMap<u8, SimulatedCounter>,
    /// The driver's; the keys are the same numbers in every part.
    accounts: CounterAccounts,
    next: u8,
    /// Whether the driver has used the part since the process started.
    is_used: bool,
}

impl SimulatedPart {
    fn snapshot(&self) -> Packets {
        let counters = self.kernel.iter();
        Packets(counters.map(|(n, c)| (key(*n), c.packets)).collect())
    }
}

/// Simulated kernels, a ledger that may crash at any moment, and the true counts.
struct CrashSimulation {
    rng: SmallRng,
    parts: [SimulatedPart; 2],
    truth: BTreeMap<CountAccount, u64>,
    reported: BTreeMap<CountAccount, u64>,
    journal: SharedJournal,
    ledger: CounterLedger,
    crashes: usize,
    /// Totals that were checked while a part was not used yet.
    early_totals: usize,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const PARTS: [&str; 2] = ["sets", "programs"];

impl CrashSimulation {
    fn new(seed: u64) -> Self {
        let mut world = CrashSimulation {
            rng: SmallRng::seed_from_u64(seed),
            parts: <[SimulatedPart; 2]>::default(),
            truth: BTreeMap::new(),
            reported: BTreeMap::new(),
            journal: SharedJournal::default(),
            ledger: CounterLedger::default(),
            crashes: 0,
            early_totals: 0,
        };
        world.restart();
        world
    }

    /// Starts a new process, which may use some parts only later.
    fn restart(&mut self) {
        self.ledger = restored(&self.journal.text(), self.journal.clone());
        for number in 0..PARTS.len() {
            self.parts[number].is_used = false;
            if self.rng.random_bool(0.6) {
                self.use_part(number);
            }
        }
    }

    /// The driver begins to use a part, as at a resync.
    fn use_part(&mut self, number: usize) {
        let part = &mut self.parts[number];
        if std::mem::replace(&mut part.is_used, true) {
            return;
        }
        let mut ledger = self.ledger.part(PARTS[number]);
        part.accounts = ledger.take_restored();
        for (number, counter) in &part.kernel {
            let accounts = part.accounts.get(&key(*number));
            assert_eq!(accounts, Some(&counter.accounts), "no key is lost");
        }
        ledger.reconcile(&part.snapshot());
        ledger.compact(true, &|| part.accounts.clone());
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
        for part in &mut self.parts {
            for counter in part.kernel.values_mut() {
                let packets = self.rng.random_range(0..5);
                counter.packets += packets;
                for to in &counter.accounts {
                    *self.truth.entry(to.clone()).or_default() += packets;
                }
            }
        }
    }

    /// Adds and deletes some elements of a part, as a flush does.
    fn flush(&mut self) {
        let number = self.rng.random_range(0..PARTS.len());
        self.use_part(number);
        let mut new = CounterAccounts::new();
        for _ in 0..self.rng.random_range(0..3) {
            self.parts[number].next += 1;
            let mut to = NAMES.map(account).to_vec();
            to.extend(AuditComparison::ALL.map(CountAccount::Audit));
            to.retain(|_| self.rng.random_bool(0.5));
            new.insert(key(self.parts[number].next), to);
        }
        self.ledger.part(PARTS[number]).record_accounts(&new);
        self.parts[number].accounts.extend(new.clone());
        if self.maybe_crash() {
            return;
        }
        let part = &mut self.parts[number];
        for (key, accounts) in new {
            let key: u8 = key.as_str().parse().unwrap();
            let packets = 0;
            let counter = SimulatedCounter { packets, accounts };
            part.kernel.insert(key, counter);
        }
        self.traffic();
        if !self.maybe_crash() {
            self.remove(number);
        }
    }

    /// Deletes some elements of a part.
    fn remove(&mut self, number: usize) {
        let part = &self.parts[number];
        let mut removed: Vec<u8> = part.kernel.keys().copied().collect();
        removed.retain(|_| self.rng.random_bool(0.3));
        let retiring = removed.iter().map(|number| RetiringCounter {
            key: key(*number),
            accounts: part.accounts[&key(*number)].clone(),
            count: value(part.kernel[number].packets),
        });
        let retiring = retiring.collect();
        self.ledger.part(PARTS[number]).begin_retirement(retiring);
        if self.maybe_crash() {
            return;
        }
        if self.rng.random_bool(0.1) {
            // Refused: the kernel is read again.
            let snapshot = self.parts[number].snapshot();
            self.ledger.part(PARTS[number]).reconcile(&snapshot);
            return;
        }
        let kernel = &mut self.parts[number].kernel;
        kernel.retain(|number, _| !removed.contains(number));
        if self.maybe_crash() {
            return;
        }
        let mut ledger = self.ledger.part(PARTS[number]);
        ledger.finish_retirement();
        let accounts = &self.parts[number].accounts;
        ledger.compact(self.rng.random_bool(0.2), &|| accounts.clone());
    }

    /// Reads the parts that are used, and checks the totals; they are exact if all parts are used.
    fn check_totals(&mut self, must_be_exact: bool) {
        for (part, name) in self.parts.iter().zip(PARTS) {
            if part.is_used {
                let mut ledger = self.ledger.part(name);
                ledger.update(part.accounts.clone(), &part.snapshot());
            }
            self.reported = checked_totals(&self.ledger, &self.reported, &self.truth);
        }
        // A process that dies now is followed by one that knows the same.
        let next = restored(&self.journal.text(), SharedJournal::default());
        assert_eq!(nonzero_totals(&next), self.reported);
        let is_all_used = self.parts.iter().all(|part| part.is_used);
        self.early_totals += usize::from(!is_all_used);
        if is_all_used && must_be_exact {
            let mut truth = self.truth.clone();
            truth.retain(|_, count| *count > 0);
            assert_eq!(self.reported, truth);
        }
    }
}

fn restored(text: &[u8], journal: SharedJournal) -> CounterLedger {
    let mut ledger = CounterLedger::default();
    let error = ledger.restore(Box::new(journal), text);
    assert!(error.is_none(), "{error:?}");
    ledger
}

fn nonzero_totals(ledger: &CounterLedger) -> BTreeMap<CountAccount, u64> {
    let counters = ledger.totals();
    let rules = counters.by_rule.into_iter();
    let rules = rules.map(|(c, n)| (CountAccount::Rule(c), n.packets));
    let audit = counters.by_audit.into_iter();
    let audit = audit.map(|(verdicts, n)| (CountAccount::Audit(verdicts), n.packets));
    rules.chain(audit).filter(|(_, n)| *n > 0).collect()
}

/// The totals, which are no less than those before and no more than the truth.
fn checked_totals(
    ledger: &CounterLedger,
    before: &BTreeMap<CountAccount, u64>,
    truth: &BTreeMap<CountAccount, u64>,
) -> BTreeMap<CountAccount, u64> {
    let totals = nonzero_totals(ledger);
    for (account, before) in before {
        let now = totals.get(account).copied().unwrap_or_default();
        assert!(
            now >= *before,
            "{account:?} went back from {before} to {now}"
        );
    }
    for (account, now) in &totals {
        let truth = truth.get(account).copied().unwrap_or_default();
        assert!(*now <= truth, "{account:?} {now} of {truth}");
    }
    totals
}

#[test]
fn no_count_is_lost_or_doubled_whenever_the_process_dies() {
    let (mut deaths, mut early_totals) = (0, 0);
    for seed in case_seeds(0, 400) {
        let mut world = CrashSimulation::new(seed);
        for _ in 0..40 {
            world.flush();
            world.traffic();
            if world.rng.random_bool(0.3) {
                world.check_totals(true);
            }
        }
        (0..PARTS.len()).for_each(|number| world.use_part(number));
        world.check_totals(true);
        deaths += world.crashes;
        early_totals += world.early_totals;
    }
    assert!(
        deaths > 1_000 && early_totals > 500,
        "{deaths} {early_totals}"
    );
}

#[test]
fn what_others_remove_is_never_told_less_than_before() {
    for seed in case_seeds(0, 200) {
        let mut world = CrashSimulation::new(seed);
        for _ in 0..40 {
            world.flush();
            let number = world.rng.random_range(0..PARTS.len());
            let kernel = &mut world.parts[number].kernel;
            match world.rng.random_range(0..6) {
                0 => kernel.clear(),
                1 => drop(kernel.pop_first()),
                2 => {
                    // Another program replaces a counter; it counts from zero.
                    if let Some(mut first) = kernel.first_entry() {
                        first.get_mut().packets = 0;
                    }
                }
                _ => {}
            }
            world.traffic();
            world.check_totals(false);
            world.maybe_crash();
        }
    }
}

/// Counters that all count for account `a`.
fn counters(packets: &[(u8, u64)]) -> (CounterAccounts, Packets) {
    let numbers = packets.iter();
    let accounts = numbers.map(|(number, _)| (key(*number), vec![account("a")]));
    let snapshot = packets.iter().map(|(number, n)| (key(*number), *n));
    (accounts.collect(), Packets(snapshot.collect()))
}

fn update(ledger: &mut CounterLedger, part: &str, packets: &[(u8, u64)]) -> u64 {
    let (accounts, snapshot) = counters(packets);
    ledger.part(part).update(accounts, &snapshot);
    nonzero_totals(ledger)
        .remove(&account("a"))
        .unwrap_or_default()
}

fn retiring(number: u8, packets: u64) -> Vec<RetiringCounter> {
    vec![RetiringCounter {
        key: key(number),
        accounts: vec![account("a")],
        count: value(packets),
    }]
}

#[test]
fn a_part_leaves_the_counters_of_another_alone() {
    let mut ledger = CounterLedger::default();
    assert_eq!(update(&mut ledger, "sets", &[(1, 10)]), 10);
    // The same key and the same account.
    assert_eq!(update(&mut ledger, "programs", &[(1, 5), (2, 3)]), 18);
    ledger.part("programs").reconcile(&Packets::default());
    assert_eq!(update(&mut ledger, "programs", &[]), 18);
    assert_eq!(update(&mut ledger, "sets", &[(1, 12)]), 20);
    // Its deletion is not that of the other's counter, which is refused.
    ledger.part("sets").begin_retirement(retiring(1, 13));
    update(&mut ledger, "programs", &[(1, 2)]);
    ledger.part("programs").begin_retirement(retiring(1, 4));
    ledger.part("programs").finish_retirement();
    assert_eq!(update(&mut ledger, "programs", &[]), 24);
    ledger.part("sets").reconcile(&counters(&[(1, 14)]).1);
    assert_eq!(update(&mut ledger, "sets", &[(1, 15)]), 27);
}

#[test]
fn compaction_of_a_part_keeps_what_the_journal_has_of_others() {
    let journal = SharedJournal::default();
    let mut ledger = restored(b"", journal.clone());
    let (sets, programs) = (counters(&[(1, 0), (2, 0)]).0, counters(&[(1, 0), (3, 0)]).0);
    ledger.part("sets").record_accounts(&sets);
    ledger.part("programs").record_accounts(&programs);
    update(&mut ledger, "sets", &[(1, 7), (2, 0)]);
    ledger.part("sets").begin_retirement(retiring(1, 9));
    let mut part = ledger.part("programs");
    part.compact(false, &|| panic!("a small journal is not compacted"));
    part.compact(true, &|| counters(&[(3, 0)]).0);
    // A process that uses neither, and one that uses another.
    drop(restored(&journal.text(), journal.clone()));
    let mut ledger = restored(&journal.text(), journal.clone());
    ledger.part("other").compact(true, &CounterAccounts::new);
    assert_eq!(update(&mut ledger, "other", &[(1, 1)]), 8);
    let mut ledger = restored(&journal.text(), journal.clone());
    assert_eq!(
        ledger.part("programs").take_restored(),
        counters(&[(3, 0)]).0
    );
    assert_eq!(ledger.part("sets").take_restored(), sets);
    assert!(ledger.part("sets").take_restored().is_empty());
    // The counter was deleted, though nobody used the part when that was decided.
    assert_eq!(update(&mut ledger, "sets", &[(2, 2)]), 12);
}

#[test]
fn a_part_that_is_used_later_counts_with_what_it_had() {
    let journal = SharedJournal::default();
    let mut ledger = restored(b"", journal.clone());
    ledger
        .part("programs")
        .record_accounts(&counters(&[(1, 0)]).0);
    update(&mut ledger, "programs", &[(1, 100)]);
    for process in 1..=3 {
        ledger = restored(&journal.text(), journal.clone());
        assert_eq!(update(&mut ledger, "sets", &[(1, process)]), 100 + process);
        ledger.part("sets").compact(true, &|| counters(&[(1, 0)]).0);
    }
    assert_eq!(
        ledger.part("programs").take_restored(),
        counters(&[(1, 0)]).0
    );
    assert_eq!(update(&mut ledger, "programs", &[(1, 110)]), 113);
    // Another time its counter is deleted while no process runs.
    ledger = restored(&journal.text(), journal.clone());
    assert_eq!(update(&mut ledger, "sets", &[(1, 4)]), 114);
    assert_eq!(update(&mut ledger, "programs", &[(1, 2)]), 114);
    assert_eq!(update(&mut ledger, "programs", &[(1, 3)]), 115);
}

#[test]
fn a_retired_part_stays_in_the_totals_and_its_keys_do_not() {
    let journal = SharedJournal::default();
    let mut ledger = restored(b"", journal.clone());
    ledger
        .part("programs")
        .record_accounts(&counters(&[(1, 0), (2, 0)]).0);
    update(&mut ledger, "programs", &[(1, 10), (2, 20)]);
    ledger.part("programs").begin_retirement(retiring(2, 25));
    ledger = restored(&journal.text(), journal.clone());
    ledger.retire_part("unknown");
    ledger.retire_part("programs");
    // 25 are retired, and no less than the 30 that were reported stay.
    assert_eq!(update(&mut ledger, "sets", &[(1, 1)]), 31);
    ledger = restored(&journal.text(), journal.clone());
    assert!(ledger.part("programs").take_restored().is_empty());
    assert_eq!(update(&mut ledger, "sets", &[(1, 2)]), 32);
}

/// A journal on a disk that is full from time to time.
struct FullJournal(SharedJournal, Arc<Mutex<bool>>);

impl FullJournal {
    fn check(&self) -> std::io::Result<()> {
        let is_full = *self.1.lock().unwrap();
        let error = || std::io::ErrorKind::StorageFull.into();
        if is_full { Err(error()) } else { Ok(()) }
    }
}

impl CounterJournal for FullJournal {
    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.check().and_then(|()| self.0.append(text))
    }

    fn replace(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.check().and_then(|()| self.0.replace(text))
    }
}

#[test]
fn a_write_that_fails_leaves_no_number_without_its_account() {
    let (journal, full) = (SharedJournal::default(), Arc::new(Mutex::new(false)));
    let disk = FullJournal(journal.clone(), full.clone());
    let mut ledger = CounterLedger::default();
    assert!(ledger.restore(Box::new(disk), b"").is_none());
    let count_for = |ledger: &mut CounterLedger, names: &[&str]| {
        let accounts = names.iter().map(|name| account(name)).collect();
        let snapshot = Packets([(key(1), 5)].into());
        ledger
            .part("sets")
            .update([(key(1), accounts)].into(), &snapshot);
    };
    count_for(&mut ledger, &["a"]);
    for always in [false, true] {
        *full.lock().unwrap() = true;
        count_for(&mut ledger, &["a", "b"]);
        let accounts = || [(key(1), vec![account("b")])].into();
        ledger.part("sets").compact(always, &accounts);
        assert!(ledger.take_error().is_some());
        *full.lock().unwrap() = false;
        let snapshot = Packets([(key(1), 7)].into());
        let accounts = vec![account("b")];
        ledger
            .part("sets")
            .update([(key(1), accounts)].into(), &snapshot);
        let next = restored(&journal.text(), SharedJournal::default());
        assert_eq!(nonzero_totals(&next)[&account("b")], 7);
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

/// The same journal as a build with schema 3 writes it.
fn schema_3(text: &str) -> String {
    let names = [
        ("{\"place\":", "{\"counter\":"),
        ("{\"going\":", "{\"retiring\":"),
        ("{\"told\":", "{\"total\":"),
        ("\"gone\"\n", "\"deleted\"\n"),
        ("\"stayed\"\n", "\"reconciled\"\n"),
        ("{\"schema\":2}", "{\"schema\":3,\"driver\":\"nftables\"}"),
    ];
    let mut text = text.to_owned();
    for (former, name) in names {
        text = text.replace(former, name);
    }
    text
}

fn update_restored(ledger: &mut CounterLedger, live: &Packets) -> BTreeMap<String, u64> {
    let mut part = ledger.part("nftables");
    let accounts = part.take_restored();
    part.update(accounts, live);
    totals_by_name(ledger.totals())
}

#[test]
fn journals_of_former_schemas_are_taken_over_without_losing_a_count() {
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
        for text in [text.clone(), schema_3(&text)] {
            let journal = SharedJournal::default();
            let mut ledger = restored(text.as_bytes(), journal.clone());
            let totals = update_restored(&mut ledger, &live);
            for (name, packets) in &expected {
                assert_eq!(totals.get(name), Some(packets), "{name} after line {end}");
            }
            // The file is of the new schema now, and the next process reads the same from it.
            let text = journal.text();
            assert!(text.starts_with(b"{\"schema\":4}\n"));
            let mut next = restored(&text, journal);
            assert_eq!(update_restored(&mut next, &live), totals);
        }
    }
}

#[test]
fn what_another_driver_counted_stays() {
    let nothing = Packets::default();
    for text in [SCHEMA_2.to_owned(), schema_3(SCHEMA_2)] {
        let restored = |text: &[u8], journal: &SharedJournal| restored(text, journal.clone());
        let journal = SharedJournal::default();
        let mut ledger = restored(text.as_bytes(), &journal);
        let expected = update_restored(&mut ledger, &nothing);
        // Another driver uses the ledger, and then another process.
        let mut ledger = restored(text.as_bytes(), &journal);
        for _ in 0..2 {
            let mut part = ledger.part("fake");
            assert!(part.take_restored().is_empty());
            part.update(CounterAccounts::new(), &nothing);
            let totals = totals_by_name(ledger.totals());
            for (name, [_, reported]) in naive_totals(SCHEMA_2).0 {
                assert!(totals.get(&name).copied().unwrap_or_default() >= reported);
            }
            ledger = restored(&journal.text(), &journal);
        }
        // The first driver is used again, or retired.
        let mut again = restored(&journal.text(), &SharedJournal::default());
        assert_eq!(update_restored(&mut again, &nothing), expected);
        ledger.retire_part("nftables");
        assert_eq!(totals_by_name(ledger.totals()), expected);
    }
}
