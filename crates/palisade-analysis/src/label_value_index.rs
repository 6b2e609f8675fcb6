//! An index of selectors by required label values, to find those that may match an object.
//!
//! A selector that requires one of some values of a key is indexed under those values; all others are
//! always candidates. Whether a candidate matches is decided by the oracle, never here.

use palisade_model::{LabelKey, LabelLookup, LabelScope, LabelValues, Selector, reserved};
use std::collections::BTreeMap;

/// Selectors by required value.
#[derive(Default)]
pub(crate) struct LabelValueIndex<'a> {
    keys: BTreeMap<&'a LabelKey, BTreeMap<&'a str, Vec<u32>>>,
    rest: Vec<u32>,
}

impl<'a> LabelValueIndex<'a> {
    /// Adds the selector with number `id`.
    pub(crate) fn add(&mut self, id: u32, selector: &'a Selector) {
        let Some((key, values)) = required_values(selector) else {
            self.rest.push(id);
            return;
        };
        let by_value = self.keys.entry(key).or_default();
        for value in values.iter() {
            by_value.entry(value).or_default().push(id);
        }
    }

    /// The selectors that may match an object with these labels, possibly with repeats.
    pub(crate) fn candidates(&self, labels: &impl LabelLookup, found: &mut Vec<u32>) {
        for (key, by_value) in &self.keys {
            let value = labels.label(key);
            found.extend(
                value
                    .and_then(|value| by_value.get(value))
                    .into_iter()
                    .flatten(),
            );
        }
        found.extend(&self.rest);
    }
}

/// A key and its values that a selector requires; if there are several keys, the most selective.
fn required_values(selector: &Selector) -> Option<(&LabelKey, &LabelValues)> {
    match selector {
        Selector::In(key, values) => Some((key, values)),
        Selector::And(parts) => {
            let required = parts.iter().filter_map(required_values);
            required.min_by_key(|(key, _)| match (key.scope, &*key.name) {
                (LabelScope::Reserved, reserved::KIND) => 4,
                (LabelScope::Reserved, reserved::NAMESPACE) => 0,
                (LabelScope::Namespace, _) => 1,
                (LabelScope::Own, _) => 2,
                _ => 3,
            })
        }
        _ => None,
    }
}
