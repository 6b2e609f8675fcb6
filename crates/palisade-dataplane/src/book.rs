//! Counts that never go back, whatever becomes of the places in the kernel that held them.
//!
//! Promises: what was told once is never told less; a count is taken over exactly once, when its
//! place goes, also if the process dies between any two of its own steps, as long as there is a
//! ledger. What somebody else removes is taken over as it was read last. Never: reads the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use palisade_nft::{Count, Place};
use palisade_tables::Credit;

use crate::counts::{Credits, Live, Who, add, reason};
use crate::driver::Counters;
use crate::ledger::{Account, Entry, Ledger, count, place_of, place_text};

/// Fewer entries than this are never worth writing the ledger anew.
const WORTH: usize = 2_000;

/// A place that is about to go.
#[derive(Clone, Debug)]
pub(crate) struct Going {
    pub(crate) place: Place,
    pub(crate) to: Vec<Who>,
    pub(crate) count: Count,
}

/// What is gone, what was seen, and what was told.
#[derive(Default)]
pub(crate) struct Book {
    /// What places held that are gone.
    gone: BTreeMap<Who, Count>,
    /// What each place held when it was read last.
    seen: BTreeMap<Place, Count>,
    /// The totals told last.
    told: BTreeMap<Who, Count>,
    /// What may be gone: the kernel tells.
    going: Vec<Going>,
    ledger: Option<Box<dyn Ledger>>,
    /// The numbers that the ledger has for accounts.
    numbers: BTreeMap<Who, u32>,
    /// Entries since the ledger was written anew, and then.
    written: (usize, usize),
    /// What went wrong with the ledger, until it is asked for.
    failure: Option<std::io::Error>,
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book")
            .field("gone", &self.gone)
            .field("told", &self.told)
            .field("going", &self.going)
            .finish_non_exhaustive()
    }
}

impl Book {
    /// Takes over what an earlier process wrote; says whom the kernel's places count for.
    pub(crate) fn restore(&mut self, ledger: Box<dyn Ledger>, entries: Vec<Entry>) -> Credits {
        let mut accounts: BTreeMap<u32, Who> = BTreeMap::new();
        let mut credits = Credits::new();
        let whose = |accounts: &BTreeMap<u32, Who>, of: &[u32]| -> Vec<Who> {
            of.iter().filter_map(|n| accounts.get(n).cloned()).collect()
        };
        for entry in entries {
            match entry {
                Entry::Account(number, Account::Rule(credit)) => {
                    accounts.insert(number, Who::Rule(Arc::new(credit)));
                }
                Entry::Account(number, Account::Reason(text)) => {
                    if let Some(reason) = reason(&text) {
                        accounts.insert(number, Who::Reason(reason));
                    }
                }
                Entry::Place(text, of) => {
                    if let Some(place) = place_of(&text) {
                        credits.insert(place, whose(&accounts, &of));
                    }
                }
                Entry::Going(text, of, packets, bytes) => {
                    if let Some(place) = place_of(&text) {
                        let (to, count) = (whose(&accounts, &of), count(packets, bytes));
                        self.going.push(Going { place, to, count });
                    }
                }
                Entry::Gone => self.take(),
                Entry::Stayed => self.going.clear(),
                Entry::Add(number, packets, bytes) => {
                    if let Some(who) = accounts.get(&number) {
                        let entry = self.gone.entry(who.clone());
                        add(entry.or_default(), count(packets, bytes));
                    }
                }
                Entry::Told(number, packets, bytes) => {
                    if let Some(who) = accounts.get(&number) {
                        self.told.insert(who.clone(), count(packets, bytes));
                    }
                }
            }
        }
        self.ledger = Some(ledger);
        credits
    }

    /// What went wrong with the ledger since this was asked last.
    pub(crate) fn failure(&mut self) -> Option<std::io::Error> {
        self.failure.take()
    }

    /// Whether anybody writes the ledger.
    pub(crate) fn is_kept(&self) -> bool {
        self.ledger.is_some()
    }

    /// Writes down whom new places count for, before they are in the kernel.
    pub(crate) fn expect(&mut self, credits: &Credits) {
        if !self.is_kept() || credits.is_empty() {
            return;
        }
        let mut entries = Vec::new();
        self.places(credits, &mut entries);
        self.write(&entries);
    }

    fn places(&mut self, credits: &Credits, entries: &mut Vec<Entry>) {
        for (place, to) in credits {
            let of = self.numbers(to, entries);
            entries.push(Entry::Place(place_text(place), of));
        }
    }

    /// Writes down what is about to go.
    pub(crate) fn going(&mut self, going: Vec<Going>) {
        let mut entries = Vec::new();
        for Going { place, to, count } in &going {
            if *count == Count::default() {
                continue;
            }
            let of = self.numbers(to, &mut entries);
            let text = place_text(place);
            entries.push(Entry::Going(text, of, count.packets, count.bytes));
        }
        self.going.extend(going);
        if !entries.is_empty() {
            self.write(&entries);
        }
    }

    /// What was about to go is gone.
    pub(crate) fn gone(&mut self) {
        if self.going.iter().any(|g| g.count != Count::default()) {
            self.write(&[Entry::Gone]);
        }
        self.take();
    }

    fn take(&mut self) {
        for Going { place, to, count } in std::mem::take(&mut self.going) {
            self.seen.remove(&place);
            if !palisade_sys::fault::is_on("count-lost") {
                credit(&mut self.gone, &to, count);
            }
        }
    }

    /// Takes over what is not in the kernel any more: `live` is what there is, `credits` whom it
    /// counts for.
    pub(crate) fn reconcile(&mut self, credits: &Credits, live: &Live) {
        let gone_back = |place: &Place, to: &[Who], was: Count| {
            let is = live.at(place, to).unwrap_or_default();
            is.packets < was.packets || is.bytes < was.bytes
        };
        let mut entries = Vec::new();
        let mut lost: Vec<(Vec<Who>, Count)> = Vec::new();
        let going = std::mem::take(&mut self.going);
        if going.iter().any(|g| g.count != Count::default()) {
            entries.push(Entry::Stayed);
        }
        for Going { place, to, count } in going {
            if gone_back(&place, &to, count) {
                self.seen.remove(&place);
                lost.push((to, count));
            }
        }
        let mut seen = std::mem::take(&mut self.seen);
        seen.retain(|place, was| {
            let to = credits.get(place).map_or(&[][..], |to| to);
            let back = gone_back(place, to, *was);
            if back {
                lost.push((to.to_vec(), *was));
            }
            !back
        });
        self.seen = seen;
        for (to, count) in lost {
            for number in self.numbers(&to, &mut entries) {
                entries.push(Entry::Add(number, count.packets, count.bytes));
            }
            credit(&mut self.gone, &to, count);
        }
        if !entries.is_empty() {
            self.write(&entries);
        }
    }

    /// The totals, from now on never told less.
    pub(crate) fn tell(&mut self, credits: &Credits, live: &Live) -> Counters {
        self.reconcile(credits, live);
        let mut totals = self.gone.clone();
        for (place, to) in credits {
            if let Some(count) = live.at(place, to) {
                credit(&mut totals, to, count);
                if count != Count::default() {
                    self.seen.insert(place.clone(), count);
                }
            }
        }
        let mut entries = Vec::new();
        for (who, told) in &self.told {
            // What died with its table before anybody read it again.
            let total = totals.entry(who.clone()).or_default();
            let missing = count(
                told.packets.saturating_sub(total.packets),
                told.bytes.saturating_sub(total.bytes),
            );
            if missing != Count::default() {
                add(total, missing);
                add(self.gone.entry(who.clone()).or_default(), missing);
                if let Some(number) = self.numbers.get(who) {
                    entries.push(Entry::Add(*number, missing.packets, missing.bytes));
                }
            }
        }
        if self.is_kept() {
            for (who, total) in &totals {
                if self.told.get(who) != Some(total) {
                    let number = self.numbers(std::slice::from_ref(who), &mut entries);
                    let told = number.into_iter();
                    entries.extend(told.map(|n| Entry::Told(n, total.packets, total.bytes)));
                }
            }
        }
        if !entries.is_empty() {
            self.write(&entries);
        }
        self.told.clone_from(&totals);
        let mut counters = Counters::default();
        for (who, count) in totals {
            match who {
                Who::Rule(credit) => drop(counters.by_rule.insert(credit, count)),
                Who::Reason(reason) => drop(counters.reasons.insert(reason, count)),
            }
        }
        counters
    }

    /// Forgets what is counted for rules that nobody will ask for again.
    pub(crate) fn retain(&mut self, keep: &dyn Fn(&Credit) -> bool) {
        let wanted = |who: &Who| match who {
            Who::Rule(credit) => keep(credit),
            Who::Reason(_) => true,
        };
        self.gone.retain(|who, _| wanted(who));
        self.told.retain(|who, _| wanted(who));
    }

    /// Writes the ledger anew, if it has grown by much or `always`: `credits` is whom everything in
    /// the kernel counts for.
    pub(crate) fn snapshot(&mut self, always: bool, credits: &dyn Fn() -> Credits) {
        let (since, then) = self.written;
        if self.ledger.is_none() || !(always || since > then.max(WORTH)) {
            return;
        }
        self.numbers.clear();
        let mut entries = Vec::new();
        self.places(&credits(), &mut entries);
        let going = std::mem::take(&mut self.going);
        for Going { place, to, count } in &going {
            let of = self.numbers(to, &mut entries);
            let text = place_text(place);
            entries.push(Entry::Going(text, of, count.packets, count.bytes));
        }
        self.going = going;
        for (totals, is_gone) in [(self.gone.clone(), true), (self.told.clone(), false)] {
            for (who, count) in totals {
                for number in self.numbers(&[who], &mut entries) {
                    entries.push(match is_gone {
                        true => Entry::Add(number, count.packets, count.bytes),
                        false => Entry::Told(number, count.packets, count.bytes),
                    });
                }
            }
        }
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.replace(&entries)
        {
            self.failure = Some(error);
        }
        self.written = (0, entries.len());
    }

    /// The numbers of accounts; entries for those that are new.
    fn numbers(&mut self, of: &[Who], entries: &mut Vec<Entry>) -> Vec<u32> {
        let mut out = Vec::with_capacity(of.len());
        for who in of {
            let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(who.clone()).or_insert_with(|| {
                let account = match who {
                    Who::Rule(credit) => Account::Rule((**credit).clone()),
                    Who::Reason(reason) => Account::Reason((*reason).to_owned()),
                };
                entries.push(Entry::Account(next, account));
                next
            });
            out.push(number);
        }
        out
    }

    fn write(&mut self, entries: &[Entry]) {
        self.written.0 += entries.len();
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.append(entries)
        {
            self.failure = Some(error);
        }
    }
}

fn credit(totals: &mut BTreeMap<Who, Count>, to: &[Who], count: Count) {
    for who in to {
        add(totals.entry(who.clone()).or_default(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::tests::{element, live, who};
    use palisade_generators::case_seeds;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::sync::{Mutex, PoisonError};

    /// A ledger that outlives its book.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Entry>>>);

    impl Kept {
        fn entries(&self) -> Vec<Entry> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Ledger for Kept {
        fn append(&mut self, entries: &[Entry]) -> std::io::Result<()> {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(entries);
            Ok(())
        }

        fn replace(&mut self, entries: &[Entry]) -> std::io::Result<()> {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *all = entries.to_vec();
            Ok(())
        }
    }

    /// A kernel that counts, a book over it that may die at any moment, and what is true.
    struct World {
        rng: SmallRng,
        kernel: BTreeMap<u8, u64>,
        truth: BTreeMap<Who, u64>,
        told: BTreeMap<Who, u64>,
        ledger: Kept,
        book: Book,
        credits: Credits,
        next: u8,
        deaths: usize,
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    impl World {
        fn new(seed: u64) -> Self {
            let mut world = World {
                rng: SmallRng::seed_from_u64(seed),
                kernel: BTreeMap::new(),
                truth: BTreeMap::new(),
                told: BTreeMap::new(),
                ledger: Kept::default(),
                book: Book::default(),
                credits: Credits::new(),
                next: 0,
                deaths: 0,
            };
            world.begin();
            world
        }

        fn live(&self) -> Live {
            let counts: Vec<(u8, u64)> = self.kernel.iter().map(|(n, c)| (*n, *c)).collect();
            live(&counts)
        }

        /// A new process.
        fn begin(&mut self) {
            self.book = Book::default();
            let entries = self.ledger.entries();
            self.credits = self.book.restore(Box::new(self.ledger.clone()), entries);
            self.book.reconcile(&self.credits, &self.live());
            let credits = self.credits.clone();
            self.book.snapshot(true, &|| credits.clone());
        }

        fn dies(&mut self) -> bool {
            let dies = self.rng.random_bool(0.1);
            if dies {
                self.deaths += 1;
                self.begin();
            }
            dies
        }

        fn traffic(&mut self) {
            for (number, count) in &mut self.kernel {
                let packets = self.rng.random_range(0..5);
                *count += packets;
                for to in &self.credits[&element(*number)] {
                    *self.truth.entry(to.clone()).or_default() += packets;
                }
            }
        }

        /// Some elements come and some go, as a flush does it.
        fn flush(&mut self) {
            let mut new = Credits::new();
            for _ in 0..self.rng.random_range(0..3) {
                self.next += 1;
                let mut to = NAMES.map(who).to_vec();
                to.retain(|_| self.rng.random_bool(0.5));
                new.insert(element(self.next), to);
            }
            self.book.expect(&new);
            self.credits.extend(new.clone());
            if self.dies() {
                return;
            }
            let last = self.next;
            let first = last - new.len() as u8;
            self.kernel
                .extend((first + 1..=last).map(|number| (number, 0)));
            self.traffic();
            if self.dies() {
                return;
            }
            let gone: Vec<u8> = self.kernel.keys().copied().collect();
            let gone: Vec<u8> = gone
                .into_iter()
                .filter(|_| self.rng.random_bool(0.3))
                .collect();
            let going = gone.iter().map(|number| Going {
                place: element(*number),
                to: self.credits[&element(*number)].clone(),
                count: crate::counts::tests::count(self.kernel[number]),
            });
            self.book.going(going.collect());
            if self.dies() {
                return;
            }
            if self.rng.random_bool(0.1) {
                // Refused: the kernel is read back.
                self.book.reconcile(&self.credits, &self.live());
                return;
            }
            self.kernel.retain(|number, _| !gone.contains(number));
            if self.dies() {
                return;
            }
            self.book.gone();
            let credits = self.credits.clone();
            self.book
                .snapshot(self.rng.random_bool(0.2), &|| credits.clone());
        }

        fn tell(&mut self) -> BTreeMap<Who, u64> {
            let counters = self.book.tell(&self.credits, &self.live());
            let rules = counters.by_rule.into_iter();
            let told: BTreeMap<Who, u64> = rules.map(|(c, n)| (Who::Rule(c), n.packets)).collect();
            for (who, before) in &self.told {
                let now = told.get(who).copied().unwrap_or_default();
                assert!(now >= *before, "{who:?} went back from {before} to {now}");
            }
            self.told.clone_from(&told);
            told
        }
    }

    #[test]
    fn no_count_is_lost_or_doubled_whenever_the_process_dies() {
        let mut deaths = 0;
        for seed in case_seeds(0, 400) {
            let mut world = World::new(seed);
            for _ in 0..40 {
                world.flush();
                world.traffic();
                if world.rng.random_bool(0.3) {
                    let mut told = world.tell();
                    told.retain(|_, count| *count > 0);
                    let mut truth = world.truth.clone();
                    truth.retain(|_, count| *count > 0);
                    assert_eq!(told, truth, "seed {seed}");
                }
            }
            deaths += world.deaths;
        }
        assert!(deaths > 1_000, "{deaths}");
    }

    #[test]
    fn what_others_remove_is_never_told_less_than_before() {
        for seed in case_seeds(0, 200) {
            let mut world = World::new(seed);
            for _ in 0..40 {
                world.flush();
                match world.rng.random_range(0..6) {
                    0 => world.kernel.clear(),
                    1 => drop(world.kernel.pop_first()),
                    2 => {
                        // Replaced by hand, and counting anew.
                        if let Some(mut first) = world.kernel.first_entry() {
                            *first.get_mut() = 0;
                        }
                    }
                    _ => {}
                }
                world.traffic();
                let told = world.tell();
                for (who, count) in &told {
                    let truth = world.truth.get(who).copied().unwrap_or_default();
                    assert!(*count <= truth, "seed {seed}: {who:?} {count} of {truth}");
                }
                world.dies();
            }
        }
    }
}
