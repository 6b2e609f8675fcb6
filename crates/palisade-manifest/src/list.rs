//! A document that may be a list, while it is read field by field and item by item.

use crate::describe::quote;
use crate::fault::{Broken, Fault};
use crate::location::{Location, Position};
use crate::node::{Entry, Map, Node, Value};
use crate::object::{Origin, list_of, reference};
use crate::path::FieldPath;
use crate::stream::Stream;

/// The field that holds a list's items.
pub(crate) const ITEMS: &str = "items";

/// What is known of the document so far.
pub(crate) struct OpenList {
    location: Location,
    /// Its fields; of items that were read one by one the key alone.
    map: Map,
    /// Whether its items are read one by one.
    itemised: bool,
    /// Items whose kind the list gives, which has not said its own yet.
    waiting: Vec<(usize, Node)>,
    /// How many items there were.
    count: usize,
}

impl OpenList {
    /// One that begins there.
    pub(crate) fn new(location: Location) -> Self {
        OpenList {
            location,
            map: Map::new(),
            itemised: false,
            waiting: Vec::new(),
            count: 0,
        }
    }

    /// Makes sure that it has no field of this name yet.
    pub(crate) fn key(&self, key: &str, at: Position) -> Result<(), Broken> {
        let Some(first) = self.map.entry(key) else {
            return Ok(());
        };
        let fault = Fault::DuplicateKey {
            key: quote(key),
            first: first.location.line,
            second: at.line,
        };
        Err(self.broken(Broken::new(at, fault), &FieldPath::root().key(key)))
    }

    /// Takes a field in.
    pub(crate) fn field(&mut self, key: &str, location: Location, value: Node) {
        // `key` has made sure that there is none of this name.
        let _ = self.map.insert(Entry {
            key: key.into(),
            location,
            value,
        });
    }

    /// Its items follow, one by one; where from is what they are read as.
    pub(crate) fn items(&mut self, location: Location) -> Origin {
        let value = Node {
            location: location.clone(),
            value: Value::Null,
            source_text: None,
        };
        self.field(ITEMS, location, value);
        self.itemised = true;
        Origin::items(self.text("apiVersion"), self.text("kind"))
    }

    /// How many items were taken in.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes an item in.
    pub(crate) fn item(&mut self, item: Node, origin: &Origin, stream: &mut Stream<'_>) {
        let index = self.count;
        self.count += 1;
        let kind = self.text("kind");
        let says = |key: &str| item.get(key).is_some_and(|value| !value.is_null());
        if kind.is_none() && !(says("kind") && says("apiVersion")) {
            self.waiting.push((index, item));
        } else if kind.is_none_or(|kind| kind.ends_with("List")) {
            let origin = origin.item(index);
            stream.unfolding.object(item, &origin, stream.sink);
        }
    }

    /// The document is at its end.
    pub(crate) fn end(self, stream: &mut Stream<'_>) {
        let list = list_of(&self.map).filter(|_| self.itemised);
        let Some((api_version, kind)) = list else {
            stream.sink.undo();
            let root = Node {
                location: self.location,
                value: Value::Map(self.map),
                source_text: None,
            };
            return stream
                .unfolding
                .object(root, &Origin::document(), stream.sink);
        };
        let origin = Origin::items(api_version.as_deref(), Some(&kind));
        for (index, item) in self.waiting {
            stream
                .unfolding
                .object(item, &origin.item(index), stream.sink);
        }
    }

    /// What went wrong inside of the value at `path`, as seen from the document.
    pub(crate) fn broken(&self, broken: Broken, path: &FieldPath) -> Broken {
        let object = || {
            let metadata = self.map.get("metadata");
            let text = |key| metadata.and_then(|map| map.get(key)).and_then(Node::as_str);
            let kind = self.text("kind")?;
            Some(reference(kind, text("namespace"), text("name")))
        };
        Broken {
            path: broken.path.within(path),
            object: broken.object.or_else(object),
            ..broken
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key).and_then(Node::as_str)
    }
}
