//! What a push changes: the objects of the folder compared with those that were pushed before.

use palisade_model::ObjectId;
use std::collections::BTreeMap;

/// The operations that are certainly within one transaction: etcd allows 128 (`--max-txn-ops`), of which one
/// is the pointer.
const MAX_OPERATIONS: usize = 100;
/// The bytes that are certainly within one request: etcd allows 1.5 MiB (`--max-request-bytes`).
const MAX_BYTES: usize = 1 << 20;

/// An object to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushObject {
    /// Its name.
    pub id: ObjectId,
    /// Its manifest, as JSON.
    pub manifest: String,
}

/// What a push changes: paths of keys, as `GROUP/KIND/NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushPlan {
    /// Objects that were not there.
    pub created: Vec<String>,
    /// Objects with another content.
    pub changed: Vec<String>,
    /// Objects that are not in the folder.
    pub deleted: Vec<String>,
    /// The number of objects that stay as they are.
    pub unchanged: usize,
}

/// The value of each path.
pub(crate) type PathValues = BTreeMap<String, Vec<u8>>;

impl PushPlan {
    /// The changes from what is there to what should be.
    pub(crate) fn new(present: &PathValues, wanted: &PathValues) -> Self {
        let mut plan = PushPlan::default();
        for (path, value) in wanted {
            match present.get(path) {
                None => plan.created.push(path.clone()),
                Some(before) if before != value => plan.changed.push(path.clone()),
                Some(_) => plan.unchanged += 1,
            }
        }
        let deleted = present.keys().filter(|path| !wanted.contains_key(*path));
        plan.deleted = deleted.cloned().collect();
        plan
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.changed.is_empty() && self.deleted.is_empty()
    }

    /// The paths that are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &String> {
        self.created.iter().chain(&self.changed)
    }

    /// Whether one transaction can do it all.
    pub(crate) fn fits_one_transaction(&self, wanted: &PathValues) -> bool {
        let written = self.written().filter_map(|path| wanted.get_key_value(path));
        let sizes = written.map(|(path, value)| path.len() + value.len());
        self.created.len() + self.changed.len() + self.deleted.len() <= MAX_OPERATIONS
            && sizes.sum::<usize>() <= MAX_BYTES
    }
}

/// The values in parts, each for one transaction. A value that is longer than a part is one alone.
pub(crate) fn split(values: &PathValues) -> Vec<Vec<(&String, &Vec<u8>)>> {
    let mut parts: Vec<Vec<_>> = Vec::new();
    let mut bytes = 0;
    for (path, value) in values {
        let size = path.len() + value.len();
        let open = parts.last_mut();
        match open.filter(|part| part.len() < MAX_OPERATIONS && bytes + size <= MAX_BYTES) {
            Some(part) => {
                bytes += size;
                part.push((path, value));
            }
            None => {
                bytes = size;
                parts.push(vec![(path, value)]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> PathValues {
        let pair = |(path, value): &(&str, &str)| ((*path).to_owned(), value.as_bytes().to_vec());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_plan_has_each_path_once() {
        let present = values(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let wanted = values(&[("b", "1"), ("c", "2"), ("d", "1")]);
        let plan = PushPlan::new(&present, &wanted);
        let text = |text: &str| vec![text.to_owned()];
        let expected = PushPlan {
            created: text("d"),
            changed: text("c"),
            deleted: text("a"),
            unchanged: 1,
        };
        assert_eq!(plan, expected);
        assert!(PushPlan::new(&wanted, &wanted).is_empty());
    }

    #[test]
    fn parts_are_bounded_by_number_and_bytes() {
        let many: PathValues = (0..250).map(|n| (format!("{n:03}"), vec![0])).collect();
        let parts = split(&many);
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
        let long: PathValues = (0..3)
            .map(|n| (n.to_string(), vec![0; MAX_BYTES / 2]))
            .collect();
        assert_eq!(split(&long).len(), 3);
        let plan = PushPlan::new(&PathValues::new(), &many);
        assert!(!plan.fits_one_transaction(&many));
        let two: PathValues = many.into_iter().take(2).collect();
        assert!(PushPlan::new(&PathValues::new(), &two).fits_one_transaction(&two));
        assert!(!PushPlan::new(&PathValues::new(), &long).fits_one_transaction(&long));
    }
}
