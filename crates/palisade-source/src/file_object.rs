//! The objects of a file, each lowered on its own. Nothing here depends on other objects, so the cost of an edit
//! is that of its file.

use crate::file_problem::origin_path;
use crate::string_interner::StringInterner;
use palisade_dialects::{ProblemQuota, lower_object};
use palisade_effective::{Definition, Diagnostic, ObjectOrigin, SharedId};
use palisade_manifest::RawObject;
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The objects of a file, in order.
#[derive(Debug, Default)]
pub(crate) struct FileObjects {
    pub(crate) objects: Vec<FileObject>,
    /// The lowered objects, until they are reported.
    definitions: Mutex<Vec<Definition>>,
}

/// What is kept of an object of a file.
#[derive(Debug)]
pub(crate) struct FileObject {
    /// Its name.
    pub(crate) id: SharedId,
    /// Its line in the file.
    pub(crate) line: u32,
    /// Its column.
    pub(crate) column: u32,
    /// What is to be reported; most objects have nothing.
    report: Option<Box<FileObjectReport>>,
}

#[derive(Debug)]
struct FileObjectReport {
    diagnostics: Vec<Diagnostic>,
    ignored: Option<String>,
}

impl FileObjects {
    /// Lowers the objects of a file; their problems are listed within a quota.
    pub(crate) fn lower(path: &Path, raw: Vec<RawObject>, quota: &mut ProblemQuota) -> Self {
        let mut strings = StringInterner::default();
        let path = origin_path(path);
        let mut definitions = Vec::with_capacity(raw.len());
        let objects = raw.into_iter().map(|raw| {
            let mut lowered = lower_object(&raw);
            strings.intern_lowered(&mut lowered);
            let id: SharedId = Arc::new(lowered.id.clone());
            let ignored = lowered.ignored.take();
            if ignored.is_none() {
                let origin = ObjectOrigin::File {
                    path: Arc::clone(&path),
                    location: lowered.location.clone(),
                };
                definitions.push(Definition::new(id.clone(), &raw, &mut lowered, origin));
            }
            let mut diagnostics = Diagnostic::take_from(&mut lowered);
            diagnostics.retain(|diagnostic| {
                let has_room = quota.has_room(diagnostic.is_error());
                if has_room {
                    quota.admit(diagnostic.is_error());
                } else {
                    quota.omit(diagnostic.is_error(), diagnostic.count());
                }
                has_room
            });
            diagnostics.shrink_to_fit();
            let is_reported = ignored.is_some() || !diagnostics.is_empty();
            FileObject {
                id,
                line: lowered.location.line,
                column: lowered.location.column,
                report: is_reported.then(|| {
                    Box::new(FileObjectReport {
                        diagnostics,
                        ignored,
                    })
                }),
            }
        });
        let mut objects: Vec<FileObject> = objects.collect();
        // They are collected in the memory of the raw objects, which take several times as much.
        objects.shrink_to_fit();
        FileObjects {
            objects,
            definitions: Mutex::new(definitions),
        }
    }

    /// The lowered objects, once.
    pub(crate) fn take_definitions(&self) -> Vec<Definition> {
        let definitions = self.definitions.lock();
        take(&mut *definitions.unwrap_or_else(PoisonError::into_inner))
    }

    /// The objects of kinds that are not ignored.
    pub(crate) fn defined(&self) -> impl DoubleEndedIterator<Item = &FileObject> {
        let objects = self.objects.iter();
        objects.filter(|object| object.ignored().is_none())
    }
}

impl FileObject {
    /// Whether anything is to be reported of it.
    pub(crate) fn is_reported(&self) -> bool {
        self.report.is_some()
    }

    /// Errors and warnings.
    pub(crate) fn diagnostics(&self) -> &[Diagnostic] {
        self.report
            .as_ref()
            .map_or(&[], |report| &report.diagnostics)
    }

    /// Its kind, if the kind is ignored.
    pub(crate) fn ignored(&self) -> Option<&String> {
        self.report.as_ref()?.ignored.as_ref()
    }
}
