//! Converts documents to Kubernetes objects: lists are flattened, and each object has its name.

use crate::describe::{bounded_name, reference};
use crate::field::{Field, FieldError, Mismatch};
use crate::limits::Limits;
use crate::location::{Location, Problem};
use crate::node::describe;
use crate::node::{ManifestMap, ManifestNode, ManifestValue};
use crate::parse::ParsedFile;
use crate::path::FieldPath;
use std::fmt;

/// The maximum nesting of lists in lists.
const MAX_LIST_DEPTH: usize = 4;

/// An object as written, with the fields that identify it. Those are shortened by [`bounded_name`]; the
/// object itself is unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct RawObject {
    /// `apiVersion`; for an item of a typed list without one, the list's.
    pub api_version: String,
    /// `kind`; for an item of a typed list without one, the kind of the list without the suffix `List`.
    pub kind: String,
    /// `metadata.namespace`, if present; never a default.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, if present.
    pub uid: Option<String>,
    /// The object.
    pub root: ManifestNode,
    /// The beginning of the object.
    pub location: Location,
}

/// The objects of a parsed file, and all problems.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedObjects {
    /// The objects in the order of the file.
    pub objects: Vec<RawObject>,
    /// The problems of the file, then those of its objects.
    pub problems: Vec<Problem>,
}

impl RawObject {
    /// A cursor at the object's root.
    #[must_use]
    pub fn field(&self) -> Field<'_> {
        Field::root(&self.root)
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The version inside of the API group.
    #[must_use]
    pub fn version(&self) -> &str {
        match self.api_version.split_once('/') {
            Some((_, version)) => version,
            None => &self.api_version,
        }
    }

    /// `Kind namespace/name`, the format of [`Problem::object`].
    #[must_use]
    pub fn reference(&self) -> String {
        reference(&self.kind, self.namespace.as_deref(), Some(&self.name))
    }

    /// A problem of this object from a field error.
    #[must_use]
    pub fn problem(&self, error: FieldError) -> Problem {
        error.into_problem(Some(self.reference()))
    }
}

impl fmt::Display for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference())
    }
}

/// The objects of a parsed file, with lists replaced by their items.
///
/// An item of a typed list (`PodList`) without `kind` gets it from the list. Anything that is not an object
/// with `apiVersion`, `kind` and `metadata.name` is a problem, which does not affect other objects.
#[must_use]
pub fn extract_objects(reading: ParsedFile, limits: &Limits) -> ParsedObjects {
    let mut out = ParsedObjects {
        objects: Vec::new(),
        problems: Vec::new(),
    };
    let mut unfolding = ListFlattener::new(limits);
    for problem in reading.problems {
        unfolding.report(problem, &mut out);
    }
    for document in reading.documents {
        unfolding.flatten(document.root, &ListContext::document(), &mut out);
    }
    out
}

/// Receives the objects of a file one by one.
pub trait ObjectSink {
    /// An object.
    fn push_object(&mut self, object: RawObject);
    /// Something that could not be read completely.
    fn push_problem(&mut self, problem: Problem);
    /// A document begins: [`rollback_document`](Self::rollback_document) reverts to this point.
    fn begin_document(&mut self);
    /// The document is invalid, or not a list: drops everything since it began.
    fn rollback_document(&mut self);
}

impl ObjectSink for ParsedObjects {
    fn push_object(&mut self, object: RawObject) {
        self.objects.push(object);
    }

    fn push_problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn begin_document(&mut self) {}

    fn rollback_document(&mut self) {}
}

/// The list that an object is an item of, if any.
pub(crate) struct ListContext {
    path: FieldPath,
    /// The `apiVersion` and `kind` of the items of a typed list.
    item_type: Option<(String, String)>,
    list_depth: usize,
}

impl ListContext {
    /// The context of a document.
    pub(crate) fn document() -> Self {
        ListContext {
            path: FieldPath::root(),
            item_type: None,
            list_depth: 0,
        }
    }

    /// The context of the items of a document that is a list of this `apiVersion` and `kind`.
    pub(crate) fn items(api_version: Option<&str>, kind: Option<&str>) -> Self {
        ListContext {
            path: FieldPath::root(),
            item_type: item_type_of_list(api_version, kind),
            list_depth: 1,
        }
    }

    /// The context of an object of this type, if it has none of its own.
    pub(crate) fn item_of(api_version: &str, kind: &str) -> Self {
        ListContext {
            path: FieldPath::root(),
            item_type: Some((api_version.to_owned(), kind.to_owned())),
            list_depth: 0,
        }
    }

    /// The kind of an item that has none of its own.
    pub(crate) fn item_kind(&self) -> Option<&str> {
        self.item_type.as_ref().map(|(_, kind)| &**kind)
    }

    /// The same context for the item `index`.
    pub(crate) fn item(&self, index: usize) -> Self {
        ListContext {
            path: FieldPath::root().key("items").index(index),
            item_type: self.item_type.clone(),
            list_depth: self.list_depth,
        }
    }
}

/// The `apiVersion` and `kind` of the items of a typed list.
fn item_type_of_list(api_version: Option<&str>, kind: Option<&str>) -> Option<(String, String)> {
    let kind = kind?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
    Some((api_version?.to_owned(), kind.to_owned()))
}

pub(crate) struct ListFlattener<'l> {
    limits: &'l Limits,
    /// The number of objects so far, valid or not.
    object_count: usize,
    /// The number of problems so far.
    problem_count: usize,
    is_full: bool,
}

impl<'l> ListFlattener<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        ListFlattener {
            limits,
            object_count: 0,
            problem_count: 0,
            is_full: false,
        }
    }

    pub(crate) fn flatten(
        &mut self,
        mut root: ManifestNode,
        context: &ListContext,
        out: &mut dyn ObjectSink,
    ) {
        if self.is_full {
            return;
        }
        let bound = if self.object_count >= self.limits.objects {
            Some((self.limits.objects, "objects"))
        } else if self.problem_count >= self.limits.problems {
            Some((self.limits.problems, "problems"))
        } else {
            None
        };
        if let Some((limit, what)) = bound {
            self.is_full = true;
            let reason = format!("the file has more than {limit} {what}; the rest is left out");
            return self.report_at(&root.location, None, context.path.to_string(), reason, out);
        }
        let ManifestValue::Map(map) = &mut root.value else {
            let description = describe(&root);
            let reason =
                format!("expected an object with apiVersion and kind, found {description}");
            return self.report_at(&root.location, None, context.path.to_string(), reason, out);
        };
        if let Some((api_version, kind)) = list_kind(map) {
            let items = map.take("items");
            return self.flatten_list((&root.location, api_version, &kind), items, context, out);
        }
        self.object_count += 1;
        match identify(root, context) {
            Ok(object) => out.push_object(*object),
            Err(problems) => {
                for problem in problems {
                    self.report(problem, out);
                }
            }
        }
    }

    fn flatten_list(
        &mut self,
        (location, api_version, kind): (&Location, Option<String>, &str),
        items: Option<ManifestNode>,
        context: &ListContext,
        out: &mut dyn ObjectSink,
    ) {
        let path = context.path.key("items");
        if context.list_depth >= MAX_LIST_DEPTH {
            let reason = format!("lists are nested in lists more than {MAX_LIST_DEPTH} deep");
            let object = Some(kind.to_owned());
            return self.report_at(location, object, context.path.to_string(), reason, out);
        }
        let items = match items {
            None => return,
            Some(node) if node.is_null() => return,
            Some(node) => node,
        };
        let description = describe(&items);
        let ManifestValue::List(nodes) = items.value else {
            let reason = format!("expected a list, found {description}");
            let object = Some(kind.to_owned());
            return self.report_at(&items.location, object, path.to_string(), reason, out);
        };
        let mut inside = ListContext {
            path: FieldPath::root(),
            item_type: item_type_of_list(api_version.as_deref(), Some(kind)),
            list_depth: context.list_depth + 1,
        };
        for (index, node) in nodes.into_iter().enumerate() {
            inside.path = path.index(index);
            self.flatten(node, &inside, out);
        }
    }

    fn report_at(
        &mut self,
        location: &Location,
        object: Option<String>,
        field: String,
        reason: String,
        out: &mut dyn ObjectSink,
    ) {
        let problem = Problem {
            location: location.clone(),
            object,
            field,
            reason,
        };
        self.report(problem, out);
    }

    pub(crate) fn report(&mut self, problem: Problem, out: &mut dyn ObjectSink) {
        self.problem_count += 1;
        out.push_problem(problem);
    }
}

/// `apiVersion` and `kind` of a list. A kind that merely ends in `List` is a list if it has items and no
/// spec, or no name: `AllowList` may be a custom kind.
pub(crate) fn list_kind(map: &ManifestMap) -> Option<(Option<String>, String)> {
    let kind = map.get("kind")?.as_str()?;
    let text = |node: &ManifestNode| node.as_str().map(bounded_name);
    let named = || {
        map.get("metadata")
            .and_then(|node| node.get("name"))
            .is_some()
    };
    let is_list = match kind.strip_suffix("List")? {
        "" => true,
        _ => map.get("spec").is_none() && (map.get("items").is_some() || !named()),
    };
    is_list.then(|| (map.get("apiVersion").and_then(text), bounded_name(kind)))
}

/// The object with its type and name; all problems if one is missing.
pub(crate) fn identify(
    root: ManifestNode,
    context: &ListContext,
) -> Result<Box<RawObject>, Vec<Problem>> {
    let field = Field {
        node: &root,
        path: context.path.clone(),
    };
    let mut errors = Vec::new();
    let mut collect = |result: Result<&str, FieldError>| match result {
        Ok(text) => Some(bounded_name(text)),
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let text = |key: &str| field.require(key).and_then(|field| non_empty_text(&field));
    let (api_version, kind) = match &context.item_type {
        Some((api_version, kind)) => {
            let own_kind = root.get("kind").is_some_and(|node| !node.is_null());
            let own_version = root.get("apiVersion").is_some_and(|node| !node.is_null());
            let same_kind =
                !own_kind || root.get("kind").and_then(ManifestNode::as_str) == Some(kind);
            (
                collect(if own_version || !same_kind {
                    text("apiVersion")
                } else {
                    Ok(api_version)
                }),
                collect(if own_kind { text("kind") } else { Ok(kind) }),
            )
        }
        None => (collect(text("apiVersion")), collect(text("kind"))),
    };
    let metadata = field.require("metadata");
    let metadata_field = |key: &str| metadata.clone().and_then(|metadata| metadata.require(key));
    let optional = |key: &str| match metadata.clone().and_then(|metadata| metadata.get(key)) {
        // An empty one counts as missing, as in Kubernetes.
        Ok(Some(field)) => field
            .as_str()
            .map(|text| Some(text).filter(|t| !t.is_empty())),
        // An error in `metadata` is reported once, for the name.
        Ok(None) | Err(_) => Ok(None),
    };
    let name = collect(metadata_field("name").and_then(|name| non_empty_text(&name)));
    let [namespace, uid] = ["namespace", "uid"].map(|key| {
        optional(key).unwrap_or_else(|error| {
            collect(Err(error));
            None
        })
    });
    let generated = name.is_none() && metadata_field("generateName").is_ok();
    if let (Some(api_version), Some(kind), Some(name), true) =
        (&api_version, &kind, &name, errors.is_empty())
    {
        return Ok(Box::new(RawObject {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: namespace.map(bounded_name),
            name: name.clone(),
            uid: uid.map(bounded_name),
            location: root.location.clone(),
            root,
        }));
    }
    let object = kind.map(|kind| reference(&kind, namespace, name.as_deref()));
    let problems = errors.into_iter().map(|error| {
        let mut problem = error.into_problem(object.clone());
        if generated && problem.field.ends_with("metadata.name") {
            problem.reason = "is required: generateName works only in the API server".to_owned();
        }
        problem
    });
    Err(problems.collect())
}

/// A string that is not empty; an empty one counts as missing.
fn non_empty_text<'a>(field: &Field<'a>) -> Result<&'a str, FieldError> {
    let text = field.as_str()?;
    if text.is_empty() {
        return Err(field.error(Mismatch::Missing));
    }
    Ok(text)
}
