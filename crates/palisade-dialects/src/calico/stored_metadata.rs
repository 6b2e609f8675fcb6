//! Metadata as Calico's own clients store it: they write labels and annotations of a resource of
//! `crd.projectcalico.org` as JSON into an annotation of it, and leave its own labels empty.
//!
//! Promises: an object is read with the labels and annotations that its author gave it; an annotation that cannot
//! be read is an error of the object. Never: changes an object of another API group.
//!
//! Source: Calico, `libcalico-go/lib/backend/k8s/resources`, `ConvertK8sResourceToCalicoResource`.

use super::CRD_GROUP;
use palisade_manifest::{
    Field, Limits, Location, ManifestMap, ManifestNode, ManifestValue, MapEntry, Problem,
    RawObject, parse_json,
};
use std::borrow::Cow;

/// The annotation with the metadata.
const ANNOTATION: &str = "projectcalico.org/metadata";

/// The maps of `metadata` that are stored.
const STORED: [&str; 2] = ["labels", "annotations"];

/// The object with the labels and annotations that are stored in its annotation, which it then has no more: they
/// replace those of the same names. The object itself if nothing is stored, or if it cannot be read.
pub(crate) fn restore_metadata(object: &RawObject) -> Cow<'_, RawObject> {
    let Some(annotation) = annotation_of(object) else {
        return Cow::Borrowed(object);
    };
    let Ok(stored) = parse_stored(annotation.node) else {
        return Cow::Borrowed(object);
    };
    let metadata = object.root.get("metadata").and_then(ManifestNode::as_map);
    let mut restored = ManifestMap::new();
    for entry in metadata.into_iter().flatten() {
        if !STORED.contains(&&*entry.key) {
            // Keys of a map are unique.
            let _ = restored.insert(entry.clone());
        }
    }
    for (key, stored) in STORED.into_iter().zip(stored) {
        let written = metadata.and_then(|metadata| metadata.entry(key));
        if let Some(merged) = merge(key, written, stored, annotation.location()) {
            let _ = restored.insert(merged);
        }
    }
    let mut root = ManifestMap::new();
    for entry in object.root.as_map().into_iter().flatten() {
        let mut entry = entry.clone();
        if &*entry.key == "metadata" {
            entry.value.value = ManifestValue::Map(std::mem::take(&mut restored));
        }
        let _ = root.insert(entry);
    }
    Cow::Owned(RawObject {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        root: ManifestNode {
            location: object.root.location.clone(),
            value: ManifestValue::Map(root),
            source_text: None,
        },
        location: object.location.clone(),
    })
}

/// Why the stored metadata of an object cannot be read, if it cannot.
pub(super) fn stored_metadata_error(object: &RawObject, name: &str) -> Option<Problem> {
    let annotation = annotation_of(object)?;
    let reason = parse_stored(annotation.node).err()?;
    Some(annotation.problem(Some(name.to_owned()), reason))
}

fn annotation_of(object: &RawObject) -> Option<Field<'_>> {
    if object.group() != CRD_GROUP {
        return None;
    }
    let metadata = object.field().get("metadata").ok()??;
    let annotations = metadata.get("annotations").ok()??;
    annotations.get(ANNOTATION).ok()?
}

/// The stored labels and annotations.
fn parse_stored(annotation: &ManifestNode) -> Result<[ManifestMap; 2], String> {
    let text = annotation.as_str().ok_or("it is not text")?;
    let metadata = parse_json(ANNOTATION, text, &Limits::default()).ok();
    let metadata = metadata.filter(|metadata| metadata.as_map().is_some());
    let metadata = metadata.ok_or("it is not the JSON of an object's metadata")?;
    let map = |key: &str| match metadata.get(key) {
        None => Ok(ManifestMap::new()),
        Some(node) if node.is_null() => Ok(ManifestMap::new()),
        Some(node) => match node.as_map() {
            Some(map) if map.iter().all(|entry| entry.value.as_str().is_some()) => Ok(map.clone()),
            _ => Err(format!("its {key} are not a map of texts")),
        },
    };
    Ok([map(STORED[0])?, map(STORED[1])?])
}

/// A map of `metadata`: what is stored, and of what is written besides everything that has another name and is not
/// the annotation. `None` if nothing is left.
fn merge(
    key: &str,
    written: Option<&MapEntry>,
    stored: ManifestMap,
    location: &Location,
) -> Option<MapEntry> {
    let mut merged = ManifestMap::new();
    for mut entry in stored {
        // Messages name the place of the annotation.
        entry.location = location.clone();
        entry.value.location = location.clone();
        let _ = merged.insert(entry);
    }
    let node = written.map(|entry| &entry.value);
    let others = node.and_then(ManifestNode::as_map).into_iter().flatten();
    for entry in others.filter(|entry| &*entry.key != ANNOTATION) {
        let _ = merged.insert(entry.clone());
    }
    let map = |location: Location| ManifestNode {
        location,
        value: ManifestValue::Map(merged.clone()),
        source_text: None,
    };
    match written {
        // Not a map: that is reported as it is written.
        Some(entry) if entry.value.as_map().is_none() && !entry.value.is_null() => {
            Some(entry.clone())
        }
        _ if merged.is_empty() => None,
        Some(entry) => Some(MapEntry {
            value: map(entry.value.location.clone()),
            ..entry.clone()
        }),
        None => Some(MapEntry {
            key: key.into(),
            location: location.clone(),
            value: map(location.clone()),
        }),
    }
}
