//! Builds the value of a document from scanner events.
//!
//! The YAML and JSON scanners use the same builder, so limits, duplicate key checks and paths in messages are
//! the same for both. It keeps its own stack: nesting uses bounded heap memory, never the thread's stack.

use crate::describe::{quote, reference};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::limits::Limits;
use crate::location::{Location, Position};
use crate::node::describe;
use crate::node::{ManifestMap, ManifestNode, ManifestValue, MapEntry};
use crate::path::FieldPath;
use crate::scalar::{Scalar, float_as_int, key_text};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The remaining limits of a file.
#[derive(Clone, Debug)]
pub(crate) struct RemainingLimits {
    nodes: usize,
    alias_nodes: usize,
    alias_bytes: usize,
}

impl RemainingLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            nodes: limits.nodes,
            alias_nodes: limits.alias_nodes,
            alias_bytes: limits.alias_bytes,
        }
    }
}

impl RemainingLimits {
    fn charge_alias(&mut self, size: NodeSize, limits: &Limits) -> Result<(), DocumentErrorKind> {
        let nodes = self.alias_nodes.checked_sub(size.nodes);
        self.alias_nodes = nodes.ok_or(DocumentErrorKind::TooManyAliasNodes(limits.alias_nodes))?;
        let bytes = self.alias_bytes.checked_sub(size.bytes);
        self.alias_bytes = bytes.ok_or(DocumentErrorKind::TooManyAliasBytes(limits.alias_bytes))?;
        Ok(())
    }
}

/// A scalar from a scanner.
pub(crate) struct ScannedScalar {
    pub(crate) scalar: Scalar,
    /// The text in the file; kept only if the scalar is not a string.
    pub(crate) source_text: Option<Arc<str>>,
    /// Whether it is a merge key when used as a key.
    pub(crate) is_merge_key: bool,
}

/// Builds one document.
pub(crate) struct DocumentBuilder<'a> {
    file: &'a Arc<str>,
    limits: &'a Limits,
    remaining: &'a mut RemainingLimits,
    open_collections: Vec<OpenCollection>,
    anchors: BTreeMap<usize, AnchorState>,
    root: Option<ManifestNode>,
}

/// A list or object that is not complete yet.
struct OpenCollection {
    location: Location,
    anchor: usize,
    size: NodeSize,
    content: PartialCollection,
}

enum PartialCollection {
    List(Vec<ManifestNode>),
    Map {
        map: ManifestMap,
        key: PendingKey,
        /// The line of `<<`, and the objects it merges.
        merge: Option<(u32, Vec<ManifestMap>)>,
    },
}

enum PendingKey {
    None,
    Key(Arc<str>, Location),
    Merge,
}

/// The size of a value: its nodes including keys, its nesting depth, and the bytes of its strings.
#[derive(Clone, Copy)]
struct NodeSize {
    nodes: usize,
    height: usize,
    bytes: usize,
}

impl NodeSize {
    fn scalar(node: &ManifestNode) -> Self {
        let text = match &node.value {
            ManifestValue::String(text) => Some(text),
            _ => node.source_text.as_ref(),
        };
        NodeSize {
            nodes: 1,
            height: 0,
            bytes: text.map_or(0, |text| text.len()),
        }
    }
}

enum AnchorState {
    Open,
    Done(ManifestNode, NodeSize),
}

impl<'a> DocumentBuilder<'a> {
    pub(crate) fn new(
        file: &'a Arc<str>,
        limits: &'a Limits,
        remaining: &'a mut RemainingLimits,
    ) -> Self {
        Self {
            file,
            limits,
            remaining,
            open_collections: Vec::new(),
            anchors: BTreeMap::new(),
            root: None,
        }
    }

    /// The document's value, if it is complete; the builder is then ready for the next document.
    pub(crate) fn take_root(&mut self) -> Option<ManifestNode> {
        self.root.take()
    }

    /// Adds field and object to an error at `at`.
    pub(crate) fn error_at(&self, at: Position, kind: DocumentErrorKind) -> DocumentError {
        DocumentError {
            position: at,
            path: self.current_path(),
            object: self.enclosing_object(),
            kind,
        }
    }

    pub(crate) fn scalar(
        &mut self,
        at: Position,
        anchor: usize,
        scanned: ScannedScalar,
    ) -> Result<(), DocumentError> {
        self.charge_node(at)?;
        if self.expects_key() {
            if scanned.is_merge_key {
                return self.start_merge(at);
            }
            let key_scalar = scanned.scalar.clone();
            let key = key_text(scanned.scalar).map_err(|kind| self.error_at(at, kind))?;
            if anchor != 0 {
                let node = self.make_node(at, key_scalar, scanned.source_text)?;
                let size = NodeSize::scalar(&node);
                self.anchors.insert(anchor, AnchorState::Done(node, size));
            }
            return self.begin_field(at, key);
        }
        let node = self.make_node(at, scanned.scalar, scanned.source_text)?;
        let size = NodeSize::scalar(&node);
        if anchor != 0 {
            let done = AnchorState::Done(node.clone(), size);
            self.anchors.insert(anchor, done);
        }
        self.attach(at, node, size)
    }

    pub(crate) fn open_list(&mut self, at: Position, anchor: usize) -> Result<(), DocumentError> {
        self.open(at, anchor, PartialCollection::List(Vec::new()), "a list")
    }

    pub(crate) fn open_map(&mut self, at: Position, anchor: usize) -> Result<(), DocumentError> {
        let content = PartialCollection::Map {
            map: ManifestMap::new(),
            key: PendingKey::None,
            merge: None,
        };
        self.open(at, anchor, content, "an object")
    }

    /// Closes the innermost list or object.
    pub(crate) fn close(&mut self, at: Position) -> Result<(), DocumentError> {
        let Some(frame) = self.open_collections.pop() else {
            return Err(self.error_at(at, DocumentErrorKind::ParserFailed));
        };
        let value = match frame.content {
            PartialCollection::List(items) => ManifestValue::List(items),
            PartialCollection::Map { mut map, merge, .. } => {
                for source in merge.into_iter().flat_map(|(_, sources)| sources) {
                    for entry in source {
                        // An existing field, of the object itself or of an earlier source, takes precedence.
                        let _ = map.insert(entry);
                    }
                }
                ManifestValue::Map(map)
            }
        };
        let node = ManifestNode {
            location: frame.location,
            value,
            source_text: None,
        };
        let size = NodeSize {
            nodes: frame.size.nodes,
            height: frame.size.height + 1,
            bytes: frame.size.bytes,
        };
        if frame.anchor != 0 {
            self.charge_alias_at(at, size)?;
            let done = AnchorState::Done(node.clone(), size);
            self.anchors.insert(frame.anchor, done);
        }
        self.attach(at, node, size)
    }

    pub(crate) fn alias(&mut self, at: Position, anchor: usize) -> Result<(), DocumentError> {
        let (node, size) = match self.anchors.get(&anchor) {
            Some(AnchorState::Done(node, size)) => (node, *size),
            Some(AnchorState::Open) | None => {
                return Err(self.error_at(at, DocumentErrorKind::AliasInsideItself));
            }
        };
        if self.expects_key() {
            let ManifestValue::String(text) = &node.value else {
                let kind = DocumentErrorKind::KeyNotText(describe(node));
                return Err(self.error_at(at, kind));
            };
            let key = Arc::clone(text);
            self.charge_node(at)?;
            self.charge_alias_at(at, size)?;
            return self.begin_field(at, key);
        }
        if self.open_collections.len() + size.height > self.limits.effective_depth() {
            return Err(self.depth_error(at));
        }
        // Charged before the copy is made, which keeps memory bounded.
        let charged = self.remaining.charge_alias(size, self.limits);
        charged.map_err(|kind| self.error_at(at, kind))?;
        let copy = node.clone();
        self.attach(at, copy, size)
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        content: PartialCollection,
        what: &str,
    ) -> Result<(), DocumentError> {
        self.charge_node(at)?;
        if self.expects_key() {
            return Err(self.error_at(at, DocumentErrorKind::KeyNotText(what.to_owned())));
        }
        if self.open_collections.len() >= self.limits.effective_depth() {
            return Err(self.depth_error(at));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, AnchorState::Open);
        }
        self.open_collections.push(OpenCollection {
            location: at.in_file(self.file),
            anchor,
            size: NodeSize {
                nodes: 1,
                height: 0,
                bytes: 0,
            },
            content,
        });
        Ok(())
    }

    fn attach(
        &mut self,
        at: Position,
        node: ManifestNode,
        size: NodeSize,
    ) -> Result<(), DocumentError> {
        let Some(frame) = self.open_collections.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size.nodes += size.nodes;
        frame.size.height = frame.size.height.max(size.height);
        frame.size.bytes += size.bytes;
        match &mut frame.content {
            PartialCollection::List(items) => items.push(node),
            PartialCollection::Map { map, key, merge } => {
                match std::mem::replace(key, PendingKey::None) {
                    PendingKey::Key(key, location) => {
                        frame.size.nodes += 1;
                        frame.size.bytes += key.len();
                        let entry = MapEntry {
                            key,
                            location,
                            value: node,
                        };
                        // `key` has checked that the name is new.
                        let _ = map.insert(entry);
                    }
                    PendingKey::Merge => {
                        let Some((line, sources)) = merge else {
                            return Ok(());
                        };
                        let collected = merge_sources(map, *line, node);
                        match collected {
                            Ok(collected) => *sources = collected,
                            Err(kind) => return Err(self.error_at(at, kind)),
                        }
                    }
                    PendingKey::None => {
                        return Err(self.error_at(at, DocumentErrorKind::ParserFailed));
                    }
                }
            }
        }
        Ok(())
    }

    fn begin_field(&mut self, at: Position, text: Arc<str>) -> Result<(), DocumentError> {
        let location = at.in_file(self.file);
        let Some(PartialCollection::Map { map, key, .. }) = self
            .open_collections
            .last_mut()
            .map(|frame| &mut frame.content)
        else {
            return Err(self.error_at(at, DocumentErrorKind::ParserFailed));
        };
        if let Some(first) = map.entry(&text) {
            let kind = DocumentErrorKind::DuplicateKey {
                key: quote(&text),
                first: first.location.line,
                second: at.line,
            };
            *key = PendingKey::Key(text, location);
            return Err(self.error_at(at, kind));
        }
        *key = PendingKey::Key(text, location);
        Ok(())
    }

    fn start_merge(&mut self, at: Position) -> Result<(), DocumentError> {
        let Some(PartialCollection::Map { key, merge, .. }) = self
            .open_collections
            .last_mut()
            .map(|frame| &mut frame.content)
        else {
            return Err(self.error_at(at, DocumentErrorKind::ParserFailed));
        };
        if let Some((first, _)) = merge {
            let kind = DocumentErrorKind::DuplicateKey {
                key: quote("<<"),
                first: *first,
                second: at.line,
            };
            return Err(self.error_at(at, kind));
        }
        *merge = Some((at.line, Vec::new()));
        *key = PendingKey::Merge;
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open_collections.last().map(|frame| &frame.content),
            Some(PartialCollection::Map {
                key: PendingKey::None,
                ..
            })
        )
    }

    fn make_node(
        &self,
        at: Position,
        scalar: Scalar,
        source: Option<Arc<str>>,
    ) -> Result<ManifestNode, DocumentError> {
        let value = match scalar {
            Scalar::Null => ManifestValue::Null,
            Scalar::Bool(value) => ManifestValue::Bool(value),
            Scalar::Int(value) => ManifestValue::Int(value),
            #[allow(clippy::cast_precision_loss)]
            Scalar::Uint(value) => ManifestValue::Float(value as f64),
            Scalar::Text(text) => ManifestValue::String(text),
            Scalar::Float(value) if !value.is_finite() => {
                let kind = DocumentErrorKind::NotInJson {
                    text: quote(source.as_deref().unwrap_or_default()),
                    what: if value.is_nan() {
                        "not a number"
                    } else {
                        "an infinite number"
                    },
                };
                return Err(self.error_at(at, kind));
            }
            Scalar::Float(value) => match float_as_int(value) {
                Some(whole) => ManifestValue::Int(whole),
                None => ManifestValue::Float(value),
            },
        };
        Ok(ManifestNode {
            location: at.in_file(self.file),
            value,
            source_text: source,
        })
    }

    fn charge_node(&mut self, at: Position) -> Result<(), DocumentError> {
        match self.remaining.nodes.checked_sub(1) {
            Some(left) => {
                self.remaining.nodes = left;
                Ok(())
            }
            None => Err(self.error_at(at, DocumentErrorKind::TooManyNodes(self.limits.nodes))),
        }
    }

    fn charge_alias_at(&mut self, at: Position, size: NodeSize) -> Result<(), DocumentError> {
        let charged = self.remaining.charge_alias(size, self.limits);
        charged.map_err(|kind| self.error_at(at, kind))
    }

    fn depth_error(&self, at: Position) -> DocumentError {
        self.error_at(
            at,
            DocumentErrorKind::TooDeep(self.limits.effective_depth()),
        )
    }

    fn current_path(&self) -> FieldPath {
        let mut path = FieldPath::root();
        for frame in &self.open_collections {
            match &frame.content {
                PartialCollection::List(items) => path = path.index(items.len()),
                PartialCollection::Map { key, .. } => match key {
                    PendingKey::Key(key, _) => path = path.key(Arc::clone(key)),
                    PendingKey::Merge => path = path.key("<<"),
                    PendingKey::None => {}
                },
            }
        }
        path
    }

    /// The innermost enclosing object with a kind, as far as it was read.
    fn enclosing_object(&self) -> Option<String> {
        for (level, frame) in self.open_collections.iter().enumerate().rev() {
            let PartialCollection::Map { map, .. } = &frame.content else {
                continue;
            };
            let Some(kind) = map.get("kind").and_then(ManifestNode::as_str) else {
                continue;
            };
            let metadata = match map.get("metadata") {
                Some(node) => node.as_map(),
                None => self.open_metadata(level),
            };
            let text = |key| {
                metadata
                    .and_then(|map| map.get(key))
                    .and_then(ManifestNode::as_str)
            };
            return Some(reference(kind, text("namespace"), text("name")));
        }
        None
    }

    /// The `metadata` of the object at `level`, if the error is inside it.
    fn open_metadata(&self, level: usize) -> Option<&ManifestMap> {
        let PartialCollection::Map {
            key: PendingKey::Key(key, _),
            ..
        } = &self.open_collections.get(level)?.content
        else {
            return None;
        };
        match &self.open_collections.get(level + 1)?.content {
            PartialCollection::Map { map, .. } if &**key == "metadata" => Some(map),
            _ => None,
        }
    }
}

/// The objects that a merge key refers to, in order of precedence.
fn merge_sources(
    object: &ManifestMap,
    line: u32,
    node: ManifestNode,
) -> Result<Vec<ManifestMap>, DocumentErrorKind> {
    let items = match node.value {
        ManifestValue::List(items) => items,
        _ => vec![node],
    };
    let mut sources = Vec::new();
    for item in items {
        let description = describe(&item);
        let ManifestValue::Map(map) = item.value else {
            return Err(DocumentErrorKind::NotMergeable(description));
        };
        // `own` holds only the fields before `<<`; see `MergeOverOwn` for why that matters.
        if let Some(entry) = map.iter().find_map(|entry| object.entry(&entry.key)) {
            return Err(DocumentErrorKind::MergeOverOwn {
                key: quote(&entry.key),
                own: entry.location.line,
                merge: line,
            });
        }
        sources.push(map);
    }
    Ok(sources)
}
