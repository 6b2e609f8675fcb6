//! The fields of an object to keep while parsing.
//!
//! Most of a cluster dump does not concern policy. Fields that are left out are validated like the others and
//! then dropped. The caller decides which fields those are.

/// The parts of a value to keep. For a list it applies to each item.
#[derive(Clone, Copy, Debug)]
pub enum FieldFilter {
    /// All of it.
    All,
    /// Nothing: the field is left out.
    Nothing,
    /// These fields of an object; the others are left out.
    Only(&'static [(&'static str, FieldFilter)]),
    /// The same, and an object without any of these fields is left out itself.
    AnyOf(&'static [(&'static str, FieldFilter)]),
    /// Every field of an object, with filters for the listed ones.
    AllBut(&'static [(&'static str, FieldFilter)]),
}

/// The filter of an object by its kind; the argument is `None` while the kind is not known yet.
pub type FieldFilterOfKind = fn(Option<&str>) -> &'static FieldFilter;

impl FieldFilter {
    /// The filter of the field `key`.
    #[must_use]
    pub fn field(&self, key: &str) -> &FieldFilter {
        let listed = |list: &'static [(&'static str, FieldFilter)]| {
            let entry = list.iter().find(|(name, _)| *name == key);
            entry.map(|(_, fields)| fields)
        };
        match self {
            FieldFilter::All => &FieldFilter::All,
            FieldFilter::Nothing => &FieldFilter::Nothing,
            FieldFilter::Only(list) | FieldFilter::AnyOf(list) => {
                listed(list).unwrap_or(&FieldFilter::Nothing)
            }
            FieldFilter::AllBut(list) => listed(list).unwrap_or(&FieldFilter::All),
        }
    }
}
