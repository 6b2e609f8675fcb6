//! Which fields of an object a reader needs.
//!
//! A dump of a cluster is mostly what no policy looks at. What is left out is checked like anything
//! else, and then not kept. Which fields those are is the caller's knowledge, not this crate's.

/// What is kept of a value. In a list it is said of each item.
#[derive(Clone, Copy, Debug)]
pub enum FieldFilter {
    /// All of it.
    All,
    /// Nothing: the field is left out.
    Nothing,
    /// These fields of an object; the others are left out.
    Only(&'static [(&'static str, FieldFilter)]),
    /// Every field of an object; of these not the whole.
    AllBut(&'static [(&'static str, FieldFilter)]),
}

/// What is kept of an object, by its kind; without one where the kind is not known yet.
pub type FieldFilterOfKind = fn(Option<&str>) -> &'static FieldFilter;

impl FieldFilter {
    /// What is kept of the field `key`.
    #[must_use]
    pub fn field(&self, key: &str) -> &FieldFilter {
        let listed = |list: &'static [(&'static str, FieldFilter)]| {
            let entry = list.iter().find(|(name, _)| *name == key);
            entry.map(|(_, fields)| fields)
        };
        match self {
            FieldFilter::All => &FieldFilter::All,
            FieldFilter::Nothing => &FieldFilter::Nothing,
            FieldFilter::Only(list) => listed(list).unwrap_or(&FieldFilter::Nothing),
            FieldFilter::AllBut(list) => listed(list).unwrap_or(&FieldFilter::All),
        }
    }
}
