//! The kinds that a dialect reads: name, scope and version of each, and what is the same for all of them.
//!
//! Promises: an object of a kind that is read in another version is an error that names the version; an invalid
//! name is an error. Never: knows a field outside `apiVersion`, `kind` and `metadata`.

use crate::dialect::{DEFAULT_NAMESPACE, GroupVersionKind, LoweredObject, literal_id};
use crate::names;
use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::{Field, Problem, RawObject};
use palisade_model::{Object, ObjectId, ObjectKind, Str};

const EMPTY_NAMESPACE: &str = "it is empty: treated as missing";

/// An object being lowered.
pub(crate) struct ManifestObject<'a> {
    /// Its name, interpreted as that of its kind.
    pub(crate) id: ObjectId,
    /// The object as written.
    pub(crate) root: Field<'a>,
}

impl ManifestObject<'_> {
    /// Whether an unknown field of the spec, or one outside of it, may be a misspelling of one of these fields of the
    /// spec. `known` are the fields of the object and of its spec.
    pub(crate) fn may_misspell(
        &self,
        spec: &Field<'_>,
        known: (&[&str], &[&str]),
        fields: &[&str],
    ) -> bool {
        let (of_object, of_spec) = known;
        [(spec, of_spec), (&self.root, of_object)]
            .into_iter()
            .flat_map(|(parent, known)| {
                let entries = parent.entries().unwrap_or_default().into_iter();
                entries.filter(|(key, _)| !known.contains(key))
            })
            .any(|(key, _)| nearest(key, of_spec).is_some_and(|near| fields.contains(&near)))
    }

    /// The namespace of a namespaced object.
    pub(crate) fn namespace(&self) -> Str {
        self.id
            .namespace
            .clone()
            .unwrap_or_else(|| DEFAULT_NAMESPACE.into())
    }
}

/// The scope and the name format of a kind.
#[derive(Clone, Copy)]
pub(crate) enum Naming {
    /// Namespaced; the name is a DNS subdomain.
    Namespaced,
    /// Cluster-scoped; the name is a DNS subdomain.
    Cluster,
    /// Cluster-scoped; the name is a DNS label.
    ClusterLabel,
}

/// Lowers an object of one kind; `None`, or any value, if errors were added to the report.
pub(crate) type ReadFn = fn(&ManifestObject<'_>, &mut ObjectReport) -> Option<Object>;

/// Lowers an object that may become several; none, or any, if errors were added to the report.
pub(crate) type ReadSeveralFn = fn(&ManifestObject<'_>, &mut ObjectReport) -> Vec<Object>;

/// What lowers the objects of a kind.
#[derive(Clone, Copy)]
pub(crate) enum KindRead {
    /// To one object of the model.
    One(ReadFn),
    /// To any number of them.
    Several(ReadSeveralFn),
}

/// A kind that is read.
pub(crate) struct KindReader {
    /// The API group.
    pub(crate) group: &'static str,
    /// The version that is read.
    pub(crate) version: &'static str,
    /// The name of the kind.
    pub(crate) kind: &'static str,
    /// Its scope and name format.
    pub(crate) naming: Naming,
    /// The API group in the names of its objects: that of the kind, unless another group serves the same objects.
    pub(crate) object_group: &'static str,
    /// Lowers its objects.
    pub(crate) read: KindRead,
}

impl KindReader {
    /// The kind without what reads it.
    pub(crate) fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group,
            version: Some(self.version),
            kind: self.kind,
        }
    }

    /// Whether it reads this kind, of whatever version.
    pub(crate) fn reads(&self, gvk: GroupVersionKind) -> bool {
        (self.group, self.kind) == (gvk.group, gvk.kind)
    }

    /// The name of an object, interpreted as an object of this kind.
    pub(crate) fn id_of(&self, object: &RawObject) -> ObjectId {
        ObjectId {
            kind: ObjectKind::new(self.object_group, self.kind),
            ..object_id(object, self.naming)
        }
    }

    /// The object interpreted as one of this kind, unchecked.
    pub(crate) fn interpret<'a>(&self, object: &'a RawObject) -> ManifestObject<'a> {
        ManifestObject {
            id: self.id_of(object),
            root: object.field(),
        }
    }

    /// Lowers an object of this kind; one of another version or group is rejected.
    pub(crate) fn lower(&self, object: &RawObject) -> LoweredObject {
        if (self.group, self.version) == (object.group(), object.version()) {
            self.lower_served(object)
        } else {
            self.reject_version(object)
        }
    }

    /// Lowers an object of this kind, of whatever version.
    pub(crate) fn lower_served(&self, object: &RawObject) -> LoweredObject {
        let id = self.id_of(object);
        let mut report = ObjectReport::new(id.to_string());
        let manifest_object = ManifestObject {
            id,
            root: object.field(),
        };
        self.check_name(&manifest_object.root, &mut report);
        let mut objects = match self.read {
            KindRead::One(read) => read(&manifest_object, &mut report).into_iter().collect(),
            KindRead::Several(read) => read(&manifest_object, &mut report),
        };
        if !report.errors.is_empty() {
            objects.clear();
        }
        LoweredObject {
            objects,
            omitted: report.omitted(),
            more_closed: report.omitted_closed(),
            errors: report.errors,
            warnings: report.warnings,
            closed: report.closed,
            ..LoweredObject::empty(manifest_object.id, object)
        }
    }

    /// An object of an unsupported version: an error, as in the API server.
    fn reject_version(&self, object: &RawObject) -> LoweredObject {
        let id = ObjectId {
            kind: ObjectKind::new(self.object_group, &object.kind),
            ..object_id(object, self.naming)
        };
        let mut lowered = LoweredObject::empty(id, object);
        let served_as = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        let mut problem = Problem {
            location: object.location.clone(),
            object: Some(lowered.id.to_string()),
            field: "apiVersion".to_owned(),
            reason: format!(
                "`{}` is not a supported version: {} is served as {served_as}",
                object.api_version, self.kind
            ),
        };
        if let Ok(Some(field)) = object.field().get("apiVersion") {
            problem.location = field.location().clone();
        }
        lowered.errors.push(problem);
        lowered
    }

    /// Adds errors for an invalid name.
    fn check_name(&self, root: &Field<'_>, report: &mut ObjectReport) {
        let Some(metadata) = report.object(root, "metadata") else {
            return;
        };
        if let Some((name, field)) = report.text(&metadata, "name") {
            let reasons = match self.naming {
                Naming::ClusterLabel => names::dns_label_errors(name),
                Naming::Namespaced | Naming::Cluster => names::dns_subdomain_errors(name),
            };
            report.errors(&field, reasons);
        }
        if let Some((namespace, field)) = report.text(&metadata, "namespace") {
            match self.naming {
                _ if namespace.is_empty() => report.warn(&field, EMPTY_NAMESPACE),
                Naming::Namespaced => report.errors(&field, names::dns_label_errors(namespace)),
                Naming::Cluster | Naming::ClusterLabel => report.warn(
                    &field,
                    format!("{} is cluster-scoped: its namespace is ignored", self.kind),
                ),
            }
        }
    }
}

/// The kinds that these read.
pub(crate) fn supported_kinds(
    readers: &'static [KindReader],
) -> impl Iterator<Item = GroupVersionKind> {
    readers.iter().map(KindReader::group_version_kind)
}

/// The reader of a kind, of whatever version.
pub(crate) fn reader_of(
    readers: &'static [KindReader],
    gvk: GroupVersionKind,
) -> Option<&'static KindReader> {
    readers.iter().find(|reader| reader.reads(gvk))
}

/// The reader of an object: that of its version, or of another one of its kind.
pub(crate) fn find_reader(
    readers: &'static [KindReader],
    object: &RawObject,
) -> Option<&'static KindReader> {
    let is_kind = |reader: &&KindReader| {
        (reader.group, reader.kind) == (object.group(), object.kind.as_str())
    };
    let of_kind = || readers.iter().filter(is_kind);
    let of_version = of_kind().find(|reader| reader.version == object.version());
    of_version.or_else(|| of_kind().next())
}

/// The object's name, with the default namespace applied.
fn object_id(object: &RawObject, naming: Naming) -> ObjectId {
    let mut id = literal_id(object);
    match naming {
        Naming::Namespaced => {
            id.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
        }
        Naming::Cluster | Naming::ClusterLabel => id.namespace = None,
    }
    id
}
