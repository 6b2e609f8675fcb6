//! Builds a document that may be a list while it is read field by field and item by item.

use crate::describe::{quote, reference};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::location::{Location, Position};
use crate::node::{ManifestMap, ManifestNode, ManifestValue, MapEntry};
use crate::object::{ListContext, list_kind};
use crate::path::FieldPath;
use crate::stream::StreamReader;

/// The field of a list that holds its items.
pub(crate) const ITEMS: &str = "items";

/// The document as far as it was read.
pub(crate) struct ListBuilder {
    location: Location,
    /// Its fields; for streamed items only the key.
    map: ManifestMap,
    /// Whether its items are streamed.
    is_streamed: bool,
    /// Items without their own kind, read before the kind of the list is known.
    untyped_items: Vec<(usize, ManifestNode)>,
    /// The number of items.
    count: usize,
}

impl ListBuilder {
    /// An empty document at this location.
    pub(crate) fn new(location: Location) -> Self {
        ListBuilder {
            location,
            map: ManifestMap::new(),
            is_streamed: false,
            untyped_items: Vec::new(),
            count: 0,
        }
    }

    /// Fails if it already has a field of this name.
    pub(crate) fn check_key(&self, key: &str, at: Position) -> Result<(), DocumentError> {
        let Some(first) = self.map.entry(key) else {
            return Ok(());
        };
        let kind = DocumentErrorKind::DuplicateKey {
            key: quote(key),
            first: first.location.line,
            second: at.line,
        };
        Err(self.with_context(DocumentError::new(at, kind), &FieldPath::root().key(key)))
    }

    /// Adds a field.
    pub(crate) fn add_field(&mut self, key: &str, location: Location, value: ManifestNode) {
        // `check_key` has checked that the name is new.
        let _ = self.map.insert(MapEntry {
            key: key.into(),
            location,
            value,
        });
    }

    /// Starts streaming items; returns the context for their kind.
    pub(crate) fn begin_items(&mut self, location: Location) -> ListContext {
        let value = ManifestNode {
            location: location.clone(),
            value: ManifestValue::Null,
            source_text: None,
        };
        self.add_field(ITEMS, location, value);
        self.is_streamed = true;
        ListContext::items(self.text("apiVersion"), self.text("kind"))
    }

    /// The number of items added.
    pub(crate) fn item_count(&self) -> usize {
        self.count
    }

    /// Adds an item.
    pub(crate) fn add_item(
        &mut self,
        item: ManifestNode,
        origin: &ListContext,
        stream: &mut StreamReader<'_>,
    ) {
        let index = self.count;
        self.count += 1;
        let kind = self.text("kind");
        let has_value = |key: &str| item.get(key).is_some_and(|value| !value.is_null());
        if kind.is_none() && !(has_value("kind") && has_value("apiVersion")) {
            self.untyped_items.push((index, item));
        } else if kind.is_none_or(|kind| kind.ends_with("List")) {
            let origin = origin.item(index);
            stream.flattener.flatten(item, &origin, stream.sink);
        }
    }

    /// Finishes the document.
    pub(crate) fn finish(self, stream: &mut StreamReader<'_>) {
        let list = list_kind(&self.map).filter(|_| self.is_streamed);
        let Some((api_version, kind)) = list else {
            stream.sink.rollback_document();
            let root = ManifestNode {
                location: self.location,
                value: ManifestValue::Map(self.map),
                source_text: None,
            };
            return stream
                .flattener
                .flatten(root, &ListContext::document(), stream.sink);
        };
        let origin = ListContext::items(api_version.as_deref(), Some(&kind));
        for (index, item) in self.untyped_items {
            stream
                .flattener
                .flatten(item, &origin.item(index), stream.sink);
        }
    }

    /// An error inside the value at `path`, relative to the document.
    pub(crate) fn with_context(&self, broken: DocumentError, path: &FieldPath) -> DocumentError {
        let object = || {
            let metadata = self.map.get("metadata");
            let text = |key| {
                metadata
                    .and_then(|map| map.get(key))
                    .and_then(ManifestNode::as_str)
            };
            let kind = self.text("kind")?;
            Some(reference(kind, text("namespace"), text("name")))
        };
        DocumentError {
            path: broken.path.prefixed_with(path),
            object: broken.object.or_else(object),
            ..broken
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key).and_then(ManifestNode::as_str)
    }
}
