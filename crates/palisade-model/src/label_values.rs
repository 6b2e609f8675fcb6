//! The values of a selector's `In` test: sorted and distinct.
//!
//! Nearly every test names one value, and there are many tests, so a set is one allocation. This
//! module does not interpret the values.

use crate::Str;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize};

/// A sorted set of label values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LabelValues(Vec<Str>);

impl LabelValues {
    /// One value.
    pub fn single(value: Str) -> Self {
        LabelValues(alloc::vec![value])
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains a value.
    pub fn contains(&self, value: &str) -> bool {
        match self.0.as_slice() {
            [one] => **one == *value,
            all => all.binary_search_by(|other| (**other).cmp(value)).is_ok(),
        }
    }

    /// The least value.
    pub fn first(&self) -> Option<&Str> {
        self.0.first()
    }

    /// The values, in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Str> {
        self.0.iter()
    }
}

impl FromIterator<Str> for LabelValues {
    fn from_iter<T: IntoIterator<Item = Str>>(values: T) -> Self {
        let mut values: Vec<Str> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        LabelValues(values)
    }
}

impl<'a> IntoIterator for &'a LabelValues {
    type Item = &'a Str;
    type IntoIter = core::slice::Iter<'a, Str>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'de> Deserialize<'de> for LabelValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeSet::<Str>::deserialize(deserializer)?;
        Ok(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_a_set() {
        let values: LabelValues = ["b", "a", "b"].map(Str::from).into_iter().collect();
        assert_eq!(values.iter().map(|v| &**v).collect::<Vec<_>>(), ["a", "b"]);
        assert!(values.contains("b") && !values.contains("c") && !values.contains(""));
        assert_eq!((values.len(), values.first()), (2, Some(&"a".into())));
        let one = LabelValues::single("a".into());
        assert!(one.contains("a") && !one.contains("b") && !one.is_empty());
        assert!(LabelValues::default().is_empty() && !LabelValues::default().contains("a"));
    }
}
