//! Labels and label keys.
//!
//! Every test of a selector names a [`LabelKey`]: a scope and a name. Namespace labels, service
//! account labels and reserved labels (an endpoint's kind, its namespace's name) are thus tested in
//! the same way as its own labels, and never collide with a label that a user sets.

use crate::Str;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The object that a label belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LabelScope {
    /// The object's own labels.
    Own,
    /// The labels of the namespace it lives in. An object without a namespace has none.
    Namespace,
    /// The labels of the service account it runs under.
    ServiceAccount,
    /// Labels that Palisade derives and no user can set; the names are the constants in
    /// [`crate::reserved`].
    Reserved,
    /// The labels of the node whose interface a host endpoint is. Only the subject of a policy tests them.
    Node,
}

/// One label key that a selector can test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelKey {
    /// The object that the label belongs to.
    pub scope: LabelScope,
    /// The label key as written.
    pub name: Str,
}

impl LabelKey {
    /// A key of the object's own labels.
    pub fn own(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: LabelScope::Own,
            name: name.into(),
        }
    }

    /// A key of the labels of the object's namespace.
    pub fn namespace(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: LabelScope::Namespace,
            name: name.into(),
        }
    }

    /// A key of the labels of the object's service account.
    pub fn service_account(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: LabelScope::ServiceAccount,
            name: name.into(),
        }
    }

    /// A key of the labels of a host endpoint's node.
    pub fn node(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: LabelScope::Node,
            name: name.into(),
        }
    }

    /// A reserved key; see [`crate::reserved`].
    pub fn reserved(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: LabelScope::Reserved,
            name: name.into(),
        }
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            LabelScope::Own => "",
            LabelScope::Namespace => "namespace:",
            LabelScope::ServiceAccount => "serviceaccount:",
            LabelScope::Node => "node:",
            LabelScope::Reserved => "reserved:",
        })?;
        f.write_str(&self.name)
    }
}

/// A set of labels: keys to values, in key order.
///
/// Stored in one allocation: a cluster has many objects with few labels each.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// Sorted by key, each key once.
    pairs: Vec<(Str, Str)>,
}

impl Labels {
    /// No labels.
    pub fn new() -> Self {
        Labels::default()
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether it has no label.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Str> {
        let index = self.find_key(key).ok()?;
        self.pairs.get(index).map(|(_, value)| value)
    }

    /// Sets the value of a key and returns the previous value.
    pub fn insert(&mut self, key: Str, value: Str) -> Option<Str> {
        match self.find_key(&key) {
            Ok(at) => Some(core::mem::replace(&mut self.pairs[at].1, value)),
            Err(at) => {
                self.pairs.insert(at, (key, value));
                None
            }
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Str> {
        self.pairs.iter().map(|(key, _)| key)
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Str> {
        self.pairs.iter().map(|(_, value)| value)
    }

    /// Keys and values, in the order of keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Str)> {
        self.pairs.iter().map(|(key, value)| (key, value))
    }

    fn find_key(&self, key: &str) -> Result<usize, usize> {
        self.pairs.binary_search_by(|(other, _)| (**other).cmp(key))
    }

    /// Labels from pairs in any order; of several pairs with the same key the last is kept.
    fn from_pairs(mut pairs: Vec<(Str, Str)>) -> Self {
        let is_ascending = |pair: &[(Str, Str)]| *pair[0].0 < *pair[1].0;
        if !pairs.windows(2).all(is_ascending) {
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            pairs.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    core::mem::swap(&mut later.1, &mut earlier.1);
                }
                same
            });
        }
        Labels { pairs }
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl FromIterator<(Str, Str)> for Labels {
    fn from_iter<T: IntoIterator<Item = (Str, Str)>>(pairs: T) -> Self {
        Labels::from_pairs(pairs.into_iter().collect())
    }
}

impl Extend<(Str, Str)> for Labels {
    fn extend<T: IntoIterator<Item = (Str, Str)>>(&mut self, pairs: T) {
        let mut all = core::mem::take(&mut self.pairs);
        all.extend(pairs);
        *self = Labels::from_pairs(all);
    }
}

impl<const N: usize> From<[(Str, Str); N]> for Labels {
    fn from(pairs: [(Str, Str); N]) -> Self {
        Labels::from_pairs(pairs.into())
    }
}

impl From<BTreeMap<Str, Str>> for Labels {
    fn from(pairs: BTreeMap<Str, Str>) -> Self {
        pairs.into_iter().collect()
    }
}

impl IntoIterator for Labels {
    type Item = (Str, Str);
    type IntoIter = alloc::vec::IntoIter<(Str, Str)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = &'a (Str, Str);
    type IntoIter = core::slice::Iter<'a, (Str, Str)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.iter()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<Str, Str>::deserialize(deserializer).map(Labels::from)
    }
}

/// An object whose labels a selector can test.
pub trait LabelLookup {
    /// The value of this key, or `None` where the key is absent.
    fn label(&self, key: &LabelKey) -> Option<&str>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (Str, Str) {
        (key.into(), value.into())
    }

    #[test]
    fn labels_are_sorted_and_of_equal_keys_the_last_counts() {
        let given = [
            pair("b", "1"),
            pair("a", "2"),
            pair("b", "3"),
            pair("b", "4"),
        ];
        let labels = Labels::from(given.clone());
        let plain: BTreeMap<Str, Str> = given.clone().into();
        assert_eq!(labels, Labels::from(plain));
        assert_eq!(
            labels.clone().into_iter().collect::<Vec<_>>(),
            [pair("a", "2"), pair("b", "4")]
        );
        let mut one_by_one = Labels::new();
        for (key, value) in given {
            one_by_one.insert(key, value);
        }
        assert_eq!(one_by_one, labels);
        one_by_one.extend([pair("0", "5"), pair("a", "6")]);
        assert_eq!(one_by_one.get("a").map(|value| &**value), Some("6"));
        assert_eq!((one_by_one.len(), one_by_one.get("c")), (3, None));
        assert_eq!(one_by_one.insert("a".into(), "7".into()), Some("6".into()));
    }
}
