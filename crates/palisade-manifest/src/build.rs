//! Builds a document's value from the events that a scanner finds.
//!
//! Both scanners, YAML's and JSON's, feed the same builder, so the bounds, the duplicate keys and
//! the paths in messages are the same for both. It keeps its own stack: nesting costs memory that
//! is bounded, never the thread's stack.

use crate::describe::{describe, quote};
use crate::fault::{Broken, Fault};
use crate::limits::Limits;
use crate::location::{Location, Position};
use crate::node::{Entry, Map, Node, Value};
use crate::object::reference;
use crate::path::FieldPath;
use crate::scalar::{Scalar, float_as_int, key_text};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the rest of a file may still consume.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    nodes: usize,
    alias_nodes: usize,
    alias_bytes: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            nodes: limits.nodes,
            alias_nodes: limits.alias_nodes,
            alias_bytes: limits.alias_bytes,
        }
    }
}

impl Budget {
    fn charge_alias(&mut self, size: Size, limits: &Limits) -> Result<(), Fault> {
        let nodes = self.alias_nodes.checked_sub(size.nodes);
        self.alias_nodes = nodes.ok_or(Fault::TooManyAliasNodes(limits.alias_nodes))?;
        let bytes = self.alias_bytes.checked_sub(size.bytes);
        self.alias_bytes = bytes.ok_or(Fault::TooManyAliasBytes(limits.alias_bytes))?;
        Ok(())
    }
}

/// A scalar as a scanner found it.
pub(crate) struct Found {
    pub(crate) scalar: Scalar,
    /// What the file says; kept only where the scalar is not text.
    pub(crate) source: Option<Arc<str>>,
    /// Whether it is a merge key where it stands as a key.
    pub(crate) merge: bool,
}

/// Builds one document.
pub(crate) struct Builder<'a> {
    file: &'a Arc<str>,
    limits: &'a Limits,
    budget: &'a mut Budget,
    frames: Vec<Frame>,
    anchors: BTreeMap<usize, Anchor>,
    root: Option<Node>,
}

/// A list or object that is not at its end yet.
struct Frame {
    location: Location,
    anchor: usize,
    size: Size,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        map: Map,
        key: Pending,
        /// Where `<<` stands, and what it brings in.
        merge: Option<(u32, Vec<Map>)>,
    },
}

enum Pending {
    None,
    Key(Arc<str>, Location),
    Merge,
}

/// How much a value is: its nodes, keys included, the levels it nests, and the bytes of its texts.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    height: usize,
    bytes: usize,
}

impl Size {
    fn scalar(node: &Node) -> Self {
        let text = match &node.value {
            Value::String(text) => Some(text),
            _ => node.source_text.as_ref(),
        };
        Size {
            nodes: 1,
            height: 0,
            bytes: text.map_or(0, |text| text.len()),
        }
    }
}

enum Anchor {
    Open,
    Done(Node, Size),
}

impl<'a> Builder<'a> {
    pub(crate) fn new(file: &'a Arc<str>, limits: &'a Limits, budget: &'a mut Budget) -> Self {
        Self {
            file,
            limits,
            budget,
            frames: Vec::new(),
            anchors: BTreeMap::new(),
            root: None,
        }
    }

    /// The document's value, if all of it was there; the builder is then ready for the next.
    pub(crate) fn take_root(&mut self) -> Option<Node> {
        self.root.take()
    }

    /// Names field and object of a fault that was met at `at`.
    pub(crate) fn broken(&self, at: Position, fault: Fault) -> Broken {
        Broken {
            at,
            path: self.path(),
            object: self.object(),
            fault,
        }
    }

    pub(crate) fn scalar(
        &mut self,
        at: Position,
        anchor: usize,
        found: Found,
    ) -> Result<(), Broken> {
        self.charge(at)?;
        if self.wants_key() {
            if found.merge {
                return self.start_merge(at);
            }
            let anchored = found.scalar.clone();
            let key = key_text(found.scalar).map_err(|fault| self.broken(at, fault))?;
            if anchor != 0 {
                let node = self.node(at, anchored, found.source)?;
                let size = Size::scalar(&node);
                self.anchors.insert(anchor, Anchor::Done(node, size));
            }
            return self.key(at, key);
        }
        let node = self.node(at, found.scalar, found.source)?;
        let size = Size::scalar(&node);
        if anchor != 0 {
            let done = Anchor::Done(node.clone(), size);
            self.anchors.insert(anchor, done);
        }
        self.place(at, node, size)
    }

    pub(crate) fn open_list(&mut self, at: Position, anchor: usize) -> Result<(), Broken> {
        self.open(at, anchor, Content::List(Vec::new()), "a list")
    }

    pub(crate) fn open_map(&mut self, at: Position, anchor: usize) -> Result<(), Broken> {
        let content = Content::Map {
            map: Map::new(),
            key: Pending::None,
            merge: None,
        };
        self.open(at, anchor, content, "an object")
    }

    /// Ends the innermost list or object.
    pub(crate) fn close(&mut self, at: Position) -> Result<(), Broken> {
        let Some(frame) = self.frames.pop() else {
            return Err(self.broken(at, Fault::ParserFailed));
        };
        let value = match frame.content {
            Content::List(items) => Value::List(items),
            Content::Map { mut map, merge, .. } => {
                for source in merge.into_iter().flat_map(|(_, sources)| sources) {
                    for entry in source {
                        // Already there: an own field, or one of an earlier source, wins.
                        let _ = map.insert(entry);
                    }
                }
                Value::Map(map)
            }
        };
        let node = Node {
            location: frame.location,
            value,
            source_text: None,
        };
        let size = Size {
            nodes: frame.size.nodes,
            height: frame.size.height + 1,
            bytes: frame.size.bytes,
        };
        if frame.anchor != 0 {
            self.charge_alias(at, size)?;
            let done = Anchor::Done(node.clone(), size);
            self.anchors.insert(frame.anchor, done);
        }
        self.place(at, node, size)
    }

    pub(crate) fn alias(&mut self, at: Position, anchor: usize) -> Result<(), Broken> {
        let (node, size) = match self.anchors.get(&anchor) {
            Some(Anchor::Done(node, size)) => (node, *size),
            Some(Anchor::Open) | None => return Err(self.broken(at, Fault::AliasInsideItself)),
        };
        if self.wants_key() {
            let Value::String(text) = &node.value else {
                let fault = Fault::KeyNotText(describe(node));
                return Err(self.broken(at, fault));
            };
            let key = Arc::clone(text);
            self.charge(at)?;
            self.charge_alias(at, size)?;
            return self.key(at, key);
        }
        if self.frames.len() + size.height > self.limits.effective_depth() {
            return Err(self.too_deep(at));
        }
        // Charged before the copy is made: that is what keeps the memory bounded.
        let charged = self.budget.charge_alias(size, self.limits);
        charged.map_err(|fault| self.broken(at, fault))?;
        let copy = node.clone();
        self.place(at, copy, size)
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        content: Content,
        what: &str,
    ) -> Result<(), Broken> {
        self.charge(at)?;
        if self.wants_key() {
            return Err(self.broken(at, Fault::KeyNotText(what.to_owned())));
        }
        if self.frames.len() >= self.limits.effective_depth() {
            return Err(self.too_deep(at));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor::Open);
        }
        self.frames.push(Frame {
            location: at.in_file(self.file),
            anchor,
            size: Size {
                nodes: 1,
                height: 0,
                bytes: 0,
            },
            content,
        });
        Ok(())
    }

    fn place(&mut self, at: Position, node: Node, size: Size) -> Result<(), Broken> {
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size.nodes += size.nodes;
        frame.size.height = frame.size.height.max(size.height);
        frame.size.bytes += size.bytes;
        match &mut frame.content {
            Content::List(items) => items.push(node),
            Content::Map { map, key, merge } => match std::mem::replace(key, Pending::None) {
                Pending::Key(key, location) => {
                    frame.size.nodes += 1;
                    frame.size.bytes += key.len();
                    let entry = Entry {
                        key,
                        location,
                        value: node,
                    };
                    // `key` has made sure that there is none of this name.
                    let _ = map.insert(entry);
                }
                Pending::Merge => {
                    let Some((line, sources)) = merge else {
                        return Ok(());
                    };
                    let collected = merge_sources(map, *line, node);
                    match collected {
                        Ok(collected) => *sources = collected,
                        Err(fault) => return Err(self.broken(at, fault)),
                    }
                }
                Pending::None => return Err(self.broken(at, Fault::ParserFailed)),
            },
        }
        Ok(())
    }

    fn key(&mut self, at: Position, text: Arc<str>) -> Result<(), Broken> {
        let location = at.in_file(self.file);
        let Some(Content::Map { map, key, .. }) =
            self.frames.last_mut().map(|frame| &mut frame.content)
        else {
            return Err(self.broken(at, Fault::ParserFailed));
        };
        if let Some(first) = map.entry(&text) {
            let fault = Fault::DuplicateKey {
                key: quote(&text),
                first: first.location.line,
                second: at.line,
            };
            *key = Pending::Key(text, location);
            return Err(self.broken(at, fault));
        }
        *key = Pending::Key(text, location);
        Ok(())
    }

    fn start_merge(&mut self, at: Position) -> Result<(), Broken> {
        let Some(Content::Map { key, merge, .. }) =
            self.frames.last_mut().map(|frame| &mut frame.content)
        else {
            return Err(self.broken(at, Fault::ParserFailed));
        };
        if let Some((first, _)) = merge {
            let fault = Fault::DuplicateKey {
                key: quote("<<"),
                first: *first,
                second: at.line,
            };
            return Err(self.broken(at, fault));
        }
        *merge = Some((at.line, Vec::new()));
        *key = Pending::Merge;
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(
            self.frames.last().map(|frame| &frame.content),
            Some(Content::Map {
                key: Pending::None,
                ..
            })
        )
    }

    fn node(&self, at: Position, scalar: Scalar, source: Option<Arc<str>>) -> Result<Node, Broken> {
        let value = match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Int(value) => Value::Int(value),
            #[allow(clippy::cast_precision_loss)]
            Scalar::Uint(value) => Value::Float(value as f64),
            Scalar::Text(text) => Value::String(text),
            Scalar::Float(value) if !value.is_finite() => {
                let fault = Fault::NotInJson {
                    text: quote(source.as_deref().unwrap_or_default()),
                    what: if value.is_nan() {
                        "not a number"
                    } else {
                        "an infinite number"
                    },
                };
                return Err(self.broken(at, fault));
            }
            Scalar::Float(value) => match float_as_int(value) {
                Some(whole) => Value::Int(whole),
                None => Value::Float(value),
            },
        };
        Ok(Node {
            location: at.in_file(self.file),
            value,
            source_text: source,
        })
    }

    fn charge(&mut self, at: Position) -> Result<(), Broken> {
        match self.budget.nodes.checked_sub(1) {
            Some(left) => {
                self.budget.nodes = left;
                Ok(())
            }
            None => Err(self.broken(at, Fault::TooManyNodes(self.limits.nodes))),
        }
    }

    fn charge_alias(&mut self, at: Position, size: Size) -> Result<(), Broken> {
        let charged = self.budget.charge_alias(size, self.limits);
        charged.map_err(|fault| self.broken(at, fault))
    }

    fn too_deep(&self, at: Position) -> Broken {
        self.broken(at, Fault::TooDeep(self.limits.effective_depth()))
    }

    fn path(&self) -> FieldPath {
        let mut path = FieldPath::root();
        for frame in &self.frames {
            match &frame.content {
                Content::List(items) => path = path.index(items.len()),
                Content::Map { key, .. } => match key {
                    Pending::Key(key, _) => path = path.key(Arc::clone(key)),
                    Pending::Merge => path = path.key("<<"),
                    Pending::None => {}
                },
            }
        }
        path
    }

    /// The innermost object of a kind around this place, as far as it was read.
    fn object(&self) -> Option<String> {
        for (level, frame) in self.frames.iter().enumerate().rev() {
            let Content::Map { map, .. } = &frame.content else {
                continue;
            };
            let Some(kind) = map.get("kind").and_then(Node::as_str) else {
                continue;
            };
            let metadata = match map.get("metadata") {
                Some(node) => node.as_map(),
                None => self.open_metadata(level),
            };
            let text = |key| metadata.and_then(|map| map.get(key)).and_then(Node::as_str);
            return Some(reference(kind, text("namespace"), text("name")));
        }
        None
    }

    /// The `metadata` of the object at `level`, if the fault is inside of it.
    fn open_metadata(&self, level: usize) -> Option<&Map> {
        let Content::Map {
            key: Pending::Key(key, _),
            ..
        } = &self.frames.get(level)?.content
        else {
            return None;
        };
        match &self.frames.get(level + 1)?.content {
            Content::Map { map, .. } if &**key == "metadata" => Some(map),
            _ => None,
        }
    }
}

/// The objects that the value of a merge key names, in the order of their precedence.
fn merge_sources(own: &Map, line: u32, node: Node) -> Result<Vec<Map>, Fault> {
    let items = match node.value {
        Value::List(items) => items,
        _ => vec![node],
    };
    let mut sources = Vec::new();
    for item in items {
        let found = describe(&item);
        let Value::Map(map) = item.value else {
            return Err(Fault::NotMergeable(found));
        };
        // Only what stands before `<<` is in `own` yet; see `MergeOverOwn` for why it matters.
        if let Some(entry) = map.iter().find_map(|entry| own.entry(&entry.key)) {
            return Err(Fault::MergeOverOwn {
                key: quote(&entry.key),
                own: entry.location.line,
                merge: line,
            });
        }
        sources.push(map);
    }
    Ok(sources)
}
