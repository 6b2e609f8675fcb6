//! The name of an object, as it is written.

use crate::{ObjectKind, Str};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Identifies an object as written. Objects of different API group or kind are different objects.
///
/// Ordered by namespace, name, group, kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The namespace; `None` for cluster-wide kinds.
    pub namespace: Option<Str>,
    /// The name.
    pub name: Str,
    /// The API group and the kind.
    #[serde(flatten)]
    pub kind: ObjectKind,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{}", self.kind, namespace, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}
