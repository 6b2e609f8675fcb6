//! Interned names, and the lists of label keys that are made of them.
//!
//! Each number counts its uses. Nothing here knows what a name is of.

use super::numbers::NONE;
use super::pool::{InternPool, hash};
use alloc::boxed::Box;
use alloc::vec::Vec;
use palisade_model::{Labels, Str};

/// The number of [`NamePools::likely_keys`].
const LIKELY: usize = 256;

/// All names and lists of label keys.
#[derive(Debug, Default)]
pub(super) struct NamePools {
    pub(super) names: InternPool<Str>,
    key_lists: InternPool<Box<[u32]>>,
    /// Lists of keys that the next labels are likely to have, by a part of a hash of their ends.
    likely_keys: Vec<u32>,
}

impl NamePools {
    /// The number of lists of label keys.
    pub(super) fn key_list_count(&self) -> usize {
        self.key_lists.len()
    }

    /// A list of label keys: the sorted numbers of their names.
    pub(super) fn key_list(&self, number: u32) -> &[u32] {
        self.key_lists.get(number).map_or(&[], |keys| keys)
    }

    /// All lists of label keys with their numbers.
    pub(super) fn key_lists(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.key_lists
            .iter()
            .map(|(number, keys)| (number, &**keys))
    }

    /// The number of a name; counts one use more.
    pub(super) fn acquire_name(&mut self, name: &Str) -> u32 {
        self.names.acquire_with::<str>(name, || name.clone())
    }

    /// The number of the key list of these labels; counts one use more. Many owners have the same
    /// keys: the last list of this length with these ends is compared first, which takes less than to
    /// look up every key.
    pub(super) fn acquire_keys(&mut self, labels: &Labels) -> u32 {
        let ends = (labels.keys().next(), labels.keys().last());
        let [hint, ..] = hash(&(labels.len(), ends)).to_le_bytes();
        self.likely_keys.resize(LIKELY, NONE);
        let likely = self.likely_keys[usize::from(hint)];
        let is_likely = self.key_lists.get(likely).is_some_and(|keys| {
            let name = |key: &u32| self.names.get(*key).map(|name| &**name);
            keys.len() == labels.len()
                && (keys.iter().map(name)).eq(labels.keys().map(|key| Some(&**key)))
        });
        if is_likely {
            self.key_lists.retain(likely);
            return likely;
        }
        let keys: Vec<u32> = labels.keys().map(|key| self.acquire_name(key)).collect();
        let before = self.key_lists.len();
        let number = (self.key_lists).acquire_with(keys.as_slice(), || keys.as_slice().into());
        if self.key_lists.len() == before {
            for key in keys {
                self.names.release(key);
            }
        }
        self.likely_keys[usize::from(hint)] = number;
        number
    }

    /// Counts one use of a key list less.
    pub(super) fn release_keys(&mut self, number: u32) {
        if let Some(gone) = self.key_lists.release(number) {
            for key in gone {
                self.names.release(key);
            }
        }
    }
}
