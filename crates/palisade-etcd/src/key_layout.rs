//! The keys: where objects are below the prefix.
//!
//! ```text
//!   PREFIX/objects/GROUP/KIND/NAMESPACE/NAME         written by anything, with or without a lease
//!   PREFIX/bundles/BUNDLE/GROUP/KIND/NAMESPACE/NAME  written by push
//!   PREFIX/bundle                                    which bundle counts
//! ```

use crate::error::EtcdError;
use palisade_dialects::object_kind;
use palisade_model::ObjectId;
use serde::{Deserialize, Serialize};

/// The form of a key below `objects/`, for messages.
pub const KEY_FORM: &str = "GROUP/KIND/NAMESPACE/NAME";
/// The group of core kinds in keys.
const CORE: &str = "core";
/// The namespace of cluster-wide kinds in keys.
const CLUSTER_WIDE: &str = "-";
/// The schema of the pointer that this build reads and writes.
const SCHEMA: u32 = 1;

/// Who writes the objects of a part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyArea {
    /// Anything.
    Direct,
    /// Push.
    Pushed,
}

impl KeyArea {
    /// Its name, in messages and in the snapshot.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyArea::Direct => "objects",
            KeyArea::Pushed => "pushed",
        }
    }
}

/// The keys below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct KeyLayout {
    prefix: String,
}

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRole<'k> {
    /// The pointer.
    Pointer,
    /// An object, by its path.
    Direct(&'k str),
    /// An object of a bundle, by its path.
    Bundle(&'k str, &'k str),
    /// None of ours.
    Other,
}

/// The value of the pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundlePointer {
    schema: u32,
    /// The bundle that counts.
    pub(crate) bundle: String,
    /// The number of pushes so far.
    pub(crate) pushes: u64,
    /// The number of objects.
    pub(crate) objects: usize,
}

impl KeyLayout {
    pub(crate) fn new(prefix: &str) -> Self {
        KeyLayout {
            prefix: prefix.to_owned(),
        }
    }

    /// What all keys begin with.
    pub(crate) fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// What the keys that anything may write begin with.
    pub(crate) fn direct(&self) -> String {
        format!("{}/objects/", self.prefix)
    }

    /// What the keys of all bundles begin with.
    pub(crate) fn bundles(&self) -> String {
        format!("{}/bundles/", self.prefix)
    }

    /// What the keys of a bundle begin with.
    pub(crate) fn bundle(&self, bundle: &str) -> String {
        format!("{}/bundles/{bundle}/", self.prefix)
    }

    /// The key that says which bundle counts.
    pub(crate) fn pointer(&self) -> String {
        format!("{}/bundle", self.prefix)
    }

    /// What a key is.
    pub(crate) fn role<'k>(&self, key: &'k str) -> KeyRole<'k> {
        let below = key.strip_prefix(&*self.prefix);
        let Some(below) = below.and_then(|below| below.strip_prefix('/')) else {
            return KeyRole::Other;
        };
        match below.split_once('/') {
            None if below == "bundle" => KeyRole::Pointer,
            Some(("objects", path)) => KeyRole::Direct(path),
            Some(("bundles", rest)) => match rest.split_once('/') {
                Some((bundle, path)) => KeyRole::Bundle(bundle, path),
                None => KeyRole::Other,
            },
            _ => KeyRole::Other,
        }
    }

    /// Reads the value of the pointer.
    pub(crate) fn parse_pointer(&self, value: &[u8]) -> Result<BundlePointer, EtcdError> {
        let failed = |reason: String| EtcdError::Pointer {
            key: self.pointer(),
            reason,
        };
        let pointer: BundlePointer =
            serde_json::from_slice(value).map_err(|error| failed(error.to_string()))?;
        let is_name = |name: &str| !name.is_empty() && !name.contains('/');
        match (pointer.schema == SCHEMA, is_name(&pointer.bundle)) {
            (true, true) => Ok(pointer),
            (false, _) => Err(failed(format!(
                "it has schema {}, and this version reads schema {SCHEMA}",
                pointer.schema
            ))),
            (true, false) => Err(failed("it names no bundle".to_owned())),
        }
    }
}

impl BundlePointer {
    pub(crate) fn new(bundle: &str, pushes: u64, objects: usize) -> Self {
        BundlePointer {
            schema: SCHEMA,
            bundle: bundle.to_owned(),
            pushes,
            objects,
        }
    }
}

/// The path of an object's key.
pub(crate) fn path_of(id: &ObjectId) -> String {
    let group = match id.kind.group() {
        "" => CORE,
        group => group,
    };
    let namespace = id.namespace.as_deref().unwrap_or(CLUSTER_WIDE);
    format!("{group}/{}/{namespace}/{}", id.kind, id.name)
}

/// The object of which a path is the key; `None` if it is not of the form [`KEY_FORM`].
pub(crate) fn id_of(path: &str) -> Option<ObjectId> {
    let mut parts = path.split('/');
    let mut part = || parts.next().filter(|part| !part.is_empty());
    let (group, kind, namespace, name) = (part()?, part()?, part()?, part()?);
    let is_printable = path.chars().all(|c| c.is_ascii_graphic());
    if parts.next().is_some() || !is_printable || path.len() > MAX_PATH {
        return None;
    }
    Some(ObjectId {
        namespace: Some(namespace)
            .filter(|namespace| *namespace != CLUSTER_WIDE)
            .map(Into::into),
        name: name.into(),
        kind: object_kind(if group == CORE { "" } else { group }, kind),
    })
}

/// The longest path: names have at most 253 characters.
const MAX_PATH: usize = 4 * 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_object() {
        for path in [
            "networking.k8s.io/NetworkPolicy/shop/web",
            "core/Pod/shop/web-1",
            "core/Namespace/-/shop",
        ] {
            assert_eq!(path_of(&id_of(path).unwrap()), path);
        }
        let id = id_of("core/Namespace/-/shop").unwrap();
        assert_eq!((id.kind.group(), id.namespace), ("", None));
        for wrong in [
            "",
            "core/Pod/web",
            "core/Pod/shop/web/x",
            "core/Pod//web",
            "core/Pod/s p/web",
        ] {
            assert_eq!(id_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keys_of_other_prefixes_are_none_of_ours() {
        let layout = KeyLayout::new("/p");
        let role = |key: &'static str| layout.role(key);
        assert_eq!(role("/p/bundle"), KeyRole::Pointer);
        assert_eq!(role("/p/objects/a/b"), KeyRole::Direct("a/b"));
        assert_eq!(role("/p/bundles/7/a/b"), KeyRole::Bundle("7", "a/b"));
        for other in ["/p", "/pq/bundle", "/p/x", "/p/bundles/7", "/p/objects"] {
            assert_eq!(role(other), KeyRole::Other, "{other}");
        }
    }

    #[test]
    fn a_pointer_that_push_did_not_write_is_refused() {
        let layout = KeyLayout::new("/p");
        let text = serde_json::to_vec(&BundlePointer::new("a1", 2, 3)).unwrap();
        assert_eq!(layout.parse_pointer(&text).unwrap().bundle, "a1");
        for wrong in [
            "",
            "{}",
            r#"{"schema":2,"bundle":"a","pushes":1,"objects":1}"#,
            r#"{"schema":1,"bundle":"a/b","pushes":1,"objects":1}"#,
        ] {
            let error = layout.parse_pointer(wrong.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("/p/bundle"), "{error}");
        }
    }
}
