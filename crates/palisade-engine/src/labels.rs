//! Labels and signatures: who can hold an address, and which active selectors each matches.
//!
//! A signature is what active selectors can see of a holder: for each key that one of them tests,
//! the value if one of them names it, else only that there is one. Holders with equal signatures
//! share one evaluation of every selector. A key or value nobody tests costs nothing; one that is
//! new to the node is one pass over the holders that can have it.

use crate::filing::{Required, required};
use crate::selectors::{KeyChange, Selectors};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{
    Endpoint, EndpointId, LabelKey, LabelLookup, Labels, Namespace, ObjectId, Scope, Selector,
    ServiceAccount, State, Str, reserved,
};

/// The number of a holder while it lives.
pub(crate) type Slot = u32;

/// The numbers of selectors, sorted.
pub(crate) type Matches = Arc<[u32]>;

/// Something that can hold an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HolderId {
    Endpoint(EndpointId),
    NetworkSet(ObjectId),
    Node(Str),
}

impl HolderId {
    /// Whether a selector matches this holder now.
    pub(crate) fn matches(&self, state: &State, selector: &Selector) -> bool {
        selector.matches(&Seen(self, state))
    }

    /// Calls `each` with every label of the holder, by scope and name. Returns whether it is there:
    /// what stands for pods that are not there yet holds nothing.
    fn each_label(&self, state: &State, each: &mut dyn FnMut(Scope, &str, &str)) -> bool {
        match self {
            HolderId::Endpoint(id) => {
                let Some(endpoint) = state.endpoints.get(id).filter(|e| !e.template) else {
                    return false;
                };
                own(&endpoint.labels, each);
                namespaced(state, id.namespace.as_ref(), each);
                if let Some(account) = account_of(state, endpoint) {
                    for (name, value) in &account.labels {
                        each(Scope::ServiceAccount, name, value);
                    }
                }
                facts(&|name| endpoint.reserved_label(name), each);
            }
            HolderId::NetworkSet(id) => {
                let Some(set) = state.network_sets.get(id) else {
                    return false;
                };
                own(&set.labels, each);
                namespaced(state, id.namespace.as_ref(), each);
                facts(&|name| set.reserved_label(name), each);
            }
            HolderId::Node(name) => {
                let Some(node) = state.nodes.get(name) else {
                    return false;
                };
                own(&node.labels, each);
                facts(&|name| node.reserved_label(name), each);
            }
        }
        true
    }

    /// The value of one label.
    fn label<'a>(&'a self, state: &'a State, key: &LabelKey) -> Option<&'a str> {
        match self {
            HolderId::Endpoint(id) => {
                let endpoint = state.endpoints.get(id).filter(|e| !e.template)?;
                match key.scope {
                    Scope::Own => endpoint.labels.get(&key.name).map(|v| &**v),
                    Scope::Reserved => endpoint.reserved_label(&key.name),
                    Scope::ServiceAccount => {
                        let account = account_of(state, endpoint)?;
                        account.labels.get(&key.name).map(|v| &**v)
                    }
                    Scope::Namespace => namespace_label(state, id.namespace.as_ref(), &key.name),
                }
            }
            HolderId::NetworkSet(id) => {
                let set = state.network_sets.get(id)?;
                match key.scope {
                    Scope::Own => set.labels.get(&key.name).map(|v| &**v),
                    Scope::Reserved => set.reserved_label(&key.name),
                    Scope::Namespace => namespace_label(state, id.namespace.as_ref(), &key.name),
                    Scope::ServiceAccount => None,
                }
            }
            HolderId::Node(name) => {
                let node = state.nodes.get(name)?;
                match key.scope {
                    Scope::Own => node.labels.get(&key.name).map(|v| &**v),
                    Scope::Reserved => node.reserved_label(&key.name),
                    Scope::Namespace | Scope::ServiceAccount => None,
                }
            }
        }
    }
}

/// The names of all facts, in order.
const RESERVED: [&str; 4] = [
    reserved::KIND,
    reserved::NAME,
    reserved::NAMESPACE,
    reserved::SERVICE_ACCOUNT,
];

fn own(labels: &Labels, each: &mut dyn FnMut(Scope, &str, &str)) {
    for (name, value) in labels {
        each(Scope::Own, name, value);
    }
}

fn facts<'a>(of: &dyn Fn(&str) -> Option<&'a str>, each: &mut dyn FnMut(Scope, &str, &str)) {
    for name in RESERVED {
        if let Some(value) = of(name) {
            each(Scope::Reserved, name, value);
        }
    }
}

fn namespaced(state: &State, namespace: Option<&Str>, each: &mut dyn FnMut(Scope, &str, &str)) {
    let Some(name) = namespace else { return };
    match state.namespaces.get(name) {
        Some(described) => {
            for (name, value) in &described.labels {
                each(Scope::Namespace, name, value);
            }
        }
        None => each(Scope::Namespace, Namespace::NAME_LABEL, name),
    }
}

fn namespace_label<'a>(
    state: &'a State,
    namespace: Option<&'a Str>,
    name: &str,
) -> Option<&'a str> {
    let namespace = namespace?;
    match state.namespaces.get(namespace) {
        Some(described) => described.labels.get(name).map(|v| &**v),
        None => (name == Namespace::NAME_LABEL).then_some(&**namespace),
    }
}

fn account_of<'a>(state: &'a State, endpoint: &Endpoint) -> Option<&'a ServiceAccount> {
    let namespace = endpoint.id.namespace.clone()?;
    let name = endpoint.service_account.clone()?;
    state.service_accounts.get(&(namespace, name))
}

/// A holder's labels, for a selector to test.
struct Seen<'a>(&'a HolderId, &'a State);

impl LabelLookup for Seen<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        self.0.label(self.1, key)
    }
}

/// A value that no active selector names.
const OTHER: &str = "\0";

/// What active selectors can see of a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SignatureKey(Vec<(LabelKey, Str)>);

impl LabelLookup for SignatureKey {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        Some(&self.0[at].1)
    }
}

#[derive(Debug)]
struct Signature {
    key: SignatureKey,
    matched: Matches,
    members: BTreeSet<Slot>,
}

#[derive(Debug)]
struct Holder {
    id: HolderId,
    signature: Option<u32>,
}

/// Every holder with its signature.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    slots: BTreeMap<HolderId, Slot>,
    holders: BTreeMap<Slot, Holder>,
    next_slot: Slot,
    numbers: BTreeMap<SignatureKey, u32>,
    signatures: BTreeMap<u32, Signature>,
    next_signature: u32,
    /// Signatures by key and value.
    by_label: BTreeMap<LabelKey, BTreeMap<Str, BTreeSet<u32>>>,
    /// The value every unnamed value is seen as.
    other: Option<Str>,
}

impl Holders {
    /// The slot of a holder, a new one if it has none.
    pub(crate) fn slot(&mut self, id: &HolderId) -> Slot {
        if let Some(slot) = self.slots.get(id) {
            return *slot;
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        self.slots.insert(id.clone(), slot);
        let holder = Holder {
            id: id.clone(),
            signature: None,
        };
        self.holders.insert(slot, holder);
        slot
    }

    /// How many holders there are.
    pub(crate) fn len(&self) -> usize {
        self.holders.len()
    }

    /// How many signatures there are.
    pub(crate) fn signatures(&self) -> usize {
        self.signatures.len()
    }

    /// The holder in a slot.
    pub(crate) fn id(&self, slot: Slot) -> Option<&HolderId> {
        self.holders.get(&slot).map(|holder| &holder.id)
    }

    /// The active selectors that a holder matches.
    pub(crate) fn matched(&self, slot: Slot) -> &[u32] {
        let signature = self.holders.get(&slot).and_then(|h| h.signature);
        let found = signature.and_then(|number| self.signatures.get(&number));
        found.map_or(&[], |signature| &*signature.matched)
    }

    /// Brings signatures up to date with holders that changed and selectors that began or ended.
    /// Returns the slots of the holders that may match others than before.
    pub(crate) fn settle(
        &mut self,
        state: &State,
        selectors: &Selectors,
        changed: BTreeSet<HolderId>,
        keys: &[KeyChange],
        begun: &BTreeSet<u32>,
        ended: &BTreeMap<u32, Arc<Selector>>,
    ) -> BTreeSet<Slot> {
        let mut moved = BTreeSet::new();
        let before = self.next_signature;
        let mut again = changed;
        self.who_has(state, keys, &mut again);
        for id in again {
            if let Some(slot) = self.sign(state, selectors, &id) {
                moved.insert(slot);
            }
        }
        if begun.is_empty() && ended.is_empty() {
            return moved;
        }
        let mut altered: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for number in begun {
            let Some(selector) = selectors.get(*number) else {
                continue;
            };
            for signature in self.reached(selector, before) {
                let key = self.signatures.get(&signature).map(|s| &s.key);
                if key.is_some_and(|key| selector.matches(key)) {
                    altered.entry(signature).or_default().insert(*number);
                }
            }
        }
        for selector in ended.values() {
            for signature in self.reached(selector, before) {
                let key = self.signatures.get(&signature).map(|s| &s.key);
                if key.is_some_and(|key| selector.matches(key)) {
                    altered.entry(signature).or_default();
                }
            }
        }
        for (number, found) in altered {
            let Some(signature) = self.signatures.get_mut(&number) else {
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
            moved.extend(&signature.members);
        }
        moved
    }

    /// The signatures before `end` that a selector may match.
    fn reached(&self, selector: &Selector, end: u32) -> Vec<u32> {
        let under = |test: &Required| -> Option<Vec<&BTreeSet<u32>>> {
            Some(match test {
                Required::Values(key, values) => {
                    let there = self.by_label.get(key);
                    let of = |value| there.and_then(|there| there.get(value));
                    values.iter().filter_map(of).collect()
                }
                Required::Present(key) => {
                    let there = self.by_label.get(key);
                    there.into_iter().flat_map(BTreeMap::values).collect()
                }
                Required::Nothing => return None,
            })
        };
        let tests = required(selector);
        let least = tests
            .iter()
            .filter_map(under)
            .min_by_key(|found| found.iter().map(|set| set.len()).sum::<usize>());
        match least {
            Some(found) => {
                let all = found.into_iter().flatten().copied();
                all.filter(|number| *number < end).collect()
            }
            None => self.signatures.range(..end).map(|(n, _)| *n).collect(),
        }
    }

    /// The holders that can see a key or value that was not tested before: by namespace where that
    /// is what it is about, else in one pass over all.
    fn who_has(&self, state: &State, changes: &[KeyChange], out: &mut BTreeSet<HolderId>) {
        let mut asked: BTreeMap<(Scope, &str), Option<BTreeSet<&str>>> = BTreeMap::new();
        for change in changes {
            let (key, value) = (&change.key, change.value.as_deref());
            match (key.scope, value) {
                (Scope::Reserved, Some(value)) if &*key.name == reserved::NAMESPACE => {
                    out.extend(in_namespace(state, &value.into()));
                }
                (Scope::Namespace, _) if &*key.name != Namespace::NAME_LABEL => {
                    for namespace in state.namespaces.values() {
                        let found = namespace.labels.get(&key.name);
                        if found.is_some_and(|found| value.is_none_or(|v| **found == *v)) {
                            out.extend(in_namespace(state, &namespace.name));
                        }
                    }
                }
                (scope, value) => {
                    let values = asked
                        .entry((scope, &*key.name))
                        .or_insert_with(|| Some(BTreeSet::new()));
                    match value {
                        Some(value) => values.iter_mut().for_each(|values| {
                            values.insert(value);
                        }),
                        None => *values = None,
                    }
                }
            }
        }
        if asked.is_empty() {
            return;
        }
        for id in self.slots.keys() {
            let mut sees = false;
            id.each_label(state, &mut |scope, name, value| {
                sees |= asked.get(&(scope, name)).is_some_and(|values| {
                    values.as_ref().is_none_or(|values| values.contains(value))
                });
            });
            if sees && !out.contains(id) {
                out.insert(id.clone());
            }
        }
    }

    /// Signs a holder again, or forgets it if it is gone. Returns its slot if what it matches may
    /// have changed.
    fn sign(&mut self, state: &State, selectors: &Selectors, id: &HolderId) -> Option<Slot> {
        let other = self.other.get_or_insert_with(|| OTHER.into()).clone();
        let mut seen: Vec<(LabelKey, Str)> = Vec::new();
        let there = id.each_label(state, &mut |scope, name, value| {
            if let Some((name, used)) = selectors.keys().get(scope, name) {
                let name = name.clone();
                let value = used.sees(value).unwrap_or_else(|| other.clone());
                seen.push((LabelKey { scope, name }, value));
            }
        });
        if !there {
            return self.forget(id);
        }
        let key = SignatureKey(seen);
        let slot = self.slot(id);
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.begin(selectors, key),
        };
        let was = self.holders.get(&slot).and_then(|h| h.signature);
        if was == Some(number) {
            return None;
        }
        let unlike = match was.and_then(|was| self.signatures.get(&was)) {
            Some(old) => self.signatures.get(&number).map(|s| &s.matched) != Some(&old.matched),
            None => true,
        };
        self.leave(slot);
        if let Some(signature) = self.signatures.get_mut(&number) {
            signature.members.insert(slot);
        }
        if let Some(holder) = self.holders.get_mut(&slot) {
            holder.signature = Some(number);
        }
        unlike.then_some(slot)
    }

    fn begin(&mut self, selectors: &Selectors, key: SignatureKey) -> u32 {
        let number = self.next_signature;
        self.next_signature += 1;
        let labels = key.0.iter().map(|(key, value)| (key, value));
        let mut matched: Vec<u32> = selectors
            .files
            .candidates(labels)
            .filter(|number| selectors.get(*number).is_some_and(|s| s.matches(&key)))
            .collect();
        matched.sort_unstable();
        for (label, value) in &key.0 {
            let values = self.by_label.entry(label.clone()).or_default();
            values.entry(value.clone()).or_default().insert(number);
        }
        self.numbers.insert(key.clone(), number);
        let signature = Signature {
            key,
            matched: matched.into(),
            members: BTreeSet::new(),
        };
        self.signatures.insert(number, signature);
        number
    }

    /// Takes a holder out of its signature; the signature goes with its last member.
    fn leave(&mut self, slot: Slot) {
        let was = self.holders.get_mut(&slot).and_then(|h| h.signature.take());
        let Some(number) = was else { return };
        let Some(signature) = self.signatures.get_mut(&number) else {
            return;
        };
        signature.members.remove(&slot);
        if signature.members.is_empty()
            && let Some(gone) = self.signatures.remove(&number)
        {
            self.numbers.remove(&gone.key);
            for (label, value) in &gone.key.0 {
                let Some(values) = self.by_label.get_mut(label) else {
                    continue;
                };
                if let Some(there) = values.get_mut(value) {
                    there.remove(&number);
                    if there.is_empty() {
                        values.remove(value);
                    }
                }
                if values.is_empty() {
                    self.by_label.remove(label);
                }
            }
        }
    }

    /// A holder that is gone keeps its slot until [`Holders::release`].
    fn forget(&mut self, id: &HolderId) -> Option<Slot> {
        let slot = *self.slots.get(id)?;
        self.leave(slot);
        Some(slot)
    }

    /// Gives back the slots of holders that are gone.
    pub(crate) fn release(&mut self, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            let gone = self
                .holders
                .get(&slot)
                .is_some_and(|h| h.signature.is_none());
            if gone && let Some(holder) = self.holders.remove(&slot) {
                self.slots.remove(&holder.id);
            }
        }
    }
}

/// The endpoints and network sets of a namespace.
pub(crate) fn in_namespace(state: &State, namespace: &Str) -> Vec<HolderId> {
    let first = ObjectId {
        namespace: Some(namespace.clone()),
        name: "".into(),
        group: "".into(),
        kind: "".into(),
    };
    let here = |id: &&ObjectId| id.namespace.as_ref() == Some(namespace);
    let endpoints = state.endpoints.range(first.clone()..).map(|(id, _)| id);
    let sets = state.network_sets.range(first..).map(|(id, _)| id);
    endpoints
        .take_while(here)
        .cloned()
        .map(HolderId::Endpoint)
        .chain(sets.take_while(here).cloned().map(HolderId::NetworkSet))
        .collect()
}
