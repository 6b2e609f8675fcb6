//! Values with their locations.

use crate::describe::{quote, shorten};
use crate::location::Location;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestNode {
    /// The beginning of the value. A value copied for an alias keeps the location of its anchor.
    pub location: Location,
    /// The value.
    pub value: ManifestValue,
    /// The text in the file, for a scalar that is not a string (the number 64 may be written `0x40`, the
    /// boolean `true` may be written `on`).
    pub source_text: Option<Arc<str>>,
}

/// A value with the types of JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum ManifestValue {
    /// `null` or an omitted value.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer. Includes integers written as a decimal fraction (`80.0`, `1e3`), because they reach a
    /// Kubernetes object as integers.
    Int(i64),
    /// Any other number; never infinite, never NaN.
    Float(f64),
    /// A string.
    String(Arc<str>),
    /// A list.
    List(Vec<ManifestNode>),
    /// An object.
    Map(ManifestMap),
}

impl ManifestNode {
    /// The field `key`, if this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&ManifestNode> {
        self.as_map()?.get(key)
    }

    /// The item `index`, if this is a list that is long enough.
    #[must_use]
    pub fn index(&self, index: usize) -> Option<&ManifestNode> {
        self.as_list()?.get(index)
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            ManifestValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            ManifestValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The integer, if it is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.value {
            ManifestValue::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[ManifestNode]> {
        match &self.value {
            ManifestValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// The object, if it is one.
    #[must_use]
    pub fn as_map(&self) -> Option<&ManifestMap> {
        match &self.value {
            ManifestValue::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.value, ManifestValue::Null)
    }
}

/// The fields of an object in the order of the file, with unique keys.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::box_collection,
    reason = "every value is as large as a map, and few maps have an index"
)]
pub struct ManifestMap {
    entries: Vec<MapEntry>,
    /// Built once scanning `entries` would be slower than a lookup.
    index: Option<Box<BTreeMap<Arc<str>, usize>>>,
}

/// One field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The key as text; a number or boolean is converted as in JSON.
    pub key: Arc<str>,
    /// Where the key begins.
    pub location: Location,
    /// The value.
    pub value: ManifestNode,
}

impl PartialEq for ManifestMap {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

/// The number of fields from which a map keeps an index.
const INDEX_THRESHOLD: usize = 24;

impl ManifestMap {
    /// An object without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of the field `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&ManifestNode> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The field `key` with the location of its key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&MapEntry> {
        match &self.index {
            Some(index) => index.get(key).and_then(|at| self.entries.get(*at)),
            None => self.entries.iter().find(|entry| &*entry.key == key),
        }
    }

    /// The fields in the order of the file; merged fields come last.
    pub fn iter(&self) -> std::slice::Iter<'_, MapEntry> {
        self.entries.iter()
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a field at the end.
    ///
    /// # Errors
    /// Returns the entry if its key exists already; the map is then unchanged.
    pub fn insert(&mut self, entry: MapEntry) -> Result<(), Box<MapEntry>> {
        if self.entry(&entry.key).is_some() {
            return Err(Box::new(entry));
        }
        if let Some(index) = &mut self.index {
            index.insert(Arc::clone(&entry.key), self.entries.len());
        }
        self.entries.push(entry);
        if self.index.is_none() && self.entries.len() >= INDEX_THRESHOLD {
            let keys = self.entries.iter().enumerate();
            let index = keys.map(|(at, e)| (Arc::clone(&e.key), at)).collect();
            self.index = Some(Box::new(index));
        }
        Ok(())
    }

    /// Removes the value of `key`; the other fields keep their order.
    pub(crate) fn take(&mut self, key: &str) -> Option<ManifestNode> {
        let at = self.entries.iter().position(|entry| &*entry.key == key)?;
        self.index = None;
        Some(self.entries.remove(at).value)
    }
}

impl IntoIterator for ManifestMap {
    type Item = MapEntry;
    type IntoIter = std::vec::IntoIter<MapEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a> IntoIterator for &'a ManifestMap {
    type Item = &'a MapEntry;
    type IntoIter = std::slice::Iter<'a, MapEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The value in words, followed by its text in the file if that differs.
pub(crate) fn describe(node: &ManifestNode) -> String {
    let description = match &node.value {
        ManifestValue::Null => "null".to_owned(),
        ManifestValue::Bool(value) => format!("the boolean {value}"),
        ManifestValue::Int(value) => format!("the number {value}"),
        ManifestValue::Float(value) => format!("the number {value}"),
        ManifestValue::String(text) => format!("the text {}", quote(text)),
        ManifestValue::List(items) if items.is_empty() => "an empty list".to_owned(),
        ManifestValue::List(_) => "a list".to_owned(),
        ManifestValue::Map(map) if map.is_empty() => "an empty object".to_owned(),
        ManifestValue::Map(_) => "an object".to_owned(),
    };
    match &node.source_text {
        Some(source) if !source.is_empty() && !description.ends_with(&format!(" {source}")) => {
            format!("{description} (written `{}`)", shorten(source))
        }
        _ => description,
    }
}
