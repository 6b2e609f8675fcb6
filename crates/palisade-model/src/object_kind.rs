//! The kind of an object: its API group and its name there.

use crate::Str;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};

/// The kind of an object, with its API group.
///
/// It is part of every name, and a cluster has as many names as objects: the kinds of which there are many take one
/// reference. Ordered by group and name.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "WrittenKind", into = "WrittenKind")]
pub struct ObjectKind(Storage);

#[derive(Clone)]
enum Storage {
    Frequent(&'static FrequentKind),
    /// None of [`FREQUENT`].
    Other(Arc<WrittenKind>),
}

/// Group and kind.
type FrequentKind = (&'static str, &'static str);

/// The kinds of which a cluster has many objects.
static FREQUENT: [FrequentKind; 13] = [
    ("", "Pod"),
    ("", "Node"),
    ("", "Namespace"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("palisade.dev", "DomainName"),
];

/// A kind as it is written.
#[derive(Clone, Serialize, Deserialize)]
struct WrittenKind {
    group: Str,
    kind: Str,
}

impl ObjectKind {
    /// The kind of a group, which is empty for the core group.
    pub fn new(group: &str, name: &str) -> Self {
        let frequent = FREQUENT.iter().find(|frequent| **frequent == (group, name));
        ObjectKind(match frequent {
            Some(kind) => Storage::Frequent(kind),
            None => Storage::Other(Arc::new(WrittenKind {
                group: group.into(),
                kind: name.into(),
            })),
        })
    }

    /// The API group without version; empty for the core group.
    pub fn group(&self) -> &str {
        self.parts().0
    }

    /// The name of the kind.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        match &self.0 {
            Storage::Frequent((group, name)) => (group, name),
            Storage::Other(written) => (&written.group, &written.kind),
        }
    }
}

/// No group and no name.
impl Default for ObjectKind {
    fn default() -> Self {
        ObjectKind::new("", "")
    }
}

impl From<WrittenKind> for ObjectKind {
    fn from(written: WrittenKind) -> Self {
        ObjectKind::new(&written.group, &written.kind)
    }
}

impl From<ObjectKind> for WrittenKind {
    fn from(kind: ObjectKind) -> Self {
        WrittenKind {
            group: kind.group().into(),
            kind: kind.name().into(),
        }
    }
}

impl PartialEq for ObjectKind {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ObjectKind {}

impl PartialOrd for ObjectKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl Hash for ObjectKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Debug for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, name) = self.parts();
        write!(f, "{name}.{group}")
    }
}

/// The name alone, as messages have it.
impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn kinds_are_ordered_by_group_and_name_however_they_are_stored() {
        let mut kinds = Vec::from([
            ObjectKind::new("networking.k8s.io", "NetworkPolicy"),
            ObjectKind::new("crd.projectcalico.org", "NetworkPolicy"),
            ObjectKind::new("", "Pod"),
            ObjectKind::new("", "Interface"),
        ]);
        kinds.sort();
        let names: Vec<_> = kinds
            .iter()
            .map(|kind| (kind.group(), kind.name()))
            .collect();
        assert_eq!(
            names,
            [
                ("", "Interface"),
                ("", "Pod"),
                ("crd.projectcalico.org", "NetworkPolicy"),
                ("networking.k8s.io", "NetworkPolicy"),
            ]
        );
    }
}
