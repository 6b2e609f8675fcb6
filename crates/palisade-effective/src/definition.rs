//! One definition of an object: what a source read, lowered, and where it read it.
//!
//! Nothing here depends on other objects, so an edit costs as much as reading the objects edited.

use crate::SharedId;
use crate::definition_problems::{ClosedParts, DefinitionErrors};
use crate::policy_cost::ObjectCost;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use palisade_dialects::{ContentHash, LoweredObject, PolicyFields, is_policy_kind, isolate};
use palisade_manifest::{Location, RawObject};
use palisade_model::{Object, Policy, SourceLine, Str};

/// Where a definition was read. Definitions of one object and source have different origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOrigin {
    /// A place in a file.
    File {
        /// Identifies the file in its source; not for output.
        path: Arc<str>,
        /// The place, for messages.
        location: Location,
    },
    /// An object of a server that numbers the versions of its objects.
    Resource {
        /// The resource version, as the server writes it; empty once it is not kept any more.
        version: Str,
        /// The place in the text of the object, for messages; its file is the name of the resource.
        location: Location,
    },
}

impl ObjectOrigin {
    /// The place, for messages.
    pub fn location(&self) -> &Location {
        match self {
            ObjectOrigin::File { location, .. } | ObjectOrigin::Resource { location, .. } => {
                location
            }
        }
    }

    /// The line where it begins; the resource and its version in an object of a server.
    pub fn line(&self) -> SourceLine {
        match self {
            ObjectOrigin::File { location, .. } => SourceLine::new(&*location.file, location.line),
            ObjectOrigin::Resource { version, location } => {
                SourceLine::of_resource(&*location.file, version.clone())
            }
        }
    }

    /// Gives a policy of a server, which has no line, the resource and its version.
    fn set_line_of(&self, policy: &mut Policy) {
        if let (ObjectOrigin::Resource { .. }, 0) = (self, self.location().line) {
            let line = Some(self.line());
            let before = core::mem::replace(&mut policy.line, line.clone());
            let lists = [&mut policy.ingress, &mut policy.egress]
                .into_iter()
                .flatten();
            for rule in lists.flat_map(|list| &mut list.rules) {
                if rule.origin.line == before {
                    rule.origin.line.clone_from(&line);
                }
            }
        }
    }

    /// Whether both are the same file, or both are versions of an object of a server.
    pub(crate) fn is_same_unit(&self, other: &ObjectOrigin) -> bool {
        match (self, other) {
            (ObjectOrigin::File { path: a, .. }, ObjectOrigin::File { path: b, .. }) => a == b,
            (ObjectOrigin::Resource { .. }, ObjectOrigin::Resource { .. }) => true,
            _ => false,
        }
    }
}

impl Ord for ObjectOrigin {
    /// Files in the order of paths, by their components; resources after files.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (
                ObjectOrigin::File { path: a, location },
                ObjectOrigin::File {
                    path: b,
                    location: at,
                },
            ) => (a.split('/').cmp(b.split('/'))).then_with(|| location.cmp(at)),
            (ObjectOrigin::File { .. }, ObjectOrigin::Resource { .. }) => Ordering::Less,
            (ObjectOrigin::Resource { .. }, ObjectOrigin::File { .. }) => Ordering::Greater,
            (
                ObjectOrigin::Resource { version, location },
                ObjectOrigin::Resource {
                    version: other,
                    location: at,
                },
            ) => version.cmp(other).then_with(|| location.cmp(at)),
        }
    }
}

impl PartialOrd for ObjectOrigin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectOrigin::File { location, .. } => location.fmt(f),
            ObjectOrigin::Resource { version, location } if version.is_empty() => location.fmt(f),
            ObjectOrigin::Resource { version, location } => {
                SourceLine::of_resource(&*location.file, version.clone()).fmt(f)
            }
        }
    }
}

/// A definition of an object.
#[derive(Debug)]
pub struct Definition {
    /// The name of the object.
    pub id: SharedId,
    /// Where it was read.
    pub origin: ObjectOrigin,
    /// The hash of its content.
    pub hash: ContentHash,
    /// Its model objects; empty if it was rejected. `None` once they were handed out.
    pub(crate) objects: Option<Arc<Vec<Object>>>,
    /// Whether it has errors.
    pub(crate) is_rejected: bool,
    /// Its errors, if it is a policy.
    pub(crate) errors: Option<Box<DefinitionErrors>>,
    /// Its parts that are held closed.
    pub(crate) closed: Option<Arc<ClosedParts>>,
    /// The isolation policies that are in force if it was rejected and no version was ever valid.
    pub(crate) isolation: Box<[Policy]>,
    /// Its cost in kernel elements, if it is a policy.
    pub(crate) cost: Option<Box<ObjectCost>>,
    /// The fields whose effect depends on other objects, if it is a policy.
    pub(crate) fields: Option<Box<PolicyFields>>,
}

impl Definition {
    /// The definition in an object as written and lowered; `lowered` still holds its errors,
    /// warnings and parts held closed.
    pub fn new(
        id: SharedId,
        raw: &RawObject,
        lowered: &mut LoweredObject,
        origin: ObjectOrigin,
    ) -> Self {
        let mut objects = core::mem::take(&mut lowered.objects);
        objects.shrink_to_fit();
        let is_rejected = !lowered.errors.is_empty();
        let mut isolation: Box<[Policy]> = if is_rejected {
            isolate(raw).into()
        } else {
            Box::default()
        };
        let written = objects.iter_mut().filter_map(|object| match object {
            Object::Policy(policy) => Some(policy),
            _ => None,
        });
        for policy in written.chain(&mut isolation) {
            origin.set_line_of(policy);
        }
        let policy = objects.iter().find_map(|object| match object {
            Object::Policy(policy) => Some(policy),
            _ => None,
        });
        let has_errors = is_rejected && is_policy_kind(&lowered.id.kind);
        Definition {
            id,
            origin,
            hash: ContentHash::of(&raw.root),
            cost: ObjectCost::of(&objects).map(Box::new),
            fields: policy.map(|policy| Box::new(PolicyFields::of(policy, raw))),
            objects: Some(Arc::new(objects)),
            is_rejected,
            errors: has_errors.then(|| Box::new(DefinitionErrors::of(lowered))),
            closed: ClosedParts::of(lowered),
            isolation,
        }
    }

    /// A valid definition whose objects were handed out.
    pub(crate) fn handed_out(id: &SharedId, origin: ObjectOrigin, hash: ContentHash) -> Self {
        Definition {
            id: id.clone(),
            origin,
            hash,
            objects: None,
            is_rejected: false,
            errors: None,
            closed: None,
            isolation: Box::default(),
            cost: None,
            fields: None,
        }
    }

    /// The model objects, unless they were handed out.
    pub(crate) fn objects(&self) -> &[Object] {
        self.objects.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Its policies, if it is valid.
    pub(crate) fn valid_policies(&self) -> impl Iterator<Item = &Policy> {
        let objects = if self.is_rejected {
            &[]
        } else {
            self.objects()
        };
        objects.iter().filter_map(|object| match object {
            Object::Policy(policy) => Some(policy),
            _ => None,
        })
    }
}
