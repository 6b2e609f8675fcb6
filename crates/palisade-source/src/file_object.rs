//! One object of a file, lowered on its own. Nothing here depends on other objects, so the cost of an edit is
//! that of its file.

use crate::file_problem::origin_path;
use crate::manifest_file::ConvertedObjects;
use crate::string_interner::StringInterner;
use palisade_dialects::{ProblemQuota, lower_object};
use palisade_effective::{Definition, Diagnostic, ObjectOrigin, SharedId};
use palisade_manifest::RawObject;
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// An object of a file.
#[derive(Debug)]
pub(crate) struct FileObject {
    /// Its name.
    pub(crate) id: SharedId,
    /// Its place.
    pub(crate) origin: ObjectOrigin,
    /// Errors and warnings.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Its kind, if the kind is ignored.
    pub(crate) ignored: Option<String>,
    /// The lowered object, until it is reported.
    definition: Mutex<Option<Box<Definition>>>,
}

impl FileObject {
    /// Lowers the objects of a file.
    pub(crate) fn from_raw_objects(
        path: &Path,
        raw: Vec<RawObject>,
        mut quota: ProblemQuota,
    ) -> ConvertedObjects<Self> {
        let mut strings = StringInterner::default();
        let path = origin_path(path);
        let objects = raw.into_iter().map(|raw| {
            let mut file_object = FileObject::new(&raw, &path, &mut strings);
            file_object.diagnostics.retain(|diagnostic| {
                let has_room = quota.has_room(diagnostic.is_error);
                if has_room {
                    quota.admit(diagnostic.is_error);
                } else {
                    quota.omit(diagnostic.is_error, diagnostic.count());
                }
                has_room
            });
            file_object.diagnostics.shrink_to_fit();
            file_object
        });
        ConvertedObjects {
            objects: objects.collect(),
            quota,
        }
    }

    fn new(raw: &RawObject, path: &Arc<str>, strings: &mut StringInterner) -> Self {
        let mut lowered = lower_object(raw);
        strings.intern_lowered(&mut lowered);
        let id: SharedId = Arc::new(lowered.id.clone());
        let origin = ObjectOrigin::File {
            path: Arc::clone(path),
            location: lowered.location.clone(),
        };
        let ignored = lowered.ignored.take();
        let definition = ignored.is_none().then(|| {
            Box::new(Definition::new(
                id.clone(),
                raw,
                &mut lowered,
                origin.clone(),
            ))
        });
        FileObject {
            id,
            origin,
            diagnostics: Diagnostic::from_lowered(
                lowered.errors,
                take(&mut lowered.warnings),
                lowered.omitted,
            ),
            ignored,
            definition: Mutex::new(definition),
        }
    }

    /// The lowered object, once.
    pub(crate) fn take_definition(&self) -> Option<Definition> {
        let mut definition = self
            .definition
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        definition.take().map(|definition| *definition)
    }
}
