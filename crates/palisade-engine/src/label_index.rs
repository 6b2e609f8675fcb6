//! Labels of the owners of addresses, their signatures, and which active selectors they match.
//!
//! A signature is what active selectors can see of an owner: each tested key with its value if a
//! selector names it, else only its presence. Owners with equal signatures share one evaluation of
//! every selector. Keys and values that no selector tests cost nothing. All those that selectors of
//! one flush newly test take one pass over the owners that may have them.

use crate::address_owner_labels::AddressOwnerLabels;
use crate::key_numbers::{KeyNumber, find_key, key_number, key_parts};
use crate::selector_index::{RequiredTest, SelectorNumber, required_tests};
use crate::selectors::{ActiveSelectors, KeyUsage, TestedKeyChange, TestedKeys};
use crate::store::{
    AddressOwnerSlot, AddressOwnerStore, HashMap, InternPool, NONE, SignatureNumber, hash,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use hashbrown::HashTable;
use palisade_model::{LabelKey, LabelLookup, LabelScope, Selector, Str, reserved};

/// The numbers of selectors, sorted.
pub(crate) type MatchedSelectors = Arc<[SelectorNumber]>;

/// A key, and its value as active selectors see it.
type LabelPair = (KeyNumber, u32);

/// The reserved labels that an owner does not have in common with all of its namespace and shared attributes.
const RESERVED_OF_ONE: [&str; 4] = [
    reserved::NAME,
    reserved::NODE,
    reserved::OWN_NODE,
    reserved::DOMAIN,
];

/// Stands for all values of a key that no active selector names.
const UNNAMED_VALUE: u32 = NONE;

/// The labels of a signature, for a selector to test.
struct SignatureLabels<'a> {
    pairs: &'a [LabelPair],
    names: &'a InternPool<Str>,
}

impl LabelLookup for SignatureLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let key = find_key(self.names, key)?;
        let at = self.pairs.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        // No label has this value.
        let value = self.names.get(self.pairs[at].1);
        Some(value.map_or("\0", |value| value))
    }
}

#[derive(Debug)]
struct LabelSignature {
    pairs: Box<[LabelPair]>,
    matched: MatchedSelectors,
    /// Its first member.
    first: AddressOwnerSlot,
    /// The recomputation that added it.
    generation: u64,
}

/// The signatures of all owners, and the selectors they match.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    signatures: Vec<Option<LabelSignature>>,
    free: Vec<SignatureNumber>,
    index: HashTable<SignatureNumber>,
    /// Signatures by key and value.
    by_label: BTreeMap<LabelPair, BTreeSet<SignatureNumber>>,
    generation: u64,
}

impl LabelIndex {
    /// The number of signatures.
    pub(crate) fn signatures(&self) -> usize {
        self.signatures.len() - self.free.len()
    }

    /// The active selectors that an owner matches.
    pub(crate) fn matched_selectors(
        &self,
        store: &AddressOwnerStore,
        slot: AddressOwnerSlot,
    ) -> &[SelectorNumber] {
        let signature = self.get(store.signature(slot));
        signature.map_or(&[], |signature| &*signature.matched)
    }

    fn get(&self, number: SignatureNumber) -> Option<&LabelSignature> {
        self.signatures.get(number.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: SignatureNumber) -> Option<&mut LabelSignature> {
        self.signatures.get_mut(number.0 as usize)?.as_mut()
    }

    /// Updates signatures after changes of owners and active selectors. Returns the slots of the
    /// owners that had a signature before and whose matched selectors may have changed.
    pub(crate) fn recompute(
        &mut self,
        store: &mut AddressOwnerStore,
        selectors: &ActiveSelectors,
        changed: &[AddressOwnerSlot],
        keys: &[TestedKeyChange],
        added: &BTreeSet<SelectorNumber>,
        removed: &BTreeMap<SelectorNumber, Arc<Selector>>,
    ) -> Vec<AddressOwnerSlot> {
        self.generation += 1;
        let mut moved = Vec::new();
        let mut dirty = changed.to_vec();
        // Where all owners changed there are no others to find.
        if changed.len() < store.len() + store.removed().len() {
            owners_with_changed_keys(store, keys, &mut dirty);
            dirty.sort_unstable();
            dirty.dedup();
        }
        let mut scratch = Scratch::default();
        for slot in dirty {
            if self.assign_signature(store, selectors, slot, &mut scratch) {
                moved.push(slot);
            }
        }
        for name in scratch.acquired {
            store.names_mut().release(name);
        }
        self.update_matches(store, selectors, added, removed, &mut moved);
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    /// Adds new selectors to the signatures that existed before, and removes ended ones from them.
    fn update_matches(
        &mut self,
        store: &AddressOwnerStore,
        selectors: &ActiveSelectors,
        added: &BTreeSet<SelectorNumber>,
        removed: &BTreeMap<SelectorNumber, Arc<Selector>>,
        moved: &mut Vec<AddressOwnerSlot>,
    ) {
        let mut altered: BTreeMap<SignatureNumber, BTreeSet<SelectorNumber>> = BTreeMap::new();
        for number in added {
            let Some(selector) = selectors.get(*number) else {
                continue;
            };
            for signature in self.matching_signatures(store.names(), selector) {
                altered.entry(signature).or_default().insert(*number);
            }
        }
        for selector in removed.values() {
            for signature in self.matching_signatures(store.names(), selector) {
                altered.entry(signature).or_default();
            }
        }
        for (number, added_selectors) in altered {
            let Some(signature) = self.get_mut(number) else {
                continue;
            };
            let previous = signature.matched.iter().copied();
            let mut matched: Vec<SelectorNumber> = previous
                .filter(|n| !removed.contains_key(n))
                .chain(added_selectors)
                .collect();
            matched.sort_unstable();
            matched.dedup();
            signature.matched = matched.into();
            let first = signature.first;
            moved.extend(store.signature_members(first));
        }
    }

    /// The signatures that a selector matches, of those that existed before this recomputation.
    fn matching_signatures(
        &self,
        names: &InternPool<Str>,
        selector: &Selector,
    ) -> Vec<SignatureNumber> {
        let under = |test: &RequiredTest| -> Vec<&BTreeSet<SignatureNumber>> {
            match test {
                RequiredTest::Values(key, values) => {
                    let signatures = |value: &u32| self.by_label.get(&(*key, *value));
                    values.iter().filter_map(signatures).collect()
                }
                RequiredTest::Present(key) => {
                    let entries = self.by_label.range((*key, 0)..=(*key, u32::MAX));
                    entries.map(|(_, signatures)| signatures).collect()
                }
                RequiredTest::Never => Vec::new(),
            }
        };
        let matches = |number: &SignatureNumber| {
            self.get(*number).is_some_and(|signature| {
                let pairs = &signature.pairs;
                signature.generation < self.generation
                    && selector.matches(&SignatureLabels { pairs, names })
            })
        };
        let tests = required_tests(selector, names);
        let least = tests
            .iter()
            .map(under)
            .min_by_key(|sets| sets.iter().map(|set| set.len()).sum::<usize>());
        match least {
            Some(sets) => sets
                .into_iter()
                .flatten()
                .copied()
                .filter(matches)
                .collect(),
            None => {
                let all = 0..u32::try_from(self.signatures.len()).unwrap_or(u32::MAX);
                all.map(SignatureNumber).filter(matches).collect()
            }
        }
    }

    /// Assigns an owner its signature, or none if it is removed. Returns whether it had one and its
    /// matched selectors changed.
    fn assign_signature(
        &mut self,
        store: &mut AddressOwnerStore,
        selectors: &ActiveSelectors,
        slot: AddressOwnerSlot,
        scratch: &mut Scratch,
    ) -> bool {
        if !collect_pairs(store, selectors, slot, scratch) {
            self.leave_signature(store, slot);
            return false;
        }
        let key = hash(scratch.labels.pairs.as_slice());
        let same = |number: &SignatureNumber| {
            let signature = self.get(*number);
            signature.is_some_and(|signature| *signature.pairs == *scratch.labels.pairs)
        };
        let number = match self.index.find(key, same) {
            Some(number) => *number,
            None => self.add_signature(store.names_mut(), selectors, &scratch.labels.pairs),
        };
        let previous = store.signature(slot);
        if previous == number {
            return false;
        }
        let matches_differ = match (self.get(previous), self.get(number)) {
            (Some(old), Some(new)) => old.matched != new.matched,
            _ => false,
        };
        self.leave_signature(store, slot);
        if let Some(Some(signature)) = self.signatures.get_mut(number.0 as usize) {
            let first = core::mem::replace(&mut signature.first, slot);
            store.join_signature(slot, number, first);
        }
        matches_differ
    }

    fn add_signature(
        &mut self,
        names: &mut InternPool<Str>,
        selectors: &ActiveSelectors,
        pairs: &[LabelPair],
    ) -> SignatureNumber {
        for (key, value) in pairs {
            names.retain(key_parts(*key).1);
            names.retain(*value);
        }
        let sighting = SignatureLabels { pairs, names };
        let mut matched: Vec<SelectorNumber> = selectors
            .index
            .candidates(pairs.iter().copied())
            .filter(|number| selectors.get(*number).is_some_and(|s| s.matches(&sighting)))
            .collect();
        matched.sort_unstable();
        matched.dedup();
        let signature = Some(LabelSignature {
            pairs: pairs.into(),
            matched: matched.into(),
            first: AddressOwnerSlot::NONE,
            generation: self.generation,
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.signatures[number.0 as usize] = signature;
                number
            }
            None => {
                self.signatures.push(signature);
                SignatureNumber(u32::try_from(self.signatures.len() - 1).unwrap_or(NONE))
            }
        };
        for pair in pairs {
            self.by_label.entry(*pair).or_default().insert(number);
        }
        let signatures = &self.signatures;
        let again = |number: &SignatureNumber| {
            let signature = signatures.get(number.0 as usize).and_then(Option::as_ref);
            signature.map_or(0, |signature| hash(&*signature.pairs))
        };
        self.index.insert_unique(hash(pairs), number, again);
        number
    }

    /// Removes an owner from its signature; a signature without members is removed.
    fn leave_signature(&mut self, store: &mut AddressOwnerStore, slot: AddressOwnerSlot) {
        let number = store.signature(slot);
        if number == SignatureNumber::NONE {
            return;
        }
        let Some(first) = store.leave_signature(slot) else {
            return;
        };
        let Some(signature) = self.get_mut(number) else {
            return;
        };
        signature.first = first;
        if first != AddressOwnerSlot::NONE {
            return;
        }
        let Some(gone) = self.signatures[number.0 as usize].take() else {
            return;
        };
        self.free.push(number);
        let entry = self.index.find_entry(hash(&*gone.pairs), |n| *n == number);
        if let Ok(entry) = entry {
            entry.remove();
        }
        for pair in &gone.pairs {
            if let Some(signatures) = self.by_label.get_mut(pair) {
                signatures.remove(&number);
                if signatures.is_empty() {
                    self.by_label.remove(pair);
                }
            }
            store.names_mut().release(key_parts(pair.0).1);
            store.names_mut().release(pair.1);
        }
    }
}

/// The most entries of the maps in [`Scratch`]: they help where many owners have them in common.
const MAX_COMMON: usize = 1024;

/// Buffers for evaluating one owner, reused for the next, and what owners of one recomputation
/// have in common.
#[derive(Default)]
struct Scratch {
    labels: CollectedLabels,
    /// Values interned for this recomputation.
    acquired: Vec<u32>,
    /// The positions of the keys that selectors test, by the number of a list of keys.
    tested: HashMap<u32, Vec<(usize, KeyNumber)>>,
    /// Where `inherited_pairs` has those of a namespace and shared attributes.
    inherited: HashMap<(u32, u32), Range<usize>>,
    inherited_pairs: Vec<LabelPair>,
}

/// What active selectors see of an owner.
#[derive(Default)]
struct CollectedLabels {
    pairs: Vec<LabelPair>,
    /// Values that selectors distinguish and that are not interned yet.
    new_values: Vec<(KeyNumber, Str)>,
}

impl CollectedLabels {
    fn add(&mut self, store: &AddressOwnerStore, key: KeyNumber, usage: &KeyUsage, value: &str) {
        let known = store.names().find(value);
        match known.filter(|value| usage.names_value(*value)) {
            Some(value) => self.pairs.push((key, value)),
            None if usage.substring_tests > 0 => self.new_values.push((key, value.into())),
            None => self.pairs.push((key, UNNAMED_VALUE)),
        }
    }
}

/// The owners with a key or value that is newly tested: by namespace if the key is one of
/// namespaces, else in one pass over all owners.
fn owners_with_changed_keys(
    store: &AddressOwnerStore,
    changes: &[TestedKeyChange],
    out: &mut Vec<AddressOwnerSlot>,
) {
    let mut wanted_values: BTreeMap<KeyNumber, Option<BTreeSet<u32>>> = BTreeMap::new();
    for change in changes {
        match change.value {
            Some(value) => {
                let values_of_key = wanted_values
                    .entry(change.key)
                    .or_insert_with(|| Some(BTreeSet::new()));
                values_of_key.iter_mut().for_each(|values| {
                    values.insert(value);
                });
            }
            None => drop(wanted_values.insert(change.key, None)),
        }
    }
    let names = store.names();
    let has = |values: &Option<BTreeSet<u32>>, value: &str| match values {
        Some(values) => names.find(value).is_some_and(|n| values.contains(&n)),
        None => true,
    };
    let mut facts: Vec<(LabelScope, &str, &Option<BTreeSet<u32>>)> = Vec::new();
    let mut own = false;
    for (key, values) in &wanted_values {
        let (scope, number) = key_parts(*key);
        let Some(name) = names.get(number) else {
            continue;
        };
        match (scope, values) {
            (LabelScope::Own, _) => own = true,
            (LabelScope::Namespace, _) => {
                for namespace in store.namespaces() {
                    let value = store.namespace_label(namespace, name, Some(number));
                    if value.is_some_and(|value| has(values, value)) {
                        out.extend(store.in_namespace(namespace));
                    }
                }
            }
            (LabelScope::Reserved, Some(values)) if **name == *reserved::NAMESPACE => {
                for namespace in values {
                    out.extend(store.in_namespace(*namespace));
                }
            }
            (scope, values) => facts.push((scope, name, values)),
        }
    }
    if !facts.is_empty() {
        for (slot, view) in store.views() {
            let labels = AddressOwnerLabels { view };
            let sees = |(scope, key, values): &(LabelScope, &str, &Option<BTreeSet<u32>>)| {
                labels
                    .value(*scope, key)
                    .is_some_and(|value| has(values, value))
            };
            if facts.iter().any(sees) {
                out.push(slot);
            }
        }
    }
    if own {
        owners_with_own_keys(store, &wanted_values, out);
    }
}

/// The owners that have one of these keys or values as own labels.
fn owners_with_own_keys(
    store: &AddressOwnerStore,
    wanted_values: &BTreeMap<KeyNumber, Option<BTreeSet<u32>>>,
    out: &mut Vec<AddressOwnerSlot>,
) {
    type Wanted<'a> = Vec<(usize, &'a Option<BTreeSet<u32>>)>;
    let names = store.names();
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    let mut any = false;
    for (number, keys) in store.key_lists() {
        wanted.resize_with(number as usize + 1, Vec::new);
        for (at, key) in keys.iter().enumerate() {
            if let Some(values) = wanted_values.get(&key_number(LabelScope::Own, *key)) {
                wanted[number as usize].push((at, values));
                any = true;
            }
        }
    }
    if !any {
        return;
    }
    for (slot, keys, signature) in store.slot_signatures() {
        let Some(wanted) = wanted.get(keys as usize).filter(|w| !w.is_empty()) else {
            continue;
        };
        if signature == SignatureNumber::NONE {
            continue;
        }
        let has = |(at, values): &(usize, &Option<BTreeSet<u32>>)| match values {
            None => true,
            Some(values) => store.view(slot).is_some_and(|view| {
                let mut value = view.values_at(core::iter::once(*at));
                let number = value.next().and_then(|value| names.find(value));
                number.is_some_and(|number| values.contains(&number))
            }),
        };
        if wanted.iter().any(has) {
            out.push(slot);
        }
    }
}

/// Collects what active selectors see of an owner. Returns false if it is removed, or a
/// template: that stands for pods that do not exist yet and holds no address.
fn collect_pairs(
    store: &mut AddressOwnerStore,
    selectors: &ActiveSelectors,
    slot: AddressOwnerSlot,
    scratch: &mut Scratch,
) -> bool {
    scratch.labels.pairs.clear();
    let Some(view) = store.view(slot).filter(|view| !view.is_template()) else {
        return false;
    };
    let keys = selectors.keys();
    let origin = (view.namespace, view.shared);
    if !scratch.tested.contains_key(&view.keys) {
        let key = |name: &u32| key_number(LabelScope::Own, *name);
        let all = view.keys().iter().map(key).enumerate();
        let tested = all.filter(|(_, key)| keys.get(*key).is_some());
        if scratch.tested.len() == MAX_COMMON {
            scratch.tested.clear();
        }
        scratch.tested.insert(view.keys, tested.collect());
    }
    collect_own(store, keys, slot, scratch);
    intern_new_values(store, scratch);
    if let Some(inherited) = scratch.inherited.get(&origin) {
        let inherited = scratch.inherited_pairs.get(inherited.clone());
        scratch.labels.pairs.extend(inherited.into_iter().flatten());
    } else {
        let own = scratch.labels.pairs.len();
        collect_inherited(store, keys, slot, scratch);
        intern_new_values(store, scratch);
        if scratch.inherited.len() == MAX_COMMON {
            scratch.inherited.clear();
            scratch.inherited_pairs.clear();
        }
        let first = scratch.inherited_pairs.len();
        scratch.inherited_pairs.extend(&scratch.labels.pairs[own..]);
        let inherited = first..scratch.inherited_pairs.len();
        scratch.inherited.insert(origin, inherited);
    }
    scratch.labels.pairs.sort_unstable();
    true
}

/// Collects the labels that only this owner has: its own, its name and what its node is.
fn collect_own(
    store: &AddressOwnerStore,
    keys: &TestedKeys,
    slot: AddressOwnerSlot,
    scratch: &mut Scratch,
) {
    let Some(view) = store.view(slot) else {
        return;
    };
    let tested = scratch
        .tested
        .get(&view.keys)
        .map_or(&[][..], Vec::as_slice);
    let labels = &mut scratch.labels;
    let values = view.values_at(tested.iter().map(|(position, _)| *position));
    for ((_, key), value) in tested.iter().zip(values) {
        if let Some(used) = keys.get(*key) {
            if used.depends_on_value() {
                labels.add(store, *key, used, value)
            } else {
                labels.pairs.push((*key, UNNAMED_VALUE))
            }
        }
    }
    let seen = AddressOwnerLabels { view };
    for name in RESERVED_OF_ONE {
        let key = reserved_key(store.names(), name).and_then(|key| Some((key, keys.get(key)?)));
        if let Some((key, used)) = key
            && let Some(value) = seen.value(LabelScope::Reserved, name)
        {
            scratch.labels.add(store, key, used, value);
        }
    }
}

/// Collects the labels that an owner has in common with all of its namespace and shared
/// attributes.
fn collect_inherited(
    store: &AddressOwnerStore,
    keys: &TestedKeys,
    slot: AddressOwnerSlot,
    scratch: &mut Scratch,
) {
    let Some(view) = store.view(slot) else {
        return;
    };
    let seen = AddressOwnerLabels { view };
    let namespace = seen.view.namespace;
    for scope in [
        LabelScope::Namespace,
        LabelScope::ServiceAccount,
        LabelScope::Reserved,
    ] {
        for number in keys.names_in_scope(scope) {
            let key = key_number(scope, number);
            let Some(name) = store.names().get(number) else {
                continue;
            };
            let value = match scope {
                LabelScope::Namespace => store.namespace_label(namespace, name, Some(number)),
                LabelScope::Reserved if RESERVED_OF_ONE.contains(&&**name) => continue,
                _ => seen.value(scope, name),
            };
            if let (Some(used), Some(value)) = (keys.get(key), value) {
                scratch.labels.add(store, key, used, value);
            }
        }
    }
}

/// The key of a reserved label, if its name is interned.
fn reserved_key(names: &InternPool<Str>, name: &str) -> Option<KeyNumber> {
    let name = names.find(name)?;
    Some(key_number(LabelScope::Reserved, name))
}

fn intern_new_values(store: &mut AddressOwnerStore, scratch: &mut Scratch) {
    for (key, value) in scratch.labels.new_values.drain(..) {
        let value = store.acquire_name(&value);
        scratch.acquired.push(value);
        scratch.labels.pairs.push((key, value));
    }
}
