//! Labels and where they sit.
//!
//! Every test a selector makes names a [`LabelKey`]: a scope and a name. So namespace labels,
//! service account labels and the facts Palisade itself knows about an endpoint (its kind, its
//! namespace's name) are all tested the same way, and never collide with what a user writes.

use crate::Str;
use alloc::collections::BTreeMap;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Whose label it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// The object's own labels.
    Own,
    /// The labels of the namespace it lives in. An object without a namespace has none.
    Namespace,
    /// The labels of the service account it runs under.
    ServiceAccount,
    /// Facts that no user can write; the names are the constants in [`crate::reserved`].
    Reserved,
}

/// One label key that a selector can test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelKey {
    /// Whose label.
    pub scope: Scope,
    /// The key as written.
    pub name: Str,
}

impl LabelKey {
    /// A key of the object's own labels.
    pub fn own(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: Scope::Own,
            name: name.into(),
        }
    }

    /// A key of the labels of the object's namespace.
    pub fn namespace(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: Scope::Namespace,
            name: name.into(),
        }
    }

    /// A key of the labels of the object's service account.
    pub fn service_account(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: Scope::ServiceAccount,
            name: name.into(),
        }
    }

    /// A fact that Palisade knows; see [`crate::reserved`].
    pub fn reserved(name: impl Into<Str>) -> Self {
        LabelKey {
            scope: Scope::Reserved,
            name: name.into(),
        }
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            Scope::Own => "",
            Scope::Namespace => "namespace:",
            Scope::ServiceAccount => "serviceaccount:",
            Scope::Reserved => "reserved:",
        })?;
        f.write_str(&self.name)
    }
}

/// A set of labels: keys to values, in key order.
pub type Labels = BTreeMap<Str, Str>;

/// Something whose labels a selector can test.
pub trait LabelLookup {
    /// The value under this key, or `None` where the key is absent.
    fn label(&self, key: &LabelKey) -> Option<&str>;
}
