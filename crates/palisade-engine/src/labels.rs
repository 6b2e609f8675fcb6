//! Labels and signatures: who can hold an address, and which active selectors each matches.
//!
//! A signature is what active selectors can see of a holder: for each key that one of them tests,
//! the value if one of them names it, else only that there is one. Holders with equal signatures
//! share one evaluation of every selector. A key or value nobody tests costs nothing; all that are
//! new to the node in one flush are one pass over the holders that can have them.

use crate::columns::{Columns, NONE, Slot};
use crate::filing::{Required, required};
use crate::holders::{View, What};
use crate::pool::{Pool, hash};
use crate::selectors::{KeyChange, KeyNumber, KeyUse, Selectors, find_key, key_number, key_parts};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashTable;
use palisade_model::{EndpointId, LabelKey, LabelLookup, ObjectId, Scope, Selector, Str, reserved};

/// The numbers of selectors, sorted.
pub(crate) type Matches = Arc<[u32]>;

/// The name of something that can hold an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HolderId {
    Endpoint(EndpointId),
    NetworkSet(ObjectId),
    Node(Str),
}

/// A holder's labels, for a selector to test.
pub(crate) struct Seen<'a> {
    view: View<'a>,
}

impl<'a> Seen<'a> {
    /// The labels of an endpoint.
    pub(crate) fn endpoint(columns: &'a Columns, id: &EndpointId) -> Option<Self> {
        let view = columns.view(columns.find_endpoint(id)?)?;
        Some(Seen { view })
    }

    fn get(&self, scope: Scope, key: &str) -> Option<&'a str> {
        let (columns, namespace) = (self.view.columns, self.view.namespace);
        match scope {
            Scope::Own => self.view.value(key),
            Scope::Namespace => columns.namespace_label(namespace, key),
            Scope::ServiceAccount => {
                let account = self.view.common()?.account.as_ref()?;
                columns.account_label(namespace, account, key)
            }
            Scope::Reserved => self.fact(key),
        }
    }

    fn fact(&self, key: &str) -> Option<&'a str> {
        match key {
            reserved::KIND => Some(match self.view.what() {
                What::NetworkSet => reserved::KIND_NETWORK_SET,
                What::Node => reserved::KIND_NODE,
                What::Endpoint if self.view.common().is_some_and(|c| c.host) => reserved::KIND_HOST,
                What::Endpoint => reserved::KIND_WORKLOAD,
            }),
            reserved::NAMESPACE => {
                let name = self.view.columns.names.get(self.view.namespace)?;
                Some(name)
            }
            reserved::NAME => Some(self.view.name()),
            reserved::SERVICE_ACCOUNT => self.view.common()?.account.as_deref(),
            _ => None,
        }
    }
}

impl LabelLookup for Seen<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.get(key.scope, &key.name)
    }
}

/// A key, and the value as active selectors see it.
type Pair = (KeyNumber, u32);

/// The value of a key that no active selector names.
const OTHER: u32 = NONE;

/// What active selectors can see of a holder.
struct Sighting<'a> {
    pairs: &'a [Pair],
    names: &'a Pool<Str>,
}

impl LabelLookup for Sighting<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let key = find_key(self.names, key)?;
        let at = self.pairs.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        // No label has a value like this.
        let value = self.names.get(self.pairs[at].1);
        Some(value.map_or("\0", |value| value))
    }
}

#[derive(Debug)]
struct Signature {
    pairs: Box<[Pair]>,
    matched: Matches,
    /// The first of its members.
    first: Slot,
    /// The settling in which it began.
    born: u64,
}

/// Every holder with its signature.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) columns: Columns,
    signatures: Vec<Option<Signature>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// Signatures by key and value.
    by_label: BTreeMap<Pair, BTreeSet<u32>>,
    settlings: u64,
}

impl Holders {
    /// How many signatures there are.
    pub(crate) fn signatures(&self) -> usize {
        self.signatures.len() - self.free.len()
    }

    /// The active selectors that a holder matches.
    pub(crate) fn matched(&self, slot: Slot) -> &[u32] {
        let signature = self.get(self.columns.signature(slot));
        signature.map_or(&[], |signature| &*signature.matched)
    }

    fn get(&self, number: u32) -> Option<&Signature> {
        self.signatures.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Signature> {
        self.signatures.get_mut(number as usize)?.as_mut()
    }

    /// Whether a selector matches what is in a slot now.
    pub(crate) fn matches(&self, slot: Slot, selector: &Selector) -> bool {
        let view = self.columns.view(slot);
        let view = view.filter(|view| !view.own().is_template());
        view.is_some_and(|view| selector.matches(&Seen { view }))
    }

    /// Brings signatures up to date with holders that changed and selectors that began or ended.
    /// Returns the slots of the holders that may match others than before.
    pub(crate) fn settle(
        &mut self,
        selectors: &Selectors,
        changed: &[Slot],
        keys: &[KeyChange],
        begun: &BTreeSet<u32>,
        ended: &BTreeMap<u32, Arc<Selector>>,
    ) -> Vec<Slot> {
        self.settlings += 1;
        let mut moved = Vec::new();
        let mut again = changed.to_vec();
        let here = changed
            .iter()
            .filter(|slot| self.columns.view(**slot).is_some());
        if here.count() < self.columns.len() {
            self.who_has(keys, &mut again);
            again.sort_unstable();
            again.dedup();
        }
        let mut scratch = Scratch::default();
        for slot in again {
            if self.sign(selectors, slot, &mut scratch) {
                moved.push(slot);
            }
        }
        self.select(selectors, begun, ended, &mut moved);
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    /// Takes selectors that began into the signatures that were there before, and those that ended
    /// out of them.
    fn select(
        &mut self,
        selectors: &Selectors,
        begun: &BTreeSet<u32>,
        ended: &BTreeMap<u32, Arc<Selector>>,
        moved: &mut Vec<Slot>,
    ) {
        let mut altered: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for number in begun {
            let Some(selector) = selectors.get(*number) else {
                continue;
            };
            for signature in self.reached(selector) {
                altered.entry(signature).or_default().insert(*number);
            }
        }
        for selector in ended.values() {
            for signature in self.reached(selector) {
                altered.entry(signature).or_default();
            }
        }
        for (number, found) in altered {
            let Some(signature) = self.get_mut(number) else {
                continue;
            };
            let kept = signature.matched.iter().copied();
            let mut matched: Vec<u32> = kept
                .filter(|n| !ended.contains_key(n))
                .chain(found)
                .collect();
            matched.sort_unstable();
            matched.dedup();
            signature.matched = matched.into();
            let first = signature.first;
            moved.extend(self.columns.members(first));
        }
    }

    /// The signatures that a selector matches, of those that began before this settling.
    fn reached(&self, selector: &Selector) -> Vec<u32> {
        let names = &self.columns.names;
        let under = |test: &Required| -> Vec<&BTreeSet<u32>> {
            match test {
                Required::Values(key, values) => {
                    let of = |value: &u32| self.by_label.get(&(*key, *value));
                    values.iter().filter_map(of).collect()
                }
                Required::Present(key) => {
                    let there = self.by_label.range((*key, 0)..=(*key, u32::MAX));
                    there.map(|(_, signatures)| signatures).collect()
                }
                Required::Never => Vec::new(),
            }
        };
        let matches = |number: &u32| {
            self.get(*number).is_some_and(|signature| {
                let pairs = &signature.pairs;
                signature.born < self.settlings && selector.matches(&Sighting { pairs, names })
            })
        };
        let tests = required(selector, names);
        let least = tests
            .iter()
            .map(under)
            .min_by_key(|found| found.iter().map(|set| set.len()).sum::<usize>());
        match least {
            Some(found) => found
                .into_iter()
                .flatten()
                .copied()
                .filter(matches)
                .collect(),
            None => {
                let all = 0..u32::try_from(self.signatures.len()).unwrap_or(u32::MAX);
                all.filter(matches).collect()
            }
        }
    }

    /// The holders that can see a key or value that was not tested before: by namespace where that
    /// is what it is about, else in one pass over all.
    fn who_has(&self, changes: &[KeyChange], out: &mut Vec<Slot>) {
        let mut asked: BTreeMap<KeyNumber, Option<BTreeSet<u32>>> = BTreeMap::new();
        for change in changes {
            match change.value {
                Some(value) => {
                    let of = asked
                        .entry(change.key)
                        .or_insert_with(|| Some(BTreeSet::new()));
                    of.iter_mut().for_each(|values| {
                        values.insert(value);
                    });
                }
                None => drop(asked.insert(change.key, None)),
            }
        }
        let names = &self.columns.names;
        let has = |values: &Option<BTreeSet<u32>>, value: &str| match values {
            Some(values) => names.find(value).is_some_and(|n| values.contains(&n)),
            None => true,
        };
        let mut facts: Vec<(Scope, &str, &Option<BTreeSet<u32>>)> = Vec::new();
        let mut own = false;
        for (key, values) in &asked {
            let (scope, name) = key_parts(*key);
            let Some(name) = names.get(name) else {
                continue;
            };
            match (scope, values) {
                (Scope::Own, _) => own = true,
                (Scope::Namespace, _) => {
                    for namespace in self.columns.namespaces() {
                        let value = self.columns.namespace_label(namespace, name);
                        if value.is_some_and(|value| has(values, value)) {
                            out.extend(self.columns.in_namespace(namespace));
                        }
                    }
                }
                (Scope::Reserved, Some(values)) if **name == *reserved::NAMESPACE => {
                    for namespace in values {
                        out.extend(self.columns.in_namespace(*namespace));
                    }
                }
                (scope, values) => facts.push((scope, name, values)),
            }
        }
        if !facts.is_empty() {
            for (slot, view) in self.columns.views() {
                let seen = Seen { view };
                let sees = |(scope, key, values): &(Scope, &str, &Option<BTreeSet<u32>>)| {
                    seen.get(*scope, key)
                        .is_some_and(|value| has(values, value))
                };
                if facts.iter().any(sees) {
                    out.push(slot);
                }
            }
        }
        if own {
            self.who_has_own(&asked, out);
        }
    }

    /// The holders with one of these labels of their own.
    fn who_has_own(&self, asked: &BTreeMap<KeyNumber, Option<BTreeSet<u32>>>, out: &mut Vec<Slot>) {
        type Wanted<'a> = Vec<(usize, &'a Option<BTreeSet<u32>>)>;
        let names = &self.columns.names;
        let mut wanted: Vec<Wanted<'_>> = Vec::new();
        let mut any = false;
        for (number, set) in self.columns.key_sets.iter() {
            wanted.resize_with(number as usize + 1, Vec::new);
            for (at, key) in set.keys.iter().enumerate() {
                if let Some(values) = asked.get(&key_number(Scope::Own, *key)) {
                    wanted[number as usize].push((at, values));
                    any = true;
                }
            }
        }
        if !any {
            return;
        }
        for (slot, keys, signature) in self.columns.signed() {
            let Some(wanted) = wanted.get(keys as usize).filter(|w| !w.is_empty()) else {
                continue;
            };
            if signature == NONE {
                continue;
            }
            let has = |(at, values): &(usize, &Option<BTreeSet<u32>>)| match values {
                None => true,
                Some(values) => self.columns.view(slot).is_some_and(|view| {
                    let mut texts = view.own().values;
                    texts.skip_texts(*at);
                    names
                        .find(texts.text())
                        .is_some_and(|n| values.contains(&n))
                }),
            };
            if wanted.iter().any(has) {
                out.push(slot);
            }
        }
    }

    /// Signs a holder again, or takes it out of its signature if it is gone. Returns whether what it
    /// matches may have changed.
    fn sign(&mut self, selectors: &Selectors, slot: Slot, scratch: &mut Scratch) -> bool {
        if !self.look(selectors, slot, scratch) {
            self.leave(slot);
            return true;
        }
        let key = hash(scratch.pairs.as_slice());
        let same = |number: &u32| {
            let signature = self.get(*number);
            signature.is_some_and(|signature| *signature.pairs == *scratch.pairs)
        };
        let number = match self.index.find(key, same) {
            Some(number) => *number,
            None => self.begin(selectors, &scratch.pairs),
        };
        for name in scratch.held.drain(..) {
            self.columns.names.give(name);
        }
        let was = self.columns.signature(slot);
        if was == number {
            return false;
        }
        let unlike = match (self.get(was), self.get(number)) {
            (Some(old), Some(new)) => old.matched != new.matched,
            _ => true,
        };
        self.leave(slot);
        if let Some(Some(signature)) = self.signatures.get_mut(number as usize) {
            let first = core::mem::replace(&mut signature.first, slot);
            self.columns.enter(slot, number, first);
        }
        unlike
    }

    /// What active selectors see of a holder. Returns whether it is there: what stands for pods that
    /// are not there yet holds nothing.
    fn look(&mut self, selectors: &Selectors, slot: Slot, scratch: &mut Scratch) -> bool {
        scratch.pairs.clear();
        let columns = &mut self.columns;
        let Some(view) = columns.view(slot) else {
            return false;
        };
        let keys = selectors.keys();
        let set = view.keys;
        if let Some(set) = columns.key_sets.get_mut(set)
            && set.epoch != keys.epoch
        {
            set.epoch = keys.epoch;
            let tested = (0..).zip(&set.keys).filter_map(|(at, name)| {
                let key = key_number(Scope::Own, *name);
                keys.get(key).map(|_| (at, key))
            });
            set.tested = tested.collect();
        }
        let columns = &self.columns;
        let Some(view) = columns.view(slot) else {
            return false;
        };
        let own = view.own();
        if own.is_template() {
            return false;
        }
        let tested = columns.key_sets.get(set).map_or(&[][..], |set| &set.tested);
        let mut values = own.values;
        let mut at = 0;
        for (place, key) in tested {
            values.skip_texts((place - at) as usize);
            at = place + 1;
            if let Some(used) = keys.get(*key) {
                match used.looks_at_values() {
                    true => scratch.see(columns, *key, used, values.text()),
                    false => {
                        values.skip_texts(1);
                        scratch.pairs.push((*key, OTHER));
                    }
                }
            }
        }
        let seen = Seen { view };
        for scope in [Scope::Namespace, Scope::ServiceAccount, Scope::Reserved] {
            for name in keys.of(scope) {
                let key = key_number(scope, name);
                let value = columns.names.get(name).and_then(|n| seen.get(scope, n));
                if let (Some(used), Some(value)) = (keys.get(key), value) {
                    scratch.see(columns, key, used, value);
                }
            }
        }
        for (key, value) in scratch.unknown.drain(..) {
            let value = self.columns.take_name(&value);
            scratch.held.push(value);
            scratch.pairs.push((key, value));
        }
        scratch.pairs.sort_unstable();
        true
    }

    fn begin(&mut self, selectors: &Selectors, pairs: &[Pair]) -> u32 {
        let names = &mut self.columns.names;
        for (key, value) in pairs {
            names.retain(key_parts(*key).1);
            names.retain(*value);
        }
        let sighting = Sighting { pairs, names };
        let mut matched: Vec<u32> = selectors
            .files
            .candidates(pairs.iter().copied())
            .filter(|number| selectors.get(*number).is_some_and(|s| s.matches(&sighting)))
            .collect();
        matched.sort_unstable();
        matched.dedup();
        let signature = Some(Signature {
            pairs: pairs.into(),
            matched: matched.into(),
            first: NONE,
            born: self.settlings,
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.signatures[number as usize] = signature;
                number
            }
            None => {
                self.signatures.push(signature);
                u32::try_from(self.signatures.len() - 1).unwrap_or(NONE)
            }
        };
        for pair in pairs {
            self.by_label.entry(*pair).or_default().insert(number);
        }
        let signatures = &self.signatures;
        let again = |number: &u32| {
            let signature = signatures.get(*number as usize).and_then(Option::as_ref);
            signature.map_or(0, |signature| hash(&*signature.pairs))
        };
        self.index.insert_unique(hash(pairs), number, again);
        number
    }

    /// Takes a holder out of its signature; the signature goes with its last member.
    fn leave(&mut self, slot: Slot) {
        let number = self.columns.signature(slot);
        if number == NONE {
            return;
        }
        let Some(first) = self.columns.leave(slot) else {
            return;
        };
        let Some(signature) = self.get_mut(number) else {
            return;
        };
        signature.first = first;
        if first != NONE {
            return;
        }
        let Some(gone) = self.signatures[number as usize].take() else {
            return;
        };
        self.free.push(number);
        let entry = self.index.find_entry(hash(&*gone.pairs), |n| *n == number);
        if let Ok(entry) = entry {
            entry.remove();
        }
        for pair in &gone.pairs {
            if let Some(there) = self.by_label.get_mut(pair) {
                there.remove(&number);
                if there.is_empty() {
                    self.by_label.remove(pair);
                }
            }
            self.columns.names.give(key_parts(pair.0).1);
            self.columns.names.give(pair.1);
        }
    }
}

/// What one look at a holder needs, kept between looks.
#[derive(Default)]
struct Scratch {
    pairs: Vec<Pair>,
    /// Values that matter as they are, and have no number yet.
    unknown: Vec<(KeyNumber, Str)>,
    held: Vec<u32>,
}

impl Scratch {
    fn see(&mut self, columns: &Columns, key: KeyNumber, used: &KeyUse, value: &str) {
        let known = columns.names.find(value);
        match known.filter(|value| used.names(*value)) {
            Some(value) => self.pairs.push((key, value)),
            None if used.parts > 0 => self.unknown.push((key, value.into())),
            None => self.pairs.push((key, OTHER)),
        }
    }
}
